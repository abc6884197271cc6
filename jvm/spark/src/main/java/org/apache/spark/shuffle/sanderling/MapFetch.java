package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.Buffer;
import io.sanderling.client.Reader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.zip.CRC32;

/** Holds how far the fetch of one map's partitions has come. Used by one task. */
final class MapFetch implements AutoCloseable {
    final int mapIndex;
    final long mapId;
    /** About how many bytes are needed, by the sizes that Spark's scheduler has. */
    final long estimatedBytes;
    /** Set while the output is being opened; its index is not known yet. */
    Reader reader;
    MapOutputs.MapOutput output;
    IOException failure;
    private Buffer data;

    MapFetch(int mapIndex, long mapId, long estimatedBytes) {
        this.mapIndex = mapIndex;
        this.mapId = mapId;
        this.estimatedBytes = estimatedBytes;
    }

    /** Returns how many bytes of the partitions there are. */
    long bytes(ReadRange range) {
        return output.index.offset(range.end) - output.index.offset(range.start);
    }

    /** Takes the bytes of the partitions. */
    void put(Buffer bytes) {
        close();
        data = bytes;
    }

    /** Returns whether the bytes of the partitions are here. */
    boolean hasData() {
        return data != null || output.whole != null;
    }

    /** Returns the first partition whose bytes do not match its checksum, or -1. */
    int corruptPartition(ReadRange range) {
        if (output.whole != null) {
            return corrupt(range, ByteBuffer.wrap(output.whole), 0);
        }
        // Held, so that the end of the task cannot take the memory away meanwhile.
        synchronized (data) {
            return corrupt(range, data.bytes(), -output.index.offset(range.start));
        }
    }

    /** Returns a stream of some of the partitions. */
    PartitionInput input(ReadRange range, int start, int end) {
        long from = output.index.offset(start);
        int length = (int) (output.index.offset(end) - from);
        if (output.whole != null) {
            return PartitionInput.of(output.whole, (int) from, length);
        }
        return PartitionInput.of(data, (int) (from - output.index.offset(range.start)), length);
    }

    @Override
    public void close() {
        if (data != null) {
            data.close();
            data = null;
        }
    }

    private int corrupt(ReadRange range, ByteBuffer bytes, long base) {
        CRC32 checksum = new CRC32();
        for (int partition = range.start; partition < range.end; partition++) {
            long from = output.index.offset(partition);
            long to = output.index.offset(partition + 1);
            if (from == to) {
                continue;
            }
            bytes.limit((int) (base + to)).position((int) (base + from));
            checksum.reset();
            checksum.update(bytes);
            if ((int) checksum.getValue() != output.index.checksum(partition)) {
                return partition;
            }
        }
        return -1;
    }
}
