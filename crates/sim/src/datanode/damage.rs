//! Bytes that rot and blocks that vanish on simulated datanodes, and how they find and report it.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::block_table::BlockStage;
use sanderling_core::catalog::{Action, Command};
use sanderling_core::datanode::{CallFailure, DamageReport};
use sanderling_protocol::order::{Damage, DamagedBlock, HeldBlock};
use sanderling_protocol::{BlockId, Epoch, Reply, Request};

use super::Datanode;
use super::member::outcome;
use crate::Broken;
use crate::event::{DatanodeCall, Timer};
use crate::runtime::CheckResult;
use crate::wire::{Host, Response};
use crate::world::World;

/// What has happened to a datanode's bytes.
#[derive(Debug, Default)]
pub(crate) struct Rot {
    /// Blocks of the table whose bytes are damaged or gone, whether or not anybody has noticed.
    blocks: BTreeMap<BlockId, Damage>,
    /// Blocks that are not in the table any more, and the epochs at which they were held.
    vanished: BTreeMap<BlockId, Epoch>,
    /// Every block that anything happened to since the process began.
    ever: BTreeSet<BlockId>,
    /// Whether a report that was not taken is sent again in a moment.
    is_told_again: bool,
}

impl Rot {
    pub(super) fn has(&self, block: BlockId) -> bool {
        self.blocks.contains_key(&block)
    }

    /// Tells whether something has happened to a block.
    pub(crate) fn hurt(&self, block: BlockId) -> bool {
        self.has(block) || self.vanished.contains_key(&block)
    }

    /// Forgets a block that is stored anew.
    pub(super) fn is_stored(&mut self, block: BlockId) {
        self.blocks.remove(&block);
        self.vanished.remove(&block);
    }

    /// Forgets a block that was dropped at an epoch or an earlier one. One that vanished at a later
    /// epoch is still missed.
    pub(super) fn is_dropped(&mut self, block: BlockId, last: Epoch) {
        self.blocks.remove(&block);
        if self.vanished.get(&block).is_some_and(|epoch| *epoch <= last) {
            self.vanished.remove(&block);
        }
    }
}

impl Datanode {
    /// Looks at the bytes of a block, and marks it if they are damaged. Tells whether they are.
    pub(super) fn meet(&mut self, block: BlockId) -> bool {
        let Some(damage) = self.rot.blocks.get(&block).copied() else { return false };
        self.table.mark_damaged(block, damage, |_| true);
        true
    }

    /// Looks at all blocks.
    pub(super) fn scrub(&mut self) {
        let rotten: Vec<BlockId> = self.rot.blocks.keys().copied().collect();
        rotten.into_iter().for_each(|block| _ = self.meet(block));
    }
}

impl World {
    /// Hurts one of a datanode's blocks.
    pub(crate) fn rot(&mut self, slot: u8, number: u64, damage: Damage, is_vanished: bool) {
        let Some(datanode) = self.datanodes.get_mut(usize::from(slot)) else { return };
        let held = datanode.table.list(BlockId(0), usize::MAX);
        let held: Vec<HeldBlock> = held.into_iter().filter(|held| held.length > 0).collect();
        if held.is_empty() {
            return;
        }
        let HeldBlock { block, epoch, .. } = held[(number % held.len() as u64) as usize];
        datanode.rot.ever.insert(block);
        // The table loses no block that is being written: it has its writer.
        if is_vanished && datanode.table.stage(block) != Some(BlockStage::Open) {
            datanode.drop_block(block, epoch);
            datanode.rot.vanished.insert(block, epoch);
        } else {
            datanode.rot.blocks.insert(block, damage);
        }
    }

    /// Sends again what the namenode has not taken.
    pub(super) fn datanode_tell_damage_again(&mut self, slot: u8) {
        self.datanodes[usize::from(slot)].rot.is_told_again = false;
        self.datanode_tell_damage(slot);
    }

    /// Sends what the namenode has not taken, unless it waits to send it again.
    pub(super) fn datanode_tell_damage(&mut self, slot: u8) {
        if self.runtime.is_broken(Broken::DamageUndeclared) {
            return;
        }
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(node) = datanode.node.filter(|_| !datanode.rot.is_told_again) else { return };
        if let Some(report) = datanode.damages.next(&datanode.table) {
            let (nonce, blocks) = (datanode.member.nonce(), report.blocks.clone());
            let request = Request::ReportDamage { node, nonce, blocks };
            self.datanode_call(slot, request, DatanodeCall::Damage(report));
        }
    }

    pub(super) fn datanode_told_damage(
        &mut self,
        slot: u8,
        report: &DamageReport,
        answer: Option<Response>,
    ) {
        let outcome = outcome(answer);
        let is_taken = matches!(outcome, Ok(Reply::Done));
        let datanode = &mut self.datanodes[usize::from(slot)];
        datanode.damages.reported(report, is_taken);
        if is_taken {
            self.datanode_tell_damage(slot);
        } else if !std::mem::replace(&mut datanode.rot.is_told_again, true) {
            let refusal = if let Err(CallFailure::Refused(refusal)) = &outcome {
                Some(refusal)
            } else {
                None
            };
            let pause = datanode.damages.pause(refusal);
            self.runtime.set_timer(Host::Datanode(slot), pause.0 * 1000, Timer::Damage);
        }
    }

    /// Nothing is taken for damaged that nothing has happened to.
    pub(crate) fn check_damage_founded(&self, command: &Command) -> CheckResult {
        let Action::Damaged { node, blocks } = &command.action else { return Ok(()) };
        let Some(slot) = self.slot_of(*node) else { return Ok(()) };
        let datanode = &self.datanodes[usize::from(slot)];
        let is_hurt = |it: &DamagedBlock| datanode.rot.ever.contains(&it.block);
        // What the log has lost may have moved or deleted it.
        let has_lost = self.runtime.statistics().lost_ends > 0;
        let is_dropped = |it: &DamagedBlock| {
            let held = datanode.held(it.block).filter(|held| held.length > 0);
            has_lost && it.damage == Damage::Missing && held.is_none()
        };
        match blocks.iter().find(|it| !is_hurt(it) && !is_dropped(it)) {
            None => Ok(()),
            Some(DamagedBlock { block, epoch, damage }) => {
                let text = format!(
                    "block {block} at epoch {epoch} on host{slot}: {damage}, though nothing \
                     happened to it"
                );
                Err(("bytes", text))
            }
        }
    }

    /// Whatever was damaged or has vanished is lost by the namenode's word, or elsewhere.
    pub(crate) fn check_damage_declared(&self) -> CheckResult {
        let catalog = self.namenode.catalog();
        for id in catalog.block_ids() {
            let Some(facts) = catalog.block_facts(id).filter(|facts| facts.length > 0) else {
                continue;
            };
            let Some(home) = facts.home else { continue };
            let Some(slot) = self.slot_of(home) else { continue };
            let datanode = &self.datanodes[usize::from(slot)];
            let (epoch, length) = (facts.epoch, facts.length);
            let expected = HeldBlock { block: id, epoch, length, tier: facts.tier };
            let damage = datanode.table.lacks(&expected).or(datanode.rot.blocks.get(&id).copied());
            if let Some(damage) = damage {
                let place = Host::Datanode(slot);
                let text = format!("block {id} at epoch {epoch} on {place}: {damage}, undeclared");
                return Err(("damage-declared", text));
            }
        }
        Ok(())
    }
}
