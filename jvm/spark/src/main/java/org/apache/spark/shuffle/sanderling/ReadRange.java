package org.apache.spark.shuffle.sanderling;

/** Names the partitions and maps of a shuffle that are read. Ends are behind the last. */
final class ReadRange {
    final int shuffleId;
    final int startMap;
    final int endMap;
    final int start;
    final int end;
    final int partitions;

    private ReadRange(
            int shuffleId, int startMap, int endMap, int start, int end, int partitions) {
        this.shuffleId = shuffleId;
        this.startMap = startMap;
        this.endMap = endMap;
        this.start = start;
        this.end = end;
        this.partitions = partitions;
    }

    /** Returns the range of partitions of a range of maps, of a shuffle of so many partitions. */
    static ReadRange of(
            int shuffleId, int startMap, int endMap, int start, int end, int partitions) {
        return new ReadRange(shuffleId, startMap, endMap, start, end, partitions);
    }
}
