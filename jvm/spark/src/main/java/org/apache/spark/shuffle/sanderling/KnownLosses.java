package org.apache.spark.shuffle.sanderling;

import java.util.HashSet;
import java.util.Set;

/**
 * Remembers lost outputs that the driver has looked into. Every reader of one reports it, but the
 * directories of all shuffles need to be read only once: a datanode's blocks are lost together.
 */
final class KnownLosses {
    /** Map ids are ids of tasks: an output that is made again has another. */
    private final Set<Long> mapIds = new HashSet<>();

    /** Returns whether every output of a report is known. */
    boolean hasAll(LostMaps lost) {
        for (int at = 0; at < lost.count(); at++) {
            if (!mapIds.contains(lost.mapId(at))) {
                return false;
            }
        }
        return true;
    }

    void addAll(LostMaps lost) {
        for (int at = 0; at < lost.count(); at++) {
            mapIds.add(lost.mapId(at));
        }
    }
}
