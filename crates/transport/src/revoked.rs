//! A server's list of revoked tokens, and for how long it may rely on that list.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sanderling_core::access::{Claims, Revoked};
use sanderling_protocol::token::Revocation;
use sanderling_protocol::{Millis, Refusal};

/// How long a caller waits before it calls a server again that has no news from the namenode. Less
/// than the 500 ms between the heartbeats whose answers bring the news: the caller is admitted soon
/// after them. Chosen, not measured.
const UNCONFIRMED_PAUSE: Millis = Millis(200);

/// The revoked tokens that a server has a record of. Its sessions share it and look at its version
/// with every request; only when that has changed do they look at the list.
#[derive(Debug)]
pub struct Revocations {
    version: AtomicU64,
    list: Mutex<Arc<Revoked>>,
    /// How long the list holds after it was requested; `None` where it is made, on the namenode.
    age_max: Option<Duration>,
    began: Instant,
    /// When the last list that arrived was requested: milliseconds after `began`, and 1 more; 0 if
    /// none has arrived.
    confirmed: AtomicU64,
}

impl Default for Revocations {
    fn default() -> Self {
        Self::lasting(None)
    }
}

impl Revocations {
    /// Returns an empty list for a server that receives changes from the namenode, and relies on
    /// the list for `age_max` after each. With `None` the server is the one that makes them.
    #[must_use]
    pub fn lasting(age_max: Option<Duration>) -> Self {
        let (version, confirmed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { version, list: Mutex::default(), age_max, began: Instant::now(), confirmed }
    }

    /// Returns the version of the list of revoked tokens that the server has; 0 before the first
    /// list.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Replaces the list and its version number, for every request that comes from now on.
    pub fn set(&self, version: u64, revoked: Revoked) {
        let mut list = self.list.lock();
        *list = Arc::new(revoked);
        self.version.store(version, Ordering::Release);
    }

    /// Stores the namenode's answer to a request that was sent at `asked`. `list` is `None` if the
    /// server has the list of that `version` already.
    pub fn update(&self, asked: Instant, version: u64, list: Option<Vec<Revocation>>) {
        if let Some(list) = list {
            self.set(version, list.into_iter().map(|it| it.tokens).collect());
        }
        if self.version() == version {
            self.confirm(asked);
        }
    }

    /// Records that there was nothing new for a request that was sent at `asked`.
    pub fn confirm(&self, asked: Instant) {
        self.confirmed.fetch_max(self.millis(asked) + 1, Ordering::AcqRel);
    }

    /// Returns why a token does not hold, as of `now`.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`] when it was taken back, [`Refusal::RetryAfter`] while that is
    /// not known.
    pub(crate) fn check(&self, claims: &Claims, now: Instant) -> Result<(), Refusal> {
        self.check_age(claims, now)?;
        let list = Arc::clone(&self.list.lock());
        claims.check_revoked(&list)
    }

    /// Refuses tokens that may have been revoked while the namenode did not answer.
    pub(crate) fn check_age(&self, claims: &Claims, now: Instant) -> Result<(), Refusal> {
        let Some(age_max) = self.age_max else { return Ok(()) };
        let confirmed = self.confirmed.load(Ordering::Acquire);
        let age = self.millis(now) + 1 - confirmed.min(self.millis(now) + 1);
        if (confirmed > 0 && u128::from(age) <= age_max.as_millis()) || !claims.is_revocable() {
            return Ok(());
        }
        let why = "this server has no recent list of revoked tokens from the namenode".to_owned();
        Err(Refusal::RetryAfter { after: UNCONFIRMED_PAUSE, why })
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_core::access::{Lineage, Rights, TokenRole};
    use sanderling_protocol::{Path, TokenId, TokenSelector};

    use super::*;

    fn claims(part: TokenRole, id: Option<u64>) -> Claims {
        let lineage = Lineage { id: id.map(TokenId), ..Lineage::default() };
        let (subject, subtree) = (part.word().to_owned(), Path::root());
        Claims { subject, role: part, subtree, rights: Rights::READ, expires_at: 0, lineage }
    }

    #[test]
    fn list_is_relied_on_for_a_while_after_it_was_confirmed() {
        let known = Revocations::lasting(Some(Duration::from_secs(60)));
        let at = |seconds| known.began + Duration::from_secs(seconds);
        let client = claims(TokenRole::Client, Some(7));
        let waits = |now| matches!(known.check(&client, now), Err(Refusal::RetryAfter { .. }));
        assert!(waits(at(0)), "it never had a list");
        known.update(at(10), 3, None);
        assert!(waits(at(10)), "of a list that it does not have");
        known.update(at(10), 3, Some(Vec::new()));
        assert_eq!(known.check(&client, at(70)), Ok(()));
        assert!(waits(at(71)));
        // The servers themselves go on: only with the secret can their tokens be taken back.
        assert_eq!(known.check(&claims(TokenRole::Namenode, None), at(71)), Ok(()));
        known.update(at(80), 3, None);
        assert_eq!(known.check(&client, at(140)), Ok(()));
        // An answer that comes late does not make the list younger.
        known.update(at(75), 3, None);
        assert!(waits(at(141)));
        let tokens = TokenSelector::Id(TokenId(7));
        known.update(at(141), 4, Some(vec![Revocation { tokens, until: 9 }]));
        assert!(matches!(known.check(&client, at(141)), Err(Refusal::Unauthenticated { .. })));
        assert_eq!(known.check(&claims(TokenRole::Client, Some(8)), at(141)), Ok(()));
    }
}
