package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

final class OpenCallsTest {
    private final OpenCalls calls = new OpenCalls();

    private CompletableFuture<Object[]> call(long callId) {
        CompletableFuture<Object[]> future = new CompletableFuture<>();
        calls.add(callId, future);
        return future;
    }

    private static Throwable failure(CompletableFuture<?> future) {
        ExecutionException error = assertThrows(
                ExecutionException.class, () -> future.get(1, TimeUnit.SECONDS));
        return error.getCause();
    }

    @Test
    void anyErrorOfTheSourceFailsEveryOpenCallAndLaterOnesAreAnswered() throws Exception {
        for (Throwable error : new Throwable[] {
            new IllegalStateException("broken"), new IOException("broken"),
            new UnsatisfiedLinkError("broken")
        }) {
            CompletableFuture<Object[]> one = call(1);
            CompletableFuture<Object[]> two = call(2);
            assertFalse(calls.completeNext(() -> {
                if (error instanceof Error) {
                    throw (Error) error;
                }
                throw (Exception) error;
            }));
            assertSame(error, failure(one).getCause());
            assertTrue(failure(two).getMessage().contains("broken"), failure(two).toString());
            CompletableFuture<Object[]> later = call(3);
            Object[] parts = {"part"};
            assertTrue(calls.completeNext(() -> new Object[] {new long[] {3}, parts}));
            assertArrayEquals(parts, later.get(1, TimeUnit.SECONDS));
        }
    }

    @Test
    void answerThatCannotBeReadFailsItsCallAlone() throws Exception {
        CompletableFuture<Object[]> bad = call(1);
        CompletableFuture<Object[]> good = call(2);
        Object[] parts = {};
        assertTrue(calls.completeNext(
                () -> new Object[] {new long[] {1, 2}, new byte[0], parts}));
        assertTrue(failure(bad) instanceof IOException);
        assertSame(parts, good.get(1, TimeUnit.SECONDS));
    }

    @Test
    void lackOfMemoryIsReportedAsItIs() {
        CompletableFuture<Object[]> open = call(1);
        OutOfMemoryError error = new OutOfMemoryError("no room");
        assertFalse(calls.completeNext(() -> {
            throw error;
        }));
        assertSame(error, failure(open));
    }
}
