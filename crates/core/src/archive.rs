//! The archive: a copy of the namenode's snapshots and journal that outlives its machine, at most a
//! moment behind.
//!
//! A store of objects can replace an object as a whole and cannot append to one. So the journal
//! goes there in pieces, and an [`ArchiveManifest`] names the pieces and snapshots that make the
//! newest state that can be read back. It is replaced only after all that it names is stored, and
//! what it no longer names is removed only after that. Whenever the namenode dies, the manifest of
//! that moment describes a whole catalog. [`Archive`] decides what is stored next, [`passes`] when
//! and what follows from each outcome, and the machines of `generation` which namenode stores. They
//! do no input or output.

mod generation;
pub mod passes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sanderling_protocol::ClusterId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use generation::{
    ArchiveClaim, ArchiveGeneration, ArchiveOwner, ArchiveReplaced, ArchivedState, CheckStep,
    ClaimRefusal, ClaimStep, GenerationCheck, GenerationRemoval, GenerationState, removals,
};

/// Most bytes of one piece of the journal: it is in memory while it is stored. Larger ones
/// save requests to a bucket, and cost that memory. Chosen, not measured.
pub const PIECE_BYTES_MAX: u64 = 8 << 20;

/// Short pieces at the end of a segment that are left as they are. A recovery reads each piece with
/// a request of its own, so more of them are stored again as one: at 50 ms for a request, 64 take
/// 3 s. Chosen, not measured.
pub const SHORT_PIECES_MAX: usize = 64;

/// Most bytes of a short piece: any two of them fit into one piece. So what is made of a run of
/// short ones always has at least two of them, and the run gets shorter.
const SHORT_BYTES_MAX: u64 = PIECE_BYTES_MAX / 2;

/// How the names of the objects begin that describe the others; the last is the newest.
pub const MANIFEST: &str = "manifest-";

/// Returns the name of the manifest of that number. Names sort by number.
#[must_use]
pub fn manifest_name(number: u64) -> String {
    format!("{MANIFEST}{number:012}")
}

/// A run of bytes of a journal segment, stored as one object. Places are bytes from the begin of
/// the segment, and `to` is the first one behind the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JournalPiece {
    /// Where it begins in the segment.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
}

/// An object of an archive, below its generation. Its text is its name in the store; names of one
/// kind sort by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArchiveObject {
    /// A snapshot, by the number of commands before it.
    Snapshot(u64),
    /// A piece of the segment whose first command has that number.
    Piece(u64, JournalPiece),
}

impl fmt::Display for ArchiveObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(index) => write!(formatter, "snapshot-{index:020}.bin"),
            Self::Piece(first, JournalPiece { from, to }) => {
                write!(formatter, "journal-{first:020}-{from:012}-{to:012}.part")
            }
        }
    }
}

/// A segment of the journal in an archive, with the pieces that make it whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedSegment {
    /// The number of its first command.
    pub first: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its pieces, ascending, without gaps.
    pub pieces: Vec<JournalPiece>,
}

/// The content of an archive: a catalog's snapshots and the journal since the oldest of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveManifest {
    /// The cluster.
    pub cluster: ClusterId,
    /// Commands in it since the cluster began, if the namenode has counted them there.
    pub commands: Option<u64>,
    /// When it was written, in milliseconds since 1970 by the namenode's clock.
    pub at_unix_millis: u64,
    /// The namenode has stopped, and nothing came after.
    pub is_closed: bool,
    /// The generation of the group whose leader wrote it; 0 for a namenode alone.
    #[serde(default)]
    pub group: u64,
    /// Snapshots by the number of commands before them, ascending.
    pub snapshots: Vec<u64>,
    /// The journal, ascending.
    pub segments: Vec<ArchivedSegment>,
}

