//! Damage at rest: what is reported has happened, and what has happened is reported.

use sanderling_core::catalog::{Action, Command};
use sanderling_protocol::order::{Damage, DamagedBlock, HeldBlock};

use crate::runtime::CheckResult;
use crate::wire::Host;
use crate::world::World;

impl World {
    /// Nothing is taken for damaged that nothing has happened to.
    pub(crate) fn check_damage_founded(&self, command: &Command) -> CheckResult {
        let Action::Damaged { node, blocks } = &command.action else { return Ok(()) };
        let Some(slot) = self.slot_of(*node) else { return Ok(()) };
        let datanode = &self.datanodes[usize::from(slot)];
        let is_hurt = |it: &DamagedBlock| datanode.was_ever_hurt(it.block);
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
            if let Some(damage) = datanode.damage_of(&expected) {
                let place = Host::Datanode(slot);
                let text = format!("block {id} at epoch {epoch} on {place}: {damage}, undeclared");
                return Err(("damage-declared", text));
            }
        }
        Ok(())
    }
}
