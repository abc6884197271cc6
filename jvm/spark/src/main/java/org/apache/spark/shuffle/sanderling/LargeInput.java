package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.Buffer;
import java.io.IOException;
import java.io.InputStream;
import java.util.concurrent.CompletableFuture;
import java.util.zip.CRC32;

/**
 * Streams partitions that are too many bytes to hold at once: some are consumed while the next are
 * on their way. Each partition is held against its checksum when its last byte was read. By then
 * the task has its records, so a partition that is wrong is not read again: the output is lost.
 */
final class LargeInput extends InputStream {
    /** Bytes of one read: enough for the store to be busy, few enough to hold two of them. */
    private static final long WINDOW_BYTES = 4L << 20;

    private final MapFetch map;
    private final Waiting waiting;
    private final CRC32 checksum = new CRC32();
    private final byte[] one = new byte[1];
    private final long end;
    private int partition;
    private long at;
    private long asked;
    private CompletableFuture<Buffer[]> ahead;
    private Buffer window;
    private PartitionInput input;
    private boolean isFailed;

    LargeInput(MapFetch map, int start, int end, Waiting waiting) {
        this.map = map;
        this.waiting = waiting;
        this.partition = start;
        this.at = map.output.index.offset(start);
        this.asked = at;
        this.end = map.output.index.offset(end);
        skipEmpty();
    }

    /** Waits for bytes, and throws when they are missing. */
    interface Waiting {
        <T> T join(CompletableFuture<T> future) throws IOException;

        /** Fails the task because of an output that cannot be read; never returns. */
        void fail(MapFetch map, IOException error) throws IOException;
    }

    @Override
    public int read() throws IOException {
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] into, int from, int count) throws IOException {
        if (at == end) {
            return -1;
        }
        if (count == 0) {
            return 0;
        }
        if (input == null || input.available() == 0) {
            nextWindow();
        }
        long ofPartition = map.output.index.offset(partition + 1) - at;
        int now = input.read(into, from, (int) Math.min(count, ofPartition));
        checksum.update(into, from, now);
        at += now;
        if (now == ofPartition) {
            verify();
        }
        return now;
    }

    /** Reads what is left, so that it is verified; does nothing after a failure of its own. */
    void drain() throws IOException {
        if (isFailed || at == end) {
            return;
        }
        if (window == null) {
            // Not begun, or closed by a serializer: the rest is fetched from here.
            close();
            input = null;
            asked = at;
        }
        byte[] rest = new byte[64 << 10];
        int count = 0;
        while (count >= 0) {
            count = read(rest, 0, rest.length);
        }
    }

    /** Gives the memory back, also of what is still on its way. */
    @Override
    public void close() {
        if (ahead != null) {
            ahead.thenAccept(buffers -> buffers[0].close());
            ahead = null;
        }
        if (window != null) {
            window.close();
            window = null;
        }
    }

    private void nextWindow() throws IOException {
        if (ahead == null) {
            request();
        }
        if (window != null) {
            window.close();
            window = null;
        }
        try {
            window = waiting.join(ahead)[0];
        } catch (IOException error) {
            ahead = null;
            isFailed = true;
            waiting.fail(map, error);
        }
        ahead = null;
        input = PartitionInput.of(window, 0, window.length());
        if (asked < end) {
            request();
        }
    }

    private void request() {
        long length = Math.min(WINDOW_BYTES, end - asked);
        ahead = map.output.reader.readRangesAsync(new long[] {asked}, new long[] {length});
        asked += length;
    }

    private void verify() throws IOException {
        if ((int) checksum.getValue() != map.output.index.checksum(partition)) {
            isFailed = true;
            waiting.fail(map, new MapIndex.CorruptException("partition " + partition
                    + " does not match its checksum and is not read again, because the task has"
                    + " taken records from it"));
        }
        checksum.reset();
        partition++;
        skipEmpty();
    }

    private void skipEmpty() {
        while (at < end && map.output.index.offset(partition + 1) == at) {
            partition++;
        }
    }
}
