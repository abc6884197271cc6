package io.sanderling.hadoop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import io.sanderling.client.ClientOptions;
import io.sanderling.client.LocalCluster;
import io.sanderling.client.NodeInfo;
import io.sanderling.client.SanderlingClient;
import org.apache.hadoop.fs.FileUtil;

/** Runs a namenode and datanodes on loopback, once for all tests; they die with this process. */
final class Cluster {
    private static final Duration READY_WITHIN = Duration.ofSeconds(120);
    private static final Pattern ADDRESS = Pattern.compile("\"address\":\"([^\"]+)\"");

    private static Cluster shared;

    private final Path directory;
    private final String binary;
    private final String address;
    private final String dram;
    /** The kernel ends a child with the thread that made it: this one lives on. */
    private final ExecutorService spawner = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "spawner");
        thread.setDaemon(true);
        return thread;
    });
    private final List<Process> processes = new CopyOnWriteArrayList<>();
    private int started;

    private Cluster(String binary, int datanodes, String dram) throws IOException {
        this.binary = binary;
        this.dram = dram;
        directory = Files.createTempDirectory("sanderling-hadoop");
        Runtime.getRuntime().addShutdownHook(new Thread(this::clear, "clear"));
        address = serve("namenode", "namenode", "--listen", "127.0.0.1:0", "--http", "none",
                "--dir", directory.resolve("catalog").toString()).address();
        List<Server> starting = new ArrayList<>();
        for (int at = 0; at < datanodes; at++) {
            starting.add(datanode());
        }
        for (Server server : starting) {
            server.address();
        }
    }

    /** Returns the cluster, started by the first call. */
    static synchronized Cluster shared() {
        if (shared == null) {
            try {
                shared = start(3, "256MiB");
            } catch (IOException e) {
                throw new AssertionError("the cluster did not start", e);
            }
        }
        return shared;
    }

    /** Starts a cluster of one's own. */
    static Cluster start(int datanodes, String dram) throws IOException {
        return new Cluster(LocalCluster.binary().toString(), datanodes, dram);
    }

    /** Ends all processes and removes what they and the tests wrote to the disk. */
    private void clear() {
        for (Process process : processes) {
            try {
                process.destroyForcibly().waitFor();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
        FileUtil.fullyDelete(directory.toFile());
    }

    /** Returns a directory of the local disk that goes when this program ends. */
    Path directory() {
        return directory;
    }

    /** Returns the namenode's address. */
    String address() {
        return address;
    }

    /** Returns the URI of the root. */
    String uri() {
        return "sanderling://" + address;
    }

    /** Starts another datanode, waits until it serves and returns its name. */
    synchronized Server addDatanode() throws IOException {
        Server server = datanode();
        server.address();
        return server;
    }

    /** Returns how many bytes a datanode holds. */
    long usedBytes(Server datanode) throws IOException {
        try (SanderlingClient client = SanderlingClient.connect(address, ClientOptions.create())) {
            return client.nodes().stream().filter(node -> node.name().equals(datanode.name))
                    .mapToLong(NodeInfo::usedBytes).sum();
        }
    }

    /** Gives a datanode its notice and waits until it is empty. */
    void notice(Server datanode, Duration deadline) throws IOException, InterruptedException {
        Process process = new ProcessBuilder(binary, "node", "notice", datanode.name,
                "--deadline", deadline.getSeconds() + "s", "--wait", "--namenode", address)
                .redirectErrorStream(true).start();
        String text = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (process.waitFor() != 0) {
            throw new IOException("the notice failed: " + text);
        }
    }

    private Server datanode() throws IOException {
        String name = "datanode-" + started++;
        return serve(name, "datanode", "--namenode", address, "--name", name, "--dram", dram,
                "--http", "none");
    }

    private Server serve(String name, String... words) throws IOException {
        Path ready = directory.resolve(name + ".ready");
        Path log = directory.resolve(name + ".log");
        List<String> command = new ArrayList<>(Arrays.asList(binary));
        command.addAll(Arrays.asList(words));
        command.addAll(Arrays.asList("--ready-file", ready.toString(), "--exit-with-parent"));
        Process process = CompletableFuture.supplyAsync(() -> {
            try {
                return new ProcessBuilder(command).redirectErrorStream(true)
                        .redirectOutput(log.toFile()).start();
            } catch (IOException e) {
                throw new AssertionError("cannot start " + command, e);
            }
        }, spawner).join();
        processes.add(process);
        return new Server(name, process, ready, log);
    }

    /** One process of the cluster. */
    static final class Server {
        private final String name;
        private final Process process;
        private final Path ready;
        private final Path log;

        private Server(String name, Process process, Path ready, Path log) {
            this.name = name;
            this.process = process;
            this.ready = ready;
            this.log = log;
        }

        /** Ends it as a cloud does, without a notice. */
        void kill() throws InterruptedException {
            process.destroyForcibly().waitFor();
        }

        /** Waits until it serves and returns its address. */
        private String address() throws IOException {
            Instant limit = Instant.now().plus(READY_WITHIN);
            while (Instant.now().isBefore(limit) && process.isAlive()) {
                if (Files.exists(ready)) {
                    Matcher found = ADDRESS.matcher(Files.readString(ready));
                    if (found.find()) {
                        return found.group(1);
                    }
                }
                try {
                    Thread.sleep(20);
                } catch (InterruptedException e) {
                    throw new IOException(e);
                }
            }
            throw new IOException(name + " does not serve:\n" + Files.readString(log));
        }
    }
}
