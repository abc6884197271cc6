package io.sanderling.client;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * Writes one object, in order, once. Nothing of a new object is seen before {@link #commit()},
 * unless {@link #flush()} published it. Meant for one thread; what another does waits its turn.
 */
public final class Writer implements AutoCloseable {
    /** Bytes that are gathered before native code is called. */
    private static final int GATHERED_BYTES = 64 << 10;

    /** Bytes read from a file at once. */
    private static final int FILE_BYTES = 1 << 20;

    private final Guard guard;
    private final String path;
    /** Given and not sent; made by the first small write. */
    private byte[] gathered;
    private int gatheredBytes;
    private long position;

    Writer(String path, Decoder decoder) {
        this.path = path;
        this.guard = Guard.of(this, decoder.number());
        this.position = decoder.number();
    }

    /**
     * Writes a part of an array at the end.
     *
     * @throws ClosedException when the writer was closed or has failed before
     * @throws IndexOutOfBoundsException when the part is not inside the array
     */
    public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
        Bounds.check(offset, length, bytes.length);
        long handle = handle();
        if (length < GATHERED_BYTES) {
            int now = Math.min(length, room());
            System.arraycopy(bytes, offset, gathered, gatheredBytes, now);
            gatheredBytes += now;
            if (now < length) {
                send(handle);
                System.arraycopy(bytes, offset + now, gathered, 0, length - now);
                gatheredBytes = length - now;
            }
        } else {
            send(handle);
            Native.writeArray(this, handle, bytes, offset, length);
        }
        position += length;
    }

    /**
     * Writes what remains of a buffer, whose position moves to its limit.
     *
     * @throws ClosedException when the writer was closed or has failed before
     */
    public synchronized void write(ByteBuffer bytes) throws IOException {
        long handle = handle();
        int length = bytes.remaining();
        if (bytes.isDirect() && length >= GATHERED_BYTES) {
            send(handle);
            Native.write(this, handle, bytes, bytes.position(), length);
            bytes.position(bytes.limit());
            position += length;
        } else if (bytes.hasArray()) {
            write(bytes.array(), bytes.arrayOffset() + bytes.position(), length);
            bytes.position(bytes.limit());
        } else {
            byte[] copy = new byte[Math.min(length, GATHERED_BYTES)];
            while (bytes.hasRemaining()) {
                int now = Math.min(copy.length, bytes.remaining());
                bytes.get(copy, 0, now);
                write(copy, 0, now);
            }
        }
    }

    /**
     * Writes one byte at the end, the low eight bits of the number.
     *
     * @throws ClosedException when the writer was closed or has failed before
     */
    public synchronized void write(int number) throws IOException {
        long handle = handle();
        if (room() == 0) {
            send(handle);
        }
        gathered[gatheredBytes++] = (byte) number;
        position++;
    }

    /**
     * Writes a part of a local file.
     *
     * @throws EOFException when the file ends before
     * @throws IllegalArgumentException when the part is negative
     */
    public synchronized void writeFile(Path file, long offset, long length) throws IOException {
        if (offset < 0 || length < 0) {
            throw new IllegalArgumentException("range " + offset + "+" + length + " is negative");
        }
        handle();
        ByteBuffer piece = ByteBuffer.allocateDirect((int) Math.min(length, FILE_BYTES));
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            for (long left = length; left > 0; left -= piece.limit()) {
                piece.clear();
                piece.limit((int) Math.min(left, piece.capacity()));
                readFully(channel, piece, offset + length - left, file);
                piece.flip();
                write(piece.duplicate());
            }
        }
    }

    /** Returns how many bytes the object will have, with those given so far. */
    public synchronized long position() {
        return position;
    }

    /** Returns the object's path when it was opened. */
    public String path() {
        return path;
    }

    /**
     * Sends what was given so far and makes it readable by others.
     *
     * @throws IOException when it cannot be sent: the writer takes nothing more then
     */
    public synchronized void flush() throws IOException {
        long handle = handle();
        send(handle);
        Native.flush(this, handle);
    }

    /**
     * Sets a text that is kept beside the bytes from the commit on.
     *
     * @throws ClosedException when the writer was closed or has failed before
     */
    public synchronized void setAttribute(String name, String text) throws IOException {
        byte[] encoded = new Encoder().text("name", name).text("text", text).encoded();
        Native.setAttribute(this, handle(), encoded);
    }

    /**
     * Sets how many milliseconds it took to compute the object, so that a relocation without enough
     * time saves dear bytes first.
     *
     * @throws IllegalArgumentException when it is negative
     */
    public synchronized void setRecomputeMillis(long millis) throws IOException {
        if (millis < 0) {
            throw new IllegalArgumentException("recomputeMillis is negative: " + millis);
        }
        Native.setRecompute(this, handle(), millis);
    }

    /**
     * Sends the rest, seals the object and returns its metadata. A replacement is visible from
     * now on.
     *
     * @throws ClosedException when the writer was closed or has failed before
     */
    public synchronized ObjectStat commit() throws IOException {
        long handle = handle();
        send(handle);
        guard.take();
        gathered = null;
        return new ObjectStat(new Decoder(Native.commit(this, handle)));
    }

    /**
     * Gives the object up: a new one vanishes, an appended one keeps what was flushed. Does nothing
     * when the writer is closed.
     *
     * @throws IOException when the namenode cannot be reached: the lease ends by itself then
     */
    public synchronized void abort() throws IOException {
        gathered = null;
        long handle = guard.take();
        if (handle != 0) {
            Native.abort(this, handle);
        }
    }

    /** Aborts unless {@link #commit()} was called before. Does nothing the second time. */
    @Override
    public void close() throws IOException {
        abort();
    }

    private long handle() throws ClosedException {
        long handle = guard.handle();
        if (handle == 0) {
            throw ClosedException.of("the writer of " + path);
        }
        return handle;
    }

    /** Returns how many bytes can be gathered before they must be sent. */
    private int room() {
        if (gathered == null) {
            gathered = new byte[GATHERED_BYTES];
            gatheredBytes = 0;
        }
        return gathered.length - gatheredBytes;
    }

    /** Sends what was gathered. */
    private void send(long handle) throws IOException {
        if (gathered != null && gatheredBytes > 0) {
            int length = gatheredBytes;
            gatheredBytes = 0;
            Native.writeArray(this, handle, gathered, 0, length);
        }
    }

    private static void readFully(FileChannel channel, ByteBuffer into, long from, Path file)
            throws IOException {
        while (into.hasRemaining()) {
            if (channel.read(into, from + into.position()) < 0) {
                throw new EOFException(file + " ends at " + channel.size());
            }
        }
    }
}
