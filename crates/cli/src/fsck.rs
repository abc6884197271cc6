//! `sanderling fsck`: the catalog against itself, and against what the datanodes hold.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use sanderling_client::Client;
use sanderling_protocol::event::LossReport;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::FsckReport;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, NodeId, Order, OrderReply, Policy, Reply, Request};
use serde::Serialize;

use crate::args::tools::Fsck;
use crate::failure::{Exit, Failure};
use crate::node::{nodes, unexpected};
use crate::session::Session;
use crate::units;

#[derive(Serialize)]
struct Outcome {
    #[serde(flatten)]
    catalog: FsckReport,
    report: LossReport,
    deep: Option<Deep>,
}

/// What the datanodes hold.
#[derive(Debug, Default, Serialize)]
struct Deep {
    nodes: u64,
    held_blocks: u64,
    held_bytes: u64,
    problems: Vec<String>,
}

/// Checks, prints, and ends with 5 when data is lost, 1 when something is wrong.
///
/// # Errors
/// As said; unavailable (4) when the namenode cannot be reached.
pub(crate) async fn run(session: Session, args: Fsck) -> Result<(), Failure> {
    let client = session.client().await?;
    let reply = session.ask(&client, Request::Fsck).await?;
    let Reply::Fsck(catalog) = reply else { return Err(unexpected(&reply)) };
    let reply = session.ask(&client, Request::Report).await?;
    let Reply::Report(report) = reply else { return Err(unexpected(&reply)) };
    let deep = if args.deep { Some(deep(&session, &client).await?) } else { None };
    let outcome = Outcome { catalog, report, deep };
    session.output.result(&outcome, |writer| write(writer, &outcome))?;
    verdict(&outcome)
}

fn verdict(outcome: &Outcome) -> Result<(), Failure> {
    let deep = outcome.deep.as_ref().map_or(0, |deep| deep.problems.len());
    let problems = outcome.catalog.problems.len() + deep;
    if problems > 0 {
        let cause = format!("{problems} problems");
        return Err(Failure::new(Exit::Failure, "Problems", cause)
            .next("sanderling events, and tell the authors: a contradiction is a bug"));
    }
    if outcome.catalog.lost_blocks > 0 {
        let lost = units::bytes(outcome.catalog.lost_bytes);
        let cause = format!("{lost} in {} blocks are lost", outcome.catalog.lost_blocks);
        return Err(Failure::new(Exit::Partial, "DataUnavailable", cause)
            .next("delete the objects with sanderling fs rm, or compute them again"));
    }
    Ok(())
}

fn write(writer: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let catalog = &outcome.catalog;
    writeln!(
        writer,
        "{} files, {} directories, {} blocks, {}, {} blocks being written",
        catalog.files,
        catalog.directories,
        catalog.blocks,
        units::bytes(catalog.bytes),
        catalog.open_blocks
    )?;
    if let Some(deep) = &outcome.deep {
        let held = units::bytes(deep.held_bytes);
        writeln!(writer, "{} nodes hold {} blocks, {held}", deep.nodes, deep.held_blocks)?;
    }
    let report = &outcome.report;
    writeln!(
        writer,
        "since the beginning: {} notices, {} moved, {} lost in {} blocks",
        report.notices,
        units::bytes(report.moved_bytes),
        units::bytes(report.bytes),
        report.blocks
    )?;
    if catalog.lost_blocks > 0 {
        let lost = units::bytes(catalog.lost_bytes);
        writeln!(writer, "LOST now: {lost} in {} blocks of", catalog.lost_blocks)?;
        for path in &catalog.lost_objects {
            writeln!(writer, "  {path}")?;
        }
    }
    let deep = outcome.deep.iter().flat_map(|deep| &deep.problems);
    for problem in catalog.problems.iter().chain(deep) {
        writeln!(writer, "problem: {problem}")?;
    }
    let is_clean = catalog.lost_blocks == 0
        && catalog.problems.is_empty()
        && outcome.deep.as_ref().is_none_or(|deep| deep.problems.is_empty());
    if is_clean { writeln!(writer, "clean") } else { Ok(()) }
}

/// How long a cluster at work gets to finish the moves and writes that one look met in the middle.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Compares the catalog with what the datanodes hold; what is wrong only for a moment is not told.
async fn deep(session: &Session, client: &Client) -> Result<Deep, Failure> {
    let first = look(session, client).await?;
    if first.problems.is_empty() {
        return Ok(first);
    }
    tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    look(session, client).await
}

/// Compares the number of blocks that the catalog puts on each node with what the node lists, and
/// finds blocks that two nodes hold at the same epoch.
async fn look(session: &Session, client: &Client) -> Result<Deep, Failure> {
    let mut result = Deep::default();
    let mut missing = Vec::new();
    let mut holders: BTreeMap<BlockId, Vec<(NodeId, HeldBlock)>> = BTreeMap::new();
    let living = nodes(session, client, false).await?;
    for node in living.iter().filter(|node| node.policy != Policy::Gone) {
        result.nodes += 1;
        let blocks = match held(client, node).await {
            Ok(blocks) => blocks,
            // An empty node may go without a word.
            Err(_) if node.blocks == 0 => continue,
            Err(why) => {
                result.problems.push(format!("node {} ({}): {why}", node.id, node.name));
                continue;
            }
        };
        if (blocks.len() as u64) < node.blocks {
            missing.push((node, blocks.len() as u64));
        }
        for block in blocks {
            result.held_blocks += 1;
            result.held_bytes += u64::from(block.length);
            holders.entry(block.block).or_default().push((node.id, block));
        }
    }
    // A datanode knows a reserved block from its first write on.
    let reply = session.ask(client, Request::Fsck).await?;
    let Reply::Fsck(catalog) = reply else { return Err(unexpected(&reply)) };
    let short: u64 = missing.iter().map(|(node, held)| node.blocks - held).sum();
    if short > catalog.open_blocks {
        result.problems.extend(missing.iter().map(|(node, held)| {
            let (id, name, blocks) = (node.id, &node.name, node.blocks);
            format!("node {id} ({name}) holds {held} blocks, the catalog has {blocks} there")
        }));
    }
    result.problems.extend(holders.iter().filter_map(|(block, held)| twice(*block, held)));
    Ok(result)
}

/// Two holders of one epoch would be two homes.
fn twice(block: BlockId, held: &[(NodeId, HeldBlock)]) -> Option<String> {
    let newest = held.iter().map(|(_, held)| held.epoch).max()?;
    let homes: Vec<String> = held
        .iter()
        .filter(|(_, held)| held.epoch == newest)
        .map(|(node, _)| node.to_string())
        .collect();
    (homes.len() > 1)
        .then(|| format!("block {block} is at epoch {newest} on nodes {}", homes.join(", ")))
}

async fn held(client: &Client, node: &NodeInfo) -> Result<Vec<HeldBlock>, String> {
    let mut all: Vec<HeldBlock> = Vec::new();
    loop {
        let after = all.last().map_or(BlockId(0), |block| block.block);
        #[expect(clippy::cast_possible_truncation)]
        let limit = BLOCKS_PER_PAGE_MAX as u32;
        let order = Order::ListBlocks { after, limit };
        match client.order(node.id, &node.address, order).await {
            Ok(OrderReply::Blocks(page)) if page.is_empty() => return Ok(all),
            Ok(OrderReply::Blocks(page)) => all.extend(page),
            Ok(other) => return Err(format!("answered {other:?}")),
            Err(error) => return Err(error.to_string()),
        }
    }
}
