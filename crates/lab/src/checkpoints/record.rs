//! What was measured: each case of each round, and the medians.

use std::collections::BTreeMap;

use serde::Serialize;

use super::stage::kind_name;
use super::writer::WriterKind;
use crate::record::PolicyName;

/// The emulated stores: their names, and bytes per second, with which the times that the authors
/// published follow (7,750 MB in 55.80, 78.74 and 215.70 s). The fastest is the first.
pub(crate) const STORES: [(&str, f64); 3] =
    [("emulated EBS", 138.9e6), ("emulated EFS", 98.4e6), ("emulated S3", 35.9e6)];

/// The store that is an S3 server outside of the lab.
pub(crate) const REAL: &str = "real S3";

/// The authors' largest state in bytes, whose times are computed.
const LARGEST: u64 = 7_750_000_000;

/// Seconds of the notices whose content is computed: the shortest that clouds give (Google and
/// Azure), and that of Amazon.
const NOTICES: [u32; 2] = [30, 120];

/// The largest share of the baseline's that ours may have, of a run that goes into checkpoints. A
/// goal of docs/LAB.md.
pub(crate) const SHARE_GOAL: f64 = 1.0 / 3.0;

/// How far a forecast may be away from what it forecasts, as a part of it. A goal of docs/LAB.md.
pub(crate) const FORECAST_GOAL: f64 = 0.15;

/// The largest part of the first dump that the second one of a sparse writer may store. A goal of
/// docs/LAB.md: one chunk in a hundred has changed.
pub(crate) const SPARSE_GOAL: f64 = 0.03;

/// Most requests that write or list, of a dump and what copies it to the store, for each 8 MiB of
/// the state. A goal of docs/LAB.md: one for each part of an upload.
pub(crate) const REQUESTS_GOAL: f64 = 1.0;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Experiment {
    /// Dumps and restores of one task.
    Dump,
    /// Dumps of several tasks at once.
    Tasks,
    /// A task that runs to its end with checkpoints.
    Run,
    /// The same task, whose first runner is killed together with it in the middle of an interval.
    Recovery,
}

/// One case: what is measured, and of which policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Case {
    pub(crate) experiment: Experiment,
    /// The service whose rate the emulated store has, or the real one.
    pub(crate) store: &'static str,
    /// Bytes of each task's memory.
    pub(crate) bytes: u64,
    pub(crate) kind: WriterKind,
    pub(crate) tasks: u32,
    pub(crate) policy: PolicyName,
}

/// Quantities by name; their units are at the ends of the names.
pub(crate) type Quantities = BTreeMap<&'static str, f64>;

/// What one round measured of a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MeasuredSample {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) round: u32,
    pub(crate) values: Quantities,
}

/// Median, smallest and largest of the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// What all rounds measured of a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MeasuredRow {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) values: BTreeMap<&'static str, Spread>,
}

/// What follows from the rate of a row: not measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ComputedRow {
    pub(crate) store: &'static str,
    pub(crate) policy: PolicyName,
    /// Bytes of the state at which the rate was measured.
    pub(crate) measured_bytes: u64,
    /// Seconds until a state of 7,750 MB is published, and until the store has it.
    pub(crate) largest_published_seconds: f64,
    pub(crate) largest_stored_seconds: f64,
    /// For each notice: its seconds, and the bytes that are published and in the store by its end.
    pub(crate) notices: Vec<(u32, f64, f64)>,
}

/// Whether a goal was reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) goal: String,
    pub(crate) measured: String,
    pub(crate) is_reached: bool,
}

impl Case {
    /// Returns the rate of its store, in bytes per second; `None` of a real one.
    pub(crate) fn emulated_rate(&self) -> Option<f64> {
        STORES.iter().find(|(name, _)| *name == self.store).map(|(_, rate)| *rate)
    }

    /// Returns whether its dump is followed by a second one: with the fastest emulated store, and
    /// with a real one.
    pub(crate) fn has_second_dump(&self) -> bool {
        self.experiment == Experiment::Dump && [STORES[0].0, REAL].contains(&self.store)
    }

