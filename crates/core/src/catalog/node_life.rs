//! The life of a node: it registers, and it ends with what is lost on it.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::limits::TEXT_BYTES_MAX;
use sanderling_protocol::message::{Register, Registered};
use sanderling_protocol::node::Policy;
use sanderling_protocol::order::{Damage, DamagedBlock};
use sanderling_protocol::{
    BlockId, EventKind, Instant, JobId, Millis, NodeId, Nonce, ObjectId, Refusal, Reply,
};

use super::Catalog;
use super::members::NodeRecord;
use super::orders::Orders;

impl Catalog {
    /// Lets a datanode join. The same process gets the same id again; another process on the
    /// address of a live node takes its place, because two cannot listen there.
    ///
    /// In the first seconds after a start (`History::settles_in`) a node of before the start stays,
    /// and is declared dead when the others have reported: a lost end of the log may have moved its
    /// blocks to them, or to this very process. If `is_of_lost_end`, this process was a member by
    /// that end, which had seen the node of before go: its name is free, too.
    pub(super) fn register(
        &mut self,
        request: Register,
        is_of_lost_end: bool,
        heartbeat: Millis,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        if let Some((id, policy)) = self.node_of(request.nonce) {
            if policy == Policy::Gone {
                return Err(Refusal::NodeGone { node: id });
            }
            if policy.is_draining() {
                // The order may have been lost with the namenode that gave it.
                orders.lists().fence_nodes.insert(id);
            }
            return Ok(self.welcome(id, policy, heartbeat));
        }
        check_register(&request)?;
        let name = if request.name.is_empty() { &request.address } else { &request.name }.clone();
        let stays = |node: NodeId| {
            self.reaping.rules.keeps_replaced_nodes()
                && self.history.settles_in(&self.service, self.now).is_some()
                && self.history.may_have_moved_off(node)
        };
        if let Some((node, live)) = self.nodes.live_named(&name)
            && live.address != request.address
            && !(is_of_lost_end && stays(node))
        {
            return Err(Refusal::NameInUse { name, node });
        }
        if let Some((before, _)) = self.nodes.live_at(&request.address)
            && !stays(before)
        {
            self.remove_node(before, "another process took its address", orders);
        }
        let id = self.insert_node(request, name);
        Ok(self.welcome(id, Policy::Active, heartbeat))
    }

    fn insert_node(&mut self, request: Register, name: String) -> NodeId {
        let address = request.address.clone();
        let node = NodeRecord::new(request, name.clone(), self.now);
        let is_adopter = node.has_object_tier();
        let id = self.nodes.insert(node);
        if is_adopter {
            self.fleet().adopter_joined();
        }
        self.emit(EventKind::NodeRegistered { node: id, name, address });
        id
    }

    /// Returns the node, and its policy, that registered with a process's nonce; `None` if none
    /// did.
    #[must_use]
    pub fn node_of(&self, nonce: Nonce) -> Option<(NodeId, Policy)> {
        let id = self.nodes.of(nonce)?;
        self.nodes.get(id).map(|node| (id, node.policy))
    }

    pub(crate) fn welcome(&self, node: NodeId, policy: Policy, heartbeat: Millis) -> Reply {
        Reply::Registered(Registered { cluster: self.cluster, node, heartbeat, policy })
    }

