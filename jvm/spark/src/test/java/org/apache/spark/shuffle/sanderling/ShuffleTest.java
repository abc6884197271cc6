package org.apache.spark.shuffle.sanderling;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sanderling.client.LocalCluster;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/**
 * Runs {@link Checks} and {@link ExecutorChecks} on the one jar and each line of Spark that is
 * given, on real clusters.
 */
final class ShuffleTest {
    /** Bounds a run: generous, because a machine may be slow and loaded. */
    private static final long DEADLINE_SECONDS = 600;

    /** What Spark's own scripts open for it on Java 17; older ones do not have the flags. */
    private static final String[] OPENED = {
        "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.io",
        "java.base/java.net", "java.base/java.nio", "java.base/java.util",
        "java.base/java.util.concurrent", "java.base/sun.nio.ch", "java.base/sun.nio.cs",
        "java.base/sun.security.action", "java.base/sun.util.calendar",
    };

    @TestFactory
    List<DynamicTest> applicationShufflesThroughTheClusterAndSurvivesALoss() {
        List<DynamicTest> tests = new ArrayList<>();
        for (String line : System.getProperty("spark.lines", "").split(",")) {
            String[] parts = line.split("=", 2);
            if (parts.length == 2) {
                tests.add(DynamicTest.dynamicTest(parts[0], () -> check(parts[0], parts[1])));
                tests.add(DynamicTest.dynamicTest(parts[0] + " with a token and an executor",
                        () -> checkExecutors(parts[0], parts[1])));
            }
        }
        if (tests.isEmpty()) {
            tests.add(DynamicTest.dynamicTest("no line", () -> Assumptions.abort(
                    "no jars of Spark were given: -Dspark.lines=3.5=FOLDER,4.3=FOLDER")));
        }
        return tests;
    }

    private static void check(String line, String jars) throws Exception {
        try (LocalCluster cluster = LocalCluster.start(3, "--dram", "256MiB")) {
            List<String> command = command(jars);
            command.addAll(Arrays.asList(Checks.class.getName(), cluster.namenode(),
                    String.valueOf(cluster.process("datanode-0"))));
            run(new ProcessBuilder(command), Paths.get("target", "checks-" + line + ".log"));
        }
    }

    private static void checkExecutors(String line, String jars) throws Exception {
        try (LocalCluster cluster = LocalCluster.start(2, "--secure", "--dram", "256MiB")) {
            List<String> command = command(jars);
            command.addAll(Arrays.asList(ExecutorChecks.class.getName(), cluster.namenode(),
                    cluster.directory().resolve("keys").toString(), own()));
            ProcessBuilder run = new ProcessBuilder(command);
            run.environment().put("SPARK_HOME", home(line, jars).toString());
            run.environment().put("SPARK_SCALA_VERSION", scalaVersion(jars));
            run.environment().put("SPARK_LOCAL_IP", "127.0.0.1");
            run(run, Paths.get("target", "executor-checks-" + line + ".log"));
        }
    }

    private static void run(ProcessBuilder command, Path log) throws Exception {
        Process run = command.redirectErrorStream(true).redirectOutput(log.toFile()).start();
        boolean ended = run.waitFor(DEADLINE_SECONDS, TimeUnit.SECONDS);
        run.destroyForcibly();
        String text = new String(Files.readAllBytes(log), StandardCharsets.UTF_8);
        String end = text.substring(Math.max(0, text.length() - 4000));
        assertTrue(ended, "no end within " + DEADLINE_SECONDS + " s: " + end);
        assertEquals(0, run.exitValue(), end);
        assertTrue(text.contains("CHECKED"), end);
    }

    /** Makes a directory from which Spark starts executors; what they print stays there. */
    private static Path home(String line, String jars) throws IOException {
        Path home = Paths.get("target", "spark-home-" + line).toAbsolutePath();
        Files.createDirectories(home);
        Files.deleteIfExists(home.resolve("jars"));
        Files.createSymbolicLink(home.resolve("jars"), Paths.get(jars).toAbsolutePath());
        return home;
    }

    /** Returns the version of Scala that the jars are for, such as 2.13. */
    private static String scalaVersion(String jars) throws IOException {
        String prefix = "spark-core_";
        try (DirectoryStream<Path> all = Files.newDirectoryStream(Paths.get(jars), prefix + "*")) {
            String name = all.iterator().next().getFileName().toString();
            return name.substring(prefix.length(), name.indexOf('-', prefix.length()));
        }
    }

    /** Returns the class path of Sanderling's jar and these tests. */
    private static String own() {
        Path jar = Paths.get(System.getProperty("sanderling.spark.jar")).toAbsolutePath();
        return jar + ":" + Paths.get("target", "test-classes").toAbsolutePath();
    }

    private static List<String> command(String jars) {
        List<String> command = new ArrayList<>();
        command.add(Paths.get(System.getProperty("java.home"), "bin", "java").toString());
        command.add("-Xmx1g");
        if (!System.getProperty("java.version").startsWith("1.")) {
            for (String opened : OPENED) {
                command.add("--add-opens=" + opened + "=ALL-UNNAMED");
            }
        }
        command.addAll(Arrays.asList("-cp", own() + ":" + jars + "/*"));
        return command;
    }
}
