//! Checkpoints to storage services: the table of a task of 30 days, what a notice holds, and how
//! often a task dumps by which policy.
//!
//! Teylo, Brum, Arantes, Sens and Drummond, "Developing Checkpointing and Recovery Procedures with
//! the Storage Services of Amazon Web Services", SRMPDS 2020.

use std::io::{self, Write};

use clap::Args;
use sanderling_core::checkpoint::{
    IntervalPolicy, Replay, ReplayedTask, hads_interval, young_daly,
};
use sanderling_core::preemption::{Model, Spec};
use sanderling_protocol::Millis;
use serde::Serialize;

use crate::checkpoints::measure_args::MeasureArgs;
use crate::failure::Failure;
use crate::figures::bags::{self, BagArgs, BagRow, BagTaskOf};
use crate::figures::figure2::{load, short};
use crate::figures::{Figure, Written};
use crate::output::{Align, Table};
use crate::page::csv::Csv;
use crate::page::{self, Section};
use crate::trace::Chance;
use crate::units::Span;

/// A storage service as the authors measured it: its name, seconds of one dump of 7,750 MB, and
/// dollars for 30 GB over 30 days ("Monetary Cost for Long-Running Tasks"). The seconds are those
/// with which the times of their table follow; slides 15 and 16 show them as 55.82 (EBS) and 78.73
/// (EFS).
const SERVICES: [(&str, f64, f64); 3] =
    [("S3", 215.70, 0.69), ("EBS", 55.80, 3.00), ("EFS", 78.74, 9.00)];

/// MB of the largest task, whose dumps the seconds are.
const DUMP_MEGABYTES: f64 = 7750.0;

/// Hours of the task of their table.
const LONG_HOURS: f64 = 720.0;

/// Hours between two checkpoints, and the number of checkpoints, in their table.
const LONG_RUNS: [(u32, u32); 6] = [(1, 720), (5, 144), (10, 72), (15, 48), (20, 36), (25, 28)];

/// Dollars per hour of the machine. The authors do not state it: all 18 costs of their table follow
/// from it within a cent.
const IMPLIED_DOLLARS_PER_HOUR: f64 = 0.0294;

/// Lengths of a notice, in seconds: the shortest that clouds give (Google and Azure), and that of
/// Amazon.
const NOTICES: [f64; 2] = [30.0, 120.0];

/// The models that are replayed if none is given.
const MODELS: [&str; 3] = ["exponential:mean=12h", "bathtub:typical", "bathtub:n1-highcpu-16"];

/// Ratio between two intervals that are tried in hindsight. Near the optimum the waste changes by
/// the square of an interval's error, so a tenth of error wastes half a percent more.
const HINDSIGHT_RATIO: f64 = 1.2;

/// The share of machines that end within an interval from which on it is not tried: a run would
/// take a hundred machines for each of its dumps.
const HINDSIGHT_ENDED: f64 = 0.99;

/// Milliseconds of an hour.
const MILLIS_PER_HOUR: f64 = 3_600_000.0;

/// What measures instead, and how.
pub(crate) const MEASURES: &str = "Dumps and restores of real tasks are measured by";
pub(crate) const MEASURE: &str = "sanderling lab checkpoint --measure";

/// `sanderling lab checkpoint`.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// Replay runs under this model: bathtub:NAME, bathtub:a=,tau1=,tau2=,b=, exponential:mean=12h,
    /// lifetimes:FILE or trace:FILE. May be given several times [default: an exponential and two
    /// bathtubs]
    #[arg(long = "model", value_name = "MODEL")]
    pub(crate) models: Vec<Spec>,
    /// How long the task computes without dumps and failures
    #[arg(long, value_name = "DURATION", default_value = "10h")]
    pub(crate) work: Span,
    /// How long one dump takes
    #[arg(long, value_name = "DURATION", default_value = "55800ms")]
    pub(crate) dump: Span,
    /// How long a machine takes from its start until the task goes on
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub(crate) launch: Span,
    /// Replayed runs of each policy under each model; all policies get the same machines
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) runs: u32,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// A bag of such tasks.
    #[command(flatten)]
    pub(crate) bag: BagArgs,
    /// Measurements.
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Where it goes.
    #[command(flatten)]
    pub(crate) written: Written,
}

