package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Gives the client what it must refuse, and closes what is in use: exceptions, never a crash. */
final class BadInputTest {
    private static final PutOptions NEW = PutOptions.create().withParents(true);

    private static LocalCluster cluster;
    private static SanderlingClient client;
    private static Reader reader;

    @BeforeAll
    static void start() throws IOException {
        cluster = LocalCluster.start(2);
        client = cluster.connect();
        client.put("/object", ByteBuffer.wrap(new byte[100_000]), NEW);
        reader = client.open("/object");
    }

    @AfterAll
    static void stop() throws IOException {
        client.close();
        cluster.close();
    }

    private static void refused(String name, Executable call) {
        SanderlingException error = assertThrows(SanderlingException.class, call);
        assertEquals(name, error.name(), error.toString());
        assertFalse(error.getMessage().isEmpty());
    }

    @Test
    void nullIsNamed() {
        String text = assertThrows(NullPointerException.class, () -> client.stat(null))
                .getMessage();
        assertEquals("path", text);
        assertThrows(NullPointerException.class, () -> client.put("/x", null, NEW));
        assertThrows(NullPointerException.class,
                () -> client.put("/x", ByteBuffer.allocate(1), null));
        assertThrows(NullPointerException.class, () -> client.openMany(null));
        assertThrows(NullPointerException.class,
                () -> client.openMany(Collections.singletonList(null)));
        assertThrows(NullPointerException.class,
                () -> client.readMany(Collections.singletonList(null)));
        assertThrows(NullPointerException.class,
                () -> new Ranges(null, new long[0], new long[0]));
        assertThrows(NullPointerException.class, () -> reader.read(0, (ByteBuffer) null));
        assertThrows(NullPointerException.class, () -> reader.read(0, null, 0, 0));
        assertThrows(NullPointerException.class,
                () -> SanderlingClient.connect(null, ClientOptions.create()));
        assertThrows(NullPointerException.class,
                () -> SanderlingClient.connect("localhost:1", null));
        assertThrows(NullPointerException.class, () -> client.beginJob(null));
        assertThrows(NullPointerException.class, () -> client.setAttributes("/object", null));
        assertThrows(NullPointerException.class,
                () -> client.setAttributes("/object", Collections.singletonMap("a", null)));
    }

    @Test
    void pathsAreTakenAsTheyAreOrRefused() throws IOException {
        for (String path : Arrays.asList("", "x", "//", "/a//b", "/a/", "/./a", "/..")) {
            refused("BadPath", () -> client.stat(path));
        }
        assertThrows(IllegalArgumentException.class, () -> client.stat("/half \ud800"));
        // A name with a zero byte is one like any other, or it is refused: it is never cut.
        String zero = "/zero\u0000byte";
        try {
            client.put(zero, ByteBuffer.wrap(new byte[] {1}), NEW);
            assertEquals(zero, client.stat(zero).path());
        } catch (BadRequestException refused) {
            assertEquals("BadPath", refused.name());
        }
        assertFalse(client.exists("/zero"));
        String wide = "/\ud834\udd1e-\u00e4";
        client.put(wide, ByteBuffer.wrap(new byte[] {2}), NEW);
        assertEquals(wide, client.stat(wide).path());
    }

    @Test
    void rangesOutsideAreRefused() {
        refused("OutOfRange", () -> reader.readRange(0, 100_001));
        refused("OutOfRange", () -> reader.readRange(100_001, 0));
        refused("OutOfRange", () -> reader.readRange(Long.MAX_VALUE, Integer.MAX_VALUE - 8));
        for (long[] range : new long[][] {
            {-1, 1}, {0, -1}, {Long.MIN_VALUE, Long.MIN_VALUE}, {0, Long.MAX_VALUE}
        }) {
            assertThrows(IllegalArgumentException.class,
                    () -> reader.readRange(range[0], range[1]));
        }
        assertThrows(IllegalArgumentException.class,
                () -> reader.readRanges(new long[2], new long[1]));
        assertThrows(IllegalArgumentException.class,
                () -> reader.read(-1, ByteBuffer.allocate(1)));
        assertThrows(IllegalArgumentException.class,
                () -> reader.read(-1, ByteBuffer.allocateDirect(1)));
        assertThrows(IllegalArgumentException.class,
                () -> reader.read(0, ByteBuffer.allocateDirect(1).asReadOnlyBuffer()));
        assertThrows(IndexOutOfBoundsException.class, () -> reader.read(0, new byte[5], 3, 3));
        assertThrows(IndexOutOfBoundsException.class,
                () -> reader.read(0, new byte[5], Integer.MAX_VALUE, Integer.MAX_VALUE));
        assertThrows(IllegalArgumentException.class, () -> client.places("/object", -1, 1));
    }

