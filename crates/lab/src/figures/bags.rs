//! What a bag of tasks with a deadline costs on spot machines, by which policy of checkpoints.
//!
//! Beside ours stands that of HADS-CheckRec: Teylo, Brum, Arantes, Sens and Drummond, "Developing
//! Checkpointing and Recovery Procedures with the Storage Services of Amazon Web Services", 2020.

use clap::Args;
use sanderling_core::checkpoint::{
    BagPolicy, BagReplay, DumpCopies, IntervalPolicy, ReplayedBag, hads_interval,
};
use sanderling_core::preemption::Model;
use sanderling_protocol::Millis;
use serde::Serialize;

use crate::output::{Align, Table};
use crate::trace::Chance;
use crate::units::Span;

/// Milliseconds of an hour.
const MILLIS_PER_HOUR: f64 = 3_600_000.0;

/// How long a machine is away in the mean in the market that hibernates machines. Chosen, not
/// measured: long enough that a deadline may not wait for it.
const HIBERNATES_FOR: Millis = Millis(1_800_000);

/// The bag of `sanderling lab checkpoint`. Its tasks are the task that is replayed alone.
#[derive(Debug, Clone, Args)]
pub(crate) struct BagArgs {
    /// Tasks of the replayed bag; 0 replays none
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) tasks: u32,
    /// Spot machines of the bag at a time, at most
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) spot_machines: u32,
    /// When all tasks have to be done, from the begin of the bag on
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub(crate) deadline: Span,
    /// The notice before a spot machine is taken
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    pub(crate) notice: Span,
    /// How much earlier than its expected run demands a task starts on demand
    #[arg(long, value_name = "DURATION", default_value = "45m")]
    pub(crate) margin: Span,
    /// Dollars an hour of a machine on demand, as in figure 6 of Brodmann et al.
    #[arg(long, value_name = "DOLLARS", default_value_t = 0.776944)]
    pub(crate) on_demand_price: f64,
    /// Dollars an hour of a spot machine, as in that figure
    #[arg(long, value_name = "DOLLARS", default_value_t = 0.188320)]
    pub(crate) spot_price: f64,
}

/// What the runs of one policy cost in the mean.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct BagRow {
    /// The model of lifetimes.
    pub(crate) model: String,
    /// The policy.
    pub(crate) policy: &'static str,
    /// Runs in which all tasks met the deadline, as a part of all.
    pub(crate) met_share: f64,
    /// Tasks that were late, as a part of all tasks of all runs.
    pub(crate) late_share: f64,
    /// Dollars for all machines of a run.
    pub(crate) dollars: f64,
    /// Hours of machines on demand in a run.
    pub(crate) on_demand_hours: f64,
    /// Hours of finished dumps in a run.
    pub(crate) dumped_hours: f64,
    /// Hours of lost work in a run.
    pub(crate) lost_hours: f64,
    /// Hours from the begin to the last task's end.
    pub(crate) elapsed_hours: f64,
}

/// The task of a bag, and how its runs are drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BagTaskOf {
    pub(crate) work: Millis,
    pub(crate) dump: Millis,
    /// How long a dump straight to S3 takes.
    pub(crate) slow_dump: Millis,
    pub(crate) launch: Millis,
    pub(crate) runs: u32,
    pub(crate) seed: u64,
}

