package io.sanderling.client;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Decodes fields in the order of the native half: big-endian, texts in UTF-8. */
final class Decoder {
    private final ByteBuffer encoded;

    Decoder(byte[] encoded) {
        this.encoded = ByteBuffer.wrap(encoded);
    }

    long number() {
        return encoded.getLong();
    }

    int count() {
        return encoded.getInt();
    }

    int small() {
        return encoded.get();
    }

    boolean flag() {
        return encoded.get() != 0;
    }

    String text() {
        int length = encoded.getInt();
        int at = encoded.position();
        encoded.position(at + length);
        return new String(encoded.array(), at, length, StandardCharsets.UTF_8);
    }

    /** Returns the bytes at the reader's place, read-only and not copied. */
    ByteBuffer bytes(int length) {
        ByteBuffer bytes = encoded.slice();
        bytes.limit(length);
        encoded.position(encoded.position() + length);
        return bytes.slice().asReadOnlyBuffer();
    }
}
