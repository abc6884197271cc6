package io.sanderling.client;

import java.nio.file.Path;
import java.util.Objects;

/** Holds connection options. Immutable: each {@code with} method returns other options. */
public final class ClientOptions {
    /** As in the native client: longer than the namenode needs to declare a silent node dead. */
    private static final long TIMEOUT_MILLIS = 10_000;

    private static final ClientOptions DEFAULT =
            new ClientOptions(TIMEOUT_MILLIS, "", "", "", "", true, "");

    private final long timeoutMillis;
    private final String token;
    private final String tokenFile;
    private final String caFile;
    private final String tlsName;
    private final boolean sameHost;
    private final String context;

    private ClientOptions(
            long timeoutMillis,
            String token,
            String tokenFile,
            String caFile,
            String tlsName,
            boolean sameHost,
            String context) {
        this.timeoutMillis = timeoutMillis;
        this.token = token;
        this.tokenFile = tokenFile;
        this.caFile = caFile;
        this.tlsName = tlsName;
        this.sameHost = sameHost;
        this.context = context;
    }

    /** Returns the options without a token and without TLS. */
    public static ClientOptions create() {
        return DEFAULT;
    }

    /**
     * Sets how many milliseconds a call may take, whatever is tried meanwhile.
     *
     * @throws IllegalArgumentException when it is not positive
     */
    public ClientOptions withTimeoutMillis(long millis) {
        if (millis <= 0) {
            throw new IllegalArgumentException("timeoutMillis is not positive: " + millis);
        }
        return new ClientOptions(millis, token, tokenFile, caFile, tlsName, sameHost, context);
    }

    /** Sets the token to show. */
    public ClientOptions withToken(String token) {
        Objects.requireNonNull(token, "token");
        return new ClientOptions(timeoutMillis, token, "", caFile, tlsName, sameHost, context);
    }

    /** Sets the file that has the token to show; it is read again when a connection is made. */
    public ClientOptions withTokenFile(Path file) {
        return new ClientOptions(
                timeoutMillis, "", file.toString(), caFile, tlsName, sameHost, context);
    }

    /** Sets the PEM file of the authorities whose certificates are believed: TLS is spoken then. */
    public ClientOptions withCaFile(Path file) {
        return new ClientOptions(
                timeoutMillis, token, tokenFile, file.toString(), tlsName, sameHost, context);
    }

    /** Sets the name that the cluster's certificates are made for; {@code sanderling} otherwise. */
    public ClientOptions withTlsName(String name) {
        Objects.requireNonNull(name, "name");
        return new ClientOptions(timeoutMillis, token, tokenFile, caFile, name, sameHost, context);
    }

    /** Sets whether datanodes of the same machine are read in their memory; default true. */
    public ClientOptions withSameHost(boolean sameHost) {
        return new ClientOptions(
                timeoutMillis, token, tokenFile, caFile, tlsName, sameHost, context);
    }

    /**
     * Sets the context whose cluster is connected to, as {@code sanderling context add} set it;
     * the address is empty then.
     */
    public ClientOptions withContext(String name) {
        Objects.requireNonNull(name, "name");
        return new ClientOptions(
                timeoutMillis, token, tokenFile, caFile, tlsName, sameHost, name);
    }

    /** Returns the file that has the token to show, or an empty text. */
    public String tokenFile() {
        return tokenFile;
    }

    /** Returns whether there is a token or a file that has it. */
    public boolean hasToken() {
        return !token.isEmpty() || !tokenFile.isEmpty();
    }

    /** Returns the PEM file of the authorities, or an empty text without TLS. */
    public String caFile() {
        return caFile;
    }

    /** Returns the name that the certificates are made for, or an empty text for the default. */
    public String tlsName() {
        return tlsName;
    }

    /** Returns the same options for a cluster that was found, with its credentials. */
    ClientOptions found(Decoder facts) {
        return new ClientOptions(timeoutMillis, facts.text(), facts.text(), facts.text(),
                facts.text(), sameHost, "");
    }

    byte[] explicit(String address) {
        return new Encoder()
                .text("address", address)
                .text("context", context)
                .text("token", token)
                .text("tokenFile", tokenFile)
                .text("caFile", caFile)
                .text("tlsName", tlsName)
                .encoded();
    }

    /** Returns how many milliseconds a call may take. */
    public long timeoutMillis() {
        return timeoutMillis;
    }

    byte[] facts(String address) {
        return new Encoder()
                .text("address", address)
                .number(timeoutMillis)
                .text("token", token)
                .text("tokenFile", tokenFile)
                .text("caFile", caFile)
                .text("tlsName", tlsName)
                .flag(sameHost)
                .encoded();
    }

    /** Hides the token. */
    @Override
    public String toString() {
        return "ClientOptions(timeoutMillis=" + timeoutMillis + ", caFile=" + caFile + ")";
    }
}
