//! Measured checkpoints on the page.

use super::plot::{Axis, NumberFormat, Plot, legend};
use super::{Section, colour_of, paragraph, rerun, table};
use crate::checkpoints::figure::{
    COMPUTED, MeasuredCheckpoints, NOT_REFUSED, REFUSED, REFUSED_COLUMNS, TABLES,
};
use crate::checkpoints::record::{ComputedRow, Experiment, Goal, MeasuredRow};
use crate::checkpoints::refusals::TriedDump;
use crate::checkpoints::stage::kind_name;
use crate::record::PolicyName;

/// Space for the names of the cases, of which the longest fits. Chosen, not measured: in units of
/// the picture, which is 1140 wide.
const NAMES: f64 = 330.0;

/// Height of one bar with its gap. Chosen, not measured: in units of the picture, which is 1140
/// wide.
const ROW: f64 = 26.0;

/// Returns the part of the page about measured checkpoints.
pub(crate) fn section(figure: &MeasuredCheckpoints) -> Section {
    let mut body = paragraph(&figure.setup.sentence());
    body +=
        &table(&["goal of", "goal", "measured", "result"], figure.goals.iter().map(Goal::cells));
    body += "<h3>How long a task stands still</h3>\n";
    body += &paragraph(
        "The freeze of the first dump of each task, by size and store. The baseline \
         writes the whole state straight into the store; ours writes what is new into the cluster, \
         which copies it to the store while the task goes on.",
    );
    body += &legend([
        (colour_of(PolicyName::Sanderling), "sanderling"),
        (colour_of(PolicyName::Baseline), "baseline"),
    ]);
    body += &bars(&figure.rows);
    for it in &TABLES {
        body += &format!("<h3>{}</h3>\n", it.title);
        let headings = it.headings();
        let numbers: Vec<String> = headings[5..].iter().map(|it| format!("#{it}")).collect();
        let columns: Vec<&str> =
            headings[..5].iter().copied().chain(numbers.iter().map(String::as_str)).collect();
        body += &table(&columns, it.cells(&figure.rows));
    }
    body += "<h3>Computed from the measured rates, not measured</h3>\n";
    body += &table(&COMPUTED, figure.computed.iter().map(ComputedRow::cells));
    if figure.refused.is_empty() {
        body += &paragraph(&format!("{NOT_REFUSED}."));
    } else {
        body += &format!("<h3>{REFUSED}</h3>\n");
        body += &table(&REFUSED_COLUMNS, figure.refused.iter().map(TriedDump::cells));
    }
    let (title, rerun_of) = match &figure.setup.real_store {
        None => ("Measured checkpoints with emulated stores", ""),
        Some(_) => ("Measured checkpoints with emulated stores and a real one", " --store URL"),
    };
    body += &rerun(&format!("sanderling lab checkpoint --measure{rerun_of} --out D"));
    Section { title: title.to_owned(), body }
}

fn bars(rows: &[MeasuredRow]) -> String {
    let dumps = rows.iter().filter(|row| row.case.experiment == Experiment::Dump);
    let shown: Vec<(&MeasuredRow, f64)> =
        dumps.filter_map(|row| Some((row, row.median("frozen_seconds")?))).collect();
    let most = shown.iter().map(|(_, seconds)| *seconds).fold(0.1, f64::max) * 1.15;
    let x = Axis::linear("seconds", (0.0, most), 8, NumberFormat::NONE);
    let name = |(row, _): &(&MeasuredRow, f64)| {
        let case = &row.case;
        let megabytes = case.bytes / 1_000_000;
        format!("{}: {megabytes} MB, {}, {}", case.store, kind_name(case.kind), case.policy)
    };
    // The first is at the top.
    let places = Axis::places(shown.iter().rev().map(name));
    let mut plot = Plot::beside(NAMES, ROW * shown.len() as f64, x, places);
    for (at, (row, seconds)) in shown.iter().rev().enumerate() {
        let y = (at as f64 + 0.2, at as f64 + 0.8);
        let text = format!("{seconds:.2} s");
        plot.bar((0.0, *seconds), y, colour_of(row.case.policy), &text);
        plot.label((*seconds, at as f64 + 0.5), (8.0, 4.0), "start", &text);
    }
    plot.figure("time for which a task stands still, by store, size and policy")
}
