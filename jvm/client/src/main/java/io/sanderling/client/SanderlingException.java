package io.sanderling.client;

import java.io.IOException;

/** Thrown when a call fails: the message has the reason, the recovery the next step. */
public class SanderlingException extends IOException {
    private static final long serialVersionUID = 1L;

    private final String name;
    private final Recovery recovery;
    private final long retryAfterMillis;
    private final String path;

    SanderlingException(Failure failure) {
        super(failure.text);
        this.name = failure.name;
        this.recovery = failure.recovery;
        this.retryAfterMillis = failure.retryAfterMillis;
        this.path = failure.path;
    }

    /** Returns the error's name, the same in every language and in docs/ERRORS.md. */
    public final String name() {
        return name;
    }

    /** Returns what to do next. */
    public final Recovery recovery() {
        return recovery;
    }

    /** Returns after how many milliseconds to try again; -1 unless that is the recovery. */
    public final long retryAfterMillis() {
        return retryAfterMillis;
    }

    /** Returns the path that the error is about, or null when it is about none. */
    public final String path() {
        return path;
    }
}
