//! Figure 6 on the page.

use super::plot::{Axis, NumberFormat, Plot, legend};
use super::{Section, colour_of, paragraph, rerun, table};
use crate::figures::figure6::{Deployment, Figure6};

/// Space for the names of the deployments, of which the longest fits. Chosen, not measured: in
/// units of the picture, which is 1140 wide.
const NAMES: f64 = 210.0;

/// Height of one bar with its gap. Chosen, not measured: in units of the picture, which is 1140
/// wide.
const ROW: f64 = 34.0;

/// Returns the part of the page about costs.
pub(crate) fn section(figure: &Figure6) -> Section {
    let rows = &figure.deployments;
    let most = rows.iter().map(|one| one.dollars).fold(0.0, f64::max) * 1.18;
    let x = Axis::linear("cost of the work", (0.0, most), 8, NumberFormat::DOLLARS);
    // The first is at the top.
    let y = Axis::places(rows.iter().rev().map(|one| one.name.clone()));
    let mut plot = Plot::beside(NAMES, ROW * rows.len() as f64, x, y);
    for (at, one) in rows.iter().rev().enumerate() {
        let at = at as f64;
        let text = format!("${:.2}, {:.1} % saved", one.dollars, one.saved * 100.0);
        let text = if one.spot_machines == 0 { format!("${:.2}", one.dollars) } else { text };
        plot.bar((0.0, one.dollars), (at + 0.2, at + 0.8), colour(one), &text);
        plot.label((one.dollars, at + 0.5), (8.0, 4.0), "start", &text);
    }
    let machines = figure.machines;
    let mut body = paragraph(&format!(
        "What the same work costs: {machines} machines on demand at ${:.6} an hour, or {} spot \
         machines at ${:.6} and one on demand for the namenode, for as much longer as preemptions \
         make the work take ({:.1} hours without preemptions).",
        figure.on_demand_dollars_per_hour,
        machines.saturating_sub(1),
        figure.spot_dollars_per_hour,
        figure.work_hours,
    ));
    body += &legend([
        ("grey", "on demand; spot without preemptions"),
        ("green", "slowdowns that Brodmann et al. measured"),
        ("amber", "their mechanism, measured here"),
        ("blue", "sanderling, measured here"),
    ]);
    body += &plot.figure("cost of a fleet on demand and on spot machines");
    body += &table(
        &["deployment", "#spot machines", "#slowdown", "#least to most", "#cost", "#saved"],
        rows.iter().map(row),
    );
    body += &rerun("sanderling lab figure6 --record D/lab.json --out D");
    Section { title: "What it costs (figure 6)".to_owned(), body }
}

fn colour(one: &Deployment) -> &'static str {
    match one.policy {
        Some(policy) => colour_of(policy),
        None if one.slowdown > 0.0 => "green",
        None => "grey",
    }
}

fn row(one: &Deployment) -> Vec<String> {
    let percent = |value: f64| format!("{:.1} %", value * 100.0);
    let spread = one.spread.map_or_else(
        || "–".to_owned(),
        |it| format!("{} to {} of {}", percent(it.min), percent(it.max), it.count),
    );
    vec![
        one.name.clone(),
        one.spot_machines.to_string(),
        percent(one.slowdown),
        spread,
        format!("${:.3}", one.dollars),
        percent(one.saved),
    ]
}
