package io.sanderling.hadoop;

import java.io.IOException;
import java.io.OutputStream;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.StoreStatisticNames;
import org.apache.hadoop.fs.statistics.StreamStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;

import io.sanderling.client.Writer;

/**
 * Writes one file. A new one is seen, empty, from its creation, and with what was written after
 * {@link #hflush()}; one that replaces another takes its place when it is closed, at once.
 */
final class SanderlingOutputStream extends OutputStream
        implements Syncable, StreamCapabilities, Abortable, IOStatisticsSource {
    private final String path;
    private final Writer writer;
    private final boolean replaces;
    private final IOStatisticsStore counters = IOStatisticsBinding.iostatisticsStore()
            .withCounters(StreamStatisticNames.STREAM_WRITE_BYTES,
                    StoreStatisticNames.OP_HFLUSH, StoreStatisticNames.OP_HSYNC,
                    StoreStatisticNames.OP_ABORT, StreamStatisticNames.STREAM_WRITE_EXCEPTIONS)
            .build();
    private final AtomicLong written =
            counters.getCounterReference(StreamStatisticNames.STREAM_WRITE_BYTES);
    private IOException failure;
    private boolean isClosed;

    SanderlingOutputStream(String path, Writer writer, boolean replaces) {
        this.path = path;
        this.writer = writer;
        this.replaces = replaces;
    }

    @Override
    public synchronized void write(int number) throws IOException {
        checkOpen();
        try {
            writer.write(number);
        } catch (IOException e) {
            throw failed(e);
        }
        written.incrementAndGet();
    }

    @Override
    public synchronized void write(byte[] bytes, int from, int length) throws IOException {
        checkOpen();
        try {
            writer.write(bytes, from, length);
        } catch (IOException e) {
            throw failed(e);
        }
        written.addAndGet(length);
    }

    /** Fails when the stream is closed; it sends nothing: {@link #hflush()} does. */
    @Override
    public synchronized void flush() throws IOException {
        checkOpen();
    }

    /**
     * Sends what was written so far and makes it readable. It is in the memory of its datanode
     * then, and moves away with everything else when that gets a notice.
     */
    @Override
    public synchronized void hflush() throws IOException {
        counters.incrementCounter(StoreStatisticNames.OP_HFLUSH);
        publish();
    }

    /**
     * Does what {@link #hflush()} does, which is all that a store of ephemeral data can do:
     * {@link #hasCapability} does not promise it.
     */
    @Override
    public synchronized void hsync() throws IOException {
        counters.incrementCounter(StoreStatisticNames.OP_HSYNC);
        publish();
    }

    @Override
    public boolean hasCapability(String capability) {
        switch (capability.toLowerCase(Locale.ROOT)) {
            case StreamCapabilities.HFLUSH:
                // No reader sees a replacement before it is closed.
                return !replaces;
            case StreamCapabilities.ABORTABLE_STREAM:
            case StreamCapabilities.IOSTATISTICS:
                return true;
            default:
                return false;
        }
    }

    /** Seals the file: a reader has it whole, or what it replaces. Does nothing the second time. */
    @Override
    public synchronized void close() throws IOException {
        if (isClosed) {
            return;
        }
        isClosed = true;
        if (failure != null) {
            quietlyAbort();
            throw new IOException(path + " was not written: " + failure.getMessage(), failure);
        }
        try {
            writer.commit();
        } catch (IOException e) {
            IOException thrown = failed(e);
            quietlyAbort();
            throw thrown;
        }
    }

    /** Gives the file up: a new one vanishes, a replaced or appended one stays as it was. */
    @Override
    public synchronized AbortableResult abort() {
        counters.incrementCounter(StoreStatisticNames.OP_ABORT);
        boolean wasClosed = isClosed;
        isClosed = true;
        IOException problem = wasClosed ? null : quietlyAbort();
        return new AbortableResult() {
            @Override
            public boolean alreadyClosed() {
                return wasClosed;
            }

            @Override
            public IOException anyCleanupException() {
                return problem;
            }
        };
    }

    @Override
    public IOStatistics getIOStatistics() {
        return counters;
    }

    @Override
    public String toString() {
        return "SanderlingOutputStream(" + path + " at " + writer.position() + ", " + counters
                + ")";
    }

    private void publish() throws IOException {
        checkOpen();
        try {
            writer.flush();
        } catch (IOException e) {
            throw failed(e);
        }
    }

    private IOException failed(IOException e) {
        counters.incrementCounter(StreamStatisticNames.STREAM_WRITE_EXCEPTIONS);
        IOException thrown = Failures.writing(path, e);
        failure = thrown;
        return thrown;
    }

    private IOException quietlyAbort() {
        try {
            writer.abort();
            return null;
        } catch (IOException e) {
            // The writer's lease ends by itself then, and the file is given up with it.
            return e;
        }
    }

    private void checkOpen() throws IOException {
        if (isClosed) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED + " " + path);
        }
    }
}
