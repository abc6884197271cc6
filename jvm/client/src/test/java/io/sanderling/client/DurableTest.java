package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests durable directories: made, looked at, waited for, adopted. */
final class DurableTest {
    private static final long WITHIN_MILLIS =
            TimeUnit.SECONDS.toMillis(LocalCluster.DEADLINE_SECONDS);
    private static final long BACKLOG_MAX = 1L << 30;

    private static Process datanode(LocalCluster cluster, Path store) throws IOException {
        return new ProcessBuilder(
                        LocalCluster.binary().toString(), "datanode", "--namenode",
                        cluster.namenode(), "--http", "none", "--dram", "64MiB", "--durable",
                        "archive=file://" + store, "--exit-with-parent")
                .redirectErrorStream(true)
                .redirectOutput(store.resolveSibling("datanode.log").toFile())
                .start();
    }

    /** Makes a durable directory once the datanode has reported its store. */
    private static void made(SanderlingClient client, String path, boolean adopt)
            throws Exception {
        LocalCluster.until("the store is reported", () -> {
            try {
                client.makeDurable(path, "archive", true, BACKLOG_MAX, adopt);
                return true;
            } catch (BadRequestException error) {
                assertTrue(error.getMessage().contains("no datanode has a store"), () ->
                        error.getMessage());
                return false;
            }
        });
    }

    @Test
    void whatIsCommittedLiesInTheStoreAndAnotherClusterAdoptsIt(@TempDir Path directory)
            throws Exception {
        Path store = Files.createDirectory(directory.resolve("store"));
        byte[] bytes = ClientTest.random(3_000_000, 1);
        PutOptions options = PutOptions.create().withParents(true);
        try (LocalCluster cluster = LocalCluster.start(1);
                SanderlingClient client = cluster.connect()) {
            Process datanode = datanode(cluster, store);
            try {
                made(client, "/out", false);
                client.put("/out/step-1/state", ByteBuffer.wrap(bytes), options);
                assertFalse(client.waitDurable("/out", WITHIN_MILLIS).isPresent());
                assertArrayEquals(bytes, Files.readAllBytes(store.resolve("step-1/state")));
                Durability found = client.durability("/out/step-1/state").get();
                assertEquals("/out", found.directory());
                assertEquals("archive", found.store());
                assertEquals("step-1/state", found.key());
                assertTrue(found.isDurable());
                assertEquals(-1, found.backlogAgeMillis());
                assertFalse(client.durability("/").isPresent());
                assertThrows(BadRequestException.class, () -> client.waitDurable("/", 1));
                // The store is away.
                Files.move(store, directory.resolve("away"));
                client.put("/out/later", ByteBuffer.wrap(bytes), options);
                Optional<Durability> left = client.waitDurable("/out", 100);
                assertEquals(1, left.get().backlogChanges(), left.get().toString());
                assertFalse(client.durability("/out/later").get().isDurable());
                Files.move(directory.resolve("away"), store);
                assertFalse(client.waitDurable("/out", WITHIN_MILLIS).isPresent());
            } finally {
                datanode.destroyForcibly().waitFor();
            }
        }
        try (LocalCluster cluster = LocalCluster.start(1);
                SanderlingClient client = cluster.connect()) {
            Process datanode = datanode(cluster, store);
            try {
                made(client, "/in", true);
                assertFalse(client.waitDurable("/in", WITHIN_MILLIS).isPresent());
                assertEquals(bytes.length, client.durability("/in/later").get().storedBytes());
                try (Buffer buffer = client.get("/in/step-1/state")) {
                    assertArrayEquals(bytes, buffer.toArray());
                }
            } finally {
                datanode.destroyForcibly().waitFor();
            }
        }
    }
}
