package io.sanderling.hadoop;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;

import org.apache.hadoop.conf.Configuration;

import io.sanderling.client.BadRequestException;
import io.sanderling.client.ClientOptions;
import io.sanderling.client.ClusterAddress;

/**
 * Holds the values of {@code fs.sanderling.*}, read once. Unknown keys and bad values are refused:
 * a misspelt key must not silently do nothing.
 */
final class Settings {
    private static final String PREFIX = "fs.sanderling.";

    /** The namenode, {@code host:port} or {@code host}, of URIs that name none. */
    static final String ADDRESS = PREFIX + "address";
    /** The context, as {@code sanderling context add} set it, of URIs that name no namenode. */
    static final String CONTEXT = PREFIX + "context";
    /** The token to show; looked for in Hadoop's credential providers too. */
    static final String TOKEN = PREFIX + "token";
    /** The file with the token to show, read again for every connection. */
    static final String TOKEN_FILE = PREFIX + "token.file";
    /** The PEM file of the authorities that are believed; TLS is spoken with it. */
    static final String TLS_CA = PREFIX + "tls.ca";
    /** The name that the cluster's certificates are made for. */
    static final String TLS_NAME = PREFIX + "tls.name";
    /** How long a call may take, whatever is tried meanwhile. */
    static final String TIMEOUT = PREFIX + "timeout";
    /** Whether datanodes of the same machine are read in their memory. */
    static final String SAME_HOST = PREFIX + "same.host";
    /** The block size that is reported to Hadoop, which is how it cuts files into splits. */
    static final String BLOCK_SIZE = PREFIX + "block.size";
    /** How many bytes are fetched ahead of a sequential reader. */
    static final String READ_AHEAD = PREFIX + "read.ahead";
    /** How long files that are created here live, unless the creator sets it. */
    static final String TTL = PREFIX + "ttl";
    /** Where the bytes of files that are created here go, unless the creator sets it. */
    static final String STORAGE_CLASS = PREFIX + "storage.class";

    private static final SortedSet<String> OURS = Collections.unmodifiableSortedSet(
            new TreeSet<>(Arrays.asList(ADDRESS, CONTEXT, TOKEN, TOKEN_FILE, TLS_CA, TLS_NAME,
                    TIMEOUT, SAME_HOST, BLOCK_SIZE, READ_AHEAD, TTL, STORAGE_CLASS)));

    /** What Hadoop itself reads of every file system. */
    private static final SortedSet<String> HADOOPS = Collections.unmodifiableSortedSet(
            new TreeSet<>(Arrays.asList(PREFIX + "impl", PREFIX + "impl.disable.cache")));

    /**
     * As in HDFS: splits of that size keep a task busy for a second. The store's own blocks of at
     * most 1 MiB would make a task of each.
     */
    private static final long BLOCK_BYTES = 128L << 20;

    /** Four of the store's blocks, from four datanodes at once where they lie so. */
    private static final int READ_AHEAD_BYTES = 4 << 20;

    /** A reader holds two such pieces of native memory, and a task many readers. */
    private static final int READ_AHEAD_BYTES_MAX = 256 << 20;

    final String address;
    final ClientOptions client;
    /** The key of a shared client: all settings of its connection. */
    final String clientKey;
    final long blockBytes;
    final int readAheadBytes;
    final long ttlMillis;
    final String storageClass;

