package io.sanderling.client;

/** Thrown when the request itself is wrong; its message names the value. */
public final class BadRequestException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    BadRequestException(Failure failure) {
        super(failure);
    }
}
