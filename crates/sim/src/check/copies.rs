//! Copies beside the home: which there are, by a model of the commands, and what they hold.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::catalog::{Action, BlockView, Catalog, CatalogLimits, Command};
use sanderling_protocol::limits::BACKGROUND_MOVE_MILLIS_MAX;
use sanderling_protocol::message::{BlockLocation, MovePurpose};
use sanderling_protocol::order::{DamagedBlock, HeldBlock};
use sanderling_protocol::{
    BlockId, Epoch, Instant, Millis, NodeId, ObjectId, Policy, Refusal, Reply, Request,
};

use super::bytes::Bytes;
use super::view::View;
use crate::runtime::CheckResult;

/// How long after a start copies stay that nodes have shown, as the documentation has it. It does
/// not use the catalog's `UNKNOWN_KEPT`, so that a change of it is found.
const SHOWN_KEPT: Millis = Millis(30_000);

/// The model.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Blocks with copies of a lost end of the log that nodes have shown.
    shown: BTreeSet<BlockId>,
    began_at: Instant,
    /// Blocks that nodes have named since the last start with what the log did not know.
    named: BTreeSet<BlockId>,
    /// Until when the catalog may keep copies of these that its manager drops.
    kept_until: Instant,
    copies: BTreeMap<BlockId, (NodeId, Epoch)>,
    reserved: BTreeMap<BlockId, Reserved>,
    /// Copies made, copies that became homes, and homes moved without a drain.
    pub(super) counts: [u64; 3],
    /// Whether one step may leave copies for the next that are to become homes.
    promotes_later: bool,
}

/// The last reservation of a block.
#[derive(Debug, Clone, Copy)]
struct Reserved {
    to: NodeId,
    epoch: Epoch,
    purpose: MovePurpose,
    at: Instant,
}

fn is_active(catalog: &Catalog, node: NodeId) -> bool {
    catalog.node_policy(node).is_some_and(|(policy, _)| policy == Policy::Active)
}

fn has_copy(catalog: &Catalog, block: BlockId) -> bool {
    catalog.block_view(block).is_some_and(|block_view| block_view.copy.is_some())
}

impl Copies {
    pub(super) fn new(limits: &CatalogLimits) -> Self {
        let promotes_later =
            limits.promoted_per_turn_max < CatalogLimits::DEFAULT.promoted_per_turn_max;
        Self { promotes_later, ..Self::default() }
    }

    /// Goes back to an empty log.
    pub(super) fn rewind(&mut self) {
        self.copies.clear();
        self.shown.clear();
        self.named.clear();
        self.reserved.clear();
    }

