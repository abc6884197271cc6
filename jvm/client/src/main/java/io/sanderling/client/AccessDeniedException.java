package io.sanderling.client;

/** Thrown when the token is missing, is not valid, or does not allow the call. */
public final class AccessDeniedException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    AccessDeniedException(Failure failure) {
        super(failure);
    }
}
