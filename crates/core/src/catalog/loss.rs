//! Declaring bytes lost, exactly and once.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::event::Loss;
use sanderling_protocol::limits::LOST_OBJECTS_KEPT_MAX;
use sanderling_protocol::message::BlockLength;
use sanderling_protocol::node::Policy;
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{BlockId, EventKind, JobId, NodeId, ObjectId, Refusal};

use super::Catalog;
use super::block::joined;
use super::orders::Orders;

/// Losses that are forgotten together when there are too many to be named. One by one, a loss of
/// 100,000 objects moved 900 million entries.
const LOSSES_FORGOTTEN: usize = LOST_OBJECTS_KEPT_MAX / 10;

impl Catalog {
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
            self.void_move(block, orders);
        }
        self.cancelled.forget(id);
        self.claims.forget(id);
        self.emit(EventKind::NodeGone { node: id, name, why: why.to_owned() });
        self.save_from(id, orders);
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
            let bytes = self.record_loss(node, object, &blocks, why);
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

    /// Writes lost blocks of one object into the report and emits their event.
    pub(super) fn declare_lost(
        &mut self,
        node: NodeId,
        object: ObjectId,
        blocks: &[BlockId],
        why: &str,
    ) {
        let bytes = self.record_loss(node, object, blocks, why);
        let jobs = self.objects.get(&object).and_then(|object| object.job).into_iter().collect();
        let blocks = blocks.len() as u64;
        self.emit(EventKind::BlocksLost { node, blocks, bytes, objects: 1, jobs });
    }

    /// Writes the published bytes of an object's blocks, just lost, into the report. Returns them.
    fn record_loss(
        &mut self,
        node: NodeId,
        object: ObjectId,
        blocks: &[BlockId],
        why: &str,
    ) -> u64 {
        let ranges = self.ranges_of(object, blocks);
        self.report_ranges(node, object, blocks, ranges, why)
    }

    /// Writes bytes into the report that were acknowledged by a node that is gone, and of which the
    /// catalog learns only now.
    pub(super) fn record_late_loss(
        &mut self,
        node: NodeId,
        object: ObjectId,
        block: BlockId,
        range: ByteRange,
    ) {
        let why = "the node was gone before the writer published them";
        let bytes = self.report_ranges(node, object, &[block], vec![range], why);
        let jobs = self.objects.get(&object).and_then(|object| object.job).into_iter().collect();
        self.emit(EventKind::BlocksLost { node, blocks: 1, bytes, objects: 1, jobs });
    }

    fn report_ranges(
        &mut self,
        node: NodeId,
        object: ObjectId,
        blocks: &[BlockId],
        ranges: Vec<ByteRange>,
        why: &str,
    ) -> u64 {
        let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
        let path = self.path_of(object);
        let Some(holder) = self.objects.get_mut(&object) else { return 0 };
        let job = holder.job;
        if let Some(data) = holder.data_mut() {
            data.lost_bytes += bytes;
        }
        self.sum_bytes(object, 0, bytes.cast_signed());
        // An object whose directory went before its seal can never be read: no loss is reported.
        let Some(path) = path else { return 0 };
        if let Some(drain) = self.nodes.get_mut(node).and_then(|node| node.drain.as_mut()) {
            drain.lost_blocks += blocks.len() as u64;
            drain.lost_bytes += bytes;
        }
        self.report.blocks += blocks.len() as u64;
        self.report.bytes += bytes;
        self.report.objects += 1;
        let (at, why, blocks) = (self.now, why.to_owned(), blocks.to_vec());
        self.push_loss(Loss { at, node, why, object, path, job, blocks, ranges });
        bytes
    }

    /// Puts a loss into the report, in place of the oldest ones if there are too many.
    pub(super) fn push_loss(&mut self, loss: Loss) {
        self.report.losses.push(loss);
        if self.report.losses.len() > LOST_OBJECTS_KEPT_MAX {
            // Many at once, so that those that stay are not moved for each that goes.
            self.report.losses.drain(..LOSSES_FORGOTTEN);
            self.report.is_truncated = true;
        }
    }

    /// Refuses what a writer publishes when bytes of its own are lost. Those that an appended file
    /// had before are not: they are declared, and more bytes behind them hide nothing.
    pub(super) fn check_lost(&self, id: ObjectId, reported: &[BlockLength]) -> Result<(), Refusal> {
        if !self.written_blocks(id).any(|block| self.blocks[&block].is_lost()) {
            return Ok(());
        }
        let reported: BTreeMap<BlockId, u32> =
            reported.iter().map(|reported| (reported.block, reported.length)).collect();
        let mut written: Vec<BlockId> = self.written_blocks(id).collect();
        written.reverse();
        // The first bytes of a small value live in the catalog.
        let data = self.objects[&id].data().expect("the lease was checked");
        let mut end = self.appends.begun_at(id).max(data.inline_bytes());
        let ranges = joined(written.iter().filter_map(|id| {
            let block = &self.blocks[id];
            let bytes = u64::from(block.length.max(reported.get(id).copied().unwrap_or_default()));
            let offset = end;
            end += bytes;
            let is_missing = bytes > 0 && block.is_lost();
            is_missing.then_some(ByteRange { offset, bytes })
        }));
        if ranges.is_empty() {
            return Ok(());
        }
        let (path, object) = (self.path_or_root(id), id);
        Err(Refusal::DataUnavailable { path, object, ranges })
    }

    /// Returns the runs of an object's bytes that these blocks hold, adjacent ones joined.
    fn ranges_of(&self, object: ObjectId, blocks: &[BlockId]) -> Vec<ByteRange> {
        let Some(data) = self.objects.get(&object).and_then(|object| object.data()) else {
            return Vec::new();
        };
        let blocks: BTreeSet<&BlockId> = blocks.iter().collect();
        // The first bytes of an appended small value live in the catalog.
        let mut end = data.inline_bytes();
        joined(data.blocks.iter().filter_map(|id| {
            let (offset, bytes) = (end, u64::from(self.blocks[id].length));
            end += bytes;
            (bytes > 0 && blocks.contains(id)).then_some(ByteRange { offset, bytes })
        }))
    }
}
