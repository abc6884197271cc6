package io.sanderling.hadoop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.hadoop.fs.BlockLocation;

import io.sanderling.client.BlockPlace;

/**
 * Makes Hadoop's block locations of the store's places. The store's blocks are small and lie on
 * many nodes; Hadoop needs the machines that have most of a split. So each of Hadoop's blocks
 * names the machines with most of its bytes.
 */
final class Places {
    /** As many as HDFS names by default; schedulers look at few. */
    private static final int HOSTS_MAX = 3;

    private Places() {
    }

    /**
     * Returns the blocks of Hadoop's size that have bytes of the range.
     *
     * @param places of the whole blocks, in order
     */
    static BlockLocation[] blocks(
            List<BlockPlace> places, long from, long to, long blockBytes, long fileBytes) {
        List<BlockLocation> blocks = new ArrayList<>();
        int first = 0;
        for (long start = from / blockBytes * blockBytes; start < to; start += blockBytes) {
            long end = Math.min(start + blockBytes, fileBytes);
            Map<String, long[]> bytesByHost = new HashMap<>();
            Map<String, String> addresses = new HashMap<>();
            boolean isLost = false;
            while (first < places.size() && end(places.get(first)) <= start) {
                first++;
            }
            for (int at = first; at < places.size() && places.get(at).offset() < end; at++) {
                BlockPlace place = places.get(at);
                long bytes = Math.min(end, end(place)) - Math.max(start, place.offset());
                isLost |= place.hosts().isEmpty();
                for (int copy = 0; copy < place.hosts().size(); copy++) {
                    String host = place.hosts().get(copy);
                    bytesByHost.computeIfAbsent(host, name -> new long[1])[0] += bytes;
                    addresses.putIfAbsent(host, place.addresses().get(copy));
                }
            }
            blocks.add(block(start, end, bytesByHost, addresses, isLost));
        }
        return blocks.toArray(new BlockLocation[0]);
    }

    private static BlockLocation block(long start, long end, Map<String, long[]> bytesByHost,
            Map<String, String> addresses, boolean isLost) {
        String[] hosts = bytesByHost.entrySet().stream()
                .sorted((one, other) -> Long.compare(other.getValue()[0], one.getValue()[0]))
                .limit(HOSTS_MAX)
                .map(Map.Entry::getKey)
                .toArray(String[]::new);
        String[] names = new String[hosts.length];
        for (int at = 0; at < hosts.length; at++) {
            names[at] = addresses.get(hosts[at]);
        }
        return new BlockLocation(names, hosts, start, end - start, isLost);
    }

    private static long end(BlockPlace place) {
        return place.offset() + place.length();
    }
}
