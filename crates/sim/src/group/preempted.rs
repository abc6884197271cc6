//! A group whose machines a trace of preemptions takes, and what its callers lose by that.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::{MemberId, Millis};

use super::disk::AppliedState;
use super::scenario::GroupScenario;
use super::world::{GroupEvent, GroupWorld};

/// Time without an acknowledged change from which on the group counts as unavailable: changes are
/// proposed every 5 ms on average, and an idle group acknowledges each within a few.
const GAP_MICROS_MIN: u64 = 50_000;

/// Time after the last event in which the group comes to rest. As long as a run without a trace has
/// after the faults (`RUN_END`): several elections and a snapshot.
const REST_MICROS: u64 = 4_000_000;

/// When a member's place of the fleet gets a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPreemption {
    /// Since the start.
    pub at: Millis,
    /// The place of the fleet.
    pub slot: u32,
}

/// A fleet with namenodes on some of its machines.
#[derive(Debug, Clone)]
pub struct GroupTrace {
    /// Namenodes that vote. They run on the first places.
    pub voters: u32,
    /// Namenodes beside them, on the next places.
    pub spares: u32,
    /// When which place gets its notice.
    pub preemptions: Vec<GroupPreemption>,
    /// Time from a notice to the end of the machine.
    pub notice: Millis,
    /// Time from there to the start of its replacement.
    pub replace: Millis,
}

/// What came of a run of a group over a trace: how often it changed, and how long it acknowledged
/// nothing. Times are virtual. Unless a promise was broken, nothing is lost and there is no
/// violation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupTraceOutcome {
    /// Notices of machines with a namenode.
    pub preempted: u64,
    /// Elections, transfers of the leadership included.
    pub elections: u64,
    /// Changes that callers have an acknowledgement of.
    pub acknowledged: u64,
    /// Of those, changes that the group does not have in the end.
    pub lost: u64,
    /// Time in gaps without an acknowledged change that are longer than 50 ms, in all.
    pub unavailable: Millis,
    /// The longest of them.
    pub longest: Millis,
    /// What a checker has found wrong.
    pub violation: Option<String>,
}

/// The machines of a trace, and when callers got acknowledgements.
#[derive(Debug)]
pub(super) struct TracedFleet {
    trace: GroupTrace,
    /// The places whose machine runs no member yet.
    free: BTreeSet<u32>,
    places: BTreeMap<MemberId, u32>,
    acknowledged_at: u64,
    outcome: GroupTraceOutcome,
}

impl TracedFleet {
    fn new(trace: GroupTrace) -> Self {
        let (voters, spares) = (trace.voters, trace.spares);
        let places = (0..voters).map(|slot| (MemberId(u64::from(slot) + 1), slot)).collect();
        let free = (voters..voters + spares).collect();
        let outcome = GroupTraceOutcome::default();
        // The first round is proposed then.
        Self { trace, free, places, acknowledged_at: 400_000, outcome }
    }

    pub(super) fn has_machine(&self) -> bool {
        !self.free.is_empty()
    }

    /// Gives a member that was added a machine.
    pub(super) fn place(&mut self, id: MemberId) {
        if let Some(slot) = self.free.pop_first() {
            self.places.insert(id, slot);
        }
    }

    pub(super) fn acknowledged(&mut self, now: u64) {
        let gap = now.saturating_sub(self.acknowledged_at);
        if gap > GAP_MICROS_MIN {
            let gap = Millis(gap / 1000);
            self.outcome.unavailable = Millis(self.outcome.unavailable.0 + gap.0);
            self.outcome.longest = self.outcome.longest.max(gap);
        }
        self.acknowledged_at = now;
    }
}

/// Runs a group whose machines a trace takes. The same seed gives the same run.
#[must_use]
pub fn run_group_trace(trace: GroupTrace, seed: u64) -> GroupTraceOutcome {
    let scenario = traced(&trace, seed, REST_MICROS);
    let end = scenario.run_end - REST_MICROS;
    let preemptions = trace.preemptions.clone();
    let mut world = GroupWorld::of(scenario, None, false);
    world.traced = Some(TracedFleet::new(trace));
    for one in preemptions {
        world.at(one.at.0 * 1000, GroupEvent::Preempt { slot: one.slot });
    }
    world.run_traced(end)
}

