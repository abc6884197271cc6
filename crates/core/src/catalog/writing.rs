//! Writing: leases, grants of blocks, publishing lengths, sealing.
//!
//! The bytes that count are those that the lease's holder published. A datanode may hold more of a
//! block, never fewer, and what it holds beyond is never read.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::{
    Attributes, BlockLength, Condition, Grant, GrantedBlock, ObjectKind,
};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{
    BlockId, Epoch, Instant, LeaseId, Millis, NodeId, Nonce, ObjectId, Path, Refusal, Reply,
};

use super::Catalog;
use super::block::{BlockState, allocated_bytes};
use super::block_allocation::{check_placed, new_block, reserved_bytes};
use super::block_map::Published;
use super::copies::ROOM_IS_MADE;
use super::history::UNKNOWN_KEPT;
use super::job_limits::attribute_bytes;
use super::log::Placement;
use super::loss::lost_ranges;
use super::object::WriterLease;
use super::orders::Orders;
use super::timers::Timer;

/// How soon a fence of a vanished writer's blocks is ordered again when its datanode has not
/// answered. As long as the longest pause between two tries of an order (`PAUSE_MAX` of the order
/// queue), which may have given it up. Chosen, not measured.
const RECOVERY_RETRY: Millis = Millis(1000);

/// How many times [`UNKNOWN_KEPT`] a lease may be over whose end still waits after a start. Chosen,
/// not measured: an operator returns from an older directory within one of them.
const UNSEALED_KEPT_TIMES: u64 = 4;

impl Catalog {
    pub(super) fn grant_lease(
        &mut self,
        id: ObjectId,
        writer: Nonce,
        condition: Option<Condition>,
    ) {
        let lease = self.ids.next_lease();
        let until = self.served() + self.lease;
        let data = self.data_mut(id);
        let is_recovering = false;
        let blank_blocks = 0;
        let lease =
            WriterLease { id: lease, writer, until, is_recovering, condition, blank_blocks };
        data.lease = Some(Box::new(lease));
        data.is_sealed = false;
        self.service.schedule(until, Timer::Lease(id));
    }

    /// Makes a new block of an object at the end of its list.
    pub(super) fn add_block(&mut self, object: ObjectId, placement: Placement) -> BlockId {
        let id = self.ids.next_block();
        let holder = self.objects.get_mut(&object).expect("blocks are added to a present object");
        let job = holder.job;
        let data = holder.data_mut().expect("only data has blocks");
        data.blocks.push(id);
        data.count_blank(true);
        let block = new_block(object, job, placement);
        self.blocks.insert(id, block, &mut self.nodes, &mut self.jobs);
        id
    }

    /// Describes the lease and those of the blocks that may still be written. One whose node is
    /// gone is granted without room: the writer ends it without bytes, so that no request leaves it
    /// out.
    pub(super) fn grant(&self, id: ObjectId, blocks: &[BlockId]) -> Grant {
        let data = self.objects[&id].data().expect("only data is written");
        let granted: Vec<GrantedBlock> = blocks
            .iter()
            .filter_map(|id| {
                let block = self.blocks.get(id)?;
                if block.state != BlockState::Open {
                    return None;
                }
                let node = block.home.unwrap_or(NodeId(0));
                let bytes_max = block.home.map_or(0, |_| block.bytes_max);
                let (epoch, tier) = (block.epoch, block.tier);
                Some(GrantedBlock { block: *id, epoch, node, tier, bytes_max })
            })
            .collect();
        let places = self.places(granted.iter().map(|block| block.node));
        let lease = data.lease.as_ref().map_or(LeaseId(0), |lease| lease.id);
        Grant {
            object: id,
            lease,
            lease_millis: self.lease,
            bytes: data.bytes,
            blocks: granted,
            places,
        }
    }

