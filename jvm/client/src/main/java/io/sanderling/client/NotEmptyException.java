package io.sanderling.client;

/** Says that a directory holds something: delete it recursively if that is meant. */
public final class NotEmptyException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    NotEmptyException(Failure failure) {
        super(failure);
    }
}
