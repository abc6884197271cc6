//! What the clients counted: bytes, errors, how long calls took.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use sanderling_client::ClientError;
use tokio::time::Instant;

use crate::record::{LatencyRecord, Sample};

/// Counts of all workers of a run.
#[derive(Debug)]
pub(crate) struct Meter {
    left_calls: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    recomputed_bytes: AtomicU64,
    errors: AtomicU64,
    first_error: Mutex<Option<String>>,
    micros: Mutex<Histogram<u64>>,
}

impl Meter {
    /// Makes a meter for so many calls of work.
    #[must_use]
    pub(crate) fn of_calls(calls: u64) -> Self {
        Self {
            left_calls: AtomicU64::new(calls),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            recomputed_bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            first_error: Mutex::new(None),
            micros: Mutex::new(Histogram::new(3).expect("three digits are allowed")),
        }
    }

    /// Takes so many calls from what is left of the work; returns the number of the first one, or
    /// `None` when less is left.
    pub(crate) fn take(&self, calls: u64) -> Option<u64> {
        let less = |left: u64| left.checked_sub(calls);
        self.left_calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()
    }

    /// Counts bytes that were read.
    pub(crate) fn read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were written.
    pub(crate) fn written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were written again because they were unavailable.
    pub(crate) fn recomputed(&self, bytes: u64) {
        self.recomputed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes how long a call took.
    pub(crate) fn took(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut all = self.micros.lock().expect("no holder of the lock panics");
        all.record(micros).expect("the histogram resizes itself");
    }

    /// Counts a call that failed.
    pub(crate) fn failed(&self, what: &str, error: &ClientError) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let mut first = self.first_error.lock().expect("no holder of the lock panics");
        first.get_or_insert_with(|| format!("{what}: {}: {error}", error.name()));
    }

    /// Returns bytes read and written so far.
    #[must_use]
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.read_bytes), load(&self.written_bytes))
    }

    /// Returns bytes that were written again.
    #[must_use]
    pub(crate) fn recomputed_bytes(&self) -> u64 {
        self.recomputed_bytes.load(Ordering::Relaxed)
    }

    /// Returns how many calls failed, and the first of them.
    #[must_use]
    pub(crate) fn errors(&self) -> (u64, Option<String>) {
        let first = self.first_error.lock().expect("no holder of the lock panics");
        (self.errors.load(Ordering::Relaxed), first.clone())
    }

    /// Sums the calls' times up.
    #[must_use]
    pub(crate) fn latency(&self) -> LatencyRecord {
        let all = self.micros.lock().expect("no holder of the lock panics");
        let millis = |micros: u64| micros as f64 / 1e3;
        LatencyRecord {
            count: all.len(),
            p50_millis: millis(all.value_at_quantile(0.5)),
            p99_millis: millis(all.value_at_quantile(0.99)),
            max_millis: millis(all.max()),
        }
    }
}

/// Takes a sample of a meter every so often, for as long as it is polled.
#[derive(Debug)]
pub(crate) struct Sampler {
    began: Instant,
    last: (Instant, u64, u64),
    samples: Vec<Sample>,
}

impl Sampler {
    /// Starts at a moment at which nothing was moved.
    #[must_use]
    pub(crate) fn new(began: Instant) -> Self {
        Self { began, last: (began, 0, 0), samples: Vec::new() }
    }

    /// Takes the bytes since the last time.
    pub(crate) fn take(&mut self, meter: &Meter) {
        let now = Instant::now();
        let (read, written) = meter.bytes();
        let (at, read_before, written_before) = self.last;
        let seconds = (now - at).as_secs_f64();
        if seconds > 0.0 {
            self.samples.push(Sample {
                at: (at - self.began).as_secs_f64(),
                seconds,
                read_bytes: read - read_before,
                written_bytes: written - written_before,
                nodes: 0,
            });
        }
        self.last = (now, read, written);
    }

    /// Returns what was sampled.
    #[must_use]
    pub(crate) fn finish(self) -> Vec<Sample> {
        self.samples
    }
}
