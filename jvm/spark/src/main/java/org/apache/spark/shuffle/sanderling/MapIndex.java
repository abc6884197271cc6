package org.apache.spark.shuffle.sanderling;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32;

/**
 * Locates each partition in a map output's object, and the checksum of each.
 *
 * <p>Behind the data come pages of 256 partitions (the length of each as a variable-length number,
 * and the CRC-32 of each that has bytes), a directory with an entry for each page, and a trailer of
 * fixed length. With the number of partitions one can read the directory and the trailer at once,
 * and of a map with few partitions the only page with them. All numbers are little-endian.
 */
final class MapIndex {
    static final int PAGE_PARTITIONS = 256;

    /** Data's offset, page's offset from the end of the data, the page's checksum. */
    private static final int ENTRY_BYTES = 16;

    /** Bytes of data, partitions, checksum of directory and trailer, magic. */
    private static final int TRAILER_BYTES = 24;

    /** "SNDLMAP1", read as a little-endian number: another layout gets another digit. */
    private static final long MAGIC = 0x3150414D4C444E53L;

    /** A length below 2^35 takes five bytes, its checksum four. */
    private static final int PARTITION_BYTES = 9;

    private final int partitions;
    private final long dataBytes;
    private final long[] dataOffsets;
    private final int[] pageOffsets;
    private final int[] pageChecksums;
    private final Page[] pages;

    private MapIndex(int partitions, long dataBytes, int pageCount) {
        this.partitions = partitions;
        this.dataBytes = dataBytes;
        this.dataOffsets = new long[pageCount + 1];
        this.pageOffsets = new int[pageCount + 1];
        this.pageChecksums = new int[pageCount];
        this.pages = new Page[pageCount];
    }

