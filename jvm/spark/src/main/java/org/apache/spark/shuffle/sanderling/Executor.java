package org.apache.spark.shuffle.sanderling;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.util.RpcUtils;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/** Is the executor's half of the manager: connects to the cluster that the driver names. */
final class Executor implements AutoCloseable {
    private final SparkConf conf;
    private final Credentials credentials;
    private final Store store;
    /** Null without a token. */
    private final ScheduledExecutorService renewal;
    /** When the token ends, by {@link System#nanoTime()}. */
    private long tokenEnd;

    Executor(SparkConf conf) throws IOException {
        Application application = application(conf);
        this.conf = conf;
        this.credentials = new Credentials(application);
        this.store = Store.connect(application, credentials);
        store.show();
        this.renewal = credentials.hasToken() ? renewal() : null;
        if (renewal != null) {
            tokenEnd = end(application);
            renewLater(Renewal.afterSuccess(application.tokenMillis));
        }
    }

    /** Reports unreadable outputs to the driver, and returns when it has removed them. */
    static void report(SparkConf conf, LostMaps lost) {
        call(conf, lost.message(), Boolean.class);
    }

    Store store() {
        return store;
    }

    @Override
    public void close() {
        if (renewal != null) {
            renewal.shutdownNow();
        }
        store.close();
    }

    private static Application application(SparkConf conf) {
        return new Application(call(conf, DriverEndpoint.LOCATE, Map.class));
    }

    private static ScheduledExecutorService renewal() {
        return Executors.newSingleThreadScheduledExecutor(work -> {
            Thread thread = new Thread(work, "sanderling-token");
            thread.setDaemon(true);
            return thread;
        });
    }

    private static long end(Application application) {
        // Ten years are no end, and fit into a number of nanoseconds.
        long millis = Math.min(application.tokenMillis, TimeUnit.DAYS.toMillis(3650));
        return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    }

    private long millisLeft() {
        return Math.max(0, TimeUnit.NANOSECONDS.toMillis(tokenEnd - System.nanoTime()));
    }

    private void renewLater(long millis) {
        renewal.schedule(this::renew, millis, TimeUnit.MILLISECONDS);
    }

    /** Renews the token, and in any case sees to it that the next renewal comes. */
    private void renew() {
        long next = Renewal.RETRY_MILLIS_MAX;
        try {
            Application application = application(conf);
            credentials.renew(application);
            tokenEnd = end(application);
            next = Renewal.afterSuccess(application.tokenMillis);
        } catch (Exception error) {
            // Spark's RPC throws checked exceptions that its Scala interface does not declare.
            if (error instanceof InterruptedException) {
                Thread.currentThread().interrupt();
            }
            next = Renewal.afterFailure(millisLeft());
            Log.LOG.warn("the token, which ends in {} s, was not renewed; that is tried again in"
                    + " {} s: {}", millisLeft() / 1000, next / 1000, String.valueOf(error));
        } finally {
            if (!renewal.isShutdown()) {
                renewLater(next);
            }
        }
    }

    private static <T> T call(SparkConf conf, Object message, Class<T> kind) {
        RpcEndpointRef driver =
                RpcUtils.makeDriverRef(DriverEndpoint.NAME, conf, SparkEnv.get().rpcEnv());
        ClassTag<T> tag = ClassTag$.MODULE$.apply(kind);
        return driver.askSync(message, tag);
    }
}
