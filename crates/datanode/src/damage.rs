//! Damaged and missing blocks, remembered until the namenode has acknowledged their report.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sanderling_core::block_table::BlockTable;
use sanderling_core::datanode::{self, DamageReport};
use sanderling_protocol::order::{Damage, DamagedBlock};
use sanderling_protocol::{BlockId, Millis, Refusal};
use tokio::sync::Notify;

/// What the node has found damaged, and what of that the namenode has taken, as
/// [`sanderling_core::datanode::Damages`] decides.
#[derive(Debug, Default)]
pub(crate) struct Damages {
    news: Notify,
    /// Taken after the block table's lock, never before it.
    known: Mutex<datanode::Damages>,
    found: AtomicU64,
}

impl Damages {
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
        self.news.notify_one();
    }

    /// Has everything reported again that is still damaged.
    pub(crate) fn report_again(&self) {
        self.known.lock().report_again();
        self.news.notify_one();
    }

    /// Forgets what was reported: another incarnation begins.
    pub(crate) fn forget(&self) {
        self.known.lock().forget();
    }

    /// Waits until there is something to report.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Returns the next report of what the namenode has not acknowledged.
    pub(crate) fn next<B: Clone>(&self, table: &BlockTable<B>) -> Option<DamageReport> {
        self.known.lock().next(table)
    }

    /// Notes whether the namenode took a report.
    pub(crate) fn reported(&self, report: &DamageReport, is_taken: bool) {
        self.known.lock().reported(report, is_taken);
    }

    /// Returns the time until a report that failed is repeated.
    pub(crate) fn pause(&self, refusal: Option<&Refusal>) -> Millis {
        self.known.lock().pause(refusal)
    }
}
