package org.apache.spark.shuffle.sanderling;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/** Lists unreadable outputs of a shuffle, as a reader reports them to the driver. */
final class LostMaps {
    final int shuffleId;
    private int[] mapIndexes = new int[4];
    private long[] mapIds = new long[4];
    private int count;

    LostMaps(int shuffleId) {
        this.shuffleId = shuffleId;
    }

    /** Reads what {@link #message()} wrote. */
    LostMaps(Map<?, ?> message) {
        this.shuffleId = (Integer) message.get("lost");
        this.mapIndexes = (int[]) message.get("mapIndexes");
        this.mapIds = (long[]) message.get("mapIds");
        this.count = mapIndexes.length;
    }

    /** Returns whether a message is one of these. */
    static boolean isOne(Map<?, ?> message) {
        return message.containsKey("lost");
    }

    void add(int mapIndex, long mapId) {
        if (count == mapIds.length) {
            mapIndexes = Arrays.copyOf(mapIndexes, 2 * count);
            mapIds = Arrays.copyOf(mapIds, 2 * count);
        }
        mapIndexes[count] = mapIndex;
        mapIds[count] = mapId;
        count++;
    }

    int count() {
        return count;
    }

    int mapIndex(int at) {
        return mapIndexes[at];
    }

    long mapId(int at) {
        return mapIds[at];
    }

    /** Returns what travels: values that every Spark process can read. */
    HashMap<String, Object> message() {
        HashMap<String, Object> message = new HashMap<>();
        message.put("lost", shuffleId);
        message.put("mapIndexes", Arrays.copyOf(mapIndexes, count));
        message.put("mapIds", Arrays.copyOf(mapIds, count));
        return message;
    }
}
