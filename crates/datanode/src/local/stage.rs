//! Writes out of memory that a client has filled.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sanderling_core::fence::{WriteAdmission, WriteRequest};
use sanderling_protocol::checksum::{Running, crc32c};
use sanderling_protocol::{Refusal, Tier};
use sanderling_transport::local::Memory;

use crate::dram::DramBytes;
use crate::store::{BlockBytes, BlockStore, check};

/// Bytes copied before their checksum goes on: they are still in the first cache then.
const STEP_BYTES: usize = 16 << 10;

impl BlockStore {
    /// Writes the bytes at the start of `staged` to a block in memory.
    ///
    /// The client can change them at any moment, so the checksum is that of the copy: what is
    /// published is what was verified, whatever the client does meanwhile and afterwards.
    ///
    /// # Errors
    /// As [`Self::write`], and [`Refusal::BadRequest`] when the block is not for memory.
    pub(crate) fn write_staged(
        &self,
        request: WriteRequest,
        staged: &Memory,
        checksum: u32,
    ) -> Result<u32, Refusal> {
        if request.tier != Tier::Dram {
            let why = format!("blocks of tier {} are written over TCP", request.tier);
            return Err(Refusal::BadRequest { why });
        }
        let admission = self.table.write().admit_write(&request)?;
        match admission {
            WriteAdmission::Append { ticket, bytes: before } => {
                match self.landed(&request, before, staged, checksum) {
                    Ok(grown) => {
                        let length = self.table.write().wrote(ticket, grown)?;
                        let written = u64::from(request.bytes);
                        self.traffic.written_bytes.fetch_add(written, Ordering::Relaxed);
                        Ok(length)
                    }
                    Err(refusal) => {
                        self.table.write().abandon_write(ticket);
                        Err(refusal)
                    }
                }
            }
            WriteAdmission::AlreadyThere { bytes: held, length } => {
                let mut bytes = vec![0; request.bytes as usize];
                staged.take(0, &mut bytes);
                check(request.block, crc32c(&bytes), checksum)?;
                self.compare_write(&request, &held, length, &bytes)
            }
        }
    }

    fn landed(
        &self,
        request: &WriteRequest,
        before: Option<BlockBytes>,
        staged: &Memory,
        checksum: u32,
    ) -> Result<BlockBytes, Refusal> {
        let before = match before {
            Some(BlockBytes::Dram(before)) => before,
            None => Arc::new(DramBytes::new(self.arena())),
            Some(_) => {
                let why = format!("block {} is not in memory", request.block);
                return Err(Refusal::BadRequest { why });
            }
        };
        let mut running = Running::default();
        let mut place = 0;
        let fill = |to: &mut [u8]| {
            for step in to.chunks_mut(STEP_BYTES) {
                staged.take(place, step);
                running.update(step);
                place += step.len();
            }
        };
        let full = || {
            let (tier, bytes) = (request.tier.to_string(), u64::from(request.bytes));
            Refusal::NodeFull { tier, bytes }
        };
        let mut grown = before.filled(request.bytes, checksum, fill).ok_or_else(full)?;
        let computed = running.value();
        if computed != checksum {
            let (block, expected) = (request.block, checksum);
            return Err(Refusal::ChecksumMismatch { block, expected, computed });
        }
        grown.added_is_verified(&before);
        Ok(BlockBytes::Dram(Arc::new(grown)))
    }
}
