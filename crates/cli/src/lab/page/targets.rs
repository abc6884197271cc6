//! What was to be reached, and whether it was, both policies side by side.

use super::csv::{Csv, optional};
use super::{Section, paragraph, table};
use crate::lab::record::{Kind, LabRecord, PolicyName, TargetRecord};

/// Returns the part of the page about targets; `None` without any.
pub(super) fn section(lab: &LabRecord) -> Option<Section> {
    if lab.targets.is_empty() {
        return None;
    }
    let mut rows: Vec<(Kind, &str)> = Vec::new();
    for target in &lab.targets {
        if !rows.contains(&(target.kind, &target.name)) {
            rows.push((target.kind, &target.name));
        }
    }
    let find = |kind: Kind, name: &str, policy: PolicyName| {
        let is_it = |it: &&TargetRecord| it.kind == kind && it.name == name && it.policy == policy;
        lab.targets.iter().find(is_it)
    };
    let columns = [
        "experiment",
        "what",
        "#at most",
        "#sanderling",
        "#least to most",
        "sanderling",
        "#seed",
        "#least to most",
        "seed",
    ];
    let rows = rows.into_iter().map(|(kind, name)| {
        let ours = find(kind, name, PolicyName::Sanderling);
        let theirs = find(kind, name, PolicyName::Seed);
        let known = ours.or(theirs).expect("the row comes from a target");
        let mut cells = vec![kind.to_string(), known.about.clone(), short(known.limit)];
        cells.extend(measured(ours));
        cells.extend(measured(theirs));
        cells
    });
    let mut body = paragraph(
        "The median over all measurements counts; beside it the least and the most. Both policies \
         had the same traces.",
    );
    body += &table(&columns, rows);
    Some(Section { title: "Targets".to_owned(), body })
}

fn measured(target: Option<&TargetRecord>) -> [String; 3] {
    let none = || "–".to_owned();
    let Some(spread) = target.and_then(|target| target.spread) else {
        return [none(), none(), "not measured".to_owned()];
    };
    let range = format!("{} to {} of {}", short(spread.min), short(spread.max), spread.count);
    let reached = match target.and_then(|target| target.is_reached) {
        Some(true) => "reached",
        Some(false) => "not reached",
        None => "not measured",
    };
    [short(spread.median), range, reached.to_owned()]
}

/// Writes a figure with as many decimals as it needs.
fn short(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else if value.abs() >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
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
