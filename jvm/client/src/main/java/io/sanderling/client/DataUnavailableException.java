package io.sanderling.client;

import java.util.List;

/** Thrown with the exact lost bytes of an object: recompute them, retrying does not help. */
public final class DataUnavailableException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    private final transient List<Range> lost;
    private final long object;

    DataUnavailableException(Failure failure) {
        super(failure);
        this.lost = failure.lost;
        this.object = failure.object;
    }

    /** Returns the lost ranges of the requested bytes, in order. */
    public List<Range> lost() {
        return lost;
    }

    /** Returns the object's id. */
    public long object() {
        return object;
    }
}