/// The whole figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CheckpointFigure {
    /// The authors' table of 30 days, computed.
    pub(crate) long_runs: Vec<LongRun>,
    /// What a notice holds.
    pub(crate) notices: Vec<NoticeRow>,
    /// Hours of the replayed task.
    pub(crate) work_hours: f64,
    /// Seconds of one of its dumps.
    pub(crate) dump_seconds: f64,
    /// Replayed runs of each policy.
    pub(crate) runs: u32,
    /// One row for each policy under each model.
    pub(crate) policies: Vec<PolicyRow>,
    /// The bag.
    pub(crate) bag: ReplayedBagFigure,
}

/// A bag of tasks with a deadline, replayed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ReplayedBagFigure {
    /// Its tasks.
    pub(crate) tasks: u32,
    /// Spot machines at a time, at most.
    pub(crate) spot_machines: u32,
    /// Hours until all have to be done.
    pub(crate) deadline_hours: f64,
    /// One row for each policy under each model; none without tasks.
    pub(crate) rows: Vec<BagRow>,
}

/// One cell of the table of 30 days.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LongRun {
    /// The storage service.
    pub(crate) service: &'static str,
    /// Hours between two checkpoints.
    pub(crate) interval_hours: u32,
    /// Checkpoints in 30 days.
    pub(crate) checkpoints: u32,
    /// Hours that the task takes.
    pub(crate) hours: f64,
    /// Dollars for the machine and 30 GB of storage.
    pub(crate) dollars: f64,
}

/// The largest state that is dumped within a notice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NoticeRow {
    /// The storage service.
    pub(crate) service: &'static str,
    /// Megabytes (10^6 bytes) a second, one dump at a time.
    pub(crate) megabytes_per_second: f64,
    /// Megabytes within each of the notices.
    pub(crate) fits_megabytes: Vec<(f64, f64)>,
}

/// What the runs of one policy cost in the mean, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PolicyRow {
    /// The model of lifetimes.
    pub(crate) model: String,
    /// The policy.
    pub(crate) policy: &'static str,
    /// The interval; `None` if it depends on the machine's age.
    pub(crate) interval_seconds: Option<f64>,
    /// Time from the first launch to the end.
    pub(crate) elapsed_seconds: f64,
    /// Time in dumps.
    pub(crate) dumped_seconds: f64,
    /// Work that was lost with machines.
    pub(crate) lost_seconds: f64,
    /// Machines.
    pub(crate) machines: f64,
    /// Dumps and lost work together, as a part of the work.
    pub(crate) wasted_share: f64,
    /// Runs that did not end.
    pub(crate) unfinished: u32,
}

/// Computes the figure.
///
/// # Errors
/// A model's file cannot be read or is not of its format.
pub(crate) fn compute(arguments: &CheckpointArgs) -> Result<CheckpointFigure, Failure> {
    let known = MODELS.map(|name| name.parse::<Spec>().expect("the models are known"));
    let specs = if arguments.models.is_empty() { &known[..] } else { &arguments.models[..] };
    let (mut policies, mut rows) = (Vec::new(), Vec::new());
    let task = bag_task(arguments);
    for spec in specs {
        let model = load(spec)?;
        rows.extend(bags::rows(&arguments.bag, task, (&short(spec), &model)));
        policies.extend(rows_of(arguments, (&short(spec), &model)));
    }
    Ok(CheckpointFigure {
        long_runs: SERVICES.iter().flat_map(|it| LONG_RUNS.map(|run| long_run(*it, run))).collect(),
        notices: SERVICES.map(notice_row).into(),
        work_hours: arguments.work.0.as_secs_f64() / 3600.0,
        dump_seconds: arguments.dump.0.as_secs_f64(),
        runs: arguments.runs,
        policies,
        bag: ReplayedBagFigure {
            tasks: arguments.bag.tasks,
            spot_machines: arguments.bag.spot_machines,
            deadline_hours: arguments.bag.deadline.0.as_secs_f64() / 3600.0,
            rows,
        },
    })
}