/// A reason why a manifest of an archive is refused: nothing is recovered from it. The generation
/// before it may be whole.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArchiveManifestError {
    /// A segment's pieces do not make it whole.
    #[error("bytes {from} to {to} of the journal segment {first} are in no object")]
    Gap {
        /// The segment.
        first: u64,
        /// Where the gap begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
    /// Its parts are not in order, or it names none.
    #[error("it names no catalog: {0}")]
    NoCatalog(#[from] NoCatalog),
}

/// A reason why the objects that a manifest names make no catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoCatalog {
    /// Snapshots are not ascending.
    #[error("its snapshots are not in order")]
    SnapshotOrder,
    /// Segments of the journal are not ascending.
    #[error("its segments are not in order")]
    SegmentOrder,
    /// No segment is named.
    #[error("it has no journal")]
    NoJournal,
    /// The journal begins later than the cluster, and no snapshot has what came before.
    #[error("there is no snapshot before its journal")]
    NoSnapshot,
}

impl ArchiveManifest {
    /// Checks that what it names makes a catalog: snapshots and segments are in order, each
    /// segment's pieces have no gap, and a snapshot has what came before the journal. It does not
    /// read the objects themselves: they may be missing or damaged.
    ///
    /// # Errors
    /// [`ArchiveManifestError`]: use another generation of the archive.
    pub fn check(&self) -> Result<(), ArchiveManifestError> {
        if !self.snapshots.is_sorted_by(|one, next| one < next) {
            return Err(NoCatalog::SnapshotOrder.into());
        }
        if !self.segments.is_sorted_by(|one, next| one.first < next.first) {
            return Err(NoCatalog::SegmentOrder.into());
        }
        let begin = self.segments.first().ok_or(NoCatalog::NoJournal)?;
        if begin.first != 0 && self.snapshots.first().is_none_or(|index| *index < begin.first) {
            return Err(NoCatalog::NoSnapshot.into());
        }
        for ArchivedSegment { first, bytes, pieces } in &self.segments {
            let mut covered = 0;
            for piece in pieces {
                if piece.from != covered || piece.to <= piece.from {
                    return Err(ArchiveManifestError::Gap {
                        first: *first,
                        from: covered,
                        to: piece.from,
                    });
                }
                covered = piece.to;
            }
            if covered != *bytes {
                return Err(ArchiveManifestError::Gap { first: *first, from: covered, to: *bytes });
            }
        }
        Ok(())
    }

    /// Returns the state that it describes. If the changes were not counted, those before the last
    /// segment are.
    #[must_use]
    pub fn state(&self) -> ArchivedState {
        let before_last = self.segments.last().map_or(0, |segment| segment.first);
        let commands = self.commands.unwrap_or(before_last);
        ArchivedState { commands, at_unix_millis: self.at_unix_millis }
    }

    fn names(&self, object: ArchiveObject) -> bool {
        match object {
            ArchiveObject::Snapshot(index) => self.snapshots.contains(&index),
            ArchiveObject::Piece(first, piece) => {
                let mut segments = self.segments.iter();
                segments.any(|it| it.first == first && it.pieces.contains(&piece))
            }
        }
    }
}

/// The end of the journal: what was written as a whole, and is never written otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalEnd {
    /// The first command of the open segment.
    pub first: u64,
    /// Bytes of its whole records.
    pub bytes: u64,
    /// Commands up to there.
    pub commands: u64,
}

/// The snapshots and the segments of the journal in the namenode's directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryFiles {
    /// The snapshots, each by the number of commands before it, ascending.
    pub snapshots: Vec<u64>,
    /// The length in bytes of each segment before the open one, by its first command.
    pub segments: BTreeMap<u64, u64>,
    /// The open segment, up to where it may be copied.
    pub end: JournalEnd,
}

/// A segment of the journal, and which pieces of it are stored.
#[derive(Debug, Default)]
struct StoredSegment {
    pieces: Vec<JournalPiece>,
    /// Bytes of it that there are to store.
    bytes: u64,
    /// Nothing will be added to it.
    is_final: bool,
    /// It is no longer in the directory.
    is_gone: bool,
}

impl StoredSegment {
    fn stored(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.to)
    }

    /// Returns where the run of short pieces at its end begins, if it is too long.
    fn short_run(&self) -> Option<u64> {
        let short = self.pieces.iter().rev();
        let short = short.take_while(|piece| piece.to - piece.from <= SHORT_BYTES_MAX);
        let count = short.count();
        let begin = self.pieces.len() - count;
        (count > SHORT_PIECES_MAX).then(|| self.pieces[begin].from)
    }

    fn is_whole(&self) -> bool {
        self.is_final && self.stored() == self.bytes
    }
}

