//! Epochs, homes and room, as the catalog has them after each command.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::catalog::{Action, Catalog, Command};
use sanderling_protocol::message::{GrantedBlock, Layout};
use sanderling_protocol::order::PushMove;
use sanderling_protocol::{BlockId, Epoch, Instant, NodeId, Policy, Refusal, Reply, Tier};

use crate::runtime::CheckResult;

/// What was seen of all blocks.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    seen: BTreeMap<BlockId, BlockHistory>,
    /// The home that was sent to readers, by block and epoch.
    located: BTreeMap<(BlockId, Epoch), NodeId>,
    /// What a lost end of the log had reserved: managers may still push it.
    given_before: BTreeSet<(BlockId, Epoch, NodeId)>,
    has_lost: bool,
}

/// What was seen of one block.
#[derive(Debug, Default)]
struct BlockHistory {
    epoch: Epoch,
    home: Option<NodeId>,
    is_lost: bool,
    /// Every epoch that was given out for a move, with its target.
    given: BTreeMap<Epoch, NodeId>,
}

impl Blocks {
    /// Goes back to an empty log. What was sent to readers stays, but for epochs that only what
    /// is lost has given out.
    pub(super) fn rewind(&mut self) {
        self.has_lost = true;
        for (block, seen) in std::mem::take(&mut self.seen) {
            let given = seen.given.into_iter().map(|(epoch, to)| (block, epoch, to));
            self.given_before.extend(given);
        }
    }

