//! The ends of blocks: trims those that hold more than counts for them.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use sanderling_core::block_table::LookUpTimes;
use sanderling_core::datanode::{BlockEndStep, BlockEnds};
use sanderling_protocol::message::BlockCount;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{Instant, Tier};

use super::BlockStore;
use crate::chunk_sums::sums_of;

impl BlockStore {
    /// Returns the next step of the look-ups of ends.
    pub(crate) fn next_look_up(&self, ends: &mut BlockEnds, now: Instant) -> BlockEndStep {
        let written = self.traffic.written_bytes.load(Ordering::Relaxed);
        ends.next(now, written, &mut self.table.write())
    }

    /// Waits until clients have written so much that another look-up of ends is due.
    pub(crate) async fn much_written(&self) {
        self.much_written.notified().await;
    }

    /// Takes what counts for blocks. Returns those that hold more, each with the length to which
    /// [`Self::trim`] cuts it.
    pub(crate) fn counted(
        &self,
        blocks: Vec<HeldBlock>,
        counts: Vec<BlockCount>,
        look_up: LookUpTimes,
    ) -> Vec<(HeldBlock, u32)> {
        let mut table = self.table.write();
        let counted = |(held, count): (HeldBlock, BlockCount)| {
            table.counted(&held, count, look_up).map(|length| (held, length))
        };
        blocks.into_iter().zip(counts).filter_map(counted).collect()
    }

    /// Notes that the namenode did not return what counts for blocks.
    pub(crate) fn uncounted(&self, blocks: &[HeldBlock]) {
        self.table.write().forget_seen_ends(blocks);
    }

    /// Has blocks looked up again that the namenode did not count here: the node has registered.
    pub(crate) fn look_up_set_aside(&self) {
        self.table.write().look_up_set_aside();
    }

    /// Gives back what a block holds beyond `length` bytes. If that cannot be done now, as while a
    /// reader has the bytes, the block is looked up again. Blocks the thread when the block is on
    /// disk.
    pub(crate) fn trim(&self, held: &HeldBlock, length: u32) {
        let is_trimmed = match held.tier {
            Tier::Dram => self.table.write().trim(held, length, |bytes| bytes.truncate(length)),
            Tier::Disk => self.trim_file(held, length),
            Tier::Object => false,
        };
        if is_trimmed {
            tracing::debug!(block = %held.block, length, listed = held.length, "trimmed");
        }
    }

    /// Replaces a file by one with its first `length` bytes.
    fn trim_file(&self, held: &HeldBlock, length: u32) -> bool {
        let block = held.block;
        let Ok(Some(before)) = self.admit_read(block, held.epoch, 0, length) else { return false };
        let read = match before.read_verified(length) {
            Ok(read) => read,
            Err(error) => {
                let refusal = self.refusal_of(block, &before, error);
                tracing::debug!(%block, %refusal, "not trimmed");
                return false;
            }
        };
        let bytes = Bytes::from(read.slices.concat());
        let sums = sums_of(0, &bytes);
        let shorter = match self.tiers.shortened_file(block, &bytes, &sums) {
            Ok(shorter) => shorter,
            Err(error) => {
                tracing::debug!(%block, ?error, "not trimmed");
                return false;
            }
        };
        self.table.write().trim(held, length, |bytes| {
            let is_same = bytes.is_same(&before);
            if is_same {
                *bytes = shorter;
            }
            is_same
        })
    }
}
