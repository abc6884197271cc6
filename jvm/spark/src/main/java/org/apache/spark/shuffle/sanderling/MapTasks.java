package org.apache.spark.shuffle.sanderling;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;

/** Holds the metadata of the output's object for each map task that runs here. */
final class MapTasks {
    private final Map<Long, MapTask> running = new ConcurrentHashMap<>();

    /** Notes that a map task begins to compute now. */
    void begin(long mapId, TaskContext context) {
        running.put(mapId, new MapTask(context));
    }

    /** Forgets a map task. */
    void end(long mapId) {
        running.remove(mapId);
    }

    /**
     * Returns a running map task.
     *
     * @throws IllegalStateException when such a task has no writer
     */
    MapTask task(long mapId) {
        MapTask task = running.get(mapId);
        if (task == null) {
            throw new IllegalStateException("no task writes map output " + mapId);
        }
        return task;
    }

    /** Holds what is known of one attempt at a map. */
    static final class MapTask {
        final TaskContext context;
        private final long began = System.nanoTime();

        private MapTask(TaskContext context) {
            this.context = context;
        }

        /** Returns how many milliseconds it has taken so far: what a loss would cost. */
        long millis() {
            return (System.nanoTime() - began) / 1_000_000;
        }

        /** Returns the stage and the attempt at it. */
        String stage() {
            return context.stageId() + "." + context.stageAttemptNumber();
        }
    }
}