    pub(super) fn append(
        &mut self,
        path: &Path,
        writer: Nonce,
        placed: &[Placement],
    ) -> Result<Reply, Refusal> {
        let id = self.resolve(path)?;
        let object = &self.objects[&id];
        let data = object.data().ok_or_else(|| Refusal::IsADirectory { path: path.clone() })?;
        self.check_not_waiting(id)?;
        if data.kind != ObjectKind::File {
            let why = "only files are appended to".to_owned();
            return Err(Refusal::WrongKind { path: path.clone(), why });
        }
        if self.durables.is_restoring(id) {
            // The store's object would be shorter than this one.
            return Err(self.want(&[id]));
        }
        match &data.lease {
            Some(lease) if lease.writer == writer && !lease.is_recovering => {
                return Ok(Reply::Grant(self.grant(id, &self.unended_blocks(id))));
            }
            Some(lease) if self.writer_end(id, lease) > self.served() && !lease.is_recovering => {
                let remaining = self.served().until(self.writer_end(id, lease));
                return Err(Refusal::SecondWriter { path: path.clone(), remaining });
            }
            Some(_) => {
                let why = format!("the last writer of {path} is being fenced");
                return Err(Refusal::RetryAfter { after: Millis(50), why });
            }
            None => {}
        }
        self.check_quota(object.job, reserved_bytes(placed))?;
        check_placed(&self.nodes, placed)?;
        self.set_stored(id, false);
        self.grant_lease(id, writer, None);
        self.appends.begin(id, self.objects[&id].data().map_or(0, |data| data.bytes));
        let blocks: Vec<BlockId> = placed.iter().map(|place| self.add_block(id, *place)).collect();
        Ok(Reply::Grant(self.grant(id, &blocks)))
    }

    pub(super) fn add_blocks(
        &mut self,
        id: ObjectId,
        lease: LeaseId,
        ended: &[BlockLength],
        placed: &[Placement],
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        self.check_lease(id, lease)?;
        self.check_lengths(id, ended)?;
        check_placed(&self.nodes, placed)?;
        self.end_blocks(id, ended, orders);
        // After the ended blocks gave back what they did not use.
        self.check_quota(self.objects[&id].job, reserved_bytes(placed))?;
        let blocks: Vec<BlockId> = placed.iter().map(|place| self.add_block(id, *place)).collect();
        Ok(Reply::Grant(self.grant(id, &blocks)))
    }

    /// Returns whether a writer's blocks would give room back if they ended with these lengths.
    pub(crate) fn gives_back(&self, id: ObjectId, lease: LeaseId, ended: &[BlockLength]) -> bool {
        let data = self.objects.get(&id).and_then(|object| object.data());
        let held = data.and_then(|data| data.lease.as_ref());
        held.is_some_and(|held| held.id == lease && !held.is_recovering)
            && !self.is_deleted(id)
            && self.check_lengths(id, ended).is_ok()
            && ended.iter().any(|it| self.unused_bytes(it) > 0)
    }

    /// Returns the bytes that a block gives back if it ends with this length.
    pub(super) fn unused_bytes(&self, ended: &BlockLength) -> u64 {
        let Some(block) = self.blocks.get(&ended.block).filter(|block| !block.is_lost()) else {
            return 0;
        };
        let kept = allocated_bytes(ended.length.max(block.length));
        u64::from(block.reserved.saturating_sub(kept))
    }

    /// Ends blocks for the room that they give back. Returns a refusal that lets the writer retry.
    pub(super) fn end_for_room(
        &mut self,
        id: ObjectId,
        lease: LeaseId,
        ended: &[BlockLength],
        orders: &mut Orders,
    ) -> Refusal {
        let is_allowed = self.check_lease(id, lease).and_then(|()| self.check_lengths(id, ended));
        if let Err(refusal) = is_allowed {
            return refusal;
        }
        self.end_blocks(id, ended, orders);
        let why = format!("{} ended blocks give room back", ended.len());
        Refusal::RetryAfter { after: ROOM_IS_MADE, why }
    }

