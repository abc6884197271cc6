//! Bodies of requests, from peers that may be slow: one that sends nothing for a while, or hardly
//! anything for long, is given up.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::http::Extensions;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use crate::metrics::GatewayMetrics;

/// Bytes that must come within each span of waiting. Modems are faster. At the default of 60 s that
/// is 550 bit/s: only what sends a byte now and then to keep its place is slower.
const BYTES_MIN: u64 = 4 << 10;

/// Most bytes of a refused request that are read so that its connection can go on. A new connection
/// with TLS costs about as much as to read so much. Chosen, not measured.
const DRAINED_MAX: usize = 256 << 10;

/// How long they may take. 256 KiB at 2 Mbit/s. The client has its answer already. Chosen, not
/// measured.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The peer is too slow.
    #[error("the body comes too slowly")]
    Late,
    /// The connection broke.
    #[error(transparent)]
    Body(hyper::Error),
}

/// Whether a body was given up because its peer is too slow. The request has it among its
/// extensions: s3s puts [`BodyError`] into errors of its own, which name no source.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lateness(Arc<AtomicBool>);

impl Lateness {
    /// Returns that of a request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Returns whether the body was given up.
    pub(crate) fn is_late(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that the body is given up.
    pub(crate) fn set_late(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request's body whose peer may not be too slow.
pub(crate) struct SlowClientLimit {
    /// There until it is dropped.
    body: Option<Incoming>,
    rest: Rest,
    lateness: Lateness,
    within: Duration,
    /// Since when a frame has been waited for, and what ends the wait.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    /// For how long so few bytes were waited for, and how many.
    waited: Duration,
    came: u64,
    received: Arc<GatewayMetrics>,
}

/// The unread rest of a body.
#[derive(Clone, Default)]
pub(crate) struct Rest(Arc<Mutex<Option<Incoming>>>);

impl Rest {
    /// Reads what is left, so that the connection can carry the next request. Returns whether it
    /// was little enough and came soon.
    pub(crate) async fn drain(&self) -> bool {
        let Some(mut body) = self.0.lock().take() else { return true };
        let mut left = DRAINED_MAX;
        let drained = async {
            while let Some(frame) = body.frame().await {
                let bytes = frame.ok().and_then(|frame| frame.into_data().ok());
                match left.checked_sub(bytes.map_or(usize::MAX, |bytes| bytes.len())) {
                    Some(rest) => left = rest,
                    None => return false,
                }
            }
            true
        };
        tokio::time::timeout(DRAIN_TIMEOUT, drained).await.unwrap_or(false)
    }

    /// Returns whether anything is left.
    pub(crate) fn is_some(&self) -> bool {
        self.0.lock().is_some()
    }
}

impl Drop for SlowClientLimit {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        *self.rest.0.lock() = rest;
    }
}

impl SlowClientLimit {
    /// Makes a body of which something must come within each such span. What is not read of it is
    /// left in `rest`, and `lateness` has whether it was given up.
    pub(crate) fn new(
        body: Incoming,
        within: Duration,
        rest: Rest,
        lateness: Lateness,
        received: Arc<GatewayMetrics>,
    ) -> Self {
        Self {
            body: Some(body),
            rest,
            lateness,
            within,
            waiting: None,
            waited: Duration::ZERO,
            came: 0,
            received,
        }
    }
}

impl Body for SlowClientLimit {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = self.body.as_mut().expect("there until it is dropped");
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
            let bytes = match &frame {
                Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len) as u64,
                _ => 0,
            };
            self.received.received(bytes);
            self.came += bytes;
            if let Some((since, _)) = self.waiting.take() {
                self.waited += since.elapsed();
            }
            if self.came >= BYTES_MIN {
                (self.came, self.waited) = (0, Duration::ZERO);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Body)));
        }
        let left = self.within.saturating_sub(self.waited);
        let (_, timer) = self.waiting.get_or_insert_with(|| {
            let since = Instant::now();
            (since, Box::pin(tokio::time::sleep_until(since + left)))
        });
        ready!(timer.as_mut().poll(context));
        self.lateness.set_late();
        Poll::Ready(Some(Err(BodyError::Late)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
