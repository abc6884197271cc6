package org.apache.spark.shuffle.sanderling;

/** Says in one sentence why an application cannot start with this shuffle manager. */
public final class CannotStartException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    CannotStartException(String sentence, Throwable cause) {
        super(sentence, cause);
    }
}