    pub(super) fn publish(
        &mut self,
        id: ObjectId,
        lease: LeaseId,
        lengths: &[BlockLength],
    ) -> Result<Reply, Refusal> {
        self.check_lease(id, lease)?;
        self.check_lengths(id, lengths)?;
        self.check_lost(id, lengths)?;
        for BlockLength { block, length } in lengths {
            self.raise_length(id, *block, *length);
        }
        Ok(Reply::Done)
    }

    pub(super) fn seal(
        &mut self,
        id: ObjectId,
        lease: LeaseId,
        lengths: &[BlockLength],
        attributes: &Attributes,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let object = self.objects.get(&id).filter(|_| !self.is_deleted(id));
        let data = object.and_then(|object| object.data());
        if data.is_some_and(|data| data.is_sealed && data.sealed_by == lease) {
            // The same seal again, unless the lease ended first and bytes of it were left out.
            if !lengths.iter().all(|reported| self.has_length(id, *reported)) {
                return Err(Refusal::LeaseEnded { object: id });
            }
            self.check_lost(id, lengths)?;
            return Ok(Reply::Stat(self.stat_of(id, self.now)?));
        }
        self.check_lease(id, lease)?;
        self.check_lengths(id, lengths)?;
        self.check_not_waiting_name(id)?;
        let mut kept = self.attributes.of(id);
        kept.set_all(attributes);
        kept.check()?;
        let job = self.objects[&id].job;
        self.check_limits(job, 0, self.attributes.bytes_of(id), attribute_bytes(&kept))?;
        if let Err(refusal) = self.check_lost(id, lengths) {
            // No object is created with bytes missing, and what had its name keeps it.
            self.give_up(id, orders);
            return Err(refusal);
        }
        let data = self.objects[&id].data().expect("the lease was checked");
        let condition = data.lease.as_ref().and_then(|lease| lease.condition);
        self.end_blocks(id, lengths, orders);
        self.close(id, orders);
        self.keep_attributes(id, &kept);
        self.bind_sealed(id, condition, None, orders)
    }

    /// Returns whether an object has a block of at least the reported length; 0 needs no block.
    fn has_length(&self, id: ObjectId, reported: BlockLength) -> bool {
        let block = self.blocks.get(&reported.block).filter(|block| block.object == id);
        reported.length == 0 || block.is_some_and(|block| block.length >= reported.length)
    }

    /// Makes a whole small value the object at `path` at once.
    pub(super) fn seal_inline(
        &mut self,
        id: ObjectId,
        inline: &[u8],
        path: &Path,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let bytes = inline.len() as u64;
        let job = self.objects[&id].job;
        self.jobs.charge(job, bytes.cast_signed());
        let data = self.data_mut(id);
        data.bytes = bytes;
        let before = data.inline.replace(Box::from(inline)).map_or(0, |before| before.len() as u64);
        data.is_sealed = true;
        self.memory.count(bytes, before);
        self.sum_bytes(id, bytes.cast_signed() - before.cast_signed(), 0);
        if self.objects[&id].is_bound {
            self.durable_comes(id);
        }
        // No condition: this same step has checked it above.
        self.bind_sealed(id, None, Some(path), orders)
    }

    /// Gives a sealed object its name, replacing what had it. Of key-values the last created wins,
    /// of files the last sealed. `path` is where the object is, if that is known.
    pub(super) fn bind_sealed(
        &mut self,
        id: ObjectId,
        condition: Option<Condition>,
        path: Option<&Path>,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let object = &self.objects[&id];
        if object.is_bound {
            return Ok(Reply::Stat(self.stat_at(id, path)?));
        }
        let (parent, name, kind) = (object.parent, object.name.clone(), object.kind());
        if !self.has_container(parent) {
            self.delete_tree(id, orders);
            return Err(Refusal::ObjectGone { object: id });
        }
        if let Err(refusal) = self.check_condition(condition, parent, name.as_str()) {
            self.delete_tree(id, orders);
            return Err(refusal);
        }
        match self.container_child(parent, name.as_str()) {
            Some(existing) if self.objects[&existing].container().is_some() => {
                let path = self.path_or_root(id);
                self.delete_tree(id, orders);
                return Err(Refusal::IsADirectory { path });
            }
            Some(existing) if kind == ObjectKind::KeyValue && existing > id => {
                let stat = self.stat_at(id, path);
                self.delete_tree(id, orders);
                return stat.map(Reply::Stat);
            }
            Some(existing) => {
                self.delete_tree(existing, orders);
            }
            None => {}
        }
        self.move_to_job(id, self.objects[&parent].job);
        self.awaits_no_name(id);
        self.bind(id, parent, name.as_str());
        self.durable_comes(id);
        Ok(Reply::Stat(self.stat_at(id, path)?))
    }

