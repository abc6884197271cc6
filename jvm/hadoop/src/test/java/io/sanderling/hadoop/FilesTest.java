package io.sanderling.hadoop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.concurrent.TimeUnit;

import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.io.ElasticByteBufferPool;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import io.sanderling.client.DataUnavailableException;

/** What is the store's own and no suite of Hadoop's requires. */
class FilesTest {
    private FileSystem fs;
    private final Path root = new Path("/files");

    @BeforeEach
    void connect() throws Exception {
        fs = Bases.fileSystem();
        assertTrue(fs.mkdirs(root));
    }

    @AfterEach
    void clear() throws IOException {
        if (fs != null) {
            fs.delete(root, true);
            fs.close();
        }
    }

    @Test
    void reads_of_every_shape_give_the_bytes_that_were_written() throws IOException {
        byte[] bytes = random(9 << 20, 1);
        Path path = written("shapes", bytes);
        Random random = new Random(2);
        try (FSDataInputStream in = fs.open(path)) {
            byte[] all = new byte[bytes.length];
            for (int at = 0; at < all.length;) {
                int wanted = Math.min(all.length - at, 1 + random.nextInt(100_000));
                int read = in.read(all, at, wanted);
                assertTrue(read > 0 && read <= wanted, "read " + read);
                at += read;
            }
            assertArrayEquals(bytes, all);
            assertEquals(-1, in.read());
            for (int round = 0; round < 200; round++) {
                int from = random.nextInt(bytes.length);
                int length = random.nextInt(Math.min(3 << 20, bytes.length - from));
                byte[] part = Arrays.copyOfRange(bytes, from, from + length);
                assertArrayEquals(part, read(in, from, length, round), "round " + round);
            }
        }
    }

    private static byte[] read(FSDataInputStream in, int from, int length, int round)
            throws IOException {
        byte[] part = new byte[length];
        switch (round % 5) {
            case 0:
                in.seek(from);
                in.readFully(part);
                break;
            case 1:
                in.readFully(from, part);
                break;
            case 2:
                in.readFully(from, ByteBuffer.wrap(part));
                break;
            case 3:
                ByteBuffer direct = ByteBuffer.allocateDirect(length);
                in.seek(from);
                while (direct.hasRemaining()) {
                    in.read(direct);
                }
                direct.flip();
                direct.get(part);
                break;
            default:
                in.unbuffer();
                in.seek(from);
                zeroCopy(in, part);
        }
        return part;
    }

    private static void zeroCopy(FSDataInputStream in, byte[] into) throws IOException {
        ElasticByteBufferPool pool = new ElasticByteBufferPool();
        for (int at = 0; at < into.length;) {
            ByteBuffer bytes = in.read(
                    pool, into.length - at, EnumSet.noneOf(ReadOption.class));
            int count = bytes.remaining();
            bytes.get(into, at, count);
            in.releaseBuffer(bytes);
            at += count;
        }
    }

    @Test
    void vectored_read_beyond_what_is_under_way_at_once_is_whole() throws Exception {
        byte[] bytes = random(20 << 20, 3);
        Path path = written("vectored", bytes);
        List<FileRange> ranges = new ArrayList<>();
        for (int at = 0; at < 5; at++) {
            ranges.add(FileRange.createFileRange(at << 20, 15 << 20));
        }
        try (FSDataInputStream in = fs.open(path)) {
            in.readVectored(ranges, ByteBuffer::allocate);
            for (FileRange range : ranges) {
                ByteBuffer read = range.getData().get(60, TimeUnit.SECONDS);
                int from = (int) range.getOffset();
                assertEquals(ByteBuffer.wrap(bytes, from, range.getLength()), read);
            }
        }
    }

    @Test
    void replaced_file_is_the_old_one_until_the_new_one_is_closed() throws IOException {
        Path path = written("replaced", new byte[] {1});
        FSDataOutputStream out = fs.create(path, true);
        out.write(2);
        out.hflush();
        assertFalse(out.hasCapability(StreamCapabilities.HFLUSH));
        assertEquals(1, firstByte(path));
        out.close();
        assertEquals(2, firstByte(path));
    }

