//! What must hold when the faults have stopped and everything has come to rest.

use std::collections::BTreeMap;

use sanderling_core::catalog::allocated_bytes;
use sanderling_protocol::message::Layout;
use sanderling_protocol::{NodeId, Policy, Tier};

use super::history::SearchResult;
use crate::runtime::CheckResult;
use crate::world::World;

impl World {
    /// Returns what is still unsettled about blocks: open ones, reservations, and orphans.
    pub(crate) fn unsettled_blocks(&self) -> Option<(&'static str, String)> {
        let report = self.namenode.catalog().fsck();
        if report.open_blocks > 0 {
            let text = format!("{} blocks are still open", report.open_blocks);
            return Some(("convergence", text));
        }
        let reaping = self.namenode.catalog().reaping_count();
        if reaping > 0 {
            let text = format!("{reaping} deleted subtrees are not freed");
            return Some(("convergence", text));
        }
        self.check_accounts_end().and_then(|()| self.check_orphans()).err()
    }

    /// Looks at everything when the world has come to rest.
    pub(crate) fn check_end(&mut self) {
        let found = self.check_damage_declared();
        self.runtime.expect(found);
        let found = self.check_lost_end();
        self.runtime.expect(found);
        self.audit();
        let found = self.check_readable();
        self.runtime.expect(found);
        let found = self.check_history();
        self.runtime.expect(found);
    }

    /// One order explains what the callers saw.
    fn check_history(&mut self) -> CheckResult {
        let (groups, verdict) = self.checks.history.judge();
        self.runtime.statistics_mut().histories += groups;
        match verdict {
            SearchResult::Linearizable => Ok(()),
            SearchResult::Not(why) => Err(("linearizable", why)),
            SearchResult::Unjudged => {
                self.runtime.statistics_mut().histories_unjudged += 1;
                Ok(())
            }
        }
    }

    /// Returns the layouts of all objects with bytes.
    fn layouts(&self) -> Vec<Layout> {
        self.checks.bytes.objects().filter_map(|object| self.layout(object)).collect()
    }

    /// Every byte that was promised can be read, or is said to be lost.
    fn check_readable(&self) -> CheckResult {
        for object in self.checks.bytes.objects() {
            let promised = self.checks.bytes.promised(object);
            let Some(layout) = self.layout(object) else {
                if self.checks.names.is_alive(object) {
                    return Err(("bytes", format!("object {object} is gone, nobody deleted it")));
                }
                continue;
            };
            if layout.stat.bytes < promised {
                let bytes = layout.stat.bytes;
                let text = format!("object {object} has {bytes} bytes, {promised} were promised");
                return Err(("bytes", text));
            }
            self.check_layout(&layout)?;
        }
        Ok(())
    }

    fn check_layout(&self, layout: &Layout) -> CheckResult {
        let object = layout.stat.object;
        for block in &layout.blocks {
            let Some(home) = block.home else { continue };
            let id = block.block;
            let place = self.datanodes.iter().find(|datanode| datanode.node() == Some(home));
            let content = match place.map(|it| it.peek(id, block.epoch, block.length)) {
                Some(Ok(Some(content))) => content,
                other => {
                    let text = format!(
                        "block {id} of object {object} cannot be read at node {home}: {other:?}"
                    );
                    return Err(("bytes", text));
                }
            };
            self.checks.bytes.read(object, block.offset, block.length, &content)?;
        }
        Ok(())
    }

    /// What nodes are accounted with is what they hold: no reservation is left. A datanode may hold
    /// more of a block than its writer published, and a block that moved is accounted as it is
    /// held.
    fn check_accounts_end(&self) -> CheckResult {
        let mut published: BTreeMap<(NodeId, Tier), u64> = BTreeMap::new();
        let mut held: BTreeMap<(NodeId, Tier), u64> = BTreeMap::new();
        for block in self.layouts().iter().flat_map(|layout| &layout.blocks) {
            let Some(home) = block.home else { continue };
            let place = self.datanodes.iter().find(|datanode| datanode.node() == Some(home));
            let there = place.and_then(|it| it.held(block.block)).map_or(0, |held| held.length);
            let (key, length) = ((home, block.tier), block.length);
            *published.entry(key).or_default() += u64::from(allocated_bytes(length));
            *held.entry(key).or_default() += u64::from(allocated_bytes(length.max(there)));
        }
        let catalog = self.namenode.catalog();
        for (block, length) in
            self.layouts().iter().flat_map(|layout| &layout.blocks).map(|it| (it.block, it.length))
        {
            let Some((node, tier, _)) = catalog.block_facts(block).and_then(|it| it.copy) else {
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

    /// Datanodes hold nothing that nobody wants.
    fn check_orphans(&self) -> CheckResult {
        let catalog = self.namenode.catalog();
        for (slot, datanode) in self.datanodes.iter().enumerate() {
            let Some(node) = datanode.node() else { continue };
            let policy = catalog.node_policy(node).map(|(policy, _)| policy);
            if policy != Some(Policy::Active) {
                continue;
            }
            for held in datanode.blocks() {
                let facts = catalog.block_facts(held.block);
                let home = facts.and_then(|facts| facts.home);
                let copy = facts.and_then(|facts| facts.copy).map(|(node, ..)| node);
                if home != Some(node) && copy != Some(node) {
                    let block = held.block;
                    let text = format!("host{slot}, node {node}, keeps block {block}, at {home:?}");
                    return Err(("orphans", text));
                }
            }
        }
        Ok(())
    }
}
