//! What was to be reached, and whether it was, both policies side by side.

use super::csv::{Csv, optional};
use super::{POLICIES, Section, paragraph, table};
use crate::record::{ExperimentKind, LabRecord, PolicyName, TargetRecord};
use crate::units::bytes;

/// Returns the part of the page about targets; `None` without any.
pub(super) fn section(lab: &LabRecord) -> Option<Section> {
    if lab.targets.is_empty() {
        return None;
    }
    let mut rows: Vec<(ExperimentKind, &str)> = Vec::new();
    for target in &lab.targets {
        if !rows.contains(&(target.kind, &target.name)) {
            rows.push((target.kind, &target.name));
        }
    }
    let find = |kind: ExperimentKind, name: &str, policy: PolicyName| {
        let is_it = |it: &&TargetRecord| it.kind == kind && it.name == name && it.policy == policy;
        lab.targets.iter().find(is_it)
    };
    let is_measured = |policy: &PolicyName| lab.targets.iter().any(|it| it.policy == *policy);
    let policies: Vec<PolicyName> = POLICIES.into_iter().filter(is_measured).collect();
    let mut columns = vec!["experiment".to_owned(), "what".to_owned(), "#at most".to_owned()];
    columns.extend(policies.iter().flat_map(|policy| [format!("#{policy}"), String::new()]));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let rows = rows.into_iter().map(|(kind, name)| {
        let one = |policy: &PolicyName| find(kind, name, *policy);
        let known = policies.iter().find_map(one).expect("the row comes from a target");
        let mut cells = vec![kind.to_string(), known.about.clone(), formatted(name, known.limit)];
        cells.extend(policies.iter().flat_map(|policy| measured(one(policy))));
        cells
    });
    let mut body = paragraph(
        "The median over all measurements counts; in brackets the least and the most. Both \
         policies had the same traces.",
    );
    body += &table(&columns, rows);
    Some(Section { title: "Targets".to_owned(), body })
}

/// Returns the median with the least and the most, and whether it is within the limit.
fn measured(target: Option<&TargetRecord>) -> [String; 2] {
    let Some((target, spread)) = target.and_then(|it| Some((it, it.spread?))) else {
        return ["–".to_owned(), "not measured".to_owned()];
    };
    let shown = |value| formatted(&target.name, value);
    let figure = if spread.min == spread.max {
        format!("{} (all {})", shown(spread.median), spread.count)
    } else {
        let (least, most) = (shown(spread.min), shown(spread.max));
        format!("{} ({least} to {most}, {} in all)", shown(spread.median), spread.count)
    };
    let reached = match target.is_reached {
        Some(true) => "reached",
        Some(false) => "not reached",
        None => "not measured",
    };
    [figure, reached.to_owned()]
}

/// Writes a figure in the unit of its name, with as many decimals as it needs.
fn formatted(name: &str, value: f64) -> String {
    if name == "slowdown" {
        return format!("{:.1} %", value * 100.0);
    }
    if name.ends_with("_bytes") && value >= 0.0 {
        return bytes(value as u64);
    }
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else if value.abs() >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Returns the targets for spreadsheets.
pub(super) fn csv(lab: &LabRecord) -> Csv {
    let mut csv = Csv::new(&[
        "kind",
        "policy",
        "name",
        "about",
        "limit",
        "median",
        "min",
        "max",
        "count",
        "is_reached",
    ]);
    for target in &lab.targets {
        csv.row([
            target.kind.to_string(),
            target.policy.to_string(),
            target.name.clone(),
            target.about.clone(),
            target.limit.to_string(),
            optional(target.spread.map(|it| it.median)),
            optional(target.spread.map(|it| it.min)),
            optional(target.spread.map(|it| it.max)),
            optional(target.spread.map(|it| it.count)),
            optional(target.is_reached),
        ]);
    }
    csv
}
