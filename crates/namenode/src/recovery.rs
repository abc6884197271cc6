//! From the directory to a namenode that goes on: snapshot, journal, cut.

use std::fs;

use sanderling_core::catalog::Catalog;
use sanderling_core::namenode::Namenode;
use sanderling_protocol::{ClusterId, Instant};
use tracing::{info, warn};

use crate::directory::{Directory, Kind};
use crate::error::StartError;
use crate::journal::{Journal, Segment, read_segment};
use crate::options::NamenodeOptions;
use crate::snapshot;

/// What was found in the directory.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) namenode: Namenode,
    pub(crate) journal: Journal,
    /// Commands since the cluster began.
    pub(crate) commands: u64,
    /// Bytes cut off the journal's tail.
    pub(crate) cut_bytes: u64,
}

/// Reads what an earlier namenode left, or begins a new cluster in an empty directory.
pub(crate) fn recover(
    directory: &Directory,
    options: &NamenodeOptions,
) -> Result<Recovered, StartError> {
    let list = |kind| {
        let fail =
            |cause| StartError::Files { what: "list", path: directory.path().to_owned(), cause };
        directory.list(kind).map_err(fail)
    };
    let (snapshots, segments) = (list(Kind::Snapshot)?, list(Kind::Journal)?);
    let catalog = snapshots.last().map(|index| read_snapshot(directory, *index)).transpose()?;
    let mut namenode =
        catalog.map(|catalog| Namenode::restore(options.core.clone(), catalog, Instant(0)));
    let mut end: Option<Segment> = None;
    for (place, first) in segments.iter().enumerate() {
        let after = segments.get(place + 1);
        let reached = namenode.as_ref().map_or(0, |namenode| namenode.catalog().index());
        if after.is_some_and(|after| *after <= reached) {
            continue;
        }
        let segment = replay(directory, *first, options, &mut namenode)?;
        if after.is_some() && segment.cut_bytes > 0 {
            let why = format!("{}, and another journal follows it", segment.cut_why);
            return Err(StartError::CorruptJournal { path: segment.path, why });
        }
        end = Some(segment);
    }
    let namenode =
        namenode.unwrap_or_else(|| Namenode::new(options.core.clone(), ClusterId(rand::random())));
    open(directory, options, namenode, end)
}

fn read_snapshot(directory: &Directory, index: u64) -> Result<Catalog, StartError> {
    let path = directory.file(Kind::Snapshot, index);
    let catalog = snapshot::read(&path)?;
    if catalog.index() != index {
        let why = format!("it holds {} commands where its name says {index}", catalog.index());
        return Err(StartError::CorruptSnapshot { path, why });
    }
    Ok(catalog)
}

/// Applies the commands of one segment that the namenode does not have yet.
fn replay(
    directory: &Directory,
    first: u64,
    options: &NamenodeOptions,
    namenode: &mut Option<Namenode>,
) -> Result<Segment, StartError> {
    let path = directory.file(Kind::Journal, first);
    let corrupt = |why| StartError::CorruptJournal { path: path.clone(), why };
    // The cluster stands in the header, so the first pass over a segment may need a namenode.
    let mut waiting = Vec::new();
    let reached = namenode.as_ref().map_or(0, |namenode| namenode.catalog().index());
    let segment = read_segment(&path, |number, command| match namenode.as_mut() {
        Some(namenode) if number == namenode.catalog().index() => {
            namenode.apply(&command);
        }
        Some(_) => {}
        None => waiting.push(command),
    })?;
    if segment.first != first {
        return Err(corrupt(format!("its header says it starts at {}", segment.first)));
    }
    if segment.first > reached {
        let why = format!("the commands from {reached} to {} are missing", segment.first);
        return Err(corrupt(why));
    }
    let present =
        namenode.get_or_insert_with(|| Namenode::new(options.core.clone(), segment.cluster));
    if present.catalog().cluster() != segment.cluster {
        return Err(corrupt(format!("it belongs to cluster {:016x}", segment.cluster.0)));
    }
    for command in waiting {
        present.apply(&command);
    }
    Ok(segment)
}

/// Opens the journal at its end, or starts a segment where there is none to go on with.
fn open(
    directory: &Directory,
    options: &NamenodeOptions,
    namenode: Namenode,
    end: Option<Segment>,
) -> Result<Recovered, StartError> {
    let (sync, bytes_max) = (options.sync, options.journal_bytes_max);
    let commands = namenode.catalog().index();
    let cluster = namenode.catalog().cluster();
    let cut_bytes = end.as_ref().map_or(0, |segment| segment.cut_bytes);
    if let Some(segment) = end.as_ref().filter(|segment| segment.cut_bytes > 0) {
        warn!(
            path = %segment.path.display(),
            offset = segment.length,
            bytes = segment.cut_bytes,
            why = segment.cut_why,
            "the journal's tail cannot be read: it is cut and kept beside the journal"
        );
    }
    let journal = match &end {
        Some(segment) if segment.next == commands => {
            Journal::resume(directory, segment, sync, bytes_max)
        }
        _ => Journal::create(directory, cluster, commands, sync, bytes_max),
    };
    let fail = |cause| StartError::Files {
        what: "write the journal in",
        path: directory.path().to_owned(),
        cause,
    };
    let mut journal = journal.map_err(fail)?;
    let all_bytes = directory.list(Kind::Journal).map_err(fail)?.into_iter().map(|first| {
        fs::metadata(directory.file(Kind::Journal, first)).map_or(0, |file| file.len())
    });
    journal.set_older_bytes(all_bytes.sum::<u64>().saturating_sub(journal.segment_bytes()));
    info!(cluster = format!("{:016x}", cluster.0), commands, cut_bytes, "catalog read");
    Ok(Recovered { namenode, journal, commands, cut_bytes })
}

#[cfg(test)]
mod tests;