/// Returns the task of the bag. A dump straight to S3 takes as much longer as the authors measured.
fn bag_task(arguments: &CheckpointArgs) -> BagTaskOf {
    let [(_, s3, _), (_, ebs, _), _] = SERVICES;
    let dump = arguments.dump.millis();
    BagTaskOf {
        work: arguments.work.millis(),
        dump,
        slow_dump: Millis((dump.0 as f64 * s3 / ebs) as u64),
        launch: arguments.launch.millis(),
        runs: arguments.runs,
        seed: arguments.seed,
    }
}

/// Returns time and cost of the task of 30 days: the work, a dump for each checkpoint, the machine
/// for that time, and 30 GB of storage.
fn long_run(service: (&'static str, f64, f64), run: (u32, u32)) -> LongRun {
    let ((name, dump_seconds, storage), (interval_hours, checkpoints)) = (service, run);
    let hours = LONG_HOURS + f64::from(checkpoints) * dump_seconds / 3600.0;
    let dollars = IMPLIED_DOLLARS_PER_HOUR * hours + storage;
    LongRun { service: name, interval_hours, checkpoints, hours, dollars }
}

fn notice_row((service, dump_seconds, _): (&'static str, f64, f64)) -> NoticeRow {
    let rate = DUMP_MEGABYTES / dump_seconds;
    let fits_megabytes = NOTICES.map(|notice| (notice, notice * rate)).into();
    NoticeRow { service, megabytes_per_second: rate, fits_megabytes }
}

/// Replays all policies under a model. The last row has the fixed interval that would have been
/// cheapest for the very machines that were drawn: no rule can find it in advance.
fn rows_of(arguments: &CheckpointArgs, model: (&str, &Model)) -> Vec<PolicyRow> {
    let (work, dump) = (arguments.work.millis(), arguments.dump.millis());
    let fixed = hads_interval(work, dump);
    let daly = young_daly(dump, model.1.expected_life(Millis(0)));
    let row = |policy, interval| replay(arguments, model, policy, interval);
    let mut rows = vec![
        row("fixed, a tenth of the run", IntervalPolicy::Fixed(fixed)),
        row("Young and Daly", IntervalPolicy::YoungDaly),
        row("optimum by age", IntervalPolicy::Optimum),
    ];
    let launch = arguments.launch.millis();
    let is_lived = |it: &Millis| model.1.cdf(Millis(launch.0 + it.0)) < HINDSIGHT_ENDED;
    let tried = hindsight_intervals(work, dump).filter(is_lived).chain([fixed, daly]);
    let tried = tried.map(|it| row("best fixed interval in hindsight", IntervalPolicy::Fixed(it)));
    // One with which a run does not end is none.
    let ended = tried.filter(|row| row.unfinished == 0);
    rows.extend(ended.min_by(|one, other| one.wasted_share.total_cmp(&other.wasted_share)));
    rows
}

/// Returns the intervals that are tried in hindsight: from the time of a dump, and a second at
/// least, to the whole work.
fn hindsight_intervals(work: Millis, dump: Millis) -> impl Iterator<Item = Millis> {
    let first = dump.0.max(1000) as f64;
    let intervals = std::iter::successors(Some(first), |it| Some(it * HINDSIGHT_RATIO));
    let shorter = intervals.map(|it| Millis(it.round() as u64)).take_while(move |it| *it < work);
    shorter.chain([work])
}

/// Returns the interval of a policy, if it is the same at each age: a second at least.
fn interval_seconds(model: &Model, policy: IntervalPolicy, dump: Millis) -> Option<f64> {
    let interval = match policy {
        IntervalPolicy::Fixed(interval) => interval,
        IntervalPolicy::YoungDaly => young_daly(dump, model.expected_life(Millis(0))),
        IntervalPolicy::Optimum => return None,
    };
    Some(seconds(interval).max(1.0))
}

fn replay(
    arguments: &CheckpointArgs,
    (name, model): (&str, &Model),
    policy: &'static str,
    interval: IntervalPolicy,
) -> PolicyRow {
    let task = ReplayedTask {
        work: arguments.work.millis(),
        dump: arguments.dump.millis(),
        launch: arguments.launch.millis(),
    };
    let replay = Replay::new(model, interval, task);
    let (mut sums, mut machines, mut unfinished) = ([0.0; 3], 0.0, 0);
    for run in 0..u64::from(arguments.runs) {
        let mut chance = Chance::new(arguments.seed.wrapping_add(run));
        let run = replay.run(|| chance.next());
        unfinished += u32::from(!run.is_finished);
        machines += f64::from(run.machines);
        let parts = [run.elapsed, run.dumped, run.lost];
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += seconds(part));
    }
    let [elapsed, dumped, lost] = sums.map(|sum| sum / f64::from(arguments.runs));
    PolicyRow {
        model: name.to_owned(),
        policy,
        interval_seconds: interval_seconds(model, interval, task.dump),
        elapsed_seconds: elapsed,
        dumped_seconds: dumped,
        lost_seconds: lost,
        machines: machines / f64::from(arguments.runs),
        wasted_share: (dumped + lost) / seconds(task.work).max(0.001),
        unfinished,
    }
}

fn seconds(time: Millis) -> f64 {
    time.0 as f64 / 1000.0
}

impl Figure for CheckpointFigure {
    const NAME: &'static str = "checkpoint";

    fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        writeln!(
            writer,
            "A task of {:.1} h whose dump takes {:.1} s, in the mean of {} runs:",
            self.work_hours, self.dump_seconds, self.runs
        )?;
        let mut table = Table::new(&[
            ("model", Align::Left),
            ("interval", Align::Left),
            ("length", Align::Right),
            ("machines", Align::Right),
            ("elapsed", Align::Right),
            ("dumps", Align::Right),
            ("lost", Align::Right),
            ("wasted", Align::Right),
        ]);
        for row in &self.policies {
            table.row(row.cells());
        }
        table.write(writer)?;
        if !self.bag.rows.is_empty() {
            writeln!(writer, "\n{}:", self.bag.title())?;
            bags::table(&self.bag.rows).write(writer)?;
        }
        writeln!(writer, "\nThe largest state that is dumped within a notice:")?;
        let mut table = Table::new(&[
            ("service", Align::Left),
            ("rate", Align::Right),
            ("30 s", Align::Right),
            ("2 min", Align::Right),
        ]);
        self.notices.iter().for_each(|row| table.row(row.cells()));
        table.write(writer)?;
        writeln!(writer, "\nA task of 30 days with 30 GB stored:")?;
        let mut table = Table::new(&[
            ("service", Align::Left),
            ("interval", Align::Right),
            ("checkpoints", Align::Right),
            ("time", Align::Right),
            ("cost", Align::Right),
        ]);
        self.long_runs.iter().for_each(|run| table.row(run.cells()));
        table.write(writer)?;
        writeln!(writer, "\nAll of this is computed. {MEASURES}: {MEASURE}")
    }

    fn csv(&self) -> Csv {
        let mut csv = Csv::new(&["part", "case", "variant", "quantity", "value"]);
        let mut row = |part: &str, case: &str, variant: &str, quantity: &str, value: String| {
            csv.row([part, case, variant, quantity, &value].map(str::to_owned));
        };
        for it in &self.policies {
            if let Some(interval) = it.interval_seconds {
                let interval = format!("{interval:.4}");
                row("policies", &it.model, it.policy, "interval_seconds", interval);
            }
            for (quantity, value) in [
                ("elapsed_seconds", it.elapsed_seconds),
                ("dumped_seconds", it.dumped_seconds),
                ("lost_seconds", it.lost_seconds),
                ("machines", it.machines),
                ("wasted_share", it.wasted_share),
                ("unfinished", f64::from(it.unfinished)),
            ] {
                row("policies", &it.model, it.policy, quantity, format!("{value:.4}"));
            }
        }
        for it in &self.bag.rows {
            for (quantity, value) in it.quantities() {
                row("bag", &it.model, it.policy, quantity, format!("{value:.4}"));
            }
        }
        for it in &self.notices {
            for (notice, megabytes) in &it.fits_megabytes {
                let quantity = format!("{notice:.0}");
                row("notices", it.service, &quantity, "megabytes", format!("{megabytes:.1}"));
            }
        }
        for it in &self.long_runs {
            let interval = it.interval_hours.to_string();
            row("long_runs", it.service, &interval, "hours", format!("{:.2}", it.hours));
            row("long_runs", it.service, &interval, "dollars", format!("{:.2}", it.dollars));
        }
        csv
    }

    fn section(&self) -> Section {
        page::checkpoint::section(self)
    }
}

