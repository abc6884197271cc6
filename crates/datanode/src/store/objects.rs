//! The node's blocks in the object tier: taking, adopting and fetching them.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use sanderling_core::block_table::{StoreAdmission, StoreRequest};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::order::{Damage, DamagedBlock, HeldBlock};
use sanderling_protocol::{BlockId, Epoch, Refusal, Tier};
use tokio::time::Instant;

use super::{BlockStore, check};
use crate::blocking::on_thread;
use crate::object::ObjectTier;
use crate::object::caller::OperationCaller;
use crate::object::failure::failed;
use crate::object::trailer::TierKey;
use crate::tier::ReadError;
use crate::tiers::BlockBytes;

/// Blocks looked up at once in the object tier for one order. A quarter of the tier's operations
/// (`OPERATIONS_MAX`), so that `fsck --deep` leaves the others to readers. Chosen, not measured.
const LOOKUPS_AT_ONCE: usize = 16;
/// A page of objects whose looks take longer ends early. With one operation of the store, 5 s by
/// default, it is answered within the 10 s for which a client waits.
const LOOKING_MAX: Duration = Duration::from_secs(3);

impl BlockStore {
    pub(crate) const fn has_object_tier(&self) -> bool {
        self.tiers.objects().is_some()
    }

    /// Takes a whole block from another datanode into the object tier; returns when it is there for
    /// good.
    ///
    /// # Errors
    /// The table's refusals, [`Refusal::ChecksumMismatch`], and those of [`ObjectTier::put`].
    pub(crate) async fn store_object(
        &self,
        request: StoreRequest,
        bytes: Bytes,
        checksum: u32,
        caller: &OperationCaller,
    ) -> Result<(), Refusal> {
        check(request.block, crc32c(&bytes), checksum)?;
        let objects = self.tiers.objects();
        let objects = objects.ok_or_else(|| failed("this node has no object tier"))?;
        let admission = self.admit_store(&request)?;
        if let StoreAdmission::AlreadyThere { bytes: held } = admission {
            return self.compare_object(&request, held, checksum, caller).await;
        }
        let key = (request.block, request.epoch);
        let count = u64::from(request.bytes);
        let held = objects.put(key, bytes, checksum, caller).await?;
        let stored = self.table.write().stored(&request, BlockBytes::Object(Arc::new(held)));
        stored.inspect_err(|_| objects.garbage().add_later(key))?;
        self.traffic.stored_bytes.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Acknowledges a block that was stored before if it is the same.
    async fn compare_object(
        &self,
        request: &StoreRequest,
        held: BlockBytes,
        expected: u32,
        caller: &OperationCaller,
    ) -> Result<(), Refusal> {
        let block = request.block;
        let fetched = self.fetch(block, &held, caller).await?;
        let read = fetched.read(0, request.bytes);
        let read = read.map_err(|error| self.refusal_of(block, &held, error))?;
        check(block, read.checksum, expected)
    }

    /// Returns whether a read that the table refuses may be of a block that this node should serve
    /// from the object tier and has no order about: that may have been lost.
    pub(crate) fn may_adopt(&self, epoch: Epoch, refusal: &Refusal) -> bool {
        self.has_object_tier()
            && match refusal {
                Refusal::UnknownBlock { .. } => true,
                Refusal::StaleEpoch { here, .. } => *here < epoch,
                // Fenced before it was adopted.
                Refusal::OutOfRange { end, .. } => *end == 0,
                _ => false,
            }
    }

    /// Finds a range to read for a caller, in the object tier if nowhere else, and fetches its
    /// block if it is there; `None` when it is empty.
    ///
    /// # Errors
    /// Those of [`Self::admit_read`] and of [`ObjectTier::fetch`].
    pub(crate) async fn fetched(
        &self,
        range: RangeRequest,
        caller: &OperationCaller,
    ) -> Result<Option<BlockBytes>, Refusal> {
        let RangeRequest { block, epoch, offset, length } = range;
        let admit = || self.admit_read(block, epoch, u64::from(offset), length);
        let admitted = match admit() {
            Err(refusal) if self.may_adopt(epoch, &refusal) => {
                if !self.adopt_by_fetch((block, epoch), caller).await? {
                    return Err(refusal);
                }
                admit()?
            }
            admitted => admitted?,
        };
        match admitted {
            Some(bytes) => self.fetch(block, &bytes, caller).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the bytes of a block, fetched for a caller if they are in the object tier.
    ///
    /// # Errors
    /// As [`Self::refusal_of`] returns them.
    pub(crate) async fn fetch(
        &self,
        block: BlockId,
        held: &BlockBytes,
        caller: &OperationCaller,
    ) -> Result<BlockBytes, Refusal> {
        let fetched = held.clone().fetched(caller).await;
        fetched.map_err(|error| self.refusal_of(block, held, error))
    }

    /// Serves a block from now on if its object is there; returns whether it is.
    async fn adopt_by_fetch(
        &self,
        key: TierKey,
        caller: &OperationCaller,
    ) -> Result<bool, Refusal> {
        let Some(objects) = self.tiers.objects().filter(|it| !it.is_known_absent(key)) else {
            return Ok(false);
        };
        let found = match objects.fetch_twice(key, caller).await {
            Ok(found) => found,
            Err(ReadError::Refused(refusal)) => return Err(refusal),
            Err(ReadError::Damaged(damage)) => {
                let (block, epoch) = key;
                self.damages.add_unheld(DamagedBlock { block, epoch, damage });
                return Err(Refusal::BlockDamaged { block });
            }
        };
        let Some(found) = found else { return Ok(false) };
        self.adopt(objects, key, found.bytes.len() as u32)?;
        Ok(true)
    }

    /// Serves these blocks from now on, as far as their objects are there and they are not served
    /// already. What is not found is found by the first read.
    ///
    /// # Errors
    /// The last error of the store; the other blocks are served.
    pub(crate) async fn adopt_all(&self, blocks: &[TierKey]) -> Result<(), Refusal> {
        let Some(objects) = self.tiers.objects() else {
            return Err(failed("it has no object tier"));
        };
        let missing: Vec<TierKey> = {
            let table = self.table.read();
            blocks.iter().copied().filter(|key| !table.holds(key.0, key.1)).collect()
        };
        let adopt = |key: TierKey| async move {
            match objects.length(key).await? {
                Some(length) => self.adopt(objects, key, length),
                None => Ok(()),
            }
        };
        let adopted = futures_util::stream::iter(missing.into_iter().map(adopt));
        let adopted = adopted.buffer_unordered(LOOKUPS_AT_ONCE);
        adopted.fold(Ok(()), |all, one| async move { one.and(all) }).await
    }

    /// Looks at blocks of the table, marks those that are damaged, and returns what is wrong with
    /// each, in their order. Of objects it looks whether they are there and how long they are:
    /// their checksums are compared when they are fetched. The blocks from the first object on at
    /// which the store does not let look, or for which there is no time left, are left out.
    ///
    /// # Errors
    /// The store's refusal for the first block of the page: the caller goes on behind it.
    pub(crate) async fn look_at_all(
        self: &Arc<Self>,
        page: Vec<(HeldBlock, BlockBytes)>,
        with_checksums: bool,
    ) -> Result<Vec<(HeldBlock, Option<Damage>)>, Refusal> {
        let late_at = Instant::now() + LOOKING_MAX;
        let store = Arc::clone(self);
        let (in_objects, here): (Vec<_>, Vec<_>) =
            page.into_iter().partition(|(_, bytes)| bytes.is_in_object_tier());
        let looked = on_thread(move || {
            let look = |(held, bytes): (HeldBlock, BlockBytes)| {
                (held, store.look_at(&held, &bytes, with_checksums))
            };
            Ok(here.into_iter().map(look).collect::<Vec<_>>())
        });
        let mut looked = looked.await?;
        let look = |(held, bytes): (HeldBlock, BlockBytes)| async move {
            (held, self.look_at_object(&held, bytes).await)
        };
        let mut objects =
            pin!(futures_util::stream::iter(in_objects).map(look).buffered(LOOKUPS_AT_ONCE));
        while let Some((held, found)) = objects.next().await {
            match found {
                Ok(damage) => looked.push((held, damage)),
                Err(refusal) => {
                    looked.retain(|(other, _)| other.block < held.block);
                    if looked.is_empty() {
                        return Err(refusal);
                    }
                    break;
                }
            }
            if Instant::now() > late_at {
                looked.retain(|(other, _)| other.block <= held.block);
                break;
            }
        }
        looked.sort_by_key(|(held, _)| held.block);
        Ok(looked)
    }

    async fn look_at_object(
        &self,
        held: &HeldBlock,
        bytes: BlockBytes,
    ) -> Result<Option<Damage>, Refusal> {
        let BlockBytes::Object(object) = &bytes else { return Ok(None) };
        let damage = match object.look(held.length).await {
            Ok(()) => return Ok(None),
            Err(ReadError::Refused(refusal)) => return Err(refusal),
            Err(ReadError::Damaged(damage)) => damage,
        };
        match self.refusal_of(held.block, &bytes, ReadError::Damaged(damage)) {
            Refusal::BlockDamaged { .. } => Ok(Some(damage)),
            _ => Ok(None),
        }
    }

    fn adopt(&self, objects: &Arc<ObjectTier>, key: TierKey, length: u32) -> Result<(), Refusal> {
        let (block, epoch) = key;
        let request = StoreRequest { block, epoch, tier: Tier::Object, bytes: length };
        let held = BlockBytes::Object(Arc::new(objects.adopted(key, length)));
        self.check_index(self.table.read().blocks() + 1, Tier::Object)?;
        let before = self.table.write().adopt(&request, held)?;
        drop(before);
        tracing::debug!(%block, %epoch, "adopted from the object tier");
        Ok(())
    }
}