/// Replays the bag with each policy under a model; all policies get the same machines.
pub(crate) fn rows(args: &BagArgs, task: BagTaskOf, (name, model): (&str, &Model)) -> Vec<BagRow> {
    if args.tasks == 0 {
        return Vec::new();
    }
    let bag = ReplayedBag {
        tasks: args.tasks,
        work: task.work,
        deadline: args.deadline.millis(),
        spot_machines: args.spot_machines,
        launch: task.launch,
        lock_age: Millis(30_000),
        margin: args.margin.millis(),
        hibernates_for: None,
    };
    let fixed = |dump| BagPolicy {
        interval: IntervalPolicy::Fixed(hads_interval(task.work, dump)),
        dump,
        notice: Millis(0),
        copies: DumpCopies::TwoSlots,
        waits_for_hibernated: true,
    };
    let ours = BagPolicy {
        interval: IntervalPolicy::Optimum,
        dump: task.dump,
        notice: args.notice.millis(),
        copies: DumpCopies::Untouched,
        waits_for_hibernated: false,
    };
    let by_age = BagPolicy { notice: Millis(0), ..ours };
    // A machine hibernates at once, without a notice.
    let hibernating = ReplayedBag { hibernates_for: Some(HIBERNATES_FOR), ..bag };
    let policies = [
        ("on demand alone", ReplayedBag { spot_machines: 0, ..bag }, fixed(task.dump)),
        ("HADS, dumps to S3", bag, fixed(task.slow_dump)),
        ("HADS, dumps to EBS", bag, fixed(task.dump)),
        ("by age", bag, by_age),
        ("by age and at notices", bag, ours),
        ("HADS, EBS, hibernating machines", hibernating, fixed(task.dump)),
        ("by age, hibernating machines", hibernating, by_age),
    ];
    let row = |(policy, bag, of): (&'static str, ReplayedBag, BagPolicy)| {
        mean(args, task, (name, policy), &BagReplay::new(model, bag, of))
    };
    policies.into_iter().map(row).collect()
}

fn mean(
    args: &BagArgs,
    task: BagTaskOf,
    (model, policy): (&str, &'static str),
    replay: &BagReplay<'_>,
) -> BagRow {
    let (mut sums, mut met, mut late) = ([0.0; 5], 0, 0);
    for run in 0..u64::from(task.runs) {
        let mut chance = Chance::new(task.seed.wrapping_add(run));
        let run = replay.run(|| chance.next());
        met += u32::from(run.late == 0);
        late += run.late;
        let parts = [run.spot, run.on_demand, run.dumped, run.lost, run.elapsed];
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part.0 as f64 / MILLIS_PER_HOUR);
    }
    let runs = f64::from(task.runs);
    let [spot, on_demand, dumped, lost, elapsed] = sums.map(|sum| sum / runs);
    BagRow {
        model: model.to_owned(),
        policy,
        met_share: f64::from(met) / runs,
        late_share: f64::from(late) / runs / f64::from(args.tasks),
        dollars: spot * args.spot_price + on_demand * args.on_demand_price,
        on_demand_hours: on_demand,
        dumped_hours: dumped,
        lost_hours: lost,
        elapsed_hours: elapsed,
    }
}

/// The heads of a table of rows.
pub(crate) const HEADS: [(&str, Align); 8] = [
    ("model", Align::Left),
    ("checkpoints", Align::Left),
    ("deadline met", Align::Right),
    ("cost", Align::Right),
    ("on demand", Align::Right),
    ("dumps", Align::Right),
    ("lost", Align::Right),
    ("elapsed", Align::Right),
];

/// Returns the rows as a table.
pub(crate) fn table(rows: &[BagRow]) -> Table {
    let mut table = Table::new(&HEADS);
    rows.iter().for_each(|row| table.row(row.cells()));
    table
}

impl BagRow {
    /// Returns the row of a table.
    pub(crate) fn cells(&self) -> Vec<String> {
        let hours = |hours: f64| format!("{hours:.2} h");
        vec![
            self.model.clone(),
            self.policy.to_owned(),
            format!("{:.1} %", self.met_share * 100.0),
            format!("${:.2}", self.dollars),
            hours(self.on_demand_hours),
            hours(self.dumped_hours),
            hours(self.lost_hours),
            hours(self.elapsed_hours),
        ]
    }

    /// Returns what the row states, by quantity.
    pub(crate) fn quantities(&self) -> [(&'static str, f64); 7] {
        [
            ("met_share", self.met_share),
            ("late_share", self.late_share),
            ("dollars", self.dollars),
            ("on_demand_hours", self.on_demand_hours),
            ("dumped_hours", self.dumped_hours),
            ("lost_hours", self.lost_hours),
            ("elapsed_hours", self.elapsed_hours),
        ]
    }
}
