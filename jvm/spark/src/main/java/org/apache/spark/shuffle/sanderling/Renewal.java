package org.apache.spark.shuffle.sanderling;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Decides when an executor requests its next token. It is given every time and reads no clock. */
final class Renewal {
    /** A token without a nearer end is renewed this often. */
    static final long MILLIS_MAX = 60 * 60_000;

    /** A driver that was paused, or a namenode that was away, is back after minutes. */
    static final long RETRY_MILLIS_MAX = 60_000;

    /** All executors together, whose token has ended, must leave the driver time for its work. */
    static final long MILLIS_MIN = 5_000;

    /** Matches no part of a text among the claims: there, a backslash is before each such mark. */
    private static final Pattern END = Pattern.compile("\"exp\":(\\d{1,15})");

    private Renewal() {
    }

    /**
     * Returns for how many milliseconds a token holds, by its claim {@code exp}; 0 when it has
     * ended, {@link Long#MAX_VALUE} when it names no end.
     */
    static long millisLeft(String token, long nowMillis) {
        String[] parts = token.split("\\.");
        if (parts.length != 3) {
            return Long.MAX_VALUE;
        }
        try {
            byte[] claims = Base64.getUrlDecoder().decode(parts[1]);
            Matcher end = END.matcher(new String(claims, StandardCharsets.UTF_8));
            return end.find()
                    ? Math.max(0, Long.parseLong(end.group(1)) * 1000 - nowMillis)
                    : Long.MAX_VALUE;
        } catch (IllegalArgumentException error) {
            return Long.MAX_VALUE;
        }
    }

    /** Returns after how many milliseconds to renew a token that was just received. */
    static long afterSuccess(long millisLeft) {
        return bounded(millisLeft / 2, MILLIS_MAX);
    }

    /** Returns after how many milliseconds to try again when a renewal has failed. */
    static long afterFailure(long millisLeft) {
        return bounded(millisLeft / 2, RETRY_MILLIS_MAX);
    }

    private static long bounded(long millis, long max) {
        return Math.max(MILLIS_MIN, Math.min(millis, max));
    }
}
