package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.DataUnavailableException;
import io.sanderling.client.NotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.FetchFailedException;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.ShuffleBlockBatchId;
import org.apache.spark.storage.ShuffleBlockId;

/**
 * Fetches a range of partitions of many maps for one reduce task, some chunks of maps ahead of what
 * the task consumes.
 */
final class Fetcher implements LargeInput.Waiting, AutoCloseable {
    /** Maps of one chunk: a few requests of 128 names. */
    private static final int MAPS_MAX = 512;

    /** The chunk that is consumed and two that are on their way share what may be in flight. */
    private static final int CHUNKS_AHEAD = 2;

    private final SanderlingShuffleManager manager;
    private final ReadRange range;
    private final boolean isBatch;
    private final ShuffleReadMetricsReporter metrics;
    private final List<Chunk> chunks = new ArrayList<>();
    private int chunkAt;
    private int mapAt = -1;
    private int partitionAt;
    private MapFetch map;
    private LargeInput large;
    private volatile boolean isClosed;

    Fetcher(
            SanderlingShuffleManager manager,
            ReadRange range,
            List<MapFetch> maps,
            boolean isBatch,
            long inFlightBytes,
            ShuffleReadMetricsReporter metrics) throws IOException {
        this.manager = manager;
        this.range = range;
        this.isBatch = isBatch;
        this.metrics = metrics;
        cut(maps, Math.max(1, inFlightBytes / (CHUNKS_AHEAD + 1)));
        prefetch();
    }

    /** Gives a stream of the bytes of a block. */
    static final class Part {
        final BlockId block;
        final InputStream stream;

        Part(BlockId block, InputStream stream) {
            this.block = block;
            this.stream = stream;
        }
    }

    /** Returns the next partitions with bytes, or null behind the last; the part before is over. */
    Part next() throws IOException {
        while (true) {
            if (isClosed) {
                throw new IOException("the task has ended and has given its map outputs back");
            }
            if (map == null && !nextMap()) {
                return null;
            }
            int start = partitionAt;
            int end = isBatch ? range.end : start + 1;
            if (start >= range.end) {
                finishMap();
                continue;
            }
            partitionAt = end;
            long bytes = map.output.index.offset(end) - map.output.index.offset(start);
            if (bytes > 0) {
                return part(start, end, bytes);
            }
        }
    }

    @Override
    public synchronized void close() {
        isClosed = true;
        chunks.forEach(Chunk::close);
        if (large != null) {
            large.close();
        }
    }

