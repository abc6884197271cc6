//! The manager that leads at the moment, and its leadership lease.

use sanderling_protocol::{Instant, Millis, Nonce, Refusal};
use serde::{Deserialize, Serialize};

/// The holder of the leadership lease, if there was ever any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Leader(Option<LeaderRecord>);

/// The manager that had it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LeaderRecord {
    holder: Nonce,
    name: String,
    until: Instant,
}

impl Leader {
    /// Gives or renews the leadership lease until a service time. Returns whether the holder is
    /// another one than before.
    pub(super) fn acquire(
        &mut self,
        served: Instant,
        holder: Nonce,
        name: &str,
        until: Instant,
    ) -> Result<bool, Refusal> {
        if let Some(leader) = &self.0
            && leader.holder != holder
            && leader.until > served
        {
            return Err(Refusal::NotManager { remaining: served.until(leader.until) });
        }
        let is_new = self.0.as_ref().is_none_or(|leader| leader.holder != holder);
        self.0 = Some(LeaderRecord { holder, name: name.to_owned(), until });
        Ok(is_new)
    }

    /// Returns whether a manager has the leadership lease at a service time.
    pub(super) fn is_held(&self, served: Instant) -> bool {
        self.0.as_ref().is_some_and(|leader| leader.until > served)
    }

    /// Refuses a manager that does not have the leadership lease at a service time.
    pub(super) fn check(&self, served: Instant, holder: Nonce) -> Result<(), Refusal> {
        match &self.0 {
            Some(leader) if leader.holder == holder && leader.until > served => Ok(()),
            Some(leader) if leader.holder != holder => {
                Err(Refusal::NotManager { remaining: served.until(leader.until) })
            }
            _ => Err(Refusal::NotManager { remaining: Millis(0) }),
        }
    }
}
