package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.ClientOptions;
import io.sanderling.client.PutOptions;
import io.sanderling.client.SanderlingClient;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.spark.SparkEnv;

/** Holds this process's way to the store: a client, the application's subtree, buffers. */
final class Store implements AutoCloseable {
    /** One block of the store: what is shorter is written with one call. */
    static final int BUFFER_BYTES = 1 << 20;

    /** Free buffers that are kept: one for each task of an executor of usual size. */
    private static final int BUFFERS_MAX = 16;

    private final SanderlingClient client;
    private final String root;
    private final PutOptions options;
    private final Credentials credentials;
    private final ConcurrentLinkedQueue<ByteBuffer> buffers = new ConcurrentLinkedQueue<>();

    /** Makes a store that closes the client, and the credentials if there are any. */
    Store(SanderlingClient client, String root, String storageClass, Credentials credentials) {
        this.client = client;
        this.root = root;
        this.credentials = credentials;
        PutOptions options = PutOptions.create();
        this.options = storageClass.isEmpty() ? options : options.withStorageClass(storageClass);
    }

    /** Connects an executor with the driver's message. */
    static Store connect(Application application, Credentials credentials) throws IOException {
        ClientOptions options = ClientOptions.create()
                .withTimeoutMillis(application.timeoutMillis)
                .withSameHost(application.sameHost);
        if (!application.tlsName.isEmpty()) {
            options = options.withTlsName(application.tlsName);
        }
        try {
            SanderlingClient client =
                    SanderlingClient.connect(application.address, credentials.of(options));
            return new Store(client, application.root, application.storageClass, credentials);
        } catch (IOException | RuntimeException error) {
            credentials.close();
            throw error;
        }
    }

    /** Shows what the client counts among Spark's metrics of this process. */
    void show() {
        SparkEnv.get().metricsSystem().registerSource(new ClientSource(client));
    }

    SanderlingClient client() {
        return client;
    }

    String root() {
        return root;
    }

    /** Returns how a map output is created: with what it took to make it, and for which stage. */
    PutOptions options(long recomputeMillis, String stage) {
        return options.withRecomputeMillis(recomputeMillis)
                .withAttributes(Collections.singletonMap("spark.stage", stage));
    }

    /** Lends an empty direct buffer of {@link #BUFFER_BYTES}. */
    ByteBuffer lend() {
        ByteBuffer buffer = buffers.poll();
        return buffer == null ? ByteBuffer.allocateDirect(BUFFER_BYTES) : buffer;
    }

    /** Takes a buffer back. */
    void giveBack(ByteBuffer buffer) {
        if (buffers.size() < BUFFERS_MAX) {
            buffer.clear();
            buffers.offer(buffer);
        }
    }

    @Override
    public void close() {
        client.close();
        if (credentials != null) {
            credentials.close();
        }
    }
}
