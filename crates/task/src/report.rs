//! `task ls`, `task verify` and `task gc`.

use std::io;

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::output::{Align, Table};
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_core::checkpoint::RemovalPlan;
use sanderling_protocol::Refusal;
use serde::Serialize;

use crate::args::{GcArgs, LsArgs, PlaceArgs, TaskName};
use crate::backend::TaskBackend;
use crate::compaction::CompactedPacks;
use crate::generations::{
    Generations, RemovedGenerations, StoredGeneration, StuckGeneration, distinct_packs, found,
    highest_lock, is_of_generation, is_of_one,
};
use crate::lock::{LockWatch, TaskLock};
use crate::offers::{OfferedGenerations, absent, replaced};
use crate::runner::{note_strange, opened};
use crate::task_failure::{TaskFailure, system_error};

/// A task as `task ls` shows it: what is known without its key.
#[derive(Debug, Serialize)]
struct TaskRow {
    name: String,
    generations: Vec<u64>,
    packs: usize,
    bytes: u64,
}

/// A generation as `task verify` shows it.
#[derive(Debug, Serialize)]
struct GenerationRow {
    generation: u64,
    is_good: bool,
    why: Option<String>,
    taken_at: Option<String>,
    state_bytes: Option<u64>,
    added_bytes: Option<u64>,
}

/// `task ls`. A task that cannot be read hides none of the others.
pub(crate) async fn list(session: &Session, args: &LsArgs) -> Result<(), Failure> {
    let backend = TaskBackend::open(session, &args.backend).await?;
    let (mut rows, mut unread) = (Vec::new(), Vec::new());
    for (name, _) in backend.list("").await? {
        match task_row(&backend, &name).await {
            Ok(row) => rows.extend(row),
            Err(failure) if is_of_one_task(&failure) => {
                session.output.note(format_args!("{name}: {}", failure.cause));
                unread.push((name, failure));
            }
            Err(failure) => return Err(failure),
        }
    }
    session.output.result(&serde_json::json!({ "tasks": rows }), |writer| {
        let mut table = Table::new(&[
            ("newest", Align::Right),
            ("generations", Align::Right),
            ("packs", Align::Right),
            ("bytes", Align::Right),
            ("name", Align::Left),
        ]);
        for row in &rows {
            table.row([
                row.generations.first().map_or_else(|| "-".to_owned(), ToString::to_string),
                row.generations.len().to_string(),
                row.packs.to_string(),
                units::bytes(row.bytes),
                row.name.clone(),
            ]);
        }
        table.write(writer)
    })?;
    let Some((name, failure)) = unread.first() else { return Ok(()) };
    let count = units::counted(unread.len() as u64, "task");
    let cause = format!("{count} cannot be read, the first of them {name}: {}", failure.cause);
    let partial = Failure::new(Exit::Partial, failure.kind.clone(), cause);
    Err(failure.next.iter().fold(partial, |partial, next| partial.next(next)))
}

/// Returns what is stored of a task; `None` if there is nothing, as of another program's file.
///
/// # Errors
/// The backend cannot be read.
async fn task_row(backend: &TaskBackend, name: &str) -> Result<Option<TaskRow>, Failure> {
    // No task has another name, such as `lost+found`.
    let Ok(TaskName(name)) = name.parse() else { return Ok(None) };
    let task = backend.of_task(&name)?;
    let generations = Generations::numbers(&task).await;
    if generations.as_ref().is_err_and(is_no_directory) {
        return Ok(None);
    }
    let (generations, packs) = (generations?, Generations::packs(&task).await?);
    let (is_stored, bytes) = (!generations.is_empty() || !packs.is_empty(), packs.values().sum());
    Ok(is_stored.then_some(TaskRow { name, generations, packs: packs.len(), bytes }))
}

/// Returns whether a place cannot be read because it is no directory.
fn is_no_directory(failure: &Failure) -> bool {
    system_error(failure).is_some_and(|error| error.kind() == io::ErrorKind::NotADirectory)
        || matches!(failure.refusal(), Some(Refusal::NotADirectory { .. }))
}

/// Returns whether a failure may be of one task: its files, or what may be read of it.
fn is_of_one_task(failure: &Failure) -> bool {
    failure.is_of_one_file || matches!(failure.refusal(), Some(Refusal::Forbidden { .. }))
}

