//! From the directory to a namenode that goes on: snapshot, journal, and what is missing of them.

mod damage;
mod replay;

use std::sync::Arc;

use sanderling_core::catalog::{Action, Command};
use sanderling_core::namenode::Namenode;
use sanderling_protocol::ClusterId;
use tracing::{info, warn};

use crate::damage::JournalDamage;
use crate::directory::{Directory, FileKind};
use crate::error::NamenodeStartError;
use crate::injected_bug::{self, InjectedBug};
use crate::journal::{Journal, Segment, Settings, settle};
use crate::options::{NamenodeOptions, Sync};
use damage::Damage;
use replay::{Replayed, replay_all};

/// What was found in the directory.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) namenode: Namenode,
    pub(crate) journal: Journal,
    /// Commands since the cluster began.
    pub(crate) commands: u64,
    /// Bytes cut off the journal's tail.
    pub(crate) cut_bytes: u64,
    /// What else the log records of this start.
    pub(crate) found: Vec<Action>,
    /// The snapshots that can be read, ascending.
    pub(crate) snapshots: Vec<u64>,
}

/// Reads what an earlier namenode left, or begins a new cluster in an empty directory.
pub(crate) fn recover(
    directory: &Arc<Directory>,
    options: &NamenodeOptions,
) -> Result<Recovered, NamenodeStartError> {
    recover_member(directory, options, ClusterId(rand::random()))
}

/// Reads what an earlier namenode left; an empty directory is one of the cluster `cluster`.
pub(crate) fn recover_member(
    directory: &Arc<Directory>,
    options: &NamenodeOptions,
    cluster: ClusterId,
) -> Result<Recovered, NamenodeStartError> {
    // Each start has another one: what a client finds out about names that collide is then old.
    let mut options = options.clone();
    options.core.names_key = rand::random();
    recover_as(directory, &options, Settings::from(&options), cluster)
}

#[cfg(test)]
fn recover_with(
    directory: &Arc<Directory>,
    options: &NamenodeOptions,
    settings: Settings,
) -> Result<Recovered, NamenodeStartError> {
    recover_as(directory, options, settings, ClusterId(rand::random()))
}

fn recover_as(
    directory: &Arc<Directory>,
    options: &NamenodeOptions,
    settings: Settings,
    cluster: ClusterId,
) -> Result<Recovered, NamenodeStartError> {
    if directory.is_unrestored() {
        let directory = directory.path().to_owned();
        return Err(NamenodeStartError::Unrestored { directory });
    }
    let replayed = replay_all(directory, options)?;
    let cut = match replayed.damage.clone() {
        Some(damage) => {
            damage.accept(options)?;
            Some(damage)
        }
        None => replayed.end.as_ref().and_then(|end| unsynced(end, options)),
    };
    let new = || Namenode::new(options.core.clone(), cluster);
    let Replayed { namenode, end, snapshots, skipped, segments, .. } = replayed;
    let mut namenode = namenode.unwrap_or_else(new);
    let commands = namenode.catalog().index();
    let mut cut_bytes = end.as_ref().map_or(0, Segment::cut_bytes);
    let fail = |cause| NamenodeStartError::Files {
        what: "write the journal in",
        path: directory.path().to_owned(),
        cause,
    };
    let mut journal = match cut {
        Some(damage) => {
            cut_bytes = damage.bytes;
            damage.clear(directory, end.as_ref(), &segments).map_err(fail)?;
            begin_after(directory, settings, &mut namenode, &damage).map_err(fail)?
        }
        None => go_on(directory, settings, &namenode, end.as_ref()).map_err(fail)?,
    };
    let unreached: Vec<u64> =
        skipped.iter().map(|(index, _)| *index).filter(|index| *index > commands).collect();
    Damage::clear_snapshots(directory, &unreached).map_err(fail)?;
    let covered = snapshots.last().copied().unwrap_or(0);
    measure(directory, &mut journal, covered).map_err(fail)?;
    let found = skipped
        .iter()
        .map(|(index, error)| Action::SnapshotSkipped { index: *index, why: error.to_string() });
    let found = found.collect();
    let cluster = format!("{:016x}", namenode.catalog().cluster().0);
    info!(cluster, commands, cut_bytes, "catalog read");
    let commands = namenode.catalog().index();
    Ok(Recovered { namenode, journal, commands, cut_bytes, found, snapshots })
}

