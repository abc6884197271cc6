package io.sanderling.client;

/** Says that the call's deadline passed; it may have been done or not. */
public final class TimedOutException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    TimedOutException(Failure failure) {
        super(failure);
    }
}
