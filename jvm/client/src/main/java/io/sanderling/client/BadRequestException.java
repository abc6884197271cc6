package io.sanderling.client;

/** Says that the request itself is wrong; its message says what. */
public final class BadRequestException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    BadRequestException(Failure failure) {
        super(failure);
    }
}
