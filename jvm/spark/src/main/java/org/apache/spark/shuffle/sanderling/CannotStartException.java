package org.apache.spark.shuffle.sanderling;

/** Thrown when an application cannot start with this shuffle manager; has the reason. */
public final class CannotStartException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    CannotStartException(String sentence, Throwable cause) {
        super(sentence, cause);
    }
}
