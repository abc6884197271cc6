package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.Buffer;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;

/** Streams the bytes of partitions from memory. */
final class PartitionInput extends InputStream {
    /** Single bytes and headers are taken from here: each look into leased memory takes a lock. */
    private static final int SMALL_BYTES = 512;

    private final InputStream from;
    private final byte[] small;
    private int smallAt;
    private int smallEnd;
    private int rest;

    private PartitionInput(InputStream from, int length, byte[] small) {
        this.from = from;
        this.rest = length;
        this.small = small;
    }

    /** Returns a stream of a part of an array. */
    static PartitionInput of(byte[] bytes, int at, int length) {
        return new PartitionInput(new ByteArrayInputStream(bytes, at, length), length, new byte[0]);
    }

    /** Returns a stream of a part of a buffer, which may be closed meanwhile. */
    static PartitionInput of(Buffer buffer, int at, int length) {
        InputStream from = buffer.stream();
        try {
            from.skip(at);
        } catch (IOException error) {
            throw new IllegalStateException("the bytes were given back", error);
        }
        return new PartitionInput(from, length, new byte[Math.min(SMALL_BYTES, length)]);
    }

    @Override
    public int read() throws IOException {
        if (smallAt < smallEnd) {
            return small[smallAt++] & 0xff;
        }
        if (rest == 0) {
            return -1;
        }
        if (small.length == 0) {
            rest--;
            return from.read();
        }
        fill();
        return small[smallAt++] & 0xff;
    }

    @Override
    public int read(byte[] into, int at, int count) throws IOException {
        if (count == 0) {
            return 0;
        }
        if (smallAt == smallEnd) {
            if (rest == 0) {
                return -1;
            }
            if (count >= small.length) {
                return readThrough(into, at, count);
            }
            fill();
        }
        int now = Math.min(count, smallEnd - smallAt);
        System.arraycopy(small, smallAt, into, at, now);
        smallAt += now;
        return now;
    }

    @Override
    public int available() {
        return rest + smallEnd - smallAt;
    }

    private int readThrough(byte[] into, int at, int count) throws IOException {
        int now = from.read(into, at, Math.min(count, rest));
        rest -= now;
        return now;
    }

    private void fill() throws IOException {
        smallEnd = from.read(small, 0, Math.min(small.length, rest));
        smallAt = 0;
        rest -= smallEnd;
    }
}
