package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Runs conformance/semantics.toml through the Java client. */
final class ConformanceTest {
    private static final String NAME = "java";

    private static LocalCluster cluster;
    private static SanderlingClient client;

    @BeforeAll
    static void start() throws IOException {
        cluster = LocalCluster.start(3);
        client = cluster.connect();
    }

    @AfterAll
    static void stop() throws IOException {
        client.close();
        cluster.close();
    }

    @Test
    void clientAnswersAsTheTableRequires() throws Exception {
        ConformanceTable.Report report =
                ConformanceTable.read("semantics.toml").run(NAME, new Calls());
        int failed = report.failures.size();
        System.out.println("conformance: java: " + report.ran + " cases, " + failed + " failed");
        assertTrue(report.failures.isEmpty(), String.join("\n", report.failures));
        assertTrue(report.floor > 0, "[floors] has no " + NAME);
        assertTrue(report.ran >= report.floor, report.ran + " of " + report.floor + " cases ran");
    }

    @Test
    void wrongCasesFail() throws Exception {
        ConformanceTable.Report report = ConformanceTable.read("wrong.toml").run(NAME, new Calls());
        assertTrue(report.ran >= 5, report.ran + " wrong cases ran");
        assertEquals(report.ran, report.failures.size(), String.join("\n", report.failures));
    }

    /** Makes the steps of the table calls of the client. */
    private static final class Calls implements ConformanceTable.Interface {
        private final Map<String, Long> objects = new HashMap<>();
        private final Map<String, Writer> writers = new HashMap<>();
        private final Map<String, Job> jobs = new HashMap<>();

        @Override
        public void begin(String root) throws IOException {
            client.makeDirectory(root, true);
        }

        @Override
        public Object call(ConformanceTable.Step step) throws ConformanceTable.Refused {
            try {
                return answer(step);
            } catch (SanderlingException error) {
                throw new ConformanceTable.Refused(error.name(), error);
            } catch (IOException | IllegalArgumentException error) {
                throw new ConformanceTable.Refused(error.getClass().getSimpleName(), error);
            }
        }

        private Object answer(ConformanceTable.Step step) throws IOException {
            String path = step.words.get(0);
            switch (step.verb) {
                case "put":
                    ObjectStat stat =
                            client.put(path, ByteBuffer.wrap(step.data(1)), options(step));
                    objects.put(step.options.get("as"), stat.object());
                    return fields(stat);
                case "get":
                    return get(step);
                case "ranges":
                    return ranges(step);
                case "concat":
                    List<String> parts = step.words.subList(1, step.words.size());
                    client.concat(parts, path, options(step));
                    return fields(client.stat(path));
                case "create":
                    writers.put(step.options.get("as"), client.create(path, options(step)));
                    return null;
                case "append":
                    writers.put(step.options.get("as"), client.append(path));
                    return null;
                case "write":
                    byte[] data = step.data(1);
                    writers.get(path).write(data, 0, data.length);
                    return null;
                case "flush":
                    writers.get(path).flush();
                    return null;
                case "close":
                    return fields(writers.remove(path).commit());
                case "abort":
                    writers.remove(path).abort();
                    return null;
                default:
                    return name(step, path);
            }
        }

        private Object name(ConformanceTable.Step step, String path) throws IOException {
            switch (step.verb) {
                case "stat":
                    return fields(client.stat(path));
                case "exists":
                    return yes(client.exists(path));
                case "list":
                    List<String> names = new ArrayList<>();
                    client.list(path).forEach(each -> names.add(each.name()));
                    return names;
                case "usage":
                    return usage(path);
                case "mkdir":
                    client.makeDirectory(path, step.has("parents"));
                    return fields(client.stat(path));
                case "rename":
                    client.rename(path, step.words.get(1), step.has("replace"));
                    return null;
                case "delete":
                    Map<String, String> fields = new HashMap<>();
                    fields.put("objects", "" + client.delete(path, step.has("recursive")));
                    return fields;
                case "set-ttl":
                    client.setTtl(path, ConformanceTable.millis(step.words.get(1)));
                    return null;
                case "set-attributes":
                    client.setAttributes(path, step.attributes());
                    return fields(client.stat(path));
                case "job":
                    jobs.put(step.options.get("as"), client.beginJob(request(step, path)));
                    return null;
                case "end-job":
                    jobs.get(path).end();
                    return null;
                default:
                    throw new AssertionError("no such verb: " + step.verb);
            }
        }

