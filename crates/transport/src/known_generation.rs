//! Which generation of the group of namenodes a process has met: each greeting names it.
//!
//! It travels in the `offset` of the greeting and of its answer, 0 for none. A peer of the release
//! before ignores it there, and names none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sanderling_core::group_generation::GroupGeneration;
use sanderling_protocol::Refusal;

/// The latest generation that a process has met. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct KnownGeneration {
    shared: Arc<Known>,
}

#[derive(Debug, Default)]
struct Known {
    generation: AtomicU64,
    /// A namenode has named a later one, and did not answer as a leader yet.
    is_claimed: AtomicBool,
}

impl KnownGeneration {
    /// Returns the latest generation that the process has met; the default if it has met none.
    #[must_use]
    pub fn get(&self) -> GroupGeneration {
        GroupGeneration(self.shared.generation.load(Ordering::Acquire))
    }

    /// Sets the generation to that of the group of which this process is a namenode.
    pub fn set(&self, generation: GroupGeneration) {
        self.shared.generation.store(generation.0, Ordering::Release);
    }

    /// Takes what a namenode's greeting names. A later one only counts once that namenode has
    /// answered as a leader does.
    ///
    /// # Errors
    /// [`Refusal::OtherGeneration`]: do not call it.
    pub(crate) fn greeted(&self, theirs: GroupGeneration) -> Result<(), Refusal> {
        if self.get().meets(theirs)? {
            self.shared.is_claimed.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns whether a later one was named than is known.
    pub(crate) fn is_claimed(&self) -> bool {
        self.shared.is_claimed.load(Ordering::Relaxed)
    }

    /// Notes that a namenode that named a generation has answered as a leader does. Returns whether
    /// it is a later one.
    pub(crate) fn confirm(&self, theirs: GroupGeneration) -> bool {
        let is_later = self.get().meets(theirs) == Ok(true);
        if is_later {
            self.set(theirs);
        }
        is_later
    }

    /// Notes that no open connection is to a namenode of a later one.
    pub(crate) fn end_claim(&self) {
        self.shared.is_claimed.store(false, Ordering::Release);
    }
}
