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
    /** Tokens hold a day, or as long as the driver's own. */
    private static final long RENEWAL_MINUTES = 60;

    private final Store store;
    private ScheduledExecutorService renewal;

    Executor(SparkConf conf) throws IOException {
        Application application = application(conf);
        Credentials credentials = new Credentials(application);
        this.store = Store.connect(application, credentials);
        store.show();
        if (credentials.hasToken()) {
            renewal = Executors.newSingleThreadScheduledExecutor(work -> {
                Thread thread = new Thread(work, "sanderling-token");
                thread.setDaemon(true);
                return thread;
            });
            renewal.scheduleWithFixedDelay(
                    () -> renew(conf, credentials),
                    RENEWAL_MINUTES, RENEWAL_MINUTES, TimeUnit.MINUTES);
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

    private static void renew(SparkConf conf, Credentials credentials) {
        try {
            credentials.renew(application(conf));
        } catch (IOException | RuntimeException error) {
            Log.LOG.warn("the token was not renewed, which is tried again in an hour: {}",
                    error.getMessage());
        }
    }

    private static <T> T call(SparkConf conf, Object message, Class<T> kind) {
        RpcEndpointRef driver =
                RpcUtils.makeDriverRef(DriverEndpoint.NAME, conf, SparkEnv.get().rpcEnv());
        ClassTag<T> tag = ClassTag$.MODULE$.apply(kind);
        return driver.askSync(message, tag);
    }
}
