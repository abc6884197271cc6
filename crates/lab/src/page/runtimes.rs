//! Figures 3 and 4 on the page: how long the work takes with and without preemptions.

use super::plot::{Axis, NumberFormat, Plot, legend};
use super::{POLICIES, Section, colour_of, paragraph, rerun, table};
use crate::record::{ExperimentKind, LabRecord, PolicyName, RunRecord, Spread};
use crate::units::bytes;

/// The experiments of these figures.
const KINDS: [(ExperimentKind, &str); 2] =
    [(ExperimentKind::Read, "read-only"), (ExperimentKind::Write, "write-only")];

/// Returns the part of the page about run times; `None` without such runs.
pub(super) fn section(lab: &LabRecord) -> Option<Section> {
    let places = places(lab);
    if places.is_empty() {
        return None;
    }
    let mut body = paragraph(
        "How long a fixed amount of work takes while machines come and go, beside the same work \
         without preemptions; both policies meet the same notices. Bars are medians, lines reach \
         from the fastest to the slowest round. Brodmann et al. measured up to 46 % for read-only \
         work, because nothing is rebalanced: machines that live long collect the data, and their \
         links become the limit.",
    );
    body += &legend([
        ("blue", "sanderling, preempted"),
        ("amber", "baseline, preempted"),
        ("grey pale", "the same policy without preemptions"),
    ]);
    body += &plot(lab, &places);
    body +=
        &table(&COLUMNS, places.iter().map(|(kind, name, policy)| row(lab, *kind, name, *policy)));
    body += "<p class=note>The slowdown without lost capacity counts the time by the links that \
             were there: what is left is what the mechanism costs. Medians over the rounds.</p>\n";
    body += &rerun("sanderling lab read --out D");
    body += &rerun("sanderling lab write --out D");
    Some(Section { title: "Run times (figures 3 and 4)".to_owned(), body })
}

/// Returns what was measured: experiment, its name, policy.
fn places(lab: &LabRecord) -> Vec<(ExperimentKind, &'static str, PolicyName)> {
    let all = KINDS
        .into_iter()
        .flat_map(|(kind, name)| POLICIES.into_iter().map(move |policy| (kind, name, policy)));
    all.filter(|(kind, _, policy)| lab.runs_of(*kind, *policy, true).next().is_some()).collect()
}

fn seconds<'a>(runs: impl Iterator<Item = &'a RunRecord>) -> Option<Spread> {
    Spread::of(runs.map(|run| run.seconds))
}

fn plot(lab: &LabRecord, places: &[(ExperimentKind, &str, PolicyName)]) -> String {
    let longest = lab.runs.iter().filter(|run| KINDS.iter().any(|(kind, _)| *kind == run.kind));
    let longest = longest.map(|run| run.seconds).fold(1.0, f64::max);
    let y = Axis::linear("run time", (0.0, longest * 1.15), 5, NumberFormat::SECONDS);
    let names = places.iter().map(|(_, name, policy)| format!("{name}, {policy}"));
    let mut plot = Plot::new(284.0, Axis::places(names), y);
    for (at, (kind, name, policy)) in places.iter().enumerate() {
        let at = at as f64;
        let steady = seconds(lab.runs_of(*kind, *policy, false));
        if let Some(it) = steady {
            let title = format!("{name}, {policy}, without preemptions: {:.2} s", it.median);
            plot.bar((at + 0.2, at + 0.48), (0.0, it.median), "grey pale", &title);
            plot.whisker(at + 0.34, (it.min, it.max));
        }
        let Some(it) = seconds(lab.runs_of(*kind, *policy, true)) else { continue };
        let title = format!("{name}, {policy}, preempted: {:.2} s", it.median);
        plot.bar((at + 0.52, at + 0.8), (0.0, it.median), colour_of(*policy), &title);
        plot.whisker(at + 0.66, (it.min, it.max));
        let runs = lab.runs_of(*kind, *policy, true);
        if let Some(slowdown) = Spread::of(runs.filter_map(|run| lab.slowdown(run))) {
            let text = format!("{:+.1} %", slowdown.median * 100.0);
            plot.label((at + 0.66, it.max), (0.0, -8.0), "middle", &text);
        }
    }
    plot.figure("run times with and without preemptions under both policies")
}

const COLUMNS: [&str; 12] = [
    "work",
    "policy",
    "#rounds",
    "#notices",
    "#slowdown",
    "#without lost capacity",
    "#drain / link",
    "#lost",
    "#failed calls",
    "#writer waited",
    "#imbalance",
    "#rebalanced",
];

fn row(lab: &LabRecord, kind: ExperimentKind, name: &str, policy: PolicyName) -> Vec<String> {
    let runs: Vec<&RunRecord> = lab.runs_of(kind, policy, true).collect();
    let median = |pick: &dyn Fn(&RunRecord) -> Option<f64>| {
        Spread::of(runs.iter().filter_map(|run| pick(run))).map(|it| it.median)
    };
    let shown = |value: Option<f64>, write: &dyn Fn(f64) -> String| {
        value.map_or_else(|| "–".to_owned(), write)
    };
    let percent = |value: f64| format!("{:+.1} %", value * 100.0);
    let sum = |pick: &dyn Fn(&RunRecord) -> u64| runs.iter().map(|run| pick(run)).sum::<u64>();
    let drains = runs.iter().flat_map(|run| &run.drains).filter_map(|drain| drain.over_link);
    vec![
        name.to_owned(),
        policy.to_string(),
        runs.len().to_string(),
        sum(&|run| run.drains.len() as u64).to_string(),
        shown(median(&|run| lab.slowdown(run)), &percent),
        shown(median(&|run| lab.corrected_slowdown(run)), &percent),
        shown(Spread::of(drains).map(|it| it.median), &|it| format!("{it:.2}")),
        bytes(sum(&|run| run.lost_bytes)),
        sum(&|run| run.client_errors).to_string(),
        shown(median(&|run| Some(run.writer_stall_millis)), &|it| format!("{it:.0} ms")),
        shown(median(&|run| run.imbalance), &|it| format!("{it:.2}")),
        bytes(sum(&|run| run.rebalanced_bytes)),
    ]
}
