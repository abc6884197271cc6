package io.sanderling.client;

/** Says that an object of this name exists: choose another name, or replace it. */
public final class AlreadyExistsException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    AlreadyExistsException(Failure failure) {
        super(failure);
    }
}
