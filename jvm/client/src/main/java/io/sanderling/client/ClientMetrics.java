package io.sanderling.client;

/** Holds what a client has counted since it connected. */
public final class ClientMetrics {
    private final long retries;
    private final long moved;
    private final long refreshed;
    private final long failed;
    private final long readBytes;
    private final long writtenBytes;
    private final long sameHostReadBytes;
    private final long sameHostWrittenBytes;
    private final long longestStallMillis;

    ClientMetrics(Decoder decoder) {
        retries = decoder.number();
        moved = decoder.number();
        refreshed = decoder.number();
        failed = decoder.number();
        readBytes = decoder.number();
        writtenBytes = decoder.number();
        sameHostReadBytes = decoder.number();
        sameHostWrittenBytes = decoder.number();
        longestStallMillis = decoder.number();
    }

    /** Returns the attempts beyond the first of a call. */
    public long retries() {
        return retries;
    }

    /** Returns the writes that met a fence and went on in a new block. */
    public long moved() {
        return moved;
    }

    /** Returns the look-ups made because a location was out of date. */
    public long refreshed() {
        return refreshed;
    }

    /** Returns the calls that failed in the end. */
    public long failed() {
        return failed;
    }

    /** Returns the bytes read from datanodes and the catalog. */
    public long readBytes() {
        return readBytes;
    }

    /** Returns the bytes that datanodes and the catalog acknowledged. */
    public long writtenBytes() {
        return writtenBytes;
    }

    /** Returns the bytes read in the memory of a datanode on the same machine. */
    public long sameHostReadBytes() {
        return sameHostReadBytes;
    }

    /** Returns the bytes handed to a datanode on the same machine in shared memory. */
    public long sameHostWrittenBytes() {
        return sameHostWrittenBytes;
    }

    /** Returns the longest milliseconds from a call's first failed attempt to its success. */
    public long longestStallMillis() {
        return longestStallMillis;
    }
}
