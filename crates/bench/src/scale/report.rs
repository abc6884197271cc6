//! The report of a run: a document, or a table and whether cost grew faster than work.

use std::io::{self, Write};

use serde::Serialize;

use super::Scale;
use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::session::Session;

use super::record::Point;

#[derive(Serialize)]
struct ScaleReport {
    phase_seconds: f64,
    points: Vec<Point>,
    /// The cost of one unit where it is highest, over where it is lowest.
    linearity: Vec<Growth>,
    factor: f64,
    is_linear: bool,
}

/// How one unit's cost differs between the points.
#[derive(Serialize)]
struct Growth {
    cost: &'static str,
    unit: &'static str,
    least: f64,
    most: f64,
    growth: f64,
}

/// A cost of one unit that must not grow with their number.
type Unit = (&'static str, &'static str, fn(&Point) -> f64);

const UNITS: &[Unit] = &[
    ("registration", "CPU us", |point| point.register.cpu_micros_each),
    ("heartbeat", "CPU us", |point| point.heartbeat.cpu_micros_each),
    ("file", "CPU us", |point| point.file.cpu_micros_each),
    ("value", "CPU us", |point| point.value.cpu_micros_each),
    ("lookup", "CPU us", |point| point.lookup.cpu_micros_each),
    ("block reported", "CPU us", |point| point.report.cpu_micros_each),
    ("block drained", "CPU us", |point| point.drain.cpu_micros_each),
    ("object recovered", "CPU us", |point| point.recovery.cpu_micros_per_object),
    ("file in memory", "bytes", |point| point.bytes_per_file),
    ("value in memory", "bytes", |point| point.bytes_per_value),
    ("file in the journal", "bytes", |point| point.journal_bytes_per_file),
    ("value in the journal", "bytes", |point| point.journal_bytes_per_value),
];

pub(super) fn print(session: &Session, args: &Scale, points: Vec<Point>) -> Result<(), Failure> {
    let linearity: Vec<Growth> = UNITS.iter().map(|unit| growth(*unit, &points)).collect();
    let is_linear = linearity.iter().all(|it| it.growth <= args.factor);
    let phase_seconds = args.phase.0.as_secs_f64();
    let report = ScaleReport { phase_seconds, points, linearity, factor: args.factor, is_linear };
    session.output.result(&report, |writer| table(&report, writer))
}

fn growth((cost, unit, measure): Unit, points: &[Point]) -> Growth {
    // What is below the clock's resolution is left out.
    let each = points.iter().map(measure).filter(|it| *it > 0.0);
    let (least, most) =
        each.fold((f64::INFINITY, 0.0_f64), |(least, most), it| (least.min(it), most.max(it)));
    let growth = if least.is_finite() { most / least } else { 1.0 };
    let least = if least.is_finite() { least } else { 0.0 };
    Growth { cost, unit, least, most, growth }
}

fn table(report: &ScaleReport, writer: &mut dyn Write) -> io::Result<()> {
    let mut columns = vec![("", Align::Left)];
    columns.extend(report.points.iter().map(|_| ("", Align::Right)));
    let mut table = Table::new(&columns);
    for (name, cell) in ROWS {
        let cells = report.points.iter().map(cell);
        table.row(std::iter::once((*name).to_owned()).chain(cells));
    }
    table.write(writer)?;
    writeln!(writer)?;
    let right = Align::Right;
    let mut growths = Table::new(&[
        ("cost of one", Align::Left),
        ("in", Align::Left),
        ("least", right),
        ("most", right),
        ("growth", right),
    ]);
    for it in &report.linearity {
        let mark = if it.growth > report.factor { " !" } else { "" };
        let (cost, unit) = (it.cost.to_owned(), it.unit.to_owned());
        let growth = format!("{:.2}{mark}", it.growth);
        growths.row([cost, unit, short(it.least), short(it.most), growth]);
    }
    growths.write(writer)?;
    let verdict = if report.is_linear { "linear" } else { "more than linear" };
    writeln!(writer, "{verdict}: no unit may cost {} times another", report.factor)
}

type Row = (&'static str, fn(&Point) -> String);

const ROWS: &[Row] = &[
    ("objects", |it| it.objects.to_string()),
    ("nodes", |it| it.nodes.to_string()),
    ("files made /s", |it| whole(it.file.per_second)),
    ("values made /s", |it| whole(it.value.per_second)),
    ("CPU us / file", |it| short(it.file.cpu_micros_each)),
    ("CPU us / value", |it| short(it.value.cpu_micros_each)),
    ("longest lookup while filling, ms", |it| millis(it.filling.lookup_micros.max)),
    ("longest change while filling, ms", |it| millis(it.filling.change_micros.max)),
    ("memory bytes / file", |it| whole(it.bytes_per_file)),
    ("memory bytes / value", |it| whole(it.bytes_per_value)),
    ("memory MiB, most", |it| mib(it.memory_bytes_max)),
    ("journal bytes / file", |it| whole(it.journal_bytes_per_file)),
    ("journal bytes / value", |it| whole(it.journal_bytes_per_value)),
    ("lookups /s in frames of 128", |it| whole(it.lookup.per_second)),
    ("CPU us / lookup", |it| short(it.lookup.cpu_micros_each)),
    ("lookup alone p50 us", |it| it.quiet.lookup_micros.p50.to_string()),
    ("lookup alone p99 us", |it| it.quiet.lookup_micros.p99.to_string()),
    ("CPU us / registration", |it| short(it.register.cpu_micros_each)),
    ("CPU us / heartbeat", |it| short(it.heartbeat.cpu_micros_each)),
    ("heartbeat p99 us", |it| it.heartbeat_micros.p99.to_string()),
    ("CPU us / block reported", |it| short(it.report.cpu_micros_each)),
    ("blocks reported /s", |it| whole(it.report.per_second)),
    ("lookup p50 us while reported", |it| it.reporting.lookup_micros.p50.to_string()),
    ("lookup p99 us while reported", |it| it.reporting.lookup_micros.p99.to_string()),
    ("longest lookup while reported, ms", |it| millis(it.reporting.lookup_micros.max)),
    ("blocks drained", |it| it.drain.count.to_string()),
    ("drain seconds", |it| short(it.drain.seconds)),
    ("CPU us / block drained", |it| short(it.drain.cpu_micros_each)),
    ("lookup p99 us while draining", |it| it.draining.lookup_micros.p99.to_string()),
    ("snapshot MiB", |it| mib(it.snapshot_bytes)),
    ("journal MiB read at the start", |it| mib(it.recovery.journal_bytes)),
    ("seconds until it served again", |it| short(it.recovery.seconds)),
    ("the same per million objects", |it| short(it.recovery.seconds_per_million_objects)),
    ("seconds until all nodes were back", |it| short(it.recovery.nodes_back_seconds)),
];

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

fn short(number: f64) -> String {
    if number < 100.0 { format!("{number:.2}") } else { format!("{number:.0}") }
}

fn millis(micros: u64) -> String {
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

fn mib(bytes: u64) -> String {
    (bytes >> 20).to_string()
}