    pub(super) fn apply(
        &mut self,
        command: &Command,
        result: &Result<Reply, Refusal>,
        catalog: &Catalog,
    ) -> CheckResult {
        match (&command.action, result) {
            (Action::Reserve { moves, .. }, Ok(Reply::Epochs(epochs))) => {
                for (one, epoch) in moves.iter().zip(epochs) {
                    let Ok(epoch) = *epoch else { continue };
                    let (to, purpose, at) = (one.to, one.purpose, catalog.now());
                    self.reserved.insert(one.block, Reserved { to, epoch, purpose, at });
                    check_target(one.block, to, catalog)?;
                    if purpose == MovePurpose::Relocate {
                        self.gave_way(to, catalog);
                    }
                }
            }
            (Action::Commit { moves, .. }, Ok(Reply::Epochs(epochs))) => {
                for (one, epoch) in moves.iter().zip(epochs) {
                    let is_it = |it: &Reserved| (it.to, it.epoch) == (one.to, one.to_epoch);
                    let reserved = self.reserved.get(&one.block).copied().filter(is_it);
                    if let (Ok(epoch), Some(reserved)) = (epoch, reserved) {
                        self.committed(one.block, *epoch, reserved, catalog);
                    }
                }
            }
            (Action::DropCopies { blocks, .. }, Ok(_))
            | (Action::MakeRoom { copies: blocks, .. }, _) => {
                self.dropped(blocks, catalog);
            }
            (Action::Damaged { node, blocks }, Ok(_)) => {
                // Only the very copy that was reported goes.
                let is_reported = |block: &BlockId, copy: &(NodeId, Epoch)| {
                    let is_it =
                        |it: &DamagedBlock| (it.block, (*node, it.epoch)) == (*block, *copy);
                    blocks.iter().any(is_it)
                };
                self.copies.retain(|block, copy| !is_reported(block, copy));
            }
            (Action::Orphans { node, held }, Ok(_)) => {
                self.orphaned(*node, held, catalog);
            }
            // A start may carry the log's time far ahead.
            (Action::BeginTerm { absence, .. } | Action::Absent { absence }, _) => {
                if matches!(command.action, Action::BeginTerm { .. }) {
                    // They count on when this start falls into the time of the one before.
                    if catalog.now() >= self.kept_until + *absence {
                        self.shown.clear();
                    }
                    self.named.clear();
                    self.began_at = catalog.now();
                    self.kept_until = self.began_at + SHOWN_KEPT;
                } else {
                    self.kept_until = self.kept_until + *absence;
                }
                self.reserved.values_mut().for_each(|it| it.at = it.at + *absence);
            }
            (Action::Abandon { blocks, .. }, Ok(_)) => {
                self.reserved.retain(|block, _| !blocks.contains(block));
            }
            _ => {}
        }
        self.promote(catalog)?;
        // A copy that is made later is one like all others.
        let Self { shown, copies, .. } = self;
        shown.retain(|block| copies.contains_key(block));
        self.compare(catalog)
    }

    fn dropped(&mut self, blocks: &[BlockId], catalog: &Catalog) {
        // That of a node that leaves is about to become the home, and stays.
        let is_leaving = |block: &BlockId| {
            let home = catalog.block_view(*block).and_then(|block_view| block_view.home);
            let policy = home.and_then(|home| catalog.node_policy(home));
            policy.is_some_and(|(policy, _)| policy != Policy::Active)
        };
        // The home of a shown one may lack the bytes. After that time, absences decide.
        let Self { copies, shown, named, began_at, kept_until, .. } = self;
        let is_early = catalog.now() < *began_at + SHOWN_KEPT;
        let may_keep = catalog.now() < *kept_until;
        let is_kept = |block: &BlockId| {
            let is_shown = shown.contains(block);
            let may_be_kept = may_keep && (is_shown || named.contains(block));
            (is_early && is_shown) || (may_be_kept && has_copy(catalog, *block))
        };
        let stays = |block: &BlockId| is_leaving(block) || is_kept(block);
        copies.retain(|block, _| !blocks.contains(block) || stays(block));
    }

    fn orphaned(&mut self, node: NodeId, held: &[HeldBlock], catalog: &Catalog) {
        // Bytes that the lost end had moved are taken over as a copy.
        self.named.extend(held.iter().map(|held| held.block));
        for held in held {
            // The move that the log had open ended before: its commit, repeated, changes nothing.
            if let Some(block_view) =
                catalog.block_view(held.block).filter(|it| it.reserved.is_none())
                && self.reserved.get(&held.block).is_some_and(|it| it.epoch <= block_view.epoch)
            {
                self.reserved.remove(&held.block);
            }
            let copy = catalog.block_view(held.block).and_then(|block_view| block_view.copy);
            if copy == Some((node, held.tier, held.epoch)) {
                let copy = (node, held.epoch);
                if self.copies.insert(held.block, copy) != Some(copy) {
                    self.shown.insert(held.block);
                }
            } else if copy.is_none() {
                // It was older than what the home is known to hold now.
                self.copies.remove(&held.block);
            }
        }
    }

