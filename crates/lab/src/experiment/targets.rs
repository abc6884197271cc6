//! What is to be reached, and whether it was.

use crate::plan::CLOUD_NOTICE_SECONDS;
use crate::record::{ExperimentKind, LabRecord, PolicyName, RunRecord, Spread, TargetRecord};

/// What a writer may lose at a fence beside a round trip, in milliseconds. A goal of docs/LAB.md.
const STALL_MILLIS: f64 = 10.0;

/// Drains of less than this part of a second's bytes are not measured by them, as a divisor: they
/// take a few round trips, whatever they move. Chosen, not measured.
const DRAIN_LINK_PART: u64 = 10;

/// One figure to reach.
struct Goal {
    kind: ExperimentKind,
    name: &'static str,
    about: &'static str,
    limit: f64,
    measure: fn(&LabRecord, &RunRecord) -> Vec<f64>,
}

/// The targets of each experiment.
const TARGETS: &[Goal] = &[
    Goal {
        kind: ExperimentKind::Read,
        name: "slowdown",
        about: "run time over that without preemptions, less 1 and less the capacity that was gone",
        limit: 0.05,
        measure: |lab, run| lab.corrected_slowdown(run).into_iter().collect(),
    },
    Goal { kind: ExperimentKind::Read, limit: 0.05, ..SCALED_SLOWDOWN },
    Goal {
        kind: ExperimentKind::Read,
        name: "imbalance",
        about: "largest over mean bytes of the nodes, scaled two minutes after the last change",
        limit: 1.15,
        measure: |_, run| run.imbalance.into_iter().collect(),
    },
    Goal { kind: ExperimentKind::Read, ..DRAIN },
    Goal { kind: ExperimentKind::Read, ..LOST },
    Goal { kind: ExperimentKind::Read, ..RECOMPUTED },
    Goal { kind: ExperimentKind::Read, ..ERRORS },
    Goal {
        kind: ExperimentKind::Write,
        name: "slowdown",
        about: "run time over that without preemptions, less 1 and less the capacity that was gone",
        limit: 0.01,
        measure: |lab, run| lab.corrected_slowdown(run).into_iter().collect(),
    },
    Goal { kind: ExperimentKind::Write, limit: 0.01, ..SCALED_SLOWDOWN },
    Goal {
        kind: ExperimentKind::Write,
        name: "writer_stall",
        about: "longest time from a refused write to its success, less a round trip, in ms",
        limit: STALL_MILLIS,
        measure: |lab, run| {
            let round_trip = lab.baseline(run).map(|it| it.round_trips.p99_millis);
            round_trip.map(|it| run.writer_stall_millis - it).into_iter().collect()
        },
    },
    Goal { kind: ExperimentKind::Write, ..DRAIN },
    Goal { kind: ExperimentKind::Write, ..LOST },
    Goal { kind: ExperimentKind::Write, ..ERRORS },
    Goal { kind: ExperimentKind::Notice, ..DRAIN },
    Goal { kind: ExperimentKind::Notice, ..LOST },
    Goal { kind: ExperimentKind::Notice, ..ERRORS },
    Goal { kind: ExperimentKind::Exposure, ..LOST },
    Goal { kind: ExperimentKind::Exposure, ..RECOMPUTED },
    Goal { kind: ExperimentKind::Exposure, ..ERRORS },
];

/// The slowdown where a notice takes no larger part of a run than in the cloud. A run is compressed
/// more than a notice, and what a preemption costs belongs to the notice: moving the data, finding
/// the new places, the first blocks on the replacement.
const SCALED_SLOWDOWN: Goal = Goal {
    kind: ExperimentKind::Read,
    name: "scaled_slowdown",
    about: "the same, with notices no larger a part of the run than in the cloud",
    limit: 0.0,
    measure: |lab, run| {
        let notice = lab.setup.notice_millis as f64 / 1e3;
        let part = CLOUD_NOTICE_SECONDS / notice / lab.setup.time_scale;
        lab.corrected_slowdown(run).map(|it| it * part.min(1.0)).into_iter().collect()
    },
};

const DRAIN: Goal = Goal {
    kind: ExperimentKind::Read,
    name: "drain",
    about: "time from a notice to an empty node over (moved bytes / link rate), of drains that \
            move what a link carries in a tenth of a second",
    limit: 1.2,
    measure: |lab, run| {
        let bytes_min = lab.setup.link_bytes_per_second / DRAIN_LINK_PART;
        let drains = run.drains.iter().filter(|drain| drain.moved_bytes >= bytes_min);
        drains.filter_map(|drain| drain.over_link).collect()
    },
};

const LOST: Goal = Goal {
    kind: ExperimentKind::Read,
    name: "lost_bytes",
    about: "bytes declared lost",
    limit: 0.0,
    measure: |_, run| vec![run.lost_bytes as f64],
};

const RECOMPUTED: Goal = Goal {
    kind: ExperimentKind::Read,
    name: "recomputed",
    about: "bytes written again for each lost byte",
    limit: 1.1,
    measure: |_, run| {
        let lost = (run.lost_bytes > 0).then_some(run.lost_bytes as f64);
        lost.map(|lost| run.recomputed_bytes as f64 / lost).into_iter().collect()
    },
};

const ERRORS: Goal = Goal {
    kind: ExperimentKind::Read,
    name: "client_errors",
    about: "calls that failed",
    limit: 0.0,
    measure: |_, run| vec![run.client_errors as f64],
};

/// Measures every target on the runs there are.
#[must_use]
pub(crate) fn targets(lab: &LabRecord, policies: &[PolicyName]) -> Vec<TargetRecord> {
    let record = |target: &Goal, policy: PolicyName| {
        let runs = lab.runs_of(target.kind, policy, true);
        let spread = Spread::of(runs.flat_map(|run| (target.measure)(lab, run)));
        TargetRecord {
            kind: target.kind,
            policy,
            name: target.name.to_owned(),
            about: target.about.to_owned(),
            limit: target.limit,
            spread,
            is_reached: spread.map(|spread| spread.median <= target.limit),
        }
    };
    let has_runs = |target: &&Goal| lab.runs.iter().any(|run| run.kind == target.kind);
    let wanted = TARGETS.iter().filter(has_runs);
    wanted.flat_map(|target| policies.iter().map(move |policy| record(target, *policy))).collect()
}
