//! What must hold when the faults have stopped and everything has come to rest.

use std::collections::BTreeMap;

use sanderling_core::catalog::allocated_bytes;
use sanderling_protocol::message::Layout;
use sanderling_protocol::{NodeId, Policy, Tier};

use super::bytes::Bytes;
use super::names::NameModel;
use super::view::View;
use crate::runtime::CheckResult;

/// Returns what is still unsettled about blocks: open ones, reservations, and orphans.
pub(super) fn unsettled(view: View<'_>, bytes: &Bytes) -> Option<(&'static str, String)> {
    let open = view.catalog().open_blocks();
    if open > 0 {
        return Some(("convergence", format!("{open} blocks are still open")));
    }
    let reaping = view.catalog().reaping_count();
    if reaping > 0 {
        let text = format!("{reaping} deleted subtrees are not freed");
        return Some(("convergence", text));
    }
    check_accounts(view, bytes).and_then(|()| check_orphans(view)).err()
}

/// Returns the layouts of all objects with bytes.
fn layouts(view: View<'_>, bytes: &Bytes) -> Vec<Layout> {
    bytes.objects().filter_map(|object| view.layout(object)).collect()
}

/// Checks that every byte that was promised can be read, or is declared lost.
pub(super) fn check_readable(view: View<'_>, bytes: &Bytes, names: &NameModel) -> CheckResult {
    for object in bytes.objects() {
        let promised = bytes.promised(object);
        let Some(layout) = view.layout(object) else {
            if names.is_alive(object) {
                return Err(("bytes", format!("object {object} is gone, and was not deleted")));
            }
            continue;
        };
        if layout.stat.bytes < promised {
            let bytes = layout.stat.bytes;
            let text = format!("object {object} has {bytes} bytes, {promised} were promised");
            return Err(("bytes", text));
        }
        check_layout(view, bytes, &layout)?;
    }
    Ok(())
}

fn check_layout(view: View<'_>, bytes: &Bytes, layout: &Layout) -> CheckResult {
    let object = layout.stat.object;
    for block in &layout.blocks {
        let Some(home) = block.home else { continue };
        let id = block.block;
        let content = match view.process(home).map(|it| it.peek(id, block.epoch, block.length)) {
            Some(Ok(Some(content))) => content,
            other => {
                let text = format!(
                    "block {id} of object {object} cannot be read at node {home}: {other:?}"
                );
                return Err(("bytes", text));
            }
        };
        bytes.read(object, block.offset, block.length, &content)?;
    }
    Ok(())
}

/// Checks that nodes are accounted with what they hold: no reservation is left. A datanode may hold
/// more of a block than its writer published, and a block that moved is accounted as it is held.
fn check_accounts(view: View<'_>, bytes: &Bytes) -> CheckResult {
    let mut published: BTreeMap<(NodeId, Tier), u64> = BTreeMap::new();
    let mut held: BTreeMap<(NodeId, Tier), u64> = BTreeMap::new();
    for block in layouts(view, bytes).iter().flat_map(|layout| &layout.blocks) {
        let Some(home) = block.home else { continue };
        let place = view.process(home);
        let there = place.and_then(|it| it.held(block.block)).map_or(0, |held| held.length);
        let (key, length) = ((home, block.tier), block.length);
        *published.entry(key).or_default() += u64::from(allocated_bytes(length));
        *held.entry(key).or_default() += u64::from(allocated_bytes(length.max(there)));
    }
    let catalog = view.catalog();
    for (block, length) in layouts(view, bytes)
        .iter()
        .flat_map(|layout| &layout.blocks)
        .map(|it| (it.block, it.length))
    {
        let Some((node, tier, _)) = catalog.block_view(block).and_then(|it| it.copy) else {
            continue;
        };
        let bytes = u64::from(allocated_bytes(length));
        *published.entry((node, tier)).or_default() += bytes;
        *held.entry((node, tier)).or_default() += bytes;
    }
    for node in catalog.node_ids(false) {
        for tier in [Tier::Dram, Tier::Disk] {
            let (free, capacity) = catalog.node_room(node, tier);
            let used = capacity - free;
            let low = published.get(&(node, tier)).copied().unwrap_or(0);
            let high = held.get(&(node, tier)).copied().unwrap_or(0);
            if used < low || used > high {
                let text = format!(
                    "node {node} is promised for {used} bytes of {tier} and holds {low} to \
                     {high}"
                );
                return Err(("reservations", text));
            }
        }
    }
    Ok(())
}

/// Checks that datanodes hold only what the catalog has on them.
fn check_orphans(view: View<'_>) -> CheckResult {
    let catalog = view.catalog();
    for datanode in view.datanodes {
        let Some(node) = datanode.node() else { continue };
        let policy = catalog.node_policy(node).map(|(policy, _)| policy);
        if policy != Some(Policy::Active) {
            continue;
        }
        for held in datanode.blocks() {
            let block_view = catalog.block_view(held.block);
            let home = block_view.and_then(|block_view| block_view.home);
            let copy = block_view.and_then(|block_view| block_view.copy).map(|(node, ..)| node);
            if home != Some(node) && copy != Some(node) {
                let block = held.block;
                let host = datanode.host();
                let text = format!("{host}, node {node}, keeps block {block}, at {home:?}");
                return Err(("orphans", text));
            }
        }
    }
    Ok(())
}