/// `task verify`.
pub(crate) async fn verify(session: &Session, args: &PlaceArgs) -> Result<(), Failure> {
    let name = &args.name.0;
    let backend = TaskBackend::open(session, &args.storage.backend).await?.of_task(name)?;
    let generations = opened(&backend, name, &args.storage, false).await?;
    note_strange(session, &backend).await?;
    let mut rows = Vec::new();
    for (number, stored) in generations.look().await? {
        let read = match &stored {
            Ok(_) => generations.verify(number).await,
            Err(failure) => Err(failure.clone()),
        };
        let why = match read {
            Ok(()) => None,
            Err(failure) if is_of_one(&failure) => Some(failure.cause),
            Err(failure) => return Err(failure),
        };
        rows.push(row(number, stored.as_ref().ok(), why));
    }
    // A runner may have removed what was being read.
    let kept = Generations::numbers(&backend).await?;
    rows.retain(|row| row.why.is_none() || kept.contains(&row.generation));
    if rows.is_empty() && !kept.is_empty() {
        return Err(replaced(name));
    }
    session.output.result(&serde_json::json!({ "generations": rows }), |writer| {
        let mut table = Table::new(&[
            ("generation", Align::Right),
            ("taken", Align::Left),
            ("state", Align::Right),
            ("new", Align::Right),
            ("result", Align::Left),
        ]);
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), units::bytes);
        for row in &rows {
            table.row([
                row.generation.to_string(),
                row.taken_at.clone().unwrap_or_else(|| "-".to_owned()),
                bytes(row.state_bytes),
                bytes(row.added_bytes),
                row.why.clone().unwrap_or_else(|| "good".to_owned()),
            ]);
        }
        table.write(writer)
    })?;
    let bad = rows.iter().filter(|row| !row.is_good).count();
    if rows.is_empty() {
        return Err(absent(name, &backend));
    }
    if bad > 0 {
        let cause = format!("{bad} of {} generations cannot be restored", rows.len());
        return Err(TaskFailure::BadGeneration.failure(Exit::Partial, cause));
    }
    Ok(())
}

fn row(generation: u64, stored: Option<&StoredGeneration>, why: Option<String>) -> GenerationRow {
    GenerationRow {
        generation,
        is_good: why.is_none(),
        why,
        taken_at: stored.map(|it| units::instant(it.taken_at)),
        state_bytes: stored.map(|it| it.stream_bytes),
        added_bytes: stored.map(|it| it.added_bytes),
    }
}

/// What `task gc` removed, and what it left.
struct Collected {
    plan: RemovalPlan,
    /// Generations that are left and good as far as it looks.
    good: Vec<StoredGeneration>,
    /// Generations that are left and cannot be restored.
    refused: Vec<u64>,
    /// Generations that are left because their manifests cannot be deleted.
    stuck: Vec<StuckGeneration>,
}

impl Collected {
    /// Adds what was removed before.
    fn after(mut self, before: RemovalPlan) -> Self {
        self.plan.generations = [before.generations, self.plan.generations].concat();
        self.plan.packs = [before.packs, self.plan.packs].concat();
        self
    }

    /// Counts a generation among those that cannot be restored.
    fn refuse(&mut self, number: u64) {
        self.good.retain(|stored| stored.number != number);
        self.refused.push(number);
    }

    /// Returns the failure of a collection that has left what it should not have.
    fn failure(&self, name: &str) -> Option<Failure> {
        let refused = self.refused.len() as u64;
        if let Some((number, failure)) = self.stuck.first() {
            let more = match self.stuck.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let why = &failure.cause;
            let refused = match refused {
                0 => String::new(),
                refused => {
                    let refused = units::counted(refused, "generation");
                    format!("; {refused} cannot be restored")
                }
            };
            let cause =
                format!("generation {number} of {name} cannot be removed: {why}{more}{refused}");
            let stuck = TaskFailure::BadGeneration.failure(Exit::Partial, cause);
            return Some(failure.next.iter().fold(stuck, |stuck, next| stuck.next(next)));
        }
        (refused > 0).then(|| {
            let refused = units::counted(refused, "generation");
            let cause = format!("{refused} cannot be restored: packs that may be theirs stay");
            let next = format!("sanderling task verify --name {name}, which also reads the packs");
            Failure::new(Exit::Partial, FailureKind::BadGeneration, cause).next(next)
        })
    }
}

