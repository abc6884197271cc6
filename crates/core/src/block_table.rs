//! A datanode's decisions about its blocks: which writes, reads, stores, pushes and drops it
//! allows.
//!
//! The table contains epochs and lengths. Where the bytes are is the shell's business: `B` is its
//! handle to them, so the same table runs over an arena, over files and over symbolic bytes.
//!
//! # Rules
//! - **Bytes never change.** A block grows at its end at one node, under one ticket at a time, and
//!   a byte that was acknowledged stays as it is. What is below the length is the same on every
//!   copy.
//! - **Admission and publication.** A write is admitted, copied outside the table, then published
//!   by [`BlockTable::wrote`]. A fence or drop that comes between wins: the write is refused and
//!   was never acknowledged. So the length that a fence or push reads is final.
//! - **Writes** need the very epoch of the block: an older one is a writer that lost its lease, a
//!   newer one names a home that this node is not, yet or any more.
//! - **Reads** are refused at an older epoch than ours, and served at ours, also behind a fence and
//!   after the home has moved: the old copy stays good until it is dropped. A newer epoch is served
//!   as far as our bytes reach: the namenode raised it in place and its order is still on the way.
//! - **A fence on a block is for good.** The node's fence can be lifted; a block that was fenced by
//!   an order or by a push stays so, because its length has been reported.
//! - **A stored block is sealed**: no writer ever goes on in a copy.
//! - **A damaged block is not served**, nor pushed, and takes no writes: its readers look it up
//!   again. It stays until the namenode has it dropped, or a good copy is stored over it.
//! - **An ended block has the bytes that count**: as soon as its end is looked up at the namenode
//!   (`ends`), it takes no more writes, and a while later it gives back what was never published.

mod damage;
mod ends;
mod unended;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use sanderling_protocol::limits::{BLOCK_BYTES_MAX, BLOCKS_PER_PAGE_MAX};
use sanderling_protocol::order::{Damage, HeldBlock};
use sanderling_protocol::{BlockId, Epoch, Millis, Refusal, Tier};

use self::unended::UnendedBlocks;
pub use self::unended::{LookUpTimes, TRIM_AFTER};

/// Most dropped blocks remembered, the latest ones: a write that overtook the drop of its block is
/// milliseconds late, and this many drops are seconds apart. One that slips through only makes
/// garbage, which the next block report finds.
pub const TOMBSTONES_MAX: usize = 65_536;

/// When to send a write again that is under way already: a copy of a block takes less. A copy of
/// 1 MiB takes some 100 us, a write to a disk some milliseconds. Chosen, not measured.
const UNDER_WAY_RETRY: Millis = Millis(5);

/// The stage of a block's life on this node, which decides which writes it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockStage {
    /// It takes writes at its end.
    Open,
    /// It takes no more writes; its length is final.
    Fenced,
    /// It came whole from another datanode.
    Sealed,
}

/// Describes a write as its header does: nothing of it has been checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRequest {
    /// The block.
    pub block: BlockId,
    /// The block's epoch according to the writer.
    pub epoch: Epoch,
    /// The tier for a block that begins with this write; one that exists stays where it is.
    pub tier: Tier,
    /// First byte within the block.
    pub offset: u64,
    /// Bytes to write.
    pub bytes: u32,
}

/// A whole block that another datanode pushes here: nothing of it has been checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreRequest {
    /// The block.
    pub block: BlockId,
    /// The epoch that the copy gets.
    pub epoch: Epoch,
    /// The tier.
    pub tier: Tier,
    /// Its bytes.
    pub bytes: u32,
}

/// The right to append one run to one block, until it is published or given back.
#[derive(Debug, PartialEq, Eq)]
pub struct WriteTicket {
    block: BlockId,
    number: u64,
    tier: Tier,
    end: u32,
}

impl WriteTicket {
    /// Returns the tier on which the block is, or begins.
    #[must_use]
    pub const fn tier(&self) -> Tier {
        self.tier
    }
}

/// The way in which a datanode takes a write that it does not refuse.
#[derive(Debug, PartialEq, Eq)]
pub enum WriteAdmission<B> {
    /// Add the bytes after those of `bytes` (`None`: the block begins), then call
    /// [`BlockTable::wrote`], or [`BlockTable::abandon_write`] when that failed.
    Append {
        /// To be handed back.
        ticket: WriteTicket,
        /// What the block holds so far.
        bytes: Option<B>,
    },
    /// These bytes are here already. Acknowledge `length` if they are the same, else refuse with
    /// [`BlockTable::not_at_end`].
    AlreadyThere {
        /// What the block holds.
        bytes: B,
        /// The block's length.
        length: u32,
    },
}

