//! Declaring bytes lost, exactly and once: on their objects, on the drain of their node, and in the
//! report.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::event::{Loss, LossReport};
use sanderling_protocol::limits::LOST_OBJECTS_KEPT_MAX;
use sanderling_protocol::message::BlockLength;
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{BlockId, EventKind, Instant, NodeId, ObjectId};

use super::block::joined;
use super::block_map::BlockMap;
use super::events::Events;
use super::members::Nodes;
use super::object::{Object, Objects, path_of};
use super::part_totals::Sums;

/// Losses that are forgotten together when there are too many to be named. One by one, a loss of
/// 100,000 objects moved 900 million entries.
const LOSSES_FORGOTTEN: usize = LOST_OBJECTS_KEPT_MAX / 10;

/// What a loss is written into.
pub(super) struct Losses<'a> {
    /// The time of the present command.
    pub(super) now: Instant,
    pub(super) blocks: &'a BlockMap,
    pub(super) objects: &'a mut Objects,
    pub(super) sums: &'a mut Sums,
    pub(super) nodes: &'a mut Nodes,
    pub(super) events: &'a mut Events,
    pub(super) report: &'a mut LossReport,
}

impl Losses<'_> {
    /// Writes lost blocks of one object into the report and emits their event.
    pub(super) fn declare(
        &mut self,
        node: NodeId,
        object: ObjectId,
        blocks: &[BlockId],
        why: &str,
    ) {
        let bytes = self.record(node, object, blocks, why);
        self.emit(node, object, blocks.len() as u64, bytes);
    }

    /// Writes bytes into the report that were acknowledged by a node that is gone, and of which the
    /// catalog learns only now.
    pub(super) fn declare_late(
        &mut self,
        node: NodeId,
        object: ObjectId,
        block: BlockId,
        range: ByteRange,
    ) {
        let why = "the node was gone before the writer published them";
        let bytes = self.record_ranges(node, object, &[block], vec![range], why);
        self.emit(node, object, 1, bytes);
    }

    fn emit(&mut self, node: NodeId, object: ObjectId, blocks: u64, bytes: u64) {
        let jobs = self.objects.get(&object).and_then(|object| object.job).into_iter().collect();
        let kind = EventKind::BlocksLost { node, blocks, bytes, objects: 1, jobs };
        self.events.emit(self.now, kind);
    }

    /// Writes the published bytes of an object's blocks, just lost, into the report. Returns them.
    pub(super) fn record(
        &mut self,
        node: NodeId,
        object: ObjectId,
        blocks: &[BlockId],
        why: &str,
    ) -> u64 {
        let ranges = self.ranges_of(object, blocks);
        self.record_ranges(node, object, blocks, ranges, why)
    }

    fn record_ranges(
        &mut self,
        node: NodeId,
        object: ObjectId,
        blocks: &[BlockId],
        ranges: Vec<ByteRange>,
        why: &str,
    ) -> u64 {
        let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
        let path = path_of(self.objects, object);
        let Some(holder) = self.objects.get_mut(&object) else { return 0 };
        let job = holder.job;
        if let Some(data) = holder.data_mut() {
            data.lost_bytes += bytes;
        }
        self.sums.change(self.objects, &self.objects[&object], 0, bytes.cast_signed());
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
        push_loss(self.report, Loss { at, node, why, object, path, job, blocks, ranges });
        bytes
    }

    /// Returns the runs of an object's bytes that these blocks hold, adjacent ones joined.
    fn ranges_of(&self, object: ObjectId, blocks: &[BlockId]) -> Vec<ByteRange> {
        let Some(data) = self.objects.get(&object).and_then(Object::data) else {
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

/// Puts a loss into the report, in place of the oldest ones if there are too many.
pub(super) fn push_loss(report: &mut LossReport, loss: Loss) {
    report.losses.push(loss);
    if report.losses.len() > LOST_OBJECTS_KEPT_MAX {
        // Many at once, so that those that stay are not moved for each that goes.
        report.losses.drain(..LOSSES_FORGOTTEN);
        report.is_truncated = true;
    }
}

/// Returns the runs of bytes that are lost of what a writer wrote, adjacent ones joined: its blocks
/// from the byte `begin` of the object on, with the lengths that it reports.
pub(super) fn lost_ranges(
    blocks: &BlockMap,
    written: &[BlockId],
    begin: u64,
    reported: &[BlockLength],
) -> Vec<ByteRange> {
    let reported: BTreeMap<BlockId, u32> =
        reported.iter().map(|reported| (reported.block, reported.length)).collect();
    let mut end = begin;
    joined(written.iter().filter_map(|id| {
        let block = &blocks[id];
        let bytes = u64::from(block.length.max(reported.get(id).copied().unwrap_or_default()));
        let offset = end;
        end += bytes;
        let is_missing = bytes > 0 && block.is_lost();
        is_missing.then_some(ByteRange { offset, bytes })
    }))
}
