//! Blocks whose bytes are damaged: never served, and reported.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sanderling_protocol::order::{Damage, HeldBlock};
use sanderling_protocol::{BlockId, Millis, Refusal};

use super::BlockStore;
use crate::blocking::on_thread;
use crate::tier::ReadError;
use crate::tiers::BlockBytes;

/// When a reader may come back to bytes that were right when they were looked at a second time. The
/// least that a pause has: nothing is waited for.
const SECOND_LOOK: Millis = Millis(1);

/// Blocks whose files are checked before other work has its turn. To open and look at a file takes
/// some ten microseconds, so a thread is free again after some milliseconds. Chosen, not measured.
const PROBED_AT_ONCE: usize = 256;

impl BlockStore {
    /// Returns the refusal that a reader gets for an error. Damage is marked and reported, once a
    /// second look has confirmed it. Blocks the thread when the block is on disk.
    pub(crate) fn refusal_of(
        &self,
        block: BlockId,
        held: &BlockBytes,
        error: ReadError,
    ) -> Refusal {
        let damage = match error {
            ReadError::Refused(refusal) => return refusal,
            ReadError::Damaged(damage) => damage,
        };
        self.tiers.fetch_again(block, held);
        let confirmed = match held.inspect(true) {
            // The object tier has looked twice.
            _ if held.is_in_object_tier() => Some(damage),
            Err(ReadError::Damaged(damage)) => Some(damage),
            Ok(()) | Err(ReadError::Refused(_)) => None,
        };
        let Some(damage) = confirmed else {
            tracing::warn!(%block, %damage, "a second look found no damage");
            let why = format!("block {block} could be read when it was looked at again");
            return Refusal::RetryAfter { after: SECOND_LOOK, why };
        };
        if self.table.write().mark_damaged(block, damage, |bytes| bytes.is_same(held)) {
            self.damages.count(block, damage);
        }
        Refusal::BlockDamaged { block }
    }

    /// Returns the refusal that a writer gets for an error, with damage marked as for a reader. A
    /// block that is damaged ends for the writer as one that is fenced does, and it goes on in a
    /// new one.
    pub(crate) fn write_refusal(
        &self,
        block: BlockId,
        held: &BlockBytes,
        error: ReadError,
    ) -> Refusal {
        match self.refusal_of(block, held, error) {
            Refusal::BlockDamaged { .. } => {
                Refusal::Moved { block, length: self.table.read().length(block) }
            }
            refusal => refusal,
        }
    }

    /// Returns the refusal for a block that could not begin: it had no bytes to be damaged.
    pub(crate) fn refusal_of_new(&self, block: BlockId, error: ReadError) -> Refusal {
        match error {
            ReadError::Refused(refusal) => refusal,
            ReadError::Damaged(_) => Refusal::BlockDamaged { block },
        }
    }

    /// Looks at a block of the table, marks it if it is damaged, and returns what is wrong. Blocks
    /// the thread when the block is on disk.
    pub(crate) fn look_at(
        &self,
        held: &HeldBlock,
        bytes: &BlockBytes,
        with_checksums: bool,
    ) -> Option<Damage> {
        let error = bytes.inspect(with_checksums).err()?;
        let ReadError::Damaged(damage) = error else { return None };
        match self.refusal_of(held.block, bytes, error) {
            Refusal::BlockDamaged { .. } => Some(damage),
            _ => None,
        }
    }
}

/// Looks in a task of its own whether the files of all blocks on disk are there and long enough, so
/// that no heartbeat waits for a disk that hangs. One that still does so goes on instead.
pub(crate) fn start_probe(store: &Arc<BlockStore>) {
    if store.is_probing.swap(true, Ordering::AcqRel) {
        return;
    }
    let store = Arc::clone(store);
    tokio::spawn(async move {
        probe_files(&store).await;
        store.is_probing.store(false, Ordering::Release);
    });
}

async fn probe_files(store: &Arc<BlockStore>) {
    let mut after = BlockId(0);
    loop {
        let page = store.table.read().list_bytes(after, PROBED_AT_ONCE);
        let Some((last, _)) = page.last() else { return };
        after = last.block;
        // Those in memory must be free to go while the disk hangs.
        let on_disk: Vec<_> = page.into_iter().filter(|(_, bytes)| bytes.is_blocking()).collect();
        if on_disk.is_empty() {
            tokio::task::yield_now().await;
            continue;
        }
        let prober = Arc::clone(store);
        let probed = on_thread(move || {
            on_disk.iter().for_each(|(held, bytes)| _ = prober.look_at(held, bytes, false));
            Ok(())
        });
        if probed.await.is_err() {
            return;
        }
    }
}