/// The way in which a datanode takes a store that it does not refuse.
#[derive(Debug, PartialEq, Eq)]
pub enum StoreAdmission<B> {
    /// Take the bytes, then call [`BlockTable::stored`].
    Copy,
    /// The same block was stored at this epoch before: acknowledge it if the bytes are the same.
    AlreadyThere {
        /// What the block holds.
        bytes: B,
    },
}

/// The block that a datanode may push, as it will be for ever.
#[derive(Debug, PartialEq, Eq)]
pub struct PushAdmission<B> {
    /// Final length.
    pub length: u32,
    /// The bytes; `None` of an empty block, which is not copied.
    pub bytes: Option<B>,
}

/// One block in the table.
#[derive(Debug, Clone)]
struct BlockEntry<B> {
    epoch: Epoch,
    length: u32,
    tier: Tier,
    stage: BlockStage,
    /// `Some` whenever the length is above zero.
    bytes: Option<B>,
    writing: Option<PendingWrite>,
    damage: Option<Damage>,
}

/// A write between its admission and its publication.
#[derive(Debug, Clone, Copy)]
struct PendingWrite {
    ticket: u64,
    end: u32,
}

/// The blocks of one datanode and its fence, which decide what is admitted.
#[derive(Debug, Clone)]
pub struct BlockTable<B> {
    blocks: BTreeMap<BlockId, BlockEntry<B>>,
    unended: UnendedBlocks,
    bytes: u64,
    tombstones: Tombstones,
    is_fenced: bool,
    tickets: u64,
}

impl<B> Default for BlockTable<B> {
    fn default() -> Self {
        Self {
            blocks: BTreeMap::new(),
            unended: UnendedBlocks::default(),
            bytes: 0,
            tombstones: Tombstones::default(),
            is_fenced: false,
            tickets: 0,
        }
    }
}

impl<B: Clone> BlockTable<B> {
    /// Refuses every write and store from now on, until [`Self::unfence_node`].
    pub fn fence_node(&mut self) {
        self.is_fenced = true;
    }

    /// Takes writes again. Blocks that were fenced one by one stay so.
    pub fn unfence_node(&mut self) {
        self.is_fenced = false;
    }

    /// Returns whether the whole node is fenced and refuses writes to every block. Blocks that were
    /// fenced one by one do not count.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// Returns the number of blocks held: of all tiers together, also of those whose bytes do not
    /// count.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Returns the published bytes of all blocks that the datanode has, in all tiers.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns where a block is in its life; `None` when it is not here.
    #[must_use]
    pub fn stage(&self, block: BlockId) -> Option<BlockStage> {
        self.blocks.get(&block).map(|held| held.stage)
    }

    /// Returns the tier on which an admitted write to this block is still to be published.
    #[must_use]
    pub fn writing(&self, block: BlockId) -> Option<Tier> {
        self.blocks.get(&block).filter(|held| held.writing.is_some()).map(|held| held.tier)
    }

    /// Decides about a write. A block begins with its first one.
    ///
    /// # Errors
    /// [`Refusal::Moved`]: the node or block is fenced, or the block was dropped; go on in a new
    /// one. [`Refusal::StaleEpoch`]: another epoch than ours. [`Refusal::NotAtEnd`]: it neither
    /// starts at the end nor repeats what is there, or another write is under way.
    /// [`Refusal::RetryAfter`]: these bytes are under way; a writer that was not answered in time
    /// sent them again. [`Refusal::TooLarge`], [`Refusal::BadRequest`]: nothing to write, or more
    /// than a block holds. Send it to the caller as the reply.
    pub fn admit_write(&mut self, write: &WriteRequest) -> Result<WriteAdmission<B>, Refusal> {
        let end = write_end(write)?;
        let offset = end - write.bytes;
        let Some(held) = self.blocks.get(&write.block) else {
            return self.admit_first_write(write, offset, end);
        };
        if held.epoch != write.epoch {
            return Err(stale(write.block, held.epoch, write.epoch));
        }
        if self.is_fenced || held.stage != BlockStage::Open {
            return Err(Refusal::Moved { block: write.block, length: held.length });
        }
        if end <= held.length {
            let bytes = held.bytes.clone().expect("a block with a length has bytes");
            return Ok(WriteAdmission::AlreadyThere { bytes, length: held.length });
        }
        if offset >= held.length && held.writing.is_some_and(|writing| end <= writing.end) {
            let why = format!("block {} is being written up to {end}", write.block);
            return Err(Refusal::RetryAfter { after: UNDER_WAY_RETRY, why });
        }
        let here = held.writing.map_or(held.length, |writing| writing.end);
        if here != offset || held.writing.is_some() {
            return Err(Refusal::NotAtEnd { block: write.block, length: here, offset });
        }
        Ok(self.ticket(write.block, end))
    }

