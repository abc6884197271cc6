//! A directory that grows, rotates and forgets; a store of objects; and a namenode that may die
//! between any two steps.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sanderling_protocol::ClusterId;

use super::*;

/// A directory as the namenode keeps it. The bytes of the journal are the numbers of its bytes
/// since the beginning, so that a wrong one is seen.
#[derive(Default)]
pub(super) struct Directory {
    pub(super) segments: BTreeMap<u64, Vec<u64>>,
    pub(super) snapshots: Vec<u64>,
    pub(super) written: u64,
}

/// The objects of an archive, and its manifest.
#[derive(Default)]
pub(super) struct Store {
    pub(super) snapshots: Vec<u64>,
    pub(super) pieces: BTreeMap<(u64, JournalPiece), Vec<u64>>,
    pub(super) manifest: Option<ArchiveManifest>,
}

impl Directory {
    pub(super) fn new() -> Self {
        let mut directory = Self::default();
        directory.segments.insert(0, Vec::new());
        directory.append(1);
        directory
    }

    /// One command is one byte here, and a segment has no header.
    pub(super) fn append(&mut self, bytes: u64) {
        let (_, segment) = self.segments.iter_mut().next_back().unwrap();
        segment.extend(self.written..self.written + bytes);
        self.written += bytes;
    }

    pub(super) fn rotate(&mut self) {
        self.segments.insert(self.written, Vec::new());
        self.append(1);
    }

    pub(super) fn take_snapshot(&mut self) {
        let open = *self.segments.keys().next_back().unwrap();
        if self.snapshots.last() == Some(&open) || open == 0 {
            return;
        }
        self.snapshots.push(open);
        if let [.., older, _] = self.snapshots[..] {
            self.snapshots.retain(|index| *index >= older);
            self.segments.retain(|first, _| *first >= older);
        }
    }

    pub(super) fn files(&self) -> DirectoryFiles {
        let (first, open) = self.segments.iter().next_back().unwrap();
        DirectoryFiles {
            snapshots: self.snapshots.clone(),
            segments: self.segments.iter().map(|(first, it)| (*first, it.len() as u64)).collect(),
            end: JournalEnd { first: *first, bytes: open.len() as u64, commands: self.written },
        }
    }
}

impl Store {
    pub(super) fn put(&mut self, directory: &Directory, first: u64, piece: JournalPiece) {
        let place = |at: u64| usize::try_from(at).unwrap();
        let bytes = directory.segments[&first][place(piece.from)..place(piece.to)].to_vec();
        self.pieces.insert((first, piece), bytes);
    }

    pub(super) fn remove(&mut self, object: ArchiveObject) {
        match object {
            ArchiveObject::Snapshot(index) => self.snapshots.retain(|it| *it != index),
            ArchiveObject::Piece(first, piece) => {
                assert!(self.pieces.remove(&(first, piece)).is_some(), "{object} was stored");
            }
        }
    }

    pub(super) fn has(&self, object: ArchiveObject) -> bool {
        match object {
            ArchiveObject::Snapshot(index) => self.snapshots.contains(&index),
            ArchiveObject::Piece(first, piece) => self.pieces.contains_key(&(first, piece)),
        }
    }

    /// Reads the catalog back; returns how many commands it has.
    pub(super) fn recover(&self) -> u64 {
        let Some(manifest) = &self.manifest else { return 0 };
        manifest.check().unwrap();
        let mut at = manifest.snapshots.first().copied().unwrap_or(0);
        assert!(manifest.snapshots.iter().all(|it| self.snapshots.contains(it)));
        for segment in &manifest.segments {
            assert!(segment.first <= at, "a segment is missing before {}", segment.first);
            let pieces = segment.pieces.iter();
            let bytes: Vec<u64> =
                pieces.flat_map(|it| self.pieces[&(segment.first, *it)].clone()).collect();
            let expected: Vec<u64> = (segment.first..segment.first + segment.bytes).collect();
            assert_eq!(bytes, expected, "the bytes of segment {}", segment.first);
            at = at.max(segment.first + segment.bytes);
        }
        assert!(manifest.commands.is_none_or(|commands| commands == at));
        at
    }
}

/// One step of a namenode with an archive.
#[derive(Debug, Clone, Copy)]
enum Step {
    Append(u64),
    Rotate,
    Snapshot,
    Look,
    Piece,
    StoreSnapshot,
    Publish,
    Remove,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..40_u64).prop_map(Step::Append),
        1 => Just(Step::Rotate),
        1 => Just(Step::Snapshot),
        4 => Just(Step::Look),
        6 => Just(Step::Piece),
        2 => Just(Step::StoreSnapshot),
        3 => Just(Step::Publish),
        2 => Just(Step::Remove),
    ]
}

