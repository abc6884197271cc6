package io.sanderling.client;

import java.nio.file.Path;
import java.util.Objects;

/** Holds connection options. Immutable: each {@code with} method returns other options. */
public final class ClientOptions {
    /** As in the native client: longer than the namenode needs to declare a silent node dead. */
    private static final long TIMEOUT_MILLIS = 10_000;

    private static final ClientOptions DEFAULT =
            new ClientOptions(TIMEOUT_MILLIS, "", "", "", "", true, "", "");

    private final long timeoutMillis;
    private final String token;
    private final String tokenFile;
    private final String caFile;
    private final String tlsName;
    private final boolean sameHost;
    private final String context;
    private final String collector;

    private ClientOptions(
            long timeoutMillis,
            String token,
            String tokenFile,
            String caFile,
            String tlsName,
            boolean sameHost,
            String context,
            String collector) {
        this.timeoutMillis = timeoutMillis;
        this.token = token;
        this.tokenFile = tokenFile;
        this.caFile = caFile;
        this.tlsName = tlsName;
        this.sameHost = sameHost;
        this.context = context;
        this.collector = collector;
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
        return new ClientOptions(
                millis, token, tokenFile, caFile, tlsName, sameHost, context, collector);
    }

    /** Sets the token to show. */
    public ClientOptions withToken(String token) {
        Objects.requireNonNull(token, "token");
        return new ClientOptions(
                timeoutMillis, token, "", caFile, tlsName, sameHost, context, collector);
    }

    /** Sets the file that has the token to show; it is read again when a connection is made. */
    public ClientOptions withTokenFile(Path file) {
        return new ClientOptions(
                timeoutMillis, "", file.toString(), caFile, tlsName, sameHost, context, collector);
    }

    /** Sets the PEM file of the authorities whose certificates are believed: TLS is spoken then. */
    public ClientOptions withCaFile(Path file) {
        return new ClientOptions(
                timeoutMillis, token, tokenFile, file.toString(), tlsName, sameHost, context,
                collector);
    }

    /** Sets the name that the cluster's certificates are made for; {@code sanderling} otherwise. */
    public ClientOptions withTlsName(String name) {
        Objects.requireNonNull(name, "name");
        return new ClientOptions(
                timeoutMillis, token, tokenFile, caFile, name, sameHost, context, collector);
    }

    /** Sets whether datanodes of the same machine are read in their memory; default true. */
    public ClientOptions withSameHost(boolean sameHost) {
        return new ClientOptions(
                timeoutMillis, token, tokenFile, caFile, tlsName, sameHost, context, collector);
    }

    /**
     * Sets the context whose cluster is connected to, as {@code sanderling context add} set it;
     * the address is empty then.
     */
    public ClientOptions withContext(String name) {
        Objects.requireNonNull(name, "name");
        return new ClientOptions(
                timeoutMillis, token, tokenFile, caFile, tlsName, sameHost, name, collector);
    }

    /**
     * Sets the OpenTelemetry collector, {@code http://HOST[:PORT][/PATH]}, to which this process
     * exports its spans from then on: each call of every client is a trace, with the spans of the
     * servers that record theirs. The default is the variable {@code SANDERLING_OTLP}; without
     * both, none are recorded. A process has one collector.
     */
    public ClientOptions withOtlp(String url) {
        Objects.requireNonNull(url, "url");
        return new ClientOptions(
                timeoutMillis, token, tokenFile, caFile, tlsName, sameHost, context, url);
    }

    /** Returns the collector of spans, or an empty text for none. */
    public String otlp() {
        return collector;
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
    ClientOptions found(Decoder decoder) {
        return new ClientOptions(timeoutMillis, decoder.text(), decoder.text(), decoder.text(),
                decoder.text(), sameHost, "", collector);
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

    byte[] encoded(String address) {
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