    @Override
    public <T> T join(CompletableFuture<T> future) throws IOException {
        if (future.isDone() && !future.isCompletedExceptionally()) {
            return future.join();
        }
        long began = System.nanoTime();
        try {
            return future.get();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            TaskContext context = TaskContext.get();
            if (context != null) {
                context.killTaskIfInterrupted();
            }
            throw new IOException("interrupted while waiting for map outputs", error);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof IOException) {
                throw (IOException) error.getCause();
            }
            throw new IOException(error.getCause());
        } finally {
            metrics.incFetchWaitTime((System.nanoTime() - began) / 1_000_000);
        }
    }

    @Override
    public void fail(MapFetch failed, IOException error) throws IOException {
        failed.failure = error;
        failAll(failed);
    }

    /**
     * Fails the task because of an output if bytes of a streamed one are the cause of an error that
     * the task met in them: a codec or a serializer fails before the last byte is verified.
     */
    void verifyStreamed() throws IOException {
        TaskContext context = TaskContext.get();
        boolean isOver = isClosed || context != null && context.isInterrupted();
        if (large != null && !isOver) {
            large.drain();
        }
    }

    private void cut(List<MapFetch> maps, long bytesMax) throws IOException {
        long bytes = 0;
        Chunk chunk = null;
        for (MapFetch next : maps) {
            long added = Math.min(next.estimatedBytes, Chunk.LARGE_BYTES);
            if (chunk == null || chunk.maps().size() == MAPS_MAX || bytes + added > bytesMax) {
                chunk = new Chunk(manager.store(), manager.outputs(), range);
                chunks.add(chunk);
                bytes = 0;
            }
            chunk.add(next);
            bytes += added;
        }
    }

    private void prefetch() throws IOException {
        int end = Math.min(chunks.size(), chunkAt + 1 + CHUNKS_AHEAD);
        for (int at = chunkAt; at < end; at++) {
            chunks.get(at).advance(this);
        }
    }

    private boolean nextMap() throws IOException {
        while (chunkAt < chunks.size()) {
            Chunk chunk = chunks.get(chunkAt);
            if (!chunk.isReady()) {
                prefetch();
                chunk.finish(this);
            }
            mapAt++;
            if (mapAt < chunk.maps().size()) {
                beginMap(chunk, chunk.maps().get(mapAt));
                return true;
            }
            chunk.close();
            chunkAt++;
            mapAt = -1;
            prefetch();
        }
        return false;
    }

    private void beginMap(Chunk chunk, MapFetch next) throws IOException {
        if (next.failure instanceof MapIndex.CorruptException || isCorrupt(next)) {
            // Once more: what was read wrong may be stored right.
            Log.LOG.warn("map output {} of shuffle {} does not match its checksums and is read"
                    + " again", next.mapId, range.shuffleId);
            chunk.again(next, this);
            if (isCorrupt(next)) {
                next.failure = new MapIndex.CorruptException("it does not match its checksums");
            }
        }
        if (next.failure != null) {
            failAll(next);
        }
        map = next;
        partitionAt = range.start;
    }

    private boolean isCorrupt(MapFetch next) {
        return next.failure == null && next.hasData() && next.corruptPartition(range) >= 0;
    }

    private void finishMap() throws IOException {
        map.close();
        endLarge();
        map = null;
        if (chunkAt + 1 < chunks.size() && !chunks.get(chunkAt + 1).isReady()) {
            try {
                prefetch();
            } catch (IOException error) {
                // Met again when the chunk is needed.
                Log.LOG.debug("nothing was fetched ahead: {}", error.getMessage());
            }
        }
    }

    /** Verifies what the task did not read of a streamed range, and gives its memory back. */
    private void endLarge() throws IOException {
        if (large != null) {
            large.drain();
            large.close();
            large = null;
        }
    }

    private Part part(int start, int end, long bytes) throws IOException {
        // One, also for partitions that are read as one stream, as Spark counts them.
        metrics.incRemoteBlocksFetched(1);
        metrics.incRemoteBytesRead(bytes);
        BlockId block = isBatch
                ? new ShuffleBlockBatchId(range.shuffleId, map.mapId, start, end)
                : new ShuffleBlockId(range.shuffleId, map.mapId, start);
        if (map.hasData()) {
            return new Part(block, map.input(range, start, end));
        }
        endLarge();
        large = new LargeInput(map, start, end, this);
        return new Part(block, large);
    }

    /** Fails the task because of an output, after all lost ones were reported to the driver. */
    private void failAll(MapFetch first) throws IOException {
        if (!isLoss(first.failure)) {
            throw first.failure;
        }
        LostMaps lost = new LostMaps(range.shuffleId);
        for (Chunk chunk : chunks) {
            for (MapFetch each : chunk.maps()) {
                if (each.failure != null && isLoss(each.failure)) {
                    manager.outputs().forget(range.shuffleId, each.mapId);
                    lost.add(each.mapIndex, each.mapId);
                }
            }
        }
        try {
            manager.report(lost);
        } catch (Exception error) {
            // Spark's RPC throws checked exceptions that its Scala interface does not declare. The
            // exception below reports the one output, whatever became of the report of all.
            if (error instanceof InterruptedException) {
                Thread.currentThread().interrupt();
            }
            Log.LOG.warn("the driver learns of one lost output alone, not of {}: {}", lost.count(),
                    String.valueOf(error));
        }
        String message = "output of map " + first.mapIndex + " of shuffle " + range.shuffleId
                + " is lost: " + first.failure.getMessage();
        throw Sneaky.throwing(new FetchFailedException(
                MapNames.location(range.shuffleId, first.mapId), range.shuffleId, first.mapId,
                first.mapIndex, range.start, message, first.failure));
    }

    /** Returns whether computing the map again helps. */
    private static boolean isLoss(IOException failure) {
        return failure instanceof DataUnavailableException
                || failure instanceof NotFoundException
                || failure instanceof MapIndex.CorruptException;
    }
}
