package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Takes nodes away from a client at work. */
final class FaultTest {
    private static final PutOptions NEW = PutOptions.create().withParents(true);

    @Test
    void killedDatanodeLosesExactlyWhatLayThere() throws Exception {
        try (LocalCluster cluster = LocalCluster.start(3);
                SanderlingClient client = cluster.connect()) {
            byte[] bytes = ClientTest.random(12 << 20, 1);
            client.put("/object", ByteBuffer.wrap(bytes), NEW);
            String address = client.places("/object", 0, 1).get(0).addresses().get(0);
            List<Range> lost = ranges(client.places("/object", 0, bytes.length), address);
            Reader reader = client.open("/object");
            Buffer held = reader.readRange(0, 1000_000);
            String name = nameOf(client, address);
            cluster.killDatanode(name);
            DataUnavailableException error = unavailable(reader, bytes.length);
            assertEquals(lost, error.lost());
            assertEquals("/object", error.path());
            assertEquals(reader.stat().object(), error.object());
            assertEquals(Recovery.RECOMPUTE, error.recovery());
            for (BlockPlace place : client.places("/object", 0, bytes.length)) {
                if (!place.addresses().isEmpty()) {
                    try (Buffer part = reader.readRange(place.offset(), place.length())) {
                        assertEquals(
                                ByteBuffer.wrap(
                                        bytes, (int) place.offset(), (int) place.length()),
                                part.bytes());
                    }
                }
            }
            // What was leased before stays readable in the dead node's memory.
            assertEquals(ByteBuffer.wrap(bytes, 0, 1000_000), held.bytes());
            held.close();
        }
    }

    private static List<Range> ranges(List<BlockPlace> places, String address) {
        List<Range> ranges = new ArrayList<>();
        for (BlockPlace place : places) {
            if (!place.addresses().contains(address)) {
                continue;
            }
            Range last = ranges.isEmpty() ? null : ranges.get(ranges.size() - 1);
            if (last != null && last.offset() + last.length() == place.offset()) {
                ranges.set(ranges.size() - 1,
                        new Range(last.offset(), last.length() + place.length()));
            } else {
                ranges.add(new Range(place.offset(), place.length()));
            }
        }
        return ranges;
    }

    private static String nameOf(SanderlingClient client, String address) throws IOException {
        return client.nodes().stream().filter(node -> node.address().equals(address)).findFirst()
                .get().name();
    }

    /** Reads until the loss is reported; on a slow machine a deadline may pass before. */
    private static DataUnavailableException unavailable(Reader reader, long length)
            throws Exception {
        AtomicReference<DataUnavailableException> loss = new AtomicReference<>();
        LocalCluster.until("the loss is reported", () -> {
            try {
                reader.readRange(0, length).close();
            } catch (DataUnavailableException error) {
                loss.set(error);
            } catch (TimedOutException | UnreachableException again) {
                return false;
            }
            return loss.get() != null;
        });
        return loss.get();
    }

    @Test
    void killedDatanodeFailsOnlyTheObjectsThatLayThere() throws Exception {
        try (LocalCluster cluster = LocalCluster.start(3);
                SanderlingClient client = cluster.connect()) {
            List<Ranges> wanted = new ArrayList<>();
            List<String> addresses = new ArrayList<>();
            for (int at = 0; at < 60; at++) {
                String path = "/object-" + at;
                client.put(path, ByteBuffer.wrap(ClientTest.random(200_000, at)), NEW);
                wanted.add(new Ranges(client.open(path), new long[] {1, 100_000},
                        new long[] {50_000, 10}));
                addresses.add(client.places(path, 0, 1).get(0).addresses().get(0));
            }
            String killed = addresses.get(0);
            cluster.killDatanode(nameOf(client, killed));
            LocalCluster.until("the losses are reported, and no others", () -> {
                boolean isReported = true;
                List<Fetched> all = client.readMany(wanted);
                for (int at = 0; at < all.size(); at++) {
                    try (Fetched fetched = all.get(at)) {
                        IOException failure = fetched.failure();
                        if (addresses.get(at).equals(killed)) {
                            isReported &= failure instanceof DataUnavailableException;
                        } else {
                            assertNull(failure, () -> String.valueOf(failure));
                            assertEquals(
                                    ByteBuffer.wrap(ClientTest.random(200_000, at), 1, 50_000),
                                    fetched.buffers()[0].bytes());
                        }
                    }
                }
                return isReported;
            });
        }
    }

    @Test
    void noticedPreemptionIsNoErrorForReadersAndWriters() throws Exception {
        try (LocalCluster cluster = LocalCluster.start(3);
                SanderlingClient client = cluster.connect()) {
            byte[] bytes = ClientTest.random(3 << 20, 2);
            client.put("/read", ByteBuffer.wrap(bytes), NEW);
            AtomicBoolean isDone = new AtomicBoolean();
            AtomicReference<Throwable> failure = new AtomicReference<>();
            AtomicInteger written = new AtomicInteger();
            AtomicInteger read = new AtomicInteger();
            Reader reader = client.open("/read");
            Thread reading = loop(isDone, failure, () -> {
                try (Buffer buffer = reader.readRange(0, bytes.length)) {
                    assertArrayEquals(bytes, buffer.toArray());
                }
                read.incrementAndGet();
            });
            Thread writing = loop(isDone, failure, () -> {
                String path = "/written-" + written.get() % 4;
                try (Writer writer = client.create(path, NEW.withReplace(true))) {
                    for (int at = 0; at < 3; at++) {
                        writer.write(bytes, at << 20, 1 << 20);
                        writer.write(at);
                    }
                    writer.commit();
                }
                written.incrementAndGet();
            });
            String address = client.places("/read", 0, 1).get(0).addresses().get(0);
            String name = nameOf(client, address);
            cluster.notice(name, "20s");
            LocalCluster.until("the node is drained", () -> failure.get() != null
                    || client.nodes().stream().noneMatch(node -> node.name().equals(name)
                            && (node.takesBlocks() || node.policy().equals("draining"))));
            int before = read.get() + written.get();
            LocalCluster.until("both go on", () -> failure.get() != null
                    || read.get() + written.get() > before + 4);
            isDone.set(true);
            reading.join();
            writing.join();
            assertNull(failure.get(), () -> String.valueOf(failure.get()));
            assertFalse(client.places("/read", 0, bytes.length).stream()
                    .anyMatch(place -> place.addresses().contains(address)));
        }
    }

