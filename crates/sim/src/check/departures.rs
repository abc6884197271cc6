//! Departures: whatever a writer was given, so many nodes can still leave.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::catalog::{BlockView, Catalog};
use sanderling_core::reserve;
use sanderling_protocol::{BlockId, NodeId, Policy, Refusal, Reply, Tier};

use crate::runtime::CheckResult;

/// What the checker remembers.
#[derive(Debug)]
pub(crate) struct Departures {
    promised: reserve::Departures,
    /// The last block that was given to a writer.
    last: BlockId,
}

impl Departures {
    pub(crate) const fn new(promised: reserve::Departures) -> Self {
        Self { promised, last: BlockId(0) }
    }

    /// Checks that, after a writer got blocks, any nodes of the promised number could leave
    /// together.
    pub(crate) fn apply(
        &mut self,
        result: &Result<Reply, Refusal>,
        catalog: &Catalog,
    ) -> CheckResult {
        let Ok(Reply::Grant(grant)) = result else { return Ok(()) };
        let Some(last) = grant.blocks.iter().map(|block| block.block).max() else { return Ok(()) };
        if last <= self.last {
            return Ok(());
        }
        self.last = last;
        let takes = |node: &NodeId| {
            catalog.node_policy(*node).is_some_and(|(policy, _)| policy == Policy::Active)
        };
        let takers: Vec<NodeId> = catalog.node_ids(false).into_iter().filter(takes).collect();
        let count = match self.promised {
            reserve::Departures::Default if takers.len() >= reserve::NODES_MIN => 1,
            reserve::Departures::Fixed(count) => count,
            _ => 0,
        };
        for first in takers.iter().filter(|_| count > 0) {
            // With two, the same one twice is one that leaves alone.
            for second in if count > 1 { &takers[..] } else { std::slice::from_ref(first) } {
                check(catalog, &takers, BTreeSet::from([*first, *second]))?;
            }
        }
        Ok(())
    }
}

/// Checks that the nodes that stay have room for what the leaving ones hold: puts every block that
/// leaves where it fits first.
fn check(catalog: &Catalog, takers: &[NodeId], leave: BTreeSet<NodeId>) -> CheckResult {
    let mut room: BTreeMap<(NodeId, Tier), u64> = BTreeMap::new();
    for node in takers.iter().filter(|node| !leave.contains(node)) {
        for tier in Tier::ALL {
            room.insert((*node, tier), catalog.node_room(*node, tier).1);
        }
    }
    let block_view = |id| Some((id, catalog.block_view(id)?));
    let blocks: Vec<(BlockId, BlockView)> = catalog.block_ids().filter_map(block_view).collect();
    let mut leaving = Vec::new();
    for (id, block_view) in blocks {
        let Some(home) = block_view.home else { continue };
        match room.get_mut(&(home, block_view.tier)) {
            Some(free) => *free = free.saturating_sub(block_view.reserved_bytes),
            None => leaving.push((id, block_view)),
        }
    }
    for (id, block_view) in leaving {
        let bytes = block_view.reserved_bytes;
        let Some(free) = room.values_mut().find(|free| **free >= bytes) else {
            let text = format!("if {leave:?} left, block {id} of {bytes} bytes had no place");
            return Err(("departures", text));
        };
        *free -= bytes;
    }
    Ok(())
}
