//! The catalog against what the datanodes hold, block by block.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use sanderling_client::{Client, ClientError};
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{
    BlockId, Epoch, NodeId, NodeSelector, Order, OrderReply, Policy, Refusal, Reply, Request, Tier,
};
use serde::Serialize;

use super::pages::{Page, Pages};
use crate::failure::Failure;
use crate::fleet::nodes;
use crate::refused::{self, unexpected};
use crate::session::Session;
use crate::units;

/// How long a cluster at work gets to finish the moves and writes that one look met in the middle:
/// the pushes of a block take milliseconds, and heartbeats come every 500 ms. Chosen, not measured.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// What the datanodes hold.
#[derive(Debug, Default, Serialize)]
pub(super) struct Deep {
    pub(super) nodes: u64,
    pub(super) held_blocks: u64,
    pub(super) held_bytes: u64,
    pub(super) damaged: Vec<Damaged>,
    pub(super) unseen: Vec<Unseen>,
    pub(super) problems: Vec<String>,
}

/// A block that a node should hold and does not, or not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Damaged {
    block: BlockId,
    epoch: Epoch,
    node: NodeId,
    name: String,
    what: String,
    /// Whether the node itself found it: it has reported it to the namenode.
    #[serde(skip)]
    is_found: bool,
}

/// Blocks that a node holds and that could not be looked at: nothing is known of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Unseen {
    node: NodeId,
    name: String,
    pub(super) blocks: u64,
    bytes: u64,
    why: String,
}

/// What a node answered about its blocks; `held` is absent when it did not list them.
struct OnNode {
    held: Option<BTreeMap<BlockId, HeldBlock>>,
    damaged: Vec<Damaged>,
    unseen: Option<Unseen>,
}

/// One node with what it holds and what the catalog has there.
struct Looked<'a> {
    node: &'a NodeInfo,
    held: BTreeMap<BlockId, HeldBlock>,
    homes: Vec<MoveCandidate>,
}

impl Deep {
    pub(super) const fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.unseen.is_empty() && self.problems.is_empty()
    }
}

impl Unseen {
    fn new(node: &NodeInfo, blocks: u64, bytes: u64, why: String) -> Self {
        Self { node: node.id, name: node.name.clone(), blocks, bytes, why }
    }
}

impl fmt::Display for Unseen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, name, blocks, bytes, why } = self;
        let (blocks, bytes) = (units::count(*blocks, "block", "blocks"), units::bytes(*bytes));
        write!(formatter, "{blocks} of {bytes} on node {node} ({name}): {why}")
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, epoch, node, name, what, .. } = self;
        write!(formatter, "block {block} at epoch {epoch} on node {node} ({name}): {what}")
    }
}

/// Compares the catalog with what the datanodes hold; differences that last only a moment are not
/// reported.
pub(super) async fn check(
    session: &Session,
    client: &Client,
    with_checksums: bool,
) -> Result<Deep, Failure> {
    let first = look(session, client, with_checksums).await?;
    if first.is_clean() {
        return Ok(first);
    }
    tokio::time::sleep(RETRY_INTERVAL).await;
    // What a node could not look at the first time has not been compared with its checksums.
    let with_checksums = with_checksums && !first.unseen.is_empty();
    let mut second = look(session, client, with_checksums).await?;
    second.problems.retain(|problem| first.problems.contains(problem));
    second.damaged.retain(|damaged| damaged.is_found || first.damaged.contains(damaged));
    let is_new = |damaged: &Damaged| !second.damaged.contains(damaged);
    let found = first.damaged.into_iter().filter(|it| it.is_found && is_new(it));
    let found: Vec<Damaged> = found.collect();
    second.damaged.extend(found);
    Ok(second)
}

/// Has every datanode look at its blocks, and compares ids, epochs and lengths with the catalog's.
async fn look(session: &Session, client: &Client, with_checksums: bool) -> Result<Deep, Failure> {
    let mut result = Deep::default();
    let mut all = Vec::new();
    let living = nodes(session, client, false).await?;
    for node in living.iter().filter(|node| node.policy != Policy::Gone) {
        // The catalog first: what it has there by then the node holds by then.
        let Some(homes) = homes(session, client, node).await? else { continue };
        result.nodes += 1;
        let OnNode { held, damaged, unseen } = on_node(session, client, node, with_checksums).await;
        // An empty node may go without a word.
        result.unseen.extend(unseen.filter(|_| node.blocks > 0));
        result.damaged.extend(damaged);
        if let Some(held) = held {
            result.held_blocks += held.len() as u64;
            result.held_bytes += held.values().map(|held| u64::from(held.length)).sum::<u64>();
            all.push(Looked { node, held, homes });
        }
    }
    for looked in &all {
        let lacking = looked.homes.iter().filter_map(|home| looked.lacks(home));
        result.damaged.extend(lacking);
    }
    result.damaged.extend(lacking_copies(&all));
    let mut holders: BTreeMap<BlockId, Vec<(NodeId, HeldBlock)>> = BTreeMap::new();
    for looked in &all {
        for (block, held) in &looked.held {
            holders.entry(*block).or_default().push((looked.node.id, *held));
        }
    }
    result.problems.extend(holders.iter().filter_map(|(block, held)| twice(*block, held)));
    Ok(result)
}

