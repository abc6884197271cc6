//! Datanodes that come, hold blocks, send them to the store, read them back, and end with a notice
//! or without one.

use sanderling_protocol::message::{DurableLoss, MoveCommit, MoveProposal, MovePurpose, Register};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::order::{UploadBlock, UploadPart};
use sanderling_protocol::{BlockId, Epoch};

use super::*;

/// Blocks that leave a node in one round, at most.
const MOVES_MAX: u32 = 64;

/// Datanodes, and what they hold.
#[derive(Default)]
pub(super) struct Datanodes {
    /// How many have come.
    joined: u64,
    /// The processes that run.
    running: BTreeSet<NodeId>,
    /// When the cloud takes the nodes that have their notices.
    noticed: BTreeMap<NodeId, Instant>,
    /// When the namenode finds that a node was killed.
    killed: Vec<(Instant, NodeId)>,
    held: BTreeMap<(NodeId, BlockId, Epoch), Content>,
}

impl Datanodes {
    pub(super) fn is_running(&self, node: NodeId) -> bool {
        self.running.contains(&node)
    }

    /// Returns the nodes that take blocks.
    pub(super) fn staying(&self) -> Vec<NodeId> {
        self.running.iter().copied().filter(|node| !self.noticed.contains_key(node)).collect()
    }

    /// Returns whether no node is about to end.
    pub(super) fn is_calm(&self) -> bool {
        self.noticed.is_empty() && self.killed.is_empty()
    }

    /// Stores a block, unless it is there at that epoch.
    pub(super) fn hold(&mut self, place: (NodeId, BlockId, Epoch), bytes: Content) {
        self.held.entry(place).or_insert(bytes);
    }

    /// Reads a block at its home, for another datanode.
    fn read(&self, block: &UploadBlock) -> Result<Content, Refusal> {
        let UploadBlock { block, epoch, length, node, .. } = block;
        let held = self.held.get(&(*node, *block, *epoch)).filter(|_| self.is_running(*node));
        match held.filter(|bytes| bytes.length() >= u64::from(*length)) {
            Some(bytes) => Ok(bytes.slice(0, u64::from(*length))),
            None => {
                let why = format!("block {block} at node {node}: no answer");
                Err(Refusal::RetryAfter { after: Millis(100), why })
            }
        }
    }
}

/// Orders that datanodes execute.
impl World {
    /// Sends parts of an object to the store.
    pub(super) fn upload(
        &mut self,
        node: NodeId,
        order: UploadOrder,
    ) -> Result<UploadedParts, DurableCallError> {
        if !self.datanodes.is_running(node) {
            return Err(lost());
        }
        let UploadOrder { key, upload, parts, .. } = order;
        let is_begun = upload.is_none();
        let upload = upload.unwrap_or_else(|| self.store.begin(key));
        let mut number = parts.first().map_or(0, |part| part.number);
        let mut rest = parts.as_slice();
        let mut sent = Vec::new();
        while !rest.is_empty() {
            // Some parts go as one with the next.
            let is_joined = self.has_blocks && self.draw.below(3) == 0;
            let (joined, left) = rest.split_at(if is_joined { rest.len().min(2) } else { 1 });
            let bytes = self.joined(joined);
            let taken = bytes.and_then(|bytes| self.store.send(&upload, number, bytes));
            if let Err(refusal) = taken {
                // The manager never gets the name of an upload that was begun here.
                if is_begun {
                    self.store.uploads.remove(&upload);
                }
                return Err(DurableCallError::Refused(refusal));
            }
            sent.push(String::new());
            number += 1;
            rest = left;
        }
        Ok(UploadedParts { upload, parts: sent })
    }

    /// Reads parts that follow each other.
    fn joined(&self, parts: &[UploadPart]) -> Result<Content, Refusal> {
        let mut bytes = Content::default();
        for part in parts {
            bytes.push(&Content::of_value(&part.inline));
            for block in &part.blocks {
                bytes.push(&self.datanodes.read(block)?);
            }
        }
        Ok(bytes)
    }

