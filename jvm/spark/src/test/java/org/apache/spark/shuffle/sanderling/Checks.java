package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.Buffer;
import io.sanderling.client.ClientOptions;
import io.sanderling.client.NotFoundException;
import io.sanderling.client.ObjectStat;
import io.sanderling.client.PutOptions;
import io.sanderling.client.SanderlingClient;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import scala.Tuple2;

/**
 * Is a Spark application that shuffles through a cluster and checks what comes out. It runs in a
 * process of its own, on the jars of one line of Spark and Sanderling's one jar.
 */
public final class Checks {
    private static final int MAPS = 12;

    private Checks() {
    }

    /** Runs the checks against the namenode of the first argument; the others are processes. */
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        refuse("spark.sanderling.address", "nn:port", "has no valid port");
        refuse("spark.sanderling.address", "127.0.0.1:1", "127.0.0.1:1 cannot be reached");
        refuse("spark.shuffle.service.enabled", "true", "set it to false");
        refuse("spark.shuffle.push.enabled", "true", "set it to false");
        run(address, conf(address), (spark, client) -> {
            orders(spark);
            manyPartitions(spark);
            longPartitions(spark);
            nothing(spark);
            wrongByte(spark, client, 100);
            wrongByte(spark, client, 1 << 20);
            loss(spark, client, arguments[1]);
        });
        SparkConf encrypted = conf(address)
                .set("spark.io.encryption.enabled", "true")
                .set("spark.shuffle.compress", "false")
                .set("spark.serializer", "org.apache.spark.serializer.KryoSerializer");
        run(address, encrypted, (spark, client) -> {
            orders(spark);
            longPartitions(spark);
        });
        System.out.println("CHECKED " + org.apache.spark.package$.MODULE$.SPARK_VERSION());
    }

    /** Does something with a running application. */
    private interface Body {
        void run(JavaSparkContext spark, SanderlingClient client) throws Exception;
    }

    private static void run(String address, SparkConf conf, Body body) throws Exception {
        String root;
        try (SanderlingClient client =
                SanderlingClient.connect(address, ClientOptions.create())) {
            try (JavaSparkContext spark = new JavaSparkContext(conf)) {
                root = "/spark/" + spark.sc().applicationId();
                body.run(spark, client);
            }
            try {
                client.list(root);
                throw new AssertionError(root + " outlived the application");
            } catch (NotFoundException gone) {
                System.out.println("gone: " + root);
            }
        }
    }

    private static SparkConf conf(String address) {
        return new SparkConf()
                .setMaster("local[2]")
                .setAppName("checks")
                .set("spark.ui.enabled", "false")
                .set("spark.log.level", "WARN")
                .set("spark.shuffle.manager", SanderlingShuffleManager.class.getName())
                .set("spark.sanderling.address", address);
    }

    private static void refuse(String key, String value, String sentence) {
        SparkConf conf = conf("127.0.0.1:1").set(key, value);
        try (JavaSparkContext spark = new JavaSparkContext(conf)) {
            throw new AssertionError(key + "=" + value + " was accepted");
        } catch (CannotStartException refusal) {
            check(refusal.getMessage().contains(sentence), "says: " + refusal.getMessage());
        }
    }

    private static void orders(JavaSparkContext spark) {
        List<Integer> numbers = numbers(20_000);
        JavaPairRDD<Integer, Integer> pairs = spark.parallelize(numbers, MAPS)
                .mapToPair(number -> new Tuple2<>(number % 101, number));
        long sum = 0;
        for (Tuple2<Integer, Iterable<Integer>> group : pairs.groupByKey(7).collect()) {
            for (int number : group._2()) {
                check(number % 101 == group._1(), "group of another key");
                sum += number;
            }
        }
        check(sum == 20_000L * 19_999 / 2, "sum of the groups");
        check(pairs.reduceByKey(Integer::sum, 5).count() == 101, "combined keys");
        List<Integer> sorted = pairs.mapToPair(Tuple2::swap).sortByKey(true, 6).keys().collect();
        check(sorted.equals(numbers), "order");
    }

    /** More partitions than a page of the index has. */
    private static void manyPartitions(JavaSparkContext spark) {
        JavaPairRDD<Integer, Integer> pairs = spark.parallelize(numbers(3_000), 3)
                .mapToPair(number -> new Tuple2<>(number, number));
        check(pairs.groupByKey(600).count() == 3_000, "keys of 600 partitions");
    }

    /** Partitions that are streamed, and outputs of many blocks. */
    private static void longPartitions(JavaSparkContext spark) {
        JavaPairRDD<Integer, byte[]> pairs = spark.parallelize(numbers(40), 2)
                .mapToPair(number -> new Tuple2<>(number % 2, bytes(number, 1 << 20)));
        check(hashes(pairs.groupByKey(2)).equals(hashes(40, 1 << 20)), "long partitions");
    }

    /** A byte of an output is wrong: its map runs again, also if a codec meets the byte first. */
    private static void wrongByte(JavaSparkContext spark, SanderlingClient client, int rowBytes)
            throws Exception {
        AtomicInteger maps = mapTasks(spark);
        // Rows of 1 MiB make ranges of 10 MiB, which are streamed.
        JavaPairRDD<Integer, Iterable<byte[]>> groups = spark.parallelize(numbers(20), 2)
                .mapToPair(number -> new Tuple2<>(number % 2, bytes(number, rowBytes)))
                .groupByKey(1);
        check(hashes(groups).equals(hashes(20, rowBytes)), "rows before a byte was changed");
        until("2 map tasks", () -> maps.get() >= 2);
        maps.set(0);
        String root = "/spark/" + spark.sc().applicationId();
        int shuffleId = newest(client, root);
        String path = outputs(client, root, shuffleId).get(0);
        byte[] bytes;
        try (Buffer all = client.get(path)) {
            bytes = all.toArray();
        }
        bytes[bytes.length / 2] ^= 1;
        client.put(path, ByteBuffer.wrap(bytes), PutOptions.create().withReplace(true));
        // What was kept open is the object that was replaced.
        SanderlingShuffleManager.current().outputs().forget(shuffleId);
        check(hashes(groups).equals(hashes(20, rowBytes)), "rows after a byte was changed");
        until("a rerun", () -> maps.get() >= 1);
        check(maps.get() == 1, maps.get() + " maps ran again for one with a wrong byte");
    }

    /** Returns the sorted hashes of rows that a shuffle gave. */
    private static List<Integer> hashes(JavaPairRDD<Integer, Iterable<byte[]>> groups) {
        List<Integer> hashes = new ArrayList<>(groups.flatMap(group -> {
            List<Integer> all = new ArrayList<>();
            group._2().forEach(bytes -> all.add(Arrays.hashCode(bytes)));
            return all.iterator();
        }).collect());
        Collections.sort(hashes);
        return hashes;
    }

    /** Returns the sorted hashes of so many rows as they were made. */
    private static List<Integer> hashes(int rows, int rowBytes) {
        List<Integer> hashes = new ArrayList<>();
        for (int number : numbers(rows)) {
            hashes.add(Arrays.hashCode(bytes(number, rowBytes)));
        }
        Collections.sort(hashes);
        return hashes;
    }

    private static void nothing(JavaSparkContext spark) {
        JavaPairRDD<Integer, Integer> none = spark.parallelize(numbers(10), 4)
                .filter(number -> number > 10)
                .mapToPair(number -> new Tuple2<>(number, number));
        check(none.groupByKey(3).count() == 0, "something of nothing");
    }

    /** A datanode dies without a notice: the lost maps run again, once and no other. */
    private static void loss(JavaSparkContext spark, SanderlingClient client, String process)
            throws Exception {
        AtomicInteger maps = mapTasks(spark);
        JavaPairRDD<Integer, Iterable<byte[]>> groups = groups(spark, 24);
        check(groups.count() == 500, "keys before the loss");
        until("24 map tasks", () -> maps.get() >= 24);
        maps.set(0);
        new ProcessBuilder("kill", "-9", process).inheritIO().start().waitFor();
        check(groups.count() == 500, "keys after the loss");
        int lost = lost(client, "/spark/" + spark.sc().applicationId());
        check(lost > 0, "nothing was lost: a third of the outputs was on the node");
        until("reruns", () -> maps.get() >= lost);
        check(maps.get() == lost, maps.get() + " maps ran again for " + lost + " lost");
        System.out.println("ran again: " + lost + " of 24 maps");
    }

    /** Counts the tasks of maps that end from now on. */
    static AtomicInteger mapTasks(JavaSparkContext spark) throws Exception {
        // Ends of earlier tasks may still be on their way to listeners.
        spark.sc().listenerBus().waitUntilEmpty();
        AtomicInteger maps = new AtomicInteger();
        spark.sc().addSparkListener(new SparkListener() {
            @Override
            public void onTaskEnd(SparkListenerTaskEnd end) {
                if (end.taskType().equals("ShuffleMapTask")) {
                    maps.incrementAndGet();
                }
            }
        });
        return maps;
    }

    /** Returns 500 groups, of outputs that are not small: those are kept where they were read. */
    static JavaPairRDD<Integer, Iterable<byte[]>> groups(JavaSparkContext spark, int maps) {
        return spark.parallelize(numbers(1_000 * maps), maps)
                .mapToPair(number -> new Tuple2<>(number % 500, bytes(number, 100)))
                .groupByKey(4);
    }

    /** Returns the number of the application's last shuffle. */
    static int newest(SanderlingClient client, String root) throws IOException {
        int newest = -1;
        for (ObjectStat directory : client.list(root)) {
            newest = Math.max(newest, MapNames.shuffleOf(directory.name()));
        }
        return newest;
    }

    /** Returns the paths of a shuffle's outputs. */
    static List<String> outputs(SanderlingClient client, String root, int shuffleId)
            throws IOException {
        String directory = MapNames.directory(root, shuffleId);
        List<String> paths = new ArrayList<>();
        for (ObjectStat object : client.list(directory)) {
            paths.add(directory + '/' + object.name());
        }
        return paths;
    }

    private static int lost(SanderlingClient client, String root) throws IOException {
        int lost = 0;
        for (ObjectStat object : client.list(MapNames.directory(root, newest(client, root)))) {
            lost += object.lostBytes() > 0 ? 1 : 0;
        }
        return lost;
    }

    /** Returns bytes that no codec makes fewer. */
    private static byte[] bytes(int seed, int count) {
        byte[] bytes = new byte[count];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    private static List<Integer> numbers(int end) {
        List<Integer> numbers = new ArrayList<>(end);
        for (int number = 0; number < end; number++) {
            numbers.add(number);
        }
        return numbers;
    }

    static void until(String what, BooleanSupplier condition)
            throws InterruptedException {
        long deadline = System.nanoTime() + 120_000_000_000L;
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, what + ": not within two minutes");
            Thread.sleep(10);
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
