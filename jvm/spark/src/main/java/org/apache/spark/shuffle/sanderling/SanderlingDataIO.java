package org.apache.spark.shuffle.sanderling;

import java.io.IOException;
import java.util.Collections;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.api.ShuffleDataIO;
import org.apache.spark.shuffle.api.ShuffleDriverComponents;
import org.apache.spark.shuffle.api.ShuffleExecutorComponents;
import org.apache.spark.shuffle.api.ShuffleMapOutputWriter;
import org.apache.spark.shuffle.api.SingleSpillShuffleMapOutputWriter;

/** Makes Spark's sort writers write to Sanderling; the shuffle manager configures it itself. */
public final class SanderlingDataIO implements ShuffleDataIO {
    /** Makes it as Spark does. */
    public SanderlingDataIO(SparkConf conf) {
        // Everything is the manager's.
    }

    @Override
    public ShuffleExecutorComponents executor() {
        return new ExecutorComponents();
    }

    @Override
    public ShuffleDriverComponents driver() {
        return new DriverComponents();
    }

    /** Passes Spark's calls on the driver on to the manager's driver. */
    private static final class DriverComponents implements ShuffleDriverComponents {
        private Driver driver;

        @Override
        public Map<String, String> initializeApplication() {
            driver = SanderlingShuffleManager.current().driver();
            driver.begin();
            return Collections.emptyMap();
        }

        @Override
        public void cleanupApplication() {
            if (driver != null) {
                driver.end();
            }
        }

        @Override
        public void registerShuffle(int shuffleId) {
            driver.makeDirectory(shuffleId);
        }

        @Override
        public void removeShuffle(int shuffleId, boolean blocking) {
            driver.removeDirectory(shuffleId, blocking);
        }

        @Override
        public boolean supportsReliableStorage() {
            return true;
        }
    }

    /** Makes the writers of the map tasks that run in this process. */
    private static final class ExecutorComponents implements ShuffleExecutorComponents {
        @Override
        public void initializeExecutor(
                String appId, String execId, Map<String, String> extraConfigs) {
            // Requested from the driver when the first task needs the store.
        }

        @Override
        public ShuffleMapOutputWriter createMapOutputWriter(
                int shuffleId, long mapTaskId, int numPartitions) throws IOException {
            return new MapOutputWriter(object(shuffleId, mapTaskId), numPartitions);
        }

        @Override
        public Optional<SingleSpillShuffleMapOutputWriter> createSingleFileMapOutputWriter(
                int shuffleId, long mapId) throws IOException {
            return Optional.of(new SpillTransfer(object(shuffleId, mapId)));
        }

        private static MapObject object(int shuffleId, long mapId) throws IOException {
            SanderlingShuffleManager manager = SanderlingShuffleManager.current();
            return new MapObject(manager.store(), shuffleId, mapId, manager.tasks().task(mapId));
        }
    }
}
