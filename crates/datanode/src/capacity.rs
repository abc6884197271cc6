//! The bytes of a tier that is accounted for by counting.

use std::sync::atomic::{AtomicU64, Ordering};

use sanderling_protocol::limits::ALLOCATION_UNIT_BYTES;
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::{Refusal, Tier};

/// How much of a tier is in use, rounded up as the namenode does.
#[derive(Debug)]
pub(crate) struct Capacity {
    tier: Tier,
    bytes: u64,
    used_bytes: AtomicU64,
}

impl Capacity {
    pub(crate) const fn new(tier: Tier, bytes: u64) -> Self {
        Self { tier, bytes, used_bytes: AtomicU64::new(0) }
    }

    /// Returns which tier it is, and its size.
    pub(crate) const fn size(&self) -> TierCapacity {
        TierCapacity { tier: self.tier, bytes: self.bytes }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Takes room for a block; returns the bytes to give back with [`Self::release`].
    ///
    /// # Errors
    /// [`Refusal::NodeFull`]: place the block elsewhere.
    pub(crate) fn reserve(&self, length: u32) -> Result<u64, Refusal> {
        let wanted = rounded(length);
        let add = |used: u64| used.checked_add(wanted).filter(|sum| *sum <= self.bytes);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(wanted),
            Err(_) => {
                Err(Refusal::NodeFull { tier: self.tier.to_string(), bytes: u64::from(length) })
            }
        }
    }

    /// Counts a block that is there already, whether or not there is room.
    pub(crate) fn take(&self, length: u32) -> u64 {
        let taken = rounded(length);
        self.used_bytes.fetch_add(taken, Ordering::Relaxed);
        taken
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn rounded(length: u32) -> u64 {
    u64::from(length).next_multiple_of(u64::from(ALLOCATION_UNIT_BYTES))
}
