package io.sanderling.client;

/** Thrown when the call's deadline passed; the call may or may not have taken effect. */
public final class TimedOutException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    TimedOutException(Failure failure) {
        super(failure);
    }
}
