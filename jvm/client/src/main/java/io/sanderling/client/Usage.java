package io.sanderling.client;

/** Is the number of objects and bytes of a subtree, and how many of these are lost. */
public final class Usage {
    private final long files;
    private final long directories;
    private final long bytes;
    private final long lostBytes;

    Usage(Decoder decoder) {
        files = decoder.number();
        directories = decoder.number();
        bytes = decoder.number();
        lostBytes = decoder.number();
    }

    /** Returns how many files and key-values there are. */
    public long files() {
        return files;
    }

    /** Returns how many directories, multifiles and tables there are. */
    public long directories() {
        return directories;
    }

    /** Returns the published bytes. */
    public long bytes() {
        return bytes;
    }

    /** Returns how many of them are lost. */
    public long lostBytes() {
        return lostBytes;
    }
}