    /** Returns the index of partitions of those lengths and checksums, as it is written. */
    static ByteBuffer encode(long[] lengths, int[] checksums) {
        int pageCount = pageCount(lengths.length);
        int most = lengths.length * (PARTITION_BYTES + 5) + pageCount * ENTRY_BYTES + TRAILER_BYTES;
        ByteBuffer index = ByteBuffer.allocate(most).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer directory =
                ByteBuffer.allocate(pageCount * ENTRY_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        long offset = 0;
        for (int page = 0; page < pageCount; page++) {
            int start = index.position();
            directory.putLong(offset).putInt(start);
            int end = Math.min(lengths.length, (page + 1) * PAGE_PARTITIONS);
            for (int partition = page * PAGE_PARTITIONS; partition < end; partition++) {
                putNumber(index, lengths[partition]);
                if (lengths[partition] > 0) {
                    index.putInt(checksums[partition]);
                }
                offset += lengths[partition];
            }
            directory.putInt(checksum(index.array(), start, index.position()));
        }
        int tail = index.position();
        directory.flip();
        index.put(directory).putLong(offset).putInt(lengths.length);
        index.putInt(checksum(index.array(), tail, index.position())).putLong(MAGIC);
        index.flip();
        return index;
    }

    /** Returns how many bytes from the end of an object are worth reading first. */
    static int tailBytes(int partitions) {
        int pageCount = pageCount(partitions);
        int tail = pageCount * ENTRY_BYTES + TRAILER_BYTES;
        return pageCount == 1 ? tail + partitions * PARTITION_BYTES : tail;
    }

    /**
     * Reads the directory from the last bytes of an object, and the pages when all of them are
     * there.
     *
     * @throws CorruptException when they are not those of a map output with so many partitions
     */
    static MapIndex decode(ByteBuffer tail, int partitions, long objectBytes)
            throws CorruptException {
        ByteBuffer bytes = tail.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        int pageCount = pageCount(partitions);
        int start = bytes.limit() - TRAILER_BYTES - pageCount * ENTRY_BYTES;
        if (start < 0 || bytes.getLong(bytes.limit() - 8) != MAGIC) {
            throw new CorruptException("it does not end as a map output does");
        }
        int checked = bytes.limit() - 12;
        long dataBytes = bytes.getLong(bytes.limit() - TRAILER_BYTES);
        if (checksum(bytes, start, checked) != bytes.getInt(checked)
                || bytes.getInt(bytes.limit() - 16) != partitions) {
            throw new CorruptException("its directory does not match its checksum");
        }
        MapIndex index = new MapIndex(partitions, dataBytes, pageCount);
        for (int page = 0; page < pageCount; page++) {
            index.dataOffsets[page] = bytes.getLong(start + page * ENTRY_BYTES);
            index.pageOffsets[page] = bytes.getInt(start + page * ENTRY_BYTES + 8);
            index.pageChecksums[page] = bytes.getInt(start + page * ENTRY_BYTES + 12);
        }
        index.dataOffsets[pageCount] = dataBytes;
        long indexBytes = objectBytes - dataBytes - (bytes.limit() - start);
        index.pageOffsets[pageCount] = (int) indexBytes;
        if (start >= indexBytes) {
            index.putPages(0, part(bytes, (int) (start - indexBytes), start));
        }
        return index;
    }

    /** Returns the part of an object with the pages of partitions that are not known yet. */
    long[] missing(int start, int end) {
        int first = start / PAGE_PARTITIONS;
        int last = (end - 1) / PAGE_PARTITIONS;
        for (int page = first; page <= last; page++) {
            if (pages[page] == null) {
                long from = dataBytes + pageOffsets[first];
                return new long[] {from, dataBytes + pageOffsets[last + 1] - from, first};
            }
        }
        return null;
    }

    /**
     * Takes pages from the first one on.
     *
     * @throws CorruptException when one does not match its checksum
     */
    void putPages(int first, ByteBuffer encoded) throws CorruptException {
        ByteBuffer bytes = encoded.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        int base = pageOffsets[first];
        for (int page = first; bytes.hasRemaining(); page++) {
            int from = pageOffsets[page] - base;
            int to = pageOffsets[page + 1] - base;
            if (checksum(bytes, from, to) != pageChecksums[page]) {
                throw new CorruptException("page " + page + " does not match its checksum");
            }
            int count = Math.min(PAGE_PARTITIONS, partitions - page * PAGE_PARTITIONS);
            pages[page] = new Page(dataOffsets[page], count, bytes);
        }
    }

    /** Returns where the data of a partition begins, or for the number of partitions, ends. */
    long offset(int partition) {
        if (partition == partitions) {
            return dataBytes;
        }
        Page page = pages[partition / PAGE_PARTITIONS];
        return page == null
                ? dataOffsets[partition / PAGE_PARTITIONS]
                : page.offsets[partition % PAGE_PARTITIONS];
    }

    /** Returns the CRC-32 of a partition's data. */
    int checksum(int partition) {
        return pages[partition / PAGE_PARTITIONS].checksums[partition % PAGE_PARTITIONS];
    }

    /** Returns about how many bytes of memory it takes. */
    int weight() {
        int weight = 64 + dataOffsets.length * 24;
        for (Page page : pages) {
            weight += page == null ? 0 : 64 + page.checksums.length * 12;
        }
        return weight;
    }

    private static int pageCount(int partitions) {
        return Math.max(1, (partitions + PAGE_PARTITIONS - 1) / PAGE_PARTITIONS);
    }

    private static ByteBuffer part(ByteBuffer bytes, int from, int to) {
        ByteBuffer part = bytes.duplicate();
        part.limit(to).position(from);
        return part.slice();
    }

    private static int checksum(byte[] bytes, int from, int to) {
        CRC32 checksum = new CRC32();
        checksum.update(bytes, from, to - from);
        return (int) checksum.getValue();
    }

    private static int checksum(ByteBuffer bytes, int from, int to) throws CorruptException {
        if (from < 0 || to < from || to > bytes.limit()) {
            throw new CorruptException("its index points outside of it");
        }
        CRC32 checksum = new CRC32();
        checksum.update(part(bytes, from, to));
        return (int) checksum.getValue();
    }

    private static void putNumber(ByteBuffer bytes, long number) {
        long rest = number;
        while (rest >= 0x80) {
            bytes.put((byte) (rest | 0x80));
            rest >>>= 7;
        }
        bytes.put((byte) rest);
    }

    private static long number(ByteBuffer bytes) {
        long number = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            byte next = bytes.get();
            number |= (next & 0x7fL) << shift;
            if (next >= 0) {
                break;
            }
        }
        return number;
    }

    /** Holds a page's entries of its partitions. */
    private static final class Page {
        private final long[] offsets;
        private final int[] checksums;

        Page(long dataOffset, int count, ByteBuffer bytes) {
            offsets = new long[count];
            checksums = new int[count];
            long offset = dataOffset;
            for (int at = 0; at < count; at++) {
                offsets[at] = offset;
                long length = number(bytes);
                checksums[at] = length > 0 ? bytes.getInt() : 0;
                offset += length;
            }
        }
    }

    /** Returns the error of an object that is not the expected map output. */
    static final class CorruptException extends IOException {
        CorruptException(String why) {
            super(why);
        }
    }
}
