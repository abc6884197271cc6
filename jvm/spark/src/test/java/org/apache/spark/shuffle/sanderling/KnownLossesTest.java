package org.apache.spark.shuffle.sanderling;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

final class KnownLossesTest {
    private static LostMaps lost(int shuffleId, long... mapIds) {
        LostMaps lost = new LostMaps(shuffleId);
        for (long mapId : mapIds) {
            lost.add((int) mapId % 10, mapId);
        }
        return lost;
    }

    @Test
    void reportIsNewUntilEveryOutputOfItIsKnown() {
        KnownLosses known = new KnownLosses();
        assertFalse(known.hasAll(lost(0, 11, 12)));
        known.addAll(lost(0, 11, 12));
        known.addAll(lost(1, 23));
        assertTrue(known.hasAll(lost(0, 12)));
        assertTrue(known.hasAll(lost(1, 23)));
        assertFalse(known.hasAll(lost(0, 11, 12, 13)));
        // The same map again, made by another task.
        assertFalse(known.hasAll(lost(0, 31)));
    }
}