    pub(super) fn abort(
        &mut self,
        id: ObjectId,
        lease: LeaseId,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        if !self.objects.contains_key(&id) || self.is_deleted(id) {
            return Ok(Reply::Done);
        }
        self.check_lease(id, lease)?;
        self.give_up(id, orders);
        Ok(Reply::Done)
    }

    /// Ends the writing of an object that will not be what its writer wanted: a new one vanishes,
    /// an appended one keeps what was published.
    fn give_up(&mut self, id: ObjectId, orders: &mut Orders) {
        let data = self.objects[&id].data().expect("only data has a lease");
        if data.sealed_by == LeaseId(0) && data.inline.is_none() {
            self.delete_tree(id, orders);
        } else {
            self.close(id, orders);
        }
    }

    /// Returns whether a writer holds an object by this lease.
    pub(super) fn has_lease(&self, id: ObjectId, lease: LeaseId) -> bool {
        let data = self.objects.get(&id).and_then(|object| object.data());
        let held = data.and_then(|data| data.lease.as_deref());
        held.is_some_and(|held| held.id == lease && !held.is_recovering) && !self.is_deleted(id)
    }

    pub(super) fn renew_leases(&mut self, leases: &[(ObjectId, LeaseId)]) -> Reply {
        let mut ended = Vec::new();
        for (object, lease) in leases {
            if self.check_lease(*object, *lease).is_err() {
                ended.push(*object);
            }
        }
        Reply::Renewed { ended }
    }

    /// Renews the lease of a writer that holds it, and refuses any other.
    fn check_lease(&mut self, id: ObjectId, lease: LeaseId) -> Result<(), Refusal> {
        let until = self.served() + self.lease;
        let is_deleted = self.is_deleted(id);
        let object = self.objects.get_mut(&id).filter(|_| !is_deleted);
        let object = object.ok_or(Refusal::ObjectGone { object: id })?;
        let data = object.data_mut().ok_or(Refusal::LeaseEnded { object: id })?;
        match &mut data.lease {
            Some(held) if held.id == lease && !held.is_recovering => held.until = until,
            None if data.is_sealed && data.sealed_by == lease => {
                return Err(Refusal::Sealed { object: id });
            }
            _ => return Err(Refusal::LeaseEnded { object: id }),
        }
        Ok(())
    }

