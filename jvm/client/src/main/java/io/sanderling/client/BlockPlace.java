package io.sanderling.client;

import java.util.Collections;
import java.util.List;

/** Is the present location of a run of bytes of an object. */
public final class BlockPlace {
    private final long offset;
    private final long length;
    private final List<String> hosts;
    private final List<String> addresses;

    BlockPlace(Decoder decoder) {
        offset = decoder.number();
        length = decoder.number();
        String host = decoder.text();
        String address = decoder.text();
        boolean isLost = address.isEmpty();
        hosts = isLost ? Collections.emptyList() : Collections.singletonList(host);
        addresses = isLost ? Collections.emptyList() : Collections.singletonList(address);
    }

    /** Returns the first byte, counted from the start of the object. */
    public long offset() {
        return offset;
    }

    /** Returns the number of bytes. */
    public long length() {
        return length;
    }

    /** Returns the machines that have them, the home first; empty when they are lost. */
    public List<String> hosts() {
        return hosts;
    }

    /** Returns the datanodes that have them, as {@code host:port}, in the same order. */
    public List<String> addresses() {
        return addresses;
    }

    @Override
    public String toString() {
        return offset + "+" + length + " on " + addresses;
    }
}
