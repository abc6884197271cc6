package io.sanderling.hadoop;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

import io.sanderling.client.Buffer;
import io.sanderling.client.Reader;

/**
 * Fetches what a reader will want next. As long as it reads on, twice as much each time, and the
 * next piece while this one is used; after a jump it begins small again. Not safe for many threads.
 */
final class ReadAhead {
    /** What the first read of a place fetches: a few reads of Hadoop's usual buffers. */
    private static final int FIRST_BYTES = 64 << 10;

    /**
     * Where pieces are cut: the store's blocks usually end there, and a range within one block is
     * handed out by a datanode on the same machine without a copy.
     */
    private static final long CUT_BYTES = 1 << 20;

    private final Reader reader;
    private final ReadPolicy policy;
    private int bytesMax;
    private int bytes;

    private Span current = Span.NONE;
    private CompletableFuture<Buffer[]> coming;
    private Span comingSpan = Span.NONE;

    ReadAhead(Reader reader, ReadPolicy policy, int bytesMax) {
        this.reader = reader;
        this.policy = policy;
        this.bytesMax = bytesMax;
        this.bytes = firstBytes();
    }

    /** Changes how many bytes are fetched ahead at most, from the next fetch on. */
    void limit(int bytesMax) {
        this.bytesMax = bytesMax;
        bytes = Math.min(bytes, bytesMax);
    }

    /** Returns whether bytes from there on are here or on their way. */
    boolean has(long position) {
        return current.holds(position) || comingSpan.holds(position);
    }

    /**
     * Returns the bytes from a position inside the file on: at least one. They are valid until the
     * next call.
     *
     * @throws IOException when they cannot be read; the position can be requested again
     */
    ByteBuffer at(long position) throws IOException {
        if (!current.holds(position)) {
            if (position == comingSpan.from && coming != null) {
                takeComing();
            } else {
                fetch(position);
            }
            if (policy != ReadPolicy.RANDOM && bytes == bytesMax && current.to < reader.length()) {
                comingSpan = Span.cut(current.to, Math.min(current.to + bytes, reader.length()));
                coming = reader.readRangesAsync(comingSpan.offsets, comingSpan.lengths);
            }
        }
        return current.view(position);
    }

    /** Gives all memory back. What is read next is fetched again. */
    void forget() {
        current.close();
        current = Span.NONE;
        forgetComing();
        bytes = firstBytes();
    }

    private int firstBytes() {
        return policy == ReadPolicy.SEQUENTIAL ? bytesMax : Math.min(FIRST_BYTES, bytesMax);
    }

    private void fetch(long position) throws IOException {
        boolean goesOn = position == current.to && current.to > current.from;
        forgetComing();
        current.close();
        current = Span.NONE;
        boolean grows = goesOn && policy != ReadPolicy.RANDOM;
        bytes = grows ? Math.min(bytes * 2, bytesMax) : firstBytes();
        Span span = Span.cut(position, Math.min(position + bytes, reader.length()));
        span.buffers = reader.readRanges(span.offsets, span.lengths);
        current = span;
    }

    private void takeComing() throws IOException {
        CompletableFuture<Buffer[]> taken = coming;
        Span span = comingSpan;
        coming = null;
        comingSpan = Span.NONE;
        current.close();
        current = Span.NONE;
        try {
            span.buffers = taken.get();
        } catch (InterruptedException e) {
            drop(taken);
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while bytes were read");
        } catch (ExecutionException e) {
            throw failure(e);
        }
        current = span;
    }

    private void forgetComing() {
        if (coming != null) {
            drop(coming);
        }
        coming = null;
        comingSpan = Span.NONE;
    }

    /** Closes what will come when it comes. */
    private static void drop(CompletableFuture<Buffer[]> coming) {
        coming.thenAccept(buffers -> {
            for (Buffer buffer : buffers) {
                buffer.close();
            }
        });
    }

    private static IOException failure(ExecutionException e) {
        Throwable cause = e.getCause();
        return cause instanceof IOException ? (IOException) cause : new IOException(cause);
    }

    /** A run of bytes in pieces that are read together. */
    private static final class Span {
        private static final Span NONE = new Span(0, 0, new long[0], new long[0]);

        private final long from;
        private final long to;
        private final long[] offsets;
        private final long[] lengths;
        private Buffer[] buffers = new Buffer[0];
        private ByteBuffer view;
        private int viewed = -1;

        private Span(long from, long to, long[] offsets, long[] lengths) {
            this.from = from;
            this.to = to;
            this.offsets = offsets;
            this.lengths = lengths;
        }

        static Span cut(long from, long to) {
            int count = (int) ((to - 1) / CUT_BYTES - from / CUT_BYTES) + 1;
            long[] offsets = new long[count];
            long[] lengths = new long[count];
            long at = from;
            for (int piece = 0; piece < count; piece++) {
                long end = Math.min(to, (at / CUT_BYTES + 1) * CUT_BYTES);
                offsets[piece] = at;
                lengths[piece] = end - at;
                at = end;
            }
            return new Span(from, to, offsets, lengths);
        }

        boolean holds(long position) {
            return position >= from && position < to;
        }

        ByteBuffer view(long position) {
            int piece = (int) (position / CUT_BYTES - from / CUT_BYTES);
            if (piece != viewed) {
                view = buffers[piece].bytes();
                viewed = piece;
            }
            view.limit((int) lengths[piece]);
            view.position((int) (position - offsets[piece]));
            return view;
        }

        void close() {
            for (Buffer buffer : buffers) {
                buffer.close();
            }
            buffers = new Buffer[0];
            view = null;
            viewed = -1;
        }
    }
}
