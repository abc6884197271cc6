package io.sanderling.client;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** Holds the futures of calls that are not answered, and completes each of them in any case. */
final class OpenCalls {
    private final Map<Long, CompletableFuture<Object[]>> open = new ConcurrentHashMap<>();

    /** Waits for results: their call ids as a long[], then the result of each. */
    interface Source {
        Object[] answers() throws Exception;
    }

    void add(long callId, CompletableFuture<Object[]> future) {
        open.put(callId, future);
    }

    /** Fails a call; does nothing when it is completed. */
    void fail(long callId, Throwable error) {
        CompletableFuture<Object[]> future = open.remove(callId);
        if (future != null) {
            future.completeExceptionally(error);
        }
    }

    /**
     * Completes the calls that are answered next. When the answers cannot be taken, all open calls
     * fail: which answers are gone is unknown, and no future may wait for them for ever.
     *
     * @return whether the answers were taken
     */
    boolean completeNext(Source source) {
        try {
            Object[] answers = source.answers();
            long[] callIds = (long[]) answers[0];
            for (int at = 0; at < callIds.length; at++) {
                complete(callIds[at], answers[at + 1]);
            }
            return true;
        } catch (Throwable error) {
            failAll(error);
            return false;
        }
    }

    private void complete(long callId, Object answer) {
        CompletableFuture<Object[]> future = open.remove(callId);
        if (future == null) {
            return;
        }
        try {
            if (answer instanceof Object[]) {
                future.complete((Object[]) answer);
            } else {
                future.completeExceptionally(Failure.thrown((byte[]) answer));
            }
        } catch (Throwable error) {
            future.completeExceptionally(unreadable(error));
        }
    }

    private void failAll(Throwable error) {
        Throwable failure = error;
        try {
            failure = unreadable(error);
        } catch (OutOfMemoryError noRoom) {
            // Then the error itself has to do.
        }
        for (Long callId : open.keySet()) {
            try {
                fail(callId, failure);
            } catch (OutOfMemoryError noRoom) {
                // The future is completed, and what depends on it is the caller's.
            }
        }
    }

    private static Throwable unreadable(Throwable error) {
        return error instanceof OutOfMemoryError
                ? error
                : new IOException("the client's native library gave no readable answer, so that"
                        + " every call that was open has failed: repeat the call, and restart this"
                        + " process if that fails as well (" + error + ")", error);
    }
}
