package io.sanderling.client;

/** Says why the native half of the client cannot be loaded, and what to do about it. */
public final class NativeLibraryException extends SanderlingException {
    private static final long serialVersionUID = 1L;

    NativeLibraryException(String text, Throwable cause) {
        super(Failure.fix("NativeLibrary", text));
        if (cause != null) {
            initCause(cause);
        }
    }
}
