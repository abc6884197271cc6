package io.sanderling.client;

/** Says that another object has the name than the one that was expected there. */
public final class ChangedException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    ChangedException(Failure failure) {
        super(failure);
    }
}
