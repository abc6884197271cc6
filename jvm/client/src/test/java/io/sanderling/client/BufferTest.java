package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Tests that memory is given back when a buffer is closed, and when that is forgotten. */
final class BufferTest {
    private static final PutOptions NEW = PutOptions.create().withParents(true);

    private static LocalCluster cluster;
    private static SanderlingClient client;

    @BeforeAll
    static void start() throws IOException {
        cluster = LocalCluster.start(1);
        client = cluster.connect();
        client.put("/object", ByteBuffer.wrap(ClientTest.random(1 << 20, 5)), NEW);
    }

    @AfterAll
    static void stop() throws IOException {
        client.close();
        cluster.close();
    }

    @Test
    void forgottenBuffersAndReadersAreGivenBack() throws Exception {
        int before = Guard.open();
        for (int at = 0; at < 100; at++) {
            assertEquals(1 << 20, client.get("/object").length());
            assertEquals(1 << 20, client.open("/object").length());
        }
        LocalCluster.until("the collector finds them", () -> {
            System.gc();
            return Guard.open() <= before;
        });
    }

    @Test
    void viewKeepsTheMemoryOfAForgottenBuffer() throws Exception {
        int before = Guard.open();
        ByteBuffer view = view();
        LocalCluster.until("the collector ran", LocalCluster.collected());
        assertTrue(Guard.open() > before);
        assertEquals(ByteBuffer.wrap(ClientTest.random(1 << 20, 5), 1000, 500), view);
    }

    private static ByteBuffer view() throws IOException {
        ByteBuffer view = client.get("/object").bytes();
        view.position(1000);
        view.limit(1500);
        return view.slice();
    }

    @Test
    void closedBuffersLeaveRoomForOthers() throws IOException {
        // More than the datanode has, in turns: what is closed can be used again.
        for (int at = 0; at < 200; at++) {
            client.put("/turn", ByteBuffer.allocate(1 << 20), NEW.withReplace(true));
            client.get("/turn").close();
        }
    }
}
