//! What a client counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts since the client connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientMetrics {
    /// Attempts beyond the first of a call.
    pub retries: u64,
    /// Writes that met a fence and went on in a new block.
    pub moved: u64,
    /// Lookups made because a location was out of date.
    pub refreshed: u64,
    /// Calls that failed in the end.
    pub failed: u64,
    /// Bytes read from datanodes and the catalog.
    pub read_bytes: u64,
    /// Bytes acknowledged by datanodes and the catalog.
    pub written_bytes: u64,
    /// Bytes of them that were read in the memory of a datanode on the same machine.
    pub same_host_read_bytes: u64,
    /// Bytes of them that were handed to a datanode on the same machine in shared memory.
    pub same_host_written_bytes: u64,
    /// Longest time from a call's first failed attempt to its success.
    pub longest_stall: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) retries: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) refreshed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) same_host_read_bytes: AtomicU64,
    pub(crate) same_host_written_bytes: AtomicU64,
    longest_stall_micros: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn stalled(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.longest_stall_micros.fetch_max(micros, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> ClientMetrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientMetrics {
            retries: read(&self.retries),
            moved: read(&self.moved),
            refreshed: read(&self.refreshed),
            failed: read(&self.failed),
            read_bytes: read(&self.read_bytes),
            written_bytes: read(&self.written_bytes),
            same_host_read_bytes: read(&self.same_host_read_bytes),
            same_host_written_bytes: read(&self.same_host_written_bytes),
            longest_stall: Duration::from_micros(read(&self.longest_stall_micros)),
        }
    }
}
