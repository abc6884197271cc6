//! The export of spans to an OpenTelemetry collector: OTLP over HTTP, in JSON.
//!
//! A thread with a runtime of its own posts batches. It shares a bounded queue with the process and
//! nothing else: no request waits for a collector, whatever the collector does.

mod json;
mod url;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sanderling_transport::trace::{self, Tracer};
use sanderling_transport::{PageCall, PageCallError};
use serde_json::Value;
use thiserror::Error;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use self::url::{Collector, CollectorError};

/// Spans per second that a process records: some hundred requests, of which an operator looks at
/// few. What they cost is 0.5 MiB per second to the collector. Chosen, not measured.
const SPANS_PER_SECOND_MAX: u32 = 1000;

/// Pause after which spans leave that make no whole batch: a trace is complete at the collector a
/// second later, for one request a second. Chosen, not measured.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);

/// How long the collector may take to answer. As many spans as five seconds bring fit into the
/// queue (`QUEUE_MAX` of the transport's `trace`). Chosen, not measured.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause after a failure; the next one takes twice as long. As long as a batch waits without
/// failures ([`EXPORT_INTERVAL`]).
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest pause: the spans of the time since then are lost, and new ones follow soon. Two requests
/// a minute do not harm a collector that is away. Chosen, not measured.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long the last spans of a process may take: a command's end does not wait for a collector
/// that hangs. Chosen, not measured: a person waits for no more.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether this process exports spans. A forked child has the value of its parent.
static IS_EXPORTING: AtomicBool = AtomicBool::new(false);

/// The export of this process's spans. Its drop sends the last ones.
#[derive(Debug)]
pub struct Export {
    stop: CancellationToken,
    /// Ends with the thread.
    ended: mpsc::Receiver<()>,
}

/// Begins to record the spans of this process, and to export them under the name of a service.
///
/// # Errors
/// The operating system gives no thread: raise the limit of processes (`ulimit -u`), or run without
/// `--otlp`.
pub fn start(collector: Collector, service: &'static str) -> io::Result<Export> {
    let tracer = trace::install(SPANS_PER_SECOND_MAX);
    let exporter = Exporter { tracer, collector, service, pause: Duration::ZERO };
    let stop = CancellationToken::new();
    let (stopped, (end, ended)) = (stop.clone(), mpsc::channel::<()>());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = move || {
        let _end = end;
        runtime.block_on(exporter.run(stopped));
    };
    thread::Builder::new().name("otlp".to_owned()).spawn(work)?;
    IS_EXPORTING.store(true, Ordering::Release);
    Ok(Export { stop, ended })
}

/// Returns whether this process exports its spans: a second export would take half of them.
#[must_use]
pub fn is_exporting() -> bool {
    IS_EXPORTING.load(Ordering::Acquire)
}

/// Returns how many spans collectors did not take so far.
#[must_use]
pub fn refused() -> u64 {
    trace::tracer().map_or(0, |tracer| tracer.counts().dropped_collector)
}

/// Forgets the spans that a forked child has from its parent, which exports them itself.
pub fn forget_pending() {
    while trace::tracer().is_some_and(|tracer| !tracer.take_batch().is_empty()) {}
}

impl Drop for Export {
    fn drop(&mut self) {
        self.stop.cancel();
        // The thread drops its end when it is done. A collector that hangs is left behind.
        let _ = self.ended.recv_timeout(LAST_TIMEOUT);
        IS_EXPORTING.store(false, Ordering::Release);
    }
}

/// Why a collector did not take a batch.
#[derive(Debug, Error)]
enum ExportError {
    /// It answered with this status of HTTP.
    #[error("status {0}")]
    Status(u16),
    /// It did not answer.
    #[error("{0}")]
    Call(#[source] PageCallError),
}

struct Exporter {
    tracer: &'static Tracer,
    collector: Collector,
    service: &'static str,
    /// What to wait after the next failure; zero while the collector takes spans.
    pause: Duration,
}

impl Exporter {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.tracer.batch_ready() => {}
                () = sleep(EXPORT_INTERVAL) => {}
            }
            if self.export_all().await {
                continue;
            }
            // What comes meanwhile fills the queue.
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(self.pause) => {}
            }
        }
        self.export_last().await;
    }

    /// Sends what waits; returns whether the collector took it.
    async fn export_all(&mut self) -> bool {
        loop {
            match self.export().await {
                Some(Ok(())) => {
                    if !self.pause.is_zero() {
                        tracing::info!(collector = %self.collector, "the collector takes spans");
                    }
                    self.pause = Duration::ZERO;
                }
                Some(Err(error)) => {
                    if self.pause.is_zero() {
                        let collector = &self.collector;
                        tracing::warn!(%collector, %error, "the collector takes no spans");
                    }
                    self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                    return false;
                }
                None => return true,
            }
        }
    }

    async fn export_last(&mut self) {
        while let Some(Ok(())) = self.export().await {}
    }

    /// Sends a batch; `None` if there is none.
    async fn export(&self) -> Option<Result<(), ExportError>> {
        let batch = self.tracer.take_batch();
        if batch.is_empty() {
            return None;
        }
        let spans = batch.len() as u64;
        let answer = PageCall {
            address: &self.collector.address,
            tls: None,
            token: None,
            method: "POST",
            target: &self.collector.target,
            body: json::request(self.service, &batch),
            within: ANSWER_TIMEOUT,
        }
        .send()
        .await;
        let refused = match answer {
            Ok((200..300, body)) => Ok(refused_spans(&body).min(spans)),
            Ok((status, _)) => Err(ExportError::Status(status)),
            Err(error) => Err(ExportError::Call(error)),
        };
        let count = *refused.as_ref().unwrap_or(&spans);
        self.tracer.count_refused(count);
        self.tracer.count_exported(spans - count);
        Some(refused.map(|_| ()))
    }
}

/// Returns how many spans of a batch the collector did not take, by its answer. What is no such
/// answer reports nothing.
fn refused_spans(body: &[u8]) -> u64 {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return 0 };
    let refused = &answer["partialSuccess"]["rejectedSpans"];
    refused.as_u64().or_else(|| refused.as_str()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn collector_that_does_not_answer_is_the_source_of_the_error() {
        let (address, within) = ("c:4318".to_owned(), ANSWER_TIMEOUT);
        let error = ExportError::Call(PageCallError::TimedOut { address, within });
        assert!(error.source().is_some_and(|source| source.is::<PageCallError>()), "{error}");
        assert_eq!(ExportError::Status(503).to_string(), "status 503");
    }

    #[test]
    fn refused_spans_are_read_from_a_number_a_text_and_nothing_else() {
        let of = |text: &str| refused_spans(text.as_bytes());
        assert_eq!(of(r#"{"partialSuccess":{"rejectedSpans":"3"}}"#), 3);
        assert_eq!(of(r#"{"partialSuccess":{"rejectedSpans":4}}"#), 4);
        for garbage in ["", "{}", "[1]", "\u{0}garbage", r#"{"partialSuccess":[]}"#] {
            assert_eq!(of(garbage), 0, "{garbage}");
        }
    }
}