/// How far a manifest reaches: a segment and the bytes of it. Later is greater.
type Reach = (u64, u64);

/// Decides what is copied from a namenode's directory to its archive.
#[derive(Debug)]
pub struct Archive {
    cluster: ClusterId,
    segments: BTreeMap<u64, StoredSegment>,
    snapshots: BTreeSet<u64>,
    /// Snapshots in the directory.
    there: Vec<u64>,
    end: JournalEnd,
    /// Objects that no later manifest names.
    surplus: Vec<ArchiveObject>,
}

impl Archive {
    /// Returns the state of a cluster's archive in which nothing is stored yet.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            segments: BTreeMap::new(),
            snapshots: BTreeSet::new(),
            there: Vec::new(),
            end: JournalEnd::default(),
            surplus: Vec::new(),
        }
    }

    /// Returns the id of the cluster whose catalog is archived, as each manifest names it.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Takes what the namenode's directory holds now. What is stored next follows from that: see
    /// [`Self::next_piece`].
    pub fn look(&mut self, files: &DirectoryFiles) {
        for (first, bytes) in &files.segments {
            if *first < files.end.first {
                let segment = self.segments.entry(*first).or_default();
                (segment.bytes, segment.is_final) = (*bytes, true);
            }
        }
        self.segments.entry(files.end.first).or_default().bytes = files.end.bytes;
        for (first, segment) in &mut self.segments {
            segment.is_gone = *first < files.end.first && !files.segments.contains_key(first);
        }
        (self.there, self.end) = (files.snapshots.clone(), files.end);
    }

    /// Returns the piece of the journal to store next, with the number of its segment's first
    /// command; `None` if nothing is due. What is missing comes first, then what makes one piece of
    /// many short ones.
    #[must_use]
    pub fn next_piece(&self) -> Option<(u64, JournalPiece)> {
        let there = || self.segments.iter().filter(|(_, segment)| !segment.is_gone);
        let missing = there().find_map(|(first, segment)| {
            let from = segment.stored();
            let to = segment.bytes.min(from + PIECE_BYTES_MAX);
            (from < to).then_some((*first, JournalPiece { from, to }))
        });
        missing.or_else(|| {
            there().find_map(|(first, segment)| {
                let from = segment.short_run()?;
                let to = segment.stored().min(from + PIECE_BYTES_MAX);
                // It must end where a piece ends.
                let ends = segment.pieces.iter().map(|piece| piece.to).filter(|end| *end <= to);
                Some((*first, JournalPiece { from, to: ends.max()? }))
            })
        })
    }

    /// Returns the snapshot to store next, by the number of commands before it, the newest first: a
    /// recovery reads that one. `None` if the archive has all.
    #[must_use]
    pub fn next_snapshot(&self) -> Option<u64> {
        self.there.iter().rev().copied().find(|index| !self.snapshots.contains(index))
    }

    /// Notes that an object is stored in the archive. Shorter pieces of the journal that it
    /// contains become surplus.
    pub fn stored(&mut self, object: ArchiveObject) {
        match object {
            ArchiveObject::Snapshot(index) => {
                self.snapshots.insert(index);
            }
            ArchiveObject::Piece(first, piece) => {
                let segment = self.segments.entry(first).or_default();
                let is_within = |it: &JournalPiece| it.from >= piece.from && it.to <= piece.to;
                let within = segment.pieces.extract_if(.., |it| is_within(it) && *it != piece);
                self.surplus.extend(within.map(|it| ArchiveObject::Piece(first, it)));
                if let Err(place) = segment.pieces.binary_search(&piece) {
                    segment.pieces.insert(place, piece);
                }
                debug_assert!(
                    segment.pieces.windows(2).all(|pair| pair[0].to == pair[1].from),
                    "pieces follow each other"
                );
            }
        }
    }

    /// Returns all objects that are stored and that a manifest may name, whether one does yet or
    /// not: the snapshots, then the pieces of the journal.
    pub fn objects(&self) -> impl Iterator<Item = ArchiveObject> {
        let pieces = self.segments.iter().flat_map(|(first, segment)| {
            segment.pieces.iter().map(|piece| ArchiveObject::Piece(*first, *piece))
        });
        self.snapshots.iter().copied().map(ArchiveObject::Snapshot).chain(pieces)
    }

    /// Returns how far the journal is stored without a gap from the segment that a snapshot, or the
    /// beginning, goes on with.
    fn reach(&self, snapshot: Option<u64>) -> Option<Reach> {
        let begin = self.begin(snapshot)?;
        let mut reach = None;
        for (first, segment) in self.segments.range(begin..) {
            if segment.stored() == 0 {
                break;
            }
            reach = Some((*first, segment.stored()));
            if !segment.is_whole() {
                break;
            }
        }
        reach
    }

    /// Returns the first segment that is needed after a snapshot.
    fn begin(&self, snapshot: Option<u64>) -> Option<u64> {
        let index = snapshot.unwrap_or(0);
        let before = self.segments.range(..=index).next_back()?;
        (snapshot.is_some() || *before.0 == 0).then_some(*before.0)
    }

    /// Returns whether all that the directory had at the last look is stored.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let end = (self.end.first, self.end.bytes);
        self.best().is_some_and(|(_, reach)| reach == end)
    }

    /// Returns the oldest snapshot from which the journal reaches furthest.
    fn best(&self) -> Option<(Option<u64>, Reach)> {
        let begins = self.snapshots.iter().copied().map(Some).chain([None]);
        let reached = begins.filter_map(|begin| Some((begin, self.reach(begin)?)));
        let furthest = reached.clone().map(|(_, reach)| reach).max()?;
        // `None` is the beginning of the journal, and older than any snapshot.
        reached.filter(|(_, reach)| *reach == furthest).min_by_key(|(begin, _)| *begin)
    }

    /// Describes the newest state that can be read back; `None` while there is none.
    #[must_use]
    pub fn manifest(&self, at_unix_millis: u64, is_closed: bool) -> Option<ArchiveManifest> {
        let (snapshot, reach) = self.best()?;
        let begin = self.begin(snapshot)?;
        let segments = self.segments.range(begin..=reach.0).map(|(first, segment)| {
            let (first, bytes, pieces) = (*first, segment.stored(), segment.pieces.clone());
            ArchivedSegment { first, bytes, pieces }
        });
        let is_complete = reach == (self.end.first, self.end.bytes);
        let manifest = ArchiveManifest {
            cluster: self.cluster,
            commands: is_complete.then_some(self.end.commands),
            at_unix_millis,
            is_closed: is_closed && is_complete,
            group: 0,
            // A snapshot behind a gap of the journal would be one that nothing leads to.
            snapshots: self.snapshots.range(snapshot.unwrap_or(0)..=reach.0).copied().collect(),
            segments: segments.collect(),
        };
        debug_assert_eq!(manifest.check(), Ok(()), "what is described can be read back");
        Some(manifest)
    }

    /// Takes the objects that may be removed once this manifest is stored.
    pub fn take_surplus(&mut self, stored: &ArchiveManifest) -> Vec<ArchiveObject> {
        let begin = stored.segments.first().map_or(0, |segment| segment.first);
        let gone: Vec<u64> = self.segments.range(..begin).map(|(first, _)| *first).collect();
        for first in gone {
            let pieces = self.segments.remove(&first).unwrap_or_default().pieces;
            self.surplus.extend(pieces.into_iter().map(|it| ArchiveObject::Piece(first, it)));
        }
        let oldest = self.there.first().copied().unwrap_or(u64::MAX);
        let older = self
            .snapshots
            .extract_if(.., |index| *index < oldest && !stored.snapshots.contains(index));
        self.surplus.extend(older.map(ArchiveObject::Snapshot));
        self.surplus.extract_if(.., |object| !stored.names(*object)).collect()
    }
}

#[cfg(test)]
mod tests;
