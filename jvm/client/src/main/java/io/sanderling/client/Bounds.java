package io.sanderling.client;

/** Checks what callers give before it reaches native code. */
final class Bounds {
    /** Longest read into one buffer: what a Java array can hold in every JVM. */
    static final long READ_BYTES_MAX = Integer.MAX_VALUE - 8;

    private Bounds() {}

    /** Refuses a run that is not inside an array or buffer of that size. */
    static void check(int at, int count, int size) {
        if ((at | count) < 0 || at > size - count) {
            throw new IndexOutOfBoundsException(at + "+" + count + " is not inside " + size);
        }
    }

    /** Refuses a range that no buffer could hold. */
    static void checkRange(long offset, long length) {
        if (offset < 0 || length < 0) {
            throw new IllegalArgumentException("range " + offset + "+" + length + " is negative");
        }
        if (length > READ_BYTES_MAX) {
            throw new IllegalArgumentException(
                    "a buffer cannot hold " + length + " bytes: read at most " + READ_BYTES_MAX
                            + " at once");
        }
    }

    /** Refuses ranges of which one could not be read, or whose arrays differ in length. */
    static void checkRanges(long[] offsets, long[] lengths) {
        if (offsets.length != lengths.length) {
            throw new IllegalArgumentException(
                    offsets.length + " offsets and " + lengths.length + " lengths");
        }
        for (int at = 0; at < offsets.length; at++) {
            checkRange(offsets[at], lengths[at]);
        }
    }
}
