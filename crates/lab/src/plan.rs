//! What is to be run, resolved from the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sanderling_core::preemption::{Model, Spec};

use super::record::{ExperimentKind, PolicyName};
use crate::failure::{Exit, Failure, FailureKind};
use crate::units::{Rate, Span};

/// Seconds of Brodmann et al.'s experiments (section 4.1): about two hours each.
pub(super) const MODEL_SECONDS: f64 = 7200.0;

/// Data of figures 3 and 4, in percent of what a link carries within a notice. A run stands for two
/// hours and a notice for half a minute, but the one is compressed much more than the other: with
/// more data, moving it would take a part of the run that it never takes in those hours.
const FILL: u32 = 5;

/// What a machine of the paper's local cluster needs to send its memory: 64 GB at 32 Gbit/s (table
/// 1, figure 7).
const MEMORY_SECONDS: f64 = 16.0;

/// The background's share of a link by default, in percent: that of the manager
/// (`BackgroundConfig`).
const BACKGROUND_SHARE: f64 = 20.0;

/// The largest share, in percent, that leaves clients something. Chosen, not measured.
const BACKGROUND_SHARE_MAX: f64 = 90.0;

/// Data of figure 5, in percent of what a link carries within a notice: a drain long enough to be
/// seen. Chosen, not measured.
const NOTICE_FILL: u32 = 40;

/// Data of the exposure experiment, in percent of what a link carries within a notice: three times
/// as much, so that two thirds would be lost without copies.
const EXPOSURE_FILL: u32 = 300;

/// Memory of a node in bytes, however small the data: it has room for the objects of writers.
/// Chosen, not measured.
const DRAM_BYTES_MIN: u64 = 96 << 20;

/// Memory of a node for one byte of data: room for what others leave behind, and for copies.
/// Chosen, not measured.
const DRAM_PER_DATA: u64 = 4;

/// The shortest notice that clouds give, in seconds: Google's and Azure's.
pub(crate) const CLOUD_NOTICE_SECONDS: f64 = 30.0;

/// When loads have to be even again after the last change, in the cloud's seconds. A goal of
/// docs/LAB.md.
const EVEN_TIMEOUT_SECONDS: f64 = 120.0;

/// What all experiments understand.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Lab options")]
pub struct Options {
    /// Measure this mechanism alone [default: both, in turn]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) policy: Option<PolicyName>,
    /// Rounds; each runs every policy on the same trace [default: 5; 1 with --quick and for
    /// `exposure`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
    /// Datanodes [default: 8; 4 with --quick and for `exposure`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) nodes: Option<u32>,
    /// What each node may send, and may receive [default: 200Mbit; 80Mbit with --quick;
    /// 40Mbit for `exposure`]
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,
    /// Time from a notice to SIGKILL [default: 4s; 3s with --quick; 2s for `exposure`]
    #[arg(long, value_name = "DURATION")]
    pub(crate) notice: Option<Span>,
    /// Time from SIGKILL to the start of the replacement
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) replace_after: Span,
    /// Work that the fleet's links carry in this time [default: 60s; 6s with --quick]
    #[arg(long, value_name = "DURATION")]
    pub(crate) work: Option<Span>,
    /// Data of each node: the part of what its link carries within a notice, in percent [default:
    /// 5; 40 for `notice`, 300 for `exposure`]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) fill: Option<u32>,
    /// How long the machines live, as of --preemption-model of the namenode
    #[arg(long, value_name = "MODEL", default_value = "bathtub:n1-highcpu-16")]
    pub(crate) model: Spec,
    /// Seconds of the model that pass in one second here [default: two hours in --work]
    #[arg(long, value_name = "FACTOR")]
    pub(crate) time_scale: Option<f64>,
    /// The first round's trace; each round takes the next
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Notices of `exposure`, one after the other [default: 100; 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) notices: Option<u32>,
    /// A small run of about a minute that shows that everything works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run on loopback although namespaces are allowed
    #[arg(long)]
    pub(crate) loopback: bool,
    /// Where results and logs go
    #[arg(long, value_name = "DIR", default_value = "lab")]
    pub(crate) out: PathBuf,
}

/// What is to be run.
#[derive(Debug, Clone)]
pub(crate) struct LabPlan {
    /// The experiments, in order.
    pub(crate) kinds: Vec<ExperimentKind>,
    /// The mechanisms, in order.
    pub(crate) policies: Vec<PolicyName>,
    /// How often all of it runs.
    pub(crate) rounds: u32,
    /// Datanodes of figures 3 and 4.
    pub(crate) nodes: u32,
    /// Bytes per second of each link.
    pub(crate) link_bytes_per_second: u64,
    /// Time from a notice to SIGKILL.
    pub(crate) notice: Duration,
    /// Time from SIGKILL to the start of the replacement.
    pub(crate) replace: Duration,
    /// How long all links together need for the work.
    pub(crate) work: Duration,
    /// Data of each node as a part of what its link carries within a notice, in percent; the
    /// experiment's own where it is `None`.
    fill: Option<u32>,
    /// Lifetimes, in the lab's time.
    pub(crate) model: Model,
    /// The requested model.
    pub(crate) spec: Spec,
    /// The model in the lab's time.
    pub(crate) scaled_spec: Spec,
    /// Seconds of the model in a second of the lab.
    pub(crate) time_scale: f64,
    /// Notices of the exposure experiment.
    pub(crate) exposure_notices: u32,
    /// The first round's trace.
    pub(crate) seed: u64,
    /// Whether namespaces are not used.
    pub(crate) is_loopback: bool,
    /// Where results and logs go.
    pub(crate) out: PathBuf,
}

