package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests what the client does on a cluster whose nodes are left alone. */
final class ClientTest {
    private static final PutOptions NEW = PutOptions.create().withParents(true);

    private static LocalCluster cluster;
    private static SanderlingClient client;
    private static int tests;

    private String directory;

    @BeforeAll
    static void start() throws IOException {
        cluster = LocalCluster.start(3);
        client = cluster.connect();
    }

    @AfterAll
    static void stop() throws IOException {
        client.close();
        cluster.close();
    }

    @BeforeEach
    void makeDirectory() throws IOException {
        directory = "/test-" + tests++;
        client.makeDirectory(directory, false);
    }

    static byte[] random(int length, long seed) {
        byte[] bytes = new byte[length];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    private static ByteBuffer direct(byte[] bytes) {
        ByteBuffer direct = ByteBuffer.allocateDirect(bytes.length);
        direct.put(bytes);
        direct.flip();
        return direct;
    }

    private String put(String name, byte[] bytes) throws IOException {
        String path = directory + "/" + name;
        client.put(path, ByteBuffer.wrap(bytes), NEW);
        return path;
    }

    @Test
    void objectsOfEverySizeAreReadBack() throws IOException {
        for (int length : new int[] {0, 1, 512, 513, 4096, 4097, 1 << 20, (3 << 20) + 5}) {
            byte[] bytes = random(length, length);
            for (ByteBuffer given : Arrays.asList(
                    ByteBuffer.wrap(bytes), direct(bytes),
                    ByteBuffer.wrap(bytes).asReadOnlyBuffer())) {
                String path = directory + "/" + length;
                ObjectStat stat = client.put(path, given, NEW.withReplace(true));
                assertEquals(length, stat.length());
                assertEquals(path, stat.path());
                assertFalse(given.hasRemaining());
                try (Buffer buffer = client.get(path)) {
                    assertEquals(length, buffer.length());
                    assertTrue(buffer.bytes().isReadOnly());
                    assertArrayEquals(bytes, buffer.toArray());
                }
            }
        }
    }

    @Test
    void writerGathersWhatIsSmallAndSendsWhatIsLarge() throws IOException {
        byte[] bytes = random(5 << 20, 7);
        String path = directory + "/object";
        try (Writer writer = client.create(path, NEW.withExpectedBytes(bytes.length))) {
            Random random = new Random(8);
            int done = 0;
            while (done < bytes.length) {
                int now = Math.min(
                        bytes.length - done, 1 + random.nextInt(1 << (4 + random.nextInt(18))));
                ByteBuffer piece = ByteBuffer.wrap(bytes, done, now);
                switch (random.nextInt(4)) {
                    case 0:
                        writer.write(bytes, done, now);
                        break;
                    case 1:
                        writer.write(direct(Arrays.copyOfRange(bytes, done, done + now)));
                        break;
                    case 2:
                        writer.write(piece.slice().asReadOnlyBuffer());
                        break;
                    default:
                        writer.write(bytes[done]);
                        now = 1;
                }
                done += now;
                assertEquals(done, writer.position());
            }
            writer.setAttribute("kind", "noise");
            assertFalse(client.exists(path) && client.stat(path).isSealed());
            ObjectStat stat = writer.commit();
            assertEquals(bytes.length, stat.length());
            assertEquals("noise", stat.attributes().get("kind"));
        }
        try (Buffer buffer = client.get(path)) {
            assertArrayEquals(bytes, buffer.toArray());
        }
    }

    @Test
    void writerClosedWithoutCommitLeavesNothing() throws Exception {
        String path = directory + "/object";
        try (Writer writer = client.create(path, NEW)) {
            writer.write(new byte[100], 0, 100);
        }
        LocalCluster.until("the object goes", () -> !client.exists(path));
    }

    @Test
    void appendGoesOnWhereTheFileEnds() throws IOException {
        String path = put("object", "one".getBytes(StandardCharsets.UTF_8));
        try (Writer writer = client.append(path)) {
            assertEquals(3, writer.position());
            assertThrows(SecondWriterException.class, () -> shortly().append(path));
            writer.write(" two".getBytes(StandardCharsets.UTF_8), 0, 4);
            writer.flush();
            try (Buffer buffer = client.get(path)) {
                assertEquals("one two", text(buffer));
            }
            writer.commit();
        }
    }

    private static SanderlingClient shortly() throws IOException {
        return SanderlingClient.connect(
                cluster.namenode(), ClientOptions.create().withTimeoutMillis(1000));
    }

    private static String text(Buffer buffer) {
        return new String(buffer.toArray(), StandardCharsets.UTF_8);
    }

    @Test
    void partOfAFileIsWritten(@TempDir Path local) throws IOException {
        byte[] bytes = random(3 << 20, 3);
        Path file = local.resolve("file");
        Files.write(file, bytes);
        String path = directory + "/object";
        try (Writer writer = client.create(path, NEW)) {
            writer.writeFile(file, 1000, 2 << 20);
            assertThrows(java.io.EOFException.class, () -> writer.writeFile(file, 1, 4 << 20));
        }
        try (Writer writer = client.create(path, NEW)) {
            writer.write(1);
            writer.writeFile(file, 1000, 2 << 20);
            writer.commit();
        }
        try (Reader reader = client.open(path); Buffer all = reader.readRange(1, 2 << 20)) {
            assertArrayEquals(Arrays.copyOfRange(bytes, 1000, 1000 + (2 << 20)), all.toArray());
        }
    }

    @Test
    void readerReadsIntoWhateverIsGiven() throws IOException {
        byte[] bytes = random((6 << 20) + 11, 1);
        String path = put("object", bytes);
        try (Reader reader = client.open(path)) {
            assertEquals(bytes.length, reader.length());
            byte[] array = new byte[bytes.length + 10];
            assertEquals(bytes.length, reader.read(0, array, 3, bytes.length + 7));
            assertArrayEquals(bytes, Arrays.copyOfRange(array, 3, 3 + bytes.length));
            ByteBuffer direct = ByteBuffer.allocateDirect(1000);
            direct.position(10);
            assertEquals(990, reader.read(77, direct));
            assertEquals(1000, direct.position());
            direct.position(10);
            assertEquals(ByteBuffer.wrap(bytes, 77, 990), direct);
            assertEquals(11, reader.read(6 << 20, ByteBuffer.allocate(50)));
            assertEquals(-1, reader.read(bytes.length, ByteBuffer.allocate(50)));
            assertEquals(-1, reader.read(Long.MAX_VALUE, ByteBuffer.allocateDirect(50)));
            assertEquals(0, reader.read(0, ByteBuffer.allocate(0)));
        }
    }

    @Test
    void rangesOfManyReadersComeInTheirOrder() throws Exception {
        List<byte[]> all = new ArrayList<>();
        List<String> paths = new ArrayList<>();
        for (int at = 0; at < 150; at++) {
            all.add(random(at % 3 == 0 ? 100 : 20_000, at));
            paths.add(put("object-" + at, all.get(at)));
        }
        paths.add(directory + "/none");
        List<Opened> opened = client.openMany(paths);
        assertEquals(151, opened.size());
        assertTrue(opened.get(150).failure() instanceof NotFoundException);
        assertThrows(NotFoundException.class, () -> opened.get(150).reader());
        List<Ranges> wanted = new ArrayList<>();
        for (int at = 0; at < 150; at++) {
            long[] lengths = {at % 3 == 0 ? 40 : 15_000, 0, 1};
            wanted.add(new Ranges(opened.get(at).reader(), new long[] {10, 3, 0}, lengths));
        }
        wanted.add(new Ranges(opened.get(0).reader(), new long[] {50}, new long[] {51}));
        wanted.add(new Ranges(opened.get(0).reader(), new long[0], new long[0]));
        for (List<Fetched> fetched : Arrays.asList(
                client.readMany(wanted),
                client.readManyAsync(wanted).get(120, TimeUnit.SECONDS))) {
            assertEquals(152, fetched.size());
            for (int at = 0; at < 150; at++) {
                int length = at % 3 == 0 ? 40 : 15_000;
                Buffer[] buffers = fetched.get(at).buffers();
                assertArrayEquals(
                        Arrays.copyOfRange(all.get(at), 10, 10 + length), buffers[0].toArray());
                assertEquals(0, buffers[1].length());
                assertEquals(all.get(at)[0], buffers[2].bytes().get());
            }
            assertEquals("OutOfRange",
                    ((BadRequestException) fetched.get(150).failure()).name());
            assertEquals(0, fetched.get(151).buffers().length);
            fetched.forEach(Fetched::close);
        }
        for (Opened each : opened.subList(0, 150)) {
            each.reader().close();
        }
    }

    @Test
    void futuresCompleteAndFailAsTheCallsDo() throws Exception {
        String path = put("object", random(100_000, 4));
        List<Opened> opened = client.openManyAsync(Arrays.asList(path, directory + "/none"))
                .get(120, TimeUnit.SECONDS);
        assertTrue(opened.get(1).failure() instanceof NotFoundException);
        Reader reader = opened.get(0).reader();
        Buffer[] buffers = reader.readRangesAsync(new long[] {5}, new long[] {50_000})
                .get(120, TimeUnit.SECONDS);
        assertArrayEquals(Arrays.copyOfRange(random(100_000, 4), 5, 50_005),
                buffers[0].toArray());
        buffers[0].close();
        ExecutionException error = assertThrows(ExecutionException.class, () ->
                reader.readRangesAsync(new long[] {99_999}, new long[] {2})
                        .get(120, TimeUnit.SECONDS));
        assertTrue(error.getCause() instanceof BadRequestException, error.toString());
        reader.close();
        error = assertThrows(ExecutionException.class, () ->
                reader.readRangesAsync(new long[] {0}, new long[] {1}).get(120, TimeUnit.SECONDS));
        assertTrue(error.getCause() instanceof ClosedException, error.toString());
    }

    @Test
    void namesAreListedRenamedAndDeleted() throws IOException {
        client.put(directory + "/b", ByteBuffer.wrap(new byte[2000]), NEW);
        client.put(directory + "/a/x", ByteBuffer.wrap(new byte[3]),
                NEW.withAttributes(Collections.singletonMap("ä", "ö")));
        List<ObjectStat> all = client.list(directory);
        assertEquals(Arrays.asList("a", "b"),
                all.stream().map(ObjectStat::name).collect(Collectors.toList()));
        assertTrue(all.get(0).isDirectory());
        assertEquals(2000, all.get(1).length());
        assertEquals(directory + "/b", all.get(1).path());
        assertEquals("ö", client.listWithAttributes(directory + "/a").get(0).attributes()
                .get("ä"));
        assertThrows(NotADirectoryException.class, () -> client.list(directory + "/b"));
        assertThrows(NotEmptyException.class, () -> client.delete(directory + "/a", false));
        client.rename(directory + "/b", directory + "/a/y", false);
        assertThrows(AlreadyExistsException.class,
                () -> client.rename(directory + "/a/x", directory + "/a/y", false));
        assertEquals(2, client.usage(directory).files());
        assertEquals(2003, client.usage(directory).bytes());
        assertTrue(client.delete(directory + "/a", true) >= 3);
        assertThrows(NotFoundException.class, () -> client.delete(directory + "/a", true));
        assertFalse(client.exists(directory + "/a"));
    }

    @Test
    void rootIsListedWithoutADoubleSlash() throws IOException {
        List<String> paths =
                client.list("/").stream().map(ObjectStat::path).collect(Collectors.toList());
        assertTrue(paths.contains(directory), paths.toString());
    }

    @Test
    void attributesTtlAndConditionsHold() throws Exception {
        String path = put("object", new byte[10]);
        client.setAttributes(path, Collections.singletonMap("a", "1"));
        ObjectStat stat = client.stat(path);
        assertEquals(Collections.singletonMap("a", "1"), stat.attributes());
        assertEquals(-1, stat.expiresInMillis());
        client.setTtl(path, 600_000);
        assertTrue(client.stat(path).expiresInMillis() > 0);
        client.setTtl(path, -1);
        assertEquals(-1, client.stat(path).expiresInMillis());
        PutOptions replace = NEW.withReplace(true);
        assertThrows(AlreadyExistsException.class, () ->
                client.put(path, ByteBuffer.allocate(1), replace.withIfAbsent(true)));
        assertThrows(ChangedException.class, () -> client.put(
                path, ByteBuffer.allocate(1), replace.withIfObject(stat.object() + 1000)));
        client.put(path, ByteBuffer.allocate(1), replace.withIfObject(stat.object()));
        client.setTtl(path, 1);
        LocalCluster.until("the object goes", () -> !client.exists(path));
    }

    @Test
    void objectHasItsRecomputeCost() throws IOException {
        String path = directory + "/object";
        client.put(path, ByteBuffer.allocate(10), NEW.withRecomputeMillis(12));
        assertEquals("12", client.stat(path).attributes().get("sanderling.recompute-millis"));
        try (Writer writer = client.create(path, NEW.withReplace(true))) {
            writer.write(1);
            writer.setRecomputeMillis(77);
            assertThrows(IllegalArgumentException.class, () -> writer.setRecomputeMillis(-1));
            writer.commit();
        }
        assertEquals("77", client.stat(path).attributes().get("sanderling.recompute-millis"));
    }

    @Test
    void partsBecomeOneFile() throws IOException {
        List<String> parts = new ArrayList<>();
        for (int at = 0; at < 3; at++) {
            String part = directory + "/part-" + at;
            client.put(part, ByteBuffer.wrap(random(5000, at)), NEW.withInlineAllowed(false));
            parts.add(part);
        }
        client.concat(parts, directory + "/whole", NEW);
        try (Buffer whole = client.get(directory + "/whole")) {
            assertEquals(15_000, whole.length());
            assertArrayEquals(random(5000, 2),
                    Arrays.copyOfRange(whole.toArray(), 10_000, 15_000));
        }
        assertFalse(client.exists(parts.get(0)));
    }

    @Test
    void placesCoverTheRangeAndNameDatanodes() throws IOException {
        String path = put("object", random(3 << 20, 2));
        List<BlockPlace> places = client.places(path, 1000, 2 << 20);
        long next = 1000;
        for (BlockPlace place : places) {
            assertEquals(next, place.offset());
            assertEquals(1, place.hosts().size());
            next += place.length();
        }
        assertEquals(1000 + (2 << 20), next);
        List<String> addresses =
                client.nodes().stream().map(NodeInfo::address).collect(Collectors.toList());
        assertEquals(3, addresses.size());
        assertTrue(addresses.containsAll(places.get(0).addresses()));
        assertTrue(client.places(path, 10 << 20, 5).isEmpty());
    }

    @Test
    void placesOfManyAreThoseOfEach() throws IOException {
        List<String> paths = new ArrayList<>();
        for (int at = 0; at < 600; at++) {
            paths.add(put("many-" + at, random(at % 100 == 0 ? 2 << 20 : 2 * at, at)));
        }
        paths.add(7, directory + "/missing");
        List<List<BlockPlace>> all = client.placesOfAll(paths);
        assertEquals(paths.size(), all.size());
        for (int at = 0; at < all.size(); at++) {
            String path = paths.get(at);
            String many = all.get(at).toString();
            String each = at == 7 ? "[]" : client.places(path, 0, Long.MAX_VALUE).toString();
            // The manager may move a block between the two calls.
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
            while (!each.equals(many) && System.nanoTime() < deadline) {
                many = client.placesOfAll(Collections.singletonList(path)).get(0).toString();
                each = client.places(path, 0, Long.MAX_VALUE).toString();
            }
            assertEquals(each, many, path);
        }
        assertTrue(client.placesOfAll(Collections.emptyList()).isEmpty());
        assertThrows(BadRequestException.class,
                () -> client.placesOfAll(Arrays.asList("/a", "no path")));
    }

    @Test
    void jobKeepsWithinItsLimitsOfNamesAndAttributes() throws Exception {
        String path = directory + "/limited";
        JobRequest request = JobRequest.create(path).withNamesMax(3).withAttributeBytesMax(20);
        PutOptions described = NEW.withAttributes(Collections.singletonMap("kind", "12345678"));
        try (Job job = client.beginJob(request.withExpectedReads(1))) {
            client.put(path + "/a", ByteBuffer.wrap(new byte[9]), described);
            FullException attributes = assertThrows(FullException.class, () ->
                    client.put(path + "/b", ByteBuffer.wrap(new byte[9]), described));
            assertEquals("JobLimitPassed", attributes.name());
            assertTrue(attributes.getMessage().contains("12 of 20"), attributes.getMessage());
            client.put(path + "/b", ByteBuffer.wrap(new byte[9]), NEW);
            FullException names = assertThrows(FullException.class, () ->
                    client.put(path + "/c", ByteBuffer.wrap(new byte[9]), NEW));
            assertTrue(names.getMessage().contains("3 of 3"), names.getMessage());
            JobAccount account = job.account();
            assertEquals(3, account.names());
            assertEquals(12, account.attributeBytes());
            assertEquals(3, account.namesMax());
            assertEquals(20, account.attributeBytesMax());
        }
        try (Job job = client.beginJob(JobRequest.create(directory + "/free"))) {
            assertEquals(-1, job.account().namesMax());
            assertEquals(-1, client.jobAccount(job.id()).attributeBytesMax());
        }
        assertThrows(BadRequestException.class, () -> client.beginJob(request.withNamesMax(0)));
        assertThrows(BadRequestException.class, () -> client.jobAccount(1L << 40));
    }

    @Test
    void jobOwnsItsSubtreeUntilItEnds() throws Exception {
        String path = directory + "/job";
        Job job = client.beginJob(JobRequest.create(path).withLeaseMillis(30_000)
                .withQuotaBytes(1 << 20).withExpectedReads(1).withRecomputeMillisPerMib(5));
        assertEquals(path, job.path());
        client.put(path + "/object", ByteBuffer.wrap(new byte[1000]), NEW);
        assertEquals(job.id(), client.stat(path + "/object").job());
        assertThrows(FullException.class, () ->
                client.put(path + "/large", ByteBuffer.wrap(new byte[2 << 20]), NEW));
        assertThrows(BadRequestException.class, () -> job.token("read"));
        assertFalse(job.hasEnded());
        job.end();
        job.close();
        assertTrue(job.hasEnded());
        LocalCluster.until("the subtree goes", () -> !client.exists(path));
    }

    @Test
    void refreshShowsWhatWasPublishedMeanwhile() throws IOException {
        String path = put("object", new byte[1000]);
        try (Reader reader = client.open(path)) {
            try (Writer writer = client.append(path)) {
                writer.write(new byte[500], 0, 500);
                writer.commit();
            }
            assertEquals(1000, reader.length());
            reader.refresh();
            assertEquals(1500, reader.length());
            client.delete(path, false);
            assertThrows(NotFoundException.class, reader::refresh);
        }
    }

    @Test
    void sameHostBytesAreNotCopied() throws Exception {
        String path = put("object", random(1 << 20, 9));
        // A node on the same machine is looked for in the background, when it is first needed.
        LocalCluster.until("the node's memory is read", () -> {
            long before = client.metrics().sameHostReadBytes();
            client.get(path).close();
            return client.metrics().sameHostReadBytes() > before;
        });
        long before = client.metrics().sameHostReadBytes();
        try (Buffer buffer = client.get(path); InputStream stream = buffer.stream()) {
            assertTrue(buffer.bytes().isDirect());
            assertEquals(1 << 20, stream.available());
            byte[] all = new byte[1 << 20];
            assertEquals(all.length, stream.read(all));
            assertArrayEquals(random(1 << 20, 9), all);
            assertEquals(-1, stream.read());
        }
        assertEquals(1 << 20, client.metrics().sameHostReadBytes() - before);
    }

    @Test
    void capacityIsThatOfTheNodes() throws IOException {
        Capacity capacity = client.capacity();
        assertEquals(3L * (64 << 20), capacity.capacityBytes());
        assertTrue(capacity.freeBytes() <= capacity.capacityBytes() - capacity.usedBytes());
        assertTrue(client.cluster().matches("[0-9a-f]{16}"), client.cluster());
        assertEquals(cluster.namenode(), client.address());
    }

    @Test
    void attributesOfAnUnknownStorageClassAreRefused() {
        SanderlingException error = assertThrows(BadRequestException.class, () -> client.put(
                directory + "/x", ByteBuffer.allocate(1), NEW.withStorageClass("gold")));
        assertEquals("UnknownStorageClass", error.name());
        assertEquals(Recovery.FIX, error.recovery());
        Map<String, String> tooLong =
                Collections.singletonMap("a", String.join("", Collections.nCopies(9000, "x")));
        assertEquals("TooLarge", assertThrows(BadRequestException.class, () -> client.put(
                directory + "/x", ByteBuffer.allocate(1), NEW.withAttributes(tooLong))).name());
    }
}