    /** Does something again and again until it is done or fails. */
    private static Thread loop(
            AtomicBoolean isDone, AtomicReference<Throwable> failure, Step step) {
        Thread thread = new Thread(() -> {
            try {
                while (!isDone.get()) {
                    step.take();
                }
            } catch (Throwable error) {
                failure.compareAndSet(null, error);
            }
        });
        thread.start();
        return thread;
    }

    private interface Step {
        void take() throws Exception;
    }

    @Test
    void namenodeThatIsGoneIsReportedWithinTheDeadline() throws Exception {
        try (LocalCluster cluster = LocalCluster.start(1);
                SanderlingClient client = SanderlingClient.connect(
                        cluster.namenode(), ClientOptions.create().withTimeoutMillis(2000))) {
            client.put("/object", ByteBuffer.wrap(new byte[100_000]), NEW);
            Writer writer = client.create("/other", NEW);
            writer.write(1);
            cluster.killNamenode();
            SanderlingException error =
                    assertThrows(SanderlingException.class, () -> client.stat("/object"));
            assertTrue(error instanceof TimedOutException || error instanceof UnreachableException,
                    error.toString());
            assertEquals(Recovery.RETRY_AFTER, error.recovery());
            assertTrue(error.retryAfterMillis() >= 0);
            assertThrows(SanderlingException.class, writer::commit);
            assertThrows(SanderlingException.class, () ->
                    SanderlingClient.connect(cluster.namenode(), ClientOptions.create()));
        }
    }

    @Test
    void wrongAddressIsReportedInOneSentence() throws Exception {
        int unused;
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            unused = socket.getLocalPort();
        }
        ClientOptions options = ClientOptions.create().withTimeoutMillis(3000);
        for (String address : new String[] {"127.0.0.1:" + unused, "no such host:1", "", "1"}) {
            SanderlingException error = assertThrows(SanderlingException.class,
                    () -> SanderlingClient.connect(address, options));
            assertTrue(error.getMessage().contains(address), error.toString());
            assertFalse(error.getMessage().contains("\n"), error.toString());
        }
    }

    @Test
    void silentServerIsGivenUpAtTheDeadline() throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            String address = "127.0.0.1:" + silent.getLocalPort();
            assertThrows(TimedOutException.class, () -> SanderlingClient.connect(
                    address, ClientOptions.create().withTimeoutMillis(500)));
        }
    }

    @Test
    void secureClusterRequiresATokenOverTls() throws Exception {
        try (LocalCluster cluster = LocalCluster.start(1, "--secure")) {
            Path keys = cluster.directory().resolve("keys");
            ClientOptions tls = ClientOptions.create().withTimeoutMillis(5000)
                    .withCaFile(keys.resolve("ca.pem"));
            assertThrows(AccessDeniedException.class,
                    () -> SanderlingClient.connect(cluster.namenode(), tls));
            assertThrows(AccessDeniedException.class, () ->
                    SanderlingClient.connect(cluster.namenode(), tls.withToken("made up")));
            assertThrows(SanderlingException.class, () -> SanderlingClient.connect(
                    cluster.namenode(), ClientOptions.create().withTimeoutMillis(2000)));
            for (ClientOptions unreadable : new ClientOptions[] {
                tls.withTokenFile(keys.resolve("none")),
                ClientOptions.create().withCaFile(keys.resolve("none")),
                ClientOptions.create().withCaFile(keys.resolve("secret"))
            }) {
                SanderlingException error = assertThrows(AccessDeniedException.class,
                        () -> SanderlingClient.connect(cluster.namenode(), unreadable));
                assertEquals("Credentials", error.name(), error.toString());
                assertTrue(error.getMessage().contains(keys.toString()), error.toString());
            }
            useTokens(cluster, tls, keys);
        }
    }

    private static void useTokens(LocalCluster cluster, ClientOptions tls, Path keys)
            throws Exception {
        ClientOptions admin = tls.withTokenFile(keys.resolve("admin.token"));
        try (SanderlingClient client = SanderlingClient.connect(cluster.namenode(), admin)) {
            Job job = client.beginJob(JobRequest.create("/job").withLeaseMillis(60_000));
            ClientOptions task = tls.withToken(job.token("read", "write"));
            assertFalse(task.toString().contains(job.token("read")));
            try (SanderlingClient inside = SanderlingClient.connect(cluster.namenode(), task)) {
                inside.put("/job/object", ByteBuffer.wrap(new byte[100_000]), NEW);
                inside.get("/job/object").close();
                SanderlingException error = assertThrows(AccessDeniedException.class,
                        () -> inside.put("/other", ByteBuffer.allocate(1), NEW));
                assertEquals("Forbidden", error.name());
            }
            assertThrows(BadRequestException.class, () -> client.token(
                    "/job", TimeUnit.DAYS.toMillis(1), "test", "fly"));
            job.end();
        }
    }
}
