package io.sanderling.client;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * Declares what the native half does. Fields cross as bytes in the order of {@link Encoder};
 * what lives there is known here by a handle that is never used twice, so that one that was given
 * back is refused and nothing else. The owner of a handle is passed along so that it is not taken
 * for forgotten before the native half holds what the handle stands for.
 */
final class Native {
    private Native() {}

    /** Sets the class that makes the native half's exceptions; returns its version. */
    static native String initialize(Class<?> failure);

    /** Returns the cluster of a client, by the rule of every binding. */
    static native byte[] resolve(byte[] encoded) throws IOException;

    /** Records the spans of all clients from now on, and exports them to a collector. */
    static native void exportSpans(byte[] collector) throws IOException;

    /** Sends the last spans; returns how many the collector did not take. */
    static native long endExport();

    static native long connect(byte[] options) throws IOException;

    static native String cluster(Object owner, long client) throws IOException;

    static native byte[] call(Object owner, long client, int operation, byte[] encoded)
            throws IOException;

    static native byte[] put(
            Object owner, long client, byte[] encoded, ByteBuffer bytes, int at, int length)
            throws IOException;

    static native byte[] putArray(
            Object owner, long client, byte[] encoded, byte[] bytes, int at, int length)
            throws IOException;

    static native Object[] get(Object owner, long client, byte[] path) throws IOException;

    static native byte[] open(Object owner, long client, byte[] path) throws IOException;

    static native byte[] openMany(Object owner, long client, byte[] paths) throws IOException;

    static native void openManyAsync(Object owner, long client, byte[] paths, long callId)
            throws IOException;

    static native Object[] readMany(
            Object owner, long client, long[] readers, int[] counts, long[] offsets, long[] lengths)
            throws IOException;

    static native void readManyAsync(
            Object owner, long client,
            long[] readers,
            int[] counts,
            long[] offsets,
            long[] lengths,
            long callId)
            throws IOException;

    /** Waits for results: their call ids as a long[], then the result of each. */
    static native Object[] answers();

    static native int read(
            Object owner, long reader, long offset, ByteBuffer into, int at, int length)
            throws IOException;

    static native int readArray(
            Object owner, long reader, long offset, byte[] into, int at, int length)
            throws IOException;

    static native byte[] refresh(Object owner, long reader) throws IOException;

    static native byte[] create(Object owner, long client, byte[] encoded) throws IOException;

    static native byte[] append(Object owner, long client, byte[] path) throws IOException;

    static native void write(Object owner, long writer, ByteBuffer bytes, int at, int length)
            throws IOException;

    static native void writeArray(Object owner, long writer, byte[] bytes, int at, int length)
            throws IOException;

    static native void flush(Object owner, long writer) throws IOException;

    static native void setAttribute(Object owner, long writer, byte[] encoded) throws IOException;

    static native void setRecompute(Object owner, long writer, long millis) throws IOException;

    static native byte[] commit(Object owner, long writer) throws IOException;

    static native void abort(Object owner, long writer) throws IOException;

    static native byte[] beginJob(Object owner, long client, byte[] encoded) throws IOException;

    static native boolean hasEnded(Object owner, long job);

    static native void endJob(Object owner, long job) throws IOException;

    /** Releases a handle; a writer is aborted, a job is no longer renewed. */
    static native void release(long handle);
}
