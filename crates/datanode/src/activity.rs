//! What the node does at the moment, as its heartbeats report it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sanderling_protocol::node::Load;

use crate::link::Link;
use crate::store::BlockStore;

/// Requests that are served and connections that are open.
#[derive(Debug)]
pub(crate) struct Activity {
    store: Arc<BlockStore>,
    link: Arc<Link>,
    in_flight: AtomicU32,
    connections: AtomicU32,
}

/// Counts a request as in flight for as long as it lives.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a AtomicU32);

impl Activity {
    pub(crate) const fn new(store: Arc<BlockStore>, link: Arc<Link>) -> Self {
        Self { store, link, in_flight: AtomicU32::new(0), connections: AtomicU32::new(0) }
    }

    pub(crate) fn enter(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(&self.in_flight)
    }

    /// Returns whether any request is being served.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Counts a connection of a peer.
    pub(crate) fn opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that has ended.
    pub(crate) fn closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> Load {
        Load {
            requests_in_flight: self.in_flight.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            pushed_bytes_per_second: self.link.pushed_bytes_per_second(),
            ..self.store.load()
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
