//! The caller of a connection, for its share of the namenode's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sanderling_core::access::{Claims, TokenRole};
use sanderling_core::namenode::LONG_PLACES;
use tokio::sync::Semaphore;

/// Whose share a request counts against: the owner of a token, whatever connections it has; without
/// tokens, the connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tenant {
    /// The token from which the caller's was minted, or its own: tokens minted under many names
    /// have one share, and a name cannot take another's share.
    Token(Arc<str>),
    Connection(u64),
}

/// One connection, or the HTTP endpoint.
#[derive(Debug, Clone)]
pub(crate) struct RequestOrigin {
    pub(crate) tenant: Tenant,
    /// One long answer at a time is made for a connection, and the next one when the caller has
    /// taken it: a caller that does not read has no more than one made.
    pub(crate) long_answers: Arc<Semaphore>,
    /// Places for frames that need a long answer and wait for it ([`LONG_PLACES`]). Beyond them the
    /// caller is sent away.
    pub(crate) long_waiting: Arc<Semaphore>,
}

impl RequestOrigin {
    /// Returns a new connection of the owner of a token, or of a caller that needs none.
    pub(crate) fn new(claims: Option<&Claims>) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        // Servers and operators have tokens of one subject for many connections.
        let claims = claims.filter(|claims| claims.role == TokenRole::Client);
        let tenant = match claims.and_then(Claims::root) {
            Some(root) => Tenant::Token(root.to_string().into()),
            None => Tenant::Connection(CONNECTIONS.fetch_add(1, Ordering::Relaxed)),
        };
        let long_waiting = Arc::new(Semaphore::new(LONG_PLACES as usize));
        Self { tenant, long_answers: Arc::new(Semaphore::new(1)), long_waiting }
    }
}
