package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** Compares the exceptions with the table of docs/ERRORS.md. */
final class ErrorTableTest {
    private static final Pattern CODE = Pattern.compile("`([A-Za-z]+)`");

    private static SanderlingException thrown(String name) {
        byte[] encoded = new Encoder()
                .text("name", name)
                .text("text", "a sentence")
                .all(new byte[] {1})
                .number(250)
                .text("path", "/a")
                .number(7)
                .count(1)
                .number(10)
                .number(20)
                .encoded();
        return (SanderlingException) Failure.thrown(encoded);
    }

    private static List<String> page() throws IOException {
        Path root = Paths.get("").toAbsolutePath();
        while (!Files.exists(root.resolve("docs/ERRORS.md"))) {
            root = root.getParent();
        }
        return Files.readAllLines(root.resolve("docs/ERRORS.md"), StandardCharsets.UTF_8);
    }

    private static List<String> codes(String text) {
        List<String> codes = new ArrayList<>();
        for (Matcher each = CODE.matcher(text); each.find(); ) {
            codes.add(each.group(1));
        }
        return codes;
    }

    /** Returns the class of each name that the table names: one for all, or one for each. */
    private static Map<String, String> table() throws IOException {
        Map<String, String> table = new LinkedHashMap<>();
        boolean isInside = false;
        for (String line : page()) {
            isInside = line.startsWith("| name | Python | Java |")
                    || isInside && line.startsWith("|");
            String[] cells = line.split("\\|", -1);
            if (!isInside || cells.length != 7) {
                continue;
            }
            List<String> names = codes(cells[1]);
            List<String> classes = codes(cells[3]);
            for (int at = 0; at < names.size(); at++) {
                boolean isEach = classes.size() == names.size()
                        && classes.get(at).endsWith("Exception");
                table.put(names.get(at), classes.get(isEach ? at : 0));
            }
        }
        return table;
    }

    @Test
    void everyNameOfTheTableHasItsException() throws IOException {
        Map<String, String> table = table();
        assertTrue(table.size() > 25, table.toString());
        table.forEach((name, type) -> {
            SanderlingException error = thrown(name);
            assertEquals(type, error.getClass().getSimpleName(), name);
            assertEquals(name, error.name());
        });
    }

    @Test
    void everyRefusalHasSomeException() throws IOException {
        Pattern row = Pattern.compile("\\| \\d+ \\| `([A-Za-z]+)` \\|.*");
        int count = 0;
        for (String line : page()) {
            Matcher matcher = row.matcher(line);
            if (matcher.matches()) {
                count++;
                assertEquals(matcher.group(1), thrown(matcher.group(1)).name());
            }
        }
        assertTrue(count > 40, count + " refusals");
    }

    @Test
    void exceptionHasTheFields() {
        SanderlingException error = thrown("DataUnavailable");
        assertEquals("a sentence", error.getMessage());
        assertEquals(Recovery.RETRY_AFTER, error.recovery());
        assertEquals(250, error.retryAfterMillis());
        assertEquals("/a", error.path());
        DataUnavailableException lost = (DataUnavailableException) error;
        assertEquals(7, lost.object());
        assertEquals(1, lost.lost().size());
        assertEquals(new Range(10, 20), lost.lost().get(0));
    }
}
