//! `task bag`: what has ended, what runs, and what the machines cost.

use std::collections::BTreeMap;
use std::time::Duration;

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::output::{Align, Table};
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_core::checkpoint::{BagState, on_demand_from};
use sanderling_protocol::{Instant, Millis};
use serde::Serialize;
use tokio::time::sleep;

use super::market::MarketArg;
use super::store::{AgentRecord, BagRecord, BagStore, BagWatch, Ended, EndedError};
use super::{BagArgs, absent};
use crate::backend::TaskBackend;
use crate::supervise::wall_clock;

/// Pause between two looks with `--wait`: as long as a round of an agent (`BAG_ROUND` of the core),
/// before which nothing changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A bag as it is shown.
#[derive(Debug, Serialize)]
struct BagView {
    bag: String,
    deadline: String,
    /// The latest time from which a machine on demand is needed if no spot machine goes on.
    on_demand_from: Option<String>,
    tasks: Vec<TaskRow>,
    agents: Vec<AgentRow>,
    ended: usize,
    failed: usize,
    late: usize,
    dollars: f64,
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum TaskState {
    Waits,
    Runs,
    Done,
    Failed,
}

impl TaskState {
    /// Returns the word of the table, which is that of the document, too.
    const fn word(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Runs => "runs",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// A task as it is shown.
#[derive(Debug, Serialize)]
struct TaskRow {
    number: u32,
    state: TaskState,
    worked_seconds: f64,
    failures: u32,
    ended_at: Option<String>,
    is_late: bool,
    market: Option<MarketArg>,
    why: Option<String>,
}

/// An agent as it is shown.
#[derive(Debug, Serialize)]
struct AgentRow {
    id: String,
    market: MarketArg,
    running: Vec<u32>,
    is_silent: bool,
    seconds: f64,
    dollars: f64,
}

/// `task bag`.
///
/// # Errors
/// There is no such bag; with `--wait`, a task failed or was late.
pub(crate) async fn show(session: Session, args: BagArgs) -> Result<(), Failure> {
    let backend = TaskBackend::open(&session, &args.backend).await?;
    let store = BagStore::of(&backend, &args.bag.0)?;
    let record = store.record().await?.ok_or_else(|| absent(&args.bag.0, &backend))?;
    store.name_strange(record.tasks, |strange| session.output.note(strange)).await?;
    if args.wait {
        wait_for_all(&store, &record).await?;
    }
    let ended = store.ends(record.tasks).await?;
    let report = |failure: &Failure| session.output.note(format_args!("{failure}"));
    let view = look(&store, &args, &record, &ended, report).await?;
    for why in ended.values().filter_map(|ended| ended.as_ref().err()) {
        session.output.note(why);
    }
    session.output.result(&view, |writer| print(&view, writer))?;
    if args.wait && view.failed + view.late > 0 {
        let (failed, late, all) = (view.failed, view.late, view.tasks.len());
        let cause = format!("of {all} tasks {failed} failed and {late} missed the deadline");
        return Err(Failure::new(Exit::Partial, FailureKind::BagMissed, cause));
    }
    Ok(())
}

/// Waits until all tasks have ended. Nothing else is read of them meanwhile.
async fn wait_for_all(store: &BagStore, record: &BagRecord) -> Result<(), Failure> {
    let mut watch = BagWatch::default();
    while store.ended(record.tasks).await?.len() < record.tasks as usize {
        sleep(POLL_INTERVAL).await;
        // Nothing more ends in one that was removed.
        watch.look(store, record).await?;
    }
    Ok(())
}

/// Returns the bag as it is now. A record that is damaged is reported, and counts as none.
async fn look(
    store: &BagStore,
    args: &BagArgs,
    record: &BagRecord,
    ended: &BTreeMap<u32, Result<Ended, EndedError>>,
    report: impl Fn(&Failure),
) -> Result<BagView, Failure> {
    let bag = &args.bag.0;
    let begun = store.begun(record.tasks).await?;
    let progress = store.progress_of(&begun, |read| {
        if let Err(failure) = read {
            report(failure);
        }
    });
    let progress = progress.await?;
    let (agents, now, terms) = (store.agents(&report).await?, wall_clock(), record.terms());
    let alive = agents.values().filter(|it| !it.status().is_silent(now));
    let running: BTreeMap<u32, ()> =
        alive.flat_map(|it| it.running.iter().map(|number| (*number, ()))).collect();
    let (mut rows, mut open) = (Vec::new(), Vec::new());
    for number in 1..=record.tasks {
        let (end, so_far) = (ended.get(&number), progress.get(&number));
        let worked = so_far.map_or(Millis(0), |it| it.worked);
        let why = match end {
            Some(Ok(end)) => end.failed.clone(),
            Some(Err(damaged)) => Some(damaged.to_string()),
            None => None,
        };
        let state = match end {
            Some(Ok(Ended { failed: None, .. })) => TaskState::Done,
            Some(_) => TaskState::Failed,
            None if running.contains_key(&number) => TaskState::Runs,
            None => TaskState::Waits,
        };
        if end.is_none() {
            open.push(terms.task(BagState::Free, so_far));
        }
        let read = end.and_then(|end| end.as_ref().ok());
        rows.push(TaskRow {
            number,
            state,
            worked_seconds: worked.0 as f64 / 1000.0,
            failures: so_far.map_or(0, |it| it.failures),
            ended_at: read.map(|it| units::instant(it.at)),
            is_late: terms.is_late(read.map(|it| it.at), now),
            market: read.map(|it| it.market),
            why,
        });
    }
    Ok(BagView {
        bag: bag.clone(),
        deadline: units::instant(record.deadline),
        on_demand_from: on_demand_from(args.margin.millis(), &open).map(units::instant),
        ended: ended.len(),
        failed: rows.iter().filter(|row| row.state == TaskState::Failed).count(),
        late: rows.iter().filter(|row| row.is_late).count(),
        dollars: agents.values().map(AgentRecord::dollars).fold(0.0, |sum, it| sum + it),
        tasks: rows,
        agents: agents.into_iter().map(|(id, it)| agent_row(id, &it, now)).collect(),
    })
}

fn agent_row(id: String, agent: &AgentRecord, now: Instant) -> AgentRow {
    AgentRow {
        id,
        market: agent.market,
        running: agent.running.clone(),
        is_silent: agent.status().is_silent(now),
        seconds: agent.ran().0 as f64 / 1000.0,
        dollars: agent.dollars(),
    }
}

fn print(view: &BagView, writer: &mut dyn std::io::Write) -> std::io::Result<()> {
    let mut table = Table::new(&[
        ("task", Align::Right),
        ("state", Align::Left),
        ("worked", Align::Right),
        ("failures", Align::Right),
        ("ended", Align::Left),
        ("market", Align::Left),
    ]);
    for row in &view.tasks {
        let ended = match (&row.ended_at, row.is_late) {
            (Some(at), false) => at.clone(),
            (Some(at), true) => format!("{at}, late"),
            (None, late) => if late { "late" } else { "-" }.to_owned(),
        };
        table.row([
            row.number.to_string(),
            row.state.word().to_owned(),
            match row.worked_seconds {
                0.0 => "-".to_owned(),
                seconds => units::duration(Duration::from_secs_f64(seconds)),
            },
            row.failures.to_string(),
            ended,
            row.market.map_or_else(|| "-".to_owned(), |it| spelled(it).to_owned()),
        ]);
    }
    table.write(writer)?;
    let running = view.agents.iter().filter(|it| !it.is_silent).count();
    writeln!(
        writer,
        "{} of {} ended, {} failed, {} late; {running} of {} agents report; ${:.4} for machines",
        view.ended,
        view.tasks.len(),
        view.failed,
        view.late,
        view.agents.len(),
        view.dollars,
    )?;
    match &view.on_demand_from {
        Some(from) => writeln!(writer, "a machine on demand is needed from {from} on"),
        None => Ok(()),
    }
}

const fn spelled(market: MarketArg) -> &'static str {
    match market {
        MarketArg::Spot => "spot",
        MarketArg::OnDemand => "on-demand",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_has_one_word_in_the_table_and_in_the_document() {
        use TaskState::{Done, Failed, Runs, Waits};
        for state in [Waits, Runs, Done, Failed] {
            assert_eq!(serde_json::to_value(state).expect("a text"), state.word());
        }
    }
}
