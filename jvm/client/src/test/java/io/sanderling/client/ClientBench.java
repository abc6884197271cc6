package io.sanderling.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Measures what calls take from Java, on a cluster of its own. Prints for each call and number of
 * threads the operations per second and the latencies in microseconds. Arguments: seconds for each
 * measurement, by default 1; the rounds, by default 5, of which the median counts; and a text, to
 * measure only calls that have it in their line.
 */
final class ClientBench {
    private static final PutOptions REPLACE =
            PutOptions.create().withReplace(true).withParents(true);
    private static final int MIB = 1 << 20;
    private static final int[] THREADS = {1, 4};

    private final double seconds;
    private final int rounds;
    private final String only;

    private ClientBench(double seconds, int rounds, String only) {
        this.seconds = seconds;
        this.rounds = rounds;
        this.only = only;
    }

    /** One operation of one thread. */
    private interface Operation {
        void run(int thread) throws IOException;
    }

    /** Runs all measurements. */
    public static void main(String[] arguments) throws Exception {
        double seconds = arguments.length > 0 ? Double.parseDouble(arguments[0]) : 1;
        int rounds = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 5;
        String only = arguments.length > 2 ? arguments[2] : "";
        try (LocalCluster cluster = LocalCluster.start(2, "--dram", "256MiB")) {
            System.out.printf("%-28s %8s %12s %10s %10s%n",
                    "call", "threads", "calls/s", "p50 us", "p99 us");
            for (boolean sameHost : new boolean[] {true, false}) {
                ClientOptions options = ClientOptions.create().withSameHost(sameHost);
                try (SanderlingClient client =
                        SanderlingClient.connect(cluster.namenode(), options)) {
                    new ClientBench(seconds, rounds, only)
                            .all(client, sameHost ? "" : ", TCP");
                }
            }
        }
    }

    private void all(SanderlingClient client, String how) throws Exception {
        ByteBuffer direct = ByteBuffer.allocateDirect(MIB);
        byte[] heap = new byte[MIB];
        client.put("/bench/mib", direct.duplicate(), REPLACE);
        client.put("/bench/small", ByteBuffer.wrap(new byte[64]), REPLACE);
        measure("get 1 MiB" + how, thread -> client.get("/bench/mib").close());
        try (Reader reader = client.open("/bench/mib")) {
            measure("read 1 MiB, open" + how, thread -> reader.readRange(0, MIB).close());
            measure("read 4 KiB, open" + how, thread -> reader.readRange(4096, 4096).close());
        }
        measure("put 1 MiB, direct" + how,
                thread -> client.put("/bench/put-" + thread, direct.duplicate(), REPLACE));
        measure("put 1 MiB, array" + how,
                thread -> client.put("/bench/put-" + thread, ByteBuffer.wrap(heap), REPLACE));
        measure("get 64 B" + how, thread -> client.get("/bench/small").close());
        many(client, how);
    }

    /** Reads as a shuffle does: ten ranges of 16 KiB of each of twenty objects. */
    private void many(SanderlingClient client, String how) throws Exception {
        List<String> paths = new ArrayList<>();
        for (int at = 0; at < 20; at++) {
            paths.add("/bench/many-" + at);
            client.put(paths.get(at), ByteBuffer.allocate(MIB), REPLACE);
        }
        long[] offsets = new long[10];
        long[] lengths = new long[10];
        for (int at = 0; at < 10; at++) {
            offsets[at] = at * 100_000L;
            lengths[at] = 16 << 10;
        }
        List<Opened> opened = client.openMany(paths);
        List<Ranges> wanted = new ArrayList<>();
        for (Opened each : opened) {
            wanted.add(new Ranges(each.reader(), offsets, lengths));
        }
        measure("readMany 200 x 16 KiB" + how,
                thread -> client.readMany(wanted).forEach(Fetched::close));
        for (Opened each : opened) {
            each.reader().close();
        }
    }

    private void measure(String name, Operation operation) throws Exception {
        if (!name.contains(only)) {
            return;
        }
        for (int threads : THREADS) {
            run(threads, seconds / 2, operation);
            double[][] all = new double[rounds][];
            for (int round = 0; round < rounds; round++) {
                all[round] = run(threads, seconds, operation);
            }
            Arrays.sort(all, (one, other) -> Double.compare(one[0], other[0]));
            double[] median = all[rounds / 2];
            System.out.printf(Locale.ROOT, "%-28s %8d %12.0f %10.1f %10.1f%n",
                    name, threads, median[0], median[1], median[2]);
        }
    }

    /** Returns calls per second, and the median and 99th percentile in microseconds. */
    private static double[] run(int threads, double seconds, Operation operation)
            throws Exception {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        long[][] taken = new long[threads][];
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread[] running = new Thread[threads];
        for (int thread = 0; thread < threads; thread++) {
            int number = thread;
            running[thread] = new Thread(() -> {
                try {
                    taken[number] = repeat(end, number, operation);
                } catch (IOException error) {
                    failure.set(error);
                }
            });
            running[thread].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        if (failure.get() != null) {
            throw new IOException(failure.get());
        }
        long[] all = Arrays.stream(taken).flatMapToLong(Arrays::stream).sorted().toArray();
        return new double[] {
            all.length / seconds,
            all[all.length / 2] / 1e3,
            all[(int) Math.min(all.length - 1, all.length * 99L / 100)] / 1e3
        };
    }

    private static long[] repeat(long end, int thread, Operation operation) throws IOException {
        long[] taken = new long[1024];
        int count = 0;
        for (long now = System.nanoTime(); now < end; count++) {
            operation.run(thread);
            long after = System.nanoTime();
            if (count == taken.length) {
                taken = Arrays.copyOf(taken, count * 2);
            }
            taken[count] = after - now;
            now = after;
        }
        return Arrays.copyOf(taken, count);
    }
}
