//! The measured checkpoints as text, CSV and JSON.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::real_store::{RatedStore, RealStoreSetup};
use super::record::{
    ComputedRow, Experiment, Goal, MeasuredRow, MeasuredSample, REAL, STORES, Spread, computed,
    goals, rows,
};
use super::refusals::TriedDump;
use super::stage::{Driver, kind_name};
use crate::figures::Figure;
use crate::output::{Align, Table};
use crate::page::csv::Csv;
use crate::page::{self, Section};

/// Everything that was measured, and what follows from it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MeasuredCheckpoints {
    /// What it was measured on.
    pub(crate) setup: MeasuredSetup,
    /// The goals.
    pub(crate) goals: Vec<Goal>,
    /// Medians of the rounds.
    pub(crate) rows: Vec<MeasuredRow>,
    /// Computed from measured rates, not measured.
    pub(crate) computed: Vec<ComputedRow>,
    /// What CRIU does not dump; empty where it cannot be used.
    pub(crate) refused: Vec<TriedDump>,
    /// Each round.
    pub(crate) samples: Vec<MeasuredSample>,
}

/// What it was measured on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MeasuredSetup {
    /// When it began: seconds since 1970.
    pub(crate) began_unix_seconds: u64,
    /// The program's version, and whether it was built for measurements.
    pub(crate) version: &'static str,
    pub(crate) is_release_build: bool,
    /// The operating system's release, and the processors.
    pub(crate) kernel: String,
    pub(crate) processors: usize,
    /// Processes that were runnable when it began (1 min average).
    pub(crate) load_average: f64,
    /// What dumped the tasks.
    pub(crate) driver: &'static str,
    pub(crate) rounds: u32,
    pub(crate) scale: f64,
    /// Names and bytes per second of the emulated stores.
    pub(crate) stores: Vec<(&'static str, f64)>,
    /// The real store, if there is one.
    pub(crate) real_store: Option<RealStoreSetup>,
}

/// A table: its title, the experiment, and the columns by quantity.
pub(crate) struct MeasuredTable {
    pub(crate) title: &'static str,
    pub(crate) experiment: Experiment,
    pub(crate) columns: &'static [(&'static str, &'static str, QuantityUnit)],
}

/// How a quantity is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum QuantityUnit {
    Seconds,
    Megabytes,
    Percent,
    Number,
    Ratio,
}

/// The tables of what was measured.
pub(crate) const TABLES: [MeasuredTable; 6] = [
    MeasuredTable {
        title: "One dump: the task stands still (frozen), until the generation is published \
                (ship), until the store has it (drain)",
        experiment: Experiment::Dump,
        columns: &[
            ("frozen", "frozen_seconds", QuantityUnit::Seconds),
            ("ship", "ship_seconds", QuantityUnit::Seconds),
            ("drain", "drain_seconds", QuantityUnit::Seconds),
            ("2nd frozen", "second_frozen_seconds", QuantityUnit::Seconds),
            ("2nd ship", "second_ship_seconds", QuantityUnit::Seconds),
            ("2nd drain", "second_drain_seconds", QuantityUnit::Seconds),
        ],
    },
    MeasuredTable {
        title: "Bytes of these dumps, in MB: state, new (after deduplication), stored (after \
                compression), and requests to the store that write or list, of the first one",
        experiment: Experiment::Dump,
        columns: &[
            ("state", "state_bytes", QuantityUnit::Megabytes),
            ("new", "new_bytes", QuantityUnit::Megabytes),
            ("stored", "stored_bytes", QuantityUnit::Megabytes),
            ("2nd state", "second_state_bytes", QuantityUnit::Megabytes),
            ("2nd new", "second_new_bytes", QuantityUnit::Megabytes),
            ("2nd stored", "second_stored_bytes", QuantityUnit::Megabytes),
            ("requests", "requests", QuantityUnit::Number),
            ("/ 8 MiB", "requests_per_8_mib", QuantityUnit::Ratio),
        ],
    },
    MeasuredTable {
        title: "Seconds of a processor per GiB of these dumps, and restores: from the cluster, and \
                from the store alone",
        experiment: Experiment::Dump,
        columns: &[
            ("hash", "hash_cpu_per_gib", QuantityUnit::Seconds),
            ("compress", "compress_cpu_per_gib", QuantityUnit::Seconds),
            ("encrypt", "encrypt_cpu_per_gib", QuantityUnit::Seconds),
            ("restore", "restore_seconds", QuantityUnit::Seconds),
            ("from store", "restore_from_store_seconds", QuantityUnit::Seconds),
            ("forecast", "forecast_seconds", QuantityUnit::Seconds),
        ],
    },
    MeasuredTable {
        title: "Several tasks dump at once into one store; the slowest counts",
        experiment: Experiment::Tasks,
        columns: &[
            ("frozen", "frozen_seconds", QuantityUnit::Seconds),
            ("dump", "dump_seconds", QuantityUnit::Seconds),
            ("drain", "drain_seconds", QuantityUnit::Seconds),
            ("from store", "restore_from_store_seconds", QuantityUnit::Seconds),
        ],
    },
    MeasuredTable {
        title: "The run of 20 minutes with an interval of 5 minutes and 7,750 MB, scaled",
        experiment: Experiment::Run,
        columns: &[
            ("frozen", "frozen_share", QuantityUnit::Percent),
            ("slowdown", "slowdown_share", QuantityUnit::Percent),
            ("elapsed", "elapsed_seconds", QuantityUnit::Seconds),
            ("dumps", "checkpoints", QuantityUnit::Number),
            ("stored MB", "stored_bytes", QuantityUnit::Megabytes),
            ("forecast / 2nd dump", "second_forecast_over_measured", QuantityUnit::Ratio),
            ("/ later dump", "notice_forecast_over_measured", QuantityUnit::Ratio),
        ],
    },
    MeasuredTable {
        title: "Recovery: that run, killed with its runner half an interval after the first dump. \
                Work that was restored and lost; from the kill until the task goes on (restart), \
                of which the restore; parts of the run",
        experiment: Experiment::Recovery,
        columns: &[
            ("elapsed", "elapsed_seconds", QuantityUnit::Seconds),
            ("/ run", "elapsed_over_run", QuantityUnit::Ratio),
            ("restored", "restored_work_seconds", QuantityUnit::Seconds),
            ("lost", "lost_seconds", QuantityUnit::Seconds),
            ("lost steps", "lost_steps", QuantityUnit::Number),
            ("restart", "restart_seconds", QuantityUnit::Seconds),
            ("restore", "restore_seconds", QuantityUnit::Seconds),
            ("restart part", "restart_share", QuantityUnit::Percent),
            ("frozen", "frozen_share", QuantityUnit::Percent),
            ("useful", "useful_share", QuantityUnit::Percent),
        ],
    },
];

