//! Bytes that rot and blocks that vanish on simulated datanodes, and how they find and report it.

use sanderling_core::block_table::BlockStage;
use sanderling_core::datanode::{CallFailure, DamageReport};
use sanderling_protocol::order::{Damage, HeldBlock};
use sanderling_protocol::{BlockId, Reply, Request};

use super::Datanode;
use super::member::outcome;
use crate::InjectedBug;
use crate::context::Context;
use crate::event::{DatanodeCall, Timer};
use crate::wire::Response;

impl Datanode {
    /// Checks the bytes of a block, and marks it if they are damaged. Returns whether they are.
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

impl Datanode {
    /// Hurts one of a datanode's blocks.
    pub(crate) fn rot(&mut self, number: u64, damage: Damage, is_vanished: bool) {
        let held: Vec<HeldBlock> =
            self.blocks().into_iter().filter(|held| held.length > 0).collect();
        if held.is_empty() {
            return;
        }
        let HeldBlock { block, epoch, .. } = held[(number % held.len() as u64) as usize];
        self.rot.ever.insert(block);
        // The table loses no block that is being written: it has its writer.
        if is_vanished && self.table.stage(block) != Some(BlockStage::Open) {
            self.drop_block(block, epoch);
            self.rot.vanished.insert(block, epoch);
        } else {
            self.rot.blocks.insert(block, damage);
        }
    }

    /// Sends again what the namenode has not taken.
    pub(super) fn report_damage_again(&mut self, context: &mut Context<'_>) {
        self.rot.is_delayed = false;
        self.report_damage(context);
    }

    /// Sends what the namenode has not taken, unless it waits to send it again.
    pub(super) fn report_damage(&mut self, context: &mut Context<'_>) {
        if context.runtime.has_bug(InjectedBug::DamageUndeclared) {
            return;
        }
        let Some(node) = self.node.filter(|_| !self.rot.is_delayed) else { return };
        if let Some(report) = self.damages.next(&self.table) {
            let (nonce, blocks) = (self.member.nonce(), report.blocks.clone());
            let request = Request::ReportDamage { node, nonce, blocks };
            self.call(context, request, DatanodeCall::Damage(report));
        }
    }

    pub(super) fn damage_answered(
        &mut self,
        context: &mut Context<'_>,
        report: &DamageReport,
        answer: Option<Response>,
    ) {
        let outcome = outcome(answer);
        let is_taken = matches!(outcome, Ok(Reply::Done));
        self.damages.reported(report, is_taken);
        if is_taken {
            self.report_damage(context);
        } else if !std::mem::replace(&mut self.rot.is_delayed, true) {
            let refusal = if let Err(CallFailure::Refused(refusal)) = &outcome {
                Some(refusal)
            } else {
                None
            };
            let pause = self.damages.pause(refusal);
            context.runtime.set_timer(self.host(), pause.0 * 1000, Timer::Damage);
        }
    }
}
