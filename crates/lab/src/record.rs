//! What the lab measured: plain records that become JSON and CSV, and that pages plot.

use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use crate::policy::PolicyName;

/// Everything that one call of `sanderling lab` measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LabRecord {
    /// What it was measured on.
    pub(crate) setup: Setup,
    /// Every run, in the order in which they ran.
    pub(crate) runs: Vec<RunRecord>,
    /// The results of the runs for each target.
    pub(crate) targets: Vec<TargetRecord>,
}

/// What the runs have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// When it began: seconds since 1970.
    pub(crate) began_unix_seconds: u64,
    /// The program's version.
    pub(crate) version: String,
    /// The operating system's release.
    pub(crate) kernel: String,
    /// Processors that all nodes and clients share.
    pub(crate) processors: usize,
    /// Processes that were runnable when it began, the lab's own not included (1 min average).
    pub(crate) load_average: f64,
    /// How the nodes were kept apart.
    pub(crate) isolation: Isolation,
    /// Datanodes of the fleet of figures 3 and 4.
    pub(crate) nodes: u32,
    /// Bytes per second that each node may send, and, in namespaces, receive.
    pub(crate) link_bytes_per_second: u64,
    /// Time from a notice to SIGKILL.
    pub(crate) notice_millis: u64,
    /// Time from SIGKILL to the start of the replacement.
    pub(crate) replace_millis: u64,
    /// The requested preemption model.
    pub(crate) model: String,
    /// Seconds of the model in one second of the lab.
    pub(crate) time_scale: f64,
    /// The first round's seed; each round counts one up.
    pub(crate) seed: u64,
    /// Rounds: each runs every policy on the same trace.
    pub(crate) rounds: u32,
}

/// How the nodes are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Isolation {
    /// A network namespace for each, its link shaped by the kernel.
    Namespaces,
    /// All on loopback; each paces what it sends.
    Loopback,
}

/// The experiments that run a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExperimentKind {
    /// Figures 3 and 4: random reads of long-lived data.
    Read,
    /// Figures 3 and 4: short-lived data is written.
    Write,
    /// Figure 5: bandwidth around one notice.
    Notice,
    /// Nodes that hold three times what a notice lets them move.
    Exposure,
}

impl fmt::Display for ExperimentKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Notice => "notice",
            Self::Exposure => "exposure",
        })
    }
}

/// One run: a fleet from its start to its end under one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// What ran.
    pub(crate) kind: ExperimentKind,
    /// Under which mechanism.
    pub(crate) policy: PolicyName,
    /// Whether nodes were preempted; else it is the baseline of its policy and round.
    pub(crate) is_preempted: bool,
    /// Counts from 0. The trace is the same for all runs of a round.
    pub(crate) round: u32,
    /// How long the fixed work took, or the measured time where the time is fixed.
    pub(crate) seconds: f64,
    /// Bytes of the work.
    pub(crate) work_bytes: u64,
    /// Time-average of the links that were there, as a part of the whole fleet's. A node counts
    /// from when it serves until it has been emptied, and at most until it is killed: how long a
    /// drain takes, and that a new node is empty, is not excused; that a machine is away is.
    pub(crate) capacity: f64,
    /// The same, where a node counts until it is killed, also while it is empty.
    pub(crate) capacity_until_killed: f64,
    /// Calls that failed, without `DataUnavailable`, which is counted as recomputation.
    pub(crate) client_errors: u64,
    /// The first of those errors.
    pub(crate) first_error: Option<String>,
    /// Bytes that the namenode declared lost.
    pub(crate) lost_bytes: u64,
    /// Bytes that the workload wrote again because they were unavailable.
    pub(crate) recomputed_bytes: u64,
    /// Bytes moved by drains.
    pub(crate) moved_bytes: u64,
    /// Bytes whose copy became their home at a notice.
    pub(crate) promoted_bytes: u64,
    /// Bytes copied ahead of notices.
    pub(crate) copied_bytes: u64,
    /// Bytes moved to make loads even.
    pub(crate) rebalanced_bytes: u64,
    /// Longest time from a write's first refusal to its success, of writers that wait for each of
    /// their writes.
    pub(crate) writer_stall_millis: f64,
    /// The same of the workload's calls, many of which are under way at once.
    pub(crate) stall_millis: f64,
    /// How long calls of the workload took.
    pub(crate) calls: LatencyRecord,
    /// How long each write took of those that wait for it.
    pub(crate) round_trips: LatencyRecord,
    /// Largest over mean bytes of the nodes, at the scaled time after the last change.
    pub(crate) imbalance: Option<f64>,
    /// Each node, in the order of their starts.
    pub(crate) nodes: Vec<NodeRecord>,
    /// Each drain, in the order of the notices.
    pub(crate) drains: Vec<DrainRecord>,
    /// What the clients moved over time.
    pub(crate) bandwidth: Vec<Sample>,
}

