package io.sanderling.hadoop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.TestDFSIO;
import org.apache.hadoop.util.ToolRunner;

/**
 * Runs Hadoop's TestDFSIO on the store and on the local file system, in turns, in one process with
 * two tasks at a time, and prints the medians in MB/s. What a task takes to start is not in it.
 */
final class DfsioBench {
    private static final String[] PARTS = {"write", "read", "read -random"};

    private final Cluster cluster;
    private final Path scratch;
    private final int files;
    private final int megabytes;

    private DfsioBench(int files, int megabytes) throws IOException {
        this.cluster = Cluster.start(3, files * megabytes + "MiB");
        this.scratch = cluster.directory().resolve("local");
        this.files = files;
        this.megabytes = megabytes;
    }

    /** Takes how many rounds, files and megabytes of each there are. */
    public static void main(String[] arguments) throws Exception {
        int rounds = number(arguments, 0, 5);
        DfsioBench bench = new DfsioBench(number(arguments, 1, 4), number(arguments, 2, 128));
        Map<String, double[]> found = new LinkedHashMap<>();
        // The first round is for the compiler.
        for (int round = -1; round < rounds; round++) {
            for (String part : PARTS) {
                for (String where : new String[] {bench.cluster.uri(), "file:///"}) {
                    double rate = bench.run(part, where);
                    String name = part + (where.startsWith("file") ? " local" : " sanderling");
                    if (round >= 0) {
                        found.computeIfAbsent(name, key -> new double[rounds])[round] = rate;
                    }
                }
            }
        }
        for (String part : PARTS) {
            print(part, found.get(part + " sanderling"), found.get(part + " local"));
        }
        System.exit(0);
    }

    private static void print(String part, double[] ours, double[] local) {
        double[] ratios = new double[ours.length];
        for (int round = 0; round < ours.length; round++) {
            ratios[round] = ours[round] / local[round];
        }
        System.out.printf(Locale.ROOT, "%-14s sanderling %7.0f MB/s   local %7.0f MB/s   "
                + "ratio %.2f (%.2f to %.2f)%n", part, median(ours), median(local),
                median(ratios), min(ratios), max(ratios));
    }

    private double run(String part, String where) throws Exception {
        Configuration conf = Bases.local();
        conf.set("fs.defaultFS", where);
        String home = where.startsWith("file") ? scratch.toString() : "";
        conf.set("mapreduce.jobtracker.staging.root.dir", home + "/staging");
        conf.set("test.build.data", home + "/dfsio");
        Path result = cluster.directory().resolve("result");
        Files.deleteIfExists(result);
        String words = "-" + part + " -nrFiles " + files + " -size "
                + megabytes + "MB -resFile " + result;
        if (ToolRunner.run(conf, new TestDFSIO(), words.split(" ")) != 0) {
            throw new IOException("TestDFSIO " + words + " failed on " + where);
        }
        for (String line : Files.readAllLines(result)) {
            if (line.contains("Throughput mb/sec:")) {
                return Double.parseDouble(line.substring(line.indexOf(':') + 1).trim());
            }
        }
        throw new IOException("TestDFSIO said no throughput in " + result);
    }

    private static int number(String[] arguments, int at, int otherwise) {
        return arguments.length > at ? Integer.parseInt(arguments[at]) : otherwise;
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }

    private static double min(double[] values) {
        return Arrays.stream(values).min().orElse(Double.NaN);
    }

    private static double max(double[] values) {
        return Arrays.stream(values).max().orElse(Double.NaN);
    }
}
