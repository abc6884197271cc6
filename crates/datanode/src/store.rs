//! The blocks of the node: the table of `core` over the bytes of the tiers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use sanderling_core::block_table::{
    BlockTable, PushAdmission, StoreAdmission, StoreRequest, WriteAdmission, WriteRequest,
    WriteTicket,
};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, Epoch, Refusal, Tier};

use crate::arena::Arena;
use crate::budget;
use crate::chunk_sums::BodySums;
use crate::damage::Damages;
use crate::disk::{DiskBytes, DiskTier};
use crate::dram::DramBytes;
use crate::object::{Fetched, ObjectBytes, ObjectTier};
use crate::received::BlockBody;
use crate::verify::ReadError;
use crate::write_queue::WriteQueue;

/// The bytes of one block at one length.
#[derive(Debug, Clone)]
pub(crate) enum BlockBytes {
    Dram(Arc<DramBytes>),
    Disk(Arc<DiskBytes>),
    /// Not here: [`BlockStore::fetched`] makes a [`Self::Fetched`] of it.
    Object(Arc<ObjectBytes>),
    Fetched(Arc<Fetched>),
}

/// A run of a block that was read, in order, with its checksum.
#[derive(Debug)]
pub(crate) struct ReadBytes {
    pub(crate) slices: Vec<Bytes>,
    pub(crate) checksum: u32,
}

/// Bytes that passed since the node started.
#[derive(Debug, Default)]
pub(crate) struct TrafficTotals {
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) pushed_bytes: AtomicU64,
    pub(crate) stored_bytes: AtomicU64,
}

/// An admitted write that is still to be copied.
#[derive(Debug)]
pub(crate) struct PendingWrite {
    request: WriteRequest,
    ticket: WriteTicket,
    before: Option<BlockBytes>,
    body: BlockBody,
    sums: BodySums,
}

/// What a write came to.
#[derive(Debug)]
pub(crate) enum WriteStep {
    /// Finished: the length to acknowledge.
    Done(u32),
    /// To be finished on a thread that may block.
    Disk(PendingWrite),
    /// To be compared with the file on a thread that may block.
    Compare { request: WriteRequest, held: BlockBytes, length: u32, bytes: Bytes },
}

/// The blocks of the node.
#[derive(Debug)]
pub(crate) struct BlockStore {
    pub(crate) table: RwLock<BlockTable<BlockBytes>>,
    arena: Arc<Arena>,
    disk: Option<Arc<DiskTier>>,
    pub(crate) objects: Option<Arc<ObjectTier>>,
    pub(crate) write_queue: Arc<WriteQueue>,
    pub(crate) traffic: TrafficTotals,
    pub(crate) damages: Damages,
    index_bytes_max: u64,
}

impl BlockStore {
    pub(crate) fn new(
        arena: Arc<Arena>,
        disk: Option<Arc<DiskTier>>,
        objects: Option<Arc<ObjectTier>>,
        index_bytes_max: u64,
    ) -> Self {
        let table = RwLock::new(BlockTable::default());
        let (turns, traffic, damages) =
            (Arc::default(), TrafficTotals::default(), Damages::default());
        Self { table, arena, disk, objects, write_queue: turns, traffic, damages, index_bytes_max }
    }

