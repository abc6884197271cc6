//! The media of a node: memory, and a disk and an object store if it has them.

use std::ops::Deref;
use std::sync::Arc;

use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::{BlockId, Refusal, Tier};

use crate::arena::Arena;
use crate::capacity::Capacity;
use crate::chunk_sums::BodySums;
use crate::disk::{DiskBytes, DiskTier};
use crate::dram::DramBytes;
use crate::object::caller::OperationCaller;
use crate::object::{Fetched, ObjectBytes, ObjectTier};
use crate::received::BlockBody;
use crate::tier::{ReadError, TierBytes, not_fetched};

/// The bytes of one block at one length.
#[derive(Debug, Clone)]
pub(crate) enum BlockBytes {
    Dram(Arc<DramBytes>),
    Disk(Arc<DiskBytes>),
    /// Not here: [`Self::fetched`] makes a [`Self::Fetched`] of it.
    Object(Arc<ObjectBytes>),
    Fetched(Arc<Fetched>),
}

impl Deref for BlockBytes {
    type Target = dyn TierBytes;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Dram(held) => held,
            Self::Disk(held) => &**held,
            Self::Object(held) => &**held,
            Self::Fetched(held) => &**held,
        }
    }
}

impl BlockBytes {
    /// Returns whether the bytes are in this node's memory or on its disk.
    pub(crate) const fn is_here(&self) -> bool {
        matches!(self, Self::Dram(_) | Self::Disk(_))
    }

    /// Returns whether the bytes have to be fetched before they can be read.
    pub(crate) const fn is_in_object_tier(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// Returns whether it is the same block in the same place, at this length or another one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dram(here), Self::Dram(there)) => here.is_same(there),
            (Self::Disk(here), Self::Disk(there)) => here.is_same(there),
            (Self::Object(here), Self::Object(there)) => here.key() == there.key(),
            _ => false,
        }
    }

    /// Gives back the memory behind the first `length` bytes. Returns whether it did: not while a
    /// reader has the block, and not of one that is in no memory.
    pub(crate) fn truncate(&mut self, length: u32) -> bool {
        match self {
            Self::Dram(held) => Arc::get_mut(held).is_some_and(|held| held.truncate(length)),
            Self::Disk(_) | Self::Object(_) | Self::Fetched(_) => false,
        }
    }

    /// Fetches the bytes for a caller if they are in the object tier.
    ///
    /// # Errors
    /// Those of [`ObjectBytes::fetch`].
    pub(crate) async fn fetched(self, caller: &OperationCaller) -> Result<Self, ReadError> {
        match self {
            Self::Object(held) => Ok(Self::Fetched(Arc::new(held.fetch(caller).await?))),
            here => Ok(here),
        }
    }
}

/// The media of a node.
#[derive(Debug)]
pub(crate) struct Tiers {
    arena: Arc<Arena>,
    disk: Option<Arc<DiskTier>>,
    objects: Option<Arc<ObjectTier>>,
}

impl Tiers {
    pub(crate) const fn new(
        arena: Arc<Arena>,
        disk: Option<Arc<DiskTier>>,
        objects: Option<Arc<ObjectTier>>,
    ) -> Self {
        Self { arena, disk, objects }
    }

    pub(crate) const fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(crate) const fn objects(&self) -> Option<&Arc<ObjectTier>> {
        self.objects.as_ref()
    }

    /// Returns the tiers and their sizes.
    pub(crate) fn sizes(&self) -> Vec<TierCapacity> {
        let dram = TierCapacity { tier: Tier::Dram, bytes: self.arena.bytes() };
        let counted = self.counted().map(Capacity::size);
        std::iter::once(dram).chain(counted).collect()
    }

    /// Returns the bytes of a tier that blocks of this node take, as the namenode counts them.
    pub(crate) fn used_bytes(&self, tier: Tier) -> u64 {
        if tier == Tier::Dram {
            return self.arena.used_bytes();
        }
        let counted = self.counted().find(|it| it.size().tier == tier);
        counted.map_or(0, Capacity::used_bytes)
    }

    /// Returns the number of files of dropped blocks that are still to be deleted.
    pub(crate) fn deletions_waiting(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.deletions_waiting())
    }

    fn counted(&self) -> impl Iterator<Item = &Capacity> {
        let disk = self.disk.as_ref().map(|disk| disk.capacity());
        disk.into_iter().chain(self.objects.as_ref().map(|objects| objects.capacity()))
    }

    /// Returns the block with a body after its end; begins it if there is nothing before. Blocks
    /// the thread when the tier is the disk.
    ///
    /// # Errors
    /// [`Refusal::NodeFull`], [`Refusal::TierFailed`], or [`ReadError::Damaged`] when what was
    /// written before is gone.
    pub(crate) fn grown(
        &self,
        (block, tier): (BlockId, Tier),
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
        Ok(match before {
            BlockBytes::Dram(before) => {
                BlockBytes::Dram(Arc::new(before.with_body(body, sums).ok_or_else(full)?))
            }
            BlockBytes::Disk(before) => {
                BlockBytes::Disk(Arc::new(before.with(&body.into_bytes(), sums)?))
            }
            BlockBytes::Object(_) | BlockBytes::Fetched(_) => return Err(not_fetched().into()),
        })
    }

    /// Returns a block on disk with these bytes, which replaces a longer one, whether or not the
    /// tier has room: the longer one is deleted then. Blocks the thread.
    ///
    /// # Errors
    /// [`Refusal::NodeFull`] when the file system is full, [`Refusal::TierFailed`] when the disk
    /// fails.
    pub(crate) fn shortened_file(
        &self,
        block: BlockId,
        bytes: &[u8],
        sums: &BodySums,
    ) -> Result<BlockBytes, ReadError> {
        let full = || Refusal::NodeFull { tier: Tier::Disk.to_string(), bytes: bytes.len() as u64 };
        let disk = self.disk.as_ref().ok_or_else(full)?;
        Ok(BlockBytes::Disk(Arc::new(DiskBytes::replacing(disk, block, bytes, sums)?)))
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

    /// Frees what a dropped block took. An object is deleted later, once the namenode has confirmed
    /// that no node serves it.
    pub(crate) fn free(&self, bytes: Option<BlockBytes>) {
        if let (Some(BlockBytes::Object(held)), Some(objects)) = (&bytes, &self.objects) {
            objects.garbage().add_now(held.key());
        }
    }

    /// Has a block fetched anew: what was fetched of it has changed in this node's memory.
    pub(crate) fn fetch_again(&self, block: BlockId, held: &BlockBytes) {
        if let (BlockBytes::Fetched(_), Some(objects)) = (held, &self.objects) {
            objects.fetch_again(block);
        }
    }
}
