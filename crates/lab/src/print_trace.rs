//! `sanderling lab trace`: prints the trace that an experiment of the lab would play, for
//! experiments that preempt something else by it.

use std::io::Write;

use clap::Args;
use sanderling_core::preemption::Spec;
use sanderling_sim::{GroupPreemption, GroupTrace, GroupTraceOutcome, run_group_trace};
use serde::Serialize;

use super::plan::{self, MODEL_SECONDS};
use super::trace::{self, Preemption, TraceBounds};
use crate::failure::{Exit, Failure, FailureKind};
use crate::output::Output;
use crate::units::Span;

/// `sanderling lab trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Machines of the fleet, all new at the beginning
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) nodes: u32,
    /// No notice comes later; the model's two hours pass in this time
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(crate) work: Span,
    /// Seconds of the model that pass in one second here [default: two hours in --work]
    #[arg(long, value_name = "FACTOR")]
    pub(crate) time_scale: Option<f64>,
    /// Time from a notice to the end of the machine
    #[arg(long, value_name = "DURATION", default_value = "4s")]
    pub(crate) notice: Span,
    /// Time from there to the start of its replacement
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) replace_after: Span,
    /// Machines that may leave at a time; one more waits
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) overlap: u32,
    /// How long the machines live, as of --preemption-model of the namenode
    #[arg(long, value_name = "MODEL", default_value = "bathtub:n1-highcpu-16")]
    pub(crate) model: Spec,
    /// The first draw, from this seed's on, with a notice in the first half of --work is taken
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Run a group of namenodes on the first machines, in simulation, and report how long it did
    /// not answer and what it lost
    #[arg(long)]
    pub(crate) spot_namenodes: bool,
    /// Namenodes of that group that vote
    #[arg(long, value_name = "N", default_value_t = 3, requires = "spot_namenodes",
          value_parser = clap::value_parser!(u32).range(1..=7))]
    pub(crate) voters: u32,
    /// Namenodes beside them that wait to take the place of one
    #[arg(long, value_name = "N", default_value_t = 1, requires = "spot_namenodes",
          value_parser = clap::value_parser!(u32).range(0..=4))]
    pub(crate) spares: u32,
}

/// A trace and its clock.
#[derive(Debug, Serialize)]
struct Drawn {
    /// The requested model of lifetimes.
    model: String,
    /// Seconds of the model that pass in one second of the trace.
    time_scale: f64,
    /// The preemptions, in order.
    preemptions: Vec<DrawnNotice>,
    /// What a group of namenodes on the first machines makes of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    namenodes: Option<SpotNamenodes>,
}

/// A simulated group of namenodes on machines that the trace takes.
#[derive(Debug, Serialize)]
struct SpotNamenodes {
    /// Namenodes that vote.
    voters: u32,
    /// Namenodes beside them.
    spares: u32,
    /// Notices of their machines.
    preempted: u64,
    /// Elections, transfers of the leadership included.
    elections: u64,
    /// Changes that were acknowledged.
    acknowledged: u64,
    /// Of those, changes that are gone in the end.
    lost: u64,
    /// Milliseconds in gaps of more than 50 ms without an acknowledged change, in all.
    unavailable_millis: u64,
    /// The longest of them.
    longest_millis: u64,
}

impl SpotNamenodes {
    /// Runs the group in simulation.
    ///
    /// # Errors
    /// Failure (1) when a change was lost, or a checker of the simulation has found something.
    fn run(wanted: &TraceArgs, preemptions: &[Preemption]) -> Result<Self, Failure> {
        let one = |it: &Preemption| GroupPreemption { at: it.at.into(), slot: it.slot };
        let (voters, spares) = (wanted.voters, wanted.spares);
        let trace = GroupTrace {
            voters,
            spares,
            preemptions: preemptions.iter().map(one).collect(),
            notice: wanted.notice.0.into(),
            replace: wanted.replace_after.0.into(),
        };
        let outcome = run_group_trace(trace, wanted.seed);
        let GroupTraceOutcome { preempted, elections, acknowledged, lost, .. } = outcome;
        let what = match outcome.violation {
            Some(why) => Some(why),
            None => (lost > 0).then(|| format!("{lost} acknowledged changes are lost")),
        };
        if let Some(what) = what {
            return Err(Failure::new(Exit::Failure, FailureKind::Violation, what)
                .next("the same with more --spares, or a longer --notice"));
        }
        let (unavailable_millis, longest_millis) = (outcome.unavailable.0, outcome.longest.0);
        Ok(Self {
            voters,
            spares,
            preempted,
            elections,
            acknowledged,
            lost,
            unavailable_millis,
            longest_millis,
        })
    }

    fn write(&self, writer: &mut dyn Write) -> std::io::Result<()> {
        let Self { voters, spares, preempted, elections, .. } = self;
        writeln!(
            writer,
            "namenodes: {voters} voters and {spares} spares, {preempted} notices, {elections} \
             elections"
        )?;
        let Self { acknowledged, lost, unavailable_millis, longest_millis, .. } = self;
        writeln!(writer, "{lost} of {acknowledged} acknowledged changes lost")?;
        writeln!(
            writer,
            "{unavailable_millis} ms without an answer in all, {longest_millis} ms at most"
        )
    }
}

/// One preemption.
#[derive(Debug, Serialize)]
struct DrawnNotice {
    /// When the notice comes, from the start.
    at_seconds: f64,
    /// The place of the fleet.
    slot: u32,
}

impl From<Preemption> for DrawnNotice {
    fn from(one: Preemption) -> Self {
        Self { at_seconds: one.at.as_secs_f64(), slot: one.slot }
    }
}

/// Draws and prints a trace.
///
/// # Errors
/// Usage (2) for a model that cannot be read or a scale that is no factor.
pub(crate) fn print(output: Output, wanted: &TraceArgs) -> Result<(), Failure> {
    let work = wanted.work.0;
    let time_scale = wanted.time_scale.unwrap_or(MODEL_SECONDS / work.as_secs_f64());
    if !(time_scale.is_finite() && time_scale > 0.0) || work.is_zero() {
        return Err(Failure::usage("a factor and a duration are positive numbers"));
    }
    let shape = TraceBounds {
        slots: wanted.nodes,
        horizon: work,
        notice: wanted.notice.0,
        replace: wanted.replace_after.0,
        overlap_max: wanted.overlap as usize,
        notices_min: 1,
        busy: work / 2,
    };
    let model = plan::load(&wanted.model)?.sped_up(time_scale);
    if wanted.spot_namenodes && wanted.voters + wanted.spares > wanted.nodes {
        let why = "more namenodes than --nodes: each needs a machine of its own";
        return Err(Failure::usage(why));
    }
    let preemptions = trace::draw(&model, &shape, wanted.seed);
    let namenodes = match wanted.spot_namenodes {
        true => Some(SpotNamenodes::run(wanted, &preemptions)?),
        false => None,
    };
    let drawn = Drawn {
        model: wanted.model.to_string(),
        time_scale,
        preemptions: preemptions.into_iter().map(Into::into).collect(),
        namenodes,
    };
    output.result(&drawn, |writer| {
        writeln!(writer, "{:>9}  slot", "seconds")?;
        for one in &drawn.preemptions {
            writeln!(writer, "{:>9.3}  {:>4}", one.at_seconds, one.slot)?;
        }
        drawn.namenodes.as_ref().map_or(Ok(()), |it| it.write(writer))
    })
}