    @Test
    void emptyListsAreAnsweredEmpty() throws IOException {
        assertTrue(client.openMany(Collections.emptyList()).isEmpty());
        assertTrue(client.readMany(Collections.emptyList()).isEmpty());
        assertEquals(0, reader.readRanges(new long[0], new long[0]).length);
        assertThrows(BadRequestException.class,
                () -> client.concat(Collections.emptyList(), "/whole", NEW));
    }

    @Test
    void optionsOutsideAreRefused() {
        assertThrows(IllegalArgumentException.class, () -> NEW.withTtlMillis(-2));
        assertThrows(IllegalArgumentException.class, () -> NEW.withExpectedBytes(-2));
        assertThrows(IllegalArgumentException.class, () -> NEW.withIfObject(0));
        assertThrows(IllegalArgumentException.class, () -> client.setTtl("/object", -2));
        assertThrows(IllegalArgumentException.class,
                () -> JobRequest.create("/job").withLeaseMillis(0));
        assertThrows(IllegalArgumentException.class,
                () -> JobRequest.create("/job").withNamesMax(-2));
        assertThrows(IllegalArgumentException.class,
                () -> JobRequest.create("/job").withAttributeBytesMax(-2));
        assertThrows(IllegalArgumentException.class,
                () -> ClientOptions.create().withTimeoutMillis(0));
        assertThrows(SanderlingException.class,
                () -> client.put("/x", ByteBuffer.allocate(1), NEW.withAffinity("/a//b")));
    }

    @Test
    void whatIsClosedFailsWithThat() throws Exception {
        SanderlingClient closed = cluster.connect();
        Reader closedReader = closed.open("/object");
        Writer closedWriter = closed.create("/closed", NEW);
        Buffer buffer = closed.get("/object");
        InputStream stream = buffer.stream();
        closed.close();
        closed.close();
        refused("Closed", () -> closed.stat("/object"));
        refused("Closed", () -> closed.open("/object"));
        refused("Closed", () -> closed.put("/x", ByteBuffer.allocate(1), NEW));
        refused("Closed", () -> closed.create("/x", NEW));
        refused("Closed", closed::metrics);
        // What was opened before works on.
        assertEquals(10, closedReader.read(0, new byte[10], 0, 10));
        closedReader.close();
        closedReader.close();
        refused("Closed", () -> closedReader.read(0, new byte[10], 0, 10));
        refused("Closed", () -> closedReader.read(0, ByteBuffer.allocateDirect(10)));
        refused("Closed", closedReader::refresh);
        closedWriter.write(7);
        closedWriter.close();
        closedWriter.close();
        closedWriter.abort();
        refused("Closed", () -> closedWriter.write(7));
        refused("Closed", () -> closedWriter.write(new byte[100_000], 0, 100_000));
        refused("Closed", closedWriter::flush);
        refused("Closed", closedWriter::commit);
        assertEquals(0, stream.read());
        buffer.close();
        buffer.close();
        assertThrows(IllegalStateException.class, buffer::bytes);
        assertThrows(IllegalStateException.class, buffer::toArray);
        refused("Closed", stream::read);
        refused("Closed", () -> stream.read(new byte[1], 0, 1));
    }

    @Test
    void closeWhileOthersReadAndWriteIsAnErrorAndNoCrash() throws Exception {
        for (int round = 0; round < 20; round++) {
            SanderlingClient own = cluster.connect();
            Reader shared = own.open("/object");
            Writer writer = own.create("/shared", NEW.withReplace(true));
            Buffer buffer = shared.readRange(0, 100_000);
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            Thread[] threads = {
                until(wrong, () -> shared.readRange(0, 50_000).close()),
                until(wrong, () -> shared.read(0, ByteBuffer.allocateDirect(70_000))),
                until(wrong, () -> writer.write(new byte[90_000], 0, 90_000)),
                until(wrong, () -> buffer.stream().read(new byte[100_000])),
                until(wrong, () -> own.put("/other", ByteBuffer.allocateDirect(5000),
                        NEW.withReplace(true))),
            };
            Thread.sleep(round);
            buffer.close();
            shared.close();
            writer.close();
            own.close();
            for (Thread thread : threads) {
                thread.join(LocalCluster.DEADLINE_SECONDS * 1000);
                assertFalse(thread.isAlive());
            }
            if (wrong.get() != null) {
                throw new AssertionError("not an error of a closed object", wrong.get());
            }
        }
    }

    /** Calls until the call fails because something is closed. */
    private static Thread until(AtomicReference<Throwable> wrong, Executable call) {
        Thread thread = new Thread(() -> {
            try {
                while (true) {
                    call.execute();
                }
            } catch (ClosedException | IllegalStateException expected) {
                // It was closed meanwhile.
            } catch (Throwable error) {
                wrong.set(error);
            }
        });
        thread.start();
        return thread;
    }
}
