//! A task on machines that are taken, played with a policy of checkpoints: what a run costs.

use sanderling_protocol::Millis;

use super::interval::{INTERVAL_MIN, young_daly};
use super::optimum::AgedIntervals;
use crate::preemption::Model;

/// Machines after which a run counts as one that never ends. A task that needs so many of a day
/// each would take 27 years.
const MACHINES_MAX: u32 = 10_000;

/// A task, as far as a replay needs it: what it computes, and what its dumps and starts take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayedTask {
    /// How long it computes without a checkpoint and without a failure.
    pub work: Millis,
    /// How long a dump takes; the task waits meanwhile.
    pub dump: Millis,
    /// How long a machine takes from its start until the task goes on, the reading of a checkpoint
    /// included.
    pub launch: Millis,
}

/// The rule by which a replayed task chooses the time between two dumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalPolicy {
    /// After each interval, whatever the machine.
    Fixed(Millis),
    /// By Young's and Daly's estimate from the model's mean life.
    YoungDaly,
    /// By the model, for the machine's age ([`AgedIntervals`]).
    Optimum,
}

/// The time and the machines that one replayed run of a task took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayedRun {
    /// From the first launch to the end of the task, or until the replay gave up.
    pub elapsed: Millis,
    /// Time in dumps that were finished.
    pub dumped: Millis,
    /// Work, and time in unfinished dumps, that was lost with machines.
    pub lost: Millis,
    /// Time in which machines were launched.
    pub launched: Millis,
    /// Machines that the run used.
    pub machines: u32,
    /// Whether the task ended.
    pub is_finished: bool,
}

/// Plays runs of a task with one policy of checkpoints, on machines that live by one model.
#[derive(Debug)]
pub struct Replay<'a> {
    model: &'a Model,
    task: ReplayedTask,
    interval: PlayedInterval,
}

/// The interval of a policy under a model.
#[derive(Debug)]
pub(super) enum PlayedInterval {
    Same(Millis),
    ByAge(AgedIntervals),
}

impl PlayedInterval {
    /// Returns the interval of a policy for dumps that take so long.
    pub(super) fn of(model: &Model, policy: IntervalPolicy, dump: Millis) -> Self {
        match policy {
            IntervalPolicy::Fixed(interval) => Self::Same(interval),
            IntervalPolicy::YoungDaly => {
                Self::Same(young_daly(dump, model.expected_life(Millis(0))))
            }
            IntervalPolicy::Optimum => Self::ByAge(AgedIntervals::of(model, dump)),
        }
    }

    /// Returns the interval on a machine of this age: a second at least.
    pub(super) fn at(&self, age: Millis) -> Millis {
        match self {
            Self::Same(interval) => *interval,
            Self::ByAge(intervals) => intervals.at(age),
        }
        .max(INTERVAL_MIN)
    }
}

impl<'a> Replay<'a> {
    /// Returns a player of runs of one task, under a model of lifetimes and a policy of intervals.
    #[must_use]
    pub fn new(model: &'a Model, policy: IntervalPolicy, task: ReplayedTask) -> Self {
        Self { model, task, interval: PlayedInterval::of(model, policy, task.dump) }
    }

    /// Plays one run; `draw` gives a number that is uniform over 64 bits for each machine.
    pub fn run(&self, mut draw: impl FnMut() -> u64) -> ReplayedRun {
        let mut run = ReplayedRun::default();
        let mut left = self.task.work;
        while run.machines < MACHINES_MAX && !run.is_finished {
            run.machines += 1;
            let life = self.model.sample(draw());
            self.machine(life, &mut left, &mut run);
        }
        let parts = run.dumped.0 + run.lost.0 + run.launched.0 + (self.task.work.0 - left.0);
        debug_assert_eq!(parts, run.elapsed.0, "every part of the time is counted once");
        run
    }

    /// Plays one machine until its end or the task's.
    fn machine(&self, life: Millis, left: &mut Millis, run: &mut ReplayedRun) {
        let mut age = self.task.launch.min(life);
        run.launched.0 += age.0;
        run.elapsed.0 += age.0;
        while age < life && *left > Millis(0) {
            let work = self.interval.at(age).min(*left);
            // The end of a task needs no dump.
            let dump = if work == *left { Millis(0) } else { self.task.dump };
            let end = Millis(age.0 + work.0 + dump.0);
            if end > life {
                run.lost.0 += life.0 - age.0;
                run.elapsed.0 += life.0 - age.0;
                return;
            }
            run.dumped.0 += dump.0;
            run.elapsed.0 += end.0 - age.0;
            left.0 -= work.0;
            age = end;
        }
        run.is_finished = *left == Millis(0);
    }
}