    /// Returns how people read it.
    pub(crate) fn name(&self) -> String {
        let (megabytes, store, policy) = (self.bytes / 1_000_000, self.store, self.policy);
        let kind = kind_name(self.kind);
        let what = match self.experiment {
            Experiment::Dump => "dump".to_owned(),
            Experiment::Tasks => format!("{} tasks at once", self.tasks),
            Experiment::Run => "run".to_owned(),
            Experiment::Recovery => "recovery".to_owned(),
        };
        format!("{what}, {kind}, {megabytes} MB, {store}, {policy}")
    }
}

impl MeasuredRow {
    /// Returns the median of a quantity that was measured.
    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        self.values.get(name).map(|it| it.median)
    }
}

/// Adds to what a recovery took how much that is over the same run without a kill. A recovery that
/// had to be longer than the runs of its round has none.
pub(crate) fn compare_with_run(
    values: &mut Quantities,
    (case, round): (Case, u32),
    samples: &[MeasuredSample],
) {
    let run = Case { experiment: Experiment::Run, ..case };
    let mut runs = samples.iter().filter(|it| it.case == run && it.round == round);
    let same = runs.find(|it| it.values.get("steps") == values.get("steps"));
    let elapsed = same.and_then(|it| it.values.get("elapsed_seconds")).copied();
    let own = values.get("elapsed_seconds").copied();
    if let (Experiment::Recovery, Some(run), Some(own)) = (case.experiment, elapsed, own) {
        values.insert("elapsed_over_run", own / run.max(1e-9));
    }
}

/// Returns the medians of all cases, in the order in which they were measured first.
pub(crate) fn rows(samples: &[MeasuredSample]) -> Vec<MeasuredRow> {
    let mut rows: Vec<MeasuredRow> = Vec::new();
    for sample in samples {
        if rows.iter().any(|row| row.case == sample.case) {
            continue;
        }
        let mut all: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for other in samples.iter().filter(|it| it.case == sample.case) {
            other.values.iter().for_each(|(name, it)| all.entry(name).or_default().push(*it));
        }
        let values = all.into_iter().map(|(name, values)| (name, spread(values))).collect();
        rows.push(MeasuredRow { case: sample.case, values });
    }
    rows
}

fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    };
    Spread { median, least: values[0], most: values[values.len() - 1] }
}

/// Computes what the rates of the largest measured states mean for larger ones.
pub(crate) fn computed(rows: &[MeasuredRow]) -> Vec<ComputedRow> {
    let is_whole = |row: &&MeasuredRow| {
        row.case.experiment == Experiment::Dump && row.case.kind == WriterKind::Dense
    };
    let largest = rows.iter().filter(is_whole).map(|row| row.case.bytes).max();
    let mut computed = Vec::new();
    for row in rows.iter().filter(is_whole).filter(|row| Some(row.case.bytes) == largest) {
        let (Some(dump), Some(drain)) = (row.median("dump_seconds"), row.median("drain_seconds"))
        else {
            continue;
        };
        let bytes = row.case.bytes as f64;
        let stored = dump + drain;
        let notice = |seconds: u32| {
            let seconds_f64 = f64::from(seconds);
            (seconds, seconds_f64 * bytes / dump, seconds_f64 * bytes / stored)
        };
        computed.push(ComputedRow {
            store: row.case.store,
            policy: row.case.policy,
            measured_bytes: row.case.bytes,
            largest_published_seconds: dump * LARGEST as f64 / bytes,
            largest_stored_seconds: stored * LARGEST as f64 / bytes,
            notices: NOTICES.map(notice).into(),
        });
    }
    computed
}

