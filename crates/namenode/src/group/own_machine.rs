//! How long this namenode's own machine goes on.

use sanderling_core::preemption::Model;
use sanderling_core::replica::MachineLife;
use sanderling_protocol::Instant;

use super::clock::boot_time;

/// What this member reports of its machine.
#[derive(Debug, Clone)]
pub(crate) struct OwnMachine {
    pub(crate) is_steady: bool,
    pub(crate) model: Option<Model>,
}

impl OwnMachine {
    /// Returns how long this machine goes on, by its age.
    pub(crate) fn life(&self) -> MachineLife {
        MachineLife::of(self.is_steady, self.model.as_ref(), Instant(0).until(boot_time()))
    }
}
