//! A model of what is lost: counted from what each command did to each block.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::catalog::{Action, Catalog, Command};
use sanderling_protocol::event::LossReport;
use sanderling_protocol::{BlockId, NodeId, Nonce, ObjectId, Refusal, Reply, Tier};

use super::numbers::Numbers;
use super::view::View;
use crate::runtime::CheckResult;

/// The model.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// All blocks, in the order of their ids.
    known: Vec<(BlockId, LastBlock)>,
    /// The nodes that are not gone.
    nodes: Vec<NodeId>,
    total: Total,
    /// Blocks of a lost end of the log that were counted.
    orphans: BTreeSet<BlockId>,
    /// Bytes of objects that have no name any more.
    pub(super) orphan_bytes: u64,
    /// Processes that have joined.
    joined: BTreeSet<Nonce>,
}

/// A block as it was after the last command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastBlock {
    object: ObjectId,
    home: Option<NodeId>,
    copy: Option<NodeId>,
    length: u32,
}

/// Blocks, bytes, and objects once per cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Total {
    blocks: u64,
    bytes: u64,
    objects: u64,
}

impl From<&LossReport> for Total {
    fn from(report: &LossReport) -> Self {
        Self { blocks: report.blocks, bytes: report.bytes, objects: report.objects }
    }
}

impl Losses {
    /// Counts what a command lost.
    pub(super) fn count(
        &mut self,
        view: View<'_>,
        numbers: &Numbers,
        command: &Command,
        result: &Result<Reply, Refusal>,
    ) {
        if result.is_ok() {
            self.count_orphans(view.catalog(), numbers, &command.action);
        }
        let catalog = view.catalog();
        let gone = self.nodes_gone(catalog);
        if !touches_blocks(&command.action) {
            return;
        }
        let blocks = catalog.block_ids().filter_map(|id| {
            let block_view = catalog.block_view(id)?;
            let (object, home, length) = (block_view.object, block_view.home, block_view.length);
            let copy = block_view.copy.map(|(node, ..)| node);
            Some((id, LastBlock { object, home, copy, length }))
        });
        let known: Vec<(BlockId, LastBlock)> = blocks.collect();
        if known == self.known {
            return;
        }
        let before = std::mem::replace(&mut self.known, known);
        let known = &self.known;
        // By object and the node that they were on; what was lost before its writer published it,
        // by block.
        let mut lost: BTreeMap<(ObjectId, Result<NodeId, BlockId>), (u64, u64)> = BTreeMap::new();
        for (id, now) in known {
            let before = find(&before, *id);
            let counted = match before {
                Some(before) if before.home.is_none() => before.length,
                _ => 0,
            };
            if now.home.is_none() && now.length > counted {
                let on = before.and_then(|it| lost_with(*id, it, &gone, catalog)).ok_or(*id);
                let (blocks, bytes) = lost.entry((now.object, on)).or_default();
                *blocks += 1;
                *bytes += u64::from(now.length - counted);
            }
        }
        let mut vanished = before.iter().filter(|(id, _)| find(known, *id).is_none());
        let is_tick = matches!(command.action, Action::Tick);
        if vanished.any(|(_, was)| was.home.is_none() || (is_tick && was.length > 0)) {
            // What was lost first and deleted then, within one command, cannot be distinguished.
            self.total = Total::from(catalog.report());
            return;
        }
        // What has no path any more is not missed.
        let objects: BTreeSet<ObjectId> = lost.keys().map(|(object, _)| *object).collect();
        let named: BTreeSet<ObjectId> =
            objects.into_iter().filter(|object| view.layout(*object).is_some()).collect();
        let total = &mut self.total;
        for ((object, _), (blocks, bytes)) in lost {
            if named.contains(&object) {
                total.blocks += blocks;
                total.bytes += bytes;
                total.objects += 1;
            }
        }
    }
}

impl Losses {
    /// Returns the nodes that have gone since the last call.
    fn nodes_gone(&mut self, catalog: &Catalog) -> BTreeSet<NodeId> {
        let before = std::mem::replace(&mut self.nodes, catalog.node_ids(false));
        before.into_iter().filter(|node| !self.nodes.contains(node)).collect()
    }

    /// Counts what the log itself has lost.
    fn count_orphans(&mut self, catalog: &Catalog, numbers: &Numbers, action: &Action) {
        match action {
            Action::Orphans { held, .. } => {
                for held in held.iter().filter(|held| held.tier != Tier::Object) {
                    if numbers.is_lost_block(held.block) && self.orphans.insert(held.block) {
                        self.total.blocks += 1;
                        self.total.bytes += u64::from(held.length);
                        self.orphan_bytes += u64::from(held.length);
                    }
                }
            }
            Action::Register(register) => _ = self.joined.insert(register.nonce),
            Action::Join(join) => {
                let is_new = self.joined.insert(join.register.nonce);
                let is_missing = join.seen.is_some_and(|seen| !catalog.continues(seen));
                let lost = join.wiped.filter(|wiped| numbers.is_lost_node(wiped.node));
                if let Some(wiped) = lost.filter(|_| is_new && is_missing) {
                    self.total.blocks += wiped.blocks;
                    self.total.bytes += wiped.bytes;
                    self.orphan_bytes += wiped.bytes;
                }
            }
            _ => {}
        }
    }
}

impl Losses {
    /// Checks that a report has the losses that were counted.
    pub(super) fn compare(&self, report: &LossReport) -> CheckResult {
        let reported = Total::from(report);
        if reported == self.total {
            return Ok(());
        }
        Err(("loss-report", format!("the report has {reported:?}, lost were {:?}", self.total)))
    }
}

/// Returns the node with which a block was lost: its home, or the node of its copy, if that became
/// the home by the end of the first and ended in the same command. Which one ended first is only
/// in the report.
fn lost_with(
    id: BlockId,
    before: &LastBlock,
    gone: &BTreeSet<NodeId>,
    catalog: &Catalog,
) -> Option<NodeId> {
    let home = before.home?;
    let copy = before.copy.filter(|copy| gone.contains(copy) && gone.contains(&home));
    let is_reported = |node: &NodeId| {
        let mut losses = catalog.report().losses.iter().rev();
        losses.any(|loss| loss.node == *node && loss.blocks.contains(&id))
    };
    Some(copy.filter(is_reported).unwrap_or(home))
}

/// Returns a block of those that are in the order of their ids.
fn find(blocks: &[(BlockId, LastBlock)], id: BlockId) -> Option<&LastBlock> {
    let place = blocks.binary_search_by_key(&id, |(id, _)| *id).ok()?;
    Some(&blocks[place].1)
}

/// Returns whether a command may change a block's home or length.
const fn touches_blocks(action: &Action) -> bool {
    !matches!(
        action,
        Action::RenewLeases { .. }
            | Action::Manage { .. }
            | Action::Forecast { .. }
            | Action::MakeDirectory { .. }
            | Action::SetTtl { .. }
            | Action::SetAttributes { .. }
            | Action::RegisterJob(_)
            | Action::RenewJob { .. }
            | Action::Fenced { .. }
            | Action::Started { .. }
            | Action::BeginTerm { .. }
            | Action::Absent { .. }
            | Action::Recommend { .. }
            | Action::Reserve { .. }
            | Action::Abandon { .. }
            | Action::DropCopies { .. }
            | Action::MakeRoom { .. }
            | Action::JournalCut { .. }
            | Action::SnapshotSkipped { .. }
            | Action::GroupEvent(_)
    )
}
