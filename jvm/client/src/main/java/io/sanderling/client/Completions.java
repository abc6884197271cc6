package io.sanderling.client;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

/** Completes the futures of calls that no thread waits for, on one thread of its own. */
final class Completions {
    /** A fault that stays occupies no processor, and calls that meet it fail soon. */
    private static final long PAUSE_MILLIS = 100;

    private static final OpenCalls OPEN = new OpenCalls();
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
        OPEN.add(callId, answer);
        CompletableFuture<T> future = new CompletableFuture<>();
        answer.whenComplete((parts, error) -> complete(future, parts, error, made));
        try {
            call.begin(callId);
        } catch (IOException error) {
            OPEN.fail(callId, error);
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
                if (!OPEN.completeNext(Native::answers)) {
                    Thread.sleep(PAUSE_MILLIS);
                }
            } catch (InterruptedException interrupted) {
                // No call ends this thread: it is a daemon and ends with the process.
            }
        }
    }
}