impl ReplayedBagFigure {
    /// Returns one line about the bag.
    pub(crate) fn title(&self) -> String {
        format!(
            "A bag of {} such tasks on at most {} spot machines, to be done within {:.1} h",
            self.tasks, self.spot_machines, self.deadline_hours
        )
    }
}

impl PolicyRow {
    /// Returns the row of a table.
    pub(crate) fn cells(&self) -> Vec<String> {
        let hours = |seconds: f64| format!("{:.2} h", seconds * 1000.0 / MILLIS_PER_HOUR);
        let minutes = |seconds: f64| format!("{:.1} min", seconds / 60.0);
        let elapsed = match self.unfinished {
            0 => hours(self.elapsed_seconds),
            count => format!("{count} did not end"),
        };
        vec![
            self.model.clone(),
            self.policy.to_owned(),
            self.interval_seconds.map_or_else(|| "by age".to_owned(), minutes),
            format!("{:.2}", self.machines),
            elapsed,
            minutes(self.dumped_seconds),
            minutes(self.lost_seconds),
            format!("{:.2} %", self.wasted_share * 100.0),
        ]
    }
}

impl NoticeRow {
    /// Returns the row of a table.
    pub(crate) fn cells(&self) -> Vec<String> {
        let mut cells =
            vec![self.service.to_owned(), format!("{:.1} MB/s", self.megabytes_per_second)];
        cells
            .extend(self.fits_megabytes.iter().map(|(_, fits)| format!("{:.1} GB", fits / 1000.0)));
        cells
    }
}