    /// Refuses lengths that cannot be: of other objects' blocks, longer than a block can be, or
    /// such that bytes already published behind them would move.
    fn check_lengths(&self, id: ObjectId, lengths: &[BlockLength]) -> Result<(), Refusal> {
        let data = self.objects[&id].data().expect("the lease was checked");
        // Those of its blocks that have not ended are the last ones, in the order of their ids.
        let newest_first = || data.blocks.iter().rev().map(|block| (*block, &self.blocks[block]));
        let published = newest_first().find(|(_, block)| block.length > 0).map(|(block, _)| block);
        let named: BTreeSet<BlockId> = lengths.iter().map(|reported| reported.block).collect();
        // A writer names each block until it has ended, so the log has lost the end of one that is
        // left out: bytes behind it would be at another offset than the writer expects.
        let cut = newest_first()
            .take_while(|_| self.reaping.rules.refuses_omitted_blocks())
            .take_while(|(_, block)| !block.is_ended())
            .filter(|(id, block)| block.length < block.bytes_max && !named.contains(id))
            .last()
            .map(|(block, _)| block);
        for BlockLength { block: asked, length } in lengths {
            let bad = |why: String| Err(Refusal::BadRequest { why });
            let Some(block) = self.blocks.get(asked).filter(|block| block.object == id) else {
                // The log has lost what the writer was granted, and with it lengths published
                // before: what it writes from here on would be at another offset than it expects.
                if self.is_foreign_block(*asked) {
                    return Err(Refusal::LeaseEnded { object: id });
                }
                if *length == 0 {
                    continue;
                }
                return bad(format!("block {asked} is not of object {id}"));
            };
            if *length <= block.length {
                continue;
            }
            if block.is_ended() {
                return bad(format!("block {asked} has ended at {} bytes", block.length));
            }
            if *length > block.bytes_max {
                let limit = block.bytes_max;
                return bad(format!("block {asked} holds {limit} bytes at most, not {length}"));
            }
            if cut.is_some_and(|cut| cut < *asked) {
                return Err(Refusal::LeaseEnded { object: id });
            }
            if published.is_some_and(|published| published > *asked) {
                return bad(format!("bytes behind block {asked} are published already"));
            }
        }
        Ok(())
    }

    /// Refuses what a writer publishes when bytes of its own are lost. Those that an appended file
    /// had before are not: they are declared, and more bytes behind them hide nothing.
    fn check_lost(&self, id: ObjectId, reported: &[BlockLength]) -> Result<(), Refusal> {
        if !self.written_blocks(id).any(|block| self.blocks[&block].is_lost()) {
            return Ok(());
        }
        let mut written: Vec<BlockId> = self.written_blocks(id).collect();
        written.reverse();
        // The first bytes of a small value live in the catalog.
        let data = self.objects[&id].data().expect("the lease was checked");
        let begin = self.appends.begun_at(id).max(data.inline_bytes());
        let ranges = lost_ranges(&self.blocks, &written, begin, reported);
        if ranges.is_empty() {
            return Ok(());
        }
        let (path, object) = (self.path_or_root(id), id);
        Err(Refusal::DataUnavailable { path, object, ranges })
    }

    /// Ends blocks at these lengths, in bytes. A block without bytes is removed and its room
    /// released.
    fn end_blocks(&mut self, id: ObjectId, lengths: &[BlockLength], orders: &mut Orders) {
        for BlockLength { block, length } in lengths {
            self.raise_length(id, *block, *length);
            self.end_block(id, *block, orders);
        }
    }

    fn end_block(&mut self, id: ObjectId, block_id: BlockId, orders: &mut Orders) {
        let Some(block) = self.blocks.get(&block_id) else { return };
        if block.length == 0 {
            let data = self.data_mut(id);
            data.blocks.remove(block_id);
            data.count_blank(false);
            self.remove_block(block_id, orders);
            return;
        }
        self.blocks.end(block_id, &mut self.nodes, &mut self.jobs);
    }

    /// Publishes more bytes of a block. Lengths never shrink: a request may arrive again, late.
    fn raise_length(&mut self, id: ObjectId, block_id: BlockId, length: u32) {
        let now = self.now;
        let Some(published) = self.blocks.publish(block_id, length, &mut self.nodes) else {
            return;
        };
        let Published { added, was_blank, lost_on } = published;
        let data = self.data_mut(id);
        if was_blank {
            data.count_blank(false);
        }
        data.bytes += added;
        let end = data.bytes;
        self.objects.get_mut(&id).expect("just used").modified_at = now;
        self.sum_bytes(id, added.cast_signed(), 0);
        if let Some(node) = lost_on {
            // The writer got these bytes acknowledged by a node that died before it reported them.
            let range = ByteRange { offset: end - added, bytes: added };
            self.losses().declare_late(node, id, block_id, range);
        }
    }

