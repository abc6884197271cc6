//! Figure 2 on the page.

use super::plot::{Axis, NumberFormat, Plot, legend};
use super::{Section, paragraph, rerun, table};
use crate::figures::figure2::{Curve, Figure2};

/// Colours of the groups, in turn.
const COLOURS: [&str; 5] = ["blue", "amber", "green", "red", "grey"];

/// Returns the part of the page about lifetimes.
pub(crate) fn section(figure: &Figure2) -> Section {
    let x = Axis::stepped("age of the machine", (0.0, figure.hours), 6.0, NumberFormat::HOURS);
    let y = Axis::linear(
        "machines that were preempted until then",
        (0.0, 1.0),
        5,
        NumberFormat::PERCENT,
    );
    let mut plot = Plot::new(304.0, x, y);
    for curve in &figure.curves {
        plot.curve(curve.points.iter().copied(), &class(curve));
    }
    let picture = plot.figure("cumulative distributions of the lifetimes of spot machines");
    let names = figure.curves.iter().filter(|curve| !curve.is_data);
    let colours = names.map(|curve| (colour(curve), curve.name.as_str()));
    let has_data = figure.curves.iter().any(|curve| curve.is_data);
    let mut body = paragraph(
        "How long a spot machine lives before the cloud takes it back. The bathtub of Kadupitiya, \
         Jadhao and Sharma (HPDC 2020) has many early ends, a quiet middle and a limit at a day; \
         it belongs to the old preemptible machines, whose lifetimes were recorded in 2019. \
         Experiments draw the moments of their notices from such a model.",
    );
    body += &legend(colours);
    body += &picture;
    body += &table(
        &["distribution", "#lifetimes", "#mean", "#ends in 2 h", "#distance to its data"],
        figure.curves.iter().map(row),
    );
    if has_data {
        body += "<p class=note>Dashed, in the colour of the fit to it: what was recorded. The \
                 distance is the largest difference between two curves (Kolmogorov): 0 is the \
                 same distribution. Where a fit is far from its data, experiments resample the \
                 data.</p>\n";
    }
    body += &rerun(if has_data {
        "sanderling lab figure2 --lifetimes FILE --out D"
    } else {
        "sanderling lab figure2 --out D"
    });
    Section { title: "How long machines live (figure 2)".to_owned(), body }
}

fn colour(curve: &Curve) -> &'static str {
    COLOURS[curve.group % COLOURS.len()]
}

fn class(curve: &Curve) -> String {
    let data = if curve.is_data { " dashed" } else { "" };
    format!("{}{data}", colour(curve))
}

fn row(curve: &Curve) -> Vec<String> {
    vec![
        curve.name.clone(),
        curve.rows.map_or_else(|| "model".to_owned(), |rows| rows.to_string()),
        format!("{:.1} h", curve.mean_hours),
        format!("{:.0} %", curve.in_two_hours * 100.0),
        curve.distance.map_or_else(|| "–".to_owned(), |distance| format!("{distance:.3}")),
    ]
}
