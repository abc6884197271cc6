//! `sanderling node ls`.

use std::io::{self, Write};

use sanderling_protocol::node::{Availability, DrainProgress, NodeInfo};
use sanderling_protocol::{Millis, Policy, Tier};
use serde::Serialize;

use crate::args::node::Ls;
use crate::failure::Failure;
use crate::output::{Align, Table, is_coloured};
use crate::session::Session;
use crate::units;

#[derive(Serialize)]
struct Fleet {
    /// Bytes on the fullest active node over the mean of the active nodes, less one.
    imbalance: f64,
    exposure_bytes: u64,
    nodes: Vec<NodeInfo>,
}

pub(super) async fn run(session: &Session, args: Ls) -> Result<(), Failure> {
    let client = session.client().await?;
    let nodes = super::nodes(session, &client, args.all).await?;
    let fleet = Fleet {
        imbalance: imbalance(&nodes),
        exposure_bytes: nodes.iter().map(|node| node.exposure_bytes).sum(),
        nodes,
    };
    session.output.result(&fleet, |writer| write(writer, &fleet))
}

fn write(writer: &mut dyn Write, fleet: &Fleet) -> io::Result<()> {
    if fleet.nodes.is_empty() {
        return writeln!(writer, "no nodes");
    }
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("name", Align::Left),
        ("address", Align::Left),
        ("state", Align::Left),
        ("heard", Align::Right),
        ("blocks", Align::Right),
        ("exposure", Align::Right),
        ("dram", Align::Left),
        ("disk", Align::Left),
    ]);
    for node in &fleet.nodes {
        table.row([
            node.id.to_string(),
            node.name.clone(),
            node.address.clone(),
            state(node),
            units::millis(node.heartbeat_age),
            node.blocks.to_string(),
            units::bytes(node.exposure_bytes),
            tier(node, Tier::Dram),
            tier(node, Tier::Disk),
        ]);
    }
    table.write(writer)?;
    for node in &fleet.nodes {
        if let Some(drain) = &node.drain {
            writeln!(writer, "{}", drain_line(node, drain))?;
        }
    }
    let active = fleet.nodes.iter().filter(|node| node.policy == Policy::Active).count();
    writeln!(
        writer,
        "{active} active of {}, {} exposed, imbalance {:.0} %",
        fleet.nodes.len(),
        units::bytes(fleet.exposure_bytes),
        fleet.imbalance * 100.0
    )
}

fn state(node: &NodeInfo) -> String {
    let policy = super::policy(node.policy);
    let word = match node.availability {
        Availability::Suspect => format!("{policy}, suspect"),
        Availability::Down if node.policy != Policy::Gone => format!("{policy}, down"),
        _ => policy.to_owned(),
    };
    // Only the name of the state is short enough not to disturb the column when it is coloured.
    if !is_coloured() || node.policy == Policy::Active {
        return word;
    }
    let colour = if node.policy == Policy::Gone { 31 } else { 33 };
    format!("\u{1b}[{colour}m{word}\u{1b}[0m")
}

fn tier(node: &NodeInfo, tier: Tier) -> String {
    match node.tiers.iter().find(|usage| usage.tier == tier) {
        Some(usage) => {
            format!("{} of {}", units::bytes(usage.used_bytes), units::bytes(usage.capacity_bytes))
        }
        None => "-".to_owned(),
    }
}

/// Describes a drain in one line.
pub(super) fn drain_line(node: &NodeInfo, drain: &DrainProgress) -> String {
    let elapsed = std::time::Duration::from(drain.elapsed);
    let mut parts = vec![
        format!("moved {} ({} blocks)", units::bytes(drain.moved_bytes), drain.moved_blocks),
        format!("left {} ({} blocks)", units::bytes(drain.left_bytes), drain.left_blocks),
        format!("lost {} ({} blocks)", units::bytes(drain.lost_bytes), drain.lost_blocks),
    ];
    if node.policy.is_draining() {
        parts.push(units::rate(drain.moved_bytes, elapsed));
        parts.push(match drain.finish_in {
            Some(left) => format!("done in {}", units::millis(left)),
            None => "not moving yet".to_owned(),
        });
    }
    if let Some(left) = node.deadline_in.filter(|left| *left > Millis(0)) {
        parts.push(format!("deadline in {}", units::millis(left)));
    }
    if !node.reason.is_empty() {
        parts.push(format!("because of: {}", node.reason));
    }
    format!("{}: {}", super::title(node), parts.join(", "))
}

/// Returns how far the fullest active node is above the mean, 0 when all hold the same.
#[expect(clippy::cast_precision_loss)]
fn imbalance(nodes: &[NodeInfo]) -> f64 {
    let active: Vec<u64> = nodes
        .iter()
        .filter(|node| node.policy == Policy::Active)
        .map(|node| node.exposure_bytes)
        .collect();
    let (sum, max) = (active.iter().sum::<u64>(), active.iter().max().copied().unwrap_or(0));
    if sum == 0 { 0.0 } else { max as f64 * active.len() as f64 / sum as f64 - 1.0 }
}