    pub(crate) fn apply(
        &mut self,
        command: &Command,
        result: &Result<Reply, Refusal>,
        catalog: &Catalog,
    ) -> CheckResult {
        match (&command.action, result) {
            (
                Action::Create { .. } | Action::Append { .. } | Action::AddBlocks { .. },
                Ok(Reply::Grant(grant)),
            ) => {
                // A repeated request is granted what it was granted before.
                let is_new = |block: &&GrantedBlock| !self.seen.contains_key(&block.block);
                for block in grant.blocks.iter().filter(is_new) {
                    check_placed(block, catalog)?;
                }
                for block in &grant.blocks {
                    self.seen.entry(block.block).or_default();
                }
                self.check_accounts(catalog)?;
            }
            (Action::Reserve { moves, .. }, Ok(Reply::Epochs(epochs))) => {
                for (one, epoch) in moves.iter().zip(epochs) {
                    if let Ok(epoch) = epoch {
                        self.reserved(one.block, *epoch, one.to)?;
                    }
                }
                self.check_accounts(catalog)?;
            }
            (Action::Commit { .. } | Action::Recovered { .. } | Action::Tick, _)
            | (
                Action::NodeDead { .. }
                | Action::Register(_)
                | Action::Join(_)
                | Action::Notice { .. }
                | Action::Damaged { .. },
                _,
            ) => {
                self.check_all(catalog)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that readers get one home only for each epoch.
    pub(crate) fn located(&mut self, layout: &Layout) -> CheckResult {
        for location in layout.blocks.iter().filter(|it| it.tier != Tier::Object) {
            let Some(home) = location.home else { continue };
            let (block, epoch) = (location.block, location.epoch);
            let before = *self.located.entry((block, epoch)).or_insert(home);
            if before != home && self.given_before.contains(&(block, epoch, before)) {
                // Only a lost end had given that epoch out: both homes have the same bytes.
                self.located.insert((block, epoch), home);
            } else if before != home {
                let text =
                    format!("epoch {epoch} of block {block} is at nodes {before} and {home}");
                return Err(("epochs-rise", text));
            }
        }
        Ok(())
    }

    /// Checks that bytes leave a datanode only for a place that was reserved for them.
    pub(crate) fn pushed(&self, one: &PushMove, catalog: &Catalog) -> CheckResult {
        let Some(seen) = self.seen.get(&one.block) else { return Ok(()) };
        let is_known = catalog.block_view(one.block).is_some();
        let is_of_before = self.given_before.contains(&(one.block, one.to_epoch, one.to));
        if !is_known || is_of_before || seen.given.get(&one.to_epoch) == Some(&one.to) {
            return Ok(());
        }
        let PushMove { block, to, to_epoch, .. } = one;
        let text = format!("block {block} is pushed to node {to} at epoch {to_epoch}, unreserved");
        Err(("pushes", text))
    }

    fn reserved(&mut self, block: BlockId, epoch: Epoch, to: NodeId) -> CheckResult {
        let seen = self.seen.entry(block).or_default();
        if let Some(before) = seen.given.insert(epoch, to)
            && before != to
        {
            let text = format!("epoch {epoch} of block {block} went to nodes {before} and {to}");
            return Err(("epochs-rise", text));
        }
        if epoch <= seen.epoch {
            let (now, text) = (seen.epoch, "was given out again");
            return Err((
                "epochs-rise",
                format!("epoch {epoch} of block {block} {text}, at {now}"),
            ));
        }
        Ok(())
    }

    /// Checks that no node is accounted with more than it has, unless a lost end of the log was
    /// seen: what a node holds by it is taken over, although its room was promised to others since.
    fn check_accounts(&self, catalog: &Catalog) -> CheckResult {
        if self.has_lost { Ok(()) } else { check_accounts(catalog) }
    }

    fn check_all(&mut self, catalog: &Catalog) -> CheckResult {
        // A lost end may take the deletion back: then a push of before is no surprise.
        let is_gone = |block: &BlockId, _: &mut BlockHistory| catalog.block_home(*block).is_none();
        for (block, gone) in self.seen.extract_if(.., is_gone) {
            let given = gone.given.into_iter().map(|(epoch, to)| (block, epoch, to));
            self.given_before.extend(given);
        }
        for (block, seen) in &mut self.seen {
            let Some((home, epoch)) = catalog.block_home(*block) else { continue };
            match home {
                None => seen.is_lost = true,
                Some(home) if seen.is_lost => {
                    let text = format!("block {block} was lost and is at node {home}");
                    return Err(("loss-is-final", text));
                }
                Some(home) => {
                    let policy = catalog.node_policy(home).map(|(policy, _)| policy);
                    if policy.is_none_or(|policy| policy == Policy::Gone) {
                        let text =
                            format!("the home of block {block} is node {home}, which is gone");
                        return Err(("one-home", text));
                    }
                }
            }
            if epoch < seen.epoch {
                let before = seen.epoch;
                let text = format!("block {block} went from epoch {before} to {epoch}");
                return Err(("epochs-rise", text));
            }
            let is_stored = |id| catalog.block_view(id).is_some_and(|it| it.tier == Tier::Object);
            if let (Some(from), Some(to)) = (seen.home, home)
                && from != to
                && epoch == seen.epoch
                && !is_stored(*block)
            {
                let text = format!("block {block} went from node {from} to {to} at epoch {epoch}");
                return Err(("epochs-rise", text));
            }
            (seen.epoch, seen.home) = (epoch, home);
        }
        Ok(())
    }
}

/// Checks that new blocks go to nodes that take them.
fn check_placed(block: &GrantedBlock, catalog: &Catalog) -> CheckResult {
    let policy = catalog.node_policy(block.node).map(|(policy, _)| policy);
    if policy.is_some_and(Policy::takes_blocks) {
        return Ok(());
    }
    let text = format!("a new block is on node {}, which is {policy:?}", block.node);
    Err(("placement", text))
}

/// Checks that no node is accounted with more than it has.
fn check_accounts(catalog: &Catalog) -> CheckResult {
    for node in catalog.node_ids(false) {
        let Some(info) = catalog.node_info(node, Instant(0)) else { continue };
        for tier in info.tiers {
            if tier.used_bytes > tier.capacity_bytes {
                let (used, room) = (tier.used_bytes, tier.capacity_bytes);
                let text = format!("node {node} is promised for {used} of {room} bytes");
                return Err(("capacity", text));
            }
        }
    }
    Ok(())
}
