//! Answers that a server may hold back for long, as one whose link is slow does.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::future::{AbortHandle, Abortable};
use sanderling_protocol::frame::{self, held_body};

/// Time between two reports to a caller of each answer that is held back: that of the protocol,
/// which has the reason.
const HELD_INTERVAL: Duration = Duration::from_millis(frame::HELD_INTERVAL.0);

/// An answer that is made later.
type LaterFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The answers of one connection that may be held back, by the numbers of their requests.
#[derive(Default)]
pub(crate) struct HeldAnswers {
    answers: BTreeMap<u64, HeldAnswer>,
    /// When the next report is due; `None` without such answers.
    report_at: Option<Instant>,
}

struct HeldAnswer {
    since: Instant,
    abort: AbortHandle,
}

impl HeldAnswers {
    /// Begins to count the answer to a request among them. Returns it as one that is what
    /// `cancelled` returns when its caller cancels it.
    pub(crate) fn begin<T: Send + 'static>(
        &mut self,
        request: u64,
        future: LaterFuture<T>,
        cancelled: impl FnOnce() -> T + Send + 'static,
    ) -> LaterFuture<T> {
        let since = Instant::now();
        self.report_at.get_or_insert(since + HELD_INTERVAL);
        let (abort, registration) = AbortHandle::new_pair();
        self.answers.insert(request, HeldAnswer { since, abort });
        let future = Abortable::new(future, registration);
        Box::pin(async move { future.await.unwrap_or_else(|_| cancelled()) })
    }

    /// Forgets an answer that was made or cancelled.
    pub(crate) fn ended(&mut self, request: u64) {
        self.answers.remove(&request);
        if self.answers.is_empty() {
            self.report_at = None;
        }
    }

    /// Ends an answer whose caller does not wait for it.
    pub(crate) fn cancel(&self, request: u64) {
        if let Some(held) = self.answers.get(&request) {
            held.abort.abort();
        }
    }

    /// Returns when the next report is due; `None` without such answers.
    pub(crate) const fn report_at(&self) -> Option<Instant> {
        self.report_at
    }

    /// Returns the body of a report if it is due, and if answers have been held back for as long as
    /// reports are apart.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.report_at.filter(|at| *at <= now)?;
        self.report_at = Some(now + HELD_INTERVAL);
        let is_long =
            |held: &HeldAnswer| now.saturating_duration_since(held.since) >= HELD_INTERVAL;
        let held = self.answers.iter().filter(|(_, held)| is_long(held));
        Some(held_body(held.map(|(number, _)| *number))).filter(|body| !body.is_empty())
    }

    /// Returns how many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }
}
