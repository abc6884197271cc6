package io.sanderling.client;

import java.util.List;

/** Flattens the ranges of many readers, so that they cross into native code at once. */
final class Wanted {
    final long[] readers;
    final int[] counts;
    final long[] offsets;
    final long[] lengths;
    /** Kept reachable with the handles. */
    private final List<Ranges> ranges;

    Wanted(List<Ranges> ranges) throws ClosedException {
        this.ranges = ranges;
        int count = ranges.size();
        readers = new long[count];
        counts = new int[count];
        int total = 0;
        for (int at = 0; at < count; at++) {
            readers[at] = ranges.get(at).reader().handle();
            counts[at] = ranges.get(at).count();
            total = Math.addExact(total, counts[at]);
        }
        offsets = new long[total];
        lengths = new long[total];
        int to = 0;
        for (Ranges each : ranges) {
            System.arraycopy(each.offsets(), 0, offsets, to, each.count());
            System.arraycopy(each.lengths(), 0, lengths, to, each.count());
            to += each.count();
        }
    }

    @Override
    public String toString() {
        return ranges.size() + " readers, " + offsets.length + " ranges";
    }
}
