//! `sanderling sim`: the seeded world.

use std::io::Write;
use std::time::Instant;

use clap::Args;
use sanderling_sim::{InjectedBug, Options, RunOutcome, Statistics, run_many};
use serde::Serialize;

use crate::failure::{Exit, Failure, FailureKind};
use crate::global::Global;
use crate::output::{Align, Output, Table};
use crate::progress::Progress;
use crate::units;

/// `sanderling sim`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1 when a checker finds a violation.")]
pub struct Sim {
    /// The first seed: the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// How many seeds to run, one after the other
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub(crate) seeds: u64,
    /// Run groups of namenodes, without datanodes: elections, notices, changes of the members
    #[arg(long)]
    pub(crate) groups: bool,
    /// Break the machines on purpose to see a checker fail; `list` prints the ways
    #[arg(long, value_name = "NAME")]
    pub(crate) bug: Option<String>,
}

#[derive(Serialize)]
struct Summary {
    seed: u64,
    seeds: u64,
    bug: Option<&'static str>,
    groups: bool,
    seconds: f64,
    seeds_per_minute: f64,
    virtual_millis: u64,
    events: u64,
    notices: u64,
    kills: u64,
    namenode_restarts: u64,
    moved_blocks: u64,
    lost_blocks: u64,
    elections: u64,
    rounds: u64,
    lease_reads: u64,
    group_calls: u64,
    checks: u64,
    digest: String,
    violation: Option<ViolationRecord>,
}

#[derive(Serialize)]
struct ViolationRecord {
    seed: u64,
    checker: &'static str,
    message: String,
    events: Vec<String>,
}

/// Runs the seeds until a checker sees a violation.
///
/// # Errors
/// Failure (1) with the seed that shows a violation: run that seed again. Usage (2) for an unknown
/// variant: choose one of those in the failure.
pub fn run(global: &Global, args: Sim) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet, task: None };
    if args.bug.as_deref() == Some("list") {
        return list(output);
    }
    let bug = args.bug.as_deref().map(str::parse::<InjectedBug>).transpose();
    let bug = bug.map_err(|error| Failure::usage(error).next("sanderling sim --bug list"))?;
    if args.groups
        && let Some(bug) = bug.filter(|bug| !bug.is_of_group())
    {
        let why = format!("{bug} is an injected bug of clusters with datanodes, not of groups");
        return Err(Failure::usage(why).next(format_args!("sanderling sim --bug {bug}")));
    }
    let groups = args.groups || bug.is_some_and(InjectedBug::is_of_group);
    let options = Options { bug, groups, ..Options::default() };
    let limit = global.timeout.map(|span| Instant::now() + span.0);
    let summary = all(output, &args, &options, limit);
    output.result(&summary, |writer| write(writer, &summary))?;
    match &summary.violation {
        Some(seen) => {
            let cause = format!("seed {} breaks {}: {}", seen.seed, seen.checker, seen.message);
            let groups = if args.groups { " --groups" } else { "" };
            let bug = bug.map_or_else(String::new, |it| format!(" --bug {it}"));
            Err(Failure::new(Exit::Failure, FailureKind::Violation, cause)
                .next(format_args!("sanderling sim --seed {}{groups}{bug}", seen.seed)))
        }
        None if summary.seeds < args.seeds => {
            let cause = format!("{} of {} seeds in time", summary.seeds, args.seeds);
            Err(Failure::new(Exit::Deadline, FailureKind::Deadline, cause)
                .next("a longer --timeout"))
        }
        None => Ok(()),
    }
}

fn all(output: Output, args: &Sim, options: &Options, limit: Option<Instant>) -> Summary {
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut total = Statistics::default();
    let (mut seeds, mut digest, mut first) = (0_u64, 0_u64, None);
    let mut progress = Progress::steps(output, "seeds", args.seeds);
    let end = args.seed.saturating_add(args.seeds);
    run_many(args.seed..end, options, threads, |outcome: RunOutcome| {
        seeds += 1;
        total.add(&outcome.statistics);
        // Independent of the order in which threads end.
        digest ^= outcome.digest;
        progress.add(1);
        if let Some(violation) = outcome.violation {
            let (checker, message) = (violation.checker, violation.message);
            let events = violation.events;
            first = Some(ViolationRecord { seed: outcome.seed, checker, message, events });
        }
        first.is_none() && limit.is_none_or(|limit| Instant::now() < limit)
    });
    progress.finish();
    let seconds = began.elapsed().as_secs_f64();
    let seeds_per_minute = seeds as f64 / seconds.max(1e-9) * 60.0;
    Summary {
        seed: args.seed,
        seeds,
        bug: options.bug.map(InjectedBug::name),
        groups: options.groups,
        seconds,
        seeds_per_minute,
        virtual_millis: total.virtual_millis,
        events: total.events,
        notices: total.notices,
        kills: total.kills,
        namenode_restarts: total.namenode_restarts,
        moved_blocks: total.moved_blocks,
        lost_blocks: total.lost_blocks,
        elections: total.elections,
        rounds: total.rounds,
        lease_reads: total.lease_reads,
        group_calls: total.group_calls,
        checks: total.checks,
        digest: format!("{digest:016x}"),
        violation: first,
    }
}

fn write(writer: &mut dyn Write, summary: &Summary) -> std::io::Result<()> {
    if let Some(seen) = &summary.violation {
        for event in &seen.events {
            writeln!(writer, "{event}")?;
        }
        writeln!(writer, "VIOLATION of {} by seed {}", seen.checker, seen.seed)?;
    }
    let what = if summary.groups {
        let Summary { elections, rounds, lease_reads, group_calls, .. } = summary;
        format!(
            "{elections} elections, {rounds} rounds, {lease_reads} reads under a lease, \
             {group_calls} calls of callers"
        )
    } else {
        let Summary { namenode_restarts, moved_blocks, lost_blocks, .. } = summary;
        format!("{namenode_restarts} restarts, {moved_blocks} blocks moved, {lost_blocks} lost")
    };
    writeln!(
        writer,
        "{} seeds in {}, {:.0} a minute: {} events, {} notices, {} kills, {what}, {} checks, \
         digest {}",
        summary.seeds,
        units::duration(std::time::Duration::from_secs_f64(summary.seconds)),
        summary.seeds_per_minute,
        summary.events,
        summary.notices,
        summary.kills,
        summary.checks,
        summary.digest
    )
}

fn list(output: Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Variant {
        name: &'static str,
        checker: &'static str,
        about: &'static str,
    }
    let variants: Vec<Variant> = InjectedBug::ALL
        .iter()
        .map(|it| Variant { name: it.name(), checker: it.checker(), about: it.describe() })
        .collect();
    output.result(&serde_json::json!({ "variants": variants }), |writer| {
        let left = Align::Left;
        let mut table = Table::new(&[("name", left), ("checker", left), ("what is wrong", left)]);
        for it in &variants {
            table.row([it.name.to_owned(), it.checker.to_owned(), it.about.to_owned()]);
        }
        table.write(writer)
    })
}
