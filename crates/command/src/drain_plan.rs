//! What a drain would do, by the rules that the relocator goes by: for `--dry-run`, and before an
//! order that would lose bytes.

use std::io::{self, Write};
use std::time::Duration;

use sanderling_client::Client;
use sanderling_core::relocation::{DrainPlan, Planner};
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::Forecast;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{
    BlockId, Millis, NodeId, NodeSelector, Policy, Refusal, Reply, Request, Tier,
};
use serde::Serialize;

use crate::failure::Failure;
use crate::fleet::{forecast, nodes, title};
use crate::refused::{self, unexpected};
use crate::session::Session;
use crate::units;

/// Time after a deadline within which the namenode reports what became of the node. It declares
/// losses at the deadline, or up to 10 s later after an absence of its own (`AFTER_ABSENCE_MAX` of
/// the catalog's `service_time`).
pub const VERDICT_TIMEOUT: Duration = Duration::from_secs(10);

/// The plan of a drain that is not begun, with the forecast of it.
#[derive(Debug, Serialize)]
pub struct DryRun {
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
    targets: Vec<TargetRow>,
    deadline_millis: Option<i64>,
    /// What the node's link must carry to make the deadline.
    needed_bytes_per_second: Option<u64>,
    forecast: Forecast,
    /// Whether everything would make it.
    fits: bool,
}

#[derive(Debug, Serialize)]
struct TargetRow {
    node: NodeId,
    name: String,
    tier: Tier,
    blocks: u64,
    bytes: u64,
}

/// Prints what a drain would do, and moves nothing.
///
/// # Errors
/// As [`planned`].
pub async fn run(
    session: &Session,
    client: &Client,
    selector: &NodeSelector,
    deadline_millis: Option<i64>,
) -> Result<(), Failure> {
    let dry_run = planned(session, client, selector, deadline_millis).await?;
    let left = deadline_millis.map(|millis| Millis(u64::try_from(millis).unwrap_or(0)));
    session.output.result(&dry_run, |writer| write(writer, &dry_run, left))
}

/// Plans a drain from the state of the namenode; the deadline is in milliseconds from now.
///
/// # Errors
/// Not found (3) when no node is meant: select one of `sanderling node ls`. Else as
/// [`Session::call`].
pub async fn planned(
    session: &Session,
    client: &Client,
    selector: &NodeSelector,
    deadline_millis: Option<i64>,
) -> Result<DryRun, Failure> {
    let fleet = nodes(session, client, false).await?;
    let node = found(&fleet, selector)?.clone();
    let left = deadline_millis.map(|millis| Millis(u64::try_from(millis).unwrap_or(0)));
    let planner = Planner::new(node.id, &fleet, left);
    let plan = with_blocks(session, client, node.id, planner).await?;
    Ok(dry_run(&fleet, node, &plan, deadline_millis))
}

impl DryRun {
    /// Describes what is to be expected, in one line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}: forecast: {}", title(&self.node), forecast(&self.forecast))
    }

    /// Returns why the drain must be confirmed: bytes would be late or have no room.
    #[must_use]
    pub fn objection(&self) -> Option<String> {
        let Forecast { late_bytes, unplaced_bytes, .. } = self.forecast;
        let room = || {
            format!(
                "{} have no room on other nodes, where {} are free",
                units::bytes(unplaced_bytes),
                units::bytes(self.room_bytes)
            )
        };
        let late = || format!("{} would not leave before the deadline", units::bytes(late_bytes));
        let why = match (late_bytes > 0, unplaced_bytes > 0) {
            (false, false) => return None,
            (true, false) => late(),
            (false, true) => room(),
            (true, true) => format!("{}, and {}", room(), late()),
        };
        let bytes = units::bytes(self.bytes);
        Some(format!("of {bytes} on {} that must move, {why}", title(&self.node)))
    }

    /// Returns the note about bytes without room, which a drain waits for.
    #[must_use]
    pub fn no_room(&self) -> Option<String> {
        let bytes = self.forecast.unplaced_bytes;
        (bytes > 0).then(|| no_room(&self.node, bytes))
    }
}

