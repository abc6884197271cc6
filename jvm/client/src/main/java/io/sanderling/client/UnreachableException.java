package io.sanderling.client;

/** Says that nobody answers at the address, or that the connection broke. */
public final class UnreachableException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    UnreachableException(Failure failure) {
        super(failure);
    }
}
