package io.sanderling.client;

/** Thrown when the writer lost its object: create it or append to it again. */
public final class WriterLostException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    WriterLostException(Failure failure) {
        super(failure);
    }
}
