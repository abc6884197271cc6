package org.apache.spark.shuffle.sanderling;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import io.sanderling.client.ClientMetrics;
import io.sanderling.client.SanderlingClient;
import java.io.IOException;
import java.util.function.ToLongFunction;
import org.apache.spark.metrics.source.Source;

/** Shows what the store's client of this process has counted, among Spark's own metrics. */
final class ClientSource implements Source {
    private final MetricRegistry registry = new MetricRegistry();
    private final SanderlingClient client;

    ClientSource(SanderlingClient client) {
        this.client = client;
        show("readBytes", ClientMetrics::readBytes);
        show("writtenBytes", ClientMetrics::writtenBytes);
        show("sameHostReadBytes", ClientMetrics::sameHostReadBytes);
        show("sameHostWrittenBytes", ClientMetrics::sameHostWrittenBytes);
        show("retries", ClientMetrics::retries);
        show("moved", ClientMetrics::moved);
        show("failed", ClientMetrics::failed);
        show("longestStallMillis", ClientMetrics::longestStallMillis);
    }

    @Override
    public String sourceName() {
        return "sanderling";
    }

    @Override
    public MetricRegistry metricRegistry() {
        return registry;
    }

    private void show(String name, ToLongFunction<ClientMetrics> metric) {
        registry.register(name, (Gauge<Long>) () -> {
            try {
                return metric.applyAsLong(client.metrics());
            } catch (IOException closed) {
                return 0L;
            }
        });
    }
}
