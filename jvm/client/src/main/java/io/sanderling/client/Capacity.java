package io.sanderling.client;

import java.util.List;

/** Is the room of the nodes, all tiers together. */
public final class Capacity {
    private final long capacityBytes;
    private final long usedBytes;
    private final long freeBytes;

    Capacity(List<NodeInfo> nodes) {
        long capacity = 0;
        long used = 0;
        long free = 0;
        for (NodeInfo node : nodes) {
            capacity += node.capacityBytes();
            used += node.usedBytes();
            if (node.takesBlocks()) {
                free += Math.max(0, node.capacityBytes() - node.usedBytes());
            }
        }
        capacityBytes = capacity;
        usedBytes = used;
        freeBytes = free;
    }

    /** Returns the size of all tiers of all nodes in bytes. */
    public long capacityBytes() {
        return capacityBytes;
    }

    /** Returns the bytes of blocks and of reservations on them. */
    public long usedBytes() {
        return usedBytes;
    }

    /** Returns the bytes that are free on nodes that take new blocks. */
    public long freeBytes() {
        return freeBytes;
    }
}
