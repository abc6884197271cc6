//! `sanderling fsck`: the catalog against itself, and against what the datanodes hold.

mod deep;
mod pages;

use std::io::{self, Write};

use clap::Args;
use sanderling_protocol::event::LossReport;
use sanderling_protocol::message::{DurableStatus, FsckReport};
use sanderling_protocol::{Path, Reply, Request};
use serde::Serialize;

use self::deep::Deep;
use crate::failure::{Exit, Failure, FailureKind, RefusalKind};
use crate::printable::printable;
use crate::refused::{shell_word, unexpected};
use crate::session::Session;
use crate::units;

/// `sanderling fsck`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 5 when data is lost, damaged or missing, 1 when the catalog contradicts itself or two
nodes each other, 4 when a node or its object store does not let look, else 0.")]
pub(crate) struct Fsck {
    /// Compare with the blocks that each datanode holds, too
    #[arg(long)]
    pub(crate) deep: bool,
    /// Have each datanode compare its blocks in memory and on disk with their checksums, too
    #[arg(long, requires = "deep")]
    pub(crate) verify: bool,
}

#[derive(Serialize)]
struct FsckOutcome {
    #[serde(flatten)]
    catalog: FsckReport,
    report: LossReport,
    deep: Option<Deep>,
    durable: Vec<DurableStatus>,
}

/// Checks, prints, and ends with 5 when data is lost, 1 when something is wrong.
///
/// # Errors
/// As the report states; unavailable (4) when the namenode cannot be reached.
pub(crate) async fn run(session: Session, args: Fsck) -> Result<(), Failure> {
    let client = session.client().await?;
    // First: what it finds damaged is declared lost by it.
    let deep =
        if args.deep { Some(deep::check(&session, &client, args.verify).await?) } else { None };
    let reply = session.call(&client, Request::Fsck).await?;
    let Reply::Fsck(catalog) = reply else { return Err(unexpected(&reply)) };
    let reply = session.call(&client, Request::Report).await?;
    let Reply::Report(report) = reply else { return Err(unexpected(&reply)) };
    // A namenode of an earlier release has no durable directories.
    let durable = client.durable_overview().await.unwrap_or_default();
    let outcome = FsckOutcome { catalog, report, deep, durable };
    session.output.result(&outcome, |writer| write(writer, &outcome))?;
    verdict(&outcome)
}

fn verdict(outcome: &FsckOutcome) -> Result<(), Failure> {
    let deep = outcome.deep.as_ref().map_or(0, |deep| deep.problems.len());
    let problems = outcome.catalog.problems.len() + deep;
    if problems > 0 {
        let cause = format!(
            "{}: report a bug, for the catalog must not contradict itself",
            units::count(problems as u64, "problem", "problems")
        );
        let failure = Failure::new(Exit::Failure, FailureKind::Problems, cause);
        return Err(failure.next("sanderling events"));
    }
    if outcome.catalog.lost_blocks > 0 {
        let lost = units::bytes(outcome.catalog.lost_bytes);
        let blocks = units::count(outcome.catalog.lost_blocks, "block is", "blocks are");
        let cause = format!("{lost} in {blocks} lost");
        return Err(Failure::new(Exit::Partial, RefusalKind::DataUnavailable, cause)
            .next(next_of_lost(&outcome.catalog.lost_objects)));
    }
    let damaged = outcome.deep.as_ref().map_or(0, |deep| deep.damaged.len());
    if damaged > 0 {
        let cause = format!(
            "{damaged} blocks are damaged or missing: once they are declared lost, fsck names the \
             objects"
        );
        return Err(Failure::new(Exit::Partial, RefusalKind::DataUnavailable, cause)
            .next("sanderling fsck"));
    }
    let unseen = outcome.deep.iter().flat_map(|deep| &deep.unseen);
    let unseen: u64 = unseen.map(|unseen| unseen.blocks).sum();
    if unseen > 0 {
        let blocks = units::count(unseen, "block", "blocks");
        let cause = format!("{blocks} could not be looked at: whether they are damaged is unknown");
        return Err(Failure::new(Exit::Unavailable, FailureKind::NotLookedAt, cause)
            .next("sanderling doctor, or the same when the nodes and their stores are back"));
    }
    Ok(())
}

