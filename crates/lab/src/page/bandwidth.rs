//! Figure 5 on the page: bandwidth around one notice.

use std::collections::BTreeMap;

use super::plot::{Axis, NumberFormat, Plot, legend};
use super::{POLICIES, Section, colour_of, paragraph, rerun, table};
use crate::record::{ExperimentKind, LabRecord, PolicyName, RunRecord, Spread};

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// A run's bandwidth: seconds since the notice, MiB per second.
type Series = Vec<(f64, f64)>;

/// Returns the part of the page about bandwidth; `None` without such runs.
pub(super) fn section(lab: &LabRecord) -> Option<Section> {
    let all: Vec<(PolicyName, Vec<&RunRecord>)> = POLICIES
        .into_iter()
        .map(|policy| (policy, lab.runs_of(ExperimentKind::Notice, policy, true).collect()))
        .filter(|(_, runs): &(_, Vec<_>)| !runs.is_empty())
        .collect();
    if all.is_empty() {
        return None;
    }
    let mut body = paragraph(
        "What clients read while one of two machines gets its notice, its data moves to the other, \
         and it is killed. Thin: each round; thick: their mean. Shaded in its policy's colour: \
         from the notice until the machine is empty. While the data moves, its transfer shares \
         the link with the readers; afterwards one link is left.",
    );
    body += &legend([("blue", "sanderling"), ("amber", "baseline"), ("red", "notice, SIGKILL")]);
    body += &plot(&all);
    let columns = [
        "policy",
        "#rounds",
        "#empty after",
        "#times its link",
        "#read before, MiB/s",
        "#while it drains",
        "#after SIGKILL",
        "#failed calls",
    ];
    body += &table(&columns, all.iter().map(|(policy, runs)| row(*policy, runs)));
    body += &rerun("sanderling lab notice --out D");
    Some(Section { title: "Bandwidth around a notice (figure 5)".to_owned(), body })
}

fn plot(all: &[(PolicyName, Vec<&RunRecord>)]) -> String {
    let runs = || all.iter().flat_map(|(_, runs)| runs.iter().copied());
    let points: Vec<(f64, f64)> = runs().flat_map(series).collect();
    let (mut from, mut to, mut most) = (0.0_f64, 1.0_f64, 1.0_f64);
    for (at, rate) in points {
        (from, to, most) = (from.min(at), to.max(at), most.max(rate));
    }
    let x = Axis::linear("time since the notice", (from, to), 14, NumberFormat::SECONDS);
    let y = Axis::linear("read by clients, MiB/s", (0.0, most * 1.08), 5, NumberFormat::NONE);
    let mut plot = Plot::new(284.0, x, y);
    for (policy, runs) in all {
        if let Some(empty) = Spread::of(runs.iter().filter_map(|run| empty_after(run))) {
            let class = match policy {
                PolicyName::Sanderling => "shade-blue",
                PolicyName::Baseline => "shade",
            };
            plot.shade((0.0, empty.median), class);
        }
    }
    for (policy, runs) in all {
        for run in runs {
            plot.curve(series(run), &format!("{} thin", colour_of(*policy)));
        }
    }
    for (policy, runs) in all {
        plot.curve(mean(runs), colour_of(*policy));
    }
    plot.upright(0.0, "cut", "notice");
    if let Some(killed) = Spread::of(runs().filter_map(killed_after)) {
        plot.upright(killed.median, "cut", "SIGKILL");
    }
    plot.figure("bandwidth of readers around a notice, under both policies")
}

/// Returns when the run's notice was given.
fn noticed(run: &RunRecord) -> f64 {
    run.drains.first().map_or(0.0, |drain| drain.noticed)
}

fn empty_after(run: &RunRecord) -> Option<f64> {
    run.drains.first()?.seconds
}

fn killed_after(run: &RunRecord) -> Option<f64> {
    let node = run.nodes.iter().find(|node| node.noticed.is_some())?;
    Some(node.killed? - node.noticed?)
}

fn series(run: &RunRecord) -> Series {
    let since = noticed(run);
    // The last one is cut short by the end of the work.
    let whole = run.bandwidth.split_last().map_or(&[][..], |(_, whole)| whole);
    let point = |sample: &crate::record::Sample| {
        let bytes = (sample.read_bytes + sample.written_bytes) as f64;
        let middle = sample.at + sample.seconds / 2.0 - since;
        (middle, bytes / sample.seconds.max(1e-9) / MIB)
    };
    whole.iter().map(point).collect()
}

/// Returns the mean of the rounds, interval by interval since the notice.
fn mean(runs: &[&RunRecord]) -> Series {
    let wide = runs.iter().flat_map(|run| run.bandwidth.first()).map(|sample| sample.seconds);
    let wide = wide.fold(0.0, f64::max).max(0.05);
    let mut sums: BTreeMap<i64, (f64, u32)> = BTreeMap::new();
    for (at, rate) in runs.iter().flat_map(|run| series(run)) {
        let sum = sums.entry((at / wide).floor() as i64).or_default();
        *sum = (sum.0 + rate, sum.1 + 1);
    }
    let most = sums.values().map(|(_, count)| *count).max().unwrap_or(0);
    let is_whole = |(_, (_, count)): &(&i64, &(f64, u32))| *count * 2 > most;
    let point = |(at, (sum, count)): (&i64, &(f64, u32))| {
        ((*at as f64 + 0.5) * wide, sum / f64::from(*count))
    };
    sums.iter().filter(is_whole).map(point).collect()
}

fn row(policy: PolicyName, runs: &[&RunRecord]) -> Vec<String> {
    let spread = |pick: &dyn Fn(&RunRecord) -> Option<f64>| {
        Spread::of(runs.iter().filter_map(|run| pick(run)))
    };
    let median = |pick: &dyn Fn(&RunRecord) -> Option<f64>, unit: &str| {
        spread(pick).map_or_else(|| "–".to_owned(), |it| format!("{:.2}{unit}", it.median))
    };
    let rate = |from: f64, to: &dyn Fn(&RunRecord) -> Option<f64>| {
        median(&|run| between(run, from, to(run)?), "")
    };
    let errors: u64 = runs.iter().map(|run| run.client_errors).sum();
    vec![
        policy.to_string(),
        runs.len().to_string(),
        median(&empty_after, " s"),
        median(&|run| run.drains.first()?.over_link, ""),
        median(&|run| between(run, f64::NEG_INFINITY, 0.0), ""),
        rate(0.0, &empty_after),
        median(&|run| between(run, killed_after(run)?, f64::INFINITY), ""),
        errors.to_string(),
    ]
}

/// Returns the mean rate of the intervals whose middles lie between two moments.
fn between(run: &RunRecord, from: f64, to: f64) -> Option<f64> {
    let rates: Vec<f64> = series(run)
        .into_iter()
        .filter(|(at, _)| (from..to).contains(at))
        .map(|(_, rate)| rate)
        .collect();
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
}