/// Compares what was measured with the goals.
pub(crate) fn goals(rows: &[MeasuredRow]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for row in rows.iter().filter(|row| row.case.experiment == Experiment::Run) {
        let baseline = Case { policy: PolicyName::Baseline, ..row.case };
        let Some(other) = rows.iter().find(|it| it.case == baseline && it.case != row.case) else {
            continue;
        };
        let (Some(ours), Some(theirs)) = (row.median("frozen_share"), other.median("frozen_share"))
        else {
            continue;
        };
        let part = ours / theirs.max(1e-9);
        goals.push(Goal {
            what: format!(
                "share of a run in checkpoints, {} writer, {}",
                kind_name(row.case.kind),
                row.case.store
            ),
            goal: "at most a third of the baseline's".to_owned(),
            measured: format!("{:.1} % of {:.1} %: {part:.2}", 100.0 * ours, 100.0 * theirs),
            is_reached: part <= SHARE_GOAL,
        });
    }
    for row in rows {
        let forecasts = [
            ("forecast_over_measured", "forecast of `task predict`"),
            ("second_forecast_over_measured", "forecast at a notice before the second dump"),
            ("notice_forecast_over_measured", "forecast at a notice before a later dump"),
        ];
        for (name, what) in forecasts {
            let Some(part) = row.median(name) else { continue };
            goals.push(Goal {
                what: format!(
                    "{what} over the measured dump, {} writer, {}",
                    kind_name(row.case.kind),
                    row.case.store
                ),
                goal: "within 15 %".to_owned(),
                measured: format!("{part:.2}"),
                is_reached: (part - 1.0).abs() <= FORECAST_GOAL,
            });
        }
    }
    goals.extend(storage_goals(rows));
    goals
}

