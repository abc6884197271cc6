//! The log of a replicated group on one member's disk: one entry for each round of the leader.
//!
//! It is apart from the journal, which has what the quorum has agreed on: an entry that a later
//! leader overrules is cut here and never reaches the journal. A segment is a header and records:
//!
//! ```text
//! header: 8 bytes magic, u32 version, u32 CRC32C of the rest, u64 cluster, u64 first index,
//!         u64 salt
//! record: a mark, u32 length, u64 index, u32 CRC32C of the payload,
//!         u32 CRC32C of the salt and all of this, payload (postcard `LogEntry`)
//! ```
//!
//! All numbers are little-endian.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use sanderling_core::replica::{LogEntry, LogPlace, is_log_stale};
use sanderling_protocol::ClusterId;
use sanderling_protocol::checksum::crc32c;
use thiserror::Error;

use super::round::RoundError;
use crate::directory::{Directory, FileKind, PublishError};
use crate::files::{Stored, Window};
use crate::journal::record::tied_checksum;
use crate::options::Sync;

/// The first bytes of a segment.
const MAGIC: [u8; 8] = *b"SNDLGLOG";
/// The format of segments that this program reads and writes.
const VERSION: u32 = 1;

/// Bytes of a segment's header: the sum of the fields in the module's text.
const HEADER_BYTES: usize = 40;

/// Bytes before a record's payload: the sum of its other fields there.
const RECORD_HEADER_BYTES: usize = 21;

/// First byte of a record: never 0, since a lost sector reads as zeros. Another one than the
/// journal's.
const MARK: u8 = 0xc9;

/// Longest payload of a record: a round of 2,048 commands of the usual size has a few hundred KiB;
/// one command may be as long as the longest frame. Eight times that, so that a longer one is
/// damage.
const RECORD_BYTES_MAX: usize = 128 << 20;

/// Bytes of a segment after which the next one begins. The log is removed by whole segments, of
/// which it has eight at most (`LOG_BYTES_MAX` of `member`).
const SEGMENT_BYTES: u64 = 16 << 20;

/// A reason why the log cannot be read or written.
#[derive(Debug, Error)]
pub enum LogError {
    /// A file operation failed.
    #[error("{path}: {cause}", path = .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
    /// A sync failed: the disk may lack what was written, and a later sync proves nothing.
    #[error("{path}: sync: {cause}", path = .path.display())]
    Unsynced {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
    /// It is not what was written.
    #[error("{path}: {damage}", path = .path.display())]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        damage: GroupFileDamage,
    },
}