    /// Reads lost blocks back, all of them or as many as find room.
    pub(super) fn restore(
        &mut self,
        node: NodeId,
        loss: &DurableLoss,
    ) -> Result<Vec<Tier>, DurableCallError> {
        if !self.datanodes.is_running(node) {
            return Err(lost());
        }
        let block = loss.blocks[0].block;
        let refused = |refusal| Err(DurableCallError::Refused(refusal));
        if self.datanodes.noticed.contains_key(&node) {
            return refused(Refusal::Moved { block, length: 0 });
        }
        if self.bug == Some(InjectedBug::ReadsNothingBack) {
            return refused(failed());
        }
        // It compares nothing but the length.
        let found = self.store.objects.get(&loss.key).filter(|it| it.length() == loss.bytes);
        let found = found.filter(|_| self.bug != Some(InjectedBug::FindsNothing)).cloned();
        let Some(found) = found else { return refused(Refusal::BlockDamaged { block }) };
        let mut count = loss.blocks.len();
        if self.has_blocks && self.draw.below(6) == 0 {
            count = 1 + self.draw.below(count as u64) as usize;
        }
        for lost in loss.blocks.iter().take(count) {
            let is_elsewhere = self.bug == Some(InjectedBug::ReadsElsewhere);
            let offset = if is_elsewhere { 0 } else { lost.offset };
            let bytes = found.slice(offset, u64::from(lost.length));
            self.datanodes.hold((node, lost.block, lost.epoch), bytes);
        }
        Ok(vec![Tier::Dram; count])
    }
}

/// Nodes that come and end.
impl World {
    /// Lets a node join that reaches the store.
    pub(super) fn join(&mut self) {
        self.datanodes.joined += 1;
        let number = self.datanodes.joined;
        let name = format!("d{number}");
        let register = Register {
            cluster: None,
            nonce: Nonce(number),
            name: name.clone(),
            address: format!("{name}:1"),
            http_address: String::new(),
            host: name,
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: self.node_bytes }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        let Ok(Reply::Registered(registered)) = self.log(Action::Register(register)) else {
            panic!("node {number} is not registered")
        };
        let (node, stores) = (registered.node, vec!["s".to_owned()]);
        self.datanodes.running.insert(node);
        let serves = DurableAction::ServeStores { node, stores };
        self.log(Action::Durable(Box::new(serves))).expect("reported");
    }

    /// Draws what happens to nodes, moves blocks off those that leave, and ends those whose time
    /// has come.
    pub(super) fn live_on(&mut self, with_faults: bool) {
        match if with_faults { self.draw.below(16) } else { 15 } {
            0 => self.kill(1),
            1 => self.notice(),
            2 => self.join(),
            // All of them at once.
            3 if self.draw.below(8) == 0 => self.kill(usize::MAX),
            4 if self.is_renaming => self.kill(usize::MAX),
            _ => {}
        }
        while self.datanodes.staying().len() < 2 {
            self.join();
        }
        let leaving: Vec<NodeId> = self.datanodes.noticed.keys().copied().collect();
        for node in leaving {
            self.relocate(node);
        }
        self.end_nodes();
    }

    /// Kills so many nodes. The namenode finds that later.
    fn kill(&mut self, count: usize) {
        let mut running: Vec<NodeId> = self.datanodes.running.iter().copied().collect();
        for _ in 0..count.min(running.len()) {
            let node = running.swap_remove(self.draw.below(running.len() as u64) as usize);
            self.datanodes.running.remove(&node);
            let found_at = self.now + Millis(self.draw.below(6000));
            self.datanodes.killed.push((found_at, node));
        }
    }

    /// Gives a node its notice.
    fn notice(&mut self) {
        let staying = self.datanodes.staying();
        if staying.is_empty() {
            return;
        }
        let node = staying[self.draw.below(staying.len() as u64) as usize];
        let deadline = self.now + Millis(2000 + self.draw.below(40_000));
        let reason = "spot".to_owned();
        self.log(Action::Notice { node, deadline, reason }).expect("it is there");
        self.datanodes.noticed.insert(node, deadline);
    }

