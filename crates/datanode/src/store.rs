//! The blocks of the node: the table of `core` over the bytes of the tiers.

pub(crate) mod damaged;
mod ends;
mod objects;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use sanderling_core::block_table::{
    BlockTable, PushAdmission, StoreAdmission, StoreRequest, WriteAdmission, WriteRequest,
    WriteTicket,
};
use sanderling_core::datanode::LOOK_UP_BYTES;
use sanderling_protocol::node::Load;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, Epoch, Refusal, Tier};
use tokio::sync::Notify;

use crate::budget;
use crate::damage::DamageLog;
use crate::received::BlockBody;
use crate::tier::ReadBytes;
use crate::tiers::{BlockBytes, Tiers};
use crate::write_queue::WriteQueue;

/// Bytes that passed since the node started.
#[derive(Debug, Default)]
struct TrafficTotals {
    /// Read by clients over the network, and by those on this machine in its memory.
    read_bytes: AtomicU64,
    read_here_bytes: AtomicU64,
    uploaded_bytes: AtomicU64,
    written_bytes: AtomicU64,
    pushed_bytes: AtomicU64,
    stored_bytes: AtomicU64,
}

/// The rest of a write, which may block.
type BlockingWrite = Box<dyn FnOnce(&BlockStore) -> Result<u32, Refusal> + Send>;

/// What a write came to.
pub(crate) enum WriteOutcome {
    /// Finished: the length to acknowledge.
    Done(u32),
    /// To be finished on a thread that may block.
    Blocking(BlockingWrite),
}

/// The blocks of the node. Only this module and its parts change the table, so that no block has
/// bytes that were not admitted.
#[derive(Debug)]
pub(crate) struct BlockStore {
    table: RwLock<BlockTable<BlockBytes>>,
    tiers: Tiers,
    write_queue: Arc<WriteQueue>,
    traffic: TrafficTotals,
    damages: DamageLog,
    /// Clients have written as much as makes another look-up of the ends of blocks due.
    much_written: Notify,
    /// A task looks at the files of all blocks.
    is_probing: AtomicBool,
    index_bytes_max: u64,
}

impl BlockStore {
    pub(crate) fn new(tiers: Tiers, index_bytes_max: u64) -> Self {
        Self {
            table: RwLock::default(),
            tiers,
            write_queue: Arc::default(),
            traffic: TrafficTotals::default(),
            damages: DamageLog::default(),
            much_written: Notify::new(),
            is_probing: AtomicBool::new(false),
            index_bytes_max,
        }
    }

    pub(crate) const fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    pub(crate) const fn damages(&self) -> &DamageLog {
        &self.damages
    }

    pub(crate) const fn write_queue(&self) -> &Arc<WriteQueue> {
        &self.write_queue
    }