/// A kind of damage of a file of a group's member.
#[derive(Debug, Error)]
pub enum GroupFileDamage {
    /// The log does not begin with a header.
    #[error("it has another header")]
    Header,
    /// The log's header is not what was written.
    #[error("its header has another checksum")]
    HeaderChecksum,
    /// Another version of the program wrote it.
    #[error("it is of format {version}, and this program reads {known}")]
    Format {
        /// Its format.
        version: u32,
        /// The format that this program writes.
        known: u32,
    },
    /// The other files of the directory are not of its cluster.
    #[error("it belongs to cluster {:016x}", .0.0)]
    OtherCluster(ClusterId),
    /// The bytes from an offset on are no entry, and entries that were written later follow.
    #[error("it is damaged at byte {offset}, before whole entries")]
    BeforeEntries {
        /// Up to where it is whole.
        offset: u64,
    },
    /// A segment of the log is not there.
    #[error("entries before it are missing")]
    Gap,
    /// The log ends before what the member has acknowledged.
    #[error("the group's log lacks entries that this member has acknowledged")]
    Cut,
    /// The member's state is not there.
    #[error("it is missing, and the log of a group's member is there")]
    NoFile,
    /// The member's state does not begin with a header.
    #[error("it does not begin like the state of a group's member")]
    Foreign,
    /// The member's state is not what was written.
    #[error("it has another checksum")]
    Checksum,
    /// The bytes of the member's state are what was written, and no state.
    #[error("it holds no state of a group's member")]
    NoState {
        /// Why they cannot be decoded; `None` if bytes follow the state.
        #[source]
        cause: Option<postcard::Error>,
    },
    /// The file does not name a generation of a group.
    #[error("{0}")]
    NoGeneration(#[from] serde_json::Error),
    /// The leader's message came without the snapshot that it names.
    #[error("the group's snapshot did not arrive with its message")]
    NoSnapshot,
    /// What is agreed cannot be applied.
    #[error("{0}")]
    Round(#[from] RoundError),
}

/// A reason why the files of a group's member cannot be used.
#[derive(Debug, Error)]
pub enum MemberFilesError {
    /// A file is damaged, or cannot be read or written.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The catalog is of another cluster than the member.
    #[error("the catalog is of cluster {:016x}", .0.0)]
    OtherCluster(ClusterId),
    /// What the log kept of agreed entries cannot be read.
    #[error("{0}")]
    Kept(#[from] io::Error),
    /// What the log has cannot be applied.
    #[error("{0}")]
    Round(#[from] RoundError),
}

impl LogError {
    /// Returns the error of a file that did not appear. After a failed sync the next start must not
    /// believe what it reads.
    fn unpublished(directory: &Directory, path: PathBuf, error: PublishError) -> Self {
        match error {
            PublishError::NotThere(cause) => Self::Io { path, cause },
            PublishError::Unsynced(cause) => Self::unsynced(directory, path, cause),
        }
    }

    /// Returns the error of a failed sync of the log, and notes it for the next start.
    fn unsynced(directory: &Directory, path: PathBuf, cause: io::Error) -> Self {
        // Without the mark the next process believes what it reads, as after a mere end.
        let _ = directory.set_group_suspect(true);
        Self::Unsynced { path, cause }
    }
}

/// One file of the log.
#[derive(Debug)]
struct RoundsSegment {
    file: Arc<dyn Stored>,
    path: PathBuf,
    salt: u64,
    first: u64,
    /// Where the record of each entry begins.
    offsets: Vec<u64>,
    /// The term of the last entry.
    last_term: u64,
    length: u64,
}

impl RoundsSegment {
    const fn next(&self) -> u64 {
        self.first + self.offsets.len() as u64
    }

    /// Returns once the disk has what was written.
    fn sync(&self, directory: &Directory) -> Result<(), LogError> {
        let synced = self.file.sync();
        synced.map_err(|cause| LogError::unsynced(directory, self.path.clone(), cause))
    }

    /// Writes the whole entries to a new file, which takes the place of this one.
    fn write_anew(&mut self, directory: &Directory) -> Result<(), LogError> {
        let read = || {
            let length = usize::try_from(self.length).map_err(io::Error::other)?;
            let mut window = Window::new(Arc::clone(&self.file))?;
            let bytes = window.bytes(0, length)?;
            match bytes.len() == length {
                true => Ok(bytes.to_vec()),
                false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter")),
            }
        };
        let bytes = read().map_err(|cause| LogError::Io { path: self.path.clone(), cause })?;
        let published = directory.publish(&self.path, &[&bytes]);
        let unpublished = |error| LogError::unpublished(directory, self.path.clone(), error);
        self.file = published.map_err(unpublished)?;
        Ok(())
    }
}

/// Notes that the log is as it was written: it was written anew, or begins.
fn trust(directory: &Directory) -> Result<(), LogError> {
    if !directory.is_group_suspect() {
        return Ok(());
    }
    let trusted = directory.set_group_suspect(false);
    trusted.map_err(|cause| LogError::Io { path: directory.path().to_owned(), cause })
}

/// The open log.
#[derive(Debug)]
pub(crate) struct GroupLog {
    directory: Arc<Directory>,
    cluster: ClusterId,
    sync: Sync,
    /// Ascending; the last one is written.
    segments: Vec<RoundsSegment>,
    buffer: Vec<u8>,
}

impl GroupLog {
    /// Begins an empty log, in place of whatever the directory has: the first entry will have the
    /// index `first`.
    pub(crate) fn begin(
        directory: &Arc<Directory>,
        cluster: ClusterId,
        sync: Sync,
        first: u64,
    ) -> Result<Self, LogError> {
        let fail = |cause| LogError::Io { path: directory.path().to_owned(), cause };
        let remove = |old: u64| {
            directory.files().remove(&directory.file(FileKind::Rounds, old)).map_err(fail)
        };
        let (before, after): (Vec<u64>, Vec<u64>) =
            directory.list(FileKind::Rounds).map_err(fail)?.into_iter().partition(|it| *it < first);
        // There is a log at any moment: without one, its member may have forgotten everything.
        after.into_iter().filter(|old| *old > first).try_for_each(remove)?;
        let buffer = Vec::new();
        let of = Arc::clone(directory);
        let mut log = Self { directory: of, cluster, sync, segments: Vec::new(), buffer };
        log.begin_segment(first)?;
        before.into_iter().try_for_each(remove)?;
        trust(&log.directory)?;
        Ok(log)
    }

    /// Opens the log that an earlier process left, and returns its entries behind `start`. A last
    /// write that was torn is cut; damage before whole entries is an error. A log that ends before
    /// `start` is replaced by an empty one.
    pub(crate) fn open(
        directory: &Arc<Directory>,
        cluster: ClusterId,
        sync: Sync,
        start: LogPlace,
    ) -> Result<(Self, Vec<LogEntry>), LogError> {
        Self::reopen(directory, cluster, sync, start, true)
    }

    /// Opens the log as [`GroupLog::open`] does. `may_be_replaced`: a snapshot may have been
    /// received that was to replace the log.
    ///
    /// # Errors
    /// [`GroupFileDamage::Cut`] if the log ends before `start` and that is not so.
    pub(crate) fn reopen(
        directory: &Arc<Directory>,
        cluster: ClusterId,
        sync: Sync,
        start: LogPlace,
        may_be_replaced: bool,
    ) -> Result<(Self, Vec<LogEntry>), LogError> {
        let fail = |cause| LogError::Io { path: directory.path().to_owned(), cause };
        let firsts = directory.list(FileKind::Rounds).map_err(fail)?;
        if firsts.is_empty() {
            let path = directory.path().to_owned();
            return Err(LogError::Damaged { path, damage: GroupFileDamage::Cut });
        }
        let (mut segments, mut entries) = (Vec::<RoundsSegment>::new(), Vec::new());
        for (place, first) in firsts.iter().enumerate() {
            let after = firsts.get(place + 1);
            if after.is_some_and(|after| *after <= start.index + 1) {
                continue;
            }
            let path = directory.file(FileKind::Rounds, *first);
            let known = segments.last().map_or(start.index + 1, RoundsSegment::next);
            if *first > known || (segments.last().is_some() && *first < known) {
                return Err(LogError::Damaged { path, damage: GroupFileDamage::Gap });
            }
            segments.push(read_segment(directory, cluster, *first, after.is_none(), &mut entries)?);
        }
        entries.retain(|entry: &LogEntry| entry.place.index > start.index);
        let next = segments.last().map_or(0, RoundsSegment::next);
        let is_stale = is_log_stale(start, entries.first().map(|entry| entry.place), next);
        if is_stale && !may_be_replaced {
            let path = directory.path().to_owned();
            return Err(LogError::Damaged { path, damage: GroupFileDamage::Cut });
        }
        if is_stale {
            let log = Self::begin(directory, cluster, sync, start.index + 1)?;
            return Ok((log, Vec::new()));
        }
        if directory.is_group_suspect() {
            // The kernel may show bytes that it will never write, and report success for a sync of
            // them.
            for segment in &mut segments {
                segment.write_anew(directory)?;
            }
            trust(directory)?;
        } else {
            // What is read counts as confirmed, and a process that was killed may not have synced
            // it. Without --sync always, this reports what the kernel could not write.
            for segment in &segments {
                segment.sync(directory)?;
            }
        }
        let directory = Arc::clone(directory);
        Ok((Self { directory, cluster, sync, segments, buffer: Vec::new() }, entries))
    }

    /// Returns whether a directory has entries of a group's log.
    pub(crate) fn has_entries(directory: &Directory) -> io::Result<bool> {
        let firsts = directory.list(FileKind::Rounds)?;
        let bytes = |first: &u64| directory.bytes(FileKind::Rounds, *first);
        Ok(firsts.iter().any(|first| bytes(first) > HEADER_BYTES as u64))
    }

    /// Returns entries up to `start` that are still in the log, as far back as one that `is_known`;
    /// none if the log is not of the group of `start`.
    ///
    /// A member writes `start` before it applies what is agreed of its own round before that place.
    /// A process that is killed in between leaves a journal that lacks the round. The last round
    /// before `start` also shows how far a log went that ends there.
    pub(crate) fn kept_before(
        directory: &Directory,
        cluster: ClusterId,
        start: LogPlace,
        is_known: impl Fn(&LogEntry) -> bool,
    ) -> io::Result<Vec<LogEntry>> {
        let mut kept = Vec::<LogEntry>::new();
        let firsts = directory.list(FileKind::Rounds)?;
        for first in firsts.into_iter().rev().filter(|first| *first <= start.index) {
            let mut entries = Vec::new();
            // A catalog that has all of them needs no segment that is damaged.
            let Ok(_) = read_segment(directory, cluster, first, false, &mut entries) else { break };
            entries.retain(|entry: &LogEntry| entry.place.index <= start.index);
            let follows = match (entries.last(), kept.first()) {
                (Some(last), None) => last.place == start,
                (Some(last), Some(next)) => last.place.index + 1 == next.place.index,
                (None, _) => false,
            };
            if !follows {
                break;
            }
            entries.append(&mut kept);
            kept = entries;
            if kept.iter().any(&is_known) {
                break;
            }
        }
        Ok(kept)
    }

    /// Returns the index of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.segments.last().map_or(0, RoundsSegment::next)
    }

    /// Returns the index of the first entry that is kept.
    pub(crate) fn first(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.first)
    }

    /// Returns the bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    /// Writes entries that follow one another, in one write. What the log has from the first one on
    /// was overruled: it is cut.
    ///
    /// # Errors
    /// [`LogError`]: what the file has is unknown, and nothing may be written after it.
    pub(crate) fn append(&mut self, entries: &[LogEntry]) -> Result<(), LogError> {
        let Some(first) = entries.first() else { return Ok(()) };
        if first.place.index < self.next() {
            self.cut(first.place.index)?;
        }
        assert!(first.place.index == self.next(), "the replica gives entries without a gap");
        if self.segments.last().is_none_or(|it| it.length >= SEGMENT_BYTES) {
            self.begin_segment(first.place.index)?;
        }
        let segment = self.segments.last_mut().expect("there is always one");
        self.buffer.clear();
        let mut offsets = Vec::with_capacity(entries.len());
        for entry in entries {
            offsets.push(segment.length + self.buffer.len() as u64);
            encode(segment.salt, entry, &mut self.buffer);
        }
        let fail = |cause| LogError::Io { path: segment.path.clone(), cause };
        segment.file.write_at(&self.buffer, segment.length).map_err(fail)?;
        if self.sync == Sync::Always {
            segment.sync(&self.directory)?;
        }
        segment.length += self.buffer.len() as u64;
        segment.offsets.extend(offsets);
        segment.last_term = entries.last().map_or(0, |entry| entry.place.term);
        Ok(())
    }

    /// Begins anew, empty, with the first entry's index: a snapshot has replaced everything.
    pub(crate) fn restart(&mut self, first: u64) -> Result<(), LogError> {
        *self = Self::begin(&self.directory, self.cluster, self.sync, first)?;
        Ok(())
    }

    /// Returns once the disk has everything.
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.segments.iter().try_for_each(|segment| segment.sync(&self.directory))
    }

    /// Returns the term of an entry; `None` if the log begins after it.
    ///
    /// # Errors
    /// The file cannot be read, or lacks the entry: this member cannot go on.
    pub(crate) fn term_of(&self, index: u64) -> Result<Option<u64>, LogError> {
        let has = |it: &&RoundsSegment| it.first <= index;
        let Some(segment) = self.segments.iter().rev().find(has) else { return Ok(None) };
        let path = || segment.path.clone();
        let place = usize::try_from(index - segment.first).ok();
        let offset = place.and_then(|place| segment.offsets.get(place).copied());
        let Some(offset) = offset else {
            return Err(LogError::Damaged { path: path(), damage: GroupFileDamage::Cut });
        };
        let read = Window::new(Arc::clone(&segment.file))
            .and_then(|mut window| entry(&mut window, offset, segment.salt, index));
        match read.map_err(|cause| LogError::Io { path: path(), cause })? {
            Some((entry, _)) => Ok(Some(entry.place.term)),
            None => {
                let damage = GroupFileDamage::BeforeEntries { offset };
                Err(LogError::Damaged { path: path(), damage })
            }
        }
    }

    /// Returns the last entry of the whole segments without which the log still has so many bytes,
    /// if it is not after `applied`.
    pub(crate) fn place_with(&self, bytes: u64, applied: u64) -> Option<LogPlace> {
        let (mut left, mut place) = (self.bytes(), None);
        for segment in &self.segments {
            left -= segment.length;
            if left < bytes || segment.next() > applied + 1 {
                break;
            }
            place = Some(LogPlace { term: segment.last_term, index: segment.next() - 1 });
        }
        place
    }

    /// Removes the entries from an index on.
    fn cut(&mut self, from: u64) -> Result<(), LogError> {
        while self.segments.len() > 1 && self.segments.last().is_some_and(|it| it.first >= from) {
            let path = self.segments.pop().expect("more than one").path;
            let removed = self.directory.files().remove(&path);
            removed.map_err(|cause| LogError::Io { path: path.clone(), cause })?;
            let synced = self.directory.sync();
            synced.map_err(|cause| LogError::unsynced(&self.directory, path, cause))?;
        }
        let segment = self.segments.last_mut().expect("there is always one");
        let kept = usize::try_from(from.saturating_sub(segment.first)).unwrap_or(usize::MAX);
        if let Some(offset) = segment.offsets.get(kept).copied() {
            let fail = |cause| LogError::Io { path: segment.path.clone(), cause };
            segment.file.set_length(offset).map_err(fail)?;
            if self.sync == Sync::Always {
                // Else a crash could join the old tail to what is written next.
                segment.sync(&self.directory)?;
            }
            // The entries that replace them follow: their term is the last one.
            segment.offsets.truncate(kept);
            segment.length = offset;
        }
        Ok(())
    }

    /// Removes whole segments before an index. Returns the first index that is kept.
    pub(crate) fn compact(&mut self, before: u64) -> Result<u64, LogError> {
        let mut is_changed = false;
        while self.segments.len() > 1 && self.segments[1].first <= before {
            let segment = self.segments.remove(0);
            let removed = self.directory.files().remove(&segment.path);
            removed.map_err(|cause| LogError::Io { path: segment.path, cause })?;
            is_changed = true;
        }
        if is_changed {
            let path = self.directory.path().to_owned();
            let synced = self.directory.sync();
            synced.map_err(|cause| LogError::unsynced(&self.directory, path, cause))?;
        }
        Ok(self.first())
    }

    /// Begins the next segment. [`GroupLog::compact`] removes whole ones later.
    fn begin_segment(&mut self, first: u64) -> Result<(), LogError> {
        let salt = rand::random();
        let path = self.directory.file(FileKind::Rounds, first);
        let header = header(self.cluster, first, salt);
        let published = self.directory.publish(&path, &[&header]);
        let unpublished = |error| LogError::unpublished(&self.directory, path.clone(), error);
        let file = published.map_err(unpublished)?;
        let (offsets, length) = (Vec::new(), HEADER_BYTES as u64);
        self.segments.push(RoundsSegment {
            file,
            path,
            salt,
            first,
            offsets,
            last_term: 0,
            length,
        });
        Ok(())
    }
}

fn header(cluster: ClusterId, first: u64, salt: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(cluster.0.to_le_bytes());
    bytes.extend(first.to_le_bytes());
    bytes.extend(salt.to_le_bytes());
    let checksum = crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn encode(salt: u64, entry: &LogEntry, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + RECORD_HEADER_BYTES, 0);
    let mut out_bytes = sanderling_protocol::frame::encode_onto(entry, std::mem::take(out));
    let payload = &out_bytes[start + RECORD_HEADER_BYTES..];
    let length = u32::try_from(payload.len()).expect("a round is far shorter");
    let checksum = crc32c(payload);
    let head = &mut out_bytes[start..start + RECORD_HEADER_BYTES];
    head[0] = MARK;
    head[1..5].copy_from_slice(&length.to_le_bytes());
    head[5..13].copy_from_slice(&entry.place.index.to_le_bytes());
    head[13..17].copy_from_slice(&checksum.to_le_bytes());
    let tied = tied_checksum(salt, &head[..17]);
    head[17..].copy_from_slice(&tied.to_le_bytes());
    *out = out_bytes;
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The head of a record that lies where one of this segment may lie.
struct Head {
    length: usize,
    index: u64,
    checksum: u32,
}

fn head(window: &mut Window, offset: u64, salt: u64) -> io::Result<Option<Head>> {
    let bytes = window.bytes(offset, RECORD_HEADER_BYTES)?;
    if bytes.len() < RECORD_HEADER_BYTES || bytes[0] != MARK {
        return Ok(None);
    }
    if u32_at(bytes, 17) != tied_checksum(salt, &bytes[..17]) {
        return Ok(None);
    }
    let length = u32_at(bytes, 1) as usize;
    let head = Head { length, index: u64_at(bytes, 5), checksum: u32_at(bytes, 13) };
    Ok((length <= RECORD_BYTES_MAX).then_some(head))
}

/// Reads the entry at an offset; `None` for what is none.
fn entry(
    window: &mut Window,
    offset: u64,
    salt: u64,
    index: u64,
) -> io::Result<Option<(LogEntry, u64)>> {
    let Some(head) = head(window, offset, salt)?.filter(|head| head.index == index) else {
        return Ok(None);
    };
    let payload = window.bytes(offset + RECORD_HEADER_BYTES as u64, head.length)?;
    if payload.len() < head.length || crc32c(payload) != head.checksum {
        return Ok(None);
    }
    let Ok((entry, [])) = postcard::take_from_bytes::<LogEntry>(payload) else { return Ok(None) };
    let end = offset + (RECORD_HEADER_BYTES + head.length) as u64;
    Ok((entry.place.index == index).then_some((entry, end)))
}

fn read_segment(
    directory: &Directory,
    cluster: ClusterId,
    first: u64,
    is_last: bool,
    entries: &mut Vec<LogEntry>,
) -> Result<RoundsSegment, LogError> {
    let path = directory.file(FileKind::Rounds, first);
    let fail = |cause| LogError::Io { path: path.clone(), cause };
    let damaged = |damage| LogError::Damaged { path: path.clone(), damage };
    let file = directory.files().reopen(&path).map_err(fail)?;
    let mut window = Window::new(Arc::clone(&file)).map_err(fail)?;
    let head_bytes = window.bytes(0, HEADER_BYTES).map_err(fail)?;
    if head_bytes.len() < HEADER_BYTES || head_bytes[..8] != MAGIC {
        return Err(damaged(GroupFileDamage::Header));
    }
    let version = u32_at(head_bytes, 8);
    if version != VERSION {
        return Err(damaged(GroupFileDamage::Format { version, known: VERSION }));
    }
    if u32_at(head_bytes, 12) != crc32c(&head_bytes[16..]) || u64_at(head_bytes, 24) != first {
        return Err(damaged(GroupFileDamage::HeaderChecksum));
    }
    let found = ClusterId(u64_at(head_bytes, 16));
    if found != cluster {
        return Err(damaged(GroupFileDamage::OtherCluster(found)));
    }
    let salt = u64_at(head_bytes, 32);
    let (offsets, length) = (Vec::new(), HEADER_BYTES as u64);
    let mut segment =
        RoundsSegment { file, path: path.clone(), salt, first, offsets, last_term: 0, length };
    while segment.length < window.length() {
        match entry(&mut window, segment.length, salt, segment.next()).map_err(fail)? {
            Some((entry, end)) => {
                segment.offsets.push(segment.length);
                (segment.length, segment.last_term) = (end, entry.place.term);
                entries.push(entry);
            }
            None => break,
        }
    }
    if segment.length < window.length() {
        if !is_last || has_record(&mut window, segment.length + 1, &segment).map_err(fail)? {
            let offset = segment.length;
            return Err(damaged(GroupFileDamage::BeforeEntries { offset }));
        }
        segment.file.set_length(segment.length).map_err(fail)?;
        segment.sync(directory)?;
    }
    Ok(segment)
}

/// Returns whether a whole record of an entry after the segment's last lies behind an offset: then
/// what is before it is damaged, and not torn.
fn has_record(window: &mut Window, from: u64, segment: &RoundsSegment) -> io::Result<bool> {
    let mut offset = from;
    while offset + RECORD_HEADER_BYTES as u64 <= window.length() {
        let found = head(window, offset, segment.salt)?;
        if let Some(head) = found.filter(|head| head.index > segment.next())
            && entry(window, offset, segment.salt, head.index)?.is_some()
        {
            return Ok(true);
        }
        offset += 1;
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