    /// Moves some of the blocks that have ended off a node that leaves.
    fn relocate(&mut self, from: NodeId) {
        if !self.datanodes.is_running(from) {
            return;
        }
        let page = self.catalog.candidates(from, BlockId(0), MOVES_MAX, self.now);
        let Ok(Reply::Candidates { candidates, .. }) = page else { return };
        let takers = self.datanodes.staying();
        let holder = self.holder;
        for candidate in candidates.into_iter().filter(|it| !it.is_open) {
            if takers.is_empty() || self.draw.below(3) == 0 {
                continue;
            }
            let to = takers[self.draw.below(takers.len() as u64) as usize];
            let (block, from_epoch) = (candidate.block, candidate.epoch);
            let Some(bytes) = self.datanodes.held.get(&(from, block, from_epoch)).cloned() else {
                continue;
            };
            let (tier, purpose) = (Tier::Dram, MovePurpose::Relocate);
            let moves = vec![MoveProposal { block, from_epoch, to, tier, purpose }];
            let reserved = self.log(Action::Reserve { holder, moves });
            let Ok(Reply::Epochs(epochs)) = reserved else { continue };
            let Some(Ok(to_epoch)) = epochs.into_iter().next() else { continue };
            self.datanodes.hold((to, block, to_epoch), bytes);
            let length = candidate.length;
            let moves = vec![MoveCommit { block, from_epoch, to_epoch, to, length }];
            let _ = self.log(Action::Commit { holder, moves });
        }
    }

    /// Ends nodes whose deadlines have passed, and lets the namenode find those that were killed.
    fn end_nodes(&mut self) {
        let now = self.now;
        let killed = std::mem::take(&mut self.datanodes.killed);
        let (found, later): (Vec<_>, Vec<_>) = killed.into_iter().partition(|(at, _)| *at <= now);
        self.datanodes.killed = later;
        for (_, node) in found {
            self.promise();
            let why = "it is silent".to_owned();
            self.log(Action::NodeDead { node, why }).expect("taken");
        }
        let Datanodes { running, noticed, .. } = &mut self.datanodes;
        noticed.retain(|node, deadline| {
            let stays = *deadline > now;
            if !stays {
                running.remove(node);
            }
            stays
        });
        for _ in 0..100 {
            if self.catalog.deadline().is_none_or(|at| at > self.now) {
                break;
            }
            self.promise();
            self.log(Action::Tick).expect("it is due");
        }
    }
}

/// What holds while nodes end.
impl World {
    /// Notes the objects that are durable, and of which nothing is lost: nothing of them may be
    /// lost while they have their names.
    fn promise(&mut self) {
        for (name, entry) in self.listed() {
            let found = self.catalog.durability(&path(&name), self.now);
            let Ok(Reply::Durable(reply)) = found else { continue };
            let DurableReply::Durability(Some(found)) = *reply else { continue };
            if found.is_durable && entry.lost_bytes == 0 {
                self.promised.insert(entry.object);
            }
        }
    }

    /// Asserts that nothing is lost of what was durable when a node ended.
    pub(super) fn check_promises(&self) -> Result<(), String> {
        for (name, entry) in self.listed() {
            if entry.lost_bytes > 0 && self.promised.contains(&entry.object) {
                return Err(format!("seed {}: {name} is lost, and was durable", self.seed));
            }
        }
        Ok(())
    }

    /// Asserts that readers get the bytes that were written, from the homes of the blocks.
    pub(super) fn check_reads(&self) -> Result<(), String> {
        for (name, entry) in self.listed() {
            let is_whole = entry.is_sealed && entry.lost_bytes == 0;
            let layout = self.layout(entry.object, 0, u64::MAX).filter(|_| is_whole);
            // Readers of what is read back, or is on a node that was just killed, have to wait.
            let Some(layout) = layout else { continue };
            let runs = |home: NodeId| self.datanodes.is_running(home);
            if layout.blocks.iter().any(|block| !block.home.is_some_and(runs)) {
                continue;
            }
            let mut read = Content::of_value(layout.inline.as_deref().unwrap_or_default());
            for block in &layout.blocks {
                let place = (block.home.unwrap_or(NodeId(0)), block.block, block.epoch);
                if let Some(bytes) = self.datanodes.held.get(&place) {
                    read.push(&bytes.slice(0, u64::from(block.length)));
                }
            }
            if read != self.bytes_of(entry.object) {
                return Err(format!(
                    "seed {}: {name} has other bytes than were written",
                    self.seed
                ));
            }
        }
        Ok(())
    }
}
