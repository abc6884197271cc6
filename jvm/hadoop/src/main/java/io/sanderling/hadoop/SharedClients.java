package io.sanderling.hadoop;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

import io.sanderling.client.SanderlingClient;

/**
 * Holds one client for all file systems that connect in the same way. Hadoop makes file systems
 * freely, one for each FileContext and user, and never closes those of FileContext; the connections
 * must not grow with them.
 */
final class SharedClients {
    private static final Map<String, Shared> CLIENTS = new HashMap<>();

    private SharedClients() {
    }

    /**
     * Returns the client of the settings, connected at the first call.
     *
     * @throws IOException when it cannot connect
     */
    static SanderlingClient take(Settings settings) throws IOException {
        // One connects while the others wait: they would all wait for the same namenode.
        synchronized (CLIENTS) {
            Shared shared = CLIENTS.get(settings.clientKey);
            if (shared == null) {
                shared = new Shared(SanderlingClient.connect(settings.address, settings.client));
                CLIENTS.put(settings.clientKey, shared);
            }
            shared.users++;
            return shared.client;
        }
    }

    /** Closes the client when no file system uses it any more. */
    static void giveBack(Settings settings) {
        synchronized (CLIENTS) {
            Shared shared = CLIENTS.get(settings.clientKey);
            if (shared != null && --shared.users == 0) {
                CLIENTS.remove(settings.clientKey);
                shared.client.close();
            }
        }
    }

    private static final class Shared {
        private final SanderlingClient client;
        private int users;

        Shared(SanderlingClient client) {
            this.client = client;
        }
    }
}