/// Describes a drain that waits for room, for people: how many bytes find none on other nodes, and
/// what makes room.
#[must_use]
pub fn no_room(node: &NodeInfo, bytes: u64) -> String {
    format!(
        "{} of {} HAVE NO ROOM on other nodes and wait for it: add a datanode, delete data, or \
         take it back with `sanderling node cancel {}`",
        units::bytes(bytes),
        title(node),
        node.name
    )
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
    let targets = plan.targets.iter().map(|target| TargetRow {
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
        fits: plan.forecast.fits(),
        node,
    }
}

fn write(writer: &mut dyn Write, plan: &DryRun, left: Option<Millis>) -> io::Result<()> {
    let (bytes, title) = (units::bytes(plan.bytes), title(&plan.node));
    let blocks = |number| units::count(number, "block", "blocks");
    writeln!(writer, "{title}: {}, {bytes} would leave", blocks(plan.blocks))?;
    if plan.safe_blocks > 0 {
        let bytes = units::bytes(plan.safe_bytes);
        let safe = blocks(plan.safe_blocks);
        writeln!(writer, "safe: {safe}, {bytes} survive it without a move")?;
    }
    for target in &plan.targets {
        let (bytes, tier) = (units::bytes(target.bytes), target.tier);
        let (TargetRow { node, name, .. }, count) = (target, blocks(target.blocks));
        writeln!(writer, "  to node {node} ({name}), {tier}: {count}, {bytes}")?;
    }
    let verdict = if plan.forecast.unplaced_bytes == 0 { "enough" } else { "NOT enough" };
    writeln!(writer, "room: {}, {verdict}", units::bytes(plan.room_bytes))?;
    writeln!(writer, "forecast: {}", forecast(&plan.forecast))?;
    if let (Some(rate), Some(left)) = (plan.needed_bytes_per_second, left) {
        let (left, rate) = (units::millis(left), units::bytes(rate));
        writeln!(writer, "deadline: {left}, so at least {rate}/s")?;
    }
    Ok(())
}

/// Returns the node that the namenode would choose. For some seconds after a start on an older
/// catalog two nodes may have one name: the newest is meant.
fn found<'a>(fleet: &'a [NodeInfo], selector: &NodeSelector) -> Result<&'a NodeInfo, Failure> {
    let text = selector.0.as_str();
    let newest = |is_it: &dyn Fn(&NodeInfo) -> bool| {
        fleet.iter().filter(|node| is_it(node)).max_by_key(|node| node.id)
    };
    newest(&|node| node.id.to_string() == text)
        .or_else(|| newest(&|node| node.name == text))
        .or_else(|| newest(&|node| node.address == text))
        .ok_or_else(|| refused::refusal_failure(&Refusal::UnknownNode { node: text.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u32, name: &str) -> NodeInfo {
        let (name, address) = (name.to_owned(), format!("10.0.0.{id}:7700"));
        NodeInfo { name, address, ..NodeInfo::joined(NodeId(id)) }
    }

    #[test]
    fn of_two_nodes_with_one_name_or_address_the_newest_is_meant() {
        let elsewhere = NodeInfo { address: "10.0.0.9:7700".to_owned(), ..node(3, "spot-1") };
        let there = NodeInfo { address: "10.0.0.2:7700".to_owned(), ..node(4, "spot-2") };
        let fleet = [node(1, "spot-1"), node(2, "spot-2"), elsewhere, there];
        let id = |text: &str| found(&fleet, &NodeSelector(text.to_owned())).ok().map(|it| it.id.0);
        assert_eq!(id("spot-1"), Some(3));
        assert_eq!(id("10.0.0.2:7700"), Some(4));
        assert_eq!(id("1"), Some(1));
        assert_eq!(id("spot-3"), None);
    }
}