    fn admit_first_write(
        &mut self,
        write: &WriteRequest,
        offset: u32,
        end: u32,
    ) -> Result<WriteAdmission<B>, Refusal> {
        let block = write.block;
        // The writer's next request goes to the namenode, which has the block's new home or
        // reports its object as gone.
        if self.is_fenced || self.tombstones.contains(block) {
            return Err(Refusal::Moved { block, length: 0 });
        }
        if offset != 0 {
            return Err(Refusal::NotAtEnd { block, length: 0, offset });
        }
        self.blocks.insert(block, BlockEntry::empty(write.epoch, write.tier, BlockStage::Open));
        self.unended.began(block);
        Ok(self.ticket(block, end))
    }

    fn ticket(&mut self, block: BlockId, end: u32) -> WriteAdmission<B> {
        self.tickets += 1;
        let number = self.tickets;
        let held = self.blocks.get_mut(&block).expect("the caller has looked the block up");
        debug_assert!(held.stage == BlockStage::Open, "only an open block takes writes");
        debug_assert!(held.writing.is_none(), "one write of a block at a time");
        debug_assert!(end > held.length, "a write that adds nothing is answered at once");
        held.writing = Some(PendingWrite { ticket: number, end });
        WriteAdmission::Append {
            ticket: WriteTicket { block, number, tier: held.tier, end },
            bytes: held.bytes.clone(),
        }
    }

    /// Publishes an admitted write: from now on its bytes are part of the block. Returns the length
    /// to acknowledge.
    ///
    /// # Errors
    /// [`Refusal::Moved`]: a fence or drop came between. The bytes are not part of the block. Send
    /// it to the caller as the reply.
    pub fn wrote(&mut self, ticket: WriteTicket, bytes: B) -> Result<u32, Refusal> {
        let block = ticket.block;
        let is_node_fenced = self.is_fenced;
        let Some(held) = self.written_by(&ticket) else {
            return Err(Refusal::Moved { block, length: self.length(block) });
        };
        held.writing = None;
        if is_node_fenced || held.stage != BlockStage::Open {
            let length = held.length;
            self.forget_if_empty(block);
            return Err(Refusal::Moved { block, length });
        }
        debug_assert!(ticket.end > held.length, "the length did not change under the write");
        debug_assert!(ticket.tier == held.tier, "a block stays in its tier while it is open");
        let added = ticket.end - held.length;
        held.length = ticket.end;
        held.bytes = Some(bytes);
        self.bytes += u64::from(added);
        self.unended.grew(block);
        Ok(ticket.end)
    }

    /// Gives an admitted write back: the block is as it was before.
    pub fn abandon_write(&mut self, ticket: WriteTicket) {
        if let Some(held) = self.written_by(&ticket) {
            held.writing = None;
            self.forget_if_empty(ticket.block);
        }
    }

    /// Decides about a read and returns the block's bytes; `None` when it is empty.
    ///
    /// # Errors
    /// [`Refusal::UnknownBlock`], [`Refusal::StaleEpoch`], [`Refusal::BlockDamaged`]: look the
    /// location up again. [`Refusal::OutOfRange`]: the range passes the end. Send it to the caller
    /// as the reply.
    pub fn admit_read(
        &self,
        block: BlockId,
        epoch: Epoch,
        offset: u64,
        bytes: u32,
    ) -> Result<Option<&B>, Refusal> {
        let held = self.blocks.get(&block).ok_or(Refusal::UnknownBlock { block })?;
        if epoch < held.epoch {
            return Err(stale(block, held.epoch, epoch));
        }
        held.check_sound(block)?;
        let end = u64::from(held.length);
        if offset.saturating_add(u64::from(bytes)) <= end {
            return Ok(held.bytes.as_ref());
        }
        if epoch > held.epoch {
            return Err(stale(block, held.epoch, epoch));
        }
        Err(Refusal::OutOfRange { offset, bytes: u64::from(bytes), end })
    }

