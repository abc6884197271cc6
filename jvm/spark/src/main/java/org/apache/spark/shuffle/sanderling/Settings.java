package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.ClientOptions;
import io.sanderling.client.ClusterAddress;
import java.io.IOException;
import java.nio.file.Paths;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;

/** Holds what the user configured, read once. */
final class Settings {
    static final String ADDRESS = "spark.sanderling.address";
    static final String ROOT = "spark.sanderling.root";
    static final String LEASE = "spark.sanderling.lease";
    static final String TIMEOUT = "spark.sanderling.timeout";
    static final String TOKEN = "spark.sanderling.token";
    static final String TOKEN_FILE = "spark.sanderling.token.file";
    static final String CA_FILE = "spark.sanderling.ca.file";
    static final String TLS_NAME = "spark.sanderling.tls.name";
    static final String SAME_HOST = "spark.sanderling.sameHost";
    static final String STORAGE_CLASS = "spark.sanderling.storageClass";
    static final String DATA_IO = "spark.shuffle.sort.io.plugin.class";

    private static final Pattern VERSION = Pattern.compile("(\\d+)\\.(\\d+).*");

    final String address;
    final String root;
    final long leaseMillis;
    final long timeoutMillis;
    final String token;
    final String tokenFile;
    final String caFile;
    final String tlsName;
    final boolean sameHost;
    final String storageClass;
    /** How to connect; null before the cluster was found. */
    final ClientOptions options;

    Settings(SparkConf conf) {
        address = conf.get(ADDRESS, "");
        root = trimmed(conf.get(ROOT, "/spark"));
        // Long enough for a pause of the driver, short enough that the memory is not missed.
        leaseMillis = conf.getTimeAsMs(LEASE, "2m");
        // A restart of the namenode must not use up the attempts of a task.
        timeoutMillis = conf.getTimeAsMs(TIMEOUT, "60s");
        token = conf.get(TOKEN, "");
        tokenFile = conf.get(TOKEN_FILE, "");
        caFile = conf.get(CA_FILE, "");
        tlsName = conf.get(TLS_NAME, "");
        sameHost = conf.getBoolean(SAME_HOST, true);
        storageClass = conf.get(STORAGE_CLASS, "");
        options = null;
    }

    private Settings(Settings settings, ClusterAddress found) {
        address = found.address();
        options = found.options();
        root = settings.root;
        leaseMillis = settings.leaseMillis;
        timeoutMillis = settings.timeoutMillis;
        token = settings.token;
        tokenFile = settings.tokenFile;
        caFile = options.caFile();
        tlsName = options.tlsName();
        sameHost = settings.sameHost;
        storageClass = settings.storageClass;
    }

    /**
     * Returns the same settings with the cluster's address and credentials: those that are set, or
     * else those of the environment, of the current context, or 127.0.0.1:7600.
     *
     * @throws IOException when the address or the file of contexts is wrong
     */
    Settings found() throws IOException {
        ClientOptions made = ClientOptions.create()
                .withTimeoutMillis(timeoutMillis)
                .withSameHost(sameHost);
        made = token.isEmpty() ? made : made.withToken(token);
        made = tokenFile.isEmpty() ? made : made.withTokenFile(Paths.get(tokenFile));
        made = caFile.isEmpty() ? made : made.withCaFile(Paths.get(caFile));
        made = tlsName.isEmpty() ? made : made.withTlsName(tlsName);
        return new Settings(this, ClusterAddress.resolve(address, made));
    }

    /** Returns why an application with this configuration cannot start, or null when it can. */
    String refusal(SparkConf conf, String sparkVersion) {
        if (!isSupported(sparkVersion)) {
            return "Spark " + sparkVersion + " is not supported by Sanderling's shuffle manager:"
                    + " use Spark 3.5, or 4.0 to 4.3";
        }
        if (conf.getBoolean("spark.shuffle.service.enabled", false)) {
            return "spark.shuffle.service.enabled contradicts Sanderling's shuffle manager, whose"
                    + " data outlives executors without a service: set it to false";
        }
        if (conf.getBoolean("spark.shuffle.push.enabled", false)) {
            return "spark.shuffle.push.enabled contradicts Sanderling's shuffle manager, which has"
                    + " nothing to push: set it to false";
        }
        if (conf.getBoolean("spark.shuffle.useOldFetchProtocol", false)) {
            return "spark.shuffle.useOldFetchProtocol contradicts Sanderling's shuffle manager,"
                    + " which tells the attempts at a map apart: set it to false";
        }
        String plugin = conf.get(DATA_IO, SanderlingDataIO.class.getName());
        if (!plugin.equals(SanderlingDataIO.class.getName())) {
            return DATA_IO + " is " + plugin + ", but Sanderling's shuffle manager brings its own:"
                    + " leave it out";
        }
        if (!token.isEmpty() && !tokenFile.isEmpty()) {
            return TOKEN + " and " + TOKEN_FILE + " are both set: leave one out";
        }
        if (leaseMillis < 1000) {
            return LEASE + " is " + leaseMillis + " ms: set it to one second or more";
        }
        return timeoutMillis > 0 ? null : TIMEOUT + " is not positive: set it to 60s, say";
    }

    private static boolean isSupported(String sparkVersion) {
        Matcher version = VERSION.matcher(sparkVersion);
        if (!version.matches()) {
            return false;
        }
        int major = Integer.parseInt(version.group(1));
        int minor = Integer.parseInt(version.group(2));
        return major == 3 && minor == 5 || major == 4 && minor <= 3;
    }

    private static String trimmed(String path) {
        String slashed = path.startsWith("/") ? path : '/' + path;
        return slashed.endsWith("/") ? slashed.substring(0, slashed.length() - 1) : slashed;
    }
}