    @Test
    void flushed_bytes_of_a_new_file_are_read_before_it_is_closed() throws IOException {
        Path path = new Path(root, "flushed");
        try (FSDataOutputStream out = fs.create(path, true)) {
            assertTrue(out.hasCapability(StreamCapabilities.HFLUSH));
            assertFalse(out.hasCapability(StreamCapabilities.HSYNC));
            out.write(7);
            out.hflush();
            assertEquals(1, fs.getFileStatus(path).getLen());
            assertEquals(7, firstByte(path));
        }
    }

    @Test
    void aborted_file_never_was() throws IOException {
        Path path = new Path(root, "aborted");
        FSDataOutputStream out = fs.create(path);
        out.write(7);
        assertFalse(out.abort().alreadyClosed());
        out.close();
        assertFalse(fs.exists(path));
    }

    @Test
    void second_writer_is_refused_and_the_first_is_named() throws IOException {
        Path path = new Path(root, "two");
        try (FSDataOutputStream out = fs.create(path)) {
            IOException refusal = assertThrows(IOException.class, () -> fs.append(path));
            assertTrue(refusal.getMessage().contains("writer"), refusal.getMessage());
        }
    }

    @Test
    void locations_cover_the_file_in_blocks_of_hadoops_size() throws IOException {
        Path path = written("located", random(5 << 20, 4));
        FileStatus status = fs.getFileStatus(path);
        BlockLocation[] whole = fs.getFileBlockLocations(status, 0, status.getLen());
        assertEquals(1, whole.length);
        assertEquals(status.getLen(), whole[0].getLength());
        assertTrue(whole[0].getHosts().length > 0);
        fs.getConf().set("fs.sanderling.block.size", "2m");
        try (FileSystem other = FileSystem.newInstance(fs.getUri(), fs.getConf())) {
            BlockLocation[] some = other.getFileBlockLocations(status, 3 << 20, 2 << 20);
            assertEquals(2, some.length);
            assertEquals(2 << 20, some[0].getOffset());
            assertEquals(4 << 20, some[1].getOffset());
            assertEquals(1 << 20, some[1].getLength());
        }
    }

    @Test
    void listing_with_locations_has_those_of_each_file() throws IOException {
        fs.mkdirs(new Path(root, "directory"));
        for (int at = 0; at < 1100; at++) {
            written("file-" + at, random(at % 200 == 0 ? 3 << 20 : at % 3 * 1000, at));
        }
        Path gone = written("gone", random(1 << 20, 1));
        RemoteIterator<LocatedFileStatus> listed = fs.listLocatedStatus(root);
        fs.delete(gone, false);
        int files = 0;
        while (listed.hasNext()) {
            LocatedFileStatus each = listed.next();
            BlockLocation[] locations = each.getBlockLocations();
            if (each.isDirectory()) {
                assertEquals(null, locations);
                continue;
            }
            files++;
            if (each.getPath().getName().equals("gone")) {
                assertEquals(0, locations[0].getHosts().length);
                continue;
            }
            assertArrayEquals(
                    texts(fs.getFileBlockLocations(each, 0, each.getLen())), texts(locations));
        }
        assertEquals(1101, files);
        assertThrows(NoSuchElementException.class, listed::next);
        assertThrows(FileNotFoundException.class, () -> fs.listLocatedStatus(gone));
    }

    private static String[] texts(BlockLocation[] locations) {
        return Arrays.stream(locations).map(BlockLocation::toString).toArray(String[]::new);
    }

