package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.Reader;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Keeps map outputs open between the reduce tasks of an executor, those used last, up to a bound in
 * memory. What is dropped is closed when no task can reach it any more.
 */
final class MapOutputs {
    /** As much as Spark's shuffle service keeps of index files, and as many whole small outputs. */
    private static final long BYTES_MAX = 128L << 20;

    private final LinkedHashMap<Key, MapOutput> open = new LinkedHashMap<>(64, 0.75f, true);
    private long bytes;

    /** Returns an output that is open, or null. */
    synchronized MapOutput find(int shuffleId, long mapId) {
        return open.get(new Key(shuffleId, mapId));
    }

    /** Keeps an output, or accounts for what it has grown by. */
    synchronized void keep(int shuffleId, long mapId, MapOutput output) {
        Key key = new Key(shuffleId, mapId);
        MapOutput before = open.put(key, output);
        if (before != null) {
            bytes -= before.weight;
        }
        output.weight = output.weigh();
        bytes += output.weight;
        Iterator<Map.Entry<Key, MapOutput>> oldest = open.entrySet().iterator();
        while (bytes > BYTES_MAX && oldest.hasNext()) {
            Map.Entry<Key, MapOutput> entry = oldest.next();
            if (!entry.getKey().equals(key)) {
                bytes -= entry.getValue().weight;
                oldest.remove();
            }
        }
    }

    /** Drops an output that could not be read. */
    synchronized void forget(int shuffleId, long mapId) {
        MapOutput output = open.remove(new Key(shuffleId, mapId));
        bytes -= output == null ? 0 : output.weight;
    }

    /** Drops the outputs of a shuffle. */
    synchronized void forget(int shuffleId) {
        Iterator<Map.Entry<Key, MapOutput>> all = open.entrySet().iterator();
        while (all.hasNext()) {
            Map.Entry<Key, MapOutput> entry = all.next();
            if (entry.getKey().shuffleId == shuffleId) {
                bytes -= entry.getValue().weight;
                all.remove();
            }
        }
    }

    synchronized void close() {
        open.clear();
        bytes = 0;
    }

    /** Holds an open output: where its partitions are, or if it is small, all of its bytes. */
    static final class MapOutput {
        final Reader reader;
        final MapIndex index;
        final byte[] whole;
        private int weight;

        MapOutput(Reader reader, MapIndex index, byte[] whole) {
            this.reader = reader;
            this.index = index;
            this.whole = whole;
        }

        private int weigh() {
            return 256 + index.weight() + (whole == null ? 0 : whole.length);
        }
    }

    private static final class Key {
        private final int shuffleId;
        private final long mapId;

        Key(int shuffleId, long mapId) {
            this.shuffleId = shuffleId;
            this.mapId = mapId;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Key
                    && ((Key) other).shuffleId == shuffleId
                    && ((Key) other).mapId == mapId;
        }

        @Override
        public int hashCode() {
            return 31 * shuffleId + Long.hashCode(mapId);
        }
    }
}
