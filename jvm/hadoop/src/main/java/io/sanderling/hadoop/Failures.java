package io.sanderling.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;

import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;

import io.sanderling.client.SanderlingException;

/**
 * Makes Hadoop's exceptions of the store's. What Hadoop has no exception for stays as it is: an
 * {@link IOException} that names what happened, such as
 * {@link io.sanderling.client.DataUnavailableException} with what is lost.
 */
final class Failures {
    private Failures() {
    }

    /** Returns the error of a failed connection, with the keys to set. */
    static IOException connecting(String address, IOException failure) {
        if (!name(failure).equals("Unauthenticated")) {
            return any(address, failure);
        }
        String text = text(address, failure) + "; set " + Settings.TOKEN_FILE + ", and "
                + Settings.TLS_CA + " where the port speaks TLS";
        return with(new AccessControlException(text), failure);
    }

    /** Returns what Hadoop expects of a call that looks at something. */
    static IOException reading(String path, IOException failure) {
        switch (name(failure)) {
            case "NotADirectory":
            case "IsADirectory":
                return with(new FileNotFoundException(text(path, failure)), failure);
            default:
                return any(path, failure);
        }
    }

    /** Returns what Hadoop expects of a call that makes or changes something. */
    static IOException writing(String path, IOException failure) {
        switch (name(failure)) {
            case "NotADirectory":
                return with(new ParentNotDirectoryException(text(path, failure)), failure);
            case "IsADirectory":
                return with(new FileAlreadyExistsException(text(path, failure)), failure);
            default:
                return any(path, failure);
        }
    }

    /** Returns the name of the store's error, or an empty text for another one. */
    static String name(IOException failure) {
        if (failure instanceof SanderlingException) {
            return ((SanderlingException) failure).name();
        }
        return "";
    }

    private static IOException any(String path, IOException failure) {
        switch (name(failure)) {
            case "NotFound":
            case "ObjectGone":
                return with(new FileNotFoundException(text(path, failure)), failure);
            case "Exists":
                return with(new FileAlreadyExistsException(text(path, failure)), failure);
            case "NotEmpty":
                return with(new PathIsNotEmptyDirectoryException(path), failure);
            case "Unauthenticated":
            case "Forbidden":
                return with(new AccessControlException(text(path, failure)), failure);
            default:
                return failure;
        }
    }

    private static String text(String path, IOException failure) {
        String message = String.valueOf(failure.getMessage());
        return message.contains(path) ? message : path + ": " + message;
    }

    private static IOException with(IOException made, IOException cause) {
        made.initCause(cause);
        return made;
    }
}