    private Settings(URI uri, Configuration conf) throws IOException {
        refuseUnknown(conf);
        long timeout = millis(conf, TIMEOUT, ClientOptions.create().timeoutMillis());
        if (timeout < 1) {
            throw wrong(TIMEOUT, conf.get(TIMEOUT), "a positive duration, such as 10s");
        }
        String token = secret(conf);
        String tokenFile = conf.getTrimmed(TOKEN_FILE, "");
        if (!token.isEmpty() && !tokenFile.isEmpty()) {
            throw new IOException("set " + TOKEN + " or " + TOKEN_FILE + ", not both");
        }
        String authority = conf.getTrimmed(TLS_CA, "");
        String tlsName = conf.getTrimmed(TLS_NAME, "");
        boolean sameHost = flag(conf, SAME_HOST, true);
        ClientOptions made = ClientOptions.create()
                .withTimeoutMillis(timeout).withSameHost(sameHost);
        made = token.isEmpty() ? made : made.withToken(token);
        made = tokenFile.isEmpty() ? made : made.withTokenFile(Paths.get(tokenFile));
        made = authority.isEmpty() ? made : made.withCaFile(Paths.get(authority));
        made = tlsName.isEmpty() ? made : made.withTlsName(tlsName);
        ClusterAddress found = cluster(uri, conf, made);
        address = found.address();
        client = found.options();
        clientKey = String.join("\n", address, Long.toString(timeout), token, tokenFile,
                authority, tlsName, Boolean.toString(sameHost), found.context());
        blockBytes = bytes(conf, BLOCK_SIZE, BLOCK_BYTES, Long.MAX_VALUE);
        readAheadBytes = (int) bytes(conf, READ_AHEAD, READ_AHEAD_BYTES, READ_AHEAD_BYTES_MAX);
        ttlMillis = millis(conf, TTL, -1);
        storageClass = conf.getTrimmed(STORAGE_CLASS, "");
    }

    /**
     * Reads the settings of a URI.
     *
     * @throws IOException with one sentence that names the key and what it may be
     */
    static Settings of(URI uri, Configuration conf) throws IOException {
        return new Settings(uri, conf);
    }

    private static void refuseUnknown(Configuration conf) throws IOException {
        for (Map.Entry<String, String> entry : conf.getPropsWithPrefix(PREFIX).entrySet()) {
            String key = PREFIX + entry.getKey();
            if (!OURS.contains(key) && !HADOOPS.contains(key)) {
                throw new IOException("unknown configuration key " + key + ": the known ones are "
                        + String.join(", ", OURS));
            }
        }
    }

    /** Returns the cluster of a URI, or of the configuration when the URI names none. */
    private static ClusterAddress cluster(URI uri, Configuration conf, ClientOptions made)
            throws IOException {
        if (uri.getUserInfo() != null) {
            throw new IOException(uri.getHost() + ": a user in the URI is not used; the token says"
                    + " who calls, see " + TOKEN_FILE);
        }
        String authority = uri.getAuthority();
        String configured = conf.getTrimmed(ADDRESS, "");
        ClientOptions options = made;
        if (authority == null) {
            options = made.withContext(conf.getTrimmed(CONTEXT, ""));
        }
        try {
            return ClusterAddress.resolve(authority == null ? configured : authority, options);
        } catch (BadRequestException e) {
            String source = authority != null ? uri.toString() : ADDRESS + " or " + CONTEXT;
            throw new IOException(source + ": " + e.getMessage(), e);
        }
    }

    private static String secret(Configuration conf) throws IOException {
        char[] token = conf.getPassword(TOKEN);
        return token == null ? "" : new String(token).trim();
    }

    private static boolean flag(Configuration conf, String key, boolean otherwise)
            throws IOException {
        String text = conf.getTrimmed(key, Boolean.toString(otherwise));
        if (!text.equals("true") && !text.equals("false")) {
            throw wrong(key, text, "true or false");
        }
        return text.equals("true");
    }

    private static long bytes(Configuration conf, String key, long otherwise, long max)
            throws IOException {
        try {
            long bytes = conf.getLongBytes(key, otherwise);
            if (bytes > 0 && bytes <= max) {
                return bytes;
            }
        } catch (IllegalArgumentException e) {
            // Thrown below.
        }
        String most = max == Long.MAX_VALUE ? "" : ", at most " + max;
        throw wrong(key, conf.get(key), "a positive number of bytes, such as 4m" + most);
    }

    private static long millis(Configuration conf, String key, long otherwise)
            throws IOException {
        if (conf.getTrimmed(key, "").isEmpty()) {
            return otherwise;
        }
        try {
            long millis = conf.getTimeDuration(key, otherwise, TimeUnit.MILLISECONDS);
            if (millis > 0) {
                return millis;
            }
        } catch (IllegalArgumentException e) {
            // Thrown below.
        }
        throw wrong(key, conf.get(key), "a positive duration, such as 10s");
    }

    private static IOException wrong(String key, String value, String wanted) {
        return new IOException(key + " is '" + value + "': it must be " + wanted);
    }
}
