package io.sanderling.client;

/** Thrown when an object of this name exists: choose another name, or replace it. */
public final class AlreadyExistsException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    AlreadyExistsException(Failure failure) {
        super(failure);
    }
}
