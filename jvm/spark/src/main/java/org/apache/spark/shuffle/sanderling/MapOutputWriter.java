package org.apache.spark.shuffle.sanderling;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;
import java.util.Optional;
import org.apache.spark.shuffle.api.ShuffleMapOutputWriter;
import org.apache.spark.shuffle.api.ShufflePartitionWriter;
import org.apache.spark.shuffle.api.WritableByteChannelWrapper;
import org.apache.spark.shuffle.api.metadata.MapOutputCommitMessage;

/** Takes the partitions of a map output from Spark's writers, one after the other. */
final class MapOutputWriter implements ShuffleMapOutputWriter {
    private final MapObject object;
    private final long[] lengths;
    private final int[] checksums;
    private int current = -1;
    private long start;

    MapOutputWriter(MapObject object, int partitions) {
        this.object = object;
        this.lengths = new long[partitions];
        this.checksums = new int[partitions];
    }

    @Override
    public ShufflePartitionWriter getPartitionWriter(int reducePartitionId) {
        if (reducePartitionId <= current || reducePartitionId >= lengths.length) {
            throw new IllegalArgumentException("partition " + reducePartitionId + " of "
                    + lengths.length + " after partition " + current);
        }
        finishPartition();
        current = reducePartitionId;
        return new PartitionWriter(reducePartitionId);
    }

    @Override
    public MapOutputCommitMessage commitAllPartitions(long[] sparkChecksums) throws IOException {
        finishPartition();
        object.commit(lengths, checksums);
        return MapOutputCommitMessage.of(lengths);
    }

    @Override
    public void abort(Throwable error) {
        object.close();
    }

    private void finishPartition() {
        if (current >= 0) {
            lengths[current] = object.bytes() - start;
            checksums[current] = object.takeChecksum();
        }
        start = object.bytes();
    }

    /** Takes one partition, as a stream or from a channel. */
    private final class PartitionWriter implements ShufflePartitionWriter {
        private final int partition;

        PartitionWriter(int partition) {
            this.partition = partition;
        }

        @Override
        public OutputStream openStream() {
            return new PartitionStream();
        }

        @Override
        public Optional<WritableByteChannelWrapper> openChannelWrapper() {
            return Optional.of(new PartitionChannel());
        }

        @Override
        public long getNumBytesWritten() {
            return partition == current ? object.bytes() - start : lengths[partition];
        }
    }

    private final class PartitionStream extends OutputStream {
        private final byte[] one = new byte[1];

        @Override
        public void write(int number) throws IOException {
            one[0] = (byte) number;
            object.write(one, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int at, int count) throws IOException {
            object.write(bytes, at, count);
        }
    }

    private final class PartitionChannel
            implements WritableByteChannelWrapper, WritableByteChannel {
        @Override
        public WritableByteChannel channel() {
            return this;
        }

        @Override
        public int write(ByteBuffer from) throws IOException {
            int count = from.remaining();
            object.write(from);
            return count;
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {
            // The next partition goes on in the same object.
        }
    }
}
