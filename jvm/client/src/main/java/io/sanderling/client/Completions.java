package io.sanderling.client;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

/** Completes the futures of calls that no thread waits for, on one thread of its own. */
final class Completions {
    private static final Map<Long, CompletableFuture<Object[]>> WAITING =
            new ConcurrentHashMap<>();
    private static final AtomicLong NEXT = new AtomicLong();

    static {
        Thread thread = new Thread(Completions::completeAll, "sanderling-answers");
        thread.setDaemon(true);
        thread.setContextClassLoader(null);
        thread.start();
    }

    private Completions() {}

    /** Begins a call under a call id. */
    interface Call {
        void begin(long callId) throws IOException;
    }

    /** Begins a call; a future that fails has the reason, also when the call cannot even begin. */
    static <T> CompletableFuture<T> begin(Call call, Function<Object[], T> made) {
        long callId = NEXT.incrementAndGet();
        CompletableFuture<Object[]> answer = new CompletableFuture<>();
        WAITING.put(callId, answer);
        CompletableFuture<T> future = new CompletableFuture<>();
        answer.whenComplete((parts, error) -> complete(future, parts, error, made));
        try {
            call.begin(callId);
        } catch (IOException error) {
            WAITING.remove(callId);
            answer.completeExceptionally(error);
        }
        return future;
    }

    /** Completes with the call's own exception: not wrapped, as a chain of futures would. */
    private static <T> void complete(
            CompletableFuture<T> future,
            Object[] parts,
            Throwable error,
            Function<Object[], T> made) {
        if (error != null) {
            future.completeExceptionally(error);
            return;
        }
        try {
            future.complete(made.apply(parts));
        } catch (RuntimeException | Error bug) {
            future.completeExceptionally(bug);
        }
    }

    private static void completeAll() {
        while (true) {
            try {
                Object[] answers = Native.answers();
                long[] callIds = (long[]) answers[0];
                for (int at = 0; at < callIds.length; at++) {
                    complete(callIds[at], answers[at + 1]);
                }
            } catch (OutOfMemoryError error) {
                // Which answers are gone is unknown: no future may wait for them for ever.
                WAITING.keySet().forEach(callId -> fail(callId, error));
            }
        }
    }

    private static void complete(long callId, Object answer) {
        CompletableFuture<Object[]> waiting = WAITING.remove(callId);
        if (waiting == null) {
            return;
        }
        if (answer instanceof Object[]) {
            waiting.complete((Object[]) answer);
        } else {
            waiting.completeExceptionally(Failure.thrown((byte[]) answer));
        }
    }

    private static void fail(long callId, Throwable error) {
        CompletableFuture<Object[]> waiting = WAITING.remove(callId);
        if (waiting != null) {
            waiting.completeExceptionally(error);
        }
    }
}
