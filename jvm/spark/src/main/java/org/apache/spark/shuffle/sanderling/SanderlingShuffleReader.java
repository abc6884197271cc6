package org.apache.spark.shuffle.sanderling;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.InterruptibleIterator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.io.CompressionCodec$;
import org.apache.spark.serializer.SerializerManager;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.ShuffleBlockId;
import org.apache.spark.util.TaskCompletionListener;
import scala.Product2;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Seq;

/** Reads partitions of map outputs from the store, as Spark's own reader gives them to the task. */
final class SanderlingShuffleReader<K, C> implements ShuffleReader<K, C> {
    private final SanderlingShuffleManager manager;
    private final ShuffleDependency<K, ?, C> dependency;
    private final ReadRange range;
    private final TaskContext context;
    private final ShuffleReadMetricsReporter metrics;
    private final SparkConf conf = SparkEnv.get().conf();

    SanderlingShuffleReader(
            SanderlingShuffleManager manager,
            BaseShuffleHandle<K, ?, C> handle,
            ReadRange range,
            TaskContext context,
            ShuffleReadMetricsReporter metrics) {
        this.manager = manager;
        this.dependency = handle.dependency();
        this.range = range;
        this.context = context;
        this.metrics = metrics;
    }

    @Override
    public Iterator<Product2<K, C>> read() {
        Iterator<Product2<K, C>> records = new InterruptibleIterator<>(context, records());
        Iterator<Product2<K, C>> combined = Combined.of(dependency, records, context);
        return combined == records ? records : new InterruptibleIterator<>(context, combined);
    }

    private Iterator<Product2<K, C>> records() {
        SerializerManager serializers = SparkEnv.get().serializerManager();
        long inFlightBytes = conf.getSizeAsBytes("spark.reducer.maxSizeInFlight", "48m");
        try {
            Fetcher fetcher =
                    new Fetcher(manager, range, maps(), isBatch(), inFlightBytes, metrics);
            context.addTaskCompletionListener((TaskCompletionListener) done -> fetcher.close());
            return new Records<>(
                    fetcher, serializers, dependency.serializer().newInstance(), metrics, context);
        } catch (IOException error) {
            throw Sneaky.throwing(error);
        }
    }

    /** Returns what is to be read of each map, in an order that differs between tasks. */
    private List<MapFetch> maps() {
        Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> all =
                SparkEnv.get().mapOutputTracker().getMapSizesByExecutorId(
                        range.shuffleId, range.startMap, range.endMap, range.start, range.end);
        List<MapFetch> maps = new ArrayList<>();
        while (all.hasNext()) {
            add(all.next()._2().iterator(), maps);
        }
        // Tasks that start together would all call the same node first.
        List<MapFetch> turned = new ArrayList<>(maps.size());
        int first = maps.isEmpty() ? 0 : context.partitionId() % maps.size();
        turned.addAll(maps.subList(first, maps.size()));
        turned.addAll(maps.subList(0, first));
        return turned;
    }

    /** Adds the maps of blocks: those of one map come one after the other. */
    private static void add(Iterator<Tuple3<BlockId, Object, Object>> blocks, List<MapFetch> maps) {
        long mapId = -1;
        int mapIndex = -1;
        long bytes = 0;
        while (blocks.hasNext()) {
            Tuple3<BlockId, Object, Object> block = blocks.next();
            ShuffleBlockId id = (ShuffleBlockId) block._1();
            if (id.mapId() != mapId && mapIndex >= 0) {
                maps.add(new MapFetch(mapIndex, mapId, bytes));
                bytes = 0;
            }
            mapId = id.mapId();
            mapIndex = (Integer) block._3();
            bytes += (Long) block._2();
        }
        if (mapIndex >= 0) {
            maps.add(new MapFetch(mapIndex, mapId, bytes));
        }
    }

    /** Returns whether partitions that follow each other can be read as one stream. */
    private boolean isBatch() {
        if (!SortShuffleManager.canUseBatchFetch(range.start, range.end, context)
                || !dependency.serializer().supportsRelocationOfSerializedObjects()
                || conf.getBoolean("spark.io.encryption.enabled", false)) {
            return false;
        }
        return !conf.getBoolean("spark.shuffle.compress", true)
                || CompressionCodec$.MODULE$.supportsConcatenationOfSerializedStreams(
                        CompressionCodec$.MODULE$.createCodec(conf));
    }
}