    fn committed(&mut self, block: BlockId, epoch: Epoch, reserved: Reserved, catalog: &Catalog) {
        self.reserved.remove(&block);
        let home = catalog.block_view(block).and_then(|block_view| block_view.home);
        // Of a home that drains, the copy became the home at once.
        if reserved.purpose == MovePurpose::Precopy && home != Some(reserved.to) {
            self.counts[0] += 1;
            self.copies.insert(block, (reserved.to, epoch));
        } else {
            self.counts[2] += u64::from(reserved.purpose == MovePurpose::Rebalance);
            self.copies.remove(&block);
        }
    }

    /// Copies on a target give way to the last copies that need their room.
    fn gave_way(&mut self, to: NodeId, catalog: &Catalog) {
        self.copies.retain(|id, (node, _)| *node != to || has_copy(catalog, *id));
    }

    /// Copies on nodes that go count no more; those of blocks whose home goes become homes.
    fn promote(&mut self, catalog: &Catalog) -> CheckResult {
        let mut gone = Vec::new();
        for (id, (node, epoch)) in &self.copies {
            let block_view = catalog.block_view(*id);
            if !is_active(catalog, *node) || block_view.is_none() {
                // One that a node has shown stays while that node leaves.
                if !self.shown.contains(id) || !has_copy(catalog, *id) {
                    gone.push(*id);
                }
                continue;
            }
            let block_view = block_view.expect("looked at just now");
            if block_view.home.is_none() {
                let text = format!("block {id} was lost with its home, its copy is on node {node}");
                return Err(("copy-saves", text));
            }
            let is_home = (block_view.home, block_view.epoch) == (Some(*node), *epoch);
            let stays = block_view.home.is_some_and(|home| is_active(catalog, home));
            if is_home {
                self.counts[1] += 1;
                gone.push(*id);
            } else if !stays && !self.promotes_later {
                let text = format!("the home of block {id} goes, its copy is not the home yet");
                return Err(("copy-saves", text));
            }
        }
        self.copies.retain(|block, _| !gone.contains(block));
        Ok(())
    }

    fn compare(&self, catalog: &Catalog) -> CheckResult {
        for id in catalog.block_ids() {
            let Some(block_view) = catalog.block_view(id) else { continue };
            let actual = block_view.copy.map(|(node, _, epoch)| (node, epoch));
            let expected = self.copies.get(&id).copied();
            if actual != expected {
                let text = format!("the copy of block {id} is {expected:?}, not {actual:?}");
                return Err(("copies", text));
            }
            if let Some((node, epoch)) = actual {
                check_copy(id, &block_view, node, epoch)?;
            }
            self.check_reserved(id, &block_view, catalog.now())?;
        }
        Ok(())
    }

    /// Checks that a reservation that no drain needs ends by itself.
    fn check_reserved(&self, id: BlockId, block_view: &BlockView, now: Instant) -> CheckResult {
        let Some((to, epoch, purpose)) = block_view.reserved else { return Ok(()) };
        // One long pause of the namenode may lie between the end and its being noticed.
        let longest = Millis(BACKGROUND_MOVE_MILLIS_MAX + 12_000);
        let since = self.reserved.get(&id).filter(|it| it.epoch == epoch).map(|it| it.at);
        match since {
            Some(at) if purpose != MovePurpose::Relocate && at + longest < now => {
                let text = format!("block {id} is reserved on node {to} for too long");
                Err(("reservations", text))
            }
            Some(_) => Ok(()),
            None => {
                Err(("reservations", format!("block {id} is reserved on node {to} for no move")))
            }
        }
    }

    /// Returns whether a block's bytes survive its home.
    pub(super) fn is_safe(&self, block: BlockId) -> bool {
        self.copies.contains_key(&block)
    }
}

/// Checks that a node that will go is no target, whatever for.
fn check_target(block: BlockId, to: NodeId, catalog: &Catalog) -> CheckResult {
    let policy = catalog.node_policy(to).map(|(policy, _)| policy);
    if policy.is_some_and(Policy::takes_blocks) {
        return Ok(());
    }
    Err(("placement", format!("block {block} is to move to node {to}, which is {policy:?}")))
}

