package io.sanderling.client;

/** Thrown when the native half of the client cannot be loaded; the message has the next step. */
public final class NativeLibraryException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    NativeLibraryException(String text, Throwable cause) {
        super(Failure.fix("NativeLibrary", text));
        if (cause != null) {
            initCause(cause);
        }
    }
}