    /// Decides about a whole block pushed by another datanode.
    ///
    /// An older copy here gives way: the block moved away and comes back. One of the same epoch
    /// must have come by a store before, from a push that is being repeated.
    ///
    /// # Errors
    /// [`Refusal::Moved`]: this node is fenced; choose another target. [`Refusal::StaleEpoch`]: the
    /// block is here at this epoch or a later one and was not stored, or such a one was dropped
    /// here. [`Refusal::StillOpen`]: an older copy here still takes writes.
    /// [`Refusal::BlockDamaged`]: stored before and damaged since. [`Refusal::NotAtEnd`]: stored
    /// before with another length. [`Refusal::TooLarge`], [`Refusal::BadRequest`]: nothing to
    /// store, or more than a block holds. Send it to the caller as the reply.
    pub fn admit_store(&self, store: &StoreRequest) -> Result<StoreAdmission<B>, Refusal> {
        let block = store.block;
        check_bytes(u64::from(store.bytes))?;
        let Some(held) = self.blocks.get(&block) else {
            // A push that was under way when its move was given up: the copy is no longer needed.
            if let Some(last) = self.tombstones.last(block).filter(|last| *last >= store.epoch) {
                return Err(stale(block, last, store.epoch));
            }
            return if self.is_fenced {
                Err(Refusal::Moved { block, length: 0 })
            } else {
                Ok(StoreAdmission::Copy)
            };
        };
        if held.epoch == store.epoch && held.stage == BlockStage::Sealed {
            held.check_sound(block)?;
            if held.length != store.bytes {
                return Err(Refusal::NotAtEnd { block, length: held.length, offset: 0 });
            }
            let bytes = held.bytes.clone().expect("a stored block has bytes");
            return Ok(StoreAdmission::AlreadyThere { bytes });
        }
        if held.epoch >= store.epoch {
            return Err(stale(block, held.epoch, store.epoch));
        }
        if self.is_fenced {
            return Err(Refusal::Moved { block, length: held.length });
        }
        if held.stage == BlockStage::Open {
            return Err(Refusal::StillOpen { block });
        }
        Ok(StoreAdmission::Copy)
    }

    /// Publishes a stored block, deciding once more: two pushes of the same block may race, and
    /// either may win, as both bring the same bytes.
    ///
    /// # Errors
    /// Those of [`Self::admit_store`]; the bytes are not taken.
    pub fn stored(&mut self, store: &StoreRequest, bytes: B) -> Result<(), Refusal> {
        if let StoreAdmission::AlreadyThere { .. } = self.admit_store(store)? {
            return Ok(());
        }
        let held = BlockEntry {
            length: store.bytes,
            bytes: Some(bytes),
            ..BlockEntry::empty(store.epoch, store.tier, BlockStage::Sealed)
        };
        self.bytes += u64::from(store.bytes);
        if let Some(older) = self.blocks.insert(store.block, held) {
            debug_assert!(older.epoch < store.epoch, "only an older copy gives way");
            debug_assert!(older.stage != BlockStage::Open, "no block gives way that takes writes");
            self.bytes -= u64::from(older.length);
        }
        Ok(())
    }

    /// Serves a block from now on whose bytes are elsewhere already, behind the node's fence too:
    /// it takes no writes. An older copy here gives way, as does the memory of a block without
    /// bytes. Returns the bytes that are not needed: the older copy's, or these when the block is
    /// here at this epoch.
    ///
    /// # Errors
    /// [`Refusal::StaleEpoch`]: it is here at a later epoch. [`Refusal::StillOpen`]: an older copy
    /// here still takes writes. [`Refusal::TooLarge`], [`Refusal::BadRequest`]: no block's length.
    /// Send it to the caller as the reply.
    pub fn adopt(&mut self, store: &StoreRequest, bytes: B) -> Result<Option<B>, Refusal> {
        let block = store.block;
        check_bytes(u64::from(store.bytes))?;
        if let Some(held) = self.blocks.get(&block) {
            if held.epoch > store.epoch {
                return Err(stale(block, held.epoch, store.epoch));
            }
            if held.epoch == store.epoch && held.length > 0 {
                return Ok(Some(bytes));
            }
            if held.stage == BlockStage::Open {
                return Err(Refusal::StillOpen { block });
            }
        }
        let held = BlockEntry {
            length: store.bytes,
            bytes: Some(bytes),
            ..BlockEntry::empty(store.epoch, store.tier, BlockStage::Sealed)
        };
        self.bytes += u64::from(store.bytes);
        let older = self.blocks.insert(block, held);
        Ok(older.and_then(|older| {
            debug_assert!(older.epoch <= store.epoch, "an epoch never goes back");
            self.bytes -= u64::from(older.length);
            older.bytes
        }))
    }

