//! The nodes' metadata in the catalog: their identity, their policy, the blocks they hold.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::{Forecast, Register};
use sanderling_protocol::node::{NodeSelector, Policy, TierCapacity};
use sanderling_protocol::{BlockId, Instant, Millis, NodeId, Nonce, Refusal, Tier};
use serde::{Deserialize, Serialize};

use super::block::Block;
use crate::reserve::{Departures, FleetCapacity};

/// One incarnation of a datanode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) nonce: Nonce,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) http_address: String,
    pub(crate) host: String,
    pub(crate) policy: Policy,
    tiers: Vec<TierState>,
    pub(crate) registered_at: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) reason: String,
    pub(crate) drain: Option<DrainSummary>,
    held: Holdings,
    pub(crate) notice_min: Option<Millis>,
    pub(crate) egress_bytes_per_second: Option<u64>,
    /// Why its cloud recommends to leave it.
    pub(crate) risk: Option<String>,
}

/// What is on a node, by the account of its blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holdings {
    /// Blocks whose home it is.
    pub(crate) homes: BTreeSet<BlockId>,
    /// Their published bytes.
    pub(crate) home_bytes: u64,
    /// Those of them that survive the node.
    pub(crate) safe_bytes: u64,
    /// Those of the homes that have a copy elsewhere.
    pub(crate) copied: BTreeSet<BlockId>,
    /// Those of the homes that are in the object tier.
    pub(crate) stored: BTreeSet<BlockId>,
    /// Copies here of blocks whose home is elsewhere, with the tier and bytes they take.
    pub(crate) copies: BTreeMap<BlockId, (Tier, u64)>,
    /// Moves that end here, with the tier and bytes reserved.
    pub(crate) incoming: BTreeMap<BlockId, (Tier, u64)>,
    /// Blocks that left it and whose bytes it may still serve.
    pub(crate) left: BTreeSet<BlockId>,
}

/// One tier of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TierState {
    pub(crate) tier: Tier,
    pub(crate) capacity: u64,
    pub(crate) used: u64,
    /// Bytes of it that copies of other nodes' blocks take.
    pub(crate) copied: u64,
}

/// The course of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DrainSummary {
    pub(crate) began_at: Instant,
    pub(crate) ended_at: Option<Instant>,
    pub(crate) moved_blocks: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) lost_blocks: u64,
    pub(crate) lost_bytes: u64,
    pub(crate) is_fenced: bool,
    pub(crate) promoted_blocks: u64,
    pub(crate) promoted_bytes: u64,
    pub(crate) forecast: Option<Forecast>,
}

/// All nodes that ever registered and are still worth remembering.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nodes {
    by_id: BTreeMap<NodeId, NodeRecord>,
    next_id: u32,
    /// Made anew when a snapshot is read.
    #[serde(skip)]
    found: NodeIndex,
    /// Made anew when a snapshot is read.
    #[serde(skip)]
    totals: Totals,
}

/// Sums over all nodes, kept so that a placement need not look at every node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes that homes are accounted with, in memory and on disks.
    pub(crate) homes: u64,
    /// Bytes of homes in the object tier.
    pub(crate) stored: u64,
    /// What the nodes that take blocks can hold.
    pub(crate) fleet: FleetCapacity,
    /// Whether a node's policy has changed since they were looked at.
    pub(crate) is_fleet_stale: bool,
}

impl Totals {
    fn account(&mut self, tier: Tier, change: i64) {
        let sum = if tier == Tier::Object { &mut self.stored } else { &mut self.homes };
        *sum = sum.saturating_add_signed(change);
    }
}

/// The nodes by what they are found by. Of those that share a name or an address the newest is
/// here: only the newest can be alive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NodeIndex {
    by_nonce: BTreeMap<Nonce, NodeId>,
    by_name: BTreeMap<String, NodeId>,
    by_address: BTreeMap<String, NodeId>,
}

/// Most nodes that are gone and still listed: enough to read what happened over a day on a large
/// fleet.
pub const GONE_NODES_KEPT_MAX: usize = 1000;

