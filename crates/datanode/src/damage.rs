//! Damaged and missing blocks, remembered until the namenode has acknowledged their report.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use sanderling_core::datanode;
use sanderling_protocol::BlockId;
use sanderling_protocol::order::{Damage, DamagedBlock};
use tokio::sync::Notify;

/// What the node has found damaged, and what of that the namenode has taken, as
/// [`sanderling_core::datanode::Damages`] decides.
#[derive(Debug, Default)]
pub(crate) struct DamageLog {
    changed: Notify,
    /// Taken after the block table's lock, never before it.
    known: Mutex<datanode::Damages>,
    found: AtomicU64,
}

impl DamageLog {
    /// Returns how many damaged and missing blocks were found.
    pub(crate) fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// Reports a block that is not in the table.
    pub(crate) fn add_unheld(&self, damaged: DamagedBlock) {
        if self.known.lock().add(damaged) {
            self.count(damaged.block, damaged.damage);
        }
    }

    /// Counts a block that was found damaged, and has it reported.
    pub(crate) fn count(&self, block: BlockId, damage: Damage) {
        tracing::error!(%block, %damage, "a block is damaged");
        self.found.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Has everything reported again that is still damaged.
    pub(crate) fn report_again(&self) {
        self.known.lock().report_again();
        self.changed.notify_one();
    }

    /// Forgets what was reported: another incarnation begins.
    pub(crate) fn forget(&self) {
        self.known.lock().forget();
    }

    /// Waits until there is something to report.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns what is still to be reported; its lock is taken after the block table's.
    pub(crate) fn known(&self) -> MutexGuard<'_, datanode::Damages> {
        self.known.lock()
    }
}
