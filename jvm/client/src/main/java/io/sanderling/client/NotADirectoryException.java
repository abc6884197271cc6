package io.sanderling.client;

/** Thrown when a directory is required and the object is another kind. */
public final class NotADirectoryException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    NotADirectoryException(Failure failure) {
        super(failure);
    }
}
