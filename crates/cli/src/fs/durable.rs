//! Durable directories: waiting for their stores, and what `fs stat` shows of them.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use sanderling_client::Client;
use sanderling_protocol::Path;
use sanderling_protocol::limits::DURABLE_BACKLOG_BYTES;
use sanderling_protocol::message::{Adoption, Durability, DurableState};

use super::pattern;
use crate::failure::{Exit, Failure, FailureKind};
use crate::printable::printable;
use crate::refused;
use crate::session::Session;
use crate::units;

/// How long `fs sync` waits without `--timeout`, an hour: as long as a large backlog takes on a
/// slow link (16 GiB at 5 MB/s). Chosen, not measured.
const WAIT: Duration = Duration::from_secs(3600);

/// `fs sync`.
#[derive(Debug, Args)]
pub(crate) struct SyncArgs {
    /// Durable directories, or objects below them
    #[arg(required = true, value_parser = pattern::typed)]
    pub(crate) paths: Vec<Path>,
}

/// Waits until the stores have what was sealed before.
///
/// # Errors
/// A path is in no durable directory, or its store did not get everything in time.
pub(super) async fn wait(session: &Session, args: SyncArgs) -> Result<(), Failure> {
    // Shortly before the command is ended, to report what is missing. All paths share this time.
    let until = Instant::now() + session.limit().map_or(WAIT, |limit| limit.mul_f64(0.9));
    let client = session.client().await?;
    for path in &args.paths {
        let within = until.saturating_duration_since(Instant::now());
        let waited = client.wait_durable(path, within).await;
        let left = waited.map_err(|error| refused::client(&error, &session.namenode))?;
        if let Some(left) = left {
            let why = if left.stalled.is_empty() { "it is slow" } else { &left.stalled };
            let cause = format!(
                "{} changes of {} wait for the store {}: {why}",
                left.backlog_changes, left.directory, left.store
            );
            let next = format!("sanderling fs stat {path}");
            return Err(Failure::new(Exit::Deadline, FailureKind::NotDurable, cause).next(next));
        }
    }
    session.output.result(&serde_json::json!({ "durable": args.paths }), |_| Ok(()))
}

/// Returns the bound of a directory's backlog, in bytes, that a command without one means: with
/// `parents` a directory that is durable already keeps what it has.
///
/// # Errors
/// The namenode's failure.
pub(super) async fn backlog_max(
    session: &Session,
    client: &Client,
    path: &Path,
    parents: bool,
) -> Result<u64, Failure> {
    if !parents {
        return Ok(DURABLE_BACKLOG_BYTES);
    }
    let found = client.durable_backlog_max(path).await;
    found.map_err(|error| refused::client(&error, &session.namenode))
}

/// Waits until the objects of a store that is adopted are there.
///
/// # Errors
/// They are not in time: the failure has the reason.
pub(super) async fn wait_adopted(
    session: &Session,
    client: &Client,
    path: &Path,
) -> Result<Adoption, Failure> {
    let refused = |error| refused::client(&error, &session.namenode);
    let within = session.limit().map_or(WAIT, |limit| limit.mul_f64(0.9));
    let left = client.wait_durable(path, within).await.map_err(refused)?;
    if let Some(left) = left {
        let objects = left.adoption.map_or(0, |adoption| adoption.objects);
        let why = if left.stalled.is_empty() { "it is slow" } else { &left.stalled };
        let cause =
            format!("{objects} objects of the store {} are adopted so far: {why}", left.store);
        let next = format!("sanderling fs stat {path}");
        return Err(Failure::new(Exit::Deadline, FailureKind::NotAdopted, cause).next(next));
    }
    let found = client.durability(path).await.map_err(refused)?;
    Ok(found.and_then(|found| found.adoption).unwrap_or_default())
}

/// Writes what was adopted.
pub(super) fn write_adopted(
    writer: &mut dyn Write,
    path: &Path,
    found: &Adoption,
) -> std::io::Result<()> {
    let (objects, bytes) = (units::counted(found.objects, "object"), units::bytes(found.bytes));
    writeln!(writer, "{}: {objects} adopted, {bytes}", printable(path.as_str()))?;
    if found.skipped > 0 {
        let first = printable(&found.skipped_first);
        writeln!(writer, "  {} were left out, the first of them {first}", found.skipped)?;
    }
    Ok(())
}

/// Returns how far an object is copied to its store. A namenode of an earlier release does not
/// know.
pub(super) async fn of(client: &Client, path: &Path) -> Option<Durability> {
    client.durability(path).await.ok().flatten()
}

/// Returns the state of an object in one word.
pub(super) const fn state(found: &Durability) -> DurableState {
    match (found.is_durable, found.stored_bytes) {
        (false, _) => DurableState::Volatile,
        (true, 0) => DurableState::Durable,
        (true, _) => DurableState::Stored,
    }
}

/// Writes the lines of `fs stat`.
pub(super) fn write(writer: &mut dyn Write, found: &Durability) -> std::io::Result<()> {
    let place = printable(&format!("{}:{}", found.store, found.key)).to_string();
    let state = if found.is_durable { "durable" } else { "volatile" };
    writeln!(writer, "  store     {place}, {state}")?;
    if let Some(age) = found.backlog_age {
        writeln!(
            writer,
            "  backlog   {}, {}, the oldest since {}",
            units::counted(found.backlog_changes, "change"),
            units::bytes(found.backlog_bytes),
            units::millis(age)
        )?;
    }
    if found.stored_bytes > 0 {
        let bytes = units::bytes(found.stored_bytes);
        writeln!(writer, "  memory    {bytes} are in the store only, until they are read")?;
    }
    if let Some(adoption) = found.adoption.as_ref().filter(|_| found.key.is_empty()) {
        let (state, bytes) = match adoption.is_done {
            true => ("adopted", units::bytes(adoption.bytes)),
            false => ("being adopted", units::bytes(adoption.bytes)),
        };
        writeln!(writer, "  {state}: {} objects, {bytes}", adoption.objects)?;
        if adoption.skipped > 0 {
            let first = printable(&adoption.skipped_first);
            writeln!(writer, "  left out  {}, the first of them {first}", adoption.skipped)?;
        }
    }
    if !found.stalled.is_empty() {
        writeln!(writer, "  STALLED   {}", printable(&found.stalled))?;
    }
    Ok(())
}