    /// Returns the table, to read. The lock of [`DamageLog`] may be taken while it is held.
    pub(crate) fn table(&self) -> RwLockReadGuard<'_, BlockTable<BlockBytes>> {
        self.table.read()
    }

    /// Counts bytes that a client has read over the network.
    pub(crate) fn count_read(&self, bytes: u64) {
        self.traffic.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that a client on this machine has read in its memory.
    pub(crate) fn count_read_here(&self, bytes: u64) {
        self.traffic.read_here_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that clients have read over the network.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.traffic.read_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that a datanode has read, which sends them to a store.
    pub(crate) fn count_uploaded(&self, bytes: u64) {
        self.traffic.uploaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that datanodes have read to send them to stores.
    pub(crate) fn uploaded_bytes(&self) -> u64 {
        self.traffic.uploaded_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that have arrived at another datanode.
    pub(crate) fn count_pushed(&self, bytes: u32) {
        self.traffic.pushed_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
    }

    /// Returns the memory that is kept of blocks beside their bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.index_bytes_of(self.table.read().blocks())
    }

    fn index_bytes_of(&self, blocks: u64) -> u64 {
        let disk = self.tiers.used_bytes(Tier::Disk);
        // What a disk does not delete must not grow without a bound either.
        let blocks = blocks + self.tiers.deletions_waiting();
        budget::index_bytes(blocks, self.tiers.arena().mapped_bytes(), disk)
    }

    pub(crate) const fn index_bytes_max(&self) -> u64 {
        self.index_bytes_max
    }

    /// Refuses a block that the index has no memory for.
    ///
    /// # Errors
    /// [`Refusal::TierFailed`]: place the block on another node.
    pub(crate) fn check_index(&self, blocks: u64, tier: Tier) -> Result<(), Refusal> {
        if self.index_bytes_of(blocks) <= self.index_bytes_max {
            return Ok(());
        }
        Err(budget::index_is_full(tier, self.index_bytes_max))
    }

    /// Admits a write; what would make the index too large is refused.
    ///
    /// # Errors
    /// The table's refusals, and those of [`Self::check_index`].
    pub(crate) fn admit_write(
        &self,
        request: &WriteRequest,
    ) -> Result<WriteAdmission<BlockBytes>, Refusal> {
        let mut table = self.table.write();
        let admission = table.admit_write(request)?;
        // What repeats a write is answered as the write was.
        let WriteAdmission::Append { ticket, bytes } = admission else { return Ok(admission) };
        let tier = ticket.tier();
        // The memory tier's part of the index is counted as if the tier were full.
        let is_counted = bytes.is_none() || tier == Tier::Disk;
        let checked = is_counted.then(|| self.check_index(table.blocks(), tier));
        match checked.unwrap_or(Ok(())) {
            Ok(()) => Ok(WriteAdmission::Append { ticket, bytes }),
            Err(refusal) => {
                table.abandon_write(ticket);
                Err(refusal)
            }
        }
    }

    /// Returns the load as far as the blocks make it.
    pub(crate) fn load(&self) -> Load {
        let traffic = &self.traffic;
        Load {
            blocks: self.table.read().blocks(),
            dram_used_bytes: self.tiers.used_bytes(Tier::Dram),
            disk_used_bytes: self.tiers.used_bytes(Tier::Disk),
            read_bytes_total: self.sent_bytes() + traffic.read_here_bytes.load(Ordering::Relaxed),
            written_bytes_total: traffic.written_bytes.load(Ordering::Relaxed),
            pushed_bytes_total: traffic.pushed_bytes.load(Ordering::Relaxed),
            stored_bytes_total: traffic.stored_bytes.load(Ordering::Relaxed),
            ..Load::default()
        }
    }

    /// Returns the bytes of all blocks, without rounding.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.read().bytes()
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.table.read().is_fenced()
    }

    /// Sets or lifts the node's fence; returns whether that changed anything.
    pub(crate) fn set_fence(&self, is_fenced: bool) -> bool {
        let mut table = self.table.write();
        let was_fenced = table.is_fenced();
        if is_fenced {
            table.fence_node();
        } else {
            table.unfence_node();
        }
        was_fenced != is_fenced
    }

    /// Forgets everything: another incarnation begins.
    pub(crate) fn wipe(&self) -> Vec<BlockBytes> {
        let bytes = self.table.write().wipe();
        self.damages.forget();
        bytes
    }

    /// Publishes no write that is under way: another incarnation begins, with these blocks.
    pub(crate) fn revoke_writes(&self) {
        self.table.write().revoke_writes();
    }

    pub(crate) fn list(&self, after: BlockId, limit: usize) -> Vec<HeldBlock> {
        self.table.read().list(after, limit)
    }

    pub(crate) fn fence_blocks(&self, blocks: &[(BlockId, Epoch)]) -> Vec<u32> {
        let mut table = self.table.write();
        blocks.iter().map(|(block, epoch)| table.fence_block(*block, *epoch)).collect()
    }

    /// Forgets reported blocks that the namenode does not want, unless they were stored anew.
    pub(crate) fn drop_held(&self, unwanted: &[HeldBlock]) {
        for held in unwanted {
            let bytes = self.table.write().drop_block_at(held.block, held.epoch);
            self.tiers.free(bytes);
        }
    }

    /// Forgets blocks. Their space is free once no reader has them, and on disk once their files
    /// are deleted, which this does not wait for.
    pub(crate) fn drop_blocks(&self, blocks: &[(BlockId, Epoch)]) {
        for (block, last) in blocks {
            let bytes = self.table.write().drop_block(*block, *last);
            self.tiers.free(bytes);
        }
    }

    /// Fences a block and returns what to push.
    pub(crate) fn admit_push(
        &self,
        block: BlockId,
        epoch: Epoch,
    ) -> Result<PushAdmission<BlockBytes>, Refusal> {
        self.table.write().admit_push(block, epoch)
    }

    /// Finds a range to read; `None` when it is empty. [`BlockBytes::read`] reads it.
    pub(crate) fn admit_read(
        &self,
        block: BlockId,
        epoch: Epoch,
        offset: u64,
        bytes: u32,
    ) -> Result<Option<BlockBytes>, Refusal> {
        let table = self.table.read();
        let held = table.admit_read(block, epoch, offset, bytes)?;
        Ok(if bytes == 0 { None } else { held.cloned() })
    }

    /// Reads an admitted range. Blocks the thread when the block is on disk.
    ///
    /// # Errors
    /// As [`Self::refusal_of`] returns them.
    pub(crate) fn read(
        &self,
        block: BlockId,
        held: &BlockBytes,
        offset: u32,
        bytes: u32,
    ) -> Result<ReadBytes, Refusal> {
        held.read(offset, bytes).map_err(|error| self.refusal_of(block, held, error))
    }

    /// Does as much of a write as can be done without blocking.
    ///
    /// # Errors
    /// The table's refusals, [`Refusal::ChecksumMismatch`] and [`Refusal::NodeFull`]; the block is
    /// as it was before.
    pub(crate) fn write(
        &self,
        request: WriteRequest,
        mut body: BlockBody,
        checksum: u32,
    ) -> Result<WriteOutcome, Refusal> {
        let sums = body.sums(request.offset);
        check(request.block, sums.whole, checksum)?;
        let admission = self.admit_write(&request)?;
        match admission {
            WriteAdmission::Append { ticket, bytes: before } => {
                let is_blocking = ticket.tier() == Tier::Disk;
                let grow = move |store: &Self| {
                    let place = (request.block, ticket.tier());
                    let grown = store.tiers.grown(place, before.clone(), body, &sums);
                    store.conclude(&request, ticket, grown, |error| match before {
                        Some(before) => store.write_refusal(request.block, &before, error),
                        None => store.refusal_of_new(request.block, error),
                    })
                };
                self.step(is_blocking, grow)
            }
            WriteAdmission::AlreadyThere { bytes: held, length } => {
                let (is_blocking, bytes) = (held.is_blocking(), body.into_bytes());
                let compare =
                    move |store: &Self| store.compare_write(&request, &held, length, &bytes);
                self.step(is_blocking, compare)
            }
        }
    }

    /// Finishes a write on a thread that may block.
    ///
    /// # Errors
    /// As [`Self::write`], and [`Refusal::TierFailed`].
    pub(crate) fn finish(&self, step: WriteOutcome) -> Result<u32, Refusal> {
        match step {
            WriteOutcome::Done(length) => Ok(length),
            WriteOutcome::Blocking(finish) => finish(self),
        }
    }

    fn step<W>(&self, is_blocking: bool, work: W) -> Result<WriteOutcome, Refusal>
    where
        W: FnOnce(&Self) -> Result<u32, Refusal> + Send + 'static,
    {
        if is_blocking {
            return Ok(WriteOutcome::Blocking(Box::new(work)));
        }
        work(self).map(WriteOutcome::Done)
    }

    /// Returns whether a write came too early: one before it is on its way to the disk.
    pub(crate) fn is_early(&self, request: &WriteRequest) -> bool {
        if request.tier != Tier::Disk {
            return false;
        }
        self.table.read().writing(request.block) == Some(Tier::Disk)
            || self.write_queue.is_one_before(request.block, request.offset)
    }

    /// Publishes what an admitted write has made of a block, or takes the write back. Gives the
    /// next write to a block on disk its turn.
    ///
    /// # Errors
    /// `refusal` of the error, or [`Refusal::Moved`] when a fence came between; the block is as it
    /// was before.
    pub(crate) fn conclude<E>(
        &self,
        request: &WriteRequest,
        ticket: WriteTicket,
        grown: Result<BlockBytes, E>,
        refusal: impl FnOnce(E) -> Refusal,
    ) -> Result<u32, Refusal> {
        let is_on_disk = ticket.tier() == Tier::Disk;
        let concluded = match grown {
            Ok(grown) => self.table.write().wrote(ticket, grown),
            Err(error) => {
                self.table.write().abandon_write(ticket);
                Err(refusal(error))
            }
        };
        if is_on_disk {
            self.write_queue.ended(request.block);
        }
        let length = concluded?;
        let bytes = u64::from(request.bytes);
        let before = self.traffic.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before / LOOK_UP_BYTES != (before + bytes) / LOOK_UP_BYTES {
            self.much_written.notify_one();
        }
        Ok(length)
    }

    /// Answers a write whose range is there already: acknowledged if it repeats the same bytes.
    /// Blocks the thread when the block is on disk.
    ///
    /// # Errors
    /// [`Refusal::NotAtEnd`] when the bytes differ.
    pub(crate) fn compare_write(
        &self,
        request: &WriteRequest,
        held: &BlockBytes,
        length: u32,
        bytes: &[u8],
    ) -> Result<u32, Refusal> {
        let offset = u32::try_from(request.offset).map_err(|_| self.not_at_end(request))?;
        // If they differ, the block's own bytes may be damaged: their checksums show it.
        let same = held.has(offset, bytes);
        let same =
            same.and_then(|same| if same { Ok(true) } else { held.inspect(true).map(|()| false) });
        match same {
            Ok(true) => Ok(length),
            Ok(false) => Err(self.not_at_end(request)),
            Err(error) => Err(self.write_refusal(request.block, held, error)),
        }
    }

    /// Takes a whole block from another datanode. Blocks the thread when its tier is the disk.
    ///
    /// # Errors
    /// The table's refusals, [`Refusal::ChecksumMismatch`], [`Refusal::NodeFull`],
    /// [`Refusal::TierFailed`].
    pub(crate) fn store(
        &self,
        request: &StoreRequest,
        mut body: BlockBody,
        checksum: u32,
    ) -> Result<(), Refusal> {
        let sums = body.sums(0);
        check(request.block, sums.whole, checksum)?;
        let admission = self.admit_store(request)?;
        if let StoreAdmission::AlreadyThere { bytes: held } = admission {
            let same = held.has(0, &body.into_bytes());
            let same = same.map_err(|error| self.refusal_of(request.block, &held, error))?;
            let computed = held.checksum(0, request.bytes).unwrap_or_default();
            let block = request.block;
            let mismatch = Refusal::ChecksumMismatch { block, expected: checksum, computed };
            return if same { Ok(()) } else { Err(mismatch) };
        }
        let grown = self.tiers.grown((request.block, request.tier), None, body, &sums);
        let grown = grown.map_err(|error| self.refusal_of_new(request.block, error))?;
        self.table.write().stored(request, grown)?;
        self.traffic.stored_bytes.fetch_add(u64::from(request.bytes), Ordering::Relaxed);
        Ok(())
    }

    /// Admits a whole block as [`Self::admit_write`] does a write.
    ///
    /// # Errors
    /// As [`Self::admit_write`].
    pub(crate) fn admit_store(
        &self,
        request: &StoreRequest,
    ) -> Result<StoreAdmission<BlockBytes>, Refusal> {
        let table = self.table.read();
        let admission = table.admit_store(request)?;
        if matches!(admission, StoreAdmission::Copy) {
            self.check_index(table.blocks() + 1, request.tier)?;
        }
        Ok(admission)
    }

    pub(crate) fn not_at_end(&self, request: &WriteRequest) -> Refusal {
        self.table.read().not_at_end(request)
    }
}

pub(crate) fn check(block: BlockId, computed: u32, expected: u32) -> Result<(), Refusal> {
    if computed == expected {
        return Ok(());
    }
    Err(Refusal::ChecksumMismatch { block, expected, computed })
}

#[cfg(test)]
mod tests;
