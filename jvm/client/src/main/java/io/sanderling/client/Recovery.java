package io.sanderling.client;

/** Is the caller's next step after an error, as {@code SanderlingException} has it. */
public enum Recovery {
    /** What was remembered is out of date: look the object up again, then try again. */
    REFRESH,
    /** Try the same again after {@link SanderlingException#retryAfterMillis()}. */
    RETRY_AFTER,
    /** The bytes are gone: compute exactly what is named again. Retrying does not help. */
    RECOMPUTE,
    /** Neither the caller nor the cluster can mend it: inform an operator. */
    REPORT,
    /** The request itself is wrong: correct it. */
    FIX
}
