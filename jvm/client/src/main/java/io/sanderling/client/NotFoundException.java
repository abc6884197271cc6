package io.sanderling.client;

/** Thrown when no object has this name, or it was deleted or replaced since it was opened. */
public final class NotFoundException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    NotFoundException(Failure failure) {
        super(failure);
    }
}
