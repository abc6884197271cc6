package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** The export of spans: by a program of its own, because a process has one collector. */
final class SpansTest {
    /** Puts and gets an object; the arguments are the address and the collector. */
    public static final class Program {
        public static void main(String[] words) throws Exception {
            ClientOptions options = ClientOptions.create().withOtlp(words[1]);
            try (SanderlingClient client = SanderlingClient.connect(words[0], options)) {
                client.put("/x", ByteBuffer.allocateDirect(2 << 20), PutOptions.create());
                client.get("/x").close();
                assertThrows(NotFoundException.class, () -> client.stat("/none"));
            }
            BadRequestException second = assertThrows(BadRequestException.class, () ->
                    SanderlingClient.connect(words[0], options.withOtlp("http://127.0.0.1:1")));
            assertTrue(second.getMessage().contains("it has one collector"), second.getMessage());
        }
    }

    @Test
    void callAndItsRequestAreOneTrace() throws Exception {
        List<String> bodies = new CopyOnWriteArrayList<>();
        HttpServer collector = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        collector.createContext("/v1/traces", request -> {
            bodies.add(text(request.getRequestBody()));
            request.sendResponseHeaders(200, 2);
            request.getResponseBody().write("{}".getBytes(StandardCharsets.UTF_8));
            request.close();
        });
        collector.start();
        String url = "http://127.0.0.1:" + collector.getAddress().getPort();
        try (LocalCluster cluster = LocalCluster.start(1)) {
            ran(cluster.namenode(), url);
        } finally {
            collector.stop(0);
        }
        // The program has ended, and its last spans with it: nothing is waited for.
        for (String[] call : new String[][] {{"put", "create"}, {"get", "lookup"}}) {
            assertTrue(isWhole(bodies, call[0], call[1]), call[0] + " in " + bodies);
        }
        assertTrue(String.join("", bodies).contains("\"message\":\"/none"), bodies.toString());
    }

    /** Returns whether a call is the first span of a trace, and has a request below it. */
    private static boolean isWhole(List<String> bodies, String root, String request) {
        for (String body : bodies) {
            assertTrue(body.contains("\"stringValue\":\"sanderling-java\""), body);
        }
        String all = String.join("\n", bodies);
        for (Matcher first = spans(all, root); first.find(); ) {
            String trace = field(first.group(), "traceId");
            if (field(first.group(), "parentSpanId") != null) {
                continue;
            }
            for (Matcher below = spans(all, request + "[a-z_]*"); below.find(); ) {
                String parent = field(below.group(), "parentSpanId");
                if (field(first.group(), "spanId").equals(parent)
                        && trace.equals(field(below.group(), "traceId"))) {
                    return true;
                }
            }
        }
        return false;
    }

    /** Finds the spans of a name: no value of theirs but those in "attributes" has braces. */
    private static Matcher spans(String text, String name) {
        String list = "\\[(?:\\{\"key\":\"[^\"]*\",\"value\":\\{[^}]*\\}\\},?)*\\]";
        return Pattern.compile("\\{\"attributes\":" + list + "[^{}]*\"name\":\"" + name
                + "\"(?:[^{}]|\\{[^{}]*\\})*\\}").matcher(text);
    }

    private static String field(String span, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"([0-9a-f]+)\"").matcher(span);
        return found.find() ? found.group(1) : null;
    }

    private static void ran(String address, String url) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(System.getProperty("java.home") + "/bin/java");
        command.add("-Xmx128m");
        command.add("-cp");
        command.add(System.getProperty("java.class.path"));
        command.add(Program.class.getName());
        command.add(address);
        command.add(url);
        Path output = Files.createTempFile("sanderling-spans-", ".txt");
        try {
            Process process = new ProcessBuilder(command)
                    .redirectErrorStream(true)
                    .redirectOutput(output.toFile())
                    .start();
            assertTrue(process.waitFor(LocalCluster.DEADLINE_SECONDS, TimeUnit.SECONDS));
            String shown = new String(Files.readAllBytes(output), StandardCharsets.UTF_8);
            assertEquals(0, process.exitValue(), shown);
        } finally {
            Files.delete(output);
        }
    }

    private static String text(InputStream stream) throws java.io.IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        byte[] part = new byte[8192];
        for (int read = stream.read(part); read >= 0; read = stream.read(part)) {
            bytes.write(part, 0, read);
        }
        return new String(bytes.toByteArray(), StandardCharsets.UTF_8);
    }
}
