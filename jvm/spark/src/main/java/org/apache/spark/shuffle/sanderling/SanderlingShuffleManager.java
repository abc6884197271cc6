package org.apache.spark.shuffle.sanderling;

import java.io.IOException;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.sort.BypassMergeSortShuffleHandle;
import org.apache.spark.shuffle.sort.SerializedShuffleHandle;
import org.apache.spark.shuffle.sort.SortShuffleManager;

/**
 * Keeps Spark's map outputs in Sanderling: set {@code spark.shuffle.manager} to this class's name
 * and {@code spark.sanderling.address} to the namenode's.
 *
 * <p>It is Spark's own sort shuffle manager with another place for its outputs, and with a reader
 * of its own. That it extends Spark's manager matters beyond the code it saves: SQL copies every
 * row before the shuffle for managers that do not.
 */
public class SanderlingShuffleManager extends SortShuffleManager {
    /** Files that a map task may open beside each other; Spark's threshold overrides it. */
    private static final int FILES_MAX = 8;

    private static final String BYPASS_THRESHOLD = "spark.shuffle.sort.bypassMergeThreshold";

    private final SparkConf conf;
    private final boolean isDriver;
    private final Driver driver;
    private final MapTasks tasks = new MapTasks();
    private final MapOutputs outputs = new MapOutputs();
    private Executor executor;

    /** Makes the manager of a driver, which connects at once, or of an executor. */
    public SanderlingShuffleManager(SparkConf conf, boolean isDriver) {
        super(conf);
        this.conf = conf;
        this.isDriver = isDriver;
        // A refusal is kept until Spark requests the driver's components: what is thrown here
        // would reach the user wrapped in an exception of the reflection, without a message.
        this.driver = isDriver ? Driver.of(conf) : null;
        conf.set(Settings.DATA_IO, SanderlingDataIO.class.getName());
    }

    /** Returns the manager that Spark uses in this process. */
    static SanderlingShuffleManager current() {
        Object manager = SparkEnv.get().shuffleManager();
        if (manager instanceof SanderlingShuffleManager) {
            return (SanderlingShuffleManager) manager;
        }
        throw new CannotStartException(SanderlingDataIO.class.getName()
                + " works under Sanderling's shuffle manager alone: set spark.shuffle.manager to "
                + SanderlingShuffleManager.class.getName(), null);
    }

    /** Returns the driver's half; there is none in an executor. */
    Driver driver() {
        return driver;
    }

    MapTasks tasks() {
        return tasks;
    }

    MapOutputs outputs() {
        return outputs;
    }

    /**
     * Returns the connection to the store; an executor connects at the first task's call.
     *
     * @throws IOException when the store cannot be reached or refuses the executor
     */
    Store store() throws IOException {
        if (isDriver) {
            return driver.store();
        }
        synchronized (this) {
            if (executor == null) {
                executor = new Executor(conf);
            }
            return executor.store();
        }
    }

    /** Reports unreadable outputs to the driver, and returns when it has removed them. */
    void report(LostMaps lost) {
        if (isDriver) {
            driver.forget(lost);
        } else {
            Executor.report(conf, lost);
        }
    }

    /**
     * Chooses the writer as Spark does, but for one case: with more than a few partitions, rows
     * that can be sorted as bytes are, instead of going to one file for each partition.
     */
    @Override
    @SuppressWarnings("unchecked")
    public <K, V, C> ShuffleHandle registerShuffle(
            int shuffleId, ShuffleDependency<K, V, C> dependency) {
        ShuffleHandle handle = super.registerShuffle(shuffleId, dependency);
        boolean isChosen = handle instanceof BypassMergeSortShuffleHandle
                && dependency.partitioner().numPartitions() > FILES_MAX
                && !conf.contains(BYPASS_THRESHOLD)
                && SortShuffleManager.canUseSerializedShuffle(dependency);
        return isChosen
                ? new SerializedShuffleHandle<>(shuffleId, (ShuffleDependency<K, V, V>) dependency)
                : handle;
    }

    @Override
    public <K, V> ShuffleWriter<K, V> getWriter(
            ShuffleHandle handle,
            long mapId,
            TaskContext context,
            ShuffleWriteMetricsReporter metrics) {
        tasks.begin(mapId, context);
        ShuffleWriter<K, V> writer = super.getWriter(handle, mapId, context, metrics);
        return new LocatedWriter<>(writer, handle.shuffleId(), mapId, tasks);
    }

    @Override
    public <K, C> ShuffleReader<K, C> getReader(
            ShuffleHandle handle,
            int startMapIndex,
            int endMapIndex,
            int startPartition,
            int endPartition,
            TaskContext context,
            ShuffleReadMetricsReporter metrics) {
        @SuppressWarnings("unchecked")
        BaseShuffleHandle<K, ?, C> base = (BaseShuffleHandle<K, ?, C>) handle;
        ReadRange range = ReadRange.of(
                base.shuffleId(), startMapIndex, endMapIndex, startPartition, endPartition,
                base.dependency().partitioner().numPartitions());
        return new SanderlingShuffleReader<>(this, base, range, context, metrics);
    }

    @Override
    public boolean unregisterShuffle(int shuffleId) {
        outputs.forget(shuffleId);
        return super.unregisterShuffle(shuffleId);
    }

    @Override
    public void stop() {
        outputs.close();
        if (driver != null) {
            driver.close();
        }
        synchronized (this) {
            if (executor != null) {
                executor.close();
                executor = null;
            }
        }
        super.stop();
    }
}
