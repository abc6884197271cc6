package io.sanderling.client;

/** Thrown when no node has this id, name or address: select one that the nodes show. */
public final class UnknownNodeException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    UnknownNodeException(Failure failure) {
        super(failure);
    }
}