    @Test
    void what_is_not_kept_does_nothing_and_misses_no_missing_file() throws IOException {
        Path path = written("kept", new byte[1]);
        FileStatus before = fs.getFileStatus(path);
        fs.setTimes(path, 1, 1);
        fs.setPermission(path, new FsPermission((short) 0700));
        fs.setOwner(path, "somebody", "some");
        FileStatus after = fs.getFileStatus(path);
        assertEquals(before.getModificationTime(), after.getModificationTime());
        assertEquals(before.getPermission(), after.getPermission());
        assertEquals(before.getOwner(), after.getOwner());
        Path missing = new Path(root, "missing");
        assertThrows(FileNotFoundException.class, () -> fs.setTimes(missing, 1, 1));
        assertThrows(FileNotFoundException.class,
                () -> fs.setPermission(missing, new FsPermission((short) 0700)));
        assertFalse(fs.setReplication(path, (short) 3));
        assertTrue(fs.setReplication(path, (short) 1));
    }

    @Test
    void names_that_hadoop_parses_are_kept_as_they_are() throws IOException {
        for (String name : new String[] {"a:b", "ü", "a b", "100%", "a#b?c"}) {
            Path path = new Path(null, null, root.toUri().getPath() + "/" + name);
            fs.create(path).close();
            assertEquals(name, fs.getFileStatus(path).getPath().getName());
        }
        assertEquals(5, fs.listStatus(root).length);
    }

    @Test
    void options_of_the_store_are_taken_and_unknown_ones_refused() throws IOException {
        Path path = new Path(root, "options");
        ((FSDataOutputStream) fs.createFile(path).overwrite(true)
                .must("fs.sanderling.create.ttl", 60_000)
                .must("fs.sanderling.create.recompute", 1500)
                .must("fs.sanderling.create.attribute.kind", "rows").build()).close();
        assertArrayEquals("rows".getBytes(StandardCharsets.UTF_8), fs.getXAttr(path, "user.kind"));
        assertTrue(fs.listXAttrs(path).contains("user.kind"));
        assertThrows(IOException.class, () -> fs.getXAttr(path, "user.other"));
        assertThrows(IllegalArgumentException.class,
                () -> fs.createFile(path).must("fs.sanderling.create.tll", 1).build());
        assertThrows(IllegalArgumentException.class,
                () -> fs.createFile(path).opt("fs.sanderling.create.ttl", "soon").build());
    }

    @Test
    void etag_is_another_one_after_an_append() throws IOException {
        Path path = written("etag", new byte[10]);
        String before = ((SanderlingFileStatus) fs.getFileStatus(path)).getEtag();
        try (FSDataOutputStream out = fs.append(path)) {
            assertEquals(10, out.getPos());
            out.write(1);
        }
        assertNotEquals(before, ((SanderlingFileStatus) fs.getFileStatus(path)).getEtag());
    }

    @Test
    void lost_bytes_are_named_at_once_and_others_are_read() throws Exception {
        Cluster.Server doomed = Cluster.shared().addDatanode();
        Path path = written("lost", random(24 << 20, 5));
        doomed.kill();
        DataUnavailableException lost = assertThrows(DataUnavailableException.class, () -> {
            // Until the namenode is sure, callers have to wait: their deadline is theirs.
            for (int round = 0; round < 30; round++) {
                try (FSDataInputStream in = fs.open(path)) {
                    in.readFully(new byte[24 << 20]);
                } catch (io.sanderling.client.TimedOutException e) {
                    continue;
                }
                throw new AssertionError("nothing was lost: the block lay elsewhere");
            }
        });
        assertTrue(lost.getMessage().contains("/files/lost"), lost.getMessage());
        assertFalse(lost.lost().isEmpty());
        FileStatus status = fs.getFileStatus(path);
        BlockLocation[] places = fs.getFileBlockLocations(status, 0, status.getLen());
        assertTrue(places[0].isCorrupt());
        Path other = written("other", random(1 << 20, 6));
        assertEquals(random(1 << 20, 6)[0], (byte) firstByte(other));
    }

    private Path written(String name, byte[] bytes) throws IOException {
        Path path = new Path(root, name);
        try (FSDataOutputStream out = fs.create(path, true)) {
            out.write(bytes);
        }
        return path;
    }

    private int firstByte(Path path) throws IOException {
        try (FSDataInputStream in = fs.open(path)) {
            return in.read();
        }
    }

    private static byte[] random(int count, long seed) {
        byte[] bytes = new byte[count];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }
}
