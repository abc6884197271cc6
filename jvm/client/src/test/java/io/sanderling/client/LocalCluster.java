package io.sanderling.client;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.WeakReference;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Runs a real cluster of processes on this machine, for the tests of all modules; the binary is
 * that of SANDERLING_BIN.
 */
public final class LocalCluster implements AutoCloseable {
    /** Bounds every wait of a test: generous, because a machine may be slow and loaded. */
    static final long DEADLINE_SECONDS = 120;

    private final Path directory;
    private final String namenode;
    private final long namenodeProcess;
    private final List<String> names = new ArrayList<>();
    private final List<Long> processes = new ArrayList<>();

    private LocalCluster(Path directory, String json) {
        this.directory = directory;
        this.namenode = found(json, "\"namenode\":\"([^\"]+)\"");
        Pattern process = Pattern.compile(
                "\"name\":\"([^\"]+)\",\"pid\":(\\d+),\"role\":\"([a-z]+)\"");
        long namenodeProcess = 0;
        for (Matcher each = process.matcher(json); each.find(); ) {
            if (each.group(3).equals("namenode")) {
                namenodeProcess = Long.parseLong(each.group(2));
            } else {
                names.add(each.group(1));
                processes.add(Long.parseLong(each.group(2)));
            }
        }
        this.namenodeProcess = namenodeProcess;
    }

    /** Starts a namenode and so many datanodes; {@code more} are flags of {@code local start}. */
    public static LocalCluster start(int datanodes, String... more) throws IOException {
        Path directory = Files.createTempDirectory("sanderling-jvm-test-");
        List<String> arguments = new ArrayList<>(Arrays.asList(
                "--json", "local", "start", "--dir", directory.toString(), "--port", "0",
                "--http-port", "0", "--datanodes", String.valueOf(datanodes)));
        arguments.addAll(Arrays.asList(more));
        if (!arguments.contains("--dram")) {
            arguments.addAll(Arrays.asList("--dram", "64MiB"));
        }
        return new LocalCluster(directory, run(arguments));
    }

    /** Returns the namenode's address. */
    public String namenode() {
        return namenode;
    }

    /** Returns the directory of its files: keys of a secured cluster are in {@code keys}. */
    public Path directory() {
        return directory;
    }

    SanderlingClient connect() throws IOException {
        return SanderlingClient.connect(namenode, ClientOptions.create());
    }

    /** Returns the names of the datanodes. */
    List<String> datanodes() {
        return Collections.unmodifiableList(names);
    }

    /** Returns the process id of a datanode. */
    public long process(String datanode) {
        return processes.get(names.indexOf(datanode));
    }

    /** Kills a datanode without a notice. */
    void killDatanode(String name) throws IOException {
        kill(process(name));
    }

    void killNamenode() throws IOException {
        kill(namenodeProcess);
    }

    /** Gives a datanode a notice. */
    void notice(String name, String deadline) throws IOException {
        run(Arrays.asList(
                "--namenode", namenode, "node", "notice", name, "--deadline", deadline));
    }

    @Override
    public void close() throws IOException {
        run(Arrays.asList("local", "stop", "--dir", directory.toString()));
        List<Path> all = new ArrayList<>();
        try (java.util.stream.Stream<Path> files = Files.walk(directory)) {
            files.forEach(all::add);
        }
        Collections.reverse(all);
        for (Path each : all) {
            Files.deleteIfExists(each);
        }
    }

    /** Waits until a condition holds; fails at a deadline. */
    static void until(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_SECONDS);
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError(what + ": not within " + DEADLINE_SECONDS + " s");
            }
            Thread.sleep(10);
        }
    }

    /** Returns a condition that holds once the garbage collector has found something forgotten. */
    static Callable<Boolean> collected() {
        WeakReference<Object> forgotten = new WeakReference<>(new Object());
        return () -> {
            System.gc();
            return forgotten.get() == null;
        };
    }

    /** Runs the command line and returns what it printed. */
    static String run(List<String> arguments) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(binary().toString());
        command.addAll(arguments);
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String printed = all(process.getInputStream());
        try {
            if (process.waitFor() != 0) {
                throw new IOException(command + ": " + printed);
            }
        } catch (InterruptedException error) {
            throw new IOException(error);
        }
        return printed;
    }

    /** Returns the binary under test, as every test of the repository finds it. */
    public static Path binary() {
        String given = System.getenv("SANDERLING_BIN");
        if (given != null) {
            return Paths.get(given);
        }
        Path root = Paths.get("").toAbsolutePath();
        while (!Files.exists(root.resolve("Cargo.lock"))) {
            root = root.getParent();
        }
        for (String place : new String[] {
            ".venv/bin/sanderling", "target/release/sanderling", "target/debug/sanderling"
        }) {
            if (Files.isExecutable(root.resolve(place))) {
                return root.resolve(place);
            }
        }
        throw new AssertionError(
                "no sanderling in " + root + ": build it, or set SANDERLING_BIN");
    }

    private static void kill(long process) throws IOException {
        try {
            new ProcessBuilder("kill", "-9", String.valueOf(process)).start().waitFor();
        } catch (InterruptedException error) {
            throw new IOException(error);
        }
    }

    private static String found(String text, String pattern) {
        Matcher matcher = Pattern.compile(pattern).matcher(text);
        if (!matcher.find()) {
            throw new AssertionError("no " + pattern + " in " + text);
        }
        return matcher.group(1);
    }

    private static String all(InputStream stream) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        byte[] piece = new byte[8192];
        for (int count = stream.read(piece); count >= 0; count = stream.read(piece)) {
            bytes.write(piece, 0, count);
        }
        return new String(bytes.toByteArray(), StandardCharsets.UTF_8);
    }
}
