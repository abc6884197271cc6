//! How long a task works between two dumps: as it was given, or as machines end.

use sanderling_protocol::Millis;

use super::interval::DumpTimes;
use super::optimum::AgedIntervals;
use crate::preemption::Model;

/// The rule by which a runner chooses the time between two dumps.
#[derive(Debug, Clone)]
pub enum DumpInterval {
    /// It was given.
    Fixed(Millis),
    /// By Young's and Daly's estimate, for machines that live so long in the mean.
    MeanLife(Millis),
    /// By a model, for the machine's age.
    Lives(MachineLives),
}

/// The model of how long machines live, and the intervals between dumps that follow from it.
#[derive(Debug, Clone)]
pub struct MachineLives {
    model: Model,
    computed: Option<AgedIntervals>,
}

impl MachineLives {
    /// Returns the intervals of machines that live by a model. They are computed at the first dump,
    /// and again when dumps take much longer or shorter.
    #[must_use]
    pub const fn new(model: Model) -> Self {
        Self { model, computed: None }
    }

    /// Returns the interval on a machine of this age, for dumps that take so long.
    fn interval(&mut self, dump: Millis, age: Millis) -> Millis {
        let held = self.computed.take().filter(|it| it.hold_for(dump));
        let intervals = held.unwrap_or_else(|| AgedIntervals::of(&self.model, dump));
        self.computed.insert(intervals).at(age)
    }
}

impl DumpInterval {
    /// Returns the time until the next dump of a task whose dumps took so long, on a machine of
    /// this age.
    pub fn after(&mut self, times: &DumpTimes, machine_age: Millis) -> Millis {
        match self {
            Self::Fixed(span) => *span,
            Self::MeanLife(life) => times.interval(*life),
            Self::Lives(lives) => lives.interval(times.expected(), machine_age),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::young_daly;

    const HOUR: Millis = Millis(3_600_000);

    fn times(took: u64) -> DumpTimes {
        let mut times = DumpTimes::default();
        times.add(Millis(took), false);
        times
    }

    #[test]
    fn given_interval_depends_on_nothing() {
        let mut interval = DumpInterval::Fixed(Millis(100));
        assert_eq!(interval.after(&times(60_000), HOUR), Millis(100));
    }

    #[test]
    fn interval_follows_from_dumps_and_from_how_machines_end() {
        let mut mean = DumpInterval::MeanLife(HOUR);
        let spec = "exponential:mean=1h";
        let model = Model::load(&spec.parse().expect("a model"), |_| Err("no file"));
        let model = model.expect("needs no file");
        let mut lives = DumpInterval::Lives(MachineLives::new(model));
        // Without memory both are the same, also after dumps that take longer.
        for took in [2000, 2100, 30_000, 2000] {
            let interval = mean.after(&times(took), Millis(0));
            assert_eq!(interval, young_daly(Millis(took), HOUR));
            let computed = lives.after(&times(took), HOUR);
            let apart = computed.0.abs_diff(interval.0);
            assert!(apart * 20 <= interval.0, "{took}: {computed:?} and {interval:?}");
        }
    }
}
