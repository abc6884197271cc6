//! What is measured at one point, with stable keys.

use hdrhistogram::Histogram;
use serde::Serialize;

/// One number of objects with one number of nodes. Processor time is the namenode's.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Point {
    pub(super) objects: u64,
    pub(super) files: u64,
    pub(super) values: u64,
    pub(super) nodes: u32,
    /// Of one registration, the nodes before it being there.
    pub(super) register: Cost,
    /// Of one file: a create with one block reserved, and its seal.
    pub(super) file: Cost,
    pub(super) value: Cost,
    pub(super) bytes_per_file: f64,
    pub(super) bytes_per_value: f64,
    pub(super) memory_bytes: u64,
    pub(super) memory_bytes_max: u64,
    pub(super) journal_bytes_per_file: f64,
    pub(super) journal_bytes_per_value: f64,
    /// Of calls made one after the other while the catalog was filled.
    pub(super) filling: CallLatencies,
    /// Of one heartbeat, with what the manager does meanwhile.
    pub(super) heartbeat: Cost,
    pub(super) heartbeat_micros: CallLatency,
    /// Of one lookup of a file, in frames of many.
    pub(super) lookup: Cost,
    /// Of calls made one after the other while only heartbeats came.
    pub(super) quiet: CallLatencies,
    /// Of one block reported.
    pub(super) report: Cost,
    pub(super) reporting: CallLatencies,
    /// Of one block of the fullest node, drained by the manager over links that cost no time.
    pub(super) drain: Cost,
    pub(super) draining: CallLatencies,
    pub(super) snapshot_bytes: u64,
    pub(super) recovery: Recovery,
}

/// What some units of work cost.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Cost {
    pub(super) count: u64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    pub(super) cpu_micros_each: f64,
}

/// How long calls took that were made one after the other.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct CallLatencies {
    pub(super) lookup_micros: CallLatency,
    pub(super) change_micros: CallLatency,
}

/// Microseconds of one kind of call.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct CallLatency {
    pub(super) count: u64,
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

/// A namenode that was killed and started again.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Recovery {
    pub(super) journal_bytes: u64,
    /// From the start of the process until it served.
    pub(super) seconds: f64,
    pub(super) seconds_per_million_objects: f64,
    pub(super) cpu_micros_per_object: f64,
    /// Until every node had registered again.
    pub(super) nodes_back_seconds: f64,
}

impl From<&Histogram<u64>> for CallLatency {
    fn from(taken: &Histogram<u64>) -> Self {
        let at = |quantile| taken.value_at_quantile(quantile);
        Self { count: taken.len(), p50: at(0.5), p99: at(0.99), max: taken.max() }
    }
}
