//! `--dry-run`: what a drain would do, by the rules that the relocator goes by.

use std::io::{self, Write};

use sanderling_client::Client;
use sanderling_core::relocation::{DrainPlan, Planner};
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::Forecast;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{
    BlockId, Millis, NodeId, NodeSelector, Policy, Refusal, Reply, Request, Tier,
};
use serde::Serialize;

use super::{nodes, title, unexpected};
use crate::failure::Failure;
use crate::refused;
use crate::session::Session;
use crate::units;

#[derive(Serialize)]
struct DryRun {
    node: NodeInfo,
    /// Blocks that would move, and their bytes.
    blocks: u64,
    bytes: u64,
    /// Blocks that survive the node without a move, and their bytes.
    safe_blocks: u64,
    safe_bytes: u64,
    /// Bytes free on the nodes that take blocks.
    room_bytes: u64,
    /// Where the blocks would go.
    targets: Vec<PlannedTarget>,
    deadline_millis: Option<i64>,
    /// What the node's link must carry to make the deadline.
    needed_bytes_per_second: Option<u64>,
    forecast: Forecast,
    /// Whether everything would make it.
    fits: bool,
}

#[derive(Serialize)]
struct PlannedTarget {
    node: NodeId,
    name: String,
    tier: Tier,
    blocks: u64,
    bytes: u64,
}

/// Prints what a drain would do, and moves nothing.
pub(super) async fn run(
    session: &Session,
    client: &Client,
    selector: &NodeSelector,
    deadline_millis: Option<i64>,
) -> Result<(), Failure> {
    let fleet = nodes(session, client, false).await?;
    let node = found(&fleet, selector)?.clone();
    let left = deadline_millis.map(|millis| Millis(u64::try_from(millis).unwrap_or(0)));
    let planner = Planner::new(node.id, &fleet, left);
    let plan = with_blocks(session, client, node.id, planner).await?;
    let dry_run = dry_run(&fleet, node, &plan, deadline_millis);
    session.output.result(&dry_run, |writer| write(writer, &dry_run, left))
}

/// Reads the node's blocks page by page.
async fn with_blocks(
    session: &Session,
    client: &Client,
    node: NodeId,
    mut planner: Planner,
) -> Result<DrainPlan, Failure> {
    let limit = u32::try_from(BLOCKS_PER_PAGE_MAX).expect("a page fits a frame");
    let mut after = BlockId::default();
    loop {
        let request = Request::NodeBlocks { node: node.into(), after, limit };
        let reply = session.call(client, request).await?;
        let Reply::Candidates { candidates, is_more } = reply else {
            return Err(unexpected(&reply));
        };
        for candidate in &candidates {
            planner.add(candidate);
            after = candidate.block;
        }
        if !is_more {
            return Ok(planner.finish());
        }
    }
}

fn dry_run(
    fleet: &[NodeInfo],
    node: NodeInfo,
    plan: &DrainPlan,
    deadline_millis: Option<i64>,
) -> DryRun {
    let takers = fleet.iter().filter(|other| other.id != node.id && other.policy == Policy::Active);
    let free = takers
        .flat_map(|other| &other.tiers)
        .map(|tier| tier.capacity_bytes.saturating_sub(tier.used_bytes));
    let name = |id| fleet.iter().find(|other| other.id == id).map(|other| other.name.clone());
    let targets = plan.targets.iter().map(|target| PlannedTarget {
        node: target.node,
        name: name(target.node).unwrap_or_default(),
        tier: target.tier,
        blocks: target.blocks,
        bytes: target.bytes,
    });
    DryRun {
        blocks: plan.blocks,
        bytes: plan.bytes,
        safe_blocks: plan.safe_blocks,
        safe_bytes: plan.safe_bytes,
        room_bytes: free.fold(0, u64::saturating_add),
        targets: targets.collect(),
        deadline_millis,
        needed_bytes_per_second: plan.needed_bytes_per_second,
        forecast: plan.forecast,
        fits: (plan.forecast.late_bytes, plan.forecast.unplaced_bytes) == (0, 0),
        node,
    }
}

fn write(writer: &mut dyn Write, plan: &DryRun, left: Option<Millis>) -> io::Result<()> {
    let (bytes, title) = (units::bytes(plan.bytes), title(&plan.node));
    writeln!(writer, "{title}: {} blocks, {bytes} would leave", plan.blocks)?;
    if plan.safe_blocks > 0 {
        let bytes = units::bytes(plan.safe_bytes);
        writeln!(writer, "safe: {} blocks, {bytes} survive it without a move", plan.safe_blocks)?;
    }
    for target in &plan.targets {
        let (bytes, tier) = (units::bytes(target.bytes), target.tier);
        let PlannedTarget { node, name, blocks, .. } = target;
        writeln!(writer, "  to node {node} ({name}), {tier}: {blocks} blocks, {bytes}")?;
    }
    let verdict = if plan.forecast.unplaced_bytes == 0 { "enough" } else { "NOT enough" };
    writeln!(writer, "room: {}, {verdict}", units::bytes(plan.room_bytes))?;
    writeln!(writer, "forecast: {}", super::forecast(&plan.forecast))?;
    if let (Some(rate), Some(left)) = (plan.needed_bytes_per_second, left) {
        let (left, rate) = (units::millis(left), units::bytes(rate));
        writeln!(writer, "deadline: {left}, so at least {rate}/s")?;
    }
    Ok(())
}

fn found<'a>(fleet: &'a [NodeInfo], selector: &NodeSelector) -> Result<&'a NodeInfo, Failure> {
    let text = selector.0.as_str();
    fleet
        .iter()
        .find(|node| node.id.to_string() == text)
        .or_else(|| fleet.iter().find(|node| node.name == text))
        .or_else(|| fleet.iter().find(|node| node.address == text))
        .ok_or_else(|| refused::refusal_failure(&Refusal::UnknownNode { node: text.to_owned() }))
}