/// Compares what ours stores, and how many requests that takes, with the goals.
fn storage_goals(rows: &[MeasuredRow]) -> Vec<Goal> {
    let is_own = |row: &&MeasuredRow| {
        row.case.experiment == Experiment::Dump && row.case.policy == PolicyName::Sanderling
    };
    let own = || rows.iter().filter(is_own);
    let largest = own().map(|row| row.case.bytes).max();
    let mut goals = Vec::new();
    for row in own() {
        let (kind, store) = (kind_name(row.case.kind), row.case.store);
        if row.case.kind == WriterKind::Sparse
            && let Some(part) = row.median("second_stored_over_first")
        {
            goals.push(Goal {
                what: format!("second dump over the first one, stored, {kind} writer, {store}"),
                goal: "at most 3 %".to_owned(),
                measured: format!("{:.1} %", 100.0 * part),
                is_reached: part <= SPARSE_GOAL,
            });
        }
        if Some(row.case.bytes) == largest
            && let Some(requests) = row.median("requests_per_8_mib")
        {
            let megabytes = row.case.bytes / 1_000_000;
            goals.push(Goal {
                what: format!("requests for 8 MiB of {megabytes} MB, {kind} writer, {store}"),
                goal: "at most 1".to_owned(),
                measured: format!("{requests:.2}"),
                is_reached: requests <= REQUESTS_GOAL,
            });
        }
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(policy: PolicyName, round: u32, share: f64) -> MeasuredSample {
        let (experiment, kind) = (Experiment::Run, WriterKind::Dense);
        let case = Case { experiment, store: "emulated EBS", bytes: 1, kind, tasks: 1, policy };
        MeasuredSample { case, round, values: Quantities::from([("frozen_share", share)]) }
    }

    #[test]
    fn median_of_rounds_is_compared_with_the_goal() {
        let mut samples = vec![
            sample(PolicyName::Sanderling, 0, 0.02),
            sample(PolicyName::Baseline, 0, 0.1),
            sample(PolicyName::Baseline, 1, 0.5),
            sample(PolicyName::Sanderling, 1, 0.9),
            sample(PolicyName::Baseline, 2, 0.2),
            sample(PolicyName::Sanderling, 2, 0.04),
        ];
        let measured = rows(&samples);
        let spread = measured[0].values["frozen_share"];
        assert_eq!((spread.median, spread.least, spread.most), (0.04, 0.02, 0.9));
        assert!(goals(&measured)[0].is_reached, "{:?}", goals(&measured));
        samples[0].values.insert("frozen_share", 0.5);
        assert!(!goals(&rows(&samples))[0].is_reached);
    }

    #[test]
    fn stored_bytes_and_requests_are_compared_with_their_goals() {
        let dump = |kind, policy, bytes, values: &[(&'static str, f64)]| {
            let (experiment, store) = (Experiment::Dump, "emulated EBS");
            let case = Case { experiment, store, bytes, kind, tasks: 1, policy };
            MeasuredSample { case, round: 0, values: values.iter().copied().collect() }
        };
        let (ours, theirs) = (PolicyName::Sanderling, PolicyName::Baseline);
        let (part, requests) = ("second_stored_over_first", "requests_per_8_mib");
        let reached = |samples: &[MeasuredSample]| {
            let goals = goals(&rows(samples));
            goals.iter().map(|goal| goal.is_reached).collect::<Vec<_>>()
        };
        let samples = [
            dump(WriterKind::Sparse, ours, 1000, &[(part, 0.03), (requests, 9.0)]),
            // Neither the baseline's nor what smaller states take is a goal.
            dump(WriterKind::Sparse, theirs, 2000, &[(part, 1.0), (requests, 9.0)]),
            dump(WriterKind::Dense, ours, 2000, &[(part, 1.0), (requests, 1.0)]),
        ];
        assert_eq!(reached(&samples), [true, true]);
        let missed = [
            dump(WriterKind::Sparse, ours, 2000, &[(part, 0.031), (requests, 1.01)]),
            dump(WriterKind::Dense, ours, 1000, &[(requests, 0.5)]),
        ];
        assert_eq!(reached(&missed), [false, false]);
    }

    #[test]
    fn recovery_is_compared_with_the_run_of_its_round_that_is_as_long() {
        let sample = |experiment, round, steps: f64, elapsed: f64| {
            let mut sample = sample(PolicyName::Sanderling, round, 0.0);
            sample.case.experiment = experiment;
            sample.values.insert("steps", steps);
            sample.values.insert("elapsed_seconds", elapsed);
            sample
        };
        let runs = [
            sample(Experiment::Run, 0, 150.0, 9.0),
            sample(Experiment::Run, 1, 150.0, 4.0),
            sample(Experiment::Dump, 1, 150.0, 1.0),
        ];
        let compared = |steps| {
            let mut recovery = sample(Experiment::Recovery, 1, steps, 6.0);
            compare_with_run(&mut recovery.values, (recovery.case, 1), &runs);
            recovery.values.get("elapsed_over_run").copied()
        };
        assert_eq!(compared(150.0), Some(1.5));
        assert_eq!(compared(300.0), None);
    }

    #[test]
    fn rates_are_those_of_emulated_stores() {
        let case = |store| {
            let (experiment, kind) = (Experiment::Dump, WriterKind::Dense);
            let policy = PolicyName::Sanderling;
            Case { experiment, store, bytes: 1, kind, tasks: 1, policy }
        };
        for (store, rate) in STORES {
            assert_eq!(case(store).emulated_rate(), Some(rate));
        }
        assert_eq!(case(REAL).emulated_rate(), None);
        let second = [STORES[0].0, STORES[1].0, REAL].map(|store| case(store).has_second_dump());
        assert_eq!(second, [true, false, true]);
    }

    #[test]
    fn larger_states_follow_from_the_rate() {
        let mut row = rows(&[sample(PolicyName::Baseline, 0, 0.0)]).remove(0);
        row.case = Case { experiment: Experiment::Dump, bytes: 775_000_000, ..row.case };
        for (name, value) in [("dump_seconds", 5.0), ("drain_seconds", 1.0)] {
            let spread = Spread { median: value, least: value, most: value };
            row.values.insert(name, spread);
        }
        let computed = computed(&[row]).remove(0);
        assert_eq!(computed.largest_published_seconds, 50.0);
        assert_eq!(computed.largest_stored_seconds, 60.0);
        assert_eq!(computed.notices[0], (30, 4.65e9, 3.875e9));
    }
}