/// Returns the scenario of a group in which nothing fails but what a trace takes. The run goes
/// on for `rest` microseconds after the last event.
fn traced(trace: &GroupTrace, seed: u64, rest: u64) -> GroupScenario {
    let last = trace.preemptions.iter().map(|one| one.at.0).max().unwrap_or(0);
    GroupScenario {
        voters: u64::from(trace.voters),
        spares: trace.spares as usize,
        is_synced: true,
        has_steps: false,
        // As the product's.
        election_ticks: 20,
        loss_permille: 0,
        duplicate_permille: 0,
        late_permille: 0,
        delay_micros_max: 1000,
        write_micros_max: 5000,
        retained_bytes_max: 1 << 20,
        round_micros: 5000,
        faults: Vec::new(),
        has_lives: false,
        run_end: (last + trace.notice.0 + trace.replace.0) * 1000 + rest,
        hosts_max: usize::MAX,
        ..GroupScenario::new(seed)
    }
}

impl GroupWorld {
    /// A place of the fleet gets its notice.
    pub(super) fn preempt(&mut self, slot: u32) {
        let Some(fleet) = &mut self.traced else { return };
        let (notice, replace) = (fleet.trace.notice.0 * 1000, fleet.trace.replace.0 * 1000);
        fleet.free.remove(&slot);
        let member = fleet.places.iter().find(|(_, place)| **place == slot).map(|(id, _)| *id);
        if slot < fleet.trace.voters + fleet.trace.spares {
            let back = GroupEvent::Replaced { slot };
            self.at(self.now + notice + replace, back);
        }
        let Some(id) = member else { return };
        if let Some(fleet) = &mut self.traced {
            fleet.places.remove(&id);
            fleet.outcome.preempted += 1;
        }
        let at = self.hosts.iter().position(|host| host.id == id && !host.is_gone);
        if let Some(at) = at {
            self.notice(at, self.now + notice);
        }
    }

    /// A new machine is there for a place of the fleet.
    pub(super) fn replaced(&mut self, slot: u32) {
        if let Some(fleet) = &mut self.traced {
            fleet.free.insert(slot);
        }
    }

    fn run_traced(mut self, end: u64) -> GroupTraceOutcome {
        self.play();
        let mut fleet = self.traced.take().expect("it was set");
        // A group that stopped was unavailable to the end.
        fleet.acknowledged(end.max(fleet.acknowledged_at));
        if self.checks.violation.is_none() {
            self.checks.end();
        }
        let running = self.hosts.iter().filter(|host| !host.is_gone);
        let last = running.max_by_key(|host| (host.is_serving(), host.state.place.index));
        let kept = last.map(|host| &host.state).cloned().unwrap_or_else(AppliedState::default);
        let kept: BTreeSet<u64> = kept.rounds.into_iter().collect();
        let violation = self.checks.violation.as_ref().map(|(name, why)| format!("{name}: {why}"));
        GroupTraceOutcome {
            elections: self.counts.elections,
            acknowledged: self.checks.acknowledged().count() as u64,
            lost: self.checks.acknowledged().filter(|round| !kept.contains(round)).count() as u64,
            violation,
            ..fleet.outcome
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(spares: u32, preemptions: &[(u64, u32)]) -> GroupTrace {
        let preemptions = preemptions.iter();
        let preemptions =
            preemptions.map(|(at, slot)| GroupPreemption { at: Millis(*at), slot: *slot });
        let (notice, replace) = (Millis(4000), Millis(2000));
        GroupTrace { voters: 3, spares, preemptions: preemptions.collect(), notice, replace }
    }

    #[test]
    fn members_are_taken_one_after_the_other_and_nothing_is_lost() {
        let trace = trace(1, &[(2000, 0), (9000, 1), (16_000, 2), (23_000, 3), (30_000, 0)]);
        for seed in 0..2 {
            let outcome = run_group_trace(trace.clone(), seed);
            assert_eq!((outcome.lost, outcome.violation.as_deref()), (0, None), "{outcome:?}");
            assert_eq!(outcome.preempted, 5, "{outcome:?}");
            assert!(outcome.acknowledged > 1000, "{outcome:?}");
            assert!(outcome.longest < Millis(1000), "{outcome:?}");
            assert_eq!(outcome, run_group_trace(trace.clone(), seed), "the same seed");
        }
    }

    /// A group that is taken at once answers no more: the measure can fail.
    #[test]
    fn group_that_is_taken_at_once_is_unavailable_until_the_end() {
        let trace = trace(0, &[(2000, 0), (2000, 1), (2000, 2), (20_000, 3)]);
        let outcome = run_group_trace(trace, 1);
        assert!(outcome.longest > Millis(5000), "{outcome:?}");
    }
}
