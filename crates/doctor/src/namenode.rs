//! The namenode: its journal, disk, memory, snapshots and backups, and whether a manager leads.

use std::time::Duration;

use sanderling_command::units;
use sanderling_namenode::JOURNAL_FREE_BYTES_MIN;

use super::check::{Check, of_nodes};
use super::fleet::not_seen;
use super::metrics_page::MetricPage;
use super::observations::{ClusterLook, Unseen};

/// Seconds that changes may wait for the disk: half of the 2 s after which the namenode refuses
/// changes by default (`--unsynced-max`).
const UNSYNCED_SECONDS_MAX: f64 = 1.0;

/// Percent of a bound of memory that is nearly all of it: a tenth is left for the time in which an
/// operator deletes or raises the bound. Chosen, not measured.
const MEMORY_PERCENT: u64 = 90;

/// Room on the disk, in bytes, below which there is none for snapshots and backups of a catalog of
/// a few million objects. Chosen, not measured; below 128 MiB changes are refused soon.
const FREE_BYTES_WANTED: u64 = 1 << 30;

/// Age of a backup from which on it is old, in seconds: a week, after which hardly any of its
/// ephemeral objects is left. Chosen, not measured.
const BACKUP_OLD_SECONDS: u64 = 7 * 24 * 3600;

const DISK: &str =
    "free space, or move the namenode: docs/DAY-TWO.md#replace-the-namenodes-machine";

/// Returns what is wrong with the namenode, or that nothing is.
pub(super) fn all(look: &ClusterLook) -> Vec<Check> {
    let mut checks = state(look);
    match &look.namenode.figures {
        Err(unseen @ Unseen::Right(_)) => {
            checks.push(not_seen("journal.unseen", "journal, memory and backups", unseen));
        }
        Err(unseen) => {
            let found = format!("the namenode's figures were not seen: {unseen}");
            let mend = "the same with --http ADDRESS of the namenode";
            checks.push(Check::warn("http.unseen", found, mend));
        }
        Ok(figures) => {
            checks.extend(manager(figures));
            checks.extend(journal(figures, look.now));
            checks.extend(disk(figures));
            checks.extend(catalog(figures));
            checks.push(backup(figures, look.now));
        }
    }
    checks.extend(indexes(look));
    checks
}

fn figure(figures: &MetricPage, name: &str) -> Option<u64> {
    figures.count(&format!("sanderling_namenode_{name}"))
}

/// Reads the namenode's health, which needs no token.
pub(super) fn state(look: &ClusterLook) -> Vec<Check> {
    let Ok(health) = &look.namenode.health else { return Vec::new() };
    let why = health["failure"].as_str().unwrap_or("no reason is given");
    match health["status"].as_str() {
        Some("failed") => vec![Check::fail(
            "journal.failed",
            format!("the journal has failed, nothing is changed any more: {why}"),
            "check its disk, then restart the namenode: docs/DAY-TWO.md#sanderlingjournallost",
        )],
        Some("read_only") => vec![Check::fail(
            "journal.read-only",
            format!("the namenode refuses changes: {why}"),
            DISK,
        )],
        Some("no_leader") => vec![Check::fail(
            "group.leader",
            "this namenode has no leader: it is cut off from the others, or none of them leads"
                .to_owned(),
            "sanderling group ls, and the logs of its members: \
             docs/DAY-TWO.md#sanderlinggroupwithoutleader",
        )],
        _ => Vec::new(),
    }
}

fn manager(figures: &MetricPage) -> Option<Check> {
    let id = "manager";
    Some(match figure(figures, "managers")? {
        0 => {
            let found =
                "no manager has the leadership lease: drains, copies and rebalancing stand still";
            let mend = "sanderling manager, or the namenode without --no-manager: \
                        docs/DAY-TWO.md#sanderlingdrainstuck";
            Check::fail("manager.none", found, mend)
        }
        _ => Check::ok(id, "one leads"),
    })
}

