//! How long a task runs between two checkpoints.

use sanderling_protocol::Millis;

/// Dumps whose times count. An odd number has a median, and one dump that was disturbed does not
/// count; a state that grows shows within three. Chosen, not measured.
const MEASURED_MAX: usize = 5;

/// The time that the first dump is expected to take, before one was measured. Chosen, not measured:
/// a wrong one costs the first interval only.
const FIRST: Millis = Millis(1000);

/// The shortest interval: below it a task would do little but write its state. A dump takes half a
/// second beside its bytes (`BESIDE` of `forecast`).
pub(super) const INTERVAL_MIN: Millis = Millis(1000);

/// The durations of the last dumps of a task.
///
/// The first dump of a task stores its whole state, a later one what is new since the last. So a
/// whole dump counts only while no other was measured.
#[derive(Debug, Clone, Default)]
pub struct DumpTimes(Vec<DumpTime>);

/// How long one dump took.
#[derive(Debug, Clone, Copy)]
struct DumpTime {
    took: Millis,
    is_whole: bool,
}

impl DumpTimes {
    /// Adds the time that a dump took, and whether there was no generation before it, so that it
    /// stored the whole state. Only the last few dumps count.
    pub fn add(&mut self, took: Millis, is_whole: bool) {
        if self.0.len() == MEASURED_MAX {
            self.0.remove(0);
        }
        self.0.push(DumpTime { took, is_whole });
    }

    /// Returns the times that count, in ascending order.
    fn sorted(&self) -> Vec<Millis> {
        let is_all_whole = self.0.iter().all(|it| it.is_whole);
        let those = self.0.iter().filter(|it| is_all_whole || !it.is_whole);
        let mut sorted: Vec<Millis> = those.map(|it| it.took).collect();
        sorted.sort_unstable();
        sorted
    }

    /// Returns the median of the last dumps; an assumption before the first one.
    #[must_use]
    pub fn expected(&self) -> Millis {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or(FIRST)
    }

    /// Returns the longest of the last dumps; `None` before the first one.
    #[must_use]
    pub fn slowest(&self) -> Option<Millis> {
        self.sorted().pop()
    }

    /// Returns the interval that costs least on machines that live so long in the mean.
    #[must_use]
    pub fn interval(&self, mean_life: Millis) -> Millis {
        young_daly(self.expected(), mean_life).max(INTERVAL_MIN)
    }
}

/// Returns the time of work between two dumps that loses least: Daly's higher-order estimate of the
/// optimum (2006), whose first term is Young's (1974).
///
/// It holds for failures that come at any time alike, as with exponential lifetimes.
#[must_use]
pub fn young_daly(dump: Millis, mean_life: Millis) -> Millis {
    let (dump, life) = (dump.0 as f64, mean_life.0 as f64);
    if dump >= 2.0 * life {
        return mean_life;
    }
    let ratio = dump / (2.0 * life);
    let interval = (2.0 * dump * life).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - dump;
    Millis(interval.max(0.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_near_the_square_root() {
        let hour = Millis(3_600_000);
        // sqrt(2 * 10 s * 3600 s) is 268.3 s; Daly's terms make 3.3 s and the dump less 10 s.
        let daly = young_daly(Millis(10_000), hour);
        assert!((261_000..262_500).contains(&daly.0), "{daly:?}");
        assert_eq!(young_daly(Millis(8_000_000), hour), hour);
        assert_eq!(young_daly(Millis(0), hour), Millis(0));
    }

    #[test]
    fn interval_is_the_cheapest_of_its_neighbours() {
        // Expected time per second of work (Daly's complete model): M e^(R/M) (e^((t+d)/M) - 1)/t.
        let (dump, life) = (30.0_f64, 7200.0_f64);
        let cost = |work: f64| life * (((work + dump) / life).exp() - 1.0) / work;
        let best = young_daly(Millis(30_000), Millis(7_200_000)).0 as f64 / 1000.0;
        assert!(cost(best) < cost(best * 1.05) && cost(best) < cost(best * 0.95));
    }

    #[test]
    fn median_of_the_last_dumps_counts() {
        let mut times = DumpTimes::default();
        assert_eq!(times.expected(), FIRST);
        for took in [50_000, 100, 110, 120, 9000, 130] {
            times.add(Millis(took), false);
        }
        assert_eq!(times.expected(), Millis(120));
        assert!(DumpTimes::default().interval(Millis(0)) >= INTERVAL_MIN);
    }

    #[test]
    fn whole_dump_counts_until_another_one_was_measured() {
        let mut times = DumpTimes::default();
        times.add(Millis(9000), true);
        assert_eq!((times.expected(), times.slowest()), (Millis(9000), Some(Millis(9000))));
        times.add(Millis(100), false);
        assert_eq!((times.expected(), times.slowest()), (Millis(100), Some(Millis(100))));
        // A policy that stores the whole state each time.
        let mut times = DumpTimes::default();
        times.add(Millis(9000), true);
        times.add(Millis(8000), true);
        assert_eq!(times.slowest(), Some(Millis(9000)));
    }
}