/// The title and the columns of what CRIU does not dump.
pub(crate) const REFUSED: &str = "What CRIU does not dump, each tried once with a task that has it";
pub(crate) const REFUSED_COLUMNS: [&str; 3] = ["the task has", "its dump", "why"];

/// What is printed in place of that.
pub(crate) const NOT_REFUSED: &str = "What CRIU does not dump is not tried: it cannot be used here";

/// Columns that name a case.
const CASE: [&str; 5] = ["store", "memory", "writer", "tasks", "policy"];

/// Columns of what is computed.
pub(crate) const COMPUTED: [&str; 8] = [
    "store",
    "policy",
    "rate of",
    "7,750 MB published",
    "in store",
    "30 s: published",
    "in store",
    "2 min: in store",
];

impl MeasuredSetup {
    /// Describes this machine and build.
    pub(crate) fn here(
        driver: Driver,
        (rounds, scale): (u32, f64),
        real: Option<RatedStore<'_>>,
    ) -> Self {
        let file = |path| std::fs::read_to_string(path).unwrap_or_default();
        let load = file("/proc/loadavg");
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            began_unix_seconds: now.map_or(0, |it| it.as_secs()),
            version: env!("CARGO_PKG_VERSION"),
            is_release_build: !cfg!(debug_assertions),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            load_average: load.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0),
            driver: if driver == Driver::Criu { "criu" } else { "hook" },
            rounds,
            scale,
            stores: STORES.into(),
            real_store: real.map(|store| store.setup()),
        }
    }

    /// Returns a sentence about it.
    pub(crate) fn sentence(&self) -> String {
        let build = if self.is_release_build { "a release build" } else { "a DEBUG BUILD" };
        let real = self.real_store.as_ref().map_or_else(String::new, |it| {
            let rate = it.bytes_per_second / 1e6;
            format!(" The {REAL} is {}, which took {rate:.0} MB/s from one writer.", it.url)
        });
        format!(
            "{} rounds on {} processors (Linux {}, load {:.1} at the begin), {build}, driver {}. \
             Emulated stores: all that goes into one together has the rate that the authors' \
             times imply, and nothing else of the service.{real} Median (least to most).",
            self.rounds, self.processors, self.kernel, self.load_average, self.driver
        )
    }
}

impl MeasuredCheckpoints {
    /// Returns the figure of what was measured.
    pub(crate) fn of(
        setup: MeasuredSetup,
        samples: Vec<MeasuredSample>,
        refused: Vec<TriedDump>,
    ) -> Self {
        let rows = rows(&samples);
        Self { setup, goals: goals(&rows), computed: computed(&rows), rows, refused, samples }
    }
}

