//! `sanderling lab trace`: prints the trace that an experiment of the lab would play, for
//! experiments that preempt something else by it.

use clap::Args;
use sanderling_core::preemption::Spec;
use serde::Serialize;

use super::plan::{self, MODEL_SECONDS};
use super::trace::{self, Preemption, Shape};
use crate::failure::Failure;
use crate::output::Output;
use crate::units::Span;

/// `sanderling lab trace`.
#[derive(Debug, Args)]
pub struct Trace {
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
pub(crate) fn print(output: Output, wanted: &Trace) -> Result<(), Failure> {
    let work = wanted.work.0;
    let time_scale = wanted.time_scale.unwrap_or(MODEL_SECONDS / work.as_secs_f64());
    if !(time_scale.is_finite() && time_scale > 0.0) || work.is_zero() {
        return Err(Failure::usage("a factor and a duration are positive numbers"));
    }
    let shape = Shape {
        slots: wanted.nodes,
        horizon: work,
        notice: wanted.notice.0,
        replace: wanted.replace_after.0,
        overlap_max: wanted.overlap as usize,
        notices_min: 1,
        busy: work / 2,
    };
    let model = plan::load(&wanted.model)?.sped_up(time_scale);
    let drawn = Drawn {
        model: wanted.model.to_string(),
        time_scale,
        preemptions: trace::draw(&model, &shape, wanted.seed).into_iter().map(Into::into).collect(),
    };
    output.result(&drawn, |writer| {
        writeln!(writer, "{:>9}  slot", "seconds")?;
        for one in &drawn.preemptions {
            writeln!(writer, "{:>9.3}  {:>4}", one.at_seconds, one.slot)?;
        }
        Ok(())
    })
}
