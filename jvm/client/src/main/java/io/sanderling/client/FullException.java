package io.sanderling.client;

/** Thrown when no node has room, or a job's quota is used up: delete something, or add nodes. */
public final class FullException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    FullException(Failure failure) {
        super(failure);
    }
}
