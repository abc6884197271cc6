package io.sanderling.client;

/** Says that a directory is wanted where something else is. */
public final class NotADirectoryException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    NotADirectoryException(Failure failure) {
        super(failure);
    }
}
