package org.apache.spark.shuffle.sanderling;

import java.io.IOException;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.ShuffleWriter;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/** Writes as Spark's own writer does; the location of the output is its own. */
final class LocatedWriter<K, V> extends ShuffleWriter<K, V> {
    private final ShuffleWriter<K, V> writer;
    private final int shuffleId;
    private final long mapId;
    private final MapTasks tasks;

    LocatedWriter(ShuffleWriter<K, V> writer, int shuffleId, long mapId, MapTasks tasks) {
        this.writer = writer;
        this.shuffleId = shuffleId;
        this.mapId = mapId;
        this.tasks = tasks;
    }

    @Override
    public void write(Iterator<Product2<K, V>> records) throws IOException {
        writer.write(records);
    }

    @Override
    public Option<MapStatus> stop(boolean success) {
        tasks.end(mapId);
        Option<MapStatus> status = writer.stop(success);
        if (status.isDefined()) {
            status.get().updateLocation(MapNames.location(shuffleId, mapId));
        }
        return status;
    }

    @Override
    public long[] getPartitionLengths() {
        return writer.getPartitionLengths();
    }
}