impl Looked<'_> {
    /// Compares one block whose home the node is.
    fn lacks(&self, home: &MoveCandidate) -> Option<Damaged> {
        // What is in the object tier is looked for there when it is read.
        if home.length == 0 || home.tier == Tier::Object {
            return None;
        }
        let what = match self.held.get(&home.block) {
            None => "it is missing".to_owned(),
            Some(held) if held.length < home.length => {
                let lacking = units::bytes((home.length - held.length).into());
                format!("it lacks {lacking} of {}", units::bytes(home.length.into()))
            }
            Some(held) if held.epoch != home.epoch => {
                format!("it is held at epoch {}", held.epoch)
            }
            Some(_) => return None,
        };
        Some(damaged(self.node, home.block, home.epoch, what, false))
    }
}

/// Finds blocks whose copy is not where the catalog has it.
fn lacking_copies(all: &[Looked<'_>]) -> Vec<Damaged> {
    let by_node: BTreeMap<NodeId, &Looked<'_>> =
        all.iter().map(|looked| (looked.node.id, looked)).collect();
    let lacks = |home: &MoveCandidate| {
        let (node, tier) = home.copy.filter(|(_, tier)| *tier != Tier::Object)?;
        let looked = by_node.get(&node)?;
        let is_there = looked
            .held
            .get(&home.block)
            .is_some_and(|held| held.epoch > home.epoch && held.length >= home.length);
        let what = format!("its copy in {tier} is missing");
        (!is_there).then(|| damaged(looked.node, home.block, home.epoch, what, false))
    };
    all.iter().flat_map(|looked| &looked.homes).filter_map(lacks).collect()
}

fn damaged(node: &NodeInfo, block: BlockId, epoch: Epoch, what: String, is_found: bool) -> Damaged {
    Damaged { block, epoch, node: node.id, name: node.name.clone(), what, is_found }
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

/// Returns the blocks whose home the catalog has on a node; `None` if the node ended since the
/// nodes were listed.
async fn homes(
    session: &Session,
    client: &Client,
    node: &NodeInfo,
) -> Result<Option<Vec<MoveCandidate>>, Failure> {
    let mut all: Vec<MoveCandidate> = Vec::new();
    loop {
        let after = all.last().map_or(BlockId(0), |home| home.block);
        let limit = BLOCKS_PER_PAGE_MAX as u32;
        let node = NodeSelector::from(node.id);
        let request = Request::NodeBlocks { node, after, limit };
        let (candidates, is_more) = match client.request(request).await {
            Ok(Reply::Candidates { candidates, is_more }) => (candidates, is_more),
            Ok(reply) => return Err(unexpected(&reply)),
            Err(ClientError::Refused(Refusal::UnknownNode { .. })) => return Ok(None),
            Err(error) => return Err(refused::client(&error, &session.namenode)),
        };
        let is_last = !is_more || candidates.is_empty();
        all.extend(candidates);
        if is_last {
            return Ok(Some(all));
        }
    }
}

/// Returns what a node holds, what of it the node finds damaged, and what it could not look at.
async fn on_node(
    session: &Session,
    client: &Client,
    node: &NodeInfo,
    with_checksums: bool,
) -> OnNode {
    let mut held: BTreeMap<BlockId, HeldBlock> = BTreeMap::new();
    let unseen = |blocks, bytes, why| Unseen::new(node, blocks, bytes, why);
    loop {
        let after = held.last_key_value().map_or(BlockId(0), |(block, _)| *block);
        let limit = BLOCKS_PER_PAGE_MAX as u32;
        let why =
            match client.order(node.id, &node.address, Order::ListBlocks { after, limit }).await {
                Ok(OrderReply::Blocks(page)) if page.is_empty() => break,
                Ok(OrderReply::Blocks(page)) => {
                    held.extend(page.iter().map(|it| (it.block, *it)));
                    continue;
                }
                Ok(other) => format!("answered {other:?}"),
                Err(error) => error.to_string(),
            };
        let bytes = node.tiers.iter().map(|usage| usage.used_bytes).sum();
        return OnNode {
            held: None,
            damaged: Vec::new(),
            unseen: Some(unseen(node.blocks, bytes, why)),
        };
    }
    let (mut pages, mut damaged) = (Pages::new(&held), Vec::new());
    while let Some(Page { after, limit }) = pages.next() {
        let order = Order::Verify { after, limit, with_checksums };
        match client.order(node.id, &node.address, order).await {
            Ok(OrderReply::Verified(page)) => {
                pages.looked_at(page.last().map(|(held, _)| held.block));
                damaged.extend(page.iter().filter_map(|(held, damage)| {
                    let what = damage.as_ref()?.to_string();
                    Some(self::damaged(node, held.block, held.epoch, what, true))
                }));
            }
            Ok(other) => pages.ended(format!("answered {other:?}")),
            Err(ClientError::Refused(Refusal::UnknownVersion { .. })) => {
                let (id, name) = (node.id, &node.name);
                session.output.note(format!(
                    "node {id} ({name}) is of the previous release and cannot verify its bytes: \
                     upgrade it, then check again"
                ));
                break;
            }
            Err(error @ ClientError::Refused(_)) => pages.refused(error.to_string()),
            Err(error) => pages.ended(error.to_string()),
        }
    }
    let unseen = pages.unseen().map(|(blocks, bytes, why)| unseen(blocks, bytes, why));
    OnNode { held: Some(held), damaged, unseen }
}