/// Reads a directory as a start does, without going on with it. Returns the cluster and how many
/// commands there are.
///
/// # Errors
/// [`NamenodeStartError`]: a start on the directory would fail, or lose something.
pub(crate) fn check(directory: &Arc<Directory>) -> Result<(ClusterId, u64), NamenodeStartError> {
    let options = NamenodeOptions::default();
    let replayed = replay_all(directory, &options)?;
    if let Some(damage) = &replayed.damage {
        damage.accept(&options)?;
    }
    let catalog = replayed.namenode.as_ref().map(Namenode::catalog);
    let found = catalog.map(|catalog| (catalog.cluster(), catalog.index()));
    found.ok_or_else(|| NamenodeStartError::CorruptJournal {
        path: directory.path().to_owned(),
        damage: JournalDamage::Empty,
    })
}

/// Returns what a crash of the machine took of a journal that was not synced with each change, if
/// some of what was written later is there: changes are missing that were acknowledged.
fn unsynced(end: &Segment, options: &NamenodeOptions) -> Option<Damage> {
    let tail = end.tail.as_ref().filter(|tail| tail.records > 0)?;
    (options.sync == Sync::Os).then(|| Damage {
        path: end.path.clone(),
        first: end.first,
        offset: end.length,
        bytes: tail.bytes,
        records: tail.records,
        why: tail.why.clone().into(),
        is_of_synced: false,
    })
}

/// Begins a segment whose first record has what is missing before it, so that the journal cannot be
/// read without the loss.
fn begin_after(
    directory: &Arc<Directory>,
    settings: Settings,
    namenode: &mut Namenode,
    damage: &Damage,
) -> std::io::Result<Journal> {
    let (cluster, index) = (namenode.catalog().cluster(), namenode.catalog().index());
    let record = Command { at: namenode.catalog().now(), action: damage.record() };
    let commands: &[Command] = match injected_bug::is(InjectedBug::LossUnrecorded) {
        true => &[],
        false => std::slice::from_ref(&record),
    };
    let journal = Journal::create(directory, settings, cluster, index, commands)?;
    for command in commands {
        namenode.apply(command);
    }
    let (path, offset) = (damage.path.display(), damage.offset);
    let (bytes, records) = (damage.bytes, damage.records);
    match damage.is_of_synced {
        true => warn!(
            %path, offset, bytes, records, why = %damage.why,
            "LOST: changes behind the journal's damage are given up, as the operator accepts"
        ),
        false => warn!(
            %path, offset, bytes, records, why = %damage.why,
            "LOST: a crash of the machine took changes that the disk did not have yet"
        ),
    }
    Ok(journal)
}

/// Opens the journal at its end, or starts a segment where there is none to go on with.
fn go_on(
    directory: &Arc<Directory>,
    settings: Settings,
    namenode: &Namenode,
    end: Option<&Segment>,
) -> std::io::Result<Journal> {
    let (commands, cluster) = (namenode.catalog().index(), namenode.catalog().cluster());
    if let Some((segment, tail)) = end.and_then(|end| Some((end, end.tail.as_ref()?))) {
        warn!(
            path = %segment.path.display(),
            offset = segment.length,
            bytes = tail.bytes,
            why = %tail.why,
            "the journal's last write is torn: it is cut and kept beside the journal"
        );
        directory.save_end(&segment.path, segment.first, segment.length)?;
    }
    match end {
        Some(end) if end.next == commands && end.version == settings.version => {
            Journal::resume(directory, end, settings)
        }
        Some(end) => {
            settle(directory, end)?;
            Ok(Journal::create(directory, settings, cluster, commands, &[])?)
        }
        None => Ok(Journal::create(directory, settings, cluster, commands, &[])?),
    }
}

/// Counts the bytes of the segments before the open one: all, and those before a snapshot.
pub(crate) fn measure(
    directory: &Directory,
    journal: &mut Journal,
    covered: u64,
) -> std::io::Result<()> {
    let segments = directory.list(FileKind::Journal)?;
    let (mut older, mut unneeded) = (0, 0);
    for pair in segments.windows(2) {
        let bytes = directory.bytes(FileKind::Journal, pair[0]);
        older += bytes;
        unneeded += if pair[1] <= covered { bytes } else { 0 };
    }
    journal.set_older_bytes(older, unneeded);
    Ok(())
}

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod tests;
