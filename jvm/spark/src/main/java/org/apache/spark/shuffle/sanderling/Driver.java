package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.BadRequestException;
import io.sanderling.client.Job;
import io.sanderling.client.JobRequest;
import io.sanderling.client.NotFoundException;
import io.sanderling.client.ObjectStat;
import io.sanderling.client.SanderlingClient;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.package$;
import org.apache.spark.rpc.RpcEndpointRef;

/** Is the driver's half of the manager: owns the application's subtree, forgets what is lost. */
final class Driver implements AutoCloseable {
    /** Attempts of one application whose subtrees lie side by side. */
    private static final int ATTEMPTS_MAX = 100;

    /** Life of an executor's token: a day, or as long as the driver's own holds. */
    private static final long TOKEN_MILLIS = 24L * 60 * 60 * 1000;

    private final Settings settings;
    private final CannotStartException refusal;
    private final SanderlingClient client;
    private final ExecutorService cleaner;
    private final KnownLosses known = new KnownLosses();
    private volatile Store store;
    private volatile Job job;
    private RpcEndpointRef endpoint;

    private Driver(Settings settings, SanderlingClient client, CannotStartException refusal) {
        this.settings = settings;
        this.client = client;
        this.refusal = refusal;
        this.cleaner = Executors.newSingleThreadExecutor(work -> {
            Thread thread = new Thread(work, "sanderling-cleaner");
            thread.setDaemon(true);
            return thread;
        });
    }

    /** Connects, or keeps why not for {@link #begin}. */
    static Driver of(SparkConf conf) {
        Settings settings = null;
        try {
            settings = new Settings(conf);
            String sentence = settings.refusal(conf, package$.MODULE$.SPARK_VERSION());
            if (sentence != null) {
                return new Driver(settings, null, new CannotStartException(sentence, null));
            }
            settings = settings.found();
            Driver driver = new Driver(settings,
                    SanderlingClient.connect(settings.address, settings.options), null);
            // Executors get a narrower one, and neither they nor any page is to see this one.
            conf.remove(Settings.TOKEN);
            return driver;
        } catch (IOException | IllegalArgumentException | LinkageError error) {
            String why = settings == null || settings.options == null
                    ? error.getMessage()
                    : "Sanderling at " + settings.address + " cannot be used: "
                            + String.valueOf(error.getMessage())
                                    .replace("--tls-ca", Settings.CA_FILE);
            return new Driver(settings, null, new CannotStartException(why, error));
        }
    }

    /**
     * Begins the application's job and answers executors from now on.
     *
     * @throws CannotStartException with the reason in one sentence
     */
    void begin() {
        if (refusal != null) {
            throw refusal;
        }
        SparkEnv env = SparkEnv.get();
        String path = settings.root + '/' + env.conf().getAppId();
        try {
            job = beginJob(path);
        } catch (IOException error) {
            throw new CannotStartException("Sanderling at " + settings.address
                    + " does not let the application have " + path + ": " + error.getMessage(),
                    error);
        }
        store = new Store(client, job.path(), settings.storageClass, null);
        store.show();
        endpoint = env.rpcEnv().setupEndpoint(
                DriverEndpoint.NAME, new DriverEndpoint(env.rpcEnv(), this));
        Log.LOG.info("map outputs go to Sanderling at {}, below {}", settings.address, job.path());
    }

    /** Ends the application's job: its subtree goes. */
    void end() {
        if (endpoint != null) {
            SparkEnv.get().rpcEnv().stop(endpoint);
            endpoint = null;
        }
        if (job != null) {
            try {
                job.end();
            } catch (IOException error) {
                Log.LOG.warn("{} goes when its lease ends: {}", job.path(), error.getMessage());
            }
            job = null;
        }
    }

    /**
     * Returns the way to the store.
     *
     * @throws IllegalStateException before the application has begun
     */
    Store store() {
        if (store == null) {
            throw new IllegalStateException("the application has not begun");
        }
        return store;
    }

    /** Returns the executors' message: it has a token for the application's subtree alone. */
    Application application() throws IOException {
        String token = settings.options.hasToken() ? token() : "";
        long tokenMillis = Renewal.millisLeft(token, System.currentTimeMillis());
        byte[] authorities =
                settings.caFile.isEmpty() ? new byte[0] : Files.readAllBytes(file(settings.caFile));
        return new Application(settings, job.path(), token, tokenMillis, authorities);
    }

