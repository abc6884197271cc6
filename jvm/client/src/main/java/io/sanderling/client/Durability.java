package io.sanderling.client;

/** Is how far an object or a directory is copied to the store of its durable directory. */
public final class Durability {
    private final String directory;
    private final String store;
    private final String key;
    private final boolean isDurable;
    private final long backlogChanges;
    private final long backlogBytes;
    private final long backlogAgeMillis;
    private final String stalled;
    private final long storedBytes;

    Durability(Decoder decoder) {
        directory = decoder.text();
        store = decoder.text();
        key = decoder.text();
        isDurable = decoder.flag();
        backlogChanges = decoder.number();
        backlogBytes = decoder.number();
        backlogAgeMillis = decoder.number();
        stalled = decoder.text();
        storedBytes = decoder.number();
    }

    /** Returns the durable directory at or above it. */
    public String directory() {
        return directory;
    }

    /** Returns the name of its store. */
    public String store() {
        return store;
    }

    /** Returns its name in the store; empty for the directory itself. */
    public String key() {
        return key;
    }

    /** Returns whether the store has everything that is committed at or below it. */
    public boolean isDurable() {
        return isDurable;
    }

    /** Returns how many changes of the directory wait for the store. */
    public long backlogChanges() {
        return backlogChanges;
    }

    /** Returns the bytes of the objects among them. */
    public long backlogBytes() {
        return backlogBytes;
    }

    /** Returns the age of the oldest of them; -1 if none waits. */
    public long backlogAgeMillis() {
        return backlogAgeMillis;
    }

    /** Returns why the oldest could not be made when it was tried last; empty if it could. */
    public String stalled() {
        return stalled;
    }

    /** Returns the bytes that are in the store only, from where they are read when they are. */
    public long storedBytes() {
        return storedBytes;
    }

    @Override
    public String toString() {
        String why = stalled.isEmpty() ? "" : ": " + stalled;
        return backlogChanges + " changes of " + directory + " wait for the store " + store + why;
    }
}
