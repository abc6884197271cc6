package io.sanderling.client;

/** Thrown when a file is required and the object is a directory. */
public final class IsADirectoryException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    IsADirectoryException(Failure failure) {
        super(failure);
    }
}
