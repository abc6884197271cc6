//! The exposure bound on the page: nodes that hold more than a notice lets them move.

use super::{POLICIES, Section, paragraph, rerun, table, timeline};
use crate::record::{ExperimentKind, LabRecord, PolicyName, RunRecord};
use crate::units::bytes;

/// Returns the part of the page about exposure; `None` without such runs.
pub(super) fn section(lab: &LabRecord) -> Option<Section> {
    let runs = |policy| lab.runs_of(ExperimentKind::Exposure, policy, true).collect::<Vec<_>>();
    let all: Vec<(PolicyName, Vec<&RunRecord>)> =
        POLICIES.into_iter().map(|policy| (policy, runs(policy))).collect();
    if all.iter().all(|(_, runs)| runs.is_empty()) {
        return None;
    }
    let mut body = paragraph(
        "Machines that hold three times what their link can send within a notice. Without a bound \
         two thirds of such a machine are lost. With it, what is beyond the bound has a copy on \
         another machine when the notice comes, and only the rest has to move.",
    );
    // Where there is no other experiment, its pictures lead the page already.
    let leads =
        lab.runs.iter().all(|run| run.kind == ExperimentKind::Exposure || !run.is_preempted);
    let firsts: Vec<&RunRecord> =
        all.iter().filter(|_| !leads).filter_map(|(_, runs)| runs.first().copied()).collect();
    if !firsts.is_empty() {
        body += &timeline::colours();
        body += &timeline::pictures(&firsts);
    }
    let columns = [
        "policy",
        "#rounds",
        "#notices",
        "#nowhere else at notices",
        "#moved",
        "#had a copy",
        "#lost",
    ];
    let rows = all.iter().filter(|(_, runs)| !runs.is_empty());
    body += &table(&columns, rows.map(|(policy, runs)| row(*policy, runs)));
    body += &rerun("sanderling lab exposure --out D");
    Some(Section { title: "More than a notice can move".to_owned(), body })
}

fn row(policy: PolicyName, runs: &[&RunRecord]) -> Vec<String> {
    let drains = || runs.iter().flat_map(|run| &run.drains);
    vec![
        policy.to_string(),
        runs.len().to_string(),
        drains().count().to_string(),
        bytes(drains().map(|drain| drain.bytes).sum()),
        bytes(drains().map(|drain| drain.moved_bytes).sum()),
        bytes(drains().map(|drain| drain.promoted_bytes).sum()),
        bytes(drains().map(|drain| drain.lost_bytes).sum()),
    ]
}
