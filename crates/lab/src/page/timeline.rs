//! The picture that leads the page: every place of the fleet over time, from notice to gone.

use std::fmt::Write;

use super::colour_of;
use super::plot::{Axis, NumberFormat, Plot, legend};
use crate::record::{DrainRecord, NodeRecord, PolicyName, RunRecord};
use crate::units::bytes;

/// Height of one place. Chosen, not measured: in units of the picture, which is 1140 wide.
const ROW_HEIGHT: f64 = 34.0;

/// Space for the names of the places, of which the longest fits. Chosen, not measured: in units of
/// the picture, which is 1140 wide.
const NAMES: f64 = 76.0;

/// Most notices in one picture: the bars of more would be too short to read. Chosen, not measured.
const NOTICES_MAX: usize = 40;

/// Returns what the colours of a timeline mean.
pub(super) fn colours() -> String {
    legend([
        ("held", "a machine holds data"),
        ("held-next", "its replacement"),
        ("lit", "from its notice to SIGKILL"),
        ("blue", "its data leaves (sanderling)"),
        ("amber", "its data leaves (baseline)"),
        ("red", "the part that was lost"),
    ])
}

/// Returns the pictures of runs, on one scale of time.
pub(super) fn pictures(runs: &[&RunRecord]) -> String {
    let end = runs.iter().map(|run| end_of(run)).fold(1.0, f64::max);
    runs.iter().map(|run| picture(run, end)).collect()
}

fn picture(run: &RunRecord, last: f64) -> String {
    let end = end_of(run);
    let places = run.nodes.iter().map(|node| node.slot + 1).max().unwrap_or(1);
    let x = Axis::linear("time since the work began", (0.0, last), 12, NumberFormat::SECONDS);
    let y = Axis::places((0..places).rev().map(|place| format!("machine {}", place + 1)));
    let mut plot = Plot::beside(NAMES, ROW_HEIGHT * f64::from(places), x, y);
    plot.title(&title(run));
    for place in 0..places {
        let row = f64::from(places - 1 - place);
        let mut nodes: Vec<&NodeRecord> = run.nodes.iter().filter(|it| it.slot == place).collect();
        nodes.sort_by(|one, other| one.served.total_cmp(&other.served));
        for (at, node) in nodes.into_iter().enumerate() {
            let class = if at % 2 == 0 { "held" } else { "held-next" };
            machine(&mut plot, run, node, (row, end), class);
        }
    }
    if run.seconds < end {
        plot.upright(run.seconds, "mark", "work done");
    }
    plot.figure(&title(run))
}

fn title(run: &RunRecord) -> String {
    let lost = if run.lost_bytes == 0 {
        "nothing lost".to_owned()
    } else {
        format!("{} lost", bytes(run.lost_bytes))
    };
    let mut title = format!(
        "{}: {} machines taken away, {} moved, {lost}, {} failed calls",
        run.policy,
        run.drains.len(),
        bytes(run.moved_bytes),
        run.client_errors
    );
    if run.promoted_bytes > 0 {
        let _ = write!(title, ", {} had a copy already", bytes(run.promoted_bytes));
    }
    title
}

/// Returns when the picture of a run ends: when its work was done and the machines that had their
/// notice by then are gone, or after so many notices as can be distinguished.
fn end_of(run: &RunRecord) -> f64 {
    let mut notices: Vec<f64> = run.drains.iter().map(|drain| drain.noticed).collect();
    notices.sort_by(f64::total_cmp);
    let until = notices.get(NOTICES_MAX).map_or(run.seconds, |next| next.min(run.seconds));
    let was_noticed = |node: &&NodeRecord| node.noticed.is_some_and(|at| at < until);
    let killed = run.nodes.iter().filter(was_noticed).filter_map(|node| node.killed);
    killed.fold(until, f64::max).max(1.0)
}

/// Draws one machine.
fn machine(
    plot: &mut Plot,
    run: &RunRecord,
    node: &NodeRecord,
    (row, end): (f64, f64),
    class: &str,
) {
    let from = node.served.max(0.0);
    let to = node.killed.unwrap_or(end).min(end);
    if from >= end || to <= 0.0 {
        return;
    }
    let drain = drain_of(run, node);
    let about = words(node, drain);
    plot.bar((from, to), (row + 0.08, row + 0.92), class, &about);
    let Some(noticed) = node.noticed.filter(|at| *at < end) else { return };
    plot.bar((noticed, to), (row + 0.08, row + 0.92), "lit", &about);
    if let Some(drain) = drain {
        leaving(plot, run.policy, drain, (from, noticed.max(0.0), to), row, &about);
    }
    if node.killed.is_some_and(|killed| killed <= end) {
        plot.upright_part(to, (row + 0.02, row + 0.98), "killed");
    }
}

/// Draws how a machine's data leaves between its notice and its end.
fn leaving(
    plot: &mut Plot,
    policy: PolicyName,
    drain: &DrainRecord,
    (from, noticed, to): (f64, f64, f64),
    row: f64,
    about: &str,
) {
    let low = (row + 0.08, row + 0.34);
    let lost = drain.lost_bytes as f64 / drain.bytes.max(drain.lost_bytes).max(1) as f64;
    let lost_from = to - (to - noticed) * lost;
    let left = drain.seconds.map_or(lost_from, |seconds| (noticed + seconds).min(to));
    plot.bar((noticed, left), low, colour_of(policy), about);
    let (class, text) = if drain.lost_bytes > 0 {
        plot.bar((lost_from, to), low, "red", about);
        ("loss", format!("{} lost", bytes(drain.lost_bytes)))
    } else {
        ("small", format!("{} saved", bytes(drain.moved_bytes + drain.promoted_bytes)))
    };
    // After the notice, or before it where that is too short.
    let short = text.rsplit_once(' ').map_or(text.as_str(), |(number, _)| number);
    plot.fitting_label((noticed, row + 0.5), (from, to), class, (&text, short));
}

/// Returns the drain of a machine.
fn drain_of<'a>(run: &'a RunRecord, node: &NodeRecord) -> Option<&'a DrainRecord> {
    let noticed = node.noticed?;
    let distance = |drain: &&DrainRecord| (drain.noticed - noticed).abs();
    run.drains
        .iter()
        .filter(|drain| drain.name == node.name)
        .min_by(|one, other| distance(one).total_cmp(&distance(other)))
}

fn words(node: &NodeRecord, drain: Option<&DrainRecord>) -> String {
    let mut text = node.name.clone();
    if let Some(noticed) = node.noticed {
        let _ = write!(text, ": notice at {noticed:.2} s");
    }
    if let Some(drain) = drain {
        let _ = write!(text, ", {} held, {} moved", bytes(drain.bytes), bytes(drain.moved_bytes));
        if drain.promoted_bytes > 0 {
            let _ = write!(text, ", {} had a copy", bytes(drain.promoted_bytes));
        }
        if let Some(seconds) = drain.seconds {
            let _ = write!(text, ", empty after {seconds:.2} s");
        }
        let _ = write!(text, ", {} lost", bytes(drain.lost_bytes));
    }
    if let (Some(noticed), Some(killed)) = (node.noticed, node.killed) {
        let _ = write!(text, ", killed after {:.2} s", killed - noticed);
    }
    text
}
