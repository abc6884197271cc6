package io.sanderling.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.examples.terasort.TeraGen;
import org.apache.hadoop.examples.terasort.TeraSort;
import org.apache.hadoop.examples.terasort.TeraValidate;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.TestDFSIO;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Hadoop's own jobs, from its own jars, on the store, in this process. */
class MapReduceTest {
    /** The checksum that TeraValidate computes of a million of TeraGen's rows. */
    private static final String MILLION_ROWS = "7a27e2d0d55de";

    private FileSystem fs;

    @BeforeEach
    void connect() throws Exception {
        fs = FileSystem.get(configuration());
    }

    @AfterEach
    void clear() throws IOException {
        if (fs != null) {
            fs.delete(new Path("/tera"), true);
            fs.delete(new Path("/dfsio"), true);
        }
    }

    private static Configuration configuration() {
        Configuration conf = Bases.local();
        conf.set("fs.defaultFS", Cluster.shared().uri());
        return conf;
    }

    @Test
    void million_rows_are_sorted_and_valid_while_a_datanode_leaves() throws Exception {
        Cluster.Server leaving = Cluster.shared().addDatanode();
        run(new TeraGen(), "1000000", "/tera/rows");
        assertEquals(100_000_000, fs.getContentSummary(new Path("/tera/rows")).getLength());
        assertTrue(Cluster.shared().usedBytes(leaving) > 0, "nothing lies on the leaving node");
        CompletableFuture<Void> sorted = CompletableFuture.runAsync(
                () -> run(new TeraSort(), "/tera/rows", "/tera/sorted"));
        Cluster.shared().notice(leaving, Duration.ofSeconds(60));
        leaving.kill();
        sorted.join();
        run(new TeraValidate(), "/tera/sorted", "/tera/report");
        assertEquals("checksum\t" + MILLION_ROWS, report());
    }

    @Test
    void dfsio_writes_appends_and_reads() throws Exception {
        Configuration conf = configuration();
        conf.set("test.build.data", "/dfsio");
        for (String what : new String[] {"-write", "-append", "-read", "-read -random"}) {
            String words = what + " -nrFiles 2 -size 8MB -resFile target/dfsio.log";
            assertEquals(0, ToolRunner.run(conf, new TestDFSIO(), words.split(" ")), what);
        }
        FileStatus[] files = fs.listStatus(new Path("/dfsio/io_data"));
        assertEquals(2, files.length);
        assertEquals(16 << 20, files[0].getLen());
    }

    private String report() throws IOException {
        Path part = new Path("/tera/report/part-r-00000");
        assertTrue(fs.exists(part));
        try (BufferedReader lines = new BufferedReader(
                new InputStreamReader(fs.open(part), StandardCharsets.UTF_8))) {
            String line = lines.readLine();
            assertFalse(line == null, "the report is empty");
            return line;
        }
    }

    private static void run(Tool tool, String... arguments) {
        try {
            assertEquals(0, ToolRunner.run(configuration(), tool, arguments), tool.toString());
        } catch (Exception e) {
            throw new AssertionError(tool + " failed", e);
        }
    }
}