        private PutOptions options(ConformanceTable.Step step) {
            PutOptions options = PutOptions.create()
                    .withReplace(step.has("replace"))
                    .withParents(step.has("parents"))
                    .withDeleteAfterRead(step.has("once"))
                    .withListed(!"no".equals(step.options.get("listed")))
                    .withInlineAllowed(!"no".equals(step.options.get("inline")))
                    .withAttributes(step.attributes());
            if (step.options.containsKey("ttl")) {
                options = options.withTtlMillis(ConformanceTable.millis(step.options.get("ttl")));
            }
            if (step.options.containsKey("class")) {
                options = options.withStorageClass(step.options.get("class"));
            }
            String condition = step.options.get("if");
            if (condition == null) {
                return options;
            }
            return condition.equals("absent")
                    ? options.withIfAbsent(true)
                    : options.withIfObject(objects.get(condition));
        }

        private JobRequest request(ConformanceTable.Step step, String path) {
            JobRequest request = JobRequest.create(path)
                    .withKeepAfterJob(step.has("keep"))
                    .withDeleteAfterRead(step.has("once"));
            if (step.options.containsKey("lease")) {
                long lease = ConformanceTable.millis(step.options.get("lease"));
                request = request.withLeaseMillis(lease);
            }
            if (step.options.containsKey("quota")) {
                request = request.withQuotaBytes(Long.parseLong(step.options.get("quota")));
            }
            if (step.options.containsKey("names")) {
                request = request.withNamesMax(Long.parseLong(step.options.get("names")));
            }
            if (step.options.containsKey("attribute_bytes")) {
                long bytes = Long.parseLong(step.options.get("attribute_bytes"));
                request = request.withAttributeBytesMax(bytes);
            }
            return request;
        }

        private static byte[] get(ConformanceTable.Step step) throws IOException {
            String path = step.words.get(0);
            if (step.words.size() == 1) {
                try (Buffer buffer = client.get(path)) {
                    return buffer.toArray();
                }
            }
            long offset = Long.parseLong(step.words.get(1));
            long length = Long.parseLong(step.words.get(2));
            try (Reader reader = client.open(path);
                    Buffer buffer = reader.readRange(offset, length)) {
                return buffer.toArray();
            }
        }

        private static byte[] ranges(ConformanceTable.Step step) throws IOException {
            int count = step.words.size() - 1;
            long[] offsets = new long[count];
            long[] lengths = new long[count];
            for (int at = 0; at < count; at++) {
                String[] pair = step.words.get(at + 1).split(":");
                offsets[at] = Long.parseLong(pair[0]);
                lengths[at] = Long.parseLong(pair[1]);
            }
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (Reader reader = client.open(step.words.get(0))) {
                for (Buffer buffer : reader.readRanges(offsets, lengths)) {
                    if (bytes.size() > 0) {
                        bytes.write('|');
                    }
                    bytes.write(buffer.toArray());
                    buffer.close();
                }
            }
            return bytes.toByteArray();
        }

        private static Map<String, String> usage(String path) throws IOException {
            Usage usage = client.usage(path);
            Map<String, String> fields = new HashMap<>();
            fields.put("files", "" + usage.files());
            fields.put("directories", "" + usage.directories());
            fields.put("bytes", "" + usage.bytes());
            return fields;
        }

        private static Map<String, String> fields(ObjectStat stat) {
            Map<String, String> fields = new HashMap<>();
            fields.put("kind", stat.kind().name().toLowerCase(Locale.ROOT));
            fields.put("bytes", "" + stat.length());
            fields.put("sealed", yes(stat.isSealed()));
            fields.put("listed", yes(stat.isListed()));
            fields.put("once", yes(stat.isDeletedAfterRead()));
            fields.put("class", stat.storageClass());
            fields.put("expires", yes(stat.expiresInMillis() >= 0));
            fields.put("entries", "" + stat.entries());
            fields.put("job", yes(stat.job() >= 0));
            fields.put("attributes", "" + stat.attributes().size());
            stat.attributes().forEach((name, text) -> fields.put("attr." + name, text));
            return fields;
        }

        private static String yes(boolean isSo) {
            return isSo ? "yes" : "no";
        }
    }
}
