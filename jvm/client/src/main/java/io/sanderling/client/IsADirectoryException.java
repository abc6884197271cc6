package io.sanderling.client;

/** Says that a file is wanted where a directory is. */
public final class IsADirectoryException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    IsADirectoryException(Failure failure) {
        super(failure);
    }
}