/// The sizes that are taken where none are given.
struct PlanSize {
    rounds: u32,
    nodes: u32,
    link_bytes_per_second: u64,
    notice: Duration,
    work: Duration,
    exposure_notices: u32,
}

impl PlanSize {
    /// Two processors carry the first; the second is a minute or two; nodes of the last hold three
    /// times what a notice moves, several times over, in the memory of one machine.
    fn of(kinds: &[ExperimentKind], is_quick: bool) -> Self {
        let [rounds, nodes, link, notice, work, exposure_notices] = match (kinds, is_quick) {
            ([ExperimentKind::Exposure], true) => [1, 4, 5_000_000, 2, 6, 3],
            ([ExperimentKind::Exposure], false) => [1, 4, 5_000_000, 2, 40, 100],
            (_, true) => [1, 4, 10_000_000, 3, 6, 3],
            (_, false) => [5, 8, 25_000_000, 4, 60, 100],
        };
        Self {
            rounds,
            nodes,
            link_bytes_per_second: u64::from(link),
            notice: Duration::from_secs(u64::from(notice)),
            work: Duration::from_secs(u64::from(work)),
            exposure_notices,
        }
    }
}

impl LabPlan {
    /// Resolves the arguments.
    ///
    /// # Errors
    /// Usage (2) for a model that cannot be read or a scale that is no factor.
    pub(crate) fn of(kinds: &[ExperimentKind], options: Options) -> Result<Self, Failure> {
        let size = PlanSize::of(kinds, options.quick);
        let link = options.link.map_or(size.link_bytes_per_second, |it| it.0);
        let notice = options.notice.map_or(size.notice, |it| it.0);
        let work = options.work.map_or(size.work, |it| it.0);
        let time_scale = options.time_scale.unwrap_or(MODEL_SECONDS / work.as_secs_f64());
        if !(time_scale.is_finite() && time_scale > 0.0) || link == 0 || work.is_zero() {
            return Err(Failure::usage("a factor, a rate and a duration are positive numbers"));
        }
        Ok(Self {
            kinds: kinds.to_vec(),
            time_scale,
            policies: policies(&options),
            rounds: options.repeat.unwrap_or(size.rounds),
            nodes: options.nodes.unwrap_or(size.nodes),
            link_bytes_per_second: link,
            notice,
            replace: options.replace_after.0,
            work,
            fill: options.fill,
            model: load(&options.model)?.sped_up(time_scale),
            scaled_spec: Spec { speed: options.model.speed * time_scale, ..options.model.clone() },
            spec: options.model,
            exposure_notices: options.notices.unwrap_or(size.exposure_notices),
            seed: options.seed,
            is_loopback: options.loopback,
            out: options.out,
        })
    }

    /// Returns the bytes of work of a run.
    #[must_use]
    pub(crate) fn work_bytes(&self) -> u64 {
        bytes(self.link_bytes_per_second, self.work) * u64::from(self.nodes)
    }

    /// Returns the bytes of data of each node.
    #[must_use]
    pub(crate) fn data_bytes(&self, kind: ExperimentKind) -> u64 {
        let fill = self.fill.unwrap_or(match kind {
            ExperimentKind::Read | ExperimentKind::Write => FILL,
            ExperimentKind::Notice => NOTICE_FILL,
            ExperimentKind::Exposure => EXPOSURE_FILL,
        });
        bytes(self.link_bytes_per_second, self.notice) * u64::from(fill) / 100
    }

    /// Returns the memory of a node.
    #[must_use]
    pub(crate) fn dram_bytes(&self, kind: ExperimentKind) -> u64 {
        (self.data_bytes(kind) * DRAM_PER_DATA).max(DRAM_BYTES_MIN)
    }

    /// Returns when loads have to be even again after the last change: two minutes, as much shorter
    /// as the lab's notice is shorter than the cloud's.
    #[must_use]
    pub(crate) fn even_within(&self) -> Duration {
        self.scaled(EVEN_TIMEOUT_SECONDS)
    }

    /// Returns a time of the cloud, as much shorter as the lab's notice is than the cloud's.
    #[must_use]
    pub(crate) fn scaled(&self, cloud_seconds: f64) -> Duration {
        self.notice.mul_f64(cloud_seconds / CLOUD_NOTICE_SECONDS)
    }

    /// Returns the background's share of a link, in percent. A run is compressed more than the time
    /// that its data needs to move, so that rebalancing at the default share would take a larger
    /// part of it than of two hours: the share is larger by as much.
    #[must_use]
    pub(crate) fn background_share(&self, kind: ExperimentKind) -> u32 {
        let move_seconds = self.data_bytes(kind) as f64 / self.link_bytes_per_second as f64;
        let share = BACKGROUND_SHARE * self.time_scale * move_seconds / MEMORY_SECONDS;
        share.clamp(BACKGROUND_SHARE, BACKGROUND_SHARE_MAX) as u32
    }

    /// Returns how many machines may leave at a time.
    #[must_use]
    pub(crate) const fn overlap_max(&self) -> usize {
        if self.nodes < 8 { 1 } else { self.nodes as usize / 4 }
    }
}

fn policies(options: &Options) -> Vec<PolicyName> {
    match options.policy {
        Some(policy) => vec![policy],
        None => vec![PolicyName::Sanderling, PolicyName::Baseline],
    }
}

/// Reads a model of lifetimes, its file included.
///
/// # Errors
/// Usage (2) for a file that cannot be read or holds no lifetimes.
pub(super) fn load(spec: &Spec) -> Result<Model, Failure> {
    Model::load(spec, |file| std::fs::read_to_string(file))
        .map_err(|error| Failure::caused(Exit::Usage, FailureKind::Usage, error))
}

/// Returns the bytes that a link carries in a time.
fn bytes(per_second: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    per_second.saturating_mul(millis) / 1000
}
