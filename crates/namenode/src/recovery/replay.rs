//! Reading the catalog: the newest snapshot that can be read, and all of the journal after it.

use std::sync::Arc;

use sanderling_core::catalog::Catalog;
use sanderling_core::namenode::Namenode;
use sanderling_protocol::Instant;
use tracing::warn;

use super::damage::Damage;
use crate::damage::{JournalDamage, SnapshotDamage};
use crate::directory::{Directory, FileKind};
use crate::error::NamenodeStartError;
use crate::injected_bug::{self, InjectedBug};
use crate::journal::{Segment, SegmentStart, read_segment};
use crate::options::NamenodeOptions;
use crate::snapshot;

/// What the directory holds.
pub(super) struct Replayed {
    pub(super) namenode: Option<Namenode>,
    /// The last segment that was read, up to where it is whole.
    pub(super) end: Option<Segment>,
    /// What is missing behind it.
    pub(super) damage: Option<Damage>,
    /// All segments, ascending.
    pub(super) segments: Vec<u64>,
    /// Snapshots up to the one that was read, ascending.
    pub(super) snapshots: Vec<u64>,
    /// Newer snapshots that cannot be read, and why.
    pub(super) skipped: Vec<(u64, NamenodeStartError)>,
}

/// Reads everything. Damage is found, not judged.
pub(super) fn replay_all(
    directory: &Arc<Directory>,
    options: &NamenodeOptions,
) -> Result<Replayed, NamenodeStartError> {
    let list = |kind| {
        let fail = |cause| NamenodeStartError::Files {
            what: "list",
            path: directory.path().to_owned(),
            cause,
        };
        directory.list(kind).map_err(fail)
    };
    let (mut snapshots, segments) = (list(FileKind::Snapshot)?, list(FileKind::Journal)?);
    let (catalog, skipped) = newest(directory, &mut snapshots, &segments)?;
    let namenode =
        catalog.map(|catalog| Namenode::restore(options.core.clone(), catalog, Instant(0)));
    let (end, damage) = (None, None);
    let mut replayed = Replayed { namenode, end, damage, segments, snapshots, skipped };
    replayed.read_journal(directory, options)?;
    let rules = replayed.namenode.as_ref().map_or(0, |namenode| namenode.catalog().rules().0);
    if rules > Catalog::RULES {
        return Err(NamenodeStartError::NewerRules { path: directory.path().to_owned(), rules });
    }
    replayed.reach_skipped(directory)?;
    for (index, error) in &replayed.skipped {
        warn!(
            %error,
            commands = index,
            "a snapshot is damaged: an older one and the journal since then took its place"
        );
    }
    Ok(replayed)
}

type Newest = (Option<Catalog>, Vec<(u64, NamenodeStartError)>);

/// Reads the newest snapshot that can be read. Where none can, the beginning of the journal does.
fn newest(
    directory: &Directory,
    snapshots: &mut Vec<u64>,
    segments: &[u64],
) -> Result<Newest, NamenodeStartError> {
    let mut skipped = Vec::new();
    while let Some(index) = snapshots.last().copied() {
        match read_snapshot(directory, index) {
            Ok(catalog) => return Ok((Some(catalog), skipped)),
            Err(
                error @ (NamenodeStartError::CorruptSnapshot { .. }
                | NamenodeStartError::SnapshotVersion { .. }),
            ) => {
                skipped.push((index, error));
                snapshots.pop();
            }
            Err(error) => return Err(error),
        }
    }
    match skipped.is_empty() || segments.first() == Some(&0) {
        true => Ok((None, skipped)),
        false => Err(skipped.swap_remove(0).1),
    }
}

fn read_snapshot(directory: &Directory, index: u64) -> Result<Catalog, NamenodeStartError> {
    let path = directory.file(FileKind::Snapshot, index);
    let catalog = snapshot::read(directory, &path)?;
    if catalog.index() != index {
        let damage = SnapshotDamage::OtherIndex { commands: catalog.index(), named: index };
        return Err(NamenodeStartError::CorruptSnapshot { path, damage });
    }
    Ok(catalog)
}

impl Replayed {
    fn reached(&self) -> u64 {
        self.namenode.as_ref().map_or(0, |namenode| namenode.catalog().index())
    }

