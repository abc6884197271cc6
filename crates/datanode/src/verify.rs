//! Reading bytes that are compared with what was written.

use std::ops::Range;

use bytes::Bytes;
use sanderling_protocol::Refusal;
use sanderling_protocol::checksum::{Running, combine, crc32c};
use sanderling_protocol::order::Damage;

use crate::chunk_sums::ChunkSums;
use crate::store::{BlockBytes, ReadBytes, not_fetched};

/// Why a block's bytes cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// They are not those that were written.
    Damaged(Damage),
    /// The medium is busy or has failed otherwise.
    Refused(Refusal),
}

impl From<Refusal> for ReadError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl BlockBytes {
    /// Reads an admitted range. Blocks the thread when the block is on disk.
    ///
    /// A range of whole chunks has the checksum that was kept when these were written, so that the
    /// reader notices bytes that changed here. Of another range the chunks that it touches are
    /// compared with theirs, and its checksum is that of the very bytes which were compared.
    ///
    /// # Errors
    /// [`ReadError::Damaged`]: the bytes have changed or are not there. [`Refusal::TierFailed`]
    /// when the disk fails.
    pub(crate) fn read(&self, offset: u32, bytes: u32) -> Result<ReadBytes, ReadError> {
        let end = offset + bytes;
        if let Some(checksum) = self.checksum(offset, end) {
            return Ok(ReadBytes { slices: self.raw(offset, bytes)?, checksum });
        }
        let sums = self.sums().ok_or_else(not_fetched)?;
        let (from, to) = sums.around(offset, end);
        let around = self.raw(from, to - from)?;
        let [start, stop] = [offset - from, end - from].map(|at| at as usize);
        let mut running = Running::default();
        // One pass over all bytes: what is between two prefixes follows from theirs.
        let prefixes = [0..start, start..stop, stop..(to - from) as usize].map(|range| {
            part(&around, range).for_each(|(_, bytes)| running.update(bytes));
            running.value()
        });
        let [before, upto_end, all] = prefixes;
        if sums.checksum(from, to) != Some(all) {
            return Err(ReadError::Damaged(Damage::Checksum));
        }
        let checksum = match before {
            0 => upto_end,
            _ => combine(before, 0, u64::from(bytes)) ^ upto_end,
        };
        let slices = part(&around, start..stop).map(|(slice, bytes)| slice.slice_ref(bytes));
        Ok(ReadBytes { slices: slices.collect(), checksum })
    }

    /// Reads the start of the block to push it, compared here: a copy of damaged bytes must not
    /// become the block. Blocks the thread when the block is on disk.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn read_verified(&self, bytes: u32) -> Result<ReadBytes, ReadError> {
        let read = self.read(0, bytes)?;
        if computed(&read.slices) == read.checksum {
            Ok(read)
        } else {
            Err(ReadError::Damaged(Damage::Checksum))
        }
    }

    /// Looks whether the bytes are there, and if asked whether they are those that were written.
    /// Blocks the thread when the block is on disk. What is in the object tier is compared when it
    /// is fetched, and not here.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn inspect(&self, with_checksums: bool) -> Result<(), ReadError> {
        match self {
            Self::Dram(held) if with_checksums => held.verify(),
            Self::Disk(held) if with_checksums => held.verify(),
            Self::Disk(held) => held.probe(),
            Self::Dram(_) | Self::Object(_) | Self::Fetched(_) => Ok(()),
        }
    }

    /// Tells whether the block has these bytes at `offset`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn has(&self, offset: u32, bytes: &[u8]) -> Result<bool, ReadError> {
        match self {
            Self::Dram(held) => Ok(held.has(offset, bytes)),
            _ => Ok(self.raw(offset, bytes.len() as u32)?.concat() == bytes),
        }
    }

    /// Tells whether it is the same block in the same place, at this length or another one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dram(here), Self::Dram(there)) => here.is_same(there),
            (Self::Disk(here), Self::Disk(there)) => here.is_same(there),
            (Self::Object(here), Self::Object(there)) => here.key() == there.key(),
            _ => false,
        }
    }

    fn sums(&self) -> Option<&ChunkSums> {
        match self {
            Self::Dram(held) => Some(held.sums()),
            Self::Disk(held) => Some(held.sums()),
            Self::Fetched(held) => Some(&held.sums),
            Self::Object(_) => None,
        }
    }

    /// Returns the checksum of a range that was kept; `None` if it has to be computed.
    pub(crate) fn checksum(&self, start: u32, end: u32) -> Option<u32> {
        self.sums()?.checksum(start, end)
    }

    /// Returns bytes as they are.
    fn raw(&self, offset: u32, bytes: u32) -> Result<Vec<Bytes>, ReadError> {
        Ok(match self {
            Self::Dram(held) => held.borrow(offset, bytes),
            Self::Disk(held) => vec![held.read(offset, bytes)?],
            Self::Object(_) => return Err(not_fetched().into()),
            Self::Fetched(held) => {
                let end = offset as usize + bytes as usize;
                let range = held.bytes.get(offset as usize..end).ok_or_else(not_fetched)?;
                vec![held.bytes.slice_ref(range)]
            }
        })
    }
}

/// Returns what of adjacent slices lies in a range, with the slice that each piece is of.
fn part(slices: &[Bytes], range: Range<usize>) -> impl Iterator<Item = (&Bytes, &[u8])> {
    let mut end = 0;
    slices.iter().filter_map(move |slice| {
        let begin = end;
        end += slice.len();
        let (from, to) = (range.start.max(begin), range.end.min(end));
        (from < to).then(|| (slice, &slice[from - begin..to - begin]))
    })
}

pub(crate) fn computed(slices: &[Bytes]) -> u32 {
    if let [slice] = slices {
        return crc32c(slice);
    }
    let mut running = Running::default();
    slices.iter().for_each(|slice| running.update(slice));
    running.value()
}