struct Rig {
    directory: Directory,
    archive: Archive,
    store: Store,
}

impl Rig {
    fn new() -> Self {
        let archive = Archive::new(ClusterId(7));
        Self { directory: Directory::new(), archive, store: Store::default() }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Append(bytes) => self.directory.append(bytes),
            Step::Rotate => self.directory.rotate(),
            Step::Snapshot => self.directory.take_snapshot(),
            Step::Look => self.archive.look(&self.directory.files()),
            Step::Piece => {
                let next = self.archive.next_piece();
                // The directory may have lost the segment since the last look.
                let next = next.filter(|(first, _)| self.directory.segments.contains_key(first));
                if let Some((first, piece)) = next {
                    self.store.put(&self.directory, first, piece);
                    self.archive.stored(ArchiveObject::Piece(first, piece));
                }
            }
            Step::StoreSnapshot => {
                if let Some(index) = self.archive.next_snapshot() {
                    self.store.snapshots.push(index);
                    self.archive.stored(ArchiveObject::Snapshot(index));
                }
            }
            Step::Publish => {
                self.store.manifest = self.archive.manifest(1, false).or(self.store.manifest.take())
            }
            Step::Remove => {
                if let Some(manifest) = self.store.manifest.clone() {
                    for object in self.archive.take_surplus(&manifest) {
                        self.store.remove(object);
                    }
                }
            }
        }
    }

    /// Stores everything, as a namenode that has time.
    fn settle(&mut self) {
        self.run(Step::Look);
        while self.archive.next_piece().is_some() {
            self.run(Step::Piece);
        }
        while self.archive.next_snapshot().is_some() {
            self.run(Step::StoreSnapshot);
        }
        self.run(Step::Publish);
        self.run(Step::Remove);
    }
}

proptest! {
    #[test]
    fn dying_at_any_step_leaves_what_the_last_manifest_describes(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut rig = Rig::new();
        let mut before = 0;
        for step in steps {
            rig.run(step);
            let recovered = rig.store.recover();
            prop_assert!(recovered >= before, "{step:?} took {before} back to {recovered}");
            before = recovered;
            let is_there = |object: ArchiveObject| rig.store.has(object);
            prop_assert!(rig.archive.objects().all(is_there), "{step:?} removed what is needed");
        }
        rig.settle();
        prop_assert!(rig.archive.is_complete());
        prop_assert_eq!(rig.store.recover(), rig.directory.written);
        let manifest = rig.store.manifest.clone().unwrap();
        prop_assert_eq!(manifest.commands, Some(rig.directory.written));
        // Nothing is kept that no recovery needs.
        let named: usize = manifest.segments.iter().map(|it| it.pieces.len()).sum();
        prop_assert_eq!(rig.store.pieces.len(), named);
        prop_assert!(rig.store.snapshots.len() <= manifest.snapshots.len() + 1);
    }
}

/// The directory has pruned the segment between the two snapshots before it was stored.
#[test]
fn snapshot_behind_a_gap_of_the_journal_is_not_named_before_the_journal_goes_on_from_it() {
    let mut rig = Rig::new();
    let early = [Step::Look, Step::Rotate, Step::Snapshot, Step::Piece, Step::Rotate];
    let late = [Step::Snapshot, Step::Look, Step::StoreSnapshot, Step::Publish];
    early.into_iter().chain(late).for_each(|step| rig.run(step));
    let manifest = rig.store.manifest.clone().unwrap();
    assert_eq!((manifest.snapshots, rig.store.recover()), (vec![], 1));
    rig.run(Step::StoreSnapshot);
    rig.run(Step::Publish);
    assert_eq!(rig.store.recover(), 1);
    rig.settle();
    assert_eq!(rig.store.recover(), rig.directory.written);
}

/// The directory still has it, so a later manifest will name it.
#[test]
fn oldest_snapshot_of_the_directory_is_not_removed_while_no_manifest_names_it() {
    let mut rig = Rig::new();
    let early = [Step::Look, Step::Rotate, Step::Snapshot, Step::Piece, Step::Rotate];
    let late = [Step::Snapshot, Step::Look, Step::StoreSnapshot, Step::StoreSnapshot];
    early.into_iter().chain(late).for_each(|step| rig.run(step));
    rig.run(Step::Publish);
    assert!(rig.store.manifest.as_ref().unwrap().snapshots.is_empty());
    let both = rig.directory.snapshots.iter().rev().copied().collect::<Vec<_>>();
    assert_eq!(both.len(), 2);
    rig.run(Step::Remove);
    assert_eq!(rig.store.snapshots, both);
    assert_eq!(rig.archive.next_snapshot(), None, "one of them is stored again");
}