    /// Applies the journal up to its end or to the first damage.
    fn read_journal(
        &mut self,
        directory: &Directory,
        options: &NamenodeOptions,
    ) -> Result<(), NamenodeStartError> {
        for place in 0..self.segments.len() {
            let first = self.segments[place];
            let after = self.segments.get(place + 1).copied();
            if after.is_some_and(|after| after <= self.reached()) {
                continue;
            }
            if first > self.reached() && !injected_bug::is(InjectedBug::GapIgnored) {
                let path = directory.file(FileKind::Journal, first);
                let damage = JournalDamage::Gap { from: self.reached(), to: first };
                return Err(NamenodeStartError::CorruptJournal { path, damage });
            }
            let segment = match replay(directory, first, options, &mut self.namenode) {
                Ok(segment) => segment,
                Err(NamenodeStartError::CorruptJournal { damage, .. }) => {
                    return self.damaged(directory, first, 0, 0, damage);
                }
                Err(error) => return Err(error),
            };
            // A loss that was accepted before: the segment after it begins where this one ends.
            let is_covered = after == Some(segment.next);
            let tail = segment.tail.clone();
            let length = segment.length;
            self.end = Some(segment);
            if let Some(tail) = tail.filter(|_| !is_covered)
                && (tail.is_damage || after.is_some())
            {
                return self.damaged(directory, first, length, tail.records, tail.why.into());
            }
        }
        Ok(())
    }

    /// Notes damage of a segment. Where nothing was read before it, nothing can go on without it.
    fn damaged(
        &mut self,
        directory: &Directory,
        first: u64,
        offset: u64,
        records: u64,
        why: JournalDamage,
    ) -> Result<(), NamenodeStartError> {
        let path = directory.file(FileKind::Journal, first);
        if self.namenode.is_none() {
            return Err(NamenodeStartError::CorruptJournal { path, damage: why });
        }
        let mut records = records;
        let mut bytes = directory.bytes(FileKind::Journal, first).saturating_sub(offset);
        for later in self.segments.iter().copied().filter(|segment| *segment > first) {
            bytes += directory.bytes(FileKind::Journal, later);
            let known = SegmentStart { first: later, cluster: None, floor: Instant(0) };
            let read = read_segment(directory, known, |_, _| {});
            records += read.map_or(0, |read| {
                read.next - read.first + read.tail.map_or(0, |tail| tail.records)
            });
        }
        self.damage = Some(Damage { path, first, offset, bytes, records, why, is_of_synced: true });
        Ok(())
    }

    /// Checks that the journal has what the damaged snapshots had.
    fn reach_skipped(&mut self, directory: &Directory) -> Result<(), NamenodeStartError> {
        let reached = self.reached();
        let newest = self.skipped.iter().map(|(index, _)| *index).max().unwrap_or(0);
        if self.damage.is_some() || newest <= reached {
            return Ok(());
        }
        let why = JournalDamage::EndsEarly { reached, newest };
        let Some(end) = &self.end else {
            return Err(self.skipped.swap_remove(0).1);
        };
        let (first, length) = (end.first, end.length);
        self.damaged(directory, first, length, 0, why)?;
        if let Some(damage) = &mut self.damage {
            damage.records = newest - reached;
        }
        Ok(())
    }
}

/// Applies the commands of one segment that the namenode does not have yet.
fn replay(
    directory: &Directory,
    first: u64,
    options: &NamenodeOptions,
    namenode: &mut Option<Namenode>,
) -> Result<Segment, NamenodeStartError> {
    let catalog = namenode.as_ref().map(Namenode::catalog);
    let goes_on = catalog.filter(|catalog| catalog.index() == first);
    let known = SegmentStart {
        first,
        cluster: catalog.map(Catalog::cluster),
        floor: goes_on.map_or(Instant(0), Catalog::now),
    };
    let segment = read_segment(directory, known, |segment, command| {
        // The first segment's header names the cluster.
        let new = || Namenode::new(options.core.clone(), segment.cluster);
        let namenode = namenode.get_or_insert_with(new);
        if segment.next == namenode.catalog().index() {
            namenode.apply(&command);
        }
    })?;
    namenode.get_or_insert_with(|| Namenode::new(options.core.clone(), segment.cluster));
    Ok(segment)
}