/// Returns the next step where objects have lost bytes.
fn next_of_lost(objects: &[Path]) -> String {
    match objects.first() {
        Some(path) => {
            format!("compute the objects again, or sanderling fs rm {}", shell_word(path.as_str()))
        }
        None => "compute the objects again".to_owned(),
    }
}

/// Writes what of a durable directory is volatile, since when, and why it stalls.
fn write_durable(writer: &mut dyn Write, status: &DurableStatus) -> io::Result<()> {
    let (directory, store) = (printable(status.directory.as_str()), printable(&status.store));
    match status.backlog_age {
        None => writeln!(writer, "{directory}: the store {store} has everything")?,
        Some(age) => writeln!(
            writer,
            "{directory}: VOLATILE until the store {store} has {}, {}, the oldest since {}",
            units::count(status.backlog_changes, "change", "changes"),
            units::bytes(status.backlog_bytes),
            units::millis(age)
        )?,
    }
    if let Some(adoption) = status.adoption.as_ref().filter(|adoption| !adoption.is_done) {
        let objects = units::count(adoption.objects, "object", "objects");
        writeln!(writer, "  {objects} are adopted so far")?;
    }
    match status.stalled.is_empty() {
        true => Ok(()),
        false => writeln!(writer, "  STALLED: {}", printable(&status.stalled)),
    }
}

fn write(writer: &mut dyn Write, outcome: &FsckOutcome) -> io::Result<()> {
    let catalog = &outcome.catalog;
    writeln!(
        writer,
        "{}, {}, {}, {}, {} being written",
        units::count(catalog.files, "file", "files"),
        units::count(catalog.directories, "directory", "directories"),
        units::count(catalog.blocks, "block", "blocks"),
        units::bytes(catalog.bytes),
        units::count(catalog.open_blocks, "block", "blocks")
    )?;
    if let Some(deep) = &outcome.deep {
        let held = units::bytes(deep.held_bytes);
        let blocks = units::count(deep.held_blocks, "block", "blocks");
        let nodes = units::count(deep.nodes, "node holds", "nodes hold");
        writeln!(writer, "{nodes} {blocks}, {held}")?;
    }
    let report = &outcome.report;
    writeln!(
        writer,
        "since the beginning: {}, {} moved, {} lost in {}",
        units::count(report.notices, "notice", "notices"),
        units::bytes(report.moved_bytes),
        units::bytes(report.bytes),
        units::count(report.blocks, "block", "blocks")
    )?;
    outcome.durable.iter().try_for_each(|status| write_durable(writer, status))?;
    // What may concern any object is the root's, without a range.
    for loss in report.losses.iter().filter(|loss| loss.path.is_root() && loss.ranges.is_empty()) {
        writeln!(writer, "LOST {}: {}", units::instant(loss.at), loss.why)?;
    }
    if catalog.lost_blocks > 0 {
        let lost = units::bytes(catalog.lost_bytes);
        writeln!(writer, "LOST now: {lost} in {} blocks of", catalog.lost_blocks)?;
        for path in &catalog.lost_objects {
            writeln!(writer, "  {}", printable(path.as_str()))?;
        }
    }
    for damaged in outcome.deep.iter().flat_map(|deep| &deep.damaged) {
        writeln!(writer, "DAMAGED: {}", printable(&damaged.to_string()))?;
    }
    for unseen in outcome.deep.iter().flat_map(|deep| &deep.unseen) {
        writeln!(writer, "NOT LOOKED AT: {}", printable(&unseen.to_string()))?;
    }
    let deep = outcome.deep.iter().flat_map(|deep| &deep.problems);
    for problem in catalog.problems.iter().chain(deep) {
        writeln!(writer, "problem: {}", printable(problem))?;
    }
    let is_clean = catalog.lost_blocks == 0
        && catalog.problems.is_empty()
        && outcome.deep.as_ref().is_none_or(Deep::is_clean);
    if is_clean { writeln!(writer, "clean") } else { Ok(()) }
}
