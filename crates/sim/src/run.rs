//! One run, and many.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use crate::plan::RunPlan;
use crate::world::World;
use crate::{InjectedBug, Options, RunOutcome, Violation, run_group};

/// Simulates the cluster, or the group of namenodes, that `seed` determines, and returns what the
/// checkers found.
#[must_use]
pub fn run(seed: u64, options: &Options) -> RunOutcome {
    if options.groups || options.bug.is_some_and(InjectedBug::is_of_group) {
        return run_group_of(seed, options);
    }
    run_cluster(seed, options)
}

/// Runs the group of namenodes of one seed, again for its events if something is wrong.
fn run_group_of(seed: u64, options: &Options) -> RunOutcome {
    let outcome = run_group(seed, options.bug, options.keep_events);
    match outcome.violation {
        Some(_) if options.minimise && !options.keep_events => run_group(seed, options.bug, true),
        _ => outcome,
    }
}

fn run_cluster(seed: u64, options: &Options) -> RunOutcome {
    let plan = RunPlan::new(seed, options.steps);
    let mut outcome = run_plan(&plan, options.bug, options.keep_events);
    if let Some(found) = &outcome.violation
        && options.minimise
    {
        let found = minimise(plan, options.bug, found.checker);
        outcome.violation = found.or(outcome.violation);
    }
    outcome
}

/// Runs one plan.
fn run_plan(plan: &RunPlan, bug: Option<InjectedBug>, keep_events: bool) -> RunOutcome {
    let (violation, statistics, log) = World::new(plan.clone(), bug, keep_events).run();
    let digest = log.digest();
    let events = log.into_lines();
    let violation =
        violation.map(|(checker, message)| Violation { checker, message, events: events.clone() });
    RunOutcome { seed: plan.seed, violation, statistics, digest, events }
}

/// Leaves out faults, one by one and then kinds of them, for as long as the same checker still sees
/// something; returns the last violation with its event log.
fn minimise(plan: RunPlan, bug: Option<InjectedBug>, checker: &'static str) -> Option<Violation> {
    let shows = |plan: &RunPlan| {
        let outcome = run_plan(plan, bug, false);
        outcome.violation.is_some_and(|found| found.checker == checker)
    };
    let mut best = plan;
    let mut is_smaller = true;
    while is_smaller {
        is_smaller = false;
        for smaller in best.smaller() {
            if shows(&smaller) {
                best = smaller;
                is_smaller = true;
                break;
            }
        }
    }
    run_plan(&best, bug, true).violation
}

/// Runs many seeds on that many threads and passes each outcome to `progress`, until that
/// returns `false`.
pub fn run_many(
    seeds: std::ops::Range<u64>,
    options: &Options,
    threads: usize,
    mut progress: impl FnMut(RunOutcome) -> bool,
) {
    let next = AtomicU64::new(seeds.start);
    let is_stopped = AtomicBool::new(false);
    let (sender, receiver) = mpsc::sync_channel(threads.max(1) * 4);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, is_stopped) = (sender.clone(), &next, &is_stopped);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || is_stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    if sender.send(run(seed, options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for outcome in receiver {
            if !progress(outcome) {
                is_stopped.store(true, Ordering::Relaxed);
                return;
            }
        }
    });
}
