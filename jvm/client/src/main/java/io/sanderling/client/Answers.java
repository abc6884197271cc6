package io.sanderling.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** Makes what a call returns of what the native half answers. */
final class Answers {
    private Answers() {}

    /** Reads for each object a flag, and then its reader or its error. */
    static List<Opened> opened(SanderlingClient client, byte[] answer) {
        Decoder facts = new Decoder(answer);
        int count = facts.count();
        List<Opened> all = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            if (facts.flag()) {
                all.add(new Opened(new Reader(client, facts), null));
            } else {
                all.add(new Opened(null, Failure.of(facts)));
            }
        }
        return all;
    }

    /**
     * Reads the first part, which has for each object a flag and then its ranges or its error. Of a
     * range of few bytes these are in the first part as well; of others, which have a handle, in a
     * part of their own.
     */
    static List<Fetched> fetched(Object[] parts) {
        Decoder facts = new Decoder((byte[]) parts[0]);
        int next = 1;
        int count = facts.count();
        List<Fetched> all = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            if (!facts.flag()) {
                IOException failure = Failure.of(facts);
                all.add(new Fetched(null, failure));
                continue;
            }
            Buffer[] buffers = new Buffer[facts.count()];
            for (int each = 0; each < buffers.length; each++) {
                long handle = facts.number();
                buffers[each] = handle == 0
                        ? Buffer.held(facts.bytes(facts.count()))
                        : Buffer.borrowed((ByteBuffer) parts[next++], handle);
            }
            all.add(new Fetched(buffers, null));
        }
        return all;
    }
}
