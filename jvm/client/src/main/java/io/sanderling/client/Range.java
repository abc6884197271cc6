package io.sanderling.client;

/** Names a run of bytes of one object: its offset and its length, both in bytes. */
public final class Range {
    private final long offset;
    private final long length;

    /**
     * Makes a range of so many bytes from an offset of the object on.
     *
     * @throws IllegalArgumentException when one of them is negative
     */
    public Range(long offset, long length) {
        if (offset < 0 || length < 0) {
            throw new IllegalArgumentException("range " + offset + "+" + length + " is negative");
        }
        this.offset = offset;
        this.length = length;
    }

    /** Returns the first byte, counted from the start of the object. */
    public long offset() {
        return offset;
    }

    /** Returns the number of bytes. */
    public long length() {
        return length;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Range
                && offset == ((Range) other).offset
                && length == ((Range) other).length;
    }

    @Override
    public int hashCode() {
        return Long.hashCode(offset) * 31 + Long.hashCode(length);
    }

    @Override
    public String toString() {
        return offset + "+" + length;
    }
}