impl NodeRecord {
    /// Returns a node on which nothing is.
    pub(super) fn new(request: Register, name: String, now: Instant) -> Self {
        let tier =
            |it: &TierCapacity| TierState { tier: it.tier, capacity: it.bytes, used: 0, copied: 0 };
        Self {
            nonce: request.nonce,
            name,
            address: request.address,
            http_address: request.http_address,
            host: request.host,
            policy: Policy::Active,
            tiers: request.tiers.iter().map(tier).collect(),
            registered_at: now,
            deadline: None,
            reason: String::new(),
            drain: None,
            held: Holdings::default(),
            notice_min: request.notice_min,
            egress_bytes_per_second: request.egress_bytes_per_second,
            risk: None,
        }
    }

    /// Returns what is on it. Only the blocks change that.
    pub(super) const fn held(&self) -> &Holdings {
        &self.held
    }

    pub(super) fn tiers(&self) -> &[TierState] {
        &self.tiers
    }

    pub(super) fn has_object_tier(&self) -> bool {
        self.tiers.iter().any(|state| state.tier == Tier::Object)
    }

    /// Returns the node's exposure: the bytes whose only copy is on it.
    pub(super) const fn exposure(&self) -> u64 {
        self.held.home_bytes - self.held.safe_bytes
    }

    pub(crate) fn free_bytes(&self, tier: Tier) -> u64 {
        let state = self.tiers.iter().find(|state| state.tier == tier);
        state.map_or(0, |state| state.capacity.saturating_sub(state.used))
    }

    /// Returns by how much a tier has more than it holds: a lost end of the log may have given room
    /// to others meanwhile.
    pub(crate) fn excess_bytes(&self, tier: Tier) -> u64 {
        let state = self.tiers.iter().find(|state| state.tier == tier);
        state.map_or(0, |state| state.used.saturating_sub(state.capacity))
    }

    fn account_copy(&mut self, tier: Tier, change: i64) {
        self.account(tier, change);
        if let Some(state) = self.tiers.iter_mut().find(|state| state.tier == tier) {
            state.copied = state.copied.saturating_add_signed(change);
        }
    }

    fn account(&mut self, tier: Tier, change: i64) {
        if let Some(state) = self.tiers.iter_mut().find(|state| state.tier == tier) {
            state.used = state.used.saturating_add_signed(change);
        }
    }
}

impl DrainSummary {
    pub(crate) const fn begin(at: Instant) -> Self {
        Self {
            began_at: at,
            ended_at: None,
            moved_blocks: 0,
            moved_bytes: 0,
            lost_blocks: 0,
            lost_bytes: 0,
            is_fenced: false,
            promoted_blocks: 0,
            promoted_bytes: 0,
            forecast: None,
        }
    }
}

impl NodeIndex {
    fn insert(&mut self, id: NodeId, node: &NodeRecord) {
        self.by_nonce.insert(node.nonce, id);
        self.by_name.insert(node.name.clone(), id);
        self.by_address.insert(node.address.clone(), id);
    }

