package io.sanderling.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.EnumSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntFunction;

import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanSetReadahead;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.HasEnhancedByteBufferAccess;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.StreamStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;
import org.apache.hadoop.io.ByteBufferPool;

import io.sanderling.client.Buffer;
import io.sanderling.client.Reader;

/**
 * Reads one file, as it was when it was opened. Reads at a position leave the stream's own position
 * alone and may come from many threads; the others take turns.
 *
 * <p>Lost bytes throw {@link io.sanderling.client.DataUnavailableException}, at
 * once: it names the file and the ranges, and reading again does not help.
 */
final class SanderlingInputStream extends FSInputStream
        implements ByteBufferReadable, ByteBufferPositionedReadable, CanUnbuffer, CanSetReadahead,
        HasEnhancedByteBufferAccess, StreamCapabilities, IOStatisticsSource {
    /** Reads of that size go straight into the caller's memory. */
    private static final int DIRECT_BYTES = 1 << 20;

    private final String path;
    private final Reader reader;
    private final ReadAhead ahead;
    private final int readAheadBytes;
    private final FileSystem.Statistics statistics;
    private final IOStatisticsStore counters = IOStatisticsBinding.iostatisticsStore()
            .withCounters(StreamStatisticNames.STREAM_READ_BYTES,
                    StreamStatisticNames.STREAM_READ_OPERATIONS,
                    StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS,
                    StreamStatisticNames.STREAM_READ_UNBUFFERED,
                    StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS,
                    StreamStatisticNames.STREAM_READ_VECTORED_INCOMING_RANGES)
            .build();
    private final AtomicLong bytesRead =
            counters.getCounterReference(StreamStatisticNames.STREAM_READ_BYTES);
    private final Map<ByteBuffer, Buffer> borrowed = new IdentityHashMap<>();
    private long position;
    private volatile boolean isClosed;

    SanderlingInputStream(String path, Reader reader, ReadPolicy policy, int readAheadBytes,
            FileSystem.Statistics statistics) {
        this.path = path;
        this.reader = reader;
        this.readAheadBytes = readAheadBytes;
        this.ahead = new ReadAhead(reader, policy, readAheadBytes);
        this.statistics = statistics;
    }

    // Where it is.

    @Override
    public synchronized void seek(long target) throws IOException {
        checkOpen();
        if (target < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + " " + target);
        }
        if (target > reader.length()) {
            throw new EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF + " " + target);
        }
        if (target != position) {
            counters.incrementCounter(StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS);
        }
        position = target;
    }

    @Override
    public synchronized long getPos() {
        return position;
    }

    /** Returns false: a file has no other copies that a caller could choose. */
    @Override
    public boolean seekToNewSource(long target) {
        return false;
    }

    @Override
    public synchronized long skip(long count) throws IOException {
        checkOpen();
        long now = Math.max(0, Math.min(count, reader.length() - position));
        position += now;
        return now;
    }

    @Override
    public synchronized int available() throws IOException {
        checkOpen();
        return (int) Math.min(Integer.MAX_VALUE, reader.length() - position);
    }

    // Reading on.

    @Override
    public synchronized int read() throws IOException {
        checkOpen();
        if (position >= reader.length()) {
            return -1;
        }
        int number = fetched().get() & 0xff;
        position++;
        count(1);
        return number;
    }

    @Override
    public synchronized int read(byte[] into, int at, int length) throws IOException {
        checkOpen();
        checkPart(into, at, length);
        if (length == 0) {
            return 0;
        }
        if (position >= reader.length()) {
            return -1;
        }
        int read;
        if (length >= DIRECT_BYTES && !ahead.has(position)) {
            read = readDirect(position, into, at, length);
        } else {
            ByteBuffer bytes = fetched();
            read = Math.min(length, bytes.remaining());
            bytes.get(into, at, read);
        }
        position += read;
        count(read);
        return read;
    }

    @Override
    public synchronized int read(ByteBuffer into) throws IOException {
        checkOpen();
        if (into.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        if (!into.hasRemaining()) {
            return 0;
        }
        if (position >= reader.length()) {
            return -1;
        }
        int read;
        if (into.remaining() >= DIRECT_BYTES && !ahead.has(position)) {
            read = readDirect(position, into);
        } else {
            ByteBuffer bytes = fetched();
            read = Math.min(into.remaining(), bytes.remaining());
            bytes.limit(bytes.position() + read);
            into.put(bytes);
        }
        position += read;
        count(read);
        return read;
    }

    /**
     * Returns the next bytes where they are: on the datanode's machine in its memory, without a
     * copy. Give every buffer back by {@link #releaseBuffer}.
     */
    @Override
    public synchronized ByteBuffer read(
            ByteBufferPool pool, int lengthMax, EnumSet<ReadOption> options) throws IOException {
        checkOpen();
        long length = Math.min(lengthMax, reader.length() - position);
        if (length <= 0) {
            return lengthMax == 0 ? ByteBuffer.allocate(0) : null;
        }
        // No further than to where a block usually ends: what spans two would be copied.
        Buffer buffer = range(Math.min(length, DIRECT_BYTES - position % DIRECT_BYTES));
        ByteBuffer bytes = buffer.bytes();
        borrowed.put(bytes, buffer);
        position += bytes.remaining();
        count(bytes.remaining());
        return bytes;
    }

    @Override
    public synchronized void releaseBuffer(ByteBuffer bytes) {
        Buffer buffer = borrowed.remove(bytes);
        if (buffer != null) {
            buffer.close();
        } else if (bytes.capacity() > 0) {
            throw new IllegalArgumentException("this buffer is not of this stream");
        }
    }

    // Reading at a position.

    @Override
    public int read(long from, byte[] into, int at, int length) throws IOException {
        checkOpen();
        validatePositionedReadArgs(from, into, at, length);
        if (length == 0) {
            return 0;
        }
        if (from >= reader.length()) {
            return -1;
        }
        int read = readDirect(from, into, at, length);
        count(read);
        return read;
    }

    @Override
    public void readFully(long from, byte[] into, int at, int length) throws IOException {
        checkOpen();
        validatePositionedReadArgs(from, into, at, length);
        if (length > 0) {
            checkEnd(from, length);
            int read = readDirect(from, into, at, length);
            checkAll(read, length);
            count(read);
        }
    }

    @Override
    public int read(long from, ByteBuffer into) throws IOException {
        checkOpen();
        checkTarget(from, into);
        if (!into.hasRemaining()) {
            return 0;
        }
        if (from >= reader.length()) {
            return -1;
        }
        int read = readDirect(from, into);
        count(read);
        return read;
    }

    @Override
    public void readFully(long from, ByteBuffer into) throws IOException {
        checkOpen();
        checkTarget(from, into);
        int length = into.remaining();
        if (length > 0) {
            checkEnd(from, length);
            int read = readDirect(from, into);
            checkAll(read, length);
            count(read);
        }
    }

    /**
     * Begins to read all ranges, all those of one datanode in one call. They may touch and overlap.
     *
     * @throws EOFException when a range is not inside the file
     */
    @Override
    public void readVectored(
            List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
            throws IOException {
        checkOpen();
        int count = VectoredRead.begin(reader, ranges, allocate, this::count);
        counters.incrementCounter(StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS);
        counters.incrementCounter(
                StreamStatisticNames.STREAM_READ_VECTORED_INCOMING_RANGES, count);
    }

    // The rest.

    /** Gives the memory of what was read ahead back; the stream goes on as before. */
    @Override
    public synchronized void unbuffer() {
        if (!isClosed) {
            counters.incrementCounter(StreamStatisticNames.STREAM_READ_UNBUFFERED);
            ahead.forget();
        }
    }

    @Override
    public synchronized void setReadahead(Long bytes) {
        if (bytes != null && bytes <= 0) {
            throw new IllegalArgumentException("read-ahead is not positive: " + bytes);
        }
        ahead.limit(bytes == null ? readAheadBytes : (int) Math.min(bytes, readAheadBytes));
    }

    @Override
    public boolean hasCapability(String capability) {
        switch (capability.toLowerCase(Locale.ROOT)) {
            case StreamCapabilities.READAHEAD:
            case StreamCapabilities.UNBUFFER:
            case StreamCapabilities.READBYTEBUFFER:
            case StreamCapabilities.PREADBYTEBUFFER:
            case StreamCapabilities.IOSTATISTICS:
            case StreamCapabilities.VECTOREDIO:
                return true;
            default:
                return false;
        }
    }

    @Override
    public IOStatistics getIOStatistics() {
        return counters;
    }

    @Override
    public synchronized void close() {
        if (!isClosed) {
            isClosed = true;
            ahead.forget();
            for (Buffer buffer : borrowed.values()) {
                buffer.close();
            }
            borrowed.clear();
            reader.close();
        }
    }

    @Override
    public String toString() {
        return "SanderlingInputStream(" + path + " at " + position + " of " + reader.length()
                + ", " + counters + ")";
    }

    private ByteBuffer fetched() throws IOException {
        counters.incrementCounter(StreamStatisticNames.STREAM_READ_OPERATIONS);
        try {
            return ahead.at(position);
        } catch (IOException e) {
            throw Failures.reading(path, e);
        }
    }

    private Buffer range(long length) throws IOException {
        counters.incrementCounter(StreamStatisticNames.STREAM_READ_OPERATIONS);
        try {
            return reader.readRange(position, length);
        } catch (IOException e) {
            throw Failures.reading(path, e);
        }
    }

    private int readDirect(long from, byte[] into, int at, int length) throws IOException {
        counters.incrementCounter(StreamStatisticNames.STREAM_READ_OPERATIONS);
        try {
            return reader.read(from, into, at, length);
        } catch (IOException e) {
            throw Failures.reading(path, e);
        }
    }

    private int readDirect(long from, ByteBuffer into) throws IOException {
        counters.incrementCounter(StreamStatisticNames.STREAM_READ_OPERATIONS);
        try {
            return reader.read(from, into);
        } catch (IOException e) {
            throw Failures.reading(path, e);
        }
    }

    private void count(int bytes) {
        bytesRead.addAndGet(bytes);
        if (statistics != null) {
            statistics.incrementBytesRead(bytes);
        }
    }

    private void checkOpen() throws IOException {
        if (isClosed) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED + " " + path);
        }
    }

    private void checkEnd(long from, int length) throws EOFException {
        if (from > reader.length() - length) {
            throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY + ": " + path + " has "
                    + reader.length() + " bytes, " + from + "+" + length + " were requested");
        }
    }

    private void checkAll(int read, int length) throws EOFException {
        if (read != length) {
            throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY + " of " + path);
        }
    }

    private static void checkTarget(long from, ByteBuffer into) throws EOFException {
        if (from < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + " " + from);
        }
        if (into.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
    }

    private static void checkPart(byte[] into, int at, int length) {
        if (into == null) {
            throw new NullPointerException("the array is null");
        }
        if (at < 0 || length < 0 || length > into.length - at) {
            throw new IndexOutOfBoundsException(
                    "part " + at + "+" + length + " of " + into.length + " bytes");
        }
    }
}
