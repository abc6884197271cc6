package io.sanderling.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Paths;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

/** What a configuration may have, and that a wrong one is refused in one sentence. */
class SettingsTest {
    @Test
    void address_is_of_the_uri_or_else_of_the_configuration() throws IOException {
        Configuration conf = configuration("fs.sanderling.address", "one:1");
        assertEquals("one:1", Settings.of(URI.create("sanderling:///a"), conf).address);
        assertEquals("two:2", Settings.of(URI.create("sanderling://two:2/a"), conf).address);
    }

    @Test
    void without_an_address_it_is_the_default() throws IOException {
        assertEquals("127.0.0.1:7600",
                Settings.of(URI.create("sanderling:///a"), new Configuration(false)).address);
    }

    @Test
    void context_that_is_none_is_refused_with_the_next_step() {
        String text = refused("sanderling:///a", configuration("fs.sanderling.context", "prdo"));
        assertTrue(text.contains("no context \"prdo\""), text);
        assertTrue(text.contains("sanderling context ls"), text);
    }

    @Test
    void urls_are_those_of_the_table() throws IOException {
        int cases = 0;
        for (String line : Files.readAllLines(table())) {
            String[] row = line.split("\t", -1);
            // A path with letters that no URI has is Hadoop's to quote; one with ? has a query.
            if (!row[0].equals("url") || row[1].matches(".*[ ?*].*")
                    || row[1].equals("sanderling:data")) {
                continue;
            }
            Configuration conf = configuration("fs.sanderling.address", "configured:1");
            URI uri = URI.create(row[1]);
            if (row[2].startsWith("!")) {
                refused(row[1], conf);
            } else {
                String address = row[2].equals("-") ? "configured:1" : row[2];
                assertEquals(address, Settings.of(uri, conf).address, line);
                String path = uri.getPath().isEmpty() ? "/" : uri.getPath();
                assertEquals(row[3], path, line);
            }
            cases++;
        }
        assertTrue(cases > 10, "cases: " + cases);
    }

    private static java.nio.file.Path table() {
        java.nio.file.Path root = Paths.get("").toAbsolutePath();
        while (!Files.exists(root.resolve("conformance/addresses.tsv"))) {
            root = root.getParent();
        }
        return root.resolve("conformance/addresses.tsv");
    }

    @Test
    void address_that_is_none_is_refused() {
        for (String wrong : new String[] {"host:", ":7600", "host:x", "host:0"}) {
            String text = refused("sanderling:///", configuration("fs.sanderling.address", wrong));
            assertTrue(text.contains(wrong) && text.contains("fs.sanderling.address"), text);
        }
    }

    @Test
    void unknown_key_is_refused_with_the_known_ones() {
        Configuration conf = configuration("fs.sanderling.adress", "one:1");
        String text = refused("sanderling://one:1/", conf);
        assertTrue(text.contains("fs.sanderling.adress"), text);
        assertTrue(text.contains("fs.sanderling.address"), text);
    }

    @Test
    void keys_that_hadoop_reads_are_known() throws IOException {
        Configuration conf = configuration("fs.sanderling.impl.disable.cache", "true");
        conf.set("fs.sanderling.impl", SanderlingFileSystem.class.getName());
        Settings.of(URI.create("sanderling://one:1/"), conf);
    }

    @Test
    void wrong_values_are_refused_with_the_key_and_what_it_may_be() {
        String[][] wrong = {
            {"fs.sanderling.timeout", "soon"}, {"fs.sanderling.timeout", "0s"},
            {"fs.sanderling.block.size", "big"}, {"fs.sanderling.block.size", "-1"},
            {"fs.sanderling.read.ahead", "10g"}, {"fs.sanderling.ttl", "-3s"},
            {"fs.sanderling.same.host", "yes"}};
        for (String[] each : wrong) {
            String text = refused("sanderling://one:1/", configuration(each[0], each[1]));
            assertTrue(text.contains(each[0]) && text.contains(each[1]), text);
            assertTrue(text.contains("must be"), text);
        }
    }

    @Test
    void two_tokens_are_one_too_many() {
        Configuration conf = configuration("fs.sanderling.token", "secret-token");
        conf.set("fs.sanderling.token.file", "/a");
        String text = refused("sanderling://one:1/", conf);
        assertTrue(text.contains("fs.sanderling.token.file"), text);
        assertFalse(text.contains("secret-token"), text);
    }

    @Test
    void address_without_a_server_is_named_in_the_error() throws IOException {
        int port;
        try (ServerSocket socket = new ServerSocket(0)) {
            port = socket.getLocalPort();
        }
        Configuration conf = configuration("fs.sanderling.timeout", "2s");
        String uri = "sanderling://127.0.0.1:" + port + "/";
        IOException refusal = assertThrows(IOException.class,
                () -> FileSystem.newInstance(URI.create(uri), conf));
        assertTrue(refusal.getMessage().contains("127.0.0.1:" + port), refusal.getMessage());
    }

    @Test
    void service_file_makes_the_scheme_known() throws Exception {
        assertEquals(SanderlingFileSystem.class,
                FileSystem.getFileSystemClass("sanderling", new Configuration()));
    }

    @Test
    void file_system_of_the_configured_address_has_paths_without_one() throws Exception {
        Configuration conf = configuration("fs.sanderling.address", Cluster.shared().address());
        conf.set("fs.defaultFS", "sanderling:///");
        try (FileSystem fs = FileSystem.newInstance(conf)) {
            Path path = new Path("/settings/a");
            fs.create(path).close();
            assertEquals("sanderling:/settings/a", fs.getFileStatus(path).getPath().toString());
            assertTrue(fs.exists(new Path("sanderling:///settings/a")));
            assertTrue(fs.delete(path.getParent(), true));
        }
    }

    private static Configuration configuration(String key, String value) {
        Configuration conf = new Configuration(false);
        conf.set(key, value);
        return conf;
    }

    private static String refused(String uri, Configuration conf) {
        IOException refusal = assertThrows(
                IOException.class, () -> Settings.of(URI.create(uri), conf));
        assertFalse(refusal.getMessage().contains("\n"), refusal.getMessage());
        return refusal.getMessage();
    }
}