    void makeDirectory(int shuffleId) {
        String directory = MapNames.directory(store().root(), shuffleId);
        try {
            client.makeDirectory(directory, false);
        } catch (IOException error) {
            throw new IllegalStateException("shuffle " + shuffleId
                    + " has no place in Sanderling: " + error.getMessage(), error);
        }
    }

    void removeDirectory(int shuffleId, boolean blocking) {
        String directory = MapNames.directory(store().root(), shuffleId);
        if (blocking) {
            remove(directory);
        } else {
            cleaner.execute(() -> remove(directory));
        }
    }

    /**
     * Forgets outputs that a reader could not read, and with them all others of the application
     * that the store reports as lost, so that one more attempt at a stage computes all of them.
     * Readers that report one after the other what one look has found cause no second.
     */
    synchronized void forget(LostMaps lost) {
        for (int at = 0; at < lost.count(); at++) {
            forget(lost.shuffleId, lost.mapIndex(at), lost.mapId(at));
        }
        if (known.hasAll(lost)) {
            return;
        }
        Log.LOG.warn("{} outputs of shuffle {} cannot be read; those that are lost are computed"
                + " again", lost.count(), lost.shuffleId);
        try {
            String root = store().root();
            List<LostMaps> found = new ArrayList<>(Collections.singletonList(lost));
            for (ObjectStat directory : client.list(root)) {
                int shuffleId = MapNames.shuffleOf(directory.name());
                if (shuffleId >= 0) {
                    found.add(forgetLost(shuffleId, MapNames.directory(root, shuffleId)));
                }
            }
            found.forEach(known::addAll);
        } catch (IOException error) {
            Log.LOG.warn("other lost outputs than the {} reported stay unknown: {}", lost.count(),
                    error.getMessage());
        }
    }

    @Override
    public void close() {
        cleaner.shutdownNow();
        end();
        if (client != null) {
            client.close();
        }
    }

    /**
     * Returns a token for the application's subtree. When the driver's own is in a file, a new
     * connection requests it: that shows the file's present token, and older connections show one
     * that may end sooner, as the executor's then would.
     */
    private String token() throws IOException {
        if (settings.options.tokenFile().isEmpty()) {
            return job.token("read", "write");
        }
        try (SanderlingClient now =
                SanderlingClient.connect(settings.address, settings.options)) {
            return now.token(job.path(), TOKEN_MILLIS, "job " + job.id(), "read", "write");
        }
    }

    private LostMaps forgetLost(int shuffleId, String directory) throws IOException {
        LostMaps lost = new LostMaps(shuffleId);
        try {
            for (ObjectStat object : client.list(directory)) {
                int mapIndex = MapNames.mapIndexOf(object.name());
                if (object.lostBytes() > 0 && mapIndex >= 0) {
                    long mapId = MapNames.mapIdOf(object.name());
                    forget(shuffleId, mapIndex, mapId);
                    lost.add(mapIndex, mapId);
                }
            }
        } catch (NotFoundException error) {
            Log.LOG.debug("shuffle {} was removed meanwhile", shuffleId);
        }
        return lost;
    }

    private static void forget(int shuffleId, int mapIndex, long mapId) {
        MapOutputTrackerMaster tracker =
                (MapOutputTrackerMaster) SparkEnv.get().mapOutputTracker();
        if (!tracker.containsShuffle(shuffleId)) {
            return;
        }
        Log.LOG.debug("map {} of shuffle {} (task {}) is lost", mapIndex, shuffleId, mapId);
        // Does nothing when another attempt's output has taken the place since.
        tracker.unregisterMapOutput(shuffleId, mapIndex, MapNames.location(shuffleId, mapId));
    }

    private void remove(String directory) {
        try {
            client.delete(directory, true);
        } catch (NotFoundException error) {
            Log.LOG.debug("{} was gone", directory);
        } catch (IOException error) {
            Log.LOG.warn("{} stays until the application ends: {}", directory, error.getMessage());
        }
    }

    private Job beginJob(String path) throws IOException {
        JobRequest request = JobRequest.create(path).withLeaseMillis(settings.leaseMillis);
        for (int attempt = 2; ; attempt++) {
            try {
                return client.beginJob(request);
            } catch (BadRequestException taken) {
                // An earlier attempt at the application, whose lease has not ended.
                if (!taken.name().equals("WrongKind") || attempt > ATTEMPTS_MAX) {
                    throw taken;
                }
                request = JobRequest.create(path + '.' + attempt)
                        .withLeaseMillis(settings.leaseMillis);
            }
        }
    }

    private static Path file(String name) {
        return Paths.get(name);
    }
}
