//! Who is at the other end of a connection, as far as shares of the namenode's time go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sanderling_core::access::Claims;
use tokio::sync::Semaphore;

/// Whose share a request counts against: the owner of a token, whatever connections it has; where
/// no token is asked, the connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tenant {
    Token(Arc<str>),
    Connection(u64),
}

/// One connection, or the door of HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    /// One long answer at a time is made for a connection, and the next one when the caller has
    /// taken it: a caller that does not read has no more than one made.
    pub(crate) long_answers: Arc<Semaphore>,
    /// Frames that need a long answer and wait for it. Beyond it the caller is sent away.
    pub(crate) long_waiting: Arc<Semaphore>,
}

/// Most frames of one connection that wait for long answers: an application's tasks share frames.
const LONG_WAITING_MAX: usize = 16;

impl Caller {
    /// Returns a new connection of the owner of a token, or of somebody who needs none.
    pub(crate) fn new(claims: Option<&Claims>) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        let subject = claims.map(|claims| claims.subject.as_str()).filter(|it| !it.is_empty());
        let tenant = match subject {
            Some(subject) => Tenant::Token(subject.into()),
            None => Tenant::Connection(CONNECTIONS.fetch_add(1, Ordering::Relaxed)),
        };
        let long_waiting = Arc::new(Semaphore::new(LONG_WAITING_MAX));
        Self { tenant, long_answers: Arc::new(Semaphore::new(1)), long_waiting }
    }
}
