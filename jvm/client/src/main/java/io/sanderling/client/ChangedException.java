package io.sanderling.client;

/** Thrown when the object of that name is not the expected one. */
public final class ChangedException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    ChangedException(Failure failure) {
        super(failure);
    }
}
