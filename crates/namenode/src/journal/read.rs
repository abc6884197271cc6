//! Reading a segment back.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use sanderling_core::catalog::Command;
use sanderling_protocol::ClusterId;
use sanderling_protocol::checksum::crc32c;

use super::{HEADER_BYTES, MAGIC, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, VERSION};
use crate::error::StartError;

/// A segment that was read.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) cluster: ClusterId,
    /// Number of its first command.
    pub(crate) first: u64,
    /// Number of the command after its last.
    pub(crate) next: u64,
    /// Bytes of the header and the whole records.
    pub(crate) length: u64,
    /// Bytes after them, which cannot be read.
    pub(crate) cut_bytes: u64,
    /// Why they cannot be read.
    pub(crate) cut_why: String,
}

/// Reads a segment from the start to its end, or to the first record that is not whole, and gives
/// each command with its number to `take`.
pub(crate) fn read_segment(
    path: &Path,
    mut take: impl FnMut(u64, Command),
) -> Result<Segment, StartError> {
    let fail = |cause| StartError::Files { what: "read", path: path.to_owned(), cause };
    let file = File::open(path).map_err(fail)?;
    let total = file.metadata().map_err(fail)?.len();
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (cluster, first) = read_header(path, &mut reader)?;
    let mut segment = Segment {
        path: path.to_owned(),
        cluster,
        first,
        next: first,
        length: HEADER_BYTES as u64,
        cut_bytes: 0,
        cut_why: String::new(),
    };
    let mut payload = Vec::new();
    while segment.length < total {
        let left = total - segment.length;
        match read_record(&mut reader, left, &mut payload).map_err(fail)? {
            Ok(command) => {
                take(segment.next, command);
                segment.next += 1;
                segment.length += (RECORD_HEADER_BYTES + payload.len()) as u64;
            }
            Err(why) => {
                segment.cut_bytes = left;
                segment.cut_why = why;
                break;
            }
        }
    }
    Ok(segment)
}

fn read_header(path: &Path, reader: &mut impl Read) -> Result<(ClusterId, u64), StartError> {
    let corrupt = |why: String| StartError::CorruptJournal { path: path.to_owned(), why };
    let mut bytes = [0; HEADER_BYTES];
    reader.read_exact(&mut bytes).map_err(|error| corrupt(format!("its header: {error}")))?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    if bytes[..8] != MAGIC {
        return Err(corrupt("it does not start like a journal".to_owned()));
    }
    if u32_at(8) != VERSION {
        return Err(corrupt(format!("version {} where {VERSION} is read", u32_at(8))));
    }
    if u32_at(12) != crc32c(&bytes[16..]) {
        return Err(corrupt("its header has another checksum".to_owned()));
    }
    Ok((ClusterId(u64_at(16)), u64_at(24)))
}

/// Reads one record; the inner error says why it is not whole.
fn read_record(
    reader: &mut impl Read,
    left: u64,
    payload: &mut Vec<u8>,
) -> io::Result<Result<Command, String>> {
    if left < RECORD_HEADER_BYTES as u64 {
        return Ok(Err("a record's header is cut off".to_owned()));
    }
    let mut head = [0; RECORD_HEADER_BYTES];
    reader.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
    let checksum = u32::from_le_bytes(head[4..].try_into().expect("four bytes"));
    if length == 0 || length > RECORD_BYTES_MAX {
        return Ok(Err(format!("a record claims {length} bytes")));
    }
    if (RECORD_HEADER_BYTES + length) as u64 > left {
        return Ok(Err("a record is cut off".to_owned()));
    }
    payload.resize(length, 0);
    reader.read_exact(payload)?;
    if crc32c(payload) != checksum {
        return Ok(Err("a record has another checksum".to_owned()));
    }
    Ok(match postcard::take_from_bytes(payload) {
        Ok((command, [])) => Ok(command),
        Ok((_, rest)) => Err(format!("{} bytes follow a command in its record", rest.len())),
        Err(error) => Err(format!("a record is no command: {error}")),
    })
}