#[test]
fn stored_objects_are_listed_before_a_manifest_names_them() {
    let mut rig = Rig::new();
    rig.settle();
    rig.directory.append(10);
    rig.run(Step::Look);
    rig.run(Step::Piece);
    let manifest = rig.store.manifest.as_ref().unwrap();
    assert_eq!(manifest.segments[0].pieces.len(), 1);
    assert_eq!(rig.archive.objects().count(), 2);
}

#[test]
fn many_short_pieces_become_one() {
    let mut rig = Rig::new();
    for _ in 0..500 {
        rig.directory.append(1);
        rig.settle();
        let pieces = &rig.store.manifest.as_ref().unwrap().segments[0].pieces;
        assert!(pieces.len() <= SHORT_PIECES_MAX + 1, "{} pieces", pieces.len());
    }
    assert_eq!(rig.store.recover(), rig.directory.written);
}

/// A namenode stores in a loop what is next, until nothing is.
#[test]
fn journal_of_many_pieces_of_eight_mebibytes_is_stored_to_its_end() {
    const MIB: u64 = 1 << 20;
    let mut archive = Archive::new(ClusterId(7));
    let mut bytes = 0;
    while bytes < 64 * MIB {
        bytes += 100_000;
        let end = JournalEnd { first: 0, bytes, commands: bytes };
        archive.look(&DirectoryFiles { end, ..DirectoryFiles::default() });
        while let Some((first, piece)) = archive.next_piece() {
            let object = ArchiveObject::Piece(first, piece);
            assert!(archive.objects().all(|it| it != object), "{object} is stored already");
            assert!(piece.to - piece.from <= PIECE_BYTES_MAX, "{object} is too long");
            archive.stored(object);
        }
        assert!(archive.is_complete(), "{bytes} bytes");
        let pieces = archive.objects().count() as u64;
        assert!(pieces <= SHORT_PIECES_MAX as u64 + bytes / (4 * MIB), "{pieces} of {bytes} bytes");
    }
}

#[test]
fn segment_that_was_pruned_before_it_was_stored_waits_for_the_snapshot_after_it() {
    let mut rig = Rig::new();
    rig.settle();
    let before = rig.store.recover();
    rig.directory.append(10);
    for _ in 0..3 {
        rig.directory.rotate();
        rig.directory.take_snapshot();
    }
    rig.run(Step::Look);
    while rig.archive.next_piece().is_some() {
        rig.run(Step::Piece);
    }
    rig.run(Step::Publish);
    assert_eq!(rig.store.recover(), before, "there is a gap until the snapshot is stored");
    assert!(!rig.archive.is_complete());
    rig.settle();
    assert_eq!(rig.store.recover(), rig.directory.written);
}

#[test]
fn archive_is_closed_only_when_it_has_everything() {
    let mut rig = Rig::new();
    rig.settle();
    assert!(rig.archive.manifest(1, true).unwrap().is_closed);
    rig.directory.append(1);
    rig.run(Step::Look);
    let manifest = rig.archive.manifest(1, true).unwrap();
    assert!(!manifest.is_closed && manifest.commands.is_none());
}

#[test]
fn manifest_that_makes_no_catalog_is_refused() {
    let whole = || {
        let mut rig = Rig::new();
        rig.directory.append(5);
        rig.settle();
        rig.directory.rotate();
        rig.settle();
        rig.store.manifest.unwrap()
    };
    assert_eq!(whole().check(), Ok(()));
    let mut gap = whole();
    gap.segments[0].pieces.remove(0);
    assert!(matches!(gap.check(), Err(ArchiveManifestError::Gap { first: 0, from: 0, .. })));
    let mut short = whole();
    short.segments[0].bytes += 1;
    assert!(matches!(short.check(), Err(ArchiveManifestError::Gap { first: 0, .. })));
    let mut headless = whole();
    headless.segments.remove(0);
    assert_eq!(headless.check(), Err(NoCatalog::NoSnapshot.into()));
    let empty = ArchiveManifest { segments: Vec::new(), ..whole() };
    assert_eq!(empty.check(), Err(NoCatalog::NoJournal.into()));
    let mut mixed = whole();
    mixed.segments.reverse();
    assert_eq!(mixed.check(), Err(NoCatalog::SegmentOrder.into()));
}
