package io.sanderling.client;

/** Thrown when the client, reader, writer or job is closed: open it again. */
public final class ClosedException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    ClosedException(Failure failure) {
        super(failure);
    }

    static ClosedException of(String what) {
        return new ClosedException(Failure.fix("Closed", what + " was closed before"));
    }
}
