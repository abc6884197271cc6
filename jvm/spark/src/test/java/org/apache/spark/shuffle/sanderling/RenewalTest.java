package org.apache.spark.shuffle.sanderling;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.junit.jupiter.api.Test;

final class RenewalTest {
    private static final long HOUR = 3_600_000;

    private static String token(String claims) {
        return "header."
                + Base64.getUrlEncoder().withoutPadding()
                        .encodeToString(claims.getBytes(StandardCharsets.UTF_8))
                + ".signature";
    }

    @Test
    void tokenIsRenewedHourlyAndOneThatEndsSoonerAtHalfOfWhatIsLeft() {
        assertEquals(HOUR, Renewal.afterSuccess(24 * HOUR));
        assertEquals(HOUR, Renewal.afterSuccess(Long.MAX_VALUE));
        assertEquals(HOUR / 2, Renewal.afterSuccess(HOUR));
        assertEquals(10_000, Renewal.afterSuccess(20_000));
        assertEquals(Renewal.MILLIS_MIN, Renewal.afterSuccess(0));
    }

    @Test
    void failedRenewalIsTriedAgainWithinAMinuteAndBeforeTheEnd() {
        assertEquals(60_000, Renewal.afterFailure(24 * HOUR));
        assertEquals(30_000, Renewal.afterFailure(60_000));
        assertEquals(Renewal.MILLIS_MIN, Renewal.afterFailure(0));
    }

    @Test
    void endOfATokenIsThatOfItsClaims() {
        String claims = "{\"sub\":\"a\\\"exp\\\":1\",\"exp\":1000,\"jti\":\"7\"}";
        assertEquals(400_000, Renewal.millisLeft(token(claims), 600_000));
        assertEquals(0, Renewal.millisLeft(token(claims), 1_000_001));
        assertEquals(Long.MAX_VALUE, Renewal.millisLeft(token("{}"), 0));
        assertEquals(Long.MAX_VALUE, Renewal.millisLeft("a.?.b", 0));
        assertEquals(Long.MAX_VALUE, Renewal.millisLeft("", 0));
    }
}
