package io.sanderling.client;

/** Is the use and the limits of a job, apart from bytes. */
public final class JobAccount {
    private final long names;
    private final long attributeBytes;
    private final long namesMax;
    private final long attributeBytesMax;

    JobAccount(Decoder decoder) {
        names = decoder.number();
        attributeBytes = decoder.number();
        namesMax = decoder.number();
        attributeBytesMax = decoder.number();
    }

    /** Returns how many directories and objects there are, the subtree's root among them. */
    public long names() {
        return names;
    }

    /** Returns the bytes of the attributes of all of them, names and texts. */
    public long attributeBytes() {
        return attributeBytes;
    }

    /** Returns the limit of {@link #names()}; -1 without one. */
    public long namesMax() {
        return namesMax;
    }

    /** Returns the limit of {@link #attributeBytes()}; -1 without one. */
    public long attributeBytesMax() {
        return attributeBytesMax;
    }
}
