package io.sanderling.client;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads a table of conformance/ and runs its cases against one interface. Of TOML it reads what the
 * tables have: headers, numbers, texts in single quotes and lists of these. All else is an error.
 */
final class ConformanceTable {
    /** How often an awaited step is tried, with a pause after each. */
    private static final int ATTEMPTS = 200;

    private static final long PAUSE_MILLIS = 100;

    private static final Pattern HEADER = Pattern.compile("\\[\\[?(\\w+)\\]\\]?");
    private static final Pattern ENTRY = Pattern.compile("(\\w+) = (\\[?)(.*?)(\\]?)");
    private static final Pattern TEXT = Pattern.compile("'([^']*)',? ?");
    private static final Pattern REPEATED = Pattern.compile("\\{(.*?)\\*(\\d+)\\}");
    private static final Pattern BYTES = Pattern.compile("@(\\d+)(?:\\[(\\d+):(\\d+)\\])?");

    private final Map<String, List<String>> floors = new HashMap<>();
    private final Map<String, List<String>> sets = new HashMap<>();
    private final List<Map<String, List<String>>> cases = new ArrayList<>();

    /** Reports that an interface refused, by an error's name in docs/ERRORS.md. */
    static final class Refused extends Exception {
        private static final long serialVersionUID = 1;

        Refused(String name, Throwable cause) {
            super(name, cause);
        }
    }

    /** Takes steps. */
    interface Interface {
        /** Makes an empty directory for a case. */
        void begin(String root) throws Exception;

        /** Answers with bytes, a list of names, a map of fields, a text; null when it was done. */
        Object call(Step step) throws Refused;
    }

    /** Is one step of a case: a verb, its words and its options, all decoded. */
    static final class Step {
        final String text;
        final String verb;
        final List<String> words = new ArrayList<>();
        final Map<String, String> options = new HashMap<>();
        final String answer;

        Step(String text, String root) {
            this.text = text;
            String[] parts = text.replaceFirst("^until ", "").split(" => ", 2);
            answer = parts.length == 2 ? parts[1] : null;
            String[] all = parts[0].split(" ");
            verb = all[0];
            for (String word : Arrays.asList(all).subList(1, all.length)) {
                int sign = word.indexOf('=');
                if (sign > 0 && word.charAt(0) >= 'a' && word.charAt(0) <= 'z') {
                    String value = decoded(word.substring(sign + 1));
                    options.put(decoded(word.substring(0, sign)), value);
                } else if (word.startsWith("!")) {
                    words.add(decoded(word.substring(1)));
                } else if (word.startsWith("/")) {
                    words.add(word.equals("/") ? root : root + decoded(word));
                } else {
                    words.add(decoded(word));
                }
            }
        }

        boolean has(String option) {
            return "yes".equals(options.get(option));
        }

        byte[] data(int place) {
            byte[] bytes = pattern(words.get(place));
            return bytes == null ? words.get(place).getBytes(StandardCharsets.UTF_8) : bytes;
        }

        Map<String, String> attributes() {
            Map<String, String> attributes = new LinkedHashMap<>();
            options.forEach((name, value) -> {
                if (name.startsWith("attr.")) {
                    attributes.put(name.substring(5), value);
                }
            });
            return attributes;
        }
    }

    /** Holds what a run found. */
    static final class Report {
        int ran;
        int floor;
        final List<String> failures = new ArrayList<>();
    }

    /** Reads a table of conformance/. */
    static ConformanceTable read(String name) throws IOException {
        Path root = Paths.get("").toAbsolutePath();
        while (!Files.exists(root.resolve("Cargo.lock"))) {
            root = root.getParent();
        }
        byte[] text = Files.readAllBytes(root.resolve("conformance").resolve(name));
        ConformanceTable table = new ConformanceTable();
        Map<String, List<String>> section = null;
        List<String> open = null;
        for (String line : new String(text, StandardCharsets.UTF_8).split("\n")) {
            Matcher header = HEADER.matcher(line);
            Matcher entry = ENTRY.matcher(line);
            if (line.isEmpty() || line.startsWith("#")) {
                continue;
            } else if (open != null && line.equals("]")) {
                open = null;
            } else if (open != null) {
                addTexts(line.trim(), open);
            } else if (header.matches()) {
                section = table.section(header.group(1));
            } else if (entry.matches() && section != null) {
                List<String> values = new ArrayList<>();
                section.put(entry.group(1), values);
                addTexts(entry.group(3), values);
                open = entry.group(2).isEmpty() || !entry.group(4).isEmpty() ? null : values;
            } else {
                throw new AssertionError("this line is not understood: " + line);
            }
        }
        return table;
    }

    private Map<String, List<String>> section(String name) {
        switch (name) {
            case "floors":
                return floors;
            case "sets":
                return sets;
            case "case":
                cases.add(new HashMap<>());
                return cases.get(cases.size() - 1);
            default:
                throw new AssertionError("no section is called " + name);
        }
    }

