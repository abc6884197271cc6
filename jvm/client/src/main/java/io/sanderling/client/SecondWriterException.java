package io.sanderling.client;

/** Thrown when another writer holds the object: wait, or find out why two write it. */
public final class SecondWriterException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    SecondWriterException(Failure failure) {
        super(failure);
    }
}
