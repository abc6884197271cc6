package org.apache.spark.shuffle.sanderling;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

final class MapNamesTest {
    @Test
    void objectNamesAreReadAsTheyWereWritten() {
        String path = MapNames.path("/spark/app", 3, 17, 4_000_000_000L);
        assertEquals("/spark/app/shuffle-3/map-17-4000000000", path);
        assertEquals(3, MapNames.shuffleOf("shuffle-3"));
        assertEquals(17, MapNames.mapIndexOf("map-17-4000000000"));
        assertEquals(4_000_000_000L, MapNames.mapIdOf("map-17-4000000000"));
        for (String other : new String[] {"", "map-", "map-x-1", "other", "shuffle-", "map-3"}) {
            assertEquals(-1, MapNames.mapIndexOf(other), other);
            assertEquals(-1, MapNames.shuffleOf(other), other);
        }
    }
}
