//! One manager leads at a time: the one that the namenode has given the lease to last.

use sanderling_protocol::Nonce;

use crate::plan::LEADER_LEASE;
use crate::runtime::CheckResult;

/// The manager that may lead.
#[derive(Debug, Default)]
pub(crate) struct Leader {
    /// The manager to which the namenode has given it last.
    holder: Option<Nonce>,
    /// When the log last lost its end: it may have lost that a manager has the lease, but no
    /// manager has one from before for longer than that lasts.
    lost_at: Option<u64>,
}

impl Leader {
    pub(super) const fn rewind(&mut self, now: u64) {
        self.lost_at = Some(now);
    }

    pub(super) const fn granted(&mut self, holder: Nonce) {
        self.holder = Some(holder);
    }

    /// Checks that a manager that makes a call of its decisions has the leadership lease.
    pub(crate) fn check_acts(&self, now: u64, manager: u8, holder: Nonce) -> CheckResult {
        let is_grace = self.lost_at.is_some_and(|at| now < at + LEADER_LEASE.0 * 1000);
        if is_grace || self.holder == Some(holder) {
            return Ok(());
        }
        let text = format!("manager{manager} acts, and another manager has the lease");
        Err(("leader", text))
    }
}
