package io.sanderling.client;

/** Says that no node answers to this id, name or address. */
public final class UnknownNodeException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    UnknownNodeException(Failure failure) {
        super(failure);
    }
}
