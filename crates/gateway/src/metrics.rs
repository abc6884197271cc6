//! The metrics of a gateway.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use sanderling_client::ClientMetrics;
use sanderling_transport::{write_counter, write_process_metrics};

type Gauge64 = Gauge<u64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    method: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// The figures of one gateway.
#[derive(Debug)]
pub(crate) struct GatewayMetrics {
    registry: Registry,
    answers: Family<AnswerLabel, Counter>,
    in_flight: Gauge64,
    received: Counter,
    sent: Counter,
    broken_off: Counter,
    cors_refused: Counter,
}

/// A request that is under way.
pub(crate) struct InFlight(Gauge64);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl GatewayMetrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("sanderling_gateway"),
            answers: Family::default(),
            in_flight: Gauge64::default(),
            received: Counter::default(),
            sent: Counter::default(),
            broken_off: Counter::default(),
            cors_refused: Counter::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let all = &mut self.registry;
        all.register("answers", "Answers by method and status", self.answers.clone());
        let help = "Requests that are under way";
        all.register("requests_in_flight", help, Gauge64::clone(&self.in_flight));
        let traffic: Family<DirectionLabel, Counter> = Family::default();
        let of = |direction| traffic.get_or_create_owned(&DirectionLabel { direction });
        (self.received, self.sent) = (of("received"), of("sent"));
        let help = "Bytes of objects from and to clients";
        all.register_with_unit("traffic", help, Unit::Bytes, traffic.clone());
        let help =
            "Answers that ended before their last byte, because the object could not be read on";
        all.register("answers_broken_off", help, Counter::clone(&self.broken_off));
        let help =
            "Requests of pages that got no CORS rules because other requests named many buckets";
        all.register("cors_lookups_refused", help, Counter::clone(&self.cors_refused));
    }

    pub(crate) fn begin(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(Gauge64::clone(&self.in_flight))
    }

    pub(crate) fn answered(&self, method: &hyper::Method, status: u16) {
        // Methods are the client's to make up.
        let known = ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"];
        let method = known.iter().find(|it| **it == method.as_str()).unwrap_or(&"other");
        let label = AnswerLabel { method: (*method).to_owned(), status };
        self.answers.get_or_create(&label).inc();
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.received.inc_by(bytes);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.sent.inc_by(bytes);
    }

    pub(crate) fn broken_off(&self) {
        self.broken_off.inc();
    }

    pub(crate) fn cors_look_up_refused(&self) {
        self.cors_refused.inc();
    }

    /// Encodes everything as OpenMetrics; `ends` is when the first certificate of each kind ends.
    pub(crate) fn text(&self, client: ClientMetrics, ends: &[(&str, i64)]) -> String {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry).expect("a string takes everything");
        let help = "Calls to the cluster that were tried again";
        write_counter(&mut text, "sanderling_gateway_cluster_retries", help, client.retries);
        let help = "Calls to the cluster that failed in the end";
        write_counter(&mut text, "sanderling_gateway_cluster_failures", help, client.failed);
        write_process_metrics(&mut text, "sanderling_gateway", ends);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_out() {
        let metrics = GatewayMetrics::new();
        metrics.answered(&hyper::Method::GET, 200);
        metrics.answered(&"BREW".parse().unwrap(), 501);
        metrics.sent(7);
        let text = metrics.text(ClientMetrics::default(), &[]);
        for line in [
            "sanderling_gateway_answers_total{method=\"GET\",status=\"200\"} 1",
            "sanderling_gateway_answers_total{method=\"other\",status=\"501\"} 1",
            "sanderling_gateway_traffic_bytes_total{direction=\"sent\"} 7",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
