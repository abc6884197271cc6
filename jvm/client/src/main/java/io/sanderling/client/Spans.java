package io.sanderling.client;

import java.io.IOException;

/** Exports the spans of this process to an OpenTelemetry collector. */
final class Spans {
    /** Names a collector where the options name none. */
    private static final String VARIABLE = "SANDERLING_OTLP";

    private static boolean isEnding;

    private Spans() {}

    /**
     * Exports to a collector; an empty text is that of the environment, or none.
     *
     * @throws BadRequestException when it cannot be used, or the process has another one
     */
    static void export(String collector) throws IOException {
        String named = collector.isEmpty() ? System.getenv(VARIABLE) : collector;
        if (named == null || named.isEmpty()) {
            return;
        }
        Native.exportSpans(Encoder.ofText("otlp", named));
        endWithTheProcess();
    }

    /** Lets the last spans be sent when the process ends; its end waits for two seconds at most. */
    private static synchronized void endWithTheProcess() {
        if (isEnding) {
            return;
        }
        isEnding = true;
        try {
            Runtime.getRuntime().addShutdownHook(new Thread(Native::endExport, "sanderling-spans"));
        } catch (IllegalStateException ending) {
            // The process ends already: what is left goes with the next batch, or not at all.
            isEnding = false;
        }
    }
}
