//! When which machine of the fleet is taken: drawn from a preemption model, the same for every
//! policy of a round.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sanderling_core::preemption::Model;
use sanderling_protocol::split_mix::SplitMix64;

/// A replacement serves at least this long before its own notice, so that each notice meets a node
/// with data. Chosen, not measured.
const SERVE_MIN: Duration = Duration::from_secs(2);

/// Draws that are tried until one has notices enough: they take well under a second. Chosen, not
/// measured.
const DRAWS_MAX: u64 = 10_000;

/// One preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Preemption {
    /// When the notice comes, from the start of the work.
    pub(crate) at: Duration,
    /// The place of the fleet.
    pub(crate) slot: u32,
}

/// What a trace must fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TraceBounds {
    /// Places of the fleet.
    pub(crate) slots: u32,
    /// No notice comes later.
    pub(crate) horizon: Duration,
    /// Time from a notice to the end of the machine.
    pub(crate) notice: Duration,
    /// Time from there to the start of its replacement.
    pub(crate) replace: Duration,
    /// Machines that may leave at a time; one more waits, as room would be missing for its data.
    pub(crate) overlap_max: usize,
    /// So many notices have to come before `busy`: a run without any would measure nothing.
    pub(crate) notices_min: usize,
    /// Until when they have to come.
    pub(crate) busy: Duration,
}

/// Draws the first trace, from this seed's on, that has notices enough.
#[must_use]
pub(crate) fn draw(model: &Model, shape: &TraceBounds, seed: u64) -> Vec<Preemption> {
    let mut seeds = Chance::new(seed);
    let draws = (0..DRAWS_MAX).map(|_| draw_any(model, shape, seeds.next()));
    let mut last = Vec::new();
    for trace in draws {
        if trace.iter().filter(|one| one.at <= shape.busy).count() >= shape.notices_min {
            return trace;
        }
        last = trace;
    }
    last
}

/// Draws a trace for a fleet that is new at its beginning, as the machines of Brodmann et al.'s
/// experiments were. `model` runs in the lab's time.
fn draw_any(model: &Model, shape: &TraceBounds, seed: u64) -> Vec<Preemption> {
    let mut chance = Chance::new(seed);
    let mut life = || Duration::from_millis(model.sample(chance.next()).0);
    let mut wanted: BinaryHeap<Reverse<(Duration, u32)>> = BinaryHeap::new();
    for slot in 0..shape.slots {
        wanted.push(Reverse((life().saturating_sub(shape.notice), slot)));
    }
    let mut ends: Vec<Duration> = Vec::new();
    let mut trace = Vec::new();
    while let Some(Reverse((want, slot))) = wanted.pop() {
        let room = ends.len().checked_sub(shape.overlap_max).map_or(Duration::ZERO, |at| ends[at]);
        let at = want.max(room);
        if at > shape.horizon {
            continue;
        }
        trace.push(Preemption { at, slot });
        let gone = at + shape.notice + shape.replace;
        ends.push(gone);
        ends.sort_unstable();
        let lived = life().saturating_sub(shape.notice).max(SERVE_MIN);
        wanted.push(Reverse((gone.saturating_add(lived), slot)));
    }
    trace.sort_unstable();
    trace
}

/// A seeded sequence of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Chance(SplitMix64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns the next number, uniform over 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Returns a number below `end`, which is far below 2^32.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((self.next() >> 32) * end) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> TraceBounds {
        TraceBounds {
            slots: 8,
            horizon: Duration::from_secs(60),
            notice: Duration::from_secs(4),
            replace: Duration::from_secs(1),
            overlap_max: 2,
            notices_min: 2,
            busy: Duration::from_secs(30),
        }
    }

    fn model() -> Model {
        let spec = "exponential:mean=20s".parse().expect("a model");
        Model::load(&spec, |_| Err("no file")).expect("needs no file")
    }

    #[test]
    fn trace_is_the_same_for_the_same_seed() {
        assert_eq!(draw(&model(), &shape(), 7), draw(&model(), &shape(), 7));
        assert_ne!(draw(&model(), &shape(), 7), draw(&model(), &shape(), 8));
    }

    #[test]
    fn no_more_machines_leave_at_a_time_than_allowed_and_none_twice() {
        let shape = shape();
        let away = shape.notice + shape.replace;
        for seed in 0..50 {
            let trace = draw(&model(), &shape, seed);
            assert!(trace.iter().filter(|one| one.at <= shape.busy).count() >= 2);
            assert!(trace.len() > 5, "eight machines of 20 s each end within a minute");
            for (index, one) in trace.iter().enumerate() {
                let leaving = trace[..index].iter().filter(|other| other.at + away > one.at);
                assert!(leaving.clone().count() < shape.overlap_max, "seed {seed}: {trace:?}");
                assert!(leaving.clone().all(|other| other.slot != one.slot));
            }
        }
    }
}