impl LongRun {
    /// Returns the row of a table.
    pub(crate) fn cells(&self) -> Vec<String> {
        vec![
            self.service.to_owned(),
            format!("{} h", self.interval_hours),
            self.checkpoints.to_string(),
            format!("{:.2} h", self.hours),
            format!("${:.2}", self.dollars),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::defaults;

    /// The authors' table, slide 19: times in hours and costs in dollars, S3, EBS, EFS.
    const PRINTED: [([f64; 3], [f64; 3]); 6] = [
        ([763.14, 731.16, 735.75], [23.13, 24.50, 30.64]),
        ([728.63, 722.23, 723.15], [22.11, 24.24, 30.27]),
        ([724.31, 721.12, 721.57], [21.99, 24.20, 30.22]),
        ([722.88, 720.74, 721.05], [21.94, 24.19, 30.20]),
        ([722.16, 720.56, 720.79], [21.92, 24.19, 30.20]),
        ([721.68, 720.43, 720.61], [21.91, 24.18, 30.19]),
    ];

    fn computed(runs: u32) -> CheckpointFigure {
        compute(&CheckpointArgs { runs, ..defaults() }).expect("needs no file")
    }

    #[test]
    fn table_of_thirty_days_is_the_printed_one() {
        let figure = computed(1);
        assert_eq!(figure.long_runs.len(), 18);
        for (at, run) in figure.long_runs.iter().enumerate() {
            let (times, costs) = PRINTED[at % 6];
            let (hours, dollars) = (times[at / 6], costs[at / 6]);
            assert_eq!(format!("{:.2}", run.hours), format!("{hours:.2}"), "{run:?}");
            let cents = |dollars: f64| (dollars * 100.0).round();
            assert!((cents(run.dollars) - cents(dollars)).abs() <= 1.0, "{run:?} {dollars}");
        }
    }

    #[test]
    fn optimum_is_never_dearer_than_the_fixed_interval() {
        let figure = computed(300);
        for rows in figure.policies.chunks(4) {
            let [fixed, daly, optimum, hindsight] = rows else { panic!("four: {rows:?}") };
            assert_eq!(rows.iter().map(|row| row.unfinished).sum::<u32>(), 0);
            assert!(optimum.elapsed_seconds < fixed.elapsed_seconds, "{rows:?}");
            assert!(optimum.wasted_share < 0.9 * fixed.wasted_share, "{rows:?}");
            assert!(optimum.wasted_share < 1.05 * daly.wasted_share, "{rows:?}");
            assert!(daly.wasted_share < fixed.wasted_share, "{rows:?}");
            // Both are among the intervals that were tried.
            assert!(hindsight.wasted_share <= daly.wasted_share, "{rows:?}");
            assert!(hindsight.interval_seconds.is_some() && optimum.interval_seconds.is_none());
        }
    }

    #[test]
    fn estimate_is_near_the_best_interval_in_hindsight_where_machines_have_no_memory() {
        let mut arguments: CheckpointArgs = defaults();
        arguments.models = vec!["exponential:mean=12h".parse().expect("a model")];
        arguments.bag.tasks = 0;
        let figure = compute(&arguments).expect("needs no file");
        let [_, daly, _, hindsight] = &figure.policies[..] else { panic!("{figure:?}") };
        assert!(daly.wasted_share < 1.2 * hindsight.wasted_share, "{daly:?} {hindsight:?}");
    }

    #[test]
    fn intervals_from_a_dump_to_the_whole_work_are_tried_in_hindsight() {
        let (work, dump) = (Millis(36_000_000), Millis(56_000));
        let tried: Vec<Millis> = hindsight_intervals(work, dump).collect();
        assert_eq!((tried[0], tried.last()), (dump, Some(&work)));
        assert!(tried.is_sorted() && (30..60).contains(&tried.len()), "{tried:?}");
        assert_eq!(hindsight_intervals(Millis(10), dump).collect::<Vec<_>>(), [Millis(10)]);
    }

    #[test]
    fn bag_costs_less_than_with_the_fixed_interval_and_meets_as_many_deadlines() {
        let figure = computed(100);
        assert_eq!(figure.bag.rows.len(), 21);
        for rows in figure.bag.rows.chunks(7) {
            let [on_demand, s3, ebs, by_age, ours, waiting, elsewhere] = rows else {
                panic!("seven: {rows:?}")
            };
            assert_eq!((on_demand.met_share, on_demand.lost_hours), (1.0, 0.0), "{rows:?}");
            // 16 tasks of 10 h and launches of 2 minutes.
            let hours = 16.0 * (10.0 + 2.0 / 60.0);
            assert!((on_demand.on_demand_hours - hours).abs() < 1e-6, "{rows:?}");
            // What agents do with `--lives` and notices. Without notices they may meet fewer.
            assert!(ours.met_share >= on_demand.met_share, "{rows:?}");
            for hads in [s3, ebs] {
                assert!(ours.met_share >= hads.met_share, "{rows:?}");
                assert!(ours.dollars < 0.95 * hads.dollars, "{rows:?}");
                assert!(ours.lost_hours < 0.9 * hads.lost_hours, "{rows:?}");
                assert!(by_age.dollars < hads.dollars, "{rows:?}");
            }
            assert!(ours.dollars < 0.3 * on_demand.dollars && ours.lost_hours < 0.01, "{rows:?}");
            for hibernating in [waiting, elsewhere] {
                // Each of 16 tasks of 10 h runs on a machine that is paid.
                assert!(hibernating.dollars > 160.0 * 0.188_320, "{rows:?}");
            }
        }
    }

    #[test]
    fn text_ends_with_the_command_that_measures() {
        let mut text = Vec::new();
        computed(1).write(&mut text).expect("a vector takes everything");
        let text = String::from_utf8(text).expect("it is text");
        assert!(text.ends_with(" measured by: sanderling lab checkpoint --measure\n"), "{text}");
    }

    #[test]
    fn notice_holds_what_the_rate_carries() {
        let figure = computed(1);
        let cells: Vec<_> = figure.notices.iter().map(NoticeRow::cells).collect();
        assert_eq!(cells[0], ["S3", "35.9 MB/s", "1.1 GB", "4.3 GB"]);
        assert_eq!(cells[1], ["EBS", "138.9 MB/s", "4.2 GB", "16.7 GB"]);
        assert_eq!(cells[2], ["EFS", "98.4 MB/s", "3.0 GB", "11.8 GB"]);
    }
}
