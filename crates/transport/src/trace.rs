//! Spans: what a process did for a sampled request, and for how long.
//!
//! A process records spans once [`install`] was called, as it logs once a subscriber is installed;
//! before, every function here costs a branch. The context of a request passes with its task, and
//! with [`carried`] to the tasks that it spawns. [`crate::Connection`] sends it ahead of the calls
//! that are made for the request, to servers that accept it ([`sanderling_protocol::trace`]), and a
//! server's session begins the span of each such call. Spans wait in a bounded queue for whatever
//! exports them.

mod operation;
mod queue;
mod rate;
mod span;

use std::future::Future;
use std::sync::OnceLock;

use ring::rand::{SecureRandom, SystemRandom};
use sanderling_protocol::TraceContext;
use tokio::sync::Notify;
use tokio::task::futures::TaskLocalFuture;
use tokio::task_local;

use self::queue::Queue;
use self::rate::SpanRate;

pub(crate) use self::operation::{call_span, end_served, serve_span};
pub use self::queue::{Dropped, SPANS_PER_BATCH_MAX, TraceCounts};
pub use self::span::{FinishedSpan, Span, SpanKind, SpanValue};

/// The process's tracer, if it records spans.
static TRACER: OnceLock<Tracer> = OnceLock::new();

task_local! {
    static CURRENT: Option<TraceContext>;
}

/// Records the spans of a process, at a bounded rate, until they are exported.
#[derive(Debug)]
pub struct Tracer {
    rate: SpanRate,
    queue: Queue,
    /// A batch is complete.
    is_ready: Notify,
    random: SystemRandom,
}

/// Begins to record spans: at most so many per second, whatever peers send. A trace that begins in
/// this process begins only while half of two seconds' spans are left, so that it becomes complete.
/// Does nothing if the process records spans already.
pub fn install(spans_per_second_max: u32) -> &'static Tracer {
    TRACER.get_or_init(|| Tracer {
        rate: SpanRate::new(spans_per_second_max),
        queue: Queue::default(),
        is_ready: Notify::new(),
        random: SystemRandom::new(),
    })
}

/// Returns the process's tracer; `None` before [`install`], while no spans are recorded.
#[inline]
#[must_use]
pub fn tracer() -> Option<&'static Tracer> {
    TRACER.get()
}

/// Returns the span for which the current task works, if its request is sampled.
#[inline]
#[must_use]
pub fn current() -> Option<TraceContext> {
    tracer()?;
    CURRENT.try_with(|current| *current).ok().flatten()
}

/// Lets a future that is spawned go on in the trace of the current task.
pub fn carried<F: Future>(future: F) -> TaskLocalFuture<Option<TraceContext>, F> {
    CURRENT.scope(current(), future)
}

/// Runs a future in a context.
pub(crate) fn within<F: Future>(
    context: TraceContext,
    future: F,
) -> TaskLocalFuture<Option<TraceContext>, F> {
    CURRENT.scope(Some(context), future)
}

/// Calls a function in a context.
pub(crate) fn call_within<T>(context: TraceContext, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(Some(context), work)
}

/// Begins a span for which the current task works, or a trace if it works for none.
#[must_use]
pub fn begin(name: &'static str) -> Option<Span> {
    let tracer = tracer()?;
    match current() {
        Some(parent) => tracer.span(name, SpanKind::Internal, Some(parent)),
        None => tracer.root(name),
    }
}

/// Begins a span below that of the current task; `None` if the task works for no sampled request.
#[must_use]
pub fn child(name: &'static str) -> Option<Span> {
    let parent = current()?;
    tracer()?.span(name, SpanKind::Internal, Some(parent))
}

/// Runs a future within a span, if there is one, and ends the span with its result.
///
/// # Errors
/// Those of the future.
pub async fn spanned<T, E: std::fmt::Display>(
    span: Option<Span>,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let context = span.as_ref().map(Span::context).or_else(current);
    let result = CURRENT.scope(context, future).await;
    if let (Some(mut span), Err(error)) = (span, &result) {
        span.fail(error);
    }
    result
}

/// Runs a future within a span that [`begin`] begins.
///
/// # Errors
/// Those of the future.
pub async fn in_span<T, E: std::fmt::Display>(
    name: &'static str,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    match tracer() {
        Some(_) => spanned(begin(name), future).await,
        None => future.await,
    }
}

/// Runs a future within a span, which ends with it. Without a span the future stays within the
/// current one.
pub async fn run<F: Future>(span: Option<Span>, future: F) -> F::Output {
    let context = span.as_ref().map(Span::context).or_else(current);
    let output = CURRENT.scope(context, future).await;
    drop(span);
    output
}

impl Tracer {
    fn root(&'static self, name: &'static str) -> Option<Span> {
        if !self.rate.begin_trace() {
            self.queue.count_dropped(Dropped::Rate, 1);
            return None;
        }
        Span::new(self, name, SpanKind::Internal, self.trace_id()?, None)
    }

    /// Begins a span, if there may be another one in this second.
    fn span(
        &'static self,
        name: &'static str,
        kind: SpanKind,
        parent: Option<TraceContext>,
    ) -> Option<Span> {
        let parent = parent?;
        if !self.rate.begin_span() {
            self.queue.count_dropped(Dropped::Rate, 1);
            return None;
        }
        Span::new(self, name, kind, parent.trace, Some(parent.span))
    }

    fn trace_id(&self) -> Option<u128> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes).ok()?;
        Some(u128::from_le_bytes(bytes)).filter(|id| *id != 0)
    }

    fn span_id(&self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes)).filter(|id| *id != 0)
    }

    fn finished(&self, span: FinishedSpan) {
        if self.queue.push(span) >= SPANS_PER_BATCH_MAX {
            self.is_ready.notify_one();
        }
    }

    /// Waits until enough spans have finished to fill a batch, which [`Self::take_batch`] then
    /// returns.
    pub async fn batch_ready(&self) {
        self.is_ready.notified().await;
    }

    /// Removes the oldest finished spans from the queue and returns them, a batch at most.
    #[must_use]
    pub fn take_batch(&self) -> Vec<FinishedSpan> {
        self.queue.take_batch()
    }

    /// Adds `spans` to the count of those that the collector has taken.
    pub fn count_exported(&self, spans: u64) {
        self.queue.count_exported(spans);
    }

    /// Counts spans as dropped because the collector did not take them.
    pub fn count_refused(&self, spans: u64) {
        self.queue.count_dropped(Dropped::Collector, spans);
    }

    /// Returns how many spans were exported and dropped since the process began.
    #[must_use]
    pub fn counts(&self) -> TraceCounts {
        self.queue.counts()
    }
}
