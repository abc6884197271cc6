package io.sanderling.client;

/**
 * Thrown when the token is missing, is not valid, or does not allow the call; and, with the name
 * {@code Credentials}, when the client cannot read its token or certificate, or does not trust the
 * server's.
 */
public final class AccessDeniedException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    AccessDeniedException(Failure failure) {
        super(failure);
    }
}
