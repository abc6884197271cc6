package io.sanderling.client;

import java.io.IOException;

/** Is the result of reading the ranges of one of many objects: their bytes, or the error. */
public final class Fetched implements AutoCloseable {
    private final Buffer[] buffers;
    private final IOException failure;

    Fetched(Buffer[] buffers, IOException failure) {
        this.buffers = buffers;
        this.failure = failure;
    }

    /**
     * Returns the bytes of the ranges, in their order. Each buffer is to be closed.
     *
     * @throws IOException {@link #failure()}, when one of the ranges could not be read
     */
    public Buffer[] buffers() throws IOException {
        if (failure != null) {
            throw failure;
        }
        return buffers;
    }

    Buffer[] openBuffers() {
        return buffers;
    }

    /** Returns why the ranges could not be read, or null when all of them were. */
    public IOException failure() {
        return failure;
    }

    /** Closes all buffers. */
    @Override
    public void close() {
        if (buffers != null) {
            for (Buffer buffer : buffers) {
                buffer.close();
            }
        }
    }
}