/// How long calls took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LatencyRecord {
    /// Number of calls.
    pub(crate) count: u64,
    /// Half of them took no longer.
    pub(crate) p50_millis: f64,
    /// All but one of a hundred took no longer.
    pub(crate) p99_millis: f64,
    /// The longest.
    pub(crate) max_millis: f64,
}

/// One incarnation of one place of the fleet. Times are seconds from the start of the work and may
/// be negative.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    /// Its place: a replacement takes its predecessor's.
    pub(crate) slot: u32,
    /// Its name in the cluster.
    pub(crate) name: String,
    /// When it served.
    pub(crate) served: f64,
    /// When its notice was given.
    pub(crate) noticed: Option<f64>,
    /// When it was killed.
    pub(crate) killed: Option<f64>,
}

/// One drain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DrainRecord {
    /// The node's name.
    pub(crate) name: String,
    /// When the notice was given, in seconds from the start of the work.
    pub(crate) noticed: f64,
    /// Bytes whose home it was then.
    pub(crate) bytes: u64,
    /// Bytes that moved.
    pub(crate) moved_bytes: u64,
    /// Bytes whose copy became their home.
    pub(crate) promoted_bytes: u64,
    /// Bytes declared lost.
    pub(crate) lost_bytes: u64,
    /// From the notice until the node held nothing more; `None` when that never came.
    pub(crate) seconds: Option<f64>,
    /// That time over (moved bytes / link rate); `None` without a time or moved bytes.
    pub(crate) over_link: Option<f64>,
}

/// What happened in one interval of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// The interval's start, in seconds from the start of the work.
    pub(crate) at: f64,
    /// Its length in seconds.
    pub(crate) seconds: f64,
    /// Bytes that clients read in it.
    pub(crate) read_bytes: u64,
    /// Bytes that clients wrote in it.
    pub(crate) written_bytes: u64,
    /// Nodes that lived at its start.
    pub(crate) nodes: u32,
}

/// A figure to reach, and what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TargetRecord {
    /// What it is about.
    pub(crate) kind: ExperimentKind,
    /// The mechanism measured.
    pub(crate) policy: PolicyName,
    /// A stable name such as `slowdown`.
    pub(crate) name: String,
    /// What it means, in words with the unit.
    pub(crate) about: String,
    /// What is to be reached: the median must not be above it.
    pub(crate) limit: f64,
    /// The median, the smallest and the largest over the rounds; `None` without a measurement.
    pub(crate) spread: Option<Spread>,
    /// Whether the median is within the limit.
    pub(crate) is_reached: Option<bool>,
}

/// The middle and the ends of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// The middle one.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
    /// How many there were.
    pub(crate) count: u32,
}

impl Spread {
    /// Sums figures up; `None` of none. Between two middle figures lies their mean.
    #[must_use]
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len();
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        Some(Self { median, min, max, count: u32::try_from(count).unwrap_or(u32::MAX) })
    }
}

impl LabRecord {
    /// Returns the runs of one experiment under one mechanism, in their order.
    pub(crate) fn runs_of(
        &self,
        kind: ExperimentKind,
        policy: PolicyName,
        is_preempted: bool,
    ) -> impl Iterator<Item = &RunRecord> {
        let is_it = move |run: &&RunRecord| {
            run.kind == kind && run.policy == policy && run.is_preempted == is_preempted
        };
        self.runs.iter().filter(is_it)
    }

    /// Returns the run without preemptions of the same experiment, mechanism and round.
    #[must_use]
    pub(crate) fn baseline(&self, run: &RunRecord) -> Option<&RunRecord> {
        self.runs_of(run.kind, run.policy, false).find(|other| other.round == run.round)
    }

    /// Returns run time over that of the run without preemptions, minus one; `None` if there is no
    /// such run.
    #[must_use]
    pub(crate) fn slowdown(&self, run: &RunRecord) -> Option<f64> {
        Some(run.seconds / self.baseline(run)?.seconds - 1.0)
    }

    /// The slowdown that is left when the time is counted by the links that were there.
    #[must_use]
    pub(crate) fn corrected_slowdown(&self, run: &RunRecord) -> Option<f64> {
        let baseline = self.baseline(run)?;
        Some(run.seconds * run.capacity / (baseline.seconds * baseline.capacity) - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_the_middle_and_the_ends() {
        assert_eq!(Spread::of([]), None);
        let odd = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.count), (2.0, 1.0, 3.0, 3));
        assert_eq!(Spread::of([4.0, 1.0]).map(|it| it.median), Some(2.5));
    }
}
