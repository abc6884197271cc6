//! Blocks whose bytes are damaged or missing: never served, and reported until the namenode has
//! answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sanderling_core::datanode;
use sanderling_protocol::order::{Damage, DamagedBlock, HeldBlock};
use sanderling_protocol::{BlockId, Millis, Refusal, Reply, Request};
use sanderling_transport::CallError;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::blocking::on_thread;
use crate::node::Node;
use crate::store::{BlockBytes, BlockStore};
use crate::verify::ReadError;

/// When a reader may come back to bytes that were right when they were looked at a second time.
const SECOND_LOOK: Millis = Millis(1);

/// Blocks whose files are looked at before other work has its turn.
const PROBED_AT_ONCE: usize = 256;

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

    fn count(&self, block: BlockId, damage: Damage) {
        tracing::error!(%block, %damage, "a block is damaged");
        self.found.fetch_add(1, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// Has everything reported again that is still damaged.
    pub(crate) fn report_again(&self) {
        self.known.lock().report_again();
        self.news.notify_one();
    }

    pub(crate) fn forget(&self) {
        self.known.lock().forget();
    }
}

impl BlockStore {
    /// Returns what a reader is told of an error. Damage is marked and reported, once a second look
    /// has confirmed it. Blocks the thread when the block is on disk.
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
        if let (BlockBytes::Fetched(_), Some(objects)) = (held, &self.objects) {
            objects.fetch_again(block);
        }
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

    /// The same for a writer: a block that is damaged ends for it as one that is fenced does, and
    /// it goes on in a new one.
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

    /// Returns what is said of a block that could not begin: it had no bytes to be damaged.
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

/// Reports damage until the node stops.
pub(crate) async fn report_damage(node: Arc<Node>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = node.store.damages.news.notified() => {}
        }
        while let Err(error) = tell(&node).await {
            tracing::debug!(%error, "a report of damage was not acknowledged");
            let refusal =
                if let CallError::Refused(refusal) = &error { Some(refusal) } else { None };
            let pause = node.store.damages.known.lock().pause(refusal);
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause.into()) => {}
            }
        }
    }
}

/// Sends everything that the namenode has not taken.
async fn tell(node: &Node) -> Result<(), CallError> {
    let store = &node.store;
    loop {
        let identity = node.identity();
        // Not joined: what is here will be reported to whoever lets it in.
        let Some(id) = identity.node else { return Ok(()) };
        let report = {
            let table = store.table.read();
            store.damages.known.lock().next(&table)
        };
        let Some(report) = report else { return Ok(()) };
        let (nonce, blocks) = (identity.nonce, report.blocks.clone());
        let answer = node.ask(Request::ReportDamage { node: id, nonce, blocks }).await;
        let is_taken = matches!(answer, Ok(Reply::Done));
        store.damages.known.lock().reported(&report, is_taken);
        match answer? {
            Reply::Done => {}
            other => return Err(node.bad_reply(&other)),
        }
    }
}

/// Looks whether the files of all blocks on disk are there and long enough.
pub(crate) async fn probe_files(node: &Arc<Node>) {
    let mut after = BlockId(0);
    loop {
        let page = node.store.table.read().list_bytes(after, PROBED_AT_ONCE);
        let Some((last, _)) = page.last() else { return };
        after = last.block;
        let prober = Arc::clone(node);
        let probed = on_thread(move || {
            let on_disk = page.iter().filter(|(_, bytes)| bytes.is_on_disk());
            on_disk.for_each(|(held, bytes)| _ = prober.store.look_at(held, bytes, false));
            Ok(())
        });
        if probed.await.is_err() {
            return;
        }
    }
}