    /// Ends a node for good: what it still held is lost, what was on its way to it is not.
    pub(super) fn remove_node(&mut self, id: NodeId, why: &str, orders: &mut Orders) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        if node.policy == Policy::Gone {
            return;
        }
        node.policy = Policy::Gone;
        node.reason = why.to_owned();
        if let Some(drain) = &mut node.drain {
            drain.ended_at.get_or_insert(self.now);
        }
        let incoming: Vec<BlockId> = node.held().incoming.keys().copied().collect();
        let name = node.name.clone();
        self.durables.forget_stores(id);
        self.nodes.take_left(id);
        for block in incoming {
            self.blocks.void_move(block, &mut self.nodes, orders);
        }
        self.cancelled.forget(id);
        self.claims.forget(id);
        self.emit(EventKind::NodeGone { node: id, name, why: why.to_owned() });
        self.fleet().save_from(id, orders);
        let homes = self.nodes.get(id).map(|node| node.held().homes.iter().copied().collect());
        let homes: Vec<BlockId> = homes.unwrap_or_default();
        self.lose_blocks(id, &homes, why, orders);
        // No process is there to take them.
        orders.lists().drops.remove(&id);
        orders.lists().gone.push(id);
        self.nodes.take_left(id);
        self.nodes.forget_old();
    }

    /// Declares blocks lost, writes the losses into the report and emits their events.
    pub(super) fn lose_blocks(
        &mut self,
        node: NodeId,
        blocks: &[BlockId],
        why: &str,
        orders: &mut Orders,
    ) {
        let mut by_object: BTreeMap<ObjectId, Vec<BlockId>> = BTreeMap::new();
        for block in blocks {
            let lost = self.blocks.lose(*block, &mut self.nodes, &mut self.jobs, orders);
            self.shown_moves.remove(*block);
            if lost > 0 {
                let object = self.blocks[block].object;
                by_object.entry(object).or_default().push(*block);
            }
        }
        let (mut lost_blocks, mut lost_bytes, mut objects) = (0, 0, 0);
        let mut jobs: BTreeSet<JobId> = BTreeSet::new();
        for (object, blocks) in by_object {
            if self.takes_loss(object, &blocks) {
                continue;
            }
            let bytes = self.losses().record(node, object, &blocks, why);
            // What is deleted and not freed yet counts as no loss.
            if !self.is_deleted(object) {
                lost_blocks += blocks.len() as u64;
                lost_bytes += bytes;
                objects += 1;
                jobs.extend(self.objects[&object].job);
            }
        }
        if lost_blocks > 0 {
            let (blocks, bytes, jobs) = (lost_blocks, lost_bytes, jobs.into_iter().collect());
            self.emit(EventKind::BlocksLost { node, blocks, bytes, objects, jobs });
        }
    }

    /// Declares blocks of one object lost.
    pub(super) fn declare_lost(
        &mut self,
        node: NodeId,
        object: ObjectId,
        blocks: &[BlockId],
        why: &str,
    ) {
        self.losses().declare(node, object, blocks, why);
    }

    /// Takes a report of damage. What a node holds damaged is dropped there; a block whose home it
    /// was is at its copy from now on, or lost.
    ///
    /// While nodes still report what a lost end of the log had moved to them, no block is taken for
    /// missing: the report may have been prepared before the start was applied.
    pub(super) fn damaged(
        &mut self,
        node: NodeId,
        reported: &[DamagedBlock],
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        self.believes(self.now, reported)?;
        let (lost, why) = self.fleet().drop_damaged(node, reported, orders);
        self.lose_blocks(node, &lost, &why, orders);
        self.fleet().check_drained(node);
        Ok(Reply::Done)
    }

    /// Refuses reports of missing blocks while the nodes report what they hold after a start.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`], until the nodes have had their time, and for a second at most.
    pub(crate) fn believes(&self, now: Instant, reported: &[DamagedBlock]) -> Result<(), Refusal> {
        let Some(left) = self.history.settles_in(&self.service, now) else { return Ok(()) };
        if reported.iter().all(|it| it.damage != Damage::Missing) {
            return Ok(());
        }
        let why = "the nodes still report what they hold".to_owned();
        Err(Refusal::RetryAfter { after: left.clamp(Millis(1), Millis(1000)), why })
    }
}

fn check_register(request: &Register) -> Result<(), Refusal> {
    let texts = [&request.name, &request.address, &request.http_address, &request.host];
    if let Some(text) = texts.iter().find(|text| text.len() > TEXT_BYTES_MAX) {
        let (value, limit) = (text.len() as u64, TEXT_BYTES_MAX as u64);
        return Err(Refusal::TooLarge { what: "a node's name or address".into(), value, limit });
    }
    let is_twice = |tier: &sanderling_protocol::node::TierCapacity| {
        request.tiers.iter().filter(|other| other.tier == tier.tier).count() > 1
    };
    if request.address.is_empty() || request.tiers.is_empty() || request.tiers.iter().any(is_twice)
    {
        let why = "a datanode has an address and at least one tier, each once".to_owned();
        return Err(Refusal::BadRequest { why });
    }
    Ok(())
}
