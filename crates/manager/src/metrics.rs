//! What a manager tells of itself to Prometheus.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sanderling_transport::process;

type ManagerGauge = Gauge<u64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ManagerKindLabel {
    kind: &'static str,
}

/// The figures of one manager.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    process: Registry,
    /// Held while the gauges are set and written out, so that two scrapes do not mix.
    scrape: Mutex<()>,
    is_acting: Arc<AtomicBool>,
    acting: ManagerGauge,
    certificates: Family<ManagerKindLabel, Gauge>,
    cpu: Counter<f64, AtomicU64>,
    resident_bytes: ManagerGauge,
}

impl Metrics {
    /// Makes the figures of a manager that acts while `is_acting` is set.
    pub(crate) fn new(is_acting: Arc<AtomicBool>) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("sanderling_manager"),
            process: Registry::default(),
            scrape: Mutex::new(()),
            is_acting,
            acting: ManagerGauge::default(),
            certificates: Family::default(),
            cpu: Counter::default(),
            resident_bytes: ManagerGauge::default(),
        };
        let all = &mut metrics.registry;
        let help = "Whether it holds the leadership lease and acts";
        all.register("acting", help, ManagerGauge::clone(&metrics.acting));
        let help = "When the first certificate of a kind ends, in Unix time";
        all.register("certificate_expiry_timestamp_seconds", help, metrics.certificates.clone());
        let help = "CPU time in user and system mode";
        metrics.process.register("process_cpu_seconds", help, Counter::clone(&metrics.cpu));
        let resident = ManagerGauge::clone(&metrics.resident_bytes);
        metrics.process.register("process_resident_memory_bytes", "Memory mapped in", resident);
        metrics
    }

    /// Writes everything out as OpenMetrics; `ends` is when the first certificate of each kind
    /// ends.
    pub(crate) fn text(&self, ends: &[(&'static str, i64)]) -> String {
        let _scrape = self.scrape.lock();
        self.acting.set(u64::from(self.is_acting.load(Ordering::Relaxed)));
        for &(kind, ends) in ends {
            self.certificates.get_or_create(&ManagerKindLabel { kind }).set(ends);
        }
        let seconds = process::cpu_time().as_secs_f64();
        self.cpu.inner().store(seconds.to_bits(), Ordering::Relaxed);
        self.resident_bytes.set(process::resident_bytes().unwrap_or_default());
        let mut text = String::new();
        encode_registry(&mut text, &self.registry).expect("a string takes everything");
        encode(&mut text, &self.process).expect("a string takes everything");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_out() {
        let text = Metrics::new(Arc::new(true.into())).text(&[("authority", 7)]);
        for line in [
            "sanderling_manager_acting 1",
            "sanderling_manager_certificate_expiry_timestamp_seconds{kind=\"authority\"} 7",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