    /// Returns whether a block is here with bytes, at this epoch or a later one.
    #[must_use]
    pub fn holds(&self, block: BlockId, epoch: Epoch) -> bool {
        self.blocks.get(&block).is_some_and(|held| held.epoch >= epoch && held.length > 0)
    }

    /// Fences a block for good and raises its epoch, never lowers it. Returns its final length: 0
    /// for a block that was never written here, and then none ever will be.
    pub fn fence_block(&mut self, block: BlockId, epoch: Epoch) -> u32 {
        if self.tombstones.contains(block) && !self.blocks.contains_key(&block) {
            return 0;
        }
        let empty = || BlockEntry::empty(epoch, Tier::Dram, BlockStage::Fenced);
        let held = self.blocks.entry(block).or_insert_with(empty);
        held.epoch = held.epoch.max(epoch);
        held.fence();
        debug_assert!(held.is_final(), "a length that was reported must not grow");
        held.length
    }

    /// Fences a block for good, to be pushed elsewhere. A block that was reserved here and never
    /// written is remembered as empty, so that a late first write is refused.
    ///
    /// # Errors
    /// [`Refusal::StaleEpoch`]: another epoch than ours. [`Refusal::UnknownBlock`]: it was dropped.
    /// [`Refusal::BlockDamaged`]: there is nothing to push. Send it to the caller as the reply.
    pub fn admit_push(
        &mut self,
        block: BlockId,
        from_epoch: Epoch,
    ) -> Result<PushAdmission<B>, Refusal> {
        if self.tombstones.contains(block) && !self.blocks.contains_key(&block) {
            return Err(Refusal::UnknownBlock { block });
        }
        let empty = || BlockEntry::empty(from_epoch, Tier::Dram, BlockStage::Fenced);
        let held = self.blocks.entry(block).or_insert_with(empty);
        if held.epoch != from_epoch {
            return Err(stale(block, held.epoch, from_epoch));
        }
        held.check_sound(block)?;
        held.fence();
        debug_assert!(held.is_final(), "what is pushed must not grow behind the push");
        Ok(PushAdmission { length: held.length, bytes: held.bytes.clone() })
    }

    /// Forgets a block held at `last` or an earlier epoch, and remembers that it was dropped, so
    /// that a late write does not begin it anew. Returns its bytes, which readers may still hold.
    ///
    /// A block at a later epoch stays: it has come back since the order was given.
    pub fn drop_block(&mut self, block: BlockId, last: Epoch) -> Option<B> {
        if self.blocks.get(&block).is_some_and(|held| held.epoch > last) {
            return None;
        }
        self.tombstones.insert(block, last);
        self.unended.forget(block);
        debug_assert!(self.tombstones.contains(block), "a late write of it would begin it anew");
        let held = self.blocks.remove(&block)?;
        self.bytes -= u64::from(held.length);
        held.bytes
    }

    /// Forgets a block if it is still at this epoch; after the report it may have been stored
    /// anew.
    pub fn drop_block_at(&mut self, block: BlockId, epoch: Epoch) -> Option<B> {
        let is_same = self.blocks.get(&block).is_some_and(|held| held.epoch == epoch);
        if is_same { self.drop_block(block, epoch) } else { None }
    }

    /// Forgets every block, every drop and the node's fence: another incarnation begins. Writes
    /// admitted before are refused when they are published. Returns the bytes of all blocks.
    pub fn wipe(&mut self) -> Vec<B> {
        let blocks = std::mem::take(&mut self.blocks);
        // The tickets go on counting, so that none of the old ones fits a new block.
        *self = Self { tickets: self.tickets, ..Self::default() };
        blocks.into_values().filter_map(|held| held.bytes).collect()
    }

    /// Prevents that any write under way is published: the process registers as another node and
    /// keeps the blocks, but the writes were sent to the node that it was before. Open blocks
    /// without bytes are dropped.
    pub fn revoke_writes(&mut self) {
        self.blocks.retain(|block, held| {
            held.writing = None;
            let stays = held.length > 0 || held.stage != BlockStage::Open;
            if !stays {
                self.unended.forget(*block);
            }
            stays
        });
    }