    private static void addTexts(String line, List<String> values) {
        if (line.matches("\\d+")) {
            values.add(line);
            return;
        }
        Matcher text = TEXT.matcher(line);
        int end = 0;
        while (text.find() && text.start() == end) {
            values.add(text.group(1));
            end = text.end();
        }
        if (end != line.length()) {
            throw new AssertionError("this value is not understood: " + line);
        }
    }

    /** Runs all cases that name the interface. */
    Report run(String name, Interface calls) throws Exception {
        Report report = new Report();
        report.floor = floors.containsKey(name) ? Integer.parseInt(floors.get(name).get(0)) : 0;
        for (Map<String, List<String>> row : cases) {
            List<String> named = row.get("interfaces");
            List<String> set = sets.get(named.get(0));
            if (!(set == null ? named : set).contains(name)) {
                continue;
            }
            String root = "/conformance-" + name + "/" + row.get("name").get(0);
            calls.begin(root);
            report.ran++;
            List<String> lines = new ArrayList<>();
            if (row.containsKey("given")) {
                lines.addAll(row.get("given"));
            }
            lines.addAll(row.get("steps"));
            for (String line : lines) {
                String why = attempt(new Step(line, root), calls);
                if (why != null) {
                    report.failures.add(root + ": `" + line + "`: got " + why);
                    break;
                }
            }
        }
        return report;
    }

    private static String attempt(Step step, Interface calls) throws InterruptedException {
        for (int left = step.text.startsWith("until ") ? ATTEMPTS : 1; ; left--) {
            Object got;
            try {
                got = calls.call(step);
            } catch (Refused error) {
                got = error;
            }
            if (isRight(step.answer, got)) {
                return null;
            }
            if (left == 1) {
                return shown(got);
            }
            Thread.sleep(PAUSE_MILLIS);
        }
    }

    private static boolean isRight(String wanted, Object got) {
        if (got instanceof Refused) {
            return ("!" + ((Refused) got).getMessage()).equals(wanted);
        } else if (wanted == null) {
            return true;
        } else if (got instanceof byte[]) {
            boolean isText = wanted.startsWith("\"");
            byte[] bytes = isText
                    ? decoded(wanted.substring(1, wanted.length() - 1))
                            .getBytes(StandardCharsets.UTF_8)
                    : pattern(wanted);
            return Arrays.equals(bytes, (byte[]) got);
        } else if (got instanceof List) {
            List<String> names = new ArrayList<>();
            ((List<?>) got).forEach(each -> names.add(each.toString()));
            return wanted.equals("[" + String.join(" ", names) + "]");
        } else if (got instanceof Map) {
            for (String field : wanted.split(" ")) {
                String[] pair = field.split("=", 2);
                if (pair.length < 2 || !decoded(pair[1]).equals(((Map<?, ?>) got).get(pair[0]))) {
                    return false;
                }
            }
            return true;
        }
        return wanted.equals(got == null ? "done" : got);
    }

    private static String shown(Object got) {
        if (got instanceof byte[]) {
            byte[] head = Arrays.copyOf((byte[]) got, Math.min(40, ((byte[]) got).length));
            return ((byte[]) got).length + " bytes " + new String(head, StandardCharsets.UTF_8);
        }
        return got instanceof Refused ? "!" + ((Refused) got).getMessage() : String.valueOf(got);
    }

    /** Decodes {@code %20} and {@code {ab*3}}. */
    static String decoded(String word) {
        StringBuilder text = new StringBuilder();
        Matcher repeated = REPEATED.matcher(word);
        int end = 0;
        while (repeated.find()) {
            text.append(word, end, repeated.start());
            for (int times = Integer.parseInt(repeated.group(2)); times > 0; times--) {
                text.append(repeated.group(1));
            }
            end = repeated.end();
        }
        byte[] raw = text.append(word.substring(end)).toString().getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (int at = 0; at < raw.length; at++) {
            if (raw[at] == '%') {
                String digits = new String(raw, at + 1, 2, StandardCharsets.UTF_8);
                bytes.write(Integer.parseInt(digits, 16));
                at += 2;
            } else {
                bytes.write(raw[at]);
            }
        }
        return new String(bytes.toByteArray(), StandardCharsets.UTF_8);
    }

    /** Returns the bytes of {@code @N} or {@code @N[from:to]}; null of anything else. */
    private static byte[] pattern(String word) {
        Matcher found = BYTES.matcher(word);
        if (!found.matches()) {
            return null;
        }
        byte[] bytes = new byte[Integer.parseInt(found.group(1))];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) (at * 31 + (at >> 8) + (at >> 16) * 13);
        }
        return found.group(2) == null
                ? bytes
                : Arrays.copyOfRange(
                        bytes, Integer.parseInt(found.group(2)), Integer.parseInt(found.group(3)));
    }

    /** Returns {@code 30s} or {@code 200ms} in milliseconds, and -1 of {@code none}. */
    static long millis(String text) {
        if (text.equals("none")) {
            return -1;
        }
        return text.endsWith("ms")
                ? Long.parseLong(text.substring(0, text.length() - 2))
                : Long.parseLong(text.substring(0, text.length() - 1)) * 1000;
    }
}