    /// Returns the memory that is kept of blocks beside their bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.index_bytes_of(self.table.read().blocks())
    }

    fn index_bytes_of(&self, blocks: u64) -> u64 {
        let disk = self.disk.as_ref().map_or(0, |disk| disk.used_bytes());
        budget::index_bytes(blocks, self.arena.mapped_bytes(), disk)
    }

    pub(crate) const fn index_bytes_max(&self) -> u64 {
        self.index_bytes_max
    }

    /// Refuses a block that the index has no memory for.
    ///
    /// # Errors
    /// [`Refusal::TierFailed`].
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

    pub(crate) const fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the tiers and their sizes.
    pub(crate) fn tiers(&self) -> Vec<TierCapacity> {
        let dram = TierCapacity { tier: Tier::Dram, bytes: self.arena.bytes() };
        let disk = |disk: &Arc<DiskTier>| TierCapacity { tier: Tier::Disk, bytes: disk.bytes() };
        let object = |object: &Arc<ObjectTier>| TierCapacity {
            tier: Tier::Object,
            bytes: object.capacity.bytes(),
        };
        let others = self.disk.as_ref().map(disk).into_iter();
        [dram].into_iter().chain(others).chain(self.objects.as_ref().map(object)).collect()
    }

    /// Returns the bytes that this node's blocks take in the object tier.
    pub(crate) fn object_used_bytes(&self) -> u64 {
        self.objects.as_ref().map_or(0, |objects| objects.capacity.used_bytes())
    }

    /// Returns the load as far as the blocks make it.
    pub(crate) fn load(&self) -> Load {
        let traffic = &self.traffic;
        Load {
            blocks: self.table.read().blocks(),
            dram_used_bytes: self.arena.used_bytes(),
            disk_used_bytes: self.disk.as_ref().map_or(0, |disk| disk.used_bytes()),
            read_bytes_total: traffic.read_bytes.load(Ordering::Relaxed),
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

    pub(crate) fn list(&self, after: BlockId, limit: usize) -> Vec<HeldBlock> {
        self.table.read().list(after, limit)
    }

    pub(crate) fn fence_blocks(&self, blocks: &[(BlockId, Epoch)]) -> Vec<u32> {
        let mut table = self.table.write();
        blocks.iter().map(|(block, epoch)| table.fence_block(*block, *epoch)).collect()
    }

    /// Forgets blocks of a report that nobody wants, unless they were stored anew since.
    pub(crate) fn drop_held(&self, unwanted: &[HeldBlock]) {
        for held in unwanted {
            let bytes = self.table.write().drop_block_at(held.block, held.epoch);
            self.let_go(bytes);
        }
    }

    /// Forgets blocks. Their space is free once nobody reads them.
    pub(crate) fn drop_blocks(&self, blocks: &[(BlockId, Epoch)]) {
        for (block, last) in blocks {
            let bytes = self.table.write().drop_block(*block, *last);
            // Deleting a file takes its time, and the table is free again by now.
            self.let_go(bytes);
        }
    }

    /// Frees what a dropped block took. An object is deleted later, once the namenode has said that
    /// nobody serves it.
    fn let_go(&self, bytes: Option<BlockBytes>) {
        if let (Some(BlockBytes::Object(held)), Some(objects)) = (&bytes, &self.objects) {
            objects.garbage.add_now(held.key());
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
    ) -> Result<WriteStep, Refusal> {
        let sums = body.sums(request.offset);
        check(request.block, sums.whole, checksum)?;
        let admission = self.admit_write(&request)?;
        match admission {
            WriteAdmission::Append { ticket, bytes: before } => {
                let is_disk = ticket.tier() == Tier::Disk;
                let pending = PendingWrite { request, ticket, before, body, sums };
                if is_disk {
                    return Ok(WriteStep::Disk(pending));
                }
                self.finish_write(pending).map(WriteStep::Done)
            }
            WriteAdmission::AlreadyThere { bytes: held, length } => {
                let bytes = body.into_bytes();
                match &held {
                    BlockBytes::Dram(_) => {
                        self.compare_write(&request, &held, length, &bytes).map(WriteStep::Done)
                    }
                    BlockBytes::Disk(_) | BlockBytes::Object(_) | BlockBytes::Fetched(_) => {
                        Ok(WriteStep::Compare { request, held, length, bytes })
                    }
                }
            }
        }
    }

    /// Finishes a write on a thread that may block, and gives the next write its turn.
    ///
    /// # Errors
    /// As [`Self::write`], and [`Refusal::TierFailed`].
    pub(crate) fn finish(&self, step: WriteStep) -> Result<u32, Refusal> {
        let done = match step {
            WriteStep::Done(length) => Ok(length),
            WriteStep::Disk(pending) => self.finish_write(pending),
            WriteStep::Compare { request, held, length, bytes } => {
                self.compare_write(&request, &held, length, &bytes)
            }
        };
        self.write_queue.change();
        done
    }

    /// Tells whether a write came too early: one before it is on its way to the disk.
    pub(crate) fn is_early(&self, request: &WriteRequest) -> bool {
        if request.tier != Tier::Disk {
            return false;
        }
        self.table.read().writing(request.block) == Some(Tier::Disk)
            || self.write_queue.is_one_before(request.block, request.offset)
    }

    /// Copies an admitted write and publishes it. Blocks the thread when the block is on disk.
    ///
    /// # Errors
    /// [`Refusal::NodeFull`], [`Refusal::TierFailed`], or [`Refusal::Moved`] when a fence came
    /// between; the block is as it was before.
    fn finish_write(&self, pending: PendingWrite) -> Result<u32, Refusal> {
        let PendingWrite { request, ticket, before, body, sums } = pending;
        match self.grown(request.block, ticket.tier(), before.clone(), body, &sums) {
            Ok(grown) => {
                let length = self.table.write().wrote(ticket, grown)?;
                let bytes = u64::from(request.bytes);
                self.traffic.written_bytes.fetch_add(bytes, Ordering::Relaxed);
                Ok(length)
            }
            Err(error) => {
                self.table.write().abandon_write(ticket);
                match before {
                    Some(before) => Err(self.write_refusal(request.block, &before, error)),
                    None => Err(self.refusal_of_new(request.block, error)),
                }
            }
        }
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
        // Bytes that differ may be the block's own that have changed.
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
        let grown = self.grown(request.block, request.tier, None, body, &sums);
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

    fn grown(
        &self,
        block: BlockId,
        tier: Tier,
        before: Option<BlockBytes>,
        body: BlockBody,
        sums: &BodySums,
    ) -> Result<BlockBytes, ReadError> {
        let bytes = u64::from(body.len());
        let full = || Refusal::NodeFull { tier: tier.to_string(), bytes };
        let before = match before {
            Some(before) => before,
            None => self.empty(block, tier).ok_or_else(full)?,
        };
        Ok(match (before, body) {
            (BlockBytes::Dram(before), BlockBody::Received(received)) => {
                BlockBytes::Dram(Arc::new(before.with_received(received, sums)))
            }
            (BlockBytes::Dram(before), BlockBody::Bytes(bytes)) => {
                BlockBytes::Dram(Arc::new(before.with(&bytes, sums).ok_or_else(full)?))
            }
            (BlockBytes::Disk(before), body) => {
                BlockBytes::Disk(Arc::new(before.with(&body.into_bytes(), sums)?))
            }
            (BlockBytes::Object(_) | BlockBytes::Fetched(_), _) => return Err(not_fetched().into()),
        })
    }

    fn empty(&self, block: BlockId, tier: Tier) -> Option<BlockBytes> {
        match tier {
            Tier::Dram => Some(BlockBytes::Dram(Arc::new(DramBytes::new(&self.arena)))),
            Tier::Disk => {
                let disk = self.disk.as_ref()?;
                Some(BlockBytes::Disk(Arc::new(DiskBytes::new(disk, block))))
            }
            Tier::Object => None,
        }
    }

    pub(crate) fn not_at_end(&self, request: &WriteRequest) -> Refusal {
        self.table.read().not_at_end(request)
    }
}

impl BlockBytes {
    /// Tells whether reading blocks the thread.
    pub(crate) const fn is_on_disk(&self) -> bool {
        matches!(self, Self::Disk(_))
    }

    /// Tells whether the bytes are in this node's memory or on its disk.
    pub(crate) const fn is_here(&self) -> bool {
        matches!(self, Self::Dram(_) | Self::Disk(_))
    }

    /// Tells whether the bytes have to be fetched before they can be read.
    pub(crate) const fn is_in_object_tier(&self) -> bool {
        matches!(self, Self::Object(_))
    }
}

pub(crate) fn not_fetched() -> Refusal {
    let why = "the bytes of the object are not here".to_owned();
    Refusal::TierFailed { tier: Tier::Object.to_string(), why }
}

pub(crate) fn check(block: BlockId, computed: u32, expected: u32) -> Result<(), Refusal> {
    if computed == expected {
        return Ok(());
    }
    Err(Refusal::ChecksumMismatch { block, expected, computed })
}
