package io.sanderling.client;

/** Says that the client, reader, writer or job was closed before: open it again. */
public final class ClosedException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    ClosedException(Failure failure) {
        super(failure);
    }

    static ClosedException of(String what) {
        return new ClosedException(Failure.fix("Closed", what + " was closed before"));
    }
}