    /// Returns the blocks that an object's writer was granted, the newest first: those behind the
    /// bytes that an appended file had before. All blocks before them have ended, because a lease
    /// is taken away only by [`Catalog::close`], which ends all. Those that are returned may have
    /// ended in any order: a writer may end a later block first, and nodes acknowledge fences as
    /// they come. Of an object that is not appended to, all blocks are returned.
    pub(crate) fn written_blocks(&self, id: ObjectId) -> impl Iterator<Item = BlockId> {
        let data = self.objects.get(&id).and_then(|object| object.data());
        let blocks = data.map(|data| data.blocks.as_slice()).unwrap_or_default();
        let (from, mut end) = (self.appends.begun_at(id), data.map_or(0, |data| data.bytes));
        blocks.iter().rev().copied().take_while(move |block| {
            // A block without bytes is given back when it ends.
            let length = u64::from(self.blocks[block].length);
            let is_written = length == 0 || end > from;
            end = end.saturating_sub(length);
            is_written
        })
    }

    /// Returns the blocks of an object that have not ended, in their order. Cost: linear in the
    /// blocks that its writer was granted, however many the file has.
    pub(crate) fn unended_blocks(&self, id: ObjectId) -> Vec<BlockId> {
        let is_open = |block: &BlockId| !self.blocks[block].is_ended();
        let mut blocks: Vec<BlockId> = self.written_blocks(id).filter(is_open).collect();
        blocks.reverse();
        debug_assert_eq!(blocks, self.unended_of_all_blocks(id), "object {id}");
        blocks
    }

    /// Returns the same by a look at all blocks of the object, for assertions.
    pub(crate) fn unended_of_all_blocks(&self, id: ObjectId) -> Vec<BlockId> {
        let data = self.objects.get(&id).and_then(|object| object.data());
        let all = data.into_iter().flat_map(|data| data.blocks.iter().copied());
        all.filter(|block| !self.blocks[block].is_ended()).collect()
    }

    /// Ends writing with what is published.
    fn close(&mut self, id: ObjectId, orders: &mut Orders) {
        for block in self.unended_blocks(id) {
            self.end_block(id, block, orders);
        }
        self.appends.end(id);
        let now = self.now;
        let object = self.objects.get_mut(&id).expect("the lease was checked");
        object.modified_at = now;
        let data = object.data_mut().expect("only data is closed");
        data.sealed_by = data.lease.take().map_or(LeaseId(0), |lease| lease.id);
        data.is_sealed = true;
        if object.is_bound {
            self.durable_comes(id);
        }
    }

    /// Fences a writer that no longer renews its lease, then closes the object with what it
    /// published.
    pub(super) fn expire_lease(&mut self, id: ObjectId, orders: &mut Orders) {
        let Some(object) = self.objects.get(&id).filter(|_| !self.is_deleted(id)) else { return };
        let Some(lease) = object.data().and_then(|data| data.lease.as_deref().copied()) else {
            return;
        };
        let is_bound = object.is_bound;
        let ends_at = self.writer_end(id, &lease);
        if ends_at > self.served() && !lease.is_recovering {
            self.service.schedule(ends_at, Timer::Lease(id));
            return;
        }
        if !is_bound {
            self.delete_tree(id, orders);
            return;
        }
        if let Some(lease) = &mut self.data_mut(id).lease {
            lease.is_recovering = true;
        }
        for block in self.unended_blocks(id) {
            self.fence_block(id, block, lease.is_recovering, orders);
        }
        self.finish_recovery(id, orders);
        if self.data_mut(id).lease.is_some() {
            self.service.schedule(self.served() + RECOVERY_RETRY, Timer::Lease(id));
        }
    }

    /// Returns when the lease of an object's writer ends, in the time of [`Self::served`].
    fn writer_end(&self, id: ObjectId, lease: &WriterLease) -> Instant {
        let ends_at = self.service.lease_end(lease.until, self.lease);
        match self.waits_for_another_log(id, lease) {
            true => ends_at.max(self.service.resumed_at() + UNKNOWN_KEPT),
            false => ends_at,
        }
    }

