//! The loop around operations, and what it costs: a reading of the clock for each, no lock.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use sanderling_client::ClientMetrics;

use super::error::BenchError;
use super::work::BenchThread;

/// Samples that a worker gathers before it takes the histogram's lock: the lock is taken once for
/// them, and they have 4 KiB. Chosen, not measured.
const SAMPLES: usize = 256;

/// What one operation moved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    /// What the operation counts as: the look-ups of a batch, the entries of a listing, else 1.
    pub(super) items: u64,
}

impl Moved {
    pub(super) const fn bytes(bytes: u64) -> Self {
        Self { bytes, items: 1 }
    }

    pub(super) const fn items(items: u64) -> Self {
        Self { bytes: 0, items }
    }
}

/// A type of benchmark: how it fills the store, and what one operation does.
pub(super) trait Scenario: Sized + Send + Sync + 'static {
    /// What one operation in flight has for itself.
    type State: Send;

    /// Fills the store.
    fn prepare(work: BenchThread) -> impl Future<Output = Result<Self, BenchError>> + Send;

    /// Opens what a worker needs.
    fn state(&self) -> impl Future<Output = Result<Self::State, BenchError>> + Send;

    /// Does one operation. `index` counts the thread's operations, those of the warm-up included.
    fn operation(
        &self,
        worker: &mut Self::State,
        index: u64,
    ) -> impl Future<Output = Result<Moved, BenchError>> + Send;

    /// Ends what is open: it is part of the measurement.
    fn finish(&self, worker: Self::State) -> impl Future<Output = Result<(), BenchError>> + Send {
        drop(worker);
        async { Ok(()) }
    }
}

/// A scenario whose operations have nothing for themselves.
pub(super) trait Stateless: Sized + Send + Sync + 'static {
    /// Fills the store.
    fn prepare(work: BenchThread) -> impl Future<Output = Result<Self, BenchError>> + Send;

    /// Does one operation, as [`Scenario::operation`] does.
    fn operation(&self, index: u64) -> impl Future<Output = Result<Moved, BenchError>> + Send;
}

impl<S: Stateless> Scenario for S {
    type State = ();

    fn prepare(work: BenchThread) -> impl Future<Output = Result<Self, BenchError>> + Send {
        <S as Stateless>::prepare(work)
    }

    async fn state(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn operation(
        &self,
        (): &mut (),
        index: u64,
    ) -> impl Future<Output = Result<Moved, BenchError>> + Send {
        Stateless::operation(self, index)
    }
}

/// What one thread measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) latency: Histogram<u64>,
    pub(super) operations: u64,
    pub(super) items: u64,
    pub(super) bytes: u64,
    /// When its first measured operation began and its last one ended.
    pub(super) span: (Instant, Instant),
    /// What the thread's client counted.
    pub(super) metrics: ClientMetrics,
    /// The same before its first measured operation.
    pub(super) before: ClientMetrics,
}

impl Measured {
    pub(super) fn new() -> Self {
        let latency = Histogram::new(3).expect("three digits are allowed");
        let now = Instant::now();
        let metrics = ClientMetrics::default();
        let span = (now, now);
        Self { latency, operations: 0, items: 0, bytes: 0, span, metrics, before: metrics }
    }

    pub(super) fn add(&mut self, spent: Duration) {
        let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.latency.record(nanos).expect("the histogram resizes itself");
    }
}

/// How many operations of a thread are left.
#[derive(Debug)]
pub(super) struct OperationBudget<'a> {
    /// The thread's next operation. Also what the progress shows.
    pub(super) next: &'a AtomicU64,
    pub(super) end: u64,
    pub(super) until: Option<Instant>,
    /// Set when the others need not go on.
    pub(super) stop: &'a AtomicBool,
}

impl OperationBudget<'_> {
    /// Takes the next operation.
    pub(super) fn take(&self, now: Instant) -> Option<u64> {
        if self.stop.load(Ordering::Relaxed) || self.until.is_some_and(|until| now >= until) {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index < self.end {
            return Some(index);
        }
        self.next.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

/// Runs operations in all workers until the budget is used up. The workers come back.
pub(super) async fn run<S: Scenario>(
    scenario: &S,
    workers: Vec<S::State>,
    budget: &OperationBudget<'_>,
) -> Result<(Vec<S::State>, Measured), BenchError> {
    let measured = Mutex::new(Measured::new());
    let mut left = Vec::with_capacity(workers.len());
    if workers.len() == 1 {
        // Nothing between the caller and the operation.
        for worker in workers {
            left.push(one_worker(scenario, worker, budget, &measured).await?);
        }
    } else {
        // Each worker is woken by itself: looking at all of them each time would cost more than
        // most operations.
        let workers =
            workers.into_iter().map(|worker| one_worker(scenario, worker, budget, &measured));
        let mut running: FuturesUnordered<_> = workers.collect();
        while let Some(ended) = running.next().await {
            left.push(ended?);
        }
    }
    let mut measured = measured.into_inner();
    measured.span.1 = Instant::now();
    Ok((left, measured))
}

async fn one_worker<S: Scenario>(
    scenario: &S,
    mut worker: S::State,
    budget: &OperationBudget<'_>,
    measured: &Mutex<Measured>,
) -> Result<S::State, BenchError> {
    let mut samples = Samples::new(measured);
    let mut before = Instant::now();
    while let Some(index) = budget.take(before) {
        let moved = scenario.operation(&mut worker, index).await?;
        let now = Instant::now();
        samples.add(now - before, moved);
        before = now;
        if samples.spent.len() == SAMPLES {
            samples.hand_over();
            // The histogram's time belongs to no operation.
            before = Instant::now();
        }
    }
    samples.hand_over();
    Ok(worker)
}

/// A worker's samples since it last handed them over.
struct Samples<'a> {
    spent: Vec<Duration>,
    moved: Moved,
    all: &'a Mutex<Measured>,
}

impl<'a> Samples<'a> {
    fn new(all: &'a Mutex<Measured>) -> Self {
        Self { spent: Vec::with_capacity(SAMPLES), moved: Moved::default(), all }
    }

    fn add(&mut self, spent: Duration, moved: Moved) {
        self.spent.push(spent);
        self.moved.bytes += moved.bytes;
        self.moved.items += moved.items;
    }

    fn hand_over(&mut self) {
        let mut all = self.all.lock();
        all.operations += self.spent.len() as u64;
        all.bytes += self.moved.bytes;
        all.items += self.moved.items;
        for spent in self.spent.drain(..) {
            all.add(spent);
        }
        self.moved = Moved::default();
    }
}

/// A thread's counter, shared with whoever shows the progress.
pub(super) type Counter = Arc<AtomicU64>;
