//! Damage at rest: what is reported has happened, and what has happened is reported.

use sanderling_core::catalog::{Action, Command};
use sanderling_protocol::order::{Damage, DamagedBlock, HeldBlock};

use super::view::View;
use crate::runtime::CheckResult;

/// Checks that nothing is taken for damaged that nothing has happened to.
pub(super) fn check_founded(view: View<'_>, command: &Command) -> CheckResult {
    let Action::Damaged { node, blocks } = &command.action else { return Ok(()) };
    let Some(datanode) = view.running(*node) else { return Ok(()) };
    let is_hurt = |it: &DamagedBlock| datanode.was_ever_hurt(it.block);
    // What the log has lost may have moved or deleted it.
    let has_lost = view.runtime.statistics().lost_ends > 0;
    let is_dropped = |it: &DamagedBlock| {
        let held = datanode.held(it.block).filter(|held| held.length > 0);
        has_lost && it.damage == Damage::Missing && held.is_none()
    };
    match blocks.iter().find(|it| !is_hurt(it) && !is_dropped(it)) {
        None => Ok(()),
        Some(DamagedBlock { block, epoch, damage }) => {
            let host = datanode.host();
            let text = format!(
                "block {block} at epoch {epoch} on {host}: {damage}, though nothing \
                 happened to it"
            );
            Err(("bytes", text))
        }
    }
}

/// Checks that whatever was damaged or has vanished is declared lost, or has its home elsewhere.
pub(super) fn check_declared(view: View<'_>) -> CheckResult {
    let catalog = view.catalog();
    for id in catalog.block_ids() {
        let Some(block_view) = catalog.block_view(id).filter(|block_view| block_view.length > 0)
        else {
            continue;
        };
        let Some(home) = block_view.home else { continue };
        let Some(datanode) = view.running(home) else { continue };
        let (epoch, length) = (block_view.epoch, block_view.length);
        let expected = HeldBlock { block: id, epoch, length, tier: block_view.tier };
        if let Some(damage) = datanode.damage_of(&expected) {
            let place = datanode.host();
            let text = format!("block {id} at epoch {epoch} on {place}: {damage}, undeclared");
            return Err(("damage-declared", text));
        }
    }
    Ok(())
}
