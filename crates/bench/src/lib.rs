//! `sanderling bench`: one table of types, one way to run and to report them.

mod cpu;
mod error;
mod integers;
mod kinds;
mod location;
mod names;
mod noisy;
mod ping_pong;
mod plan;
mod report;
mod scale;
mod scenario;
mod streams;
mod threads;
mod tree;
mod values;
mod work;

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use rustix::thread::{CpuSet, sched_setaffinity};
use sanderling_client::{Client, ClientError};
use sanderling_command::{
    child, credentials, failure, global, output, process, progress, refused, session, units,
};
use sanderling_protocol::message::ObjectKind;

use crate::failure::Failure;
use crate::global::Global;
use crate::progress::Progress;
use crate::session::Session;
use cpu::{Cpu, Servers};
use error::BenchError;
use kinds::{RunFuture, RunMethod, TYPES};
use noisy::Noisy;
use plan::{Bench, BenchPlan};
use scale::{CreateSeal, Scale};
use scenario::{Counter, Measured};
use threads::{ClientSource, Thread, Threads};

/// `sanderling bench`: one type of operation against a cluster, or a tool of its own.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Benches {
    /// A tool of its own.
    #[command(subcommand)]
    pub(crate) tool: Option<Tool>,
    /// One type of operation.
    #[command(flatten)]
    pub(crate) types: Option<Bench>,
}

impl Benches {
    /// Returns whether it connects to a cluster that runs already.
    #[must_use]
    pub const fn uses_cluster(&self) -> bool {
        !matches!(self.tool, Some(Tool::Scale(_)))
    }
}

/// Tools that measure something else than one type of operation.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Tool {
    /// Measure what one namenode carries: objects, nodes, and the cost of one of each
    Scale(Scale),
    /// Measure how many files a running namenode creates and seals, each with a block
    CreateSeal(CreateSeal),
    /// Measure what a tenant's small operations take while another one takes all it can get
    Noisy(Noisy),
}

/// Returns the names of the types that it has.
pub fn types() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|kind| kind.name)
}

/// Runs `sanderling bench`.
///
/// # Errors
/// Exit code 2 for a flag that the type of benchmark does not use: leave it out. Otherwise the
/// failure of the first operation that failed: end the command with it.
pub fn main(global: &Global, args: Benches) -> Result<(), Failure> {
    let args = match (args.tool, args.types) {
        (Some(Tool::Scale(args)), _) => {
            return session::run(global, |session| scale::run(session, args));
        }
        (Some(Tool::CreateSeal(args)), _) => {
            return session::run(global, |session| scale::run_create_seal(session, args));
        }
        (Some(Tool::Noisy(args)), _) => {
            return session::run(global, |session| noisy::run(session, args));
        }
        (None, Some(args)) => args,
        (None, None) => return Err(Failure::usage("name what to measure")),
    };
    let plan = BenchPlan::new(args)?;
    if let Some(cpu) = plan.args.pin {
        pin(cpu)?;
    }
    session::run(global, |session| run(session, plan))
}

/// Keeps this thread, and those that it will start, on one core.
fn pin(cpu: u16) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(usize::from(cpu));
    sched_setaffinity(None, &set).map_err(|error| {
        Failure::usage(format_args!("--pin {cpu}: {error}")).next("nproc, or taskset -p $$")
    })
}

async fn run(session: Session, plan: BenchPlan) -> Result<(), Failure> {
    let plan = Arc::new(plan);
    let (measured, cpu) = match plan.kind.way {
        RunMethod::LocationClass => {
            let client = session.client().await?;
            return location::print(&session, plan.kind.name, &client).await;
        }
        RunMethod::PingPong => tokio::select! {
            measured = ping_pong::run(&plan) => measured,
            () = session.ended.cancelled() => Err(BenchError::Stopped),
        }
        .map_err(|error| error.failure(&session.namenode))?,
        RunMethod::Cluster(way) => on_cluster(&session, &plan, way).await?,
    };
    report::print(session.output, &plan, &measured, &cpu)
}

/// Fills the store, measures, and deletes what was written.
async fn on_cluster(
    session: &Session,
    plan: &Arc<BenchPlan>,
    way: fn(Thread) -> RunFuture,
) -> Result<(Vec<Measured>, Cpu), Failure> {
    let client = session.client_of(threads::config(plan)).await?;
    let failed = |error: ClientError| refused::client(&error, &session.namenode);
    let kind = ObjectKind::Directory;
    client.make_directory(&plan.own, kind, true, true).await.map_err(failed)?;
    let found = Servers::find(&client, plan.args.namenode_http.as_deref()).await;
    let servers = found.map_err(failed)?;
    let source = match plan.args.share_client {
        true => ClientSource::Shared(client.clone()),
        false => ClientSource::Own(session.namenode.clone(), session.credentials.clone()),
    };
    let threads = Threads::start(plan, &source, way);
    let mut threads = threads.map_err(|error| error.failure(&session.namenode))?;
    let counters = threads.progress();
    let measured = tokio::select! {
        measured = threads.lead(&servers) => measured,
        () = session.ended.cancelled() => Err(BenchError::Stopped),
        () = show(session, plan, &counters) => unreachable!("it shows progress for ever"),
    };
    threads.end().await;
    if !plan.args.keep {
        delete(session, plan, &client).await;
    }
    measured.map_err(|error| error.failure(&session.namenode))
}

async fn delete(session: &Session, plan: &BenchPlan, client: &Client) {
    if let Err(error) = client.delete(&plan.own, true).await
        && error.name() != "NotFound"
    {
        session.output.note(format_args!("{} is left behind: {error}", plan.own));
    }
}

/// Shows how many operations are done, until it is dropped.
async fn show(session: &Session, plan: &BenchPlan, counters: &[Counter]) {
    let total = match plan.args.duration {
        Some(_) => None,
        None => Some(u64::from(plan.args.threads) * plan.load.operations),
    };
    let mut progress = Progress::steps(session.output, plan.kind.name, total);
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        progress.set(threads::begun(counters));
    }
}
