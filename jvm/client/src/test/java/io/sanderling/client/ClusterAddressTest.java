package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.PosixFilePermissions;
import org.junit.jupiter.api.Test;

/** Compares addresses with conformance/addresses.tsv, and reads a file of contexts. */
final class ClusterAddressTest {
    private static Path root() {
        Path root = Paths.get("").toAbsolutePath();
        while (!Files.exists(root.resolve("conformance/addresses.tsv"))) {
            root = root.getParent();
        }
        return root;
    }

    @Test
    void addressesAreThoseOfTheTable() throws IOException {
        int cases = 0;
        for (String line : Files.readAllLines(root().resolve("conformance/addresses.tsv"))) {
            String[] row = line.split("\t", -1);
            if (!row[0].equals("address")) {
                continue;
            }
            if (row[2].startsWith("!")) {
                BadRequestException refused = assertThrows(BadRequestException.class,
                        () -> ClusterAddress.resolve(row[1], ClientOptions.create()), line);
                assertEquals("BadAddress", refused.name());
                assertTrue(refused.getMessage().contains(row[2].substring(1)), line);
            } else {
                assertEquals(row[2],
                        ClusterAddress.resolve(row[1], ClientOptions.create()).address(), line);
            }
            cases++;
        }
        assertTrue(cases > 20, "cases: " + cases);
    }

    @Test
    void contextHasAnAddressAndCredentials() throws IOException {
        // The build sets the variable to a directory of its own.
        Path home = Paths.get(System.getenv("SANDERLING_CONFIG_HOME"));
        Files.createDirectories(home);
        Path file = home.resolve("contexts.toml");
        String text = "[contexts.prod]\nnamenode = \"10.0.0.1\"\ntoken-file = \"t\"\n";
        Files.write(file, text.getBytes(StandardCharsets.UTF_8));
        try {
            Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
            ClientOptions options = ClientOptions.create().withContext("prod");
            ClusterAddress found = ClusterAddress.resolve("", options);
            assertEquals("10.0.0.1:7600", found.address());
            assertEquals("prod", found.context());
            assertEquals(home.resolve("t").toString(), found.options().tokenFile());
            ClusterAddress other = ClusterAddress.resolve("10.0.0.1", ClientOptions.create());
            assertFalse(other.options().hasToken(), "another address gets no token of a context");
            assertThrows(BadRequestException.class,
                    () -> ClusterAddress.resolve("10.0.0.1", options), "both are given");
            Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-r--r--"));
            BadRequestException open = assertThrows(
                    BadRequestException.class, () -> ClusterAddress.resolve("", options));
            assertTrue(open.getMessage().contains("chmod 600 " + file), open.getMessage());
        } finally {
            Files.delete(file);
        }
    }

    @Test
    void addressOfAnotherServerIsUnderstood() throws IOException {
        try (LocalCluster cluster = LocalCluster.start(1);
                SanderlingClient client = cluster.connect()) {
            String datanode = client.nodes().get(0).address();
            BadRequestException refused = assertThrows(BadRequestException.class,
                    () -> SanderlingClient.connect(datanode, ClientOptions.create()));
            assertTrue(refused.getMessage().contains("that of a datanode"), refused.getMessage());
        }
    }
}
