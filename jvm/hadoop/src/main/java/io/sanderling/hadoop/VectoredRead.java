package io.sanderling.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.IntConsumer;
import java.util.function.IntFunction;

import org.apache.hadoop.fs.FileRange;

import io.sanderling.client.Buffer;
import io.sanderling.client.Reader;

/**
 * Reads many ranges of a file together. In a class of its own because Hadoop before 3.3.5 has no
 * {@link FileRange}: there it is never called, and it is never loaded.
 */
final class VectoredRead {
    /**
     * Where ranges are cut: the store's blocks usually end there, and a range within one block is
     * handed out by a datanode on the same machine without a copy.
     */
    private static final long CUT_BYTES = 1 << 20;

    /** Bytes under way at once: further requests wait in the store, not in memory. */
    private static final long UNDER_WAY_BYTES = 64 << 20;

    private final Reader reader;
    private final IntFunction<ByteBuffer> allocate;
    private final IntConsumer read;
    private final List<FileRange> ranges;
    private final List<CompletableFuture<ByteBuffer>> results = new ArrayList<>();

    private VectoredRead(Reader reader, List<FileRange> ranges,
            IntFunction<ByteBuffer> allocate, IntConsumer read) {
        this.reader = reader;
        this.ranges = ranges;
        this.allocate = allocate;
        this.read = read;
    }

    /**
     * Gives every range the future of its bytes and begins to read them. Returns how many there
     * are.
     *
     * @throws EOFException when a range is not inside the file; nothing is read then
     * @throws IllegalArgumentException when the length of one is negative
     */
    static int begin(Reader reader, List<? extends FileRange> ranges,
            IntFunction<ByteBuffer> allocate, IntConsumer read) throws IOException {
        if (allocate == null) {
            throw new NullPointerException("allocate is null");
        }
        List<FileRange> checked = new ArrayList<>(ranges);
        for (FileRange range : checked) {
            check(range, reader.length());
        }
        VectoredRead all = new VectoredRead(reader, checked, allocate, read);
        for (FileRange range : checked) {
            CompletableFuture<ByteBuffer> result = new CompletableFuture<>();
            all.results.add(result);
            range.setData(result);
        }
        all.readFrom(0);
        return checked.size();
    }

    private static void check(FileRange range, long end) throws EOFException {
        if (range.getLength() < 0) {
            throw new IllegalArgumentException("length is negative in " + range);
        }
        if (range.getOffset() < 0) {
            throw new EOFException("position is negative in " + range);
        }
        if (range.getOffset() > end - range.getLength()) {
            throw new EOFException(range + " passes the end of the file at " + end);
        }
    }

    /** Reads as many ranges as may be under way, and then those behind them. */
    private void readFrom(int first) {
        int last = first;
        long bytes = 0;
        List<long[]> pieces = new ArrayList<>();
        while (last < ranges.size() && (last == first || bytes < UNDER_WAY_BYTES)) {
            FileRange range = ranges.get(last++);
            cut(range, pieces);
            bytes += range.getLength();
        }
        if (last == first) {
            return;
        }
        int end = last;
        long[] offsets = pieces.stream().mapToLong(piece -> piece[0]).toArray();
        long[] lengths = pieces.stream().mapToLong(piece -> piece[1]).toArray();
        // Copying is nothing for the thread of the native client that completes it.
        reader.readRangesAsync(offsets, lengths).whenCompleteAsync((buffers, error) -> {
            if (error == null) {
                hand(first, end, buffers);
                readFrom(end);
            } else {
                fail(first, error);
            }
        });
    }

    private static void cut(FileRange range, List<long[]> pieces) {
        long end = range.getOffset() + range.getLength();
        for (long at = range.getOffset(); at < end;) {
            long next = Math.min(end, (at / CUT_BYTES + 1) * CUT_BYTES);
            pieces.add(new long[] {at, next - at});
            at = next;
        }
    }

    private void hand(int first, int last, Buffer[] buffers) {
        int piece = 0;
        for (int at = first; at < last; at++) {
            int length = ranges.get(at).getLength();
            try {
                ByteBuffer into = allocate.apply(length);
                int start = into.position();
                for (int done = 0; done < length;) {
                    try (Buffer buffer = buffers[piece++]) {
                        into.put(buffer.bytes());
                        done += buffer.length();
                    }
                }
                into.limit(into.position());
                into.position(start);
                read.accept(length);
                results.get(at).complete(into);
            } catch (RuntimeException | Error e) {
                for (Buffer buffer : buffers) {
                    buffer.close();
                }
                fail(at, e);
                return;
            }
        }
    }

    private void fail(int first, Throwable error) {
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        for (CompletableFuture<ByteBuffer> result : results.subList(first, results.size())) {
            result.completeExceptionally(cause);
        }
    }
}