/// `task gc`.
pub(crate) async fn collect(session: &Session, args: &GcArgs) -> Result<(), Failure> {
    let (name, storage) = (&args.place.name.0, &args.place.storage);
    let backend = TaskBackend::open(session, &storage.backend).await?.of_task(name)?;
    let generations = opened(&backend, name, storage, false).await?;
    if Generations::numbers(&backend).await?.is_empty() {
        return Err(absent(name, &backend));
    }
    // Also refuses a link of that name: behind it nothing is written or removed.
    backend.make(&["locks"]).await?;
    backend.check_writes("locks").await?;
    let watch = LockWatch::new().noting(session.output);
    let lock = TaskLock::take(&backend, name, storage.lock_age.0, watch).await?;
    backend.clear_unfinished(storage.lock_age.0);
    let worked = collected_and_compacted(session, &generations, args.keep as usize, &lock).await;
    lock.release().await;
    let (collected, compacted) = worked?;
    let Collected { plan, good, refused, stuck } = &collected;
    let stuck: Vec<u64> = stuck.iter().map(|(number, _)| *number).collect();
    let packs = distinct_packs(good).len();
    let document = serde_json::json!({
        "removed_generations": plan.generations,
        "removed_packs": plan.packs.len(),
        "generations": good.len(),
        "packs": packs,
        "refused_generations": refused,
        "stuck_generations": stuck,
        "rewritten_packs": compacted.map_or(0, |it| it.packs),
        "rewritten_bytes": compacted.map_or(0, |it| it.stored_bytes),
    });
    let count = |of: usize, noun| units::counted(of as u64, noun);
    session.output.result(&document, |writer| {
        if let Some(CompactedPacks { generation, packs, stored_bytes }) = compacted {
            let (packs, bytes) = (count(packs, "pack"), units::bytes(stored_bytes));
            writeln!(
                writer,
                "stored what is left of {packs}, {bytes}, as generation {generation}"
            )?;
        }
        let (gone, packs_gone) =
            (count(plan.generations.len(), "generation"), count(plan.packs.len(), "pack"));
        let (generations, packs) = (count(good.len(), "generation"), count(packs, "pack"));
        writeln!(writer, "removed {gone} and {packs_gone}; {generations} with {packs} left")
    })?;
    collected.failure(name).map_or(Ok(()), Err)
}

/// Removes what is old, and stores the rest of sparse packs again if one generation is left. That
/// one is removed then: the new one has its state. What fails after the first removal is a note:
/// what was removed before is to be printed, and the next collection tries again.
///
/// # Errors
/// As [`collected`] for the first removal; another runner has the lock.
async fn collected_and_compacted(
    session: &Session,
    generations: &Generations,
    keep: usize,
    lock: &TaskLock,
) -> Result<(Collected, Option<CompactedPacks>), Failure> {
    note_strange(session, &generations.backend).await?;
    let first = collected(session, generations, keep, lock).await?;
    if !first.refused.is_empty() {
        // It may be good again, and names any pack.
        return Ok((first, None));
    }
    let left = &first.good;
    let (compacted, damaged) = match generations.compact(left, lock).await {
        Ok(None) => return Ok((first, None)),
        Ok(compacted) => (compacted, None),
        Err(failure) if TaskFailure::Taken.is(&failure) => return Err(failure),
        Err(failure) => {
            session.output.note(format_args!("sparse packs stay: {}", failure.cause));
            let of_damaged = left.first().filter(|_| is_of_generation(&failure));
            (None, of_damaged.map(|stored| stored.number))
        }
    };
    // Also what is left of a rewrite that failed.
    let mut all = match collected(session, generations, keep, lock).await {
        Ok(last) => last.after(first.plan),
        Err(failure) if TaskFailure::Taken.is(&failure) => return Err(failure),
        Err(failure) => {
            session.output.note(format_args!("what is replaced stays: {}", failure.cause));
            first
        }
    };
    if let Some(number) = damaged {
        all.refuse(number);
    }
    Ok((all, compacted))
}

/// Names the generations of no use, and removes what is old.
///
/// # Errors
/// The backend cannot be used; no generation is good, as with the key of another task; the newest
/// one was written by another release. Then nothing is removed.
async fn collected(
    session: &Session,
    generations: &Generations,
    keep: usize,
    lock: &TaskLock,
) -> Result<Collected, Failure> {
    let looked = generations.look().await?;
    lock.follow(highest_lock(&looked));
    let mut offered = OfferedGenerations::to_runner(&looked, false);
    offered.next(generations, session.output).await?;
    offered.print_others(session.output);
    let removed = generations.collect(&found(&looked), keep, &[], lock).await?;
    let RemovedGenerations { plan, stuck } = removed;
    let (mut good, mut refused) = (Vec::new(), Vec::new());
    for (number, stored) in looked {
        match stored {
            _ if plan.generations.contains(&number) => {}
            Ok(stored) => good.push(stored),
            Err(_) => refused.push(number),
        }
    }
    Ok(Collected { plan, good, refused, stuck })
}
