package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.Buffer;
import io.sanderling.client.Fetched;
import io.sanderling.client.Opened;
import io.sanderling.client.Ranges;
import io.sanderling.client.Reader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Fetches the partitions of some maps together: one request opens all that are not open, one reads
 * the ends of all, one the pages of their indexes that are missing, one the data.
 *
 * <p>Only the task's own thread drives it: nothing happens in threads of the client but that bytes
 * arrive.
 */
final class Chunk implements AutoCloseable {
    /** A range that is longer is streamed. */
    static final long LARGE_BYTES = 8L << 20;

    /** An output that is not longer is read whole and kept: it costs as much as reading its end. */
    private static final long WHOLE_BYTES = 16 << 10;

    private final Store store;
    private final MapOutputs outputs;
    private final ReadRange range;
    private final List<MapFetch> maps = new ArrayList<>();
    private Step step = Step.OPEN;
    private List<MapFetch> asked;
    private CompletableFuture<List<Opened>> opening;
    private CompletableFuture<List<Fetched>> reading;

    Chunk(Store store, MapOutputs outputs, ReadRange range) {
        this.store = store;
        this.outputs = outputs;
        this.range = range;
    }

    private enum Step { OPEN, TAILS, PAGES, DATA, READY }

    void add(MapFetch map) {
        maps.add(map);
    }

    List<MapFetch> maps() {
        return maps;
    }

    boolean isReady() {
        return step == Step.READY;
    }

    /** Goes on as far as it can without waiting. */
    void advance(LargeInput.Waiting waiting) throws IOException {
        while (step != Step.READY) {
            if (asked == null) {
                request();
            }
            if (!asked.isEmpty()) {
                CompletableFuture<?> future = step == Step.OPEN ? opening : reading;
                if (!future.isDone()) {
                    return;
                }
            }
            take(waiting);
        }
    }

    /** Goes on to the end. */
    void finish(LargeInput.Waiting waiting) throws IOException {
        while (step != Step.READY) {
            if (asked == null) {
                request();
            }
            take(waiting);
        }
    }

    /** Opens and reads one of the maps again, after its bytes were wrong. */
    void again(MapFetch map, LargeInput.Waiting waiting) throws IOException {
        Chunk again = new Chunk(store, outputs, range);
        map.close();
        outputs.forget(range.shuffleId, map.mapId);
        map.output = null;
        map.failure = null;
        again.add(map);
        again.finish(waiting);
    }

    @Override
    public void close() {
        if (reading != null) {
            reading.thenAccept(all -> all.forEach(Fetched::close));
        }
        maps.forEach(MapFetch::close);
    }

    private void request() {
        asked = new ArrayList<>();
        switch (step) {
            case OPEN:
                requestOpen();
                break;
            case TAILS:
                read(maps, this::tail);
                break;
            case PAGES:
                read(maps, this::pages);
                break;
            default:
                read(maps, this::data);
        }
    }

    private void take(LargeInput.Waiting waiting) throws IOException {
        if (!asked.isEmpty() && step == Step.OPEN) {
            takeOpened(waiting.join(opening));
        } else if (!asked.isEmpty()) {
            List<Fetched> all = waiting.join(reading);
            reading = null;
            for (int at = 0; at < all.size(); at++) {
                takeFetched(asked.get(at), all.get(at));
            }
        }
        asked = null;
        step = Step.values()[step.ordinal() + 1];
    }

    private void requestOpen() {
        List<String> paths = new ArrayList<>();
        for (MapFetch map : maps) {
            map.output = outputs.find(range.shuffleId, map.mapId);
            if (map.output == null) {
                asked.add(map);
                paths.add(MapNames.path(store.root(), range.shuffleId, map.mapIndex, map.mapId));
            }
        }
        if (!paths.isEmpty()) {
            opening = store.client().openManyAsync(paths);
        }
    }

    private void takeOpened(List<Opened> all) {
        for (int at = 0; at < all.size(); at++) {
            MapFetch map = asked.get(at);
            try {
                map.reader = all.get(at).reader();
            } catch (IOException error) {
                map.failure = error;
            }
        }
    }

    /** Returns the required part of an object, as an offset and a length; null for none. */
    private interface Part {
        long[] of(MapFetch map);
    }

    private void read(List<MapFetch> all, Part part) {
        List<Ranges> wanted = new ArrayList<>();
        for (MapFetch map : all) {
            long[] place = map.failure == null ? part.of(map) : null;
            if (place != null) {
                Reader reader = map.output == null ? map.reader : map.output.reader;
                wanted.add(new Ranges(reader, new long[] {place[0]}, new long[] {place[1]}));
                asked.add(map);
            }
        }
        if (!wanted.isEmpty()) {
            reading = store.client().readManyAsync(wanted);
        }
    }

    private long[] tail(MapFetch map) {
        if (map.output != null) {
            return null;
        }
        long length = map.reader.length();
        long wanted = Math.max(WHOLE_BYTES, MapIndex.tailBytes(range.partitions));
        long tail = length <= wanted
                ? length
                : Math.min(length, MapIndex.tailBytes(range.partitions));
        return new long[] {length - tail, tail};
    }

    private long[] pages(MapFetch map) {
        return map.output.index.missing(range.start, range.end);
    }

    private long[] data(MapFetch map) {
        long bytes = map.bytes(range);
        boolean isHere = map.output.whole != null || bytes == 0;
        return isHere || bytes > LARGE_BYTES
                ? null
                : new long[] {map.output.index.offset(range.start), bytes};
    }

    private void takeFetched(MapFetch map, Fetched fetched) {
        try {
            Buffer bytes = fetched.buffers()[0];
            switch (step) {
                case TAILS:
                    takeTail(map, bytes);
                    break;
                case PAGES:
                    takePages(map, bytes);
                    break;
                default:
                    map.put(bytes);
            }
        } catch (IOException error) {
            map.failure = error;
        }
    }

    private void takeTail(MapFetch map, Buffer bytes) throws IOException {
        try (Buffer tail = bytes) {
            long length = map.reader.length();
            MapIndex index = MapIndex.decode(tail.bytes(), range.partitions, length);
            byte[] whole = tail.length() == length ? tail.toArray() : null;
            map.output = new MapOutputs.MapOutput(map.reader, index, whole);
            outputs.keep(range.shuffleId, map.mapId, map.output);
        }
    }

    private void takePages(MapFetch map, Buffer bytes) throws IOException {
        try (Buffer pages = bytes) {
            ByteBuffer encoded = pages.bytes();
            long[] missing = map.output.index.missing(range.start, range.end);
            if (missing != null) {
                map.output.index.putPages((int) missing[2], encoded);
                outputs.keep(range.shuffleId, map.mapId, map.output);
            }
        }
    }
}
