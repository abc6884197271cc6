package io.sanderling.client;

import java.io.IOException;
import java.util.Objects;

/**
 * Holds the address of a cluster's namenode and the credentials that belong to it. The rule is that
 * of the command line and of every language: the address that is given; the context that is given;
 * {@code SANDERLING_NAMENODE}; {@code SANDERLING_CONTEXT}; the current context of the user
 * ({@code sanderling context use}); {@code 127.0.0.1:7600}.
 */
public final class ClusterAddress {
    private final String address;
    private final String context;
    private final ClientOptions options;

    private ClusterAddress(Decoder decoder, ClientOptions options) {
        this.address = decoder.text();
        this.context = decoder.text();
        this.options = options.found(decoder);
    }

    /**
     * Finds the cluster. An address is {@code host:port}, or {@code host} with the port 7600; an
     * empty one is none.
     *
     * @throws BadRequestException when the address is wrong, no context has the name, or the file
     *     of contexts cannot be used
     * @throws NativeLibraryException when the native half cannot be loaded here
     */
    public static ClusterAddress resolve(String address, ClientOptions options)
            throws IOException {
        Objects.requireNonNull(options, "options");
        byte[] encoded = options.explicit(Objects.requireNonNull(address, "address"));
        Library.load();
        return new ClusterAddress(new Decoder(Native.resolve(encoded)), options);
    }

    /** Returns the namenode's address, {@code host:port}. */
    public String address() {
        return address;
    }

    /** Returns the name of the context that the address is from, or an empty text. */
    public String context() {
        return context;
    }

    /** Returns the options with the cluster's credentials. */
    public ClientOptions options() {
        return options;
    }
}