    fn remove(&mut self, id: NodeId, node: &NodeRecord) {
        self.by_nonce.remove(&node.nonce);
        if self.by_name.get(&node.name) == Some(&id) {
            self.by_name.remove(&node.name);
        }
        if self.by_address.get(&node.address) == Some(&id) {
            self.by_address.remove(&node.address);
        }
    }
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self { next_id: 1, ..Self::default() }
    }

    /// Rebuilds what a snapshot leaves out: the index of nodes and the sums of room. Cost: linear
    /// in the nodes and their moves.
    pub(crate) fn find_again(&mut self) {
        self.found = NodeIndex::default();
        self.totals = Totals::default();
        for (id, node) in &self.by_id {
            self.found.insert(*id, node);
            for state in &node.tiers {
                let moved = node.held.incoming.values().filter(|(tier, _)| *tier == state.tier);
                let moved: u64 = moved.map(|(_, bytes)| bytes).sum();
                let homes = state.used.saturating_sub(state.copied).saturating_sub(moved);
                self.totals.account(state.tier, homes.cast_signed());
            }
        }
    }

    /// Looks anew at what the nodes that take blocks can hold.
    pub(crate) fn look_at_fleet(&mut self, departures: Departures) {
        let takers = self.by_id.values().filter(|node| node.policy.takes_blocks());
        let tiers = takers.map(|node| node.tiers.iter().map(|it| (it.tier, it.capacity)));
        let is_leaving = self.by_id.values().any(|node| node.policy.is_draining());
        self.totals.fleet = FleetCapacity::of(departures, is_leaving, tiers);
        self.totals.is_fleet_stale = false;
    }

    /// Returns the sums over all nodes.
    pub(super) const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Notes that a node's policy has changed.
    pub(super) const fn mark_fleet_stale(&mut self) {
        self.totals.is_fleet_stale = true;
    }

    /// Returns the number of the next node.
    pub(super) const fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Goes on with another number.
    pub(super) const fn continue_at(&mut self, next_id: u32) {
        self.next_id = next_id;
    }

    /// Adds a new node and returns its id.
    pub(crate) fn insert(&mut self, node: NodeRecord) -> NodeId {
        let id = NodeId(self.next_id);
        self.next_id += 1;
        self.found.insert(id, &node);
        self.by_id.insert(id, node);
        id
    }

    /// Returns the node of a process.
    pub(crate) fn of(&self, nonce: Nonce) -> Option<NodeId> {
        self.found.by_nonce.get(&nonce).copied()
    }

    /// Returns the node with that name that is not gone.
    pub(crate) fn live_named(&self, name: &str) -> Option<(NodeId, &NodeRecord)> {
        self.live(self.found.by_name.get(name))
    }

    /// Returns the node at that address that is not gone.
    pub(crate) fn live_at(&self, address: &str) -> Option<(NodeId, &NodeRecord)> {
        self.live(self.found.by_address.get(address))
    }

    fn live(&self, id: Option<&NodeId>) -> Option<(NodeId, &NodeRecord)> {
        let node = self.by_id.get(id?).filter(|node| node.policy != Policy::Gone)?;
        Some((*id?, node))
    }

    /// Returns all nodes in the order of their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeId, &NodeRecord)> {
        self.by_id.iter()
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&NodeRecord> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut NodeRecord> {
        self.by_id.get_mut(&id)
    }

    /// Returns a node that is not gone, to be changed.
    pub(super) fn live_mut(&mut self, id: NodeId) -> Result<&mut NodeRecord, Refusal> {
        let node = self.get_mut(id).ok_or_else(|| Refusal::UnknownNode { node: id.to_string() })?;
        if node.policy == Policy::Gone {
            let why = format!("it is gone: {}", node.reason);
            return Err(Refusal::WrongState { node: id, why });
        }
        Ok(node)
    }

    /// Returns whether a node neither leaves nor is gone.
    pub(super) fn is_active(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(|node| node.policy == Policy::Active)
    }

    /// Returns the bytes whose only copy is on a node.
    pub(super) fn exposure(&self, id: NodeId) -> u64 {
        self.get(id).map_or(0, NodeRecord::exposure)
    }

    /// Returns a node that is not gone; refuses a request from any process but its own.
    pub(super) fn of_process(&self, id: NodeId, nonce: Nonce) -> Result<&NodeRecord, Refusal> {
        let node = self.get(id).filter(|node| node.nonce == nonce && node.policy != Policy::Gone);
        node.ok_or(Refusal::NodeGone { node: id })
    }

    /// Returns the node that answers to an id, else the newest one with that name, else with that
    /// address; those that are not gone before those that are.
    pub(crate) fn select(&self, selector: &NodeSelector) -> Result<NodeId, Refusal> {
        let text = selector.0.as_str();
        if let Ok(number) = text.parse::<u32>()
            && self.by_id.contains_key(&NodeId(number))
        {
            return Ok(NodeId(number));
        }
        let best = |matches: &dyn Fn(&NodeRecord) -> bool| {
            let found = self.by_id.iter().filter(|(_, node)| matches(node));
            found.max_by_key(|(id, node)| (node.policy != Policy::Gone, **id)).map(|(id, _)| *id)
        };
        best(&|node| node.name == text)
            .or_else(|| best(&|node| node.address == text))
            .ok_or_else(|| Refusal::UnknownNode { node: text.chars().take(200).collect() })
    }

    /// Counts a block and its bytes among those that have their home on a node.
    pub(crate) fn settle(&mut self, node: NodeId, id: BlockId, block: &Block) {
        if let Some(node) = self.by_id.get_mut(&node) {
            node.held.homes.insert(id);
            node.held.home_bytes += u64::from(block.length);
            if block.is_safe() {
                node.held.safe_bytes += u64::from(block.length);
            }
            if block.copy.is_some() {
                node.held.copied.insert(id);
            }
            if block.tier == Tier::Object {
                node.held.stored.insert(id);
            }
            node.held.left.remove(&id);
            node.account(block.tier, i64::from(block.reserved));
            self.totals.account(block.tier, i64::from(block.reserved));
        }
    }

    /// Notes that an old home may still serve a block's bytes.
    pub(super) fn keep_left(&mut self, node: NodeId, id: BlockId) {
        if let Some(node) = self.by_id.get_mut(&node) {
            node.held.left.insert(id);
        }
    }

    /// Notes that a node serves nothing of a block any more that left it.
    pub(super) fn forget_left(&mut self, node: NodeId, id: BlockId) {
        if let Some(node) = self.by_id.get_mut(&node) {
            node.held.left.remove(&id);
        }
    }

    /// Forgets all blocks that have left a node. Returns them.
    pub(super) fn take_left(&mut self, node: NodeId) -> BTreeSet<BlockId> {
        let node = self.by_id.get_mut(&node);
        node.map(|node| std::mem::take(&mut node.held.left)).unwrap_or_default()
    }

    /// Counts bytes published of a block whose home it is.
    pub(crate) fn published(&mut self, node: NodeId, bytes: u64, is_safe: bool) {
        if let Some(node) = self.by_id.get_mut(&node) {
            node.held.home_bytes += bytes;
            node.held.safe_bytes += if is_safe { bytes } else { 0 };
        }
    }

    /// Counts the safe bytes of all nodes anew. Cost: linear in the blocks.
    pub(super) fn recount_safe<'a>(&mut self, blocks: impl Iterator<Item = &'a Block>) {
        self.by_id.values_mut().for_each(|node| node.held.safe_bytes = 0);
        for block in blocks.filter(|block| block.is_safe()) {
            if let Some(node) = block.home.and_then(|home| self.by_id.get_mut(&home)) {
                node.held.safe_bytes += u64::from(block.length);
            }
        }
    }

    /// Makes the safe bytes of a node wrong.
    #[cfg(test)]
    pub(super) fn miscount_safe(&mut self, node: NodeId, safe_bytes: u64) {
        self.by_id.get_mut(&node).expect("it has registered").held.safe_bytes = safe_bytes;
    }

    /// Records that a node is no longer the home of a block, in its account and the totals.
    pub(crate) fn leave(&mut self, node: NodeId, id: BlockId, block: &Block) {
        if let Some(node) = self.by_id.get_mut(&node)
            && node.held.homes.remove(&id)
        {
            node.held.home_bytes -= u64::from(block.length);
            if block.is_safe() {
                node.held.safe_bytes -= u64::from(block.length);
            }
            node.held.copied.remove(&id);
            node.held.stored.remove(&id);
            node.account(block.tier, -i64::from(block.reserved));
            self.totals.account(block.tier, -i64::from(block.reserved));
        }
    }

    /// Counts that a home's place is accounted with another number of bytes.
    pub(crate) fn account(&mut self, node: NodeId, tier: Tier, change: i64) {
        if let Some(node) = self.by_id.get_mut(&node) {
            node.account(tier, change);
            self.totals.account(tier, change);
        }
    }

    /// Counts a copy that a node holds from now on of a block whose home is elsewhere.
    pub(crate) fn add_copy(&mut self, id: NodeId, block: BlockId, tier: Tier, bytes: u64) {
        if let Some(node) = self.by_id.get_mut(&id) {
            node.held.copies.insert(block, (tier, bytes));
            node.held.left.remove(&block);
            node.account_copy(tier, bytes.cast_signed());
        }
    }

    pub(crate) fn remove_copy(&mut self, id: NodeId, block: BlockId) {
        if let Some(node) = self.by_id.get_mut(&id)
            && let Some((tier, bytes)) = node.held.copies.remove(&block)
        {
            node.account_copy(tier, -bytes.cast_signed());
        }
    }

    /// Counts that a block has a copy beside its home, by which so many more bytes are safe.
    pub(super) fn count_copied(&mut self, home: NodeId, id: BlockId, bytes: u32) {
        if let Some(node) = self.by_id.get_mut(&home) {
            node.held.copied.insert(id);
            node.held.safe_bytes += u64::from(bytes);
        }
    }

    /// Counts the bytes of a block as safe from the end of its home, or as no longer safe, for
    /// another reason than a copy: [`Self::count_copied`] counts those.
    pub(super) fn count_safe(&mut self, home: NodeId, bytes: u32, is_safe: bool) {
        let Some(node) = self.by_id.get_mut(&home) else { return };
        match is_safe {
            true => node.held.safe_bytes += u64::from(bytes),
            false => node.held.safe_bytes -= u64::from(bytes),
        }
    }

    /// Counts that a block has no copy beside its home any more.
    pub(super) fn discount_copied(&mut self, home: NodeId, id: BlockId, bytes: u32) {
        if let Some(node) = self.by_id.get_mut(&home)
            && node.held.copied.remove(&id)
        {
            node.held.safe_bytes -= u64::from(bytes);
        }
    }

    pub(crate) fn reserve_incoming(&mut self, id: NodeId, block: BlockId, tier: Tier, bytes: u64) {
        self.release_incoming(id, block);
        if let Some(node) = self.by_id.get_mut(&id) {
            node.held.incoming.insert(block, (tier, bytes));
            node.account(tier, bytes.cast_signed());
        }
    }

    pub(crate) fn release_incoming(&mut self, node: NodeId, block: BlockId) {
        if let Some(node) = self.by_id.get_mut(&node)
            && let Some((tier, bytes)) = node.held.incoming.remove(&block)
        {
            node.account(tier, -bytes.cast_signed());
        }
    }

    /// Forgets the oldest nodes that are gone, beyond [`GONE_NODES_KEPT_MAX`].
    pub(crate) fn forget_old(&mut self) {
        let gone = |node: &NodeRecord| node.policy == Policy::Gone;
        let excess = self
            .by_id
            .values()
            .filter(|node| gone(node))
            .count()
            .saturating_sub(GONE_NODES_KEPT_MAX);
        let oldest: Vec<NodeId> = self
            .by_id
            .iter()
            .filter(|(_, node)| gone(node))
            .map(|(id, _)| *id)
            .take(excess)
            .collect();
        for id in oldest {
            if let Some(node) = self.by_id.remove(&id) {
                self.found.remove(id, &node);
                self.find_older(&node);
            }
        }
    }

    /// Finds the newest node that is left with the name of one that was forgotten, and with its
    /// address: whoever reads a snapshot then finds the same. An older one may be alive after a
    /// start on an older catalog.
    fn find_older(&mut self, forgotten: &NodeRecord) {
        for (id, node) in &self.by_id {
            if node.name == forgotten.name {
                self.found.by_name.insert(node.name.clone(), *id);
            }
            if node.address == forgotten.address {
                self.found.by_address.insert(node.address.clone(), *id);
            }
        }
    }

    /// Asserts what must hold of each node after every command. `may_be_empty`: for a while after a
    /// start a node without blocks may still turn out to be the home of some.
    pub(super) fn assert(&self, may_be_empty: bool) {
        for (id, node) in &self.by_id {
            let held = &node.held;
            assert!(held.safe_bytes <= held.home_bytes, "node {id}: more is safe than there is");
            assert!(held.copied.is_subset(&held.homes), "node {id}: a copy of no home");
            assert!(held.stored.is_subset(&held.homes), "node {id}: an object of no home");
            let is_over = |it: &TierState| it.copied > it.used;
            assert!(!node.tiers.iter().any(is_over), "node {id}: copies use no room");
            let is_over = !node.policy.is_draining() || !held.homes.is_empty();
            assert!(is_over || may_be_empty, "node {id}: drains with nothing left to move");
        }
    }

    /// Compares what is on the nodes with what follows from the blocks.
    pub(super) fn check<'a>(
        &self,
        blocks: impl Iterator<Item = (BlockId, &'a Block)>,
        problems: &mut Vec<String>,
    ) {
        let mut derived = Self { by_id: self.by_id.clone(), ..Self::default() };
        for node in derived.by_id.values_mut() {
            node.held = Holdings::default();
            node.tiers.iter_mut().for_each(|state| (state.used, state.copied) = (0, 0));
        }
        // What a copy or a reservation takes was counted when it was made.
        let counted = |id: BlockId, of: &BTreeMap<BlockId, (Tier, u64)>| of.get(&id).map(|it| it.1);
        for (id, block) in blocks {
            if let Some(home) = block.home {
                derived.settle(home, id, block);
            }
            if let Some(copy) = block.copy {
                let bytes = self.get(copy.node).and_then(|node| counted(id, &node.held.copies));
                derived.add_copy(copy.node, id, copy.tier, bytes.unwrap_or(0));
            }
            if let Some(planned) = block.moving {
                let bytes = self.get(planned.to).and_then(|it| counted(id, &it.held.incoming));
                derived.reserve_incoming(planned.to, id, planned.tier, bytes.unwrap_or(0));
            }
        }
        for (id, node) in &self.by_id {
            let (held, derived) = (&node.held, &derived.by_id[id]);
            for (what, is_equal) in [
                ("the blocks at home", held.homes == derived.held.homes),
                ("the bytes at home", held.home_bytes == derived.held.home_bytes),
                ("the bytes that are safe", held.safe_bytes == derived.held.safe_bytes),
                ("the homes with a copy", held.copied == derived.held.copied),
                ("the homes in the object tier", held.stored == derived.held.stored),
                ("the copies", held.copies == derived.held.copies),
                ("the moves that end there", held.incoming == derived.held.incoming),
                ("the room that is used", node.tiers == derived.tiers),
            ] {
                if !is_equal {
                    problems.push(format!("node {id} and the blocks disagree about {what}"));
                }
            }
        }
        let sums = |totals: &Totals| (totals.homes, totals.stored);
        if sums(&self.totals) != sums(&derived.totals) {
            problems.push("the sums over all nodes are not what their homes take".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(nodes: &mut Nodes, name: &str, policy: Policy) {
        let number = nodes.next_id();
        let request = Register {
            cluster: None,
            nonce: Nonce(number.into()),
            name: name.to_owned(),
            address: format!("10.0.0.1:{number}"),
            http_address: String::new(),
            host: String::new(),
            tiers: Vec::new(),
            notice_min: None,
            egress_bytes_per_second: None,
        };
        let node = NodeRecord::new(request, name.to_owned(), Instant(0));
        let id = nodes.insert(node);
        nodes.get_mut(id).expect("it was inserted").policy = policy;
    }

    #[test]
    fn older_node_of_a_forgotten_ones_name_is_found_as_after_a_snapshot() {
        let mut nodes = Nodes::new();
        insert(&mut nodes, "spot-1", Policy::Active);
        insert(&mut nodes, "spot-1", Policy::Gone);
        for number in 0..GONE_NODES_KEPT_MAX {
            insert(&mut nodes, &format!("other-{number}"), Policy::Gone);
        }
        assert!(nodes.live_named("spot-1").is_none(), "the newest is meant");
        nodes.forget_old();
        assert_eq!(nodes.get(NodeId(2)), None);
        let mut read = nodes.clone();
        read.find_again();
        assert_eq!(nodes.found, read.found);
        assert_eq!(nodes.live_named("spot-1").map(|(id, _)| id), Some(NodeId(1)));
    }
}
