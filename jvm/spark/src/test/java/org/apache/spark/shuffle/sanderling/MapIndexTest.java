package org.apache.spark.shuffle.sanderling;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import java.util.Random;
import org.junit.jupiter.api.Test;

final class MapIndexTest {
    private final Random random = new Random(6);

    @Test
    void indexHasThePlaceOfEveryPartition() throws Exception {
        for (int partitions : new int[] {1, 2, 255, 256, 257, 1000}) {
            long[] lengths = lengths(partitions);
            int[] checksums = checksums(lengths);
            ByteBuffer encoded = MapIndex.encode(lengths, checksums);
            long dataBytes = sum(lengths);
            long objectBytes = dataBytes + encoded.remaining();
            int tailBytes = Math.min(MapIndex.tailBytes(partitions), encoded.remaining());
            ByteBuffer tail = encoded.duplicate();
            tail.position(encoded.limit() - tailBytes);
            MapIndex index = MapIndex.decode(tail.slice(), partitions, objectBytes);
            for (int start = 0; start < partitions; start += 97) {
                readPages(index, encoded, dataBytes, start, Math.min(partitions, start + 97));
            }
            check(index, lengths, checksums);
        }
    }

    @Test
    void wholeObjectNeedsNoPages() throws Exception {
        long[] lengths = lengths(700);
        int[] checksums = checksums(lengths);
        ByteBuffer encoded = MapIndex.encode(lengths, checksums);
        ByteBuffer whole = ByteBuffer.allocate((int) sum(lengths) + encoded.remaining());
        whole.position((int) sum(lengths));
        whole.put(encoded.duplicate()).flip();
        MapIndex index = MapIndex.decode(whole, 700, whole.limit());
        assertNull(index.missing(0, 700));
        check(index, lengths, checksums);
    }

    @Test
    void damagedIndexIsRefused() {
        long[] lengths = lengths(40);
        ByteBuffer encoded = MapIndex.encode(lengths, checksums(lengths));
        long objectBytes = sum(lengths) + encoded.remaining();
        for (int at = 0; at < encoded.limit(); at++) {
            encoded.put(at, (byte) (encoded.get(at) ^ 0x10));
            assertThrows(MapIndex.CorruptException.class,
                    () -> MapIndex.decode(encoded, 40, objectBytes), "byte " + at);
            encoded.put(at, (byte) (encoded.get(at) ^ 0x10));
        }
        assertThrows(MapIndex.CorruptException.class,
                () -> MapIndex.decode(encoded, 41, objectBytes));
        assertThrows(MapIndex.CorruptException.class,
                () -> MapIndex.decode(ByteBuffer.allocate(3), 40, 3));
    }

    private static void readPages(
            MapIndex index, ByteBuffer encoded, long dataBytes, int start, int end)
            throws Exception {
        long[] missing = index.missing(start, end);
        if (missing != null) {
            ByteBuffer pages = encoded.duplicate();
            pages.position((int) (missing[0] - dataBytes));
            pages.limit(pages.position() + (int) missing[1]);
            index.putPages((int) missing[2], pages.slice());
        }
        assertNull(index.missing(start, end));
    }

    private static void check(MapIndex index, long[] lengths, int[] checksums) {
        long offset = 0;
        for (int partition = 0; partition < lengths.length; partition++) {
            assertEquals(offset, index.offset(partition));
            assertEquals(checksums[partition], index.checksum(partition));
            offset += lengths[partition];
        }
        assertEquals(offset, index.offset(lengths.length));
    }

    private long[] lengths(int partitions) {
        long[] lengths = new long[partitions];
        for (int at = 0; at < partitions; at++) {
            lengths[at] = random.nextInt(3) == 0 ? 0 : random.nextInt(1000);
        }
        return lengths;
    }

    private int[] checksums(long[] lengths) {
        int[] checksums = new int[lengths.length];
        for (int at = 0; at < lengths.length; at++) {
            checksums[at] = lengths[at] == 0 ? 0 : random.nextInt();
        }
        return checksums;
    }

    private static long sum(long[] lengths) {
        long sum = 0;
        for (long length : lengths) {
            sum += length;
        }
        return sum;
    }
}
