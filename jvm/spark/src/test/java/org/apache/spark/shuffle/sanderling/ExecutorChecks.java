package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.Buffer;
import io.sanderling.client.ClientOptions;
import io.sanderling.client.DataUnavailableException;
import io.sanderling.client.NotFoundException;
import io.sanderling.client.Reader;
import io.sanderling.client.SanderlingClient;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rpc.IsolatedThreadSafeRpcEndpoint;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.util.RpcUtils;
import scala.PartialFunction;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * Is a Spark application on a secured cluster, with an executor in a process of its own. The
 * driver's token holds for seconds and is replaced in its file, and calls to the driver fail.
 */
public final class ExecutorChecks {
    /** How long a token of the driver holds, and so one of an executor. */
    private static final long TOKEN_MILLIS = 20_000;

    private static final long REPLACED_MILLIS = 5_000;

    private static final int MAPS = 6;

    private ExecutorChecks() {
    }

    /** Runs the checks with the namenode, the folder of its keys, and the executors' class path. */
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        Path authorities = Paths.get(arguments[1], "ca.pem");
        // Over TCP, as an executor with a token reads.
        ClientOptions options = ClientOptions.create().withSameHost(false)
                .withCaFile(authorities).withTokenFile(Paths.get(arguments[1], "admin.token"));
        Path token = Files.createTempDirectory("sanderling-checks-").resolve("driver.token");
        ScheduledExecutorService replacing = Executors.newSingleThreadScheduledExecutor();
        try (SanderlingClient admin = SanderlingClient.connect(address, options)) {
            replace(admin, token);
            replacing.scheduleWithFixedDelay(() -> replace(admin, token),
                    REPLACED_MILLIS, REPLACED_MILLIS, TimeUnit.MILLISECONDS);
            SparkConf conf = new SparkConf()
                    .setMaster("local-cluster[1,1,1024]")
                    .setAppName("executor-checks")
                    .set("spark.ui.enabled", "false")
                    .set("spark.log.level", "WARN")
                    .set("spark.executor.memory", "1g")
                    .set("spark.executor.extraClassPath", arguments[2])
                    .set("spark.shuffle.manager", SanderlingShuffleManager.class.getName())
                    .set("spark.sanderling.address", address)
                    .set("spark.sanderling.ca.file", authorities.toString())
                    .set("spark.sanderling.token.file", token.toString());
            try (JavaSparkContext spark = new JavaSparkContext(conf)) {
                Endpoint endpoint = Endpoint.install();
                lossWithoutReport(spark, admin, endpoint);
                renewals(spark, endpoint);
            }
        } finally {
            replacing.shutdownNow();
            replacing.awaitTermination(1, TimeUnit.MINUTES);
            Files.deleteIfExists(token);
            Files.deleteIfExists(token.getParent());
        }
        System.out.println("CHECKED " + org.apache.spark.package$.MODULE$.SPARK_VERSION());
    }

    private static void replace(SanderlingClient admin, Path token) {
        try {
            String text = admin.token("/spark", TOKEN_MILLIS, "driver", "read", "write");
            Path next = token.resolveSibling("next.token");
            Files.write(next, text.getBytes(StandardCharsets.UTF_8));
            Files.move(next, token, StandardCopyOption.ATOMIC_MOVE,
                    StandardCopyOption.REPLACE_EXISTING);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** An output is lost and the driver takes no report of it: its map runs again, no other. */
    private static void lossWithoutReport(
            JavaSparkContext spark, SanderlingClient client, Endpoint endpoint) throws Exception {
        AtomicInteger maps = Checks.mapTasks(spark);
        JavaPairRDD<Integer, Iterable<byte[]>> groups = Checks.groups(spark, MAPS);
        Checks.check(groups.count() == 500, "keys before the loss");
        Checks.until("the map tasks", () -> maps.get() >= MAPS);
        maps.set(0);
        String root = "/spark/" + spark.sc().applicationId();
        String path = Checks.outputs(client, root, Checks.newest(client, root)).get(0);
        try (Reader reader = client.open(path)) {
            client.delete(path, false);
            Checks.until("the bytes are gone", () -> isGone(reader));
        }
        endpoint.failsReports = true;
        Checks.check(groups.count() == 500, "keys after the loss");
        endpoint.failsReports = false;
        Checks.check(endpoint.reports.get() > 0, "no report failed");
        Checks.until("a rerun", () -> maps.get() >= 1);
        Checks.check(maps.get() == 1, maps.get() + " maps ran again for one that was lost");
    }

    private static boolean isGone(Reader reader) {
        try (Buffer bytes = reader.readRange(0, reader.length())) {
            return false;
        } catch (NotFoundException | DataUnavailableException gone) {
            return true;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** A renewal fails, later ones do not: the executor works on behind its first tokens' ends. */
    private static void renewals(JavaSparkContext spark, Endpoint endpoint)
            throws InterruptedException {
        endpoint.failsRenewals = true;
        Checks.until("a renewal that fails", () -> endpoint.renewals.get() > 0);
        endpoint.failsRenewals = false;
        // Whatever token the executor has now has ended by then, and so has the driver's.
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TOKEN_MILLIS);
        int shuffles = 0;
        while (System.nanoTime() < end) {
            Checks.check(Checks.groups(spark, MAPS).count() == 500, "keys with renewed tokens");
            shuffles++;
            // Fewer outputs than the cluster has room for.
            Thread.sleep(1000);
        }
        Checks.check(Checks.groups(spark, MAPS).count() == 500, "keys after the tokens' ends");
        System.out.println("shuffles with renewed tokens: " + shuffles);
    }

    /** Answers executors in the place of the driver's endpoint; some calls fail. */
    private static final class Endpoint implements IsolatedThreadSafeRpcEndpoint {
        private final RpcEnv rpcEnv;
        private final DriverEndpoint whole;
        /** Calls that were made to fail. */
        private final AtomicInteger reports = new AtomicInteger();
        private final AtomicInteger renewals = new AtomicInteger();
        private volatile boolean failsReports;
        private volatile boolean failsRenewals;

        private Endpoint(RpcEnv rpcEnv, DriverEndpoint whole) {
            this.rpcEnv = rpcEnv;
            this.whole = whole;
        }

        static Endpoint install() {
            SparkEnv env = SparkEnv.get();
            RpcEnv rpcEnv = env.rpcEnv();
            Driver driver = SanderlingShuffleManager.current().driver();
            Endpoint endpoint = new Endpoint(rpcEnv, new DriverEndpoint(rpcEnv, driver));
            rpcEnv.stop(RpcUtils.makeDriverRef(DriverEndpoint.NAME, env.conf(), rpcEnv));
            rpcEnv.setupEndpoint(DriverEndpoint.NAME, endpoint);
            return endpoint;
        }

        @Override
        public RpcEnv rpcEnv() {
            return rpcEnv;
        }

        @Override
        public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
            PartialFunction<Object, BoxedUnit> answer = whole.receiveAndReply(context);
            return new AbstractPartialFunction<Object, BoxedUnit>() {
                @Override
                public boolean isDefinedAt(Object message) {
                    return answer.isDefinedAt(message);
                }

                @Override
                public BoxedUnit apply(Object message) {
                    boolean isReport = message instanceof Map;
                    if (!(isReport ? failsReports : failsRenewals)) {
                        return answer.apply(message);
                    }
                    (isReport ? reports : renewals).incrementAndGet();
                    context.sendFailure(new IOException("made to fail"));
                    return BoxedUnit.UNIT;
                }
            };
        }
    }
}
