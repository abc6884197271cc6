//! How records lie in a segment, by the segment's version.
//!
//! Version 3, *plain*: u32 length, u32 CRC32C of the payload, payload.
//!
//! Version 4, *tied*: a mark, u32 length, u32 number of the command (its low half), u32 bytes
//! before the record that the disk was not known to have when it was written, u32 CRC32C of the
//! payload, u32 CRC32C of the segment's salt and all of this, payload, a mark. A record of another
//! place, segment or time does not pass here, clients cannot put one into a value because they do
//! not know the salt, and a damaged length is distinguishable from a payload that was cut off.

use std::io;

use sanderling_core::catalog::Command;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::encode_onto;
use thiserror::Error;

use crate::damage::RecordDamage;
use crate::files::Window;

/// Longest payload of a record: four times the longest frame, so that no request makes such a
/// command, whatever places it is given. A longer one that is read is damage.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// Bytes that a disk loses or keeps whole: the smallest sector that disks have. Those with sectors
/// of 4 KiB keep a multiple of it whole.
const SECTOR: u64 = 512;

/// Bytes before a plain record's payload: 4 each of length and checksum.
const PLAIN_HEADER: usize = 8;

/// Bytes before that of a tied one: the mark, then 4 each of length, number, unsynced bytes,
/// checksum of the payload, and tied checksum.
const TIED_HEADER: usize = 21;

/// First and last byte of a tied record: never 0, since a lost sector reads as zeros.
const MARK: u8 = 0xa7;

/// Last byte of a tied record, for the same reason.
const END_MARK: u8 = 0x5b;

/// How the records of a segment are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Plain,
    Tied { salt: u64 },
}

/// What lies at an offset of a segment.
#[derive(Debug)]
pub(super) enum Look {
    Whole(Whole),
    Bad(Bad),
}

/// A record that is what was written, here.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) command: Command,
    /// Where the next one begins.
    pub(super) end: u64,
}

/// Bytes that are no record of this place.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) why: RecordDamage,
    /// Whether a write that the disk has got a part of looks like this.
    pub(super) is_torn: bool,
    /// Where the record would end, if its length can be believed and lies within the file.
    pub(super) end: Option<u64>,
}

/// The header of a tied record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tie {
    pub(super) number: u32,
    length: usize,
    checksum: u32,
    unsynced: u32,
}

impl Tie {
    /// Returns up to where the disk had the segment when the record at `offset` was written.
    pub(super) const fn synced(self, offset: u64) -> u64 {
        match self.unsynced {
            u32::MAX => 0,
            bytes => offset.saturating_sub(bytes as u64),
        }
    }
}

/// An error of a command that is longer than a record may be.
#[derive(Debug, Clone, Error)]
#[error("a command of {bytes} bytes is too long: a record has at most {RECORD_BYTES_MAX}")]
pub struct RecordTooLong {
    /// Bytes of the encoded command.
    bytes: usize,
}

