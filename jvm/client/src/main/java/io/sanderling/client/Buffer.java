package io.sanderling.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;

/**
 * Holds bytes that were read. Those of a datanode on the same machine lie in its memory and were
 * not copied: they are leased until the close, or until neither the buffer nor a view of it can be
 * reached any more. Close it: a datanode cannot use the memory for anything else before.
 */
public final class Buffer implements AutoCloseable {
    private final Guard guard;
    private final int length;
    private volatile ByteBuffer bytes;

    private Buffer(ByteBuffer bytes, Guard guard) {
        this.bytes = bytes;
        this.length = bytes.remaining();
        this.guard = guard;
    }

    /** Makes the buffer of bytes that Java itself holds. */
    static Buffer held(ByteBuffer bytes) {
        return new Buffer(bytes, null);
    }

    /** Makes the buffer of native memory, which is given back with the handle. */
    static Buffer borrowed(ByteBuffer root, long handle) {
        // Every view of the memory keeps the root reachable, so the guard watches that.
        return new Buffer(root, Guard.of(root, handle));
    }

    /**
     * Returns a new read-only view of the bytes, from position 0 to the limit {@link #length()}.
     * It is direct unless the bytes are few. Views must not be read after {@link #close()}: the
     * memory under them may hold other bytes then, or be gone.
     *
     * @throws IllegalStateException when the buffer was closed
     */
    public ByteBuffer bytes() {
        return open().asReadOnlyBuffer();
    }

    /** Returns how many bytes there are. */
    public int length() {
        return length;
    }

    /**
     * Copies the bytes into a new array.
     *
     * @throws IllegalStateException when the buffer was closed
     */
    public synchronized byte[] toArray() {
        byte[] array = new byte[length];
        bytes().get(array);
        return array;
    }

    /**
     * Returns a stream of the bytes from the first on; several are independent of each other. It
     * may be used while another thread closes the buffer: it throws then. Its own close does
     * nothing.
     *
     * @throws IllegalStateException when the buffer was closed
     */
    public InputStream stream() {
        return new BufferStream(bytes());
    }

    /** Gives the memory back; does nothing the second time. */
    @Override
    public synchronized void close() {
        bytes = null;
        if (guard != null) {
            guard.release();
        }
    }

    private ByteBuffer open() {
        ByteBuffer open = bytes;
        if (open == null) {
            throw new IllegalStateException("the buffer was closed before: read the bytes again");
        }
        return open;
    }

    /** Reads under the buffer's lock, so that a close cannot take the memory away meanwhile. */
    private final class BufferStream extends InputStream {
        private final ByteBuffer rest;
        private int mark;

        BufferStream(ByteBuffer rest) {
            this.rest = rest;
        }

        @Override
        public int read() throws IOException {
            synchronized (Buffer.this) {
                check();
                return rest.hasRemaining() ? rest.get() & 0xff : -1;
            }
        }

        @Override
        public int read(byte[] into, int at, int count) throws IOException {
            Bounds.check(at, count, into.length);
            synchronized (Buffer.this) {
                check();
                if (count == 0) {
                    return 0;
                }
                int now = Math.min(count, rest.remaining());
                rest.get(into, at, now);
                return now == 0 ? -1 : now;
            }
        }

        @Override
        public long skip(long count) {
            int now = (int) Math.max(0, Math.min(count, rest.remaining()));
            rest.position(rest.position() + now);
            return now;
        }

        @Override
        public int available() {
            return rest.remaining();
        }

        @Override
        public boolean markSupported() {
            return true;
        }

        @Override
        public void mark(int limit) {
            mark = rest.position();
        }

        @Override
        public void reset() {
            rest.position(mark);
        }

        private void check() throws IOException {
            if (bytes == null) {
                throw ClosedException.of("the buffer under the stream");
            }
        }
    }
}
