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
        Decoder decoder = new Decoder(answer);
        int count = decoder.count();
        List<Opened> all = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            if (decoder.flag()) {
                all.add(new Opened(new Reader(client, decoder), null));
            } else {
                all.add(new Opened(null, Failure.of(decoder)));
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
        Decoder decoder = new Decoder((byte[]) parts[0]);
        int next = 1;
        int count = decoder.count();
        List<Fetched> all = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            if (!decoder.flag()) {
                IOException failure = Failure.of(decoder);
                all.add(new Fetched(null, failure));
                continue;
            }
            Buffer[] buffers = new Buffer[decoder.count()];
            for (int each = 0; each < buffers.length; each++) {
                long handle = decoder.number();
                buffers[each] = handle == 0
                        ? Buffer.held(decoder.bytes(decoder.count()))
                        : Buffer.borrowed((ByteBuffer) parts[next++], handle);
            }
            all.add(new Fetched(buffers, null));
        }
        return all;
    }
}
