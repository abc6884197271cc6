//! Calls that wait for their answers.

use std::collections::BTreeMap;

use crate::event::Purpose;
use crate::wire::Host;

/// The calls of all processes.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pending: BTreeMap<u64, PendingCall>,
    last: u64,
}

/// A call that is not answered yet.
#[derive(Debug)]
pub(crate) struct PendingCall {
    pub(crate) from: Host,
    /// Which process of that place waits.
    pub(crate) life: u32,
    pub(crate) purpose: Purpose,
    pub(crate) sent_at: u64,
}

impl Calls {
    /// Returns the number of a new call.
    pub(crate) fn begin(&mut self, call: PendingCall) -> u64 {
        self.last += 1;
        self.pending.insert(self.last, call);
        self.last
    }

    pub(crate) fn get(&self, call: u64) -> Option<&PendingCall> {
        self.pending.get(&call)
    }

    /// Takes a call whose wait is over.
    pub(crate) fn take(&mut self, call: u64) -> Option<PendingCall> {
        self.pending.remove(&call)
    }

    /// Forgets calls: their answers are dropped.
    pub(crate) fn forget(&mut self, is_forgotten: impl Fn(&Purpose) -> bool) {
        self.pending.retain(|_, call| !is_forgotten(&call.purpose));
    }
}
