//! Figure 6: what a fleet costs on demand, and on spot machines that slow the work down.
//!
//! Brodmann et al., "An Elastic Ephemeral Datastore using Cheap, Transient Cloud Resources",
//! section 4.4 and figure 6: the same work on machines on demand, or on spot machines and one on
//! demand, for the namenode, for the longer time that it takes there.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::figures::{Figure, Written};
use crate::output::{Align, Table};
use crate::page::csv::{Csv, optional};
use crate::page::{self, Section};
use crate::record::{ExperimentKind, LabRecord, PolicyName, Spread};
use crate::units::Span;

/// Slowdowns that Brodmann et al. measured with their mechanism (sections 1 and 4.2): their
/// workload, the slowdown.
const PAPER: [(&str, f64); 2] = [("TPC-DS, paper", 0.021), ("read-only, paper", 0.46)];

/// `sanderling lab figure6`.
#[derive(Debug, Args)]
pub struct Figure6Args {
    /// Dollars per hour of a machine on demand
    #[arg(long, value_name = "DOLLARS", default_value_t = 0.776944)]
    pub(crate) on_demand: f64,
    /// Dollars per hour of a spot machine
    #[arg(long, value_name = "DOLLARS", default_value_t = 0.188320)]
    pub(crate) spot: f64,
    /// Machines of the fleet; one of them is on demand in either deployment, for the namenode
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) machines: u32,
    /// How long the work takes without preemptions
    #[arg(long, value_name = "DURATION", default_value = "2h")]
    pub(crate) work: Span,
    /// Take the slowdown from these records of a lab run: its lab.json
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Where it goes.
    #[command(flatten)]
    pub(crate) written: Written,
}

/// The whole figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure6 {
    /// Dollars per hour of a machine on demand.
    pub(crate) on_demand_dollars_per_hour: f64,
    /// Dollars per hour of a spot machine.
    pub(crate) spot_dollars_per_hour: f64,
    /// Machines of the fleet.
    pub(crate) machines: u32,
    /// Hours of the work without preemptions.
    pub(crate) work_hours: f64,
    /// One row for each deployment, the one on demand first.
    pub(crate) deployments: Vec<Deployment>,
}

/// One way to run the work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Deployment {
    /// What runs where.
    pub(crate) name: String,
    /// The mechanism that was measured; `None` where nothing was.
    pub(crate) policy: Option<PolicyName>,
    /// Spot machines among those of the fleet.
    pub(crate) spot_machines: u32,
    /// Time over the time without preemptions, minus one: the median.
    pub(crate) slowdown: f64,
    /// Over how many rounds, and how far apart, if it was measured here.
    pub(crate) spread: Option<Spread>,
    /// What the work costs.
    pub(crate) dollars: f64,
    /// The part of the cost on demand that is saved.
    pub(crate) saved: f64,
}

/// Computes the figure, with what a run of the lab measured if there is one.
pub(crate) fn compute(arguments: &Figure6Args, record: Option<&LabRecord>) -> Figure6 {
    let mut figure = Figure6 {
        on_demand_dollars_per_hour: arguments.on_demand,
        spot_dollars_per_hour: arguments.spot,
        machines: arguments.machines,
        work_hours: arguments.work.0.as_secs_f64() / 3600.0,
        deployments: Vec::new(),
    };
    figure.add("on demand", None, 0, 0.0, None);
    let spot = arguments.machines.saturating_sub(1);
    figure.add("spot, no preemption", None, spot, 0.0, None);
    for (name, slowdown) in PAPER {
        figure.add(&format!("spot, {name}"), None, spot, slowdown, None);
    }
    let Some(record) = record else { return figure };
    for (kind, what) in [(ExperimentKind::Read, "read-only"), (ExperimentKind::Write, "write-only")]
    {
        for policy in [PolicyName::Baseline, PolicyName::Sanderling] {
            let runs = record.runs_of(kind, policy, true);
            if let Some(spread) = Spread::of(runs.filter_map(|run| record.slowdown(run))) {
                let name = format!("spot, {what}, {policy}");
                figure.add(&name, Some(policy), spot, spread.median, Some(spread));
            }
        }
    }
    figure
}

impl Figure6 {
    fn add(
        &mut self,
        name: &str,
        policy: Option<PolicyName>,
        spot_machines: u32,
        slowdown: f64,
        spread: Option<Spread>,
    ) {
        let on_demand = f64::from(self.machines - spot_machines.min(self.machines));
        let per_hour = on_demand * self.on_demand_dollars_per_hour
            + f64::from(spot_machines) * self.spot_dollars_per_hour;
        let dollars = per_hour * self.work_hours * (1.0 + slowdown);
        let whole = f64::from(self.machines) * self.on_demand_dollars_per_hour * self.work_hours;
        let saved = if whole > 0.0 { 1.0 - dollars / whole } else { 0.0 };
        let name = name.to_owned();
        self.deployments.push(Deployment {
            name,
            policy,
            spot_machines,
            slowdown,
            spread,
            dollars,
            saved,
        });
    }
}

impl Figure for Figure6 {
    const NAME: &'static str = "figure6";

    fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new(&[
            ("deployment", Align::Left),
            ("on demand", Align::Right),
            ("spot", Align::Right),
            ("slowdown", Align::Right),
            ("from..to", Align::Right),
            ("cost", Align::Right),
            ("saved", Align::Right),
        ]);
        for one in &self.deployments {
            let percent = |value: f64| format!("{:.1} %", value * 100.0);
            let spread = one.spread.map_or_else(
                || "-".to_owned(),
                |it| format!("{}..{} of {}", percent(it.min), percent(it.max), it.count),
            );
            table.row([
                one.name.clone(),
                (self.machines - one.spot_machines.min(self.machines)).to_string(),
                one.spot_machines.to_string(),
                percent(one.slowdown),
                spread,
                format!("${:.2}", one.dollars),
                percent(one.saved),
            ]);
        }
        table.write(writer)
    }

    fn csv(&self) -> Csv {
        let mut csv = Csv::new(&[
            "deployment",
            "policy",
            "spot_machines",
            "machines",
            "slowdown",
            "slowdown_min",
            "slowdown_max",
            "rounds",
            "dollars",
            "saved",
        ]);
        for one in &self.deployments {
            csv.row([
                one.name.clone(),
                optional(one.policy),
                one.spot_machines.to_string(),
                self.machines.to_string(),
                format!("{:.5}", one.slowdown),
                optional(one.spread.map(|it| it.min)),
                optional(one.spread.map(|it| it.max)),
                optional(one.spread.map(|it| it.count)),
                format!("{:.6}", one.dollars),
                format!("{:.5}", one.saved),
            ]);
        }
        csv
    }

    fn section(&self) -> Section {
        page::cost::section(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::defaults;

    #[test]
    fn prices_of_the_paper_save_sixty_percent() {
        let figure = compute(&defaults(), None);
        let whole = &figure.deployments[0];
        assert!((whole.dollars - 5.0 * 0.776944 * 2.0).abs() < 1e-9 && whole.saved.abs() < 1e-9);
        assert!((figure.deployments[1].saved - 0.6061).abs() < 1e-4, "{figure:?}");
        assert!((figure.deployments[2].saved - 0.598).abs() < 1e-3, "{figure:?}");
        let mut text = Vec::new();
        figure.write(&mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("60.6 %"));
        assert_eq!(figure.csv().to_string().lines().count(), 5);
    }
}
