//! The intervals that a preemption model finds best, by the machine's age.

use sanderling_protocol::Millis;

use super::interval::{INTERVAL_MIN, young_daly};
use crate::preemption::{Model, Shape};

/// Steps into which the ages of a machine are divided: 43 s for machines that live for a day. Finer
/// than the intervals that it finds, which have minutes for a dump of some seconds. Chosen, not
/// measured.
const STEPS: usize = 2000;

/// Ratio between two intervals that are compared. Near the optimum the work that is kept changes by
/// the square of an interval's error, so 5 % lose about 0.1 % of the overhead.
const RATIO: f64 = 1.05;

/// The intervals with which a machine is expected to keep most work, by its age.
///
/// A machine is used until it ends, whatever the interval, so the best intervals are those with
/// which most of its work is kept. A machine of age `a` that works for `t` and dumps for `d` keeps
/// `t` if it lives so long, with the probability `S(t + d | a)`, and then goes on at the age
/// `a + t + d`. So the work that it is expected to keep is
///
/// `W(a) = max over t of S(t + d | a) (t + W(a + t + d))`
///
/// which is computed from the last age down (Bellman; Kadupitiya, Jadhao and Sharma, HPDC 2020,
/// section 4.3, do so for a task of a known length). Without memory it is Daly's estimate at every
/// age. Under a bathtub the interval is short for a new machine and long in its middle age.
#[derive(Debug, Clone)]
pub struct AgedIntervals {
    /// The length of a step; zero where the interval is the same at every age.
    step: f64,
    /// By step, milliseconds.
    intervals: Vec<Millis>,
    /// How long the dumps take for which they were computed.
    dump: Millis,
}

impl AgedIntervals {
    /// Computes the intervals in milliseconds for dumps that take `dump` milliseconds, on machines
    /// that live by the model. It costs up to 2,000 steps times the intervals that are compared.
    #[must_use]
    pub fn of(model: &Model, dump: Millis) -> Self {
        if matches!(model.shape(), Shape::Exponential(_)) {
            let same = young_daly(dump, model.expected_life(Millis(0))).max(INTERVAL_MIN);
            return Self { step: 0.0, intervals: vec![same], dump };
        }
        // Every other model has an age that no machine exceeds.
        let last = model.sample(u64::MAX).0.max(1) as f64;
        let step = last / STEPS as f64;
        let alive: Vec<f64> =
            (0..=STEPS).map(|at| 1.0 - model.cdf(Millis((at as f64 * step) as u64))).collect();
        let mut kept = vec![0.0; STEPS + 1];
        let mut intervals = vec![INTERVAL_MIN; STEPS + 1];
        for at in (0..STEPS).rev() {
            for work in candidates(last) {
                let steps = (work + dump.0 as f64) / step;
                let Some(lives) = share_alive(&alive, at, steps) else { break };
                let value = lives * (work + value_after(&kept, at, steps));
                if value > kept[at] {
                    (kept[at], intervals[at]) = (value, Millis(work.round() as u64));
                }
            }
        }
        Self { step, intervals, dump }
    }

    /// Returns whether the intervals hold for dumps that take so long: within a tenth, by which
    /// measured times differ anyway. Otherwise they are computed anew.
    #[must_use]
    pub const fn hold_for(&self, dump: Millis) -> bool {
        self.dump.0.abs_diff(dump.0) * 10 <= self.dump.0
    }

    /// Returns the interval for a machine of that age. One that the model gives no more time dumps
    /// as often as allowed.
    #[must_use]
    pub fn at(&self, age: Millis) -> Millis {
        let at = if self.step > 0.0 { (age.0 as f64 / self.step) as usize } else { 0 };
        self.intervals.get(at).copied().unwrap_or(INTERVAL_MIN)
    }
}

fn candidates(last: f64) -> impl Iterator<Item = f64> {
    let first = INTERVAL_MIN.0 as f64;
    std::iter::successors(Some(first), |it| Some(it * RATIO)).take_while(move |it| *it <= last)
}

/// Returns the share of machines that live so many steps longer, of those that are alive at a
/// step; `None` where none does.
fn share_alive(alive: &[f64], at: usize, steps: f64) -> Option<f64> {
    let end = at as f64 + steps;
    let (whole, part) = (end.floor() as usize, end.fract());
    let low = alive.get(whole).copied().filter(|it| *it > 0.0)?;
    let high = alive.get(whole + 1).copied().unwrap_or(0.0);
    (alive[at] > 0.0).then(|| (low + (high - low) * part) / alive[at])
}

/// Returns the work that is kept after so many further steps, from the steps behind `at`.
fn value_after(kept: &[f64], at: usize, steps: f64) -> f64 {
    let end = at as f64 + steps;
    // Within the same step, the line through the next two goes on.
    let base = (end.floor() as usize).max(at + 1);
    let value = |index: usize| kept.get(index).copied().unwrap_or(0.0);
    value(base) + (end - base as f64) * (value(base + 1) - value(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;
    const DUMP: Millis = Millis(56_000);

    fn model(spec: &str) -> Model {
        Model::load(&spec.parse().expect("a model"), |_| Err("no file")).expect("needs no file")
    }

    #[test]
    fn intervals_without_memory_are_dalys_at_every_age() {
        let intervals = AgedIntervals::of(&model("exponential:mean=12h"), DUMP);
        let daly = young_daly(DUMP, Millis(12 * HOUR));
        assert!([0, 1, 20, 100].iter().all(|age| intervals.at(Millis(age * HOUR)) == daly));
    }

    #[test]
    fn interval_is_short_for_a_new_machine_and_long_in_its_middle_age() {
        let intervals = AgedIntervals::of(&model("bathtub:typical"), DUMP);
        let at = |hours: u64| intervals.at(Millis(hours * HOUR)).0;
        assert!(at(8) > 4 * at(0), "{} {}", at(0), at(8));
        assert!(at(23) < at(8), "{} {}", at(8), at(23));
        // A new machine ends at 0.45 an hour: that is Young's sqrt(2 d / hazard), within a third.
        let young = (2.0 * 56.0 * 3600.0 / 0.45_f64).sqrt() * 1000.0;
        assert!((0.67..1.5).contains(&(at(0) as f64 / young)), "{} {young}", at(0));
    }

    #[test]
    fn machine_beyond_its_limit_dumps_as_often_as_allowed() {
        let intervals = AgedIntervals::of(&model("bathtub:typical"), DUMP);
        assert_eq!(intervals.at(Millis(25 * HOUR)), INTERVAL_MIN);
    }

    #[test]
    fn dump_that_no_machine_lives_through_is_no_reason_to_fail() {
        let intervals = AgedIntervals::of(&model("bathtub:typical"), Millis(48 * HOUR));
        assert_eq!(intervals.at(Millis(0)), INTERVAL_MIN);
        let fast = AgedIntervals::of(&model("bathtub:typical,speed=1000000"), Millis(0));
        assert_eq!(fast.at(Millis(0)), INTERVAL_MIN);
    }
}