    /// Lists blocks in the order of their ids, after `after` and at most `limit` of them, never
    /// more than [`BLOCKS_PER_PAGE_MAX`]. A block whose first write is under way is not listed.
    #[must_use]
    pub fn list(&self, after: BlockId, limit: usize) -> Vec<HeldBlock> {
        self.blocks
            .range((Bound::Excluded(after), Bound::Unbounded))
            .filter(|(_, held)| held.length > 0 || held.writing.is_none())
            .take(limit.min(BLOCKS_PER_PAGE_MAX))
            .map(|(&block, held)| held.listed(block))
            .collect()
    }

    /// Returns the refusal of a repeated write whose bytes differ from those that are here.
    #[must_use]
    pub fn not_at_end(&self, write: &WriteRequest) -> Refusal {
        let offset = u32::try_from(write.offset).unwrap_or(u32::MAX);
        Refusal::NotAtEnd { block: write.block, length: self.length(write.block), offset }
    }

    /// Returns how many bytes of a block are published; 0 when it is not here.
    #[must_use]
    pub fn length(&self, block: BlockId) -> u32 {
        self.blocks.get(&block).map_or(0, |held| held.length)
    }

    fn written_by(&mut self, ticket: &WriteTicket) -> Option<&mut BlockEntry<B>> {
        let held = self.blocks.get_mut(&ticket.block)?;
        let is_same = held.writing.is_some_and(|writing| writing.ticket == ticket.number);
        is_same.then_some(held)
    }

    /// A block that began with a write which then failed was never here.
    fn forget_if_empty(&mut self, block: BlockId) {
        let is_unborn = |held: &BlockEntry<B>| {
            held.length == 0 && held.stage == BlockStage::Open && held.writing.is_none()
        };
        if self.blocks.get(&block).is_some_and(is_unborn) {
            self.blocks.remove(&block);
            self.unended.forget(block);
        }
    }
}

impl<B> BlockEntry<B> {
    const fn empty(epoch: Epoch, tier: Tier, stage: BlockStage) -> Self {
        Self { epoch, length: 0, tier, stage, bytes: None, writing: None, damage: None }
    }

    const fn listed(&self, block: BlockId) -> HeldBlock {
        HeldBlock { block, epoch: self.epoch, length: self.length, tier: self.tier }
    }

    const fn check_sound(&self, block: BlockId) -> Result<(), Refusal> {
        match self.damage {
            None => Ok(()),
            Some(_) => Err(Refusal::BlockDamaged { block }),
        }
    }

    /// Returns whether no write can change the length any more.
    fn is_final(&self) -> bool {
        self.stage != BlockStage::Open && self.writing.is_none()
    }

    /// Makes the length final. A write under way loses its right to be published.
    fn fence(&mut self) {
        self.writing = None;
        if self.stage == BlockStage::Open {
            self.stage = BlockStage::Fenced;
        }
    }
}

/// The blocks that were dropped lately, and up to which epoch.
#[derive(Debug, Clone, Default)]
struct Tombstones {
    blocks: BTreeMap<BlockId, Epoch>,
    order: VecDeque<BlockId>,
}

impl Tombstones {
    fn contains(&self, block: BlockId) -> bool {
        self.blocks.contains_key(&block)
    }

    fn last(&self, block: BlockId) -> Option<Epoch> {
        self.blocks.get(&block).copied()
    }

    fn insert(&mut self, block: BlockId, last: Epoch) {
        if let Some(known) = self.blocks.get_mut(&block) {
            *known = last.max(*known);
            return;
        }
        self.blocks.insert(block, last);
        self.order.push_back(block);
        if self.order.len() > TOMBSTONES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.blocks.remove(&oldest);
        }
        debug_assert!(self.order.len() <= TOMBSTONES_MAX, "the oldest is forgotten");
        debug_assert_eq!(self.order.len(), self.blocks.len(), "each is in both");
    }
}

const fn stale(block: BlockId, here: Epoch, asked: Epoch) -> Refusal {
    Refusal::StaleEpoch { block, here, asked }
}

fn write_end(write: &WriteRequest) -> Result<u32, Refusal> {
    check_bytes(u64::from(write.bytes))?;
    check_bytes(write.offset.saturating_add(u64::from(write.bytes)))?;
    let offset = u32::try_from(write.offset).expect("below the largest block, checked above");
    Ok(offset + write.bytes)
}

fn check_bytes(value: u64) -> Result<(), Refusal> {
    let limit = u64::from(BLOCK_BYTES_MAX);
    match value {
        0 => Err(Refusal::BadRequest { why: "a write without bytes".to_owned() }),
        _ if value > limit => Err(Refusal::TooLarge { what: "block".to_owned(), value, limit }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
