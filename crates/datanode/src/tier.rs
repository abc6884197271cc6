//! What the media have in common: a block's bytes, read against the checksums that were kept when
//! they were written. How a medium reads and what can be wrong with it is in its own module.

use std::ops::Range;

use bytes::Bytes;
use sanderling_protocol::checksum::{Running, combine, crc32c};
use sanderling_protocol::order::Damage;
use sanderling_protocol::{Refusal, Tier};

use crate::chunk_sums::ChunkSums;

/// Why a block's bytes cannot be read.
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

/// A range of a block in order, with its checksum.
#[derive(Debug)]
pub(crate) struct ReadBytes {
    pub(crate) slices: Vec<Bytes>,
    pub(crate) checksum: u32,
}

/// The bytes of one block at one length, in one medium. Every call may block the thread if
/// [`Self::is_blocking`].
pub(crate) trait TierBytes {
    /// Returns the checksums of the bytes; `None` if they have to be fetched first.
    fn sums(&self) -> Option<&ChunkSums> {
        None
    }

    /// Returns bytes as they are.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn raw(&self, _offset: u32, _bytes: u32) -> Result<Vec<Bytes>, ReadError> {
        Err(not_fetched().into())
    }

    /// Checks whether the bytes are there, and `with_checksums` whether they are those that were
    /// written. What is in the object tier is compared when it is fetched, and not here.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn inspect(&self, _with_checksums: bool) -> Result<(), ReadError> {
        Ok(())
    }

    /// Returns whether reading blocks the thread.
    fn is_blocking(&self) -> bool {
        false
    }

    /// Returns whether the block has these bytes at `offset`.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn has(&self, offset: u32, bytes: &[u8]) -> Result<bool, ReadError> {
        Ok(self.raw(offset, bytes.len() as u32)?.concat() == bytes)
    }

    /// Returns the checksum of a range that was kept; `None` if it has to be computed.
    fn checksum(&self, start: u32, end: u32) -> Option<u32> {
        self.sums()?.checksum(start, end)
    }

    /// Reads an admitted range.
    ///
    /// A range of whole chunks has the checksum that was kept when these were written, so that the
    /// reader notices bytes that changed here. Of another range the chunks that it touches are
    /// compared with theirs, and its checksum is that of the very bytes which were compared.
    ///
    /// # Errors
    /// [`ReadError::Damaged`]: the bytes have changed or are not there. [`Refusal::TierFailed`]
    /// when the disk fails.
    fn read(&self, offset: u32, bytes: u32) -> Result<ReadBytes, ReadError> {
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
    /// become the block.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn read_verified(&self, bytes: u32) -> Result<ReadBytes, ReadError> {
        let read = self.read(0, bytes)?;
        if computed(&read.slices) == read.checksum {
            Ok(read)
        } else {
            Err(ReadError::Damaged(Damage::Checksum))
        }
    }
}

/// Returns the refusal of bytes in the object tier that were not fetched before they are read.
pub(crate) fn not_fetched() -> Refusal {
    let why = "the bytes of the object are not here".to_owned();
    Refusal::TierFailed { tier: Tier::Object.to_string(), why }
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

/// Returns the checksum of adjacent slices.
pub(crate) fn computed(slices: &[Bytes]) -> u32 {
    if let [slice] = slices {
        return crc32c(slice);
    }
    let mut running = Running::default();
    slices.iter().for_each(|slice| running.update(slice));
    running.value()
}