/// Returns the fixed interval of HADS: as many dumps of equal distance as take a tenth of the run
/// without them (Teylo, Brum, Arantes, Sens and Drummond, "Developing Checkpointing and Recovery
/// Procedures with the Storage Services of Amazon Web Services", 2020; the number is that of its
/// public code). A task that is too short for one dump gets none.
#[must_use]
pub fn hads_interval(work: Millis, dump: Millis) -> Millis {
    let dumps = work.0 / 10 / dump.0.max(1);
    Millis(work.0 / dumps.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Draw;
    use crate::preemption::{Bathtub, FleetModel, Lifetimes, Shape, Trace};

    const HOUR: u64 = 3_600_000;

    /// The mean life of a machine of which `task run --interval auto` is not given another one
    /// (`--mean-life`).
    const MEAN_LIFE: Millis = Millis(4 * HOUR);

    fn model(spec: &str) -> Model {
        Model::load(&spec.parse().expect("a model"), |_| Err("no file")).expect("needs no file")
    }

    /// Returns models of all kinds with their names: each fit of the bathtub, exponentials, and
    /// lifetimes that were recorded alone or in a trace.
    fn models() -> Vec<(String, Model)> {
        let bathtubs = Bathtub::preset_names().map(|name| format!("bathtub:{name}"));
        let means = ["4h", "12h", "24h"].map(|mean| format!("exponential:mean={mean}"));
        let mut models: Vec<(String, Model)> =
            bathtubs.chain(means).map(|spec| (spec.clone(), model(&spec))).collect();
        let (typical, mut draw) = (model("bathtub:typical"), Draw::new(7));
        let ended: Vec<Millis> = (0..500).map(|_| typical.sample(draw.next())).collect();
        let recorded = Lifetimes::new(&ended, &[]).expect("all have ended");
        models.push(("lifetimes".to_owned(), Shape::Lifetimes(recorded).into()));
        let fleet = FleetModel {
            slots: 50,
            horizon: Millis(96 * HOUR),
            notice: Millis(30_000),
            back_after: Millis(120_000),
        };
        let trace = Trace::draw(&model("bathtub:n1-highcpu-16"), &fleet, 7);
        let traced = trace.lifetimes().expect("machines have ended");
        models.push(("trace".to_owned(), Shape::Lifetimes(traced).into()));
        models
    }

    /// Returns the mean of what 1,000 runs lost or dumped, in milliseconds.
    fn waste(model: &Model, policy: IntervalPolicy, task: ReplayedTask) -> f64 {
        let replay = Replay::new(model, policy, task);
        let mut sum = 0.0;
        for seed in 0..1000 {
            let mut draw = Draw::new(seed);
            let run = replay.run(|| draw.next());
            assert!(run.is_finished);
            sum += (run.dumped.0 + run.lost.0) as f64;
        }
        sum / 1000.0
    }

    const TASK: ReplayedTask =
        ReplayedTask { work: Millis(10 * HOUR), dump: Millis(56_000), launch: Millis(60_000) };

    #[test]
    fn steady_machine_pays_for_its_dumps_alone() {
        let model = model("exponential:mean=1000000h");
        let policy = IntervalPolicy::Fixed(Millis(HOUR));
        let run = Replay::new(&model, policy, TASK).run(|| u64::MAX);
        assert!(run.is_finished && run.machines == 1 && run.lost == Millis(0));
        // Nine dumps between ten hours of work.
        assert_eq!(run.dumped, Millis(9 * 56_000));
        assert_eq!(run.elapsed.0, 10 * HOUR + 60_000 + 9 * 56_000);
    }

    #[test]
    fn lost_work_is_done_again() {
        // The machine of a small draw lives for less than the first interval, that of a large one
        // to the limit.
        let model = model("bathtub:typical");
        let policy = IntervalPolicy::Fixed(Millis(2 * HOUR));
        let mut draws = [1_u64 << 62, u64::MAX].into_iter();
        let run = Replay::new(&model, policy, TASK).run(|| draws.next().unwrap());
        let life = model.sample(1 << 62);
        assert_eq!(run.machines, 2);
        assert_eq!(run.lost.0, life.0 - 60_000);
        assert_eq!(run.dumped.0, 4 * 56_000);
    }

    #[test]
    fn task_that_no_machine_carries_is_given_up() {
        let model = model("bathtub:typical");
        let task = ReplayedTask { work: Millis(30 * HOUR), ..TASK };
        let policy = IntervalPolicy::Fixed(Millis(30 * HOUR));
        let run = Replay::new(&model, policy, task).run(|| u64::MAX);
        assert!(!run.is_finished && run.machines == MACHINES_MAX);
    }

    #[test]
    fn optimum_wastes_less_than_the_fixed_interval_under_every_model() {
        let hads = IntervalPolicy::Fixed(hads_interval(TASK.work, TASK.dump));
        for spec in ["exponential:mean=12h", "bathtub:typical", "bathtub:n1-highcpu-16"] {
            let model = model(spec);
            let (fixed, ours) =
                (waste(&model, hads, TASK), waste(&model, IntervalPolicy::Optimum, TASK));
            assert!(ours < 0.9 * fixed, "{spec}: {ours} of {fixed}");
        }
    }

    /// What `task run --interval auto` has: the estimate from a mean life, that of the model or the
    /// default.
    #[test]
    fn estimate_is_never_dearer_than_the_fixed_interval_and_a_tenth_cheaper_under_bathtubs() {
        let hads = IntervalPolicy::Fixed(hads_interval(TASK.work, TASK.dump));
        let default = IntervalPolicy::Fixed(young_daly(TASK.dump, MEAN_LIFE));
        for (name, model) in models() {
            let fixed = waste(&model, hads, TASK);
            let most = if name.starts_with("bathtub:") { 0.9 * fixed } else { fixed };
            for policy in [IntervalPolicy::YoungDaly, default] {
                let ours = waste(&model, policy, TASK);
                assert!(ours <= most, "{name}, {policy:?}: {ours} ms, fixed {fixed} ms");
            }
        }
    }

    #[test]
    fn optimum_wastes_less_than_the_estimate_that_assumes_no_memory() {
        let model = model("bathtub:typical");
        let daly = waste(&model, IntervalPolicy::YoungDaly, TASK);
        let ours = waste(&model, IntervalPolicy::Optimum, TASK);
        assert!(ours < daly, "{ours} of {daly}");
    }

    #[test]
    fn fixed_interval_is_a_tenth_of_the_run() {
        assert_eq!(hads_interval(Millis(10 * HOUR), Millis(56_000)), Millis(562_500));
        assert_eq!(hads_interval(Millis(60_000), Millis(56_000)), Millis(60_000));
        assert_eq!(hads_interval(Millis(60_000), Millis(0)).0, 60_000 / 6000);
    }
}
