package io.sanderling.client;

/** Says that the token is missing, does not hold, or does not allow this. */
public final class AccessDeniedException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    AccessDeniedException(Failure failure) {
        super(failure);
    }
}