impl Layout {
    /// Writes one record at the end of `out`. `number` is the command's, `unsynced` the bytes
    /// before it that the disk may not have.
    ///
    /// # Errors
    /// [`RecordTooLong`]: `out` is as it was, and the change of the command is refused.
    pub(super) fn encode(
        self,
        command: &Command,
        number: u64,
        unsynced: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordTooLong> {
        let start = out.len();
        let header = self.header_bytes();
        out.resize(start + header, 0);
        let mut written = encode_onto(command, std::mem::take(out));
        let payload = &written[start + header..];
        let bytes = payload.len();
        let is_long = bytes > RECORD_BYTES_MAX;
        let checksum = crc32c(payload);
        if is_long {
            written.truncate(start);
            *out = written;
            return Err(RecordTooLong { bytes });
        }
        let length = u32::try_from(bytes).expect("checked against the limit");
        let head = &mut written[start..start + header];
        match self {
            Self::Plain => {
                head[..4].copy_from_slice(&length.to_le_bytes());
                head[4..].copy_from_slice(&checksum.to_le_bytes());
            }
            Self::Tied { salt } => {
                let unsynced = u32::try_from(unsynced).unwrap_or(u32::MAX);
                head[0] = MARK;
                head[1..5].copy_from_slice(&length.to_le_bytes());
                head[5..9].copy_from_slice(&low(number).to_le_bytes());
                head[9..13].copy_from_slice(&unsynced.to_le_bytes());
                head[13..17].copy_from_slice(&checksum.to_le_bytes());
                let tied = tied_checksum(salt, &head[..17]);
                head[17..].copy_from_slice(&tied.to_le_bytes());
                written.push(END_MARK);
            }
        }
        *out = written;
        Ok(())
    }

    const fn header_bytes(self) -> usize {
        match self {
            Self::Plain => PLAIN_HEADER,
            Self::Tied { .. } => TIED_HEADER,
        }
    }

    /// Looks for the record of the command `number` at an offset.
    pub(super) fn look(self, window: &mut Window, offset: u64, number: u64) -> io::Result<Look> {
        match self {
            Self::Plain => look_plain(window, offset),
            Self::Tied { salt } => look_tied(window, offset, number, salt),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
pub(super) const fn low(number: u64) -> u32 {
    number as u32
}

/// Returns the checksum of a record's head, tied to its file by the file's salt. The group's log
/// has such heads as well.
pub(crate) fn tied_checksum(salt: u64, head: &[u8]) -> u32 {
    let mut bytes = [0; 25];
    bytes[..8].copy_from_slice(&salt.to_le_bytes());
    bytes[8..].copy_from_slice(head);
    crc32c(&bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn look_plain(window: &mut Window, offset: u64) -> io::Result<Look> {
    let total = window.length();
    let head = window.bytes(offset, PLAIN_HEADER)?;
    if head.len() < PLAIN_HEADER {
        return Ok(bad(RecordDamage::HeaderCut, true, None));
    }
    let (length, checksum) = (u32_at(head, 0) as usize, u32_at(head, 4));
    if length == 0 || length > RECORD_BYTES_MAX {
        let is_torn = has_lost_sector(window, offset, offset + PLAIN_HEADER as u64)?;
        return Ok(bad(RecordDamage::Length { bytes: length }, is_torn, None));
    }
    let end = offset + (PLAIN_HEADER + length) as u64;
    if end > total {
        return Ok(bad(RecordDamage::Cut, true, None));
    }
    check_payload(window, offset, PLAIN_HEADER, length, checksum, end)
}

fn look_tied(window: &mut Window, offset: u64, number: u64, salt: u64) -> io::Result<Look> {
    let total = window.length();
    if window.bytes(offset, TIED_HEADER)?.len() < TIED_HEADER {
        return Ok(bad(RecordDamage::HeaderCut, true, None));
    }
    let Some(tie) = tie(window, offset, salt)? else {
        let is_torn = has_lost_sector(window, offset, offset + TIED_HEADER as u64)?;
        return Ok(bad(RecordDamage::Header, is_torn, None));
    };
    if tie.number != low(number)
        && !crate::injected_bug::is(crate::injected_bug::InjectedBug::NoNumber)
    {
        let why = RecordDamage::Number { found: tie.number, wanted: low(number) };
        return Ok(bad(why, false, None));
    }
    let end = offset + (TIED_HEADER + tie.length + 1) as u64;
    if end > total {
        return Ok(bad(RecordDamage::Cut, true, None));
    }
    if window.bytes(end - 1, 1)? != [END_MARK] {
        let is_torn = has_lost_sector(window, offset, end)?;
        return Ok(bad(RecordDamage::End, is_torn, Some(end)));
    }
    check_payload(window, offset, TIED_HEADER, tie.length, tie.checksum, end)
}

/// Reads the header of a tied record, if one of this segment lies there.
pub(super) fn tie(window: &mut Window, offset: u64, salt: u64) -> io::Result<Option<Tie>> {
    let head = window.bytes(offset, TIED_HEADER)?;
    if head.len() < TIED_HEADER || head[0] != MARK {
        return Ok(None);
    }
    if u32_at(head, 17) != tied_checksum(salt, &head[..17]) {
        return Ok(None);
    }
    let length = u32_at(head, 1) as usize;
    let tie = Tie {
        number: u32_at(head, 5),
        length,
        checksum: u32_at(head, 13),
        unsynced: u32_at(head, 9),
    };
    Ok((length > 0 && length <= RECORD_BYTES_MAX).then_some(tie))
}

fn check_payload(
    window: &mut Window,
    offset: u64,
    header: usize,
    length: usize,
    checksum: u32,
    end: u64,
) -> io::Result<Look> {
    let payload = window.bytes(offset + header as u64, length)?;
    if crc32c(payload) != checksum
        && !crate::injected_bug::is(crate::injected_bug::InjectedBug::NoChecksum)
    {
        let is_torn = has_lost_sector(window, offset, end)?;
        return Ok(bad(RecordDamage::Checksum, is_torn, Some(end)));
    }
    // What follows was written so: no tear looks like this.
    Ok(match postcard::take_from_bytes(payload) {
        Ok((command, [])) => Look::Whole(Whole { command, end }),
        Ok((_, rest)) => bad(RecordDamage::Trailing { bytes: rest.len() }, false, Some(end)),
        Err(error) => bad(RecordDamage::Undecodable(error), false, Some(end)),
    })
}

const fn bad(why: RecordDamage, is_torn: bool, end: Option<u64>) -> Look {
    Look::Bad(Bad { why, is_torn, end })
}

/// Returns whether the disk never got one of the sectors of a record: then zeros are read there, up
/// to the sector's end.
fn has_lost_sector(window: &mut Window, from: u64, to: u64) -> io::Result<bool> {
    let to = to.min(window.length());
    let mut at = from;
    while at < to {
        let sector_end = (at / SECTOR + 1) * SECTOR;
        let count = usize::try_from(sector_end - at).expect("at most a sector");
        if window.bytes(at, count)?.iter().all(|byte| *byte == 0) {
            return Ok(true);
        }
        at = sector_end;
    }
    Ok(false)
}
