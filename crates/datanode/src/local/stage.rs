//! Writes out of memory that a client has filled, or is filling.

use std::sync::Arc;

use sanderling_core::block_table::{WriteAdmission, WriteRequest};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::{Refusal, Tier};
use sanderling_transport::local::SharedMemory;

use crate::arena::Arena;
use crate::chunk_sums::{BodySums, Summing};
use crate::dram::DramBytes;
use crate::received::Received;
use crate::store::{BlockStore, check};
use crate::tiers::BlockBytes;

/// Bytes copied before their checksum goes on: they are still in the first cache then. It has
/// 32 KiB or more.
const STEP_BYTES: usize = 16 << 10;

/// A piece that is copied into the arena while the client still fills its memory, and before
/// its block is known. No reader can see these bytes: they become those of a block with the
/// client's `Write`, or go.
#[derive(Debug)]
pub(super) struct StagedCopy {
    number: u64,
    bytes: u32,
    received: Received,
    /// The checksums of the bytes that were copied.
    summing: Summing,
    copied: u32,
}

impl StagedCopy {
    /// Takes room for a piece; `None` when the arena has none.
    pub(super) fn take(arena: &Arc<Arena>, number: u64, bytes: u32) -> Option<Self> {
        let received = Received::take(arena, bytes)?;
        Some(Self { number, bytes, received, summing: Summing::new(0), copied: 0 })
    }

    /// Returns whether it is this piece.
    pub(super) const fn is(&self, number: u64, bytes: u32) -> bool {
        self.number == number && self.bytes == bytes
    }

    /// Copies what is there by now: the first `end` bytes.
    pub(super) fn copy(&mut self, staged: &SharedMemory, end: u32) {
        let end = end.min(self.bytes);
        while self.copied < end {
            let spare = self.received.spare();
            let step = STEP_BYTES.min(spare.len()).min((end - self.copied) as usize);
            staged.take(self.copied as usize, &mut spare[..step]);
            self.summing.update(&spare[..step]);
            self.received.advance(step as u32);
            self.copied += step as u32;
        }
    }

    /// Copies the rest and returns the bytes with their checksums, computed where they are.
    fn finish(mut self, staged: &SharedMemory) -> (Received, BodySums) {
        self.copy(staged, self.bytes);
        (self.received, self.summing.finish())
    }
}

impl BlockStore {
    /// Writes the bytes at the start of `staged` to a block in memory; `ahead` is what of them was
    /// copied before.
    ///
    /// The client can change them at any moment, so the checksum is that of the copy: what is
    /// published is what was verified, whatever the client does meanwhile and afterwards.
    ///
    /// # Errors
    /// As [`Self::write`], and [`Refusal::BadRequest`] when the block is not for memory.
    pub(super) fn write_staged(
        &self,
        request: WriteRequest,
        staged: &SharedMemory,
        checksum: u32,
        ahead: Option<StagedCopy>,
    ) -> Result<u32, Refusal> {
        if request.tier != Tier::Dram {
            let why = format!("blocks of tier {} are written over TCP", request.tier);
            return Err(Refusal::BadRequest { why });
        }
        let admission = self.admit_write(&request)?;
        match admission {
            WriteAdmission::Append { ticket, bytes: before } => {
                let grown = match ahead {
                    // What is added to a block goes where the block ends.
                    Some(ahead) if before.is_none() => {
                        self.landed_ahead(&request, ahead, staged, checksum)
                    }
                    _ => self.landed(&request, before, staged, checksum),
                };
                self.conclude(&request, ticket, grown, |refusal| refusal)
            }
            WriteAdmission::AlreadyThere { bytes: held, length } => {
                let mut bytes = vec![0; request.bytes as usize];
                staged.take(0, &mut bytes);
                check(request.block, crc32c(&bytes), checksum)?;
                self.compare_write(&request, &held, length, &bytes)
            }
        }
    }

    fn landed_ahead(
        &self,
        request: &WriteRequest,
        ahead: StagedCopy,
        staged: &SharedMemory,
        checksum: u32,
    ) -> Result<BlockBytes, Refusal> {
        let (received, sums) = ahead.finish(staged);
        check(request.block, sums.whole, checksum)?;
        let block = DramBytes::new(self.tiers().arena()).with_received(received, &sums);
        Ok(BlockBytes::Dram(Arc::new(block)))
    }

    fn landed(
        &self,
        request: &WriteRequest,
        before: Option<BlockBytes>,
        staged: &SharedMemory,
        checksum: u32,
    ) -> Result<BlockBytes, Refusal> {
        let before = match before {
            Some(BlockBytes::Dram(before)) => before,
            None => Arc::new(DramBytes::new(self.tiers().arena())),
            Some(_) => {
                let why = format!("block {} is not in memory", request.block);
                return Err(Refusal::BadRequest { why });
            }
        };
        let mut summing = Summing::new(request.offset);
        let mut place = 0;
        let fill = |to: &mut [u8]| {
            for step in to.chunks_mut(STEP_BYTES) {
                staged.take(place, step);
                summing.update(step);
                place += step.len();
            }
        };
        let full = || {
            let (tier, bytes) = (request.tier.to_string(), u64::from(request.bytes));
            Refusal::NodeFull { tier, bytes }
        };
        let grown = before.filled(request.bytes, fill).ok_or_else(full)?;
        let sums = summing.finish();
        check(request.block, sums.whole, checksum)?;
        let mut grown = grown.summed(&sums);
        grown.added_is_verified(&before);
        Ok(BlockBytes::Dram(Arc::new(grown)))
    }
}
