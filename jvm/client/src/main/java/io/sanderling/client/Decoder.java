package io.sanderling.client;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Reads facts in the order in which the native half wrote them: big-endian, texts in UTF-8. */
final class Decoder {
    private final ByteBuffer facts;

    Decoder(byte[] facts) {
        this.facts = ByteBuffer.wrap(facts);
    }

    long number() {
        return facts.getLong();
    }

    int count() {
        return facts.getInt();
    }

    int small() {
        return facts.get();
    }

    boolean flag() {
        return facts.get() != 0;
    }

    String text() {
        int length = facts.getInt();
        int at = facts.position();
        facts.position(at + length);
        return new String(facts.array(), at, length, StandardCharsets.UTF_8);
    }

    /** Returns the bytes at the reader's place, read-only and not copied. */
    ByteBuffer bytes(int length) {
        ByteBuffer bytes = facts.slice();
        bytes.limit(length);
        facts.position(facts.position() + length);
        return bytes.slice().asReadOnlyBuffer();
    }
}
