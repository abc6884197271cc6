package io.sanderling.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;

/** Reads one object, as it was when it was opened or last refreshed. Safe for many threads. */
public final class Reader implements AutoCloseable {
    private final SanderlingClient client;
    private final Guard guard;
    private volatile ObjectStat stat;

    Reader(SanderlingClient client, Decoder decoder) {
        this.client = client;
        this.guard = Guard.of(this, decoder.number());
        this.stat = new ObjectStat(decoder);
    }

    /** Returns the metadata of the object as last looked up. */
    public ObjectStat stat() {
        return stat;
    }

    /** Returns how many bytes can be read. */
    public long length() {
        return stat.length();
    }

    /**
     * Reads from an offset into a buffer and returns how many bytes there were: fewer than there is
     * room for only at the end, and -1 behind it. The buffer's position moves on by as many.
     *
     * @throws DataUnavailableException with exactly what is lost
     * @throws IllegalArgumentException when the offset is negative or the buffer read-only
     */
    public int read(long offset, ByteBuffer into) throws IOException {
        if (into.isReadOnly()) {
            throw new IllegalArgumentException("the buffer is read-only");
        }
        int at = into.position();
        int count = into.remaining();
        int read;
        if (into.isDirect()) {
            check(offset);
            read = Native.read(this, handle(), offset, into, at, count);
        } else {
            read = read(offset, into.array(), into.arrayOffset() + at, count);
        }
        if (read > 0) {
            into.position(at + read);
        }
        return read;
    }

    /**
     * Reads from an offset into a part of an array and returns how many bytes there were: fewer
     * than {@code length} only at the end, and -1 behind it.
     *
     * @throws DataUnavailableException with exactly what is lost
     * @throws IndexOutOfBoundsException when the part is not inside the array
     * @throws IllegalArgumentException when the offset is negative
     */
    public int read(long offset, byte[] into, int at, int length) throws IOException {
        Bounds.check(at, length, into.length);
        check(offset);
        return Native.readArray(this, handle(), offset, into, at, length);
    }

    /**
     * Reads a range. On the datanode's machine its bytes are not copied.
     *
     * @throws DataUnavailableException with exactly what is lost
     * @throws BadRequestException {@code OutOfRange} when the range passes the end
     * @throws IllegalArgumentException when it is negative or longer than a buffer can be
     */
    public Buffer readRange(long offset, long length) throws IOException {
        return readRanges(new long[] {offset}, new long[] {length})[0];
    }

    /**
     * Reads many ranges, with one call for all ranges of a datanode. If one fails, all do.
     *
     * @throws IOException as {@link #readRange}
     */
    public Buffer[] readRanges(long[] offsets, long[] lengths) throws IOException {
        Ranges ranges = new Ranges(this, offsets, lengths);
        return client.readMany(Collections.singletonList(ranges)).get(0).buffers();
    }

    /** Begins to read many ranges; fails as {@link #readRanges}. */
    public CompletableFuture<Buffer[]> readRangesAsync(long[] offsets, long[] lengths) {
        Ranges ranges = new Ranges(this, offsets, lengths);
        CompletableFuture<Buffer[]> buffers = new CompletableFuture<>();
        client.readManyAsync(Collections.singletonList(ranges)).whenComplete((fetched, error) -> {
            IOException failure = error == null ? fetched.get(0).failure() : null;
            if (error != null) {
                buffers.completeExceptionally(error);
            } else if (failure != null) {
                buffers.completeExceptionally(failure);
            } else {
                buffers.complete(fetched.get(0).openBuffers());
            }
        });
        return buffers;
    }

    /**
     * Looks the object up again: what was published meanwhile can be read then.
     *
     * @throws NotFoundException when it was deleted or replaced
     */
    public void refresh() throws IOException {
        stat = new ObjectStat(new Decoder(Native.refresh(this, handle())));
    }

    /** Closes the reader; what it has read stays. Does nothing the second time. */
    @Override
    public void close() {
        guard.release();
    }

    SanderlingClient client() {
        return client;
    }

    long handle() throws ClosedException {
        long handle = guard.handle();
        if (handle == 0) {
            throw ClosedException.of("the reader of " + stat.path());
        }
        return handle;
    }

    private static void check(long offset) {
        if (offset < 0) {
            throw new IllegalArgumentException("the offset is negative: " + offset);
        }
    }

    @Override
    public String toString() {
        return "Reader of " + Objects.toString(stat);
    }
}
