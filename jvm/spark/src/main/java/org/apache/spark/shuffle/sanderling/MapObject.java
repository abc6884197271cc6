package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.NotFoundException;
import io.sanderling.client.PutOptions;
import io.sanderling.client.Writer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.zip.CRC32;

/**
 * Writes the object of one map output: the partitions one after the other, then their index.
 *
 * <p>Bytes gather in one block's buffer. An output that fits is put with one call when it is
 * committed; a longer one is streamed. Nothing can be seen before the commit, and an empty output
 * has no object: readers do not request partitions without bytes.
 */
final class MapObject {
    private final Store store;
    private final String path;
    private final MapTasks.MapTask task;
    private final CRC32 checksum = new CRC32();
    private ByteBuffer gathered;
    private Writer writer;
    private long bytes;
    /** Why nothing can be written any more; null while something can. */
    private IOException failure;

    MapObject(Store store, int shuffleId, long mapId, MapTasks.MapTask task) {
        this.store = store;
        this.path = MapNames.path(store.root(), shuffleId, task.context.partitionId(), mapId);
        this.task = task;
    }

    /** Returns how many bytes were written. */
    long bytes() {
        return bytes;
    }

    /** Returns the checksum of what was written since the last time, and begins another. */
    int takeChecksum() {
        int taken = (int) checksum.getValue();
        checksum.reset();
        return taken;
    }

    /** Writes a part of an array. */
    void write(byte[] from, int at, int count) throws IOException {
        int done = 0;
        while (done < count) {
            ByteBuffer room = room();
            int now = Math.min(count - done, room.remaining());
            room.put(from, at + done, now);
            done += now;
        }
        checksum.update(from, at, count);
        bytes += count;
    }

    /** Writes what remains of a buffer. */
    void write(ByteBuffer from) throws IOException {
        bytes += from.remaining();
        checksum.update(from.duplicate());
        while (from.hasRemaining()) {
            ByteBuffer room = room();
            ByteBuffer now = from.duplicate();
            now.limit(from.position() + Math.min(from.remaining(), room.remaining()));
            room.put(now);
            from.position(now.position());
        }
    }

    /** Returns where bytes can be put before a call of {@link #wrote}. */
    ByteBuffer room() throws IOException {
        // A channel that copies from a file keeps an error to itself when a part was copied, and
        // comes back with the rest: it must get the same answer, not another one.
        if (failure != null) {
            throw failure;
        }
        if (gathered == null) {
            gathered = store.lend();
        }
        if (!gathered.hasRemaining()) {
            send();
        }
        return gathered;
    }

    /** Counts the last bytes that were put into {@link #room}. */
    void wrote(int count) {
        ByteBuffer last = gathered.duplicate();
        last.limit(gathered.position()).position(gathered.position() - count);
        checksum.update(last);
        bytes += count;
    }

    /** Writes the index and makes the object visible. */
    void commit(long[] lengths, int[] checksums) throws IOException {
        try {
            if (bytes > 0) {
                long began = System.nanoTime();
                writeAll(MapIndex.encode(lengths, checksums));
                task.context.taskMetrics().shuffleWriteMetrics()
                        .incWriteTime(System.nanoTime() - began);
            }
        } finally {
            close();
        }
    }

    private void writeAll(ByteBuffer index) throws IOException {
        boolean fits = writer == null && gathered.remaining() >= index.remaining();
        write(index);
        gathered.flip();
        if (fits) {
            try {
                store.client().put(path, gathered, options().withExpectedBytes(bytes));
            } catch (NotFoundException error) {
                throw ended(error);
            }
        } else {
            writer.write(gathered);
            writer.setRecomputeMillis(task.millis());
            writer.commit();
        }
    }

    /** Throws away what was written. */
    void close() {
        if (gathered != null) {
            store.giveBack(gathered);
            gathered = null;
        }
        if (writer != null) {
            try {
                writer.close();
            } catch (IOException error) {
                // Nothing was committed; what remains goes with the shuffle's directory.
                Log.LOG.debug("{} was not aborted: {}", path, error.getMessage());
            }
            writer = null;
        }
    }

    private void send() throws IOException {
        try {
            if (writer == null) {
                writer = store.client().create(path, options());
            }
            gathered.flip();
            writer.write(gathered);
            gathered.clear();
        } catch (IOException error) {
            failure = error instanceof NotFoundException ? ended(error) : error;
            throw failure;
        }
    }

    /** Returns the error for a missing directory of the object. */
    private IOException ended(IOException error) {
        return new IOException(path + " has no place any more: the shuffle was removed, or the"
                + " driver could not renew the lease of " + store.root() + " in time", error);
    }

    private PutOptions options() {
        return store.options(task.millis(), task.stage());
    }
}
