//! A group of namenodes: the replica machine of `core` in simulated shells, under faults.
//!
//! It is a world of its own, because what can go wrong between members needs thousands of elections
//! and not a namespace. The log's rounds are numbers.

mod caller;
mod check;
mod disk;
mod host;
mod lives;
mod operator;
mod preempted;
mod rounds;
mod scenario;
mod world;

pub use preempted::{GroupPreemption, GroupTrace, GroupTraceOutcome, run_group_trace};

use crate::{InjectedBug, RunOutcome, Statistics, Violation};

/// Simulates the group of namenodes that `seed` determines, with an injected bug if one is given,
/// and returns what the checkers found. `keep_events` keeps the events of the run.
#[must_use]
pub fn run_group(seed: u64, bug: Option<InjectedBug>, keep_events: bool) -> RunOutcome {
    let (violation, log, counts) = world::GroupWorld::new(seed, bug, keep_events).run();
    let digest = log.digest();
    let events = log.into_lines();
    let violation =
        violation.map(|(checker, message)| Violation { checker, message, events: events.clone() });
    let statistics = Statistics {
        events: counts.events,
        kills: counts.kills,
        notices: counts.notices,
        elections: counts.elections,
        rounds: counts.rounds,
        lease_reads: counts.lease_reads,
        group_calls: counts.calls,
        checks: counts.checks,
        ..Statistics::default()
    };
    RunOutcome { seed, violation, statistics, digest, events }
}
