package io.sanderling.client;

/** Says that no node has room, or that a job's quota is used up. */
public final class FullException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    FullException(Failure failure) {
        super(failure);
    }
}
