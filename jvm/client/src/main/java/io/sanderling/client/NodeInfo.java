package io.sanderling.client;

/** Is the namenode's state of a datanode. */
public final class NodeInfo {
    private final long id;
    private final String name;
    private final String address;
    private final String host;
    private final String policy;
    private final String availability;
    private final long capacityBytes;
    private final long usedBytes;
    private final long exposureBytes;
    private final long deadlineInMillis;

    NodeInfo(Decoder decoder) {
        id = decoder.number();
        name = decoder.text();
        address = decoder.text();
        host = decoder.text();
        policy = decoder.text();
        availability = decoder.text();
        capacityBytes = decoder.number();
        usedBytes = decoder.number();
        exposureBytes = decoder.number();
        deadlineInMillis = decoder.number();
    }

    /** Returns the incarnation's id: another each time the datanode starts. */
    public long id() {
        return id;
    }

    /** Returns the name that the operator gave it, or its address. */
    public String name() {
        return name;
    }

    /** Returns where it serves blocks, as {@code host:port}. */
    public String address() {
        return address;
    }

    /** Returns its machine, for schedulers that look for a near one. */
    public String host() {
        return host;
    }

    /** Returns its policy: active, draining, decommissioning, drained or gone. */
    public String policy() {
        return policy;
    }

    /** Returns whether new blocks may be placed on it. */
    public boolean takesBlocks() {
        return policy.equals("active");
    }

    /** Returns its availability by its heartbeats: up, suspect or down. */
    public String availability() {
        return availability;
    }

    /** Returns the size of its tiers in bytes. */
    public long capacityBytes() {
        return capacityBytes;
    }

    /** Returns the bytes of blocks and reservations on them. */
    public long usedBytes() {
        return usedBytes;
    }

    /** Returns the bytes whose only copy is on it. */
    public long exposureBytes() {
        return exposureBytes;
    }

    /** Returns the milliseconds left until its notice's deadline; -1 without a notice. */
    public long deadlineInMillis() {
        return deadlineInMillis;
    }

    @Override
    public String toString() {
        return name + " (" + policy + ", " + availability + ")";
    }
}
