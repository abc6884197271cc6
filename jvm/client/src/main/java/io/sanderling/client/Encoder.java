package io.sanderling.client;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.Objects;

/** Encodes fields in the order of the native half: big-endian, texts in UTF-8. */
final class Encoder {
    private byte[] buffer = new byte[64];
    private int length;

    static byte[] ofText(String what, String text) {
        return new Encoder().text(what, text).encoded();
    }

    static byte[] ofTexts(String what, Collection<String> texts) {
        return new Encoder().texts(what, texts).encoded();
    }

    Encoder number(long number) {
        int at = more(8);
        ByteBuffer.wrap(buffer).putLong(at, number);
        return this;
    }

    Encoder count(int count) {
        int at = more(4);
        ByteBuffer.wrap(buffer).putInt(at, count);
        return this;
    }

    Encoder flag(boolean flag) {
        int at = more(1);
        buffer[at] = (byte) (flag ? 1 : 0);
        return this;
    }

    /**
     * Writes a text.
     *
     * @throws NullPointerException when it is null
     * @throws IllegalArgumentException when it has half a surrogate pair, which no UTF-8 has
     */
    Encoder text(String what, String text) {
        Objects.requireNonNull(text, what);
        ByteBuffer bytes;
        try {
            bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
        } catch (CharacterCodingException error) {
            throw new IllegalArgumentException(what + " is not valid Unicode: " + text, error);
        }
        int count = bytes.remaining();
        count(count);
        int at = more(count);
        bytes.get(buffer, at, count);
        return this;
    }

    Encoder texts(String what, Collection<String> texts) {
        Objects.requireNonNull(texts, what);
        count(texts.size());
        for (String text : texts) {
            text(what, text);
        }
        return this;
    }

    Encoder texts(String what, Map<String, String> texts) {
        Objects.requireNonNull(texts, what);
        count(texts.size());
        for (Map.Entry<String, String> each : texts.entrySet()) {
            text(what, each.getKey()).text(what, each.getValue());
        }
        return this;
    }

    Encoder all(byte[] others) {
        int at = more(others.length);
        System.arraycopy(others, 0, buffer, at, others.length);
        return this;
    }

    byte[] encoded() {
        return Arrays.copyOf(buffer, length);
    }

    /** Makes room, perhaps in another array, and returns where it starts. */
    private int more(int bytes) {
        int at = length;
        length = Math.addExact(length, bytes);
        if (length > buffer.length) {
            buffer = Arrays.copyOf(buffer, Math.max(length, buffer.length * 2));
        }
        return at;
    }
}
