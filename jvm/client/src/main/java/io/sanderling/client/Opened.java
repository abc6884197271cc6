package io.sanderling.client;

import java.io.IOException;

/** Is the result of opening one of many objects: its reader, or the error of this one. */
public final class Opened {
    private final Reader reader;
    private final IOException failure;

    Opened(Reader reader, IOException failure) {
        this.reader = reader;
        this.failure = failure;
    }

    /**
     * Returns the open object.
     *
     * @throws IOException {@link #failure()}, when the object could not be opened
     */
    public Reader reader() throws IOException {
        if (failure != null) {
            throw failure;
        }
        return reader;
    }

    /** Returns why the object could not be opened, or null when it is open. */
    public IOException failure() {
        return failure;
    }
}
