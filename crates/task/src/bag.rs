//! `task submit`, `task agent` and `task bag`: tasks with a deadline, on machines that come and go.
//!
//! `core::checkpoint` decides what an agent does (`BagAgent`), and what a run records about the end
//! of its task (`EndRecorder`). Agents share nothing but the backend. Below `@NAME` there are the
//! bag's record, a record of progress and at last a result for each task, and a record of each
//! agent.

mod agent;
mod end_record;
mod market;
mod store;
mod view;

use std::ffi::OsString;

use clap::Args;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::session::Session;
use sanderling_command::units::{self, Size, Span};
use sanderling_core::checkpoint::BAG_TASKS_MAX;

use crate::args::{PaceArgs, StorageArgs, TaskName, bag_name, dollars};
use crate::backend::{BackendSpec, TaskBackend, hex};
use crate::encryption::drawn;
use crate::supervise::wall_clock;

pub(crate) use agent::agent;
use market::MarketArg;
use store::{BagRecord, BagStore};
pub(crate) use view::show;

/// `task submit`.
#[derive(Debug, Clone, Args)]
pub struct SubmitArgs {
    /// The bag's name
    #[arg(long, value_name = "NAME", value_parser = bag_name)]
    pub(crate) bag: TaskName,
    /// Where the bag and its checkpoints are stored: what `task run` takes
    #[arg(long, value_name = "PLACE", default_value = "/tasks")]
    pub(crate) backend: BackendSpec,
    /// How many tasks; each finds its number, from 1 on, in SANDERLING_TASK_NUMBER
    #[arg(long, value_name = "NUMBER", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(BAG_TASKS_MAX)))]
    pub(crate) count: u32,
    /// How long one task is expected to run without a failure
    #[arg(long, value_name = "DURATION")]
    pub(crate) time: Span,
    /// When all have to be done, from now on
    #[arg(long, value_name = "DURATION")]
    pub(crate) deadline: Span,
    /// Memory that one task uses
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) memory: Size,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `task agent`.
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    /// The bag's name
    #[arg(long, value_name = "NAME", value_parser = bag_name)]
    pub(crate) bag: TaskName,
    /// How this machine is paid: on-demand takes a task from its latest start on, spot before
    #[arg(long, value_enum, value_name = "MARKET")]
    pub(crate) market: MarketArg,
    /// Dollars per hour of this machine, for the bag's account
    #[arg(long, value_name = "DOLLARS", default_value = "0", value_parser = dollars)]
    pub(crate) price: f64,
    /// Memory of this machine for tasks
    #[arg(long, value_name = "SIZE", default_value = "1TiB")]
    pub(crate) memory: Size,
    /// Tasks that run here at once, at most
    #[arg(long, value_name = "NUMBER", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) at_once: u32,
    /// How much earlier than the latest start a task is urgent: for the start itself, and for the
    /// time until a dead runner is noticed
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(crate) margin: Span,
    /// How often a task whose command fails is started again
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    pub(crate) retries: u32,
    #[command(flatten)]
    pub(crate) storage: StorageArgs,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
}

/// `task bag`.
#[derive(Debug, Clone, Args)]
pub struct BagArgs {
    /// The bag's name
    #[arg(long, value_name = "NAME", value_parser = bag_name)]
    pub(crate) bag: TaskName,
    /// Where the bag is stored: what `task run` takes
    #[arg(long, value_name = "PLACE", default_value = "/tasks")]
    pub(crate) backend: BackendSpec,
    /// How much earlier than the latest start a machine on demand has to be there: its start, and
    /// the --margin of its agent
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(crate) margin: Span,
    /// Wait until all tasks have ended; exit code 5 if one failed or missed the deadline
    #[arg(long)]
    pub(crate) wait: bool,
}

/// `task submit`.
///
/// # Errors
/// There is a bag of that name; the backend cannot be used.
pub(crate) async fn submit(session: Session, args: SubmitArgs) -> Result<(), Failure> {
    let backend = TaskBackend::open(&session, &args.backend).await?;
    let store = BagStore::of(&backend, &args.bag.0)?;
    if store.record().await?.is_some() {
        return Err(exists(&args.bag.0));
    }
    let command: Option<Vec<String>> =
        args.command.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    let command = command.ok_or_else(|| Failure::usage("the command is not valid UTF-8"))?;
    let record = BagRecord {
        id: hex(&drawn::<16>()),
        tasks: args.count,
        command,
        time: args.time.millis(),
        memory_bytes: args.memory.0,
        deadline: wall_clock() + args.deadline.millis(),
    };
    let place = backend.of_task(&format!("@{}", args.bag.0))?;
    place.make(&["agents"]).await?;
    place.check_writes("agents").await?;
    if !store.create(&record).await? {
        return Err(exists(&args.bag.0));
    }
    let document = serde_json::json!({
        "bag": args.bag.0,
        "tasks": args.count,
        "deadline": units::instant(record.deadline),
    });
    session.output.result(&document, |writer| {
        let (bag, count) = (&args.bag.0, units::counted(args.count.into(), "task"));
        writeln!(writer, "{bag}: {count} until {}", units::instant(record.deadline))
    })
}

fn exists(bag: &str) -> Failure {
    let cause = format!("there is a bag {bag}");
    let next = format!("sanderling task bag --bag {bag}, or the same with another --bag");
    Failure::new(Exit::Failure, FailureKind::BagExists, cause).next(next)
}

/// Returns the failure of a bag that does not exist.
fn absent(bag: &str, backend: &TaskBackend) -> Failure {
    let cause = format!("there is no bag {bag} in {backend}");
    let next = format!("sanderling task submit --bag {bag}, or the same with its --backend");
    Failure::new(Exit::NotFound, FailureKind::NoBag, cause).next(next)
}
