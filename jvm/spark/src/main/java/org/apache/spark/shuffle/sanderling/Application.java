package org.apache.spark.shuffle.sanderling;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Carries to an executor where the application's map outputs are, and its credentials.
 *
 * <p>It travels as a map of texts: an executor that got this jar with {@code --jars} cannot read
 * messages of its classes.
 */
final class Application {
    final String address;
    final String root;
    final long timeoutMillis;
    final boolean sameHost;
    final String storageClass;
    final String tlsName;
    /** A token for the application's subtree alone; empty where none is required. */
    final String token;
    /** For how long the token holds, by the driver's clock, when the driver sends it. */
    final long tokenMillis;
    /** The authorities whose certificates are believed, as PEM; empty without TLS. */
    final byte[] authorities;

    /** Makes an executor's message from the driver's settings. */
    Application(
            Settings settings, String root, String token, long tokenMillis, byte[] authorities) {
        this.address = settings.address;
        this.root = root;
        this.timeoutMillis = settings.timeoutMillis;
        this.sameHost = settings.sameHost;
        this.storageClass = settings.storageClass;
        this.tlsName = settings.tlsName;
        this.token = token;
        this.tokenMillis = tokenMillis;
        this.authorities = authorities;
    }

    /** Reads what {@link #message()} wrote. */
    Application(Map<?, ?> message) {
        this.address = text(message, "address");
        this.root = text(message, "root");
        this.timeoutMillis = Long.parseLong(text(message, "timeoutMillis"));
        this.sameHost = Boolean.parseBoolean(text(message, "sameHost"));
        this.storageClass = text(message, "storageClass");
        this.tlsName = text(message, "tlsName");
        this.token = text(message, "token");
        this.tokenMillis = Long.parseLong(text(message, "tokenMillis"));
        this.authorities = text(message, "authorities").getBytes(StandardCharsets.US_ASCII);
    }

    /** Returns what travels. */
    HashMap<String, String> message() {
        HashMap<String, String> message = new HashMap<>();
        message.put("address", address);
        message.put("root", root);
        message.put("timeoutMillis", Long.toString(timeoutMillis));
        message.put("sameHost", Boolean.toString(sameHost));
        message.put("storageClass", storageClass);
        message.put("tlsName", tlsName);
        message.put("token", token);
        message.put("tokenMillis", Long.toString(tokenMillis));
        message.put("authorities", new String(authorities, StandardCharsets.US_ASCII));
        return message;
    }

    /** Hides the token. */
    @Override
    public String toString() {
        return "Application(" + address + root + ')';
    }

    private static String text(Map<?, ?> message, String key) {
        Object text = message.get(key);
        if (text == null) {
            throw new IllegalStateException("the driver runs another version of Sanderling's"
                    + " shuffle manager, without " + key + ": use the same jar everywhere");
        }
        return text.toString();
    }
}