    /// Returns whether the end of a writer's lease waits after a start, because datanodes would
    /// drop bytes by it that another log counts: all of an object without a name, else those of
    /// blocks of which no length was published. An operator may have started on an older directory
    /// and go back to one in which the writer has sealed the object. A lease that is over for long
    /// does not wait: starts that follow each other would keep it for ever.
    fn waits_for_another_log(&self, id: ObjectId, lease: &WriterLease) -> bool {
        let is_bound = self.objects[&id].is_bound;
        let is_blank = |block: BlockId| self.blocks[&block].length == 0;
        let drops = || !is_bound || self.unended_blocks(id).into_iter().any(is_blank);
        let is_late = self.served() >= lease.until + Millis(UNSEALED_KEPT_TIMES * UNKNOWN_KEPT.0);
        let is_kept = self.reaping.rules.keeps_unsealed() && self.keeps_unknown(self.now);
        is_kept && !is_late && drops()
    }

    fn fence_block(
        &mut self,
        object: ObjectId,
        block_id: BlockId,
        is_again: bool,
        orders: &mut Orders,
    ) {
        let block = self.blocks[&block_id];
        debug_assert!(!block.is_ended(), "block {block_id} has ended");
        if block.length == 0 || block.is_lost() {
            self.end_block(object, block_id, orders);
            return;
        }
        self.blocks.void_move(block_id, &mut self.nodes, orders);
        if !is_again {
            self.blocks.fence(block_id);
        }
        let block = &self.blocks[&block_id];
        if let Some(home) = block.home {
            orders.lists().fences.entry(home).or_default().push((block_id, block.epoch));
        }
    }

    /// Handles the lengths at which a datanode has fenced blocks. Those of blocks that wait for no
    /// fence, or of another epoch, change nothing.
    pub(super) fn recovered(&mut self, lengths: &[(BlockId, Epoch, u32)], orders: &mut Orders) {
        let is_awaited = |(id, epoch, _): &&(BlockId, Epoch, u32)| {
            self.blocks.get(id).is_some_and(|block| {
                block.epoch == *epoch && block.state == BlockState::Fenced && !block.is_lost()
            })
        };
        let awaited: Vec<_> = lengths.iter().filter(is_awaited).collect();
        let mut short: BTreeMap<NodeId, Vec<BlockId>> = BTreeMap::new();
        for (id, _, length) in &awaited {
            let block = &self.blocks[id];
            if *length < block.length {
                short.entry(block.home.unwrap_or(NodeId(0))).or_default().push(*id);
            }
        }
        // The node lost what it had acknowledged: declare it.
        for (node, blocks) in short {
            self.lose_blocks(node, &blocks, "the node holds less than it acknowledged", orders);
            self.fleet().check_drained(node);
        }
        for (id, _, _) in awaited {
            // An answer may name a block twice, and an empty one is gone by then.
            let Some(object) = self.blocks.get(id).map(|block| block.object) else { continue };
            self.end_block(object, *id, orders);
            self.finish_recovery(object, orders);
        }
    }

    fn finish_recovery(&mut self, id: ObjectId, orders: &mut Orders) {
        let Some(data) = self.objects.get(&id).and_then(|object| object.data()) else { return };
        let is_recovering = data.lease.as_ref().is_some_and(|lease| lease.is_recovering);
        let is_known = |block: BlockId| {
            let block = &self.blocks[&block];
            block.is_ended() || block.is_lost()
        };
        if is_recovering && self.written_blocks(id).all(is_known) {
            self.close(id, orders);
        }
    }

    pub(super) fn data_mut(&mut self, id: ObjectId) -> &mut super::object::Data {
        let object = self.objects.get_mut(&id).expect("the object was looked up");
        object.data_mut().expect("only data is written")
    }
}
