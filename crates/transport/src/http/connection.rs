//! One connection of an HTTP server, and what it has under way.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use sanderling_protocol::Refusal;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::connection_slots::ConnectionTable;
use crate::connection_slots::RETRY_INTERVAL;

/// The places of one server.
#[derive(Debug)]
pub(super) struct ConnectionSet {
    places: Mutex<ConnectionTable<CancellationToken>>,
    /// There may be room again.
    changed: Notify,
}

/// The place of one connection. It is given back when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connection: HttpConnection,
    evicted: CancellationToken,
}

/// The connection that a request came by; among the request's extensions.
#[derive(Debug, Clone)]
pub struct HttpConnection(Arc<ConnectionEntry>);

#[derive(Debug)]
struct ConnectionEntry {
    set: Arc<ConnectionSet>,
    number: u64,
    /// The answer is complete; some of it may have to be sent.
    is_answered: AtomicBool,
    /// The request under way has a place among the followers.
    follows: AtomicBool,
}

/// A request that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlightRequest(HttpConnection);

/// An answer's body, with the request that it belongs to.
#[derive(Debug)]
pub(super) struct ResponseBody<B> {
    body: Pin<Box<B>>,
    _under_way: InFlightRequest,
}

impl ConnectionSet {
    pub(super) fn new(connections_max: usize, followers_max: usize) -> Arc<Self> {
        let places = Mutex::new(ConnectionTable::new(connections_max, followers_max));
        Arc::new(Self { places, changed: Notify::new() })
    }

    /// Gives a new connection a place, if need be that of one without a request, as soon as there
    /// is one.
    pub(super) async fn enter(self: &Arc<Self>, address: IpAddr) -> ConnectionSlot {
        let close = CancellationToken::new();
        let enter = |now| self.places.lock().enter(address.into(), close.clone(), now);
        let (number, evicted) = loop {
            match enter(Instant::now()) {
                Ok(entered) => break entered,
                Err(None) => self.changed.notified().await,
                Err(Some(until)) => drop(timeout_at(until, self.changed.notified()).await),
            }
        };
        if let Some(evicted) = evicted {
            tracing::debug!("an idle HTTP connection makes room for another");
            evicted.cancel();
        }
        let (is_answered, follows) = (AtomicBool::new(false), AtomicBool::new(false));
        let known = ConnectionEntry { set: Arc::clone(self), number, is_answered, follows };
        ConnectionSlot { connection: HttpConnection(Arc::new(known)), evicted: close }
    }

    /// Closes the connection that would make room for the next one now, for its descriptor.
    /// Returns whether there was one.
    pub(super) fn close_oldest(&self, now: Instant) -> bool {
        let evicted = self.places.lock().evict(now);
        if let Some(close) = &evicted {
            close.cancel();
        }
        evicted.is_some()
    }
}

impl ConnectionSlot {
    pub(super) const fn connection(&self) -> &HttpConnection {
        &self.connection
    }

    /// Waits until another connection has the place: this one is to be closed.
    pub(super) fn evicted(&self) -> WaitForCancellationFuture<'_> {
        self.evicted.cancelled()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let ConnectionEntry { set: connection_set, number, .. } = &*self.connection.0;
        connection_set.places.lock().leave(*number);
        connection_set.changed.notify_one();
    }
}

impl HttpConnection {
    /// Counts the connection among those whose answer has no end, or takes long to begin, until
    /// that ends all the same.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`] when the server has the most followers that it allows: try again
    /// later.
    pub fn follow(&self) -> Result<(), Refusal> {
        let ConnectionEntry { set: connection_set, number, follows, .. } = &*self.0;
        if !connection_set.places.lock().follow(*number) {
            // A place becomes free when another follower leaves, which no pause predicts: the same
            // pause as for connections of the protocol.
            let why = "as many callers as may be follow what happens".to_owned();
            return Err(Refusal::RetryAfter { after: RETRY_INTERVAL, why });
        }
        follows.store(true, Ordering::Relaxed);
        connection_set.changed.notify_one();
        Ok(())
    }

    /// Returns whether the request under way called [`Self::follow`].
    pub(super) fn follows(&self) -> bool {
        self.0.follows.load(Ordering::Relaxed)
    }

    /// Notes that a request's head is there; `None` when the connection has lost its place.
    pub(super) fn begin(&self) -> Option<InFlightRequest> {
        let ConnectionEntry { set: connection_set, number, is_answered, follows } = &*self.0;
        is_answered.store(false, Ordering::Relaxed);
        follows.store(false, Ordering::Relaxed);
        let has_place = connection_set.places.lock().begin(*number);
        has_place.then(|| InFlightRequest(self.clone()))
    }

    /// Notes that the body of the request under way is still to come: until it has, the connection
    /// makes room for others.
    pub(super) fn receives(&self) {
        let ConnectionEntry { set: connection_set, number, .. } = &*self.0;
        connection_set.places.lock().receive(*number, Instant::now());
        connection_set.changed.notify_one();
    }

    /// Notes that it has come, or that no task waits for it.
    pub(super) fn received(&self) {
        let ConnectionEntry { set: connection_set, number, .. } = &*self.0;
        connection_set.places.lock().received(*number);
    }

    /// Notes that everything that was to be sent has been.
    pub(super) fn flushed(&self) {
        let ConnectionEntry { set: connection_set, number, is_answered, .. } = &*self.0;
        if is_answered.swap(false, Ordering::Relaxed) {
            connection_set.places.lock().rest(*number, Instant::now());
            connection_set.changed.notify_one();
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.0.is_answered.store(true, Ordering::Relaxed);
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn new(body: B, under_way: InFlightRequest) -> Self {
        Self { body: Box::pin(body), _under_way: under_way }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.body.as_mut().poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
