package io.sanderling.client;

import java.util.Objects;

/** Names ranges, in bytes, to read of one open object with those of others in one call. */
public final class Ranges {
    private final Reader reader;
    private final long[] offsets;
    private final long[] lengths;

    /**
     * Makes the list of ranges from their offsets and lengths, which are not copied.
     *
     * @throws IllegalArgumentException when the arrays differ in length, or one value is negative
     *     or longer than a buffer can be
     */
    public Ranges(Reader reader, long[] offsets, long[] lengths) {
        this.reader = Objects.requireNonNull(reader, "reader");
        Bounds.checkRanges(offsets, lengths);
        this.offsets = offsets;
        this.lengths = lengths;
    }

    /** Returns the open object. */
    public Reader reader() {
        return reader;
    }

    /** Returns how many ranges there are. */
    public int count() {
        return offsets.length;
    }

    long[] offsets() {
        return offsets;
    }

    long[] lengths() {
        return lengths;
    }
}