fn journal(figures: &MetricPage, now: u64) -> Vec<Check> {
    let mut checks = Vec::new();
    let waits = figures.get("sanderling_namenode_unsynced_seconds").unwrap_or_default();
    let unsynced = figure(figures, "unsynced_bytes").unwrap_or_default();
    let waiting = || {
        let span = Duration::try_from_secs_f64(waits).unwrap_or_default();
        format!("{} wait for the disk for {}", units::bytes(unsynced), units::duration(span))
    };
    if waits > UNSYNCED_SECONDS_MAX {
        let mend = "sanderling doctor --dir DIR on its machine: \
                    docs/DAY-TWO.md#sanderlingdisklate";
        checks.push(Check::warn("journal.late", waiting(), mend));
    }
    let lost = figure(figures, "journal_lost_records").unwrap_or_default();
    if lost > 0 {
        let records = units::count(lost, "acknowledged change is", "acknowledged changes are");
        let mend = "sanderling events --kind journal_cut: \
                    docs/DAY-TWO.md#sanderlingjournallost";
        checks.push(Check::warn("journal.lost", format!("{records} gone"), mend));
    }
    let taken = figure(figures, "snapshot_timestamp_seconds").filter(|at| *at > 0);
    let age = match taken {
        Some(at) => format!("snapshot {} ago", seconds(now.saturating_sub(at))),
        None => "no snapshot yet".to_owned(),
    };
    let failed = figure(figures, "snapshots_failed_total").unwrap_or_default();
    if failed > 0 {
        let count = units::count(failed, "snapshot", "snapshots");
        let found = format!("{count} could not be taken since the start; {age}");
        checks.push(Check::warn("journal.snapshots", found, DISK));
    }
    if checks.is_empty() {
        let mode = match figure(figures, "sync_always") {
            Some(0) => "--sync os: ",
            Some(_) => "--sync always: ",
            None => "",
        };
        let bytes = units::bytes(figure(figures, "journal_bytes").unwrap_or_default());
        let found = format!("{mode}{}, {bytes} of journal, {age}", waiting());
        checks.push(Check::ok("journal", found));
    }
    checks
}

fn seconds(span: u64) -> String {
    units::duration(Duration::from_secs(span))
}

fn disk(figures: &MetricPage) -> Option<Check> {
    let free = figure(figures, "directory_free_bytes")?;
    let whole = figure(figures, "directory_bytes").filter(|bytes| *bytes > 0)?;
    let found = format!("{} of {} free for the journal", units::bytes(free), units::bytes(whole));
    Some(match free {
        0..JOURNAL_FREE_BYTES_MIN => Check::fail("journal.disk", found, DISK),
        _ if free < FREE_BYTES_WANTED => Check::warn("journal.disk", found, DISK),
        _ => Check::ok("journal.disk", found),
    })
}

fn catalog(figures: &MetricPage) -> Option<Check> {
    let (used, max) = (figure(figures, "catalog_bytes")?, figure(figures, "catalog_max_bytes")?);
    let found = format!("the catalog has {} of {}", units::bytes(used), units::bytes(max));
    let mend = "delete objects, or a larger --memory-max: \
                docs/DAY-TWO.md#sanderlingcatalognearlyfull";
    Some(match used.saturating_mul(100) / max.max(1) {
        100.. => Check::fail("catalog.full", format!("{found}: new objects are refused"), mend),
        MEMORY_PERCENT.. => Check::warn("catalog.nearly-full", found, mend),
        _ => Check::ok("catalog", found),
    })
}

/// Looks at the datanodes' indexes of blocks.
fn indexes(look: &ClusterLook) -> Option<Check> {
    let nearly = look.servers().filter_map(|(name, server)| {
        let figures = server.figures.as_ref().ok()?;
        let figure = |name: &str| figures.count(&format!("sanderling_datanode_index_{name}"));
        let (used, max) = (figure("bytes")?, figure("max_bytes").filter(|max| *max > 0)?);
        let percent = used.saturating_mul(100) / max;
        let detail = format!("{percent}% of {}", units::bytes(max));
        (percent >= MEMORY_PERCENT).then(|| (name.to_owned(), detail))
    });
    of_nodes(
        |found| {
            let mend = "a larger --memory-max: docs/DAY-TWO.md#sanderlingindexnearlyfull";
            Check::warn("index.nearly-full", found, mend)
        },
        ("node's index is nearly full", "nodes' indexes are nearly full"),
        nearly.collect(),
    )
}

fn backup(figures: &MetricPage, now: u64) -> Check {
    let id = "backup";
    let mend = "sanderling namenode backup --to PLACE: docs/DAY-TWO.md#backup";
    let started = figures.count("process_start_time_seconds").unwrap_or(now);
    let uptime = now.saturating_sub(started);
    match figure(figures, "backup_timestamp_seconds").filter(|at| *at > 0) {
        Some(at) => {
            let age = now.saturating_sub(at);
            let found = format!("the last one was taken {} ago", seconds(age));
            match age > BACKUP_OLD_SECONDS {
                true => Check::warn("backup.old", found, mend),
                false => Check::ok(id, found),
            }
        }
        None => {
            let found = format!(
                "none since the namenode's start {} ago; earlier ones are not known",
                seconds(uptime)
            );
            match uptime > BACKUP_OLD_SECONDS {
                true => Check::warn("backup.none", found, mend),
                false => Check::ok(id, found).with_mend(mend),
            }
        }
    }
}
