package org.apache.spark.shuffle.sanderling;

import org.apache.spark.storage.BlockManagerId;
import scala.Option;

/**
 * Names map outputs: their objects in the store, and the location by which Spark identifies them.
 *
 * <p>The location is unique per map output and its executor id is one that no executor has. When a
 * fetch fails, Spark's scheduler forgets every output of that executor id, and when an executor is
 * lost, every output of its id: with one id per output the first means exactly the lost output and
 * the second means nothing.
 */
final class MapNames {
    private static final String MAP_PREFIX = "map-";
    private static final String SHUFFLE_PREFIX = "shuffle-";

    /** Host of every location: no worker has it, so that the loss of none touches an output. */
    private static final String HOST = "sanderling";

    /** A location needs a port above 0; no process listens there. */
    private static final int PORT = 1;

    private MapNames() {
    }

    /** Returns the directory of a shuffle's outputs. */
    static String directory(String root, int shuffleId) {
        return root + '/' + SHUFFLE_PREFIX + shuffleId;
    }

    /** Returns the path of a map output's object. */
    static String path(String root, int shuffleId, int mapIndex, long mapId) {
        return directory(root, shuffleId) + '/' + MAP_PREFIX + mapIndex + '-' + mapId;
    }

    /** Returns where Spark's scheduler believes an output to be. */
    static BlockManagerId location(int shuffleId, long mapId) {
        String executorId = "sanderling-" + shuffleId + '-' + mapId;
        return BlockManagerId.apply(executorId, HOST, PORT, Option.<String>empty());
    }

    /** Returns the shuffle of a directory's name, or -1 when it is no shuffle's. */
    static int shuffleOf(String name) {
        return name.startsWith(SHUFFLE_PREFIX)
                ? (int) number(name.substring(SHUFFLE_PREFIX.length()))
                : -1;
    }

    /** Returns the index of the map of an object's name, or -1 when it is no map output's. */
    static int mapIndexOf(String name) {
        int dash = name.indexOf('-', MAP_PREFIX.length());
        boolean isMap = name.startsWith(MAP_PREFIX) && dash > 0;
        return isMap ? (int) number(name.substring(MAP_PREFIX.length(), dash)) : -1;
    }

    /** Returns the id of the map of an object's name, or -1 when it is no map output's. */
    static long mapIdOf(String name) {
        int dash = name.indexOf('-', MAP_PREFIX.length());
        return name.startsWith(MAP_PREFIX) && dash > 0 ? number(name.substring(dash + 1)) : -1;
    }

    private static long number(String digits) {
        try {
            return Long.parseLong(digits);
        } catch (NumberFormatException error) {
            return -1;
        }
    }
}
