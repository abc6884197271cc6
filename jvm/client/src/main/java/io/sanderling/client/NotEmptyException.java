package io.sanderling.client;

/** Thrown when a directory is not empty: delete it recursively if you mean that. */
public final class NotEmptyException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    NotEmptyException(Failure failure) {
        super(failure);
    }
}