fn check_copy(id: BlockId, block_view: &BlockView, node: NodeId, epoch: Epoch) -> CheckResult {
    let wrong = |text: &str| Err(("copies", format!("the copy of block {id} {text}")));
    if block_view.home == Some(node) {
        return wrong("is at its home");
    }
    if epoch <= block_view.epoch {
        return wrong("is not later than its home");
    }
    if !block_view.is_ended {
        return wrong("was made before its writer ended it");
    }
    Ok(())
}

/// Checks that every copy is there, with the bytes that count of its block.
pub(super) fn check_held(view: View<'_>, bytes: &Bytes, is_settled: bool) -> CheckResult {
    for object in bytes.objects() {
        let Some(layout) = view.layout(object) else { continue };
        for location in &layout.blocks {
            check_copy_held(view, bytes, object, location, is_settled)?;
        }
    }
    Ok(())
}

/// Checks that the copies that a command has just made are there.
pub(super) fn check_made(
    view: View<'_>,
    copies: &Copies,
    bytes: &Bytes,
    command: &Command,
) -> CheckResult {
    let Action::Commit { moves, .. } = &command.action else { return Ok(()) };
    for one in moves.iter().filter(|one| copies.is_safe(one.block)) {
        let Some(block_view) = view.catalog().block_view(one.block) else { continue };
        let Some(layout) = view.layout(block_view.object) else { continue };
        for location in layout.blocks.iter().filter(|it| it.block == one.block) {
            check_copy_held(view, bytes, block_view.object, location, false)?;
        }
    }
    Ok(())
}

fn check_copy_held(
    view: View<'_>,
    bytes: &Bytes,
    object: ObjectId,
    location: &BlockLocation,
    is_settled: bool,
) -> CheckResult {
    let (id, length) = (location.block, location.length);
    let block_view = view.catalog().block_view(id);
    let Some((node, _, epoch)) = block_view.and_then(|block_view| block_view.copy) else {
        return Ok(());
    };
    let Some(datanode) = view.running(node) else { return Ok(()) };
    if datanode.is_hurt(id) {
        return Ok(());
    }
    let held = datanode.held(id).map(|held| held.epoch);
    let whole = match datanode.peek(id, epoch, length) {
        Ok(Some(whole)) if held == Some(epoch) => whole,
        // It may have gone by the end that the log has lost: its node will report it.
        _ if !is_settled && view.runtime.statistics().lost_ends > 0 => return Ok(()),
        other => {
            let host = datanode.host();
            let text = format!(
                "{host} was to hold a copy of block {id} at epoch {epoch}: {held:?}, {other:?}"
            );
            return Err(("copies", text));
        }
    };
    let found = bytes.read(object, location.offset, length, &whole);
    found.map_err(|(_, text)| ("copies", format!("copy of block {id}: {text}")))
}

/// Checks that the namenode reports each node's exposure as the model counts it.
pub(super) fn check_exposure(view: View<'_>, copies: &Copies) -> CheckResult {
    let answer = view.peek(&Request::Nodes { all: false });
    let Ok(Reply::Nodes(nodes)) = view.namenode.bug_answer(&Request::Nodes { all: false }, answer)
    else {
        return Ok(());
    };
    let catalog = view.catalog();
    let mut exposed: BTreeMap<NodeId, u64> = BTreeMap::new();
    for id in catalog.block_ids() {
        let Some(block_view) = catalog.block_view(id) else { continue };
        if let Some(home) = block_view.home
            && !copies.is_safe(id)
        {
            *exposed.entry(home).or_default() += u64::from(block_view.length);
        }
    }
    for node in nodes {
        let (reported, counted) =
            (node.exposure_bytes, exposed.get(&node.id).copied().unwrap_or(0));
        if reported != counted {
            let id = node.id;
            let text =
                format!("node {id} is reported to expose {reported} bytes, it has {counted}");
            return Err(("exposure", text));
        }
    }
    Ok(())
}