impl MeasuredTable {
    /// Returns the headings.
    pub(crate) fn headings(&self) -> Vec<&'static str> {
        CASE.into_iter().chain(self.columns.iter().map(|(heading, _, _)| *heading)).collect()
    }

    /// Returns the cells of the rows that belong to it.
    pub(crate) fn cells(&self, rows: &[MeasuredRow]) -> Vec<Vec<String>> {
        let own = rows.iter().filter(|row| row.case.experiment == self.experiment);
        let cells = |row: &MeasuredRow| {
            let case = &row.case;
            let mut cells = vec![
                case.store.to_owned(),
                format!("{:.0} MB", case.bytes as f64 / 1e6),
                kind_name(case.kind).to_owned(),
                case.tasks.to_string(),
                case.policy.to_string(),
            ];
            cells.extend(self.columns.iter().map(|(_, name, unit)| {
                row.values.get(name).map_or_else(|| "-".to_owned(), |it| unit.written(*it))
            }));
            cells
        };
        own.map(cells).collect()
    }
}

impl QuantityUnit {
    /// Writes the median, and the others if they differ visibly.
    fn written(self, spread: Spread) -> String {
        let one = |value: f64| match self {
            Self::Seconds | Self::Ratio => format!("{value:.2}"),
            Self::Megabytes => format!("{:.1}", value / 1e6),
            Self::Percent => format!("{:.1}", 100.0 * value),
            Self::Number => format!("{value:.0}"),
        };
        let (median, least, most) = (one(spread.median), one(spread.least), one(spread.most));
        let unit = if matches!(self, Self::Percent) { " %" } else { "" };
        match least == most {
            true => format!("{median}{unit}"),
            false => format!("{median}{unit} ({least} to {most})"),
        }
    }
}

impl ComputedRow {
    /// Returns the row of a table.
    pub(crate) fn cells(&self) -> Vec<String> {
        let gigabytes = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
        let [(_, published, stored), (_, _, longer)] = self.notices[..] else {
            unreachable!("there are two notices")
        };
        vec![
            self.store.to_owned(),
            self.policy.to_string(),
            format!("{:.0} MB", self.measured_bytes as f64 / 1e6),
            format!("{:.1} s", self.largest_published_seconds),
            format!("{:.1} s", self.largest_stored_seconds),
            gigabytes(published),
            gigabytes(stored),
            gigabytes(longer),
        ]
    }
}

impl Goal {
    /// Returns the row of a table.
    pub(crate) fn cells(&self) -> Vec<String> {
        let reached = if self.is_reached { "reached" } else { "not reached" };
        vec![self.what.clone(), self.goal.clone(), self.measured.clone(), reached.to_owned()]
    }
}

fn table(headings: &[&'static str], words: usize, rows: Vec<Vec<String>>) -> Table {
    let align = |at| if at < words { Align::Left } else { Align::Right };
    let columns: Vec<_> = headings.iter().enumerate().map(|(at, it)| (*it, align(at))).collect();
    let mut table = Table::new(&columns);
    rows.into_iter().for_each(|row| table.row(row));
    table
}

impl Figure for MeasuredCheckpoints {
    const NAME: &'static str = "checkpoint-measured";

    fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        writeln!(writer, "{}", self.setup.sentence())?;
        for it in &TABLES {
            writeln!(writer, "\n{}:", it.title)?;
            table(&it.headings(), 3, it.cells(&self.rows)).write(writer)?;
        }
        writeln!(writer, "\nComputed from the measured rates, not measured:")?;
        table(&COMPUTED, 2, self.computed.iter().map(ComputedRow::cells).collect())
            .write(writer)?;
        match self.refused.is_empty() {
            true => writeln!(writer, "\n{NOT_REFUSED}.")?,
            false => {
                writeln!(writer, "\n{REFUSED}:")?;
                let refused = self.refused.iter().map(TriedDump::cells).collect();
                table(&REFUSED_COLUMNS, 3, refused).write(writer)?;
            }
        }
        writeln!(writer, "\nGoals:")?;
        let headings = ["what", "goal", "measured", "result"];
        table(&headings, 4, self.goals.iter().map(Goal::cells).collect()).write(writer)
    }

    fn csv(&self) -> Csv {
        let mut csv = Csv::new(&[
            "experiment",
            "store",
            "megabytes",
            "writer",
            "tasks",
            "policy",
            "round",
            "quantity",
            "value",
        ]);
        for sample in &self.samples {
            let case = &sample.case;
            for (quantity, value) in &sample.values {
                csv.row([
                    format!("{:?}", case.experiment).to_lowercase(),
                    case.store.to_owned(),
                    format!("{:.3}", case.bytes as f64 / 1e6),
                    kind_name(case.kind).to_owned(),
                    case.tasks.to_string(),
                    case.policy.to_string(),
                    sample.round.to_string(),
                    (*quantity).to_owned(),
                    format!("{value:.6}"),
                ]);
            }
        }
        csv
    }

    fn section(&self) -> Section {
        page::measured::section(self)
    }
}
