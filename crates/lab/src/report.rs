//! The output of the lab: tables and files.

use std::path::Path;

use super::record::{LabRecord, RunRecord, Spread, TargetRecord};
use crate::failure::Failure;
use crate::output::{Align, Output, Table};

/// Writes the JSON document and the tables.
///
/// # Errors
/// The local files'.
pub(crate) fn save(lab: &LabRecord, directory: &Path) -> Result<(), Failure> {
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::file(&path, error))
    };
    write("lab.json", serde_json::to_string_pretty(lab).expect("records have string keys"))?;
    write("runs.csv", runs(lab))?;
    write("drains.csv", drains(lab))?;
    write("bandwidth.csv", bandwidth(lab))
}

fn key(run: &RunRecord) -> String {
    format!("{},{},{},{}", run.kind, run.policy, run.is_preempted, run.round)
}

fn optional(figure: Option<f64>) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.4}"))
}

fn runs(lab: &LabRecord) -> String {
    let mut text = "kind,policy,is_preempted,round,seconds,slowdown,corrected_slowdown,capacity,\
                    preemptions,lost_bytes,recomputed_bytes,client_errors,moved_bytes,\
                    promoted_bytes,copied_bytes,rebalanced_bytes,imbalance,writer_stall_millis,\
                    round_trip_p99_millis,longest_call_millis\n"
        .to_owned();
    for run in &lab.runs {
        let figures = [
            key(run),
            format!("{:.3}", run.seconds),
            optional(lab.slowdown(run).filter(|_| run.is_preempted)),
            optional(lab.corrected_slowdown(run).filter(|_| run.is_preempted)),
            format!("{:.4}", run.capacity),
            run.drains.len().to_string(),
            run.lost_bytes.to_string(),
            run.recomputed_bytes.to_string(),
            run.client_errors.to_string(),
            run.moved_bytes.to_string(),
            run.promoted_bytes.to_string(),
            run.copied_bytes.to_string(),
            run.rebalanced_bytes.to_string(),
            optional(run.imbalance),
            format!("{:.3}", run.writer_stall_millis),
            format!("{:.3}", run.round_trips.p99_millis),
            format!("{:.3}", run.calls.max_millis),
        ];
        text.push_str(&figures.join(","));
        text.push('\n');
    }
    text
}

fn drains(lab: &LabRecord) -> String {
    let mut text = "kind,policy,is_preempted,round,node,noticed,bytes,moved_bytes,promoted_bytes,\
                    lost_bytes,seconds,over_link\n"
        .to_owned();
    for (run, drain) in lab.runs.iter().flat_map(|run| run.drains.iter().map(move |it| (run, it))) {
        let figures = [
            key(run),
            drain.name.clone(),
            format!("{:.3}", drain.noticed),
            drain.bytes.to_string(),
            drain.moved_bytes.to_string(),
            drain.promoted_bytes.to_string(),
            drain.lost_bytes.to_string(),
            optional(drain.seconds),
            optional(drain.over_link),
        ];
        text.push_str(&figures.join(","));
        text.push('\n');
    }
    text
}

fn bandwidth(lab: &LabRecord) -> String {
    let mut text =
        "kind,policy,is_preempted,round,at,seconds,read_bytes,written_bytes,nodes\n".to_owned();
    let samples = lab.runs.iter().flat_map(|run| run.bandwidth.iter().map(move |it| (run, it)));
    for (run, sample) in samples {
        let figures = [
            key(run),
            format!("{:.3}", sample.at),
            format!("{:.3}", sample.seconds),
            sample.read_bytes.to_string(),
            sample.written_bytes.to_string(),
            sample.nodes.to_string(),
        ];
        text.push_str(&figures.join(","));
        text.push('\n');
    }
    text
}

/// Prints the targets, and under `--json` everything.
///
/// # Errors
/// Writing the output.
pub(crate) fn print(output: Output, lab: &LabRecord, directory: &Path) -> Result<(), Failure> {
    output.result(lab, |writer| {
        let (left, right) = (Align::Left, Align::Right);
        let mut table = Table::new(&[
            ("experiment", left),
            ("policy", left),
            ("what", left),
            ("median", right),
            ("min", right),
            ("max", right),
            ("of", right),
            ("target", right),
            ("reached", left),
        ]);
        for target in &lab.targets {
            table.row(row(target));
        }
        table.write(writer)?;
        writeln!(writer, "{}", directory.join("lab.json").display())
    })
}

fn row(target: &TargetRecord) -> [String; 9] {
    let figure = |pick: fn(Spread) -> f64| {
        target.spread.map_or_else(|| "-".to_owned(), |spread| short(pick(spread)))
    };
    [
        target.kind.to_string(),
        target.policy.to_string(),
        target.name.clone(),
        figure(|it| it.median),
        figure(|it| it.min),
        figure(|it| it.max),
        target.spread.map_or(0, |it| it.count).to_string(),
        format!("<= {}", short(target.limit)),
        target.is_reached.map_or("-", |it| if it { "yes" } else { "no" }).to_owned(),
    ]
}

/// Writes a figure with three decimals, and without where it has none.
fn short(figure: f64) -> String {
    if figure.fract() == 0.0 { format!("{figure:.0}") } else { format!("{figure:.3}") }
}
