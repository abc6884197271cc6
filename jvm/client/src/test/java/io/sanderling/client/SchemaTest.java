package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Compares what Java reads of metadata with the schema that the native half writes by. */
final class SchemaTest {
    /**
     * Encodes a value for each field of the schema: a number is its place, a text its name, a flag
     * whether its place is even, and a kind the last one.
     */
    private static Decoder encoded(String of, String... names) throws IOException {
        Path root = Paths.get("").toAbsolutePath();
        while (!Files.exists(root.resolve("bindings/native/schema.txt"))) {
            root = root.getParent();
        }
        Path schema = root.resolve("bindings/native/schema.txt");
        List<String> found = new ArrayList<>();
        Encoder encoder = new Encoder();
        for (String line : Files.readAllLines(schema, StandardCharsets.UTF_8)) {
            String[] words = line.split(" ");
            if (!words[0].equals(of)) {
                continue;
            }
            String name = words[1];
            int place = found.size();
            found.add(name);
            switch (words[2]) {
                case "text":
                    encoder.text(name, name);
                    break;
                case "flag":
                    encoder.flag(place % 2 == 0);
                    break;
                case "kind":
                    encoder.all(new byte[] {(byte) ObjectKind.KEY_VALUE.ordinal()});
                    break;
                case "texts":
                    encoder.texts(name, Collections.singletonMap(name, words[2]));
                    break;
                default:
                    encoder.number(place);
            }
        }
        assertEquals(Arrays.asList(names), found);
        return new Decoder(encoder.encoded());
    }

    @Test
    void objectHasTheFieldsOfTheSchema() throws IOException {
        ObjectStat stat = new ObjectStat(encoded("stat",
                "path", "object", "kind", "bytes", "lost_bytes", "is_sealed", "is_listed",
                "delete_after_read", "storage_class", "created_at", "modified_at", "expires_in",
                "blocks", "entries", "job", "attributes"));
        assertEquals("path", stat.path());
        assertEquals(1, stat.object());
        assertEquals(ObjectKind.KEY_VALUE, stat.kind());
        assertEquals(3, stat.length());
        assertEquals(4, stat.lostBytes());
        assertFalse(stat.isSealed());
        assertTrue(stat.isListed());
        assertFalse(stat.isDeletedAfterRead());
        assertEquals("storage_class", stat.storageClass());
        assertEquals(9, stat.createdAtMillis());
        assertEquals(10, stat.modifiedAtMillis());
        assertEquals(11, stat.expiresInMillis());
        assertEquals(12, stat.blocks());
        assertEquals(13, stat.entries());
        assertEquals(14, stat.job());
        assertEquals(Collections.singletonMap("attributes", "texts"), stat.attributes());
    }

    @Test
    void sumsHaveTheFieldsOfTheSchema() throws IOException {
        Usage usage =
                new Usage(encoded("usage", "files", "directories", "bytes", "lost_bytes"));
        assertEquals(2, usage.bytes());
        assertEquals(3, usage.lostBytes());
        JobAccount account = new JobAccount(encoded("job_account",
                "names", "attribute_bytes", "names_max", "attribute_bytes_max"));
        assertEquals(2, account.namesMax());
        assertEquals(3, account.attributeBytesMax());
        ClientMetrics metrics = new ClientMetrics(encoded("metrics",
                "retries", "moved", "refreshed", "failed", "read_bytes", "written_bytes",
                "same_host_read_bytes", "same_host_written_bytes", "longest_stall"));
        assertEquals(5, metrics.writtenBytes());
        assertEquals(7, metrics.sameHostWrittenBytes());
        assertEquals(8, metrics.longestStallMillis());
    }
}
