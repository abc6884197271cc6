//! Reading a segment back.

use std::io;
use std::path::{Path, PathBuf};

use sanderling_core::catalog::Command;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::{ClusterId, Instant};

use super::header::{HEADER_BYTES, MAGIC, PLAIN_VERSION, TIED_HEADER_BYTES, TIED_VERSION};
use super::record::{Bad, Layout, Look, Whole};
use super::scan::{ScanEnd, behind};
use crate::damage::{JournalDamage, RecordDamage};
use crate::directory::{Directory, FileKind};
use crate::error::NamenodeStartError;
use crate::files::Window;

/// A segment that was read.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) version: u32,
    pub(super) layout: Layout,
    pub(crate) cluster: ClusterId,
    /// Number of its first command.
    pub(crate) first: u64,
    /// Number of the command after its last.
    pub(crate) next: u64,
    /// Bytes of the header and the whole records.
    pub(crate) length: u64,
    /// What follows them.
    pub(crate) tail: Option<Tail>,
}

/// Bytes that cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct Tail {
    pub(crate) bytes: u64,
    /// Whole records among them.
    pub(crate) records: u64,
    /// Why they cannot be read.
    pub(crate) why: RecordDamage,
    /// Whether something is missing that was on the disk once. Else the last write was torn.
    pub(crate) is_damage: bool,
}

impl Segment {
    /// Returns how many bytes follow the whole records.
    pub(crate) fn cut_bytes(&self) -> u64 {
        self.tail.as_ref().map_or(0, |tail| tail.bytes)
    }
}

/// What is known of a segment before it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentStart {
    /// Number of its first command, by its name.
    pub(crate) first: u64,
    pub(crate) cluster: Option<ClusterId>,
    /// A time that no command of it lies before.
    pub(crate) floor: Instant,
}

/// Reads a segment from the start to its end, or to the first record that is not whole, and gives
/// each command with its number to `take`. Nothing is given where the header is not as known.
pub(crate) fn read_segment(
    directory: &Directory,
    known: SegmentStart,
    take: impl FnMut(&Segment, Command),
) -> Result<Segment, NamenodeStartError> {
    let path = &directory.file(FileKind::Journal, known.first);
    let fail = |cause| NamenodeStartError::Files { what: "read", path: path.to_owned(), cause };
    let file = directory.files().open(path).map_err(fail)?;
    read_window(path, Window::new(file).map_err(fail)?, known, take)
}

/// Returns the cluster in a segment's header; `None` when it cannot be read.
pub(crate) fn cluster_of_segment(directory: &Directory, first: u64) -> Option<ClusterId> {
    let path = directory.file(FileKind::Journal, first);
    let mut window = Window::new(directory.files().open(&path).ok()?).ok()?;
    let header = window.bytes(0, TIED_HEADER_BYTES).ok()?;
    read_header(&path, header).ok().map(|segment| segment.cluster)
}

/// Reads a segment of the journal from a file that is open, to its end or to the first record that
/// is not whole, and gives each command to `take`.
pub(super) fn read_window(
    path: &Path,
    mut window: Window,
    known: SegmentStart,
    mut take: impl FnMut(&Segment, Command),
) -> Result<Segment, NamenodeStartError> {
    let fail = |cause| NamenodeStartError::Files { what: "read", path: path.to_owned(), cause };
    let header = window.bytes(0, TIED_HEADER_BYTES).map_err(fail)?;
    let mut segment = read_header(path, header)?;
    let corrupt = |damage| NamenodeStartError::CorruptJournal { path: path.to_owned(), damage };
    if segment.first != known.first {
        return Err(corrupt(JournalDamage::OtherStart { first: segment.first }));
    }
    if known.cluster.is_some_and(|cluster| cluster != segment.cluster) {
        return Err(corrupt(JournalDamage::OtherCluster(segment.cluster)));
    }
    let mut last_at = known.floor;
    while segment.length < window.length() {
        match look(&segment, &mut window, last_at).map_err(fail)? {
            Look::Whole(Whole { command, end }) => {
                last_at = command.at;
                take(&segment, command);
                segment.next += 1;
                segment.length = end;
            }
            Look::Bad(bad) => {
                segment.tail = Some(tail(&segment, &mut window, last_at, bad).map_err(fail)?);
                break;
            }
        }
    }
    Ok(segment)
}

fn look(segment: &Segment, window: &mut Window, last_at: Instant) -> io::Result<Look> {
    let look = segment.layout.look(window, segment.length, segment.next)?;
    Ok(match look {
        Look::Whole(whole) if whole.command.at < last_at => {
            Look::Bad(Bad { why: RecordDamage::Older, is_torn: false, end: Some(whole.end) })
        }
        look => look,
    })
}

fn tail(segment: &Segment, window: &mut Window, at: Instant, bad: Bad) -> io::Result<Tail> {
    let place = ScanEnd { offset: segment.length, number: segment.next, at };
    let found = behind(segment.layout, window, place, &bad)?;
    Ok(Tail {
        bytes: window.length() - segment.length,
        records: found.records,
        why: bad.why,
        is_damage: found.is_damage,
    })
}

fn read_header(path: &Path, bytes: &[u8]) -> Result<Segment, NamenodeStartError> {
    let corrupt = |damage| NamenodeStartError::CorruptJournal { path: path.to_owned(), damage };
    if bytes.len() < HEADER_BYTES {
        return Err(corrupt(JournalDamage::HeaderCut { bytes: bytes.len() }));
    }
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    if bytes[..8] != MAGIC {
        return Err(corrupt(JournalDamage::Foreign));
    }
    let version = u32_at(8);
    let length = match version {
        PLAIN_VERSION => HEADER_BYTES,
        TIED_VERSION if bytes.len() >= TIED_HEADER_BYTES => TIED_HEADER_BYTES,
        TIED_VERSION => return Err(corrupt(JournalDamage::HeaderCut { bytes: bytes.len() })),
        version => {
            return Err(NamenodeStartError::JournalVersion { path: path.to_owned(), version });
        }
    };
    if u32_at(12) != crc32c(&bytes[16..length]) {
        return Err(corrupt(JournalDamage::HeaderChecksum));
    }
    let layout = match version {
        PLAIN_VERSION => Layout::Plain,
        _ => Layout::Tied { salt: u64_at(32) },
    };
    let first = u64_at(24);
    Ok(Segment {
        path: path.to_owned(),
        version,
        layout,
        cluster: ClusterId(u64_at(16)),
        first,
        next: first,
        length: length as u64,
        tail: None,
    })
}
