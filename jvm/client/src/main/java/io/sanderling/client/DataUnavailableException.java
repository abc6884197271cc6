package io.sanderling.client;

import java.util.List;

/** Says exactly which bytes of an object are lost: compute them again, retrying does not help. */
public final class DataUnavailableException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    private final transient List<Range> lost;
    private final long object;

    DataUnavailableException(Failure failure) {
        super(failure);
        this.lost = failure.lost;
        this.object = failure.object;
    }

    /** Returns what is lost of the bytes that were asked for, in order. */
    public List<Range> lost() {
        return lost;
    }

    /** Returns the object's id. */
    public long object() {
        return object;
    }
}
