package io.sanderling.client;

/** Thrown when no server answers at the address, or the connection broke. */
public final class UnreachableException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    UnreachableException(Failure failure) {
        super(failure);
    }
}
