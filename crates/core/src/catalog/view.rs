//! Reading the catalog.

use std::collections::BTreeSet;
use std::ops::Bound;

use sanderling_protocol::limits::{
    BLOCK_BYTES_MAX, BLOCKS_PER_LAYOUT_MAX, BLOCKS_PER_PAGE_MAX, LOOKUPS_MAX,
};
use sanderling_protocol::message::{
    Attributes, BlockCount, BlockLocation, DrainWork, Entry, Found, IN_STORE, JobInfo, Layout,
    Lookups, MoveCandidate, NodeAddress, ObjectKind, ObjectStat, Paths, Usage,
};
use sanderling_protocol::node::{NodeInfo, NodeSelector, Policy};
use sanderling_protocol::order::{DamagedBlock, HeldBlock};
use sanderling_protocol::{
    BlockId, Instant, JobId, Millis, NodeId, Nonce, ObjectId, Path, Refusal, Reply, StorageClass,
    Tier,
};

use super::Catalog;
use super::adoption::is_stored_object;
use super::block::InTheWay;
use super::copies::RoomForCopies;
use super::damage::{damaged_replica, expected_page};
use super::listing::Listing;
use super::lookup::ManyNames;
use super::members::NodeRecord;
use super::object::{Data, Object, ObjectBody};
use super::ownership::{CountedAt, OwnershipWalk, SubtreeTop, within_reply};
use super::usage::UsageWalk;
use crate::access::PathLookup;

impl PathLookup for Catalog {
    fn path_of_object(&self, object: ObjectId) -> Option<Path> {
        self.path_of(object)
    }

    fn path_of_job(&self, job: JobId) -> Option<Path> {
        self.path_of(self.jobs.get(job)?.root)
    }
}

impl Catalog {
    /// Returns the metadata of an object by its id, with the time that it has left at `now`.
    pub(crate) fn stat_of(&self, id: ObjectId, now: Instant) -> Result<ObjectStat, Refusal> {
        let gone = Refusal::ObjectGone { object: id };
        let object = self.objects.get(&id).ok_or(gone.clone())?;
        let path = self.path_of(id).ok_or(gone)?;
        Ok(self.stat_named(id, object, path, now))
    }

    /// Returns the metadata of an object by its id, as of the catalog's time. With its `path` the
    /// way up to the root is not walked.
    pub(super) fn stat_at(&self, id: ObjectId, path: Option<&Path>) -> Result<ObjectStat, Refusal> {
        debug_assert!(path.is_none_or(|path| self.path_of(id).as_ref() == Some(path)));
        match path.zip(self.objects.get(&id)) {
            Some((path, object)) => Ok(self.stat_named(id, object, path.clone(), self.now)),
            None => self.stat_of(id, self.now),
        }
    }

    /// Returns the metadata of an object whose path the caller has, with the time that it has left
    /// at `now`.
    fn stat_named(&self, id: ObjectId, object: &Object, path: Path, now: Instant) -> ObjectStat {
        let (bytes, lost_bytes) = self.bytes_of(id, object);
        let data = object.data();
        ObjectStat {
            path,
            object: id,
            kind: object.kind(),
            bytes,
            lost_bytes,
            is_sealed: data.is_none_or(|data| data.is_sealed),
            is_listed: object.is_listed,
            delete_after_read: data.is_some_and(|data| data.delete_after_read),
            class: data.map_or_else(StorageClass::default, |data| data.class),
            created_at: object.created_at,
            modified_at: object.modified_at,
            expires_in: object.expires_at.map(|at| self.service.at(now).until(at)),
            blocks: data.map_or(0, Data::blocks_with_bytes),
            entries: self.names.count(id) as u64,
            job: object.job,
            attributes: self.attributes.of(id),
        }
    }

    /// Returns published and lost bytes; of multifiles and tables the sums of their parts.
    fn bytes_of(&self, id: ObjectId, object: &Object) -> (u64, u64) {
        match &object.body {
            ObjectBody::Data(data) => (data.bytes, data.lost_bytes),
            ObjectBody::Container(container) if container.kind == ObjectKind::Directory => (0, 0),
            ObjectBody::Container(_) => {
                let sum = self.sums.get(id);
                (sum.bytes, sum.lost_bytes)
            }
        }
    }

    pub(crate) fn layout(
        &self,
        id: ObjectId,
        from: u64,
        bytes: u64,
        now: Instant,
    ) -> Result<Reply, Refusal> {
        let stat = self.stat_of(id, now)?;
        self.check_restored(id)?;
        Ok(Reply::Layout(self.layout_of(stat, from, bytes)))
    }

    pub(crate) fn lookup(
        &self,
        path: &Path,
        from: u64,
        bytes: u64,
        now: Instant,
    ) -> Result<Reply, Refusal> {
        let stat = self.stat(path, now)?;
        self.check_restored(stat.object)?;
        Ok(Reply::Layout(self.layout_of(stat, from, bytes)))
    }

    /// Returns the metadata of an object by its path, with the time that it has left at `now`.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] and [`Refusal::NotADirectory`], as any call that takes a path: send it
    /// to the caller, which corrects the path.
    pub fn stat(&self, path: &Path, now: Instant) -> Result<ObjectStat, Refusal> {
        let id = self.resolve(path)?;
        Ok(self.stat_named(id, &self.objects[&id], path.clone(), now))
    }

    /// Returns where all bytes of an object are that is there and has a name.
    pub(super) fn whole_layout(&self, id: ObjectId, path: &Path) -> Layout {
        let stat = self.stat_named(id, &self.objects[&id], path.clone(), self.now);
        self.layout_of(stat, 0, u64::MAX)
    }

    /// Returns how many of an object's first blocks end at or before an offset as far as that shows
    /// without a visit of them, and where the next one begins. It shows where all blocks but the
    /// last are as long as a block can be: then the lengths of all add up to the object's bytes.
    /// Of other objects it returns none: blocks are shorter where a node refused a write, or a file
    /// was appended to or joined, and the catalog has no sums of their lengths.
    fn blocks_before(&self, data: &Data, from: u64) -> (usize, u64) {
        let (longest, inline) = (u64::from(BLOCK_BYTES_MAX), data.inline_bytes());
        let Some((last, others)) = data.blocks.as_slice().split_last() else { return (0, inline) };
        let others = others.len() as u64;
        if data.bytes != inline + others * longest + u64::from(self.blocks[last].length) {
            return (0, inline);
        }
        let before = others.min(from.saturating_sub(inline) / longest);
        (before as usize, inline + before * longest)
    }

    /// Returns where the bytes of an object are, or the first of them. Cost: linear in the blocks
    /// that it returns, and in those before them unless all are as long as a block can be.
    fn layout_of(&self, stat: ObjectStat, from: u64, bytes: u64) -> Layout {
        let Some(data) = self.objects[&stat.object].data() else {
            let (blocks, places) = (Vec::new(), Vec::new());
            return Layout { stat, inline: None, blocks, places, next_offset: None };
        };
        let end = from.saturating_add(bytes);
        let (before, mut offset) = self.blocks_before(data, from);
        let mut blocks = Vec::new();
        let mut next_offset = None;
        for block_id in data.blocks.iter().skip(before) {
            let block = &self.blocks[block_id];
            let start = offset;
            offset += u64::from(block.length);
            if block.length == 0 || offset <= from {
                continue;
            }
            if start >= end {
                break;
            }
            if blocks.len() == BLOCKS_PER_LAYOUT_MAX {
                next_offset = Some(start);
                break;
            }
            let (epoch, length, home, tier) = (block.epoch, block.length, block.home, block.tier);
            let location =
                BlockLocation { block: *block_id, epoch, offset: start, length, home, tier };
            blocks.push(location);
        }
        let places = self.places(blocks.iter().filter_map(|block| block.home));
        let inline = data.inline.as_ref().map(|inline| inline.to_vec());
        Layout { stat, inline, blocks, places, next_offset }
    }

    /// Finds what is under many paths.
    pub(crate) fn lookup_many(&self, paths: &Paths) -> Result<Lookups, Refusal> {
        if paths.len() > LOOKUPS_MAX {
            let (value, limit) = (paths.len() as u64, LOOKUPS_MAX as u64);
            return Err(Refusal::TooLarge { what: "paths in one look-up".into(), value, limit });
        }
        let Self { objects, names, blocks, .. } = self;
        let many = ManyNames { objects, names, blocks };
        let ids = many.resolve(paths);
        let mut lookups = Lookups {
            found: Vec::with_capacity(paths.len()),
            inline: Vec::with_capacity(many.touch(&ids)),
            ..Lookups::default()
        };
        for (path, id) in paths.iter().zip(ids) {
            match id {
                Some(id) if let Err(refusal) = self.check_restored(id) => {
                    lookups.found.push(Found::nothing());
                    lookups.refusals.push(refusal);
                }
                Some(id) => many.add_found(id, &mut lookups),
                None => {
                    lookups.found.push(Found::nothing());
                    lookups.refusals.push(self.why_not(path));
                }
            }
        }
        let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
        let mut last = None;
        for home in lookups.blocks.iter().map(|block| block.home).filter(Option::is_some) {
            if home != last {
                nodes.extend(home);
                last = home;
            }
        }
        lookups.places = self.places(nodes.into_iter());
        Ok(lookups)
    }

    fn why_not(&self, path: &str) -> Refusal {
        match path.parse::<Path>() {
            Err(refusal) => refusal,
            Ok(path) => self.resolve(&path).err().unwrap_or(Refusal::NotFound { path }),
        }
    }

    /// Returns the addresses of nodes, each once.
    pub(super) fn places(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<NodeAddress> {
        let nodes: BTreeSet<NodeId> = nodes.collect();
        let place = |id: NodeId| {
            let node = self.nodes.get(id)?;
            Some(NodeAddress { node: id, address: node.address.clone(), host: node.host.clone() })
        };
        nodes.into_iter().filter_map(place).collect()
    }

    /// Returns one page of a container: at most `limit` of the names that follow `after`.
    pub(crate) fn list(
        &self,
        path: &Path,
        after: &str,
        limit: u32,
        with_attributes: bool,
    ) -> Result<Reply, Refusal> {
        let mut listing = Listing::new(after.to_owned(), limit, with_attributes);
        let mut all = usize::MAX;
        let done = self.list_step(path, &mut listing, &mut all)?;
        Ok(done.expect("no page has so many entries"))
    }

    /// Goes on with a page by at most so many entries; takes from `entries` what it visited.
    /// Returns the page when it is full or the container has no more.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] and [`Refusal::NotADirectory`]: the container may go between two
    /// steps.
    pub(crate) fn list_step(
        &self,
        path: &Path,
        listing: &mut Listing,
        entries: &mut usize,
    ) -> Result<Option<Reply>, Refusal> {
        let id = self.resolve(path)?;
        if self.objects[&id].container().is_none() {
            return Err(Refusal::NotADirectory { path: path.clone() });
        }
        self.check_adopted_at(id)?;
        let after = listing.after().to_owned();
        let page = self.names.listed_after(&self.objects, id, &after);
        Ok(listing.step(page, entries, |id, with_attributes| self.entry(id, with_attributes)))
    }

    /// Sums up a subtree, its root among it. Cost: linear in what is in it.
    pub(crate) fn usage(&self, path: &Path) -> Result<Usage, Refusal> {
        let mut walk = self.usage_walk(path)?;
        let mut all = usize::MAX;
        Ok(self.usage_step(&mut walk, &mut all).expect("no walk has so many entries"))
    }

    /// Begins to sum up a subtree, its root among it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] and [`Refusal::NotADirectory`], as any call that takes a path.
    pub(crate) fn usage_walk(&self, path: &Path) -> Result<UsageWalk, Refusal> {
        Ok(UsageWalk::new(self.resolve(path)?, &self.objects, &self.names))
    }

    /// Goes on with a walk by at most so many entries, one at least; takes from `entries` what it
    /// visited. Returns the sum when the walk is over.
    pub(crate) fn usage_step(&self, walk: &mut UsageWalk, entries: &mut usize) -> Option<Usage> {
        walk.step(&self.objects, &self.names, entries)
    }

    fn entry(&self, id: ObjectId, with_attributes: bool) -> Entry {
        let object = &self.objects[&id];
        let (bytes, lost_bytes) = self.bytes_of(id, object);
        Entry {
            name: object.name.as_str().to_owned(),
            kind: object.kind(),
            object: id,
            bytes,
            lost_bytes,
            is_sealed: object.data().is_none_or(|data| data.is_sealed),
            modified_at: object.modified_at,
            attributes: if with_attributes { self.attributes.of(id) } else { Attributes::none() },
        }
    }

    /// Returns the number of names in the namespace, of all containers together.
    #[must_use]
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    /// Returns how many blocks without published bytes each object has that is written, as it
    /// follows from the blocks.
    pub(super) fn derived_blanks(&self) -> Vec<(ObjectId, u32)> {
        let blank = |data: &Data| {
            // A damaged catalog may name blocks that it does not have: its check finds that.
            let is_blank =
                |id: &&BlockId| self.blocks.get(id).is_some_and(|block| block.length == 0);
            let blanks = data.blocks.iter().filter(is_blank);
            u32::try_from(blanks.count()).unwrap_or(u32::MAX)
        };
        let written =
            |object: &Object| object.data().filter(|data| data.lease.is_some()).map(blank);
        self.objects.iter().filter_map(|(id, object)| Some((id, written(object)?))).collect()
    }

    /// Returns how many entries a search for the bytes of what is at a path may visit; 0 where
    /// nothing is.
    pub(crate) fn entries_at(&self, path: &Path) -> usize {
        self.resolve(path).map_or(0, |id| self.entries_of(id))
    }

    /// Returns how many entries a search for the bytes of an object may visit: its blocks; 0 where
    /// there is no such object.
    pub(crate) fn entries_of(&self, id: ObjectId) -> usize {
        let data = self.objects.get(&id).and_then(Object::data);
        data.map_or(0, |data| data.blocks.as_slice().len())
    }

    pub(crate) fn job_infos(&self, now: Instant) -> Vec<JobInfo> {
        self.jobs.ids().filter_map(|id| self.job_info(id, now)).collect()
    }

    /// Returns whether a node's operator declared how short a notice its cloud gives: the cloud may
    /// preempt it.
    #[must_use]
    pub fn is_spot(&self, id: NodeId) -> bool {
        self.nodes.get(id).is_some_and(|node| node.notice_min.is_some())
    }

    /// Returns one row of the nodes' table, without what only heartbeats report; `None` for an id
    /// that no node has.
    #[must_use]
    pub fn node_info(&self, id: NodeId, now: Instant) -> Option<NodeInfo> {
        self.nodes.get(id).map(|node| node.info(id, now))
    }

    /// Returns the ids of the nodes that are not gone, or of all that are remembered.
    #[must_use]
    pub fn node_ids(&self, all: bool) -> Vec<NodeId> {
        let wanted = |node: &NodeRecord| all || node.policy != Policy::Gone;
        let nodes = self.nodes.iter();
        nodes.filter(|(_, node)| wanted(node)).map(|(id, _)| *id).collect()
    }

    /// Returns the id of the node that a selector names by id, name or address.
    ///
    /// # Errors
    /// [`Refusal::UnknownNode`] when no node matches: the caller corrects the selector.
    pub fn select_node(&self, selector: &NodeSelector) -> Result<NodeId, Refusal> {
        self.nodes.select(selector)
    }

    /// Returns a node's policy and its address; `None` for an unknown node.
    #[must_use]
    pub fn node_policy(&self, id: NodeId) -> Option<(Policy, &str)> {
        self.nodes.get(id).map(|node| (node.policy, node.address.as_str()))
    }

    /// Returns the nonce of the process behind a node; `None` for an unknown node.
    #[must_use]
    pub fn node_nonce(&self, id: NodeId) -> Option<Nonce> {
        self.nodes.get(id).map(|node| node.nonce)
    }

    /// Returns the name of the machine that a node registered with; `None` for an unknown node.
    #[must_use]
    pub fn node_host(&self, id: NodeId) -> Option<&str> {
        self.nodes.get(id).map(|node| node.host.as_str())
    }

    /// Returns the time since a node registered; zero for one that is not known.
    #[must_use]
    pub fn node_age(&self, id: NodeId, now: Instant) -> Millis {
        self.nodes.get(id).map_or(Millis(0), |node| now.since(node.registered_at))
    }

    /// Returns whether a node's cloud recommends to leave it.
    #[must_use]
    pub fn node_is_at_risk(&self, id: NodeId) -> bool {
        self.nodes.get(id).is_some_and(|node| node.risk.is_some())
    }

    /// Returns the deadline of a node's notice and how many blocks it is still the home of.
    #[must_use]
    pub fn node_deadline(&self, id: NodeId) -> (Option<Instant>, u64) {
        self.nodes.get(id).map_or((None, 0), |node| (node.deadline, node.held().homes.len() as u64))
    }

    /// Returns a node's free bytes in a tier by the catalog's account, and that tier's size.
    #[must_use]
    pub fn node_room(&self, id: NodeId, tier: Tier) -> (u64, u64) {
        let Some(node) = self.nodes.get(id) else { return (0, 0) };
        let capacity = node.tiers().iter().find(|state| state.tier == tier);
        (node.free_bytes(tier), capacity.map_or(0, |state| state.capacity))
    }

    /// Returns the home of an object's first block, for affinity.
    #[must_use]
    pub fn first_home(&self, path: &Path) -> Option<NodeId> {
        let id = self.resolve(path).ok()?;
        let data = self.objects[&id].data()?;
        data.blocks.iter().find_map(|block| self.blocks[block].home)
    }

    pub(crate) fn drains(&self, now: Instant) -> Vec<DrainWork> {
        let draining = self.nodes.iter().filter(|(_, node)| node.policy.is_draining());
        draining
            .map(|(id, node)| DrainWork {
                node: *id,
                address: node.address.clone(),
                deadline_in: node.deadline.map(|at| now.until(at)),
                left_blocks: node.held().homes.len() as u64,
                left_bytes: node.exposure(),
            })
            .collect()
    }

    /// Returns for each block whether its object is in a subtree; a block that is gone is not.
    pub(crate) fn within(&self, subtree: &Path, blocks: &[BlockId]) -> Result<Reply, Refusal> {
        Ok(within_reply(&self.counted(CountedAt::NOWHERE, subtree, blocks)?))
    }

    /// Returns for each block what is counted for it at a node, if its object is in a subtree.
    pub(crate) fn counted(
        &self,
        at: CountedAt,
        subtree: &Path,
        blocks: &[BlockId],
    ) -> Result<Vec<BlockCount>, Refusal> {
        let (mut walk, mut all) = (OwnershipWalk::new(blocks)?, usize::MAX);
        let done = self.ownership_step(at, subtree, blocks, &mut walk, &mut all);
        Ok(done.expect("no page has so many entries"))
    }

    /// Goes on with the answers of a walk: see [`OwnershipWalk::step`].
    pub(crate) fn ownership_step(
        &self,
        at: CountedAt,
        subtree: &Path,
        blocks: &[BlockId],
        walk: &mut OwnershipWalk,
        entries: &mut usize,
    ) -> Option<Vec<BlockCount>> {
        let top = self.subtree_top(subtree, entries);
        walk.step(at, &top, blocks, (&self.objects, &self.blocks), entries)
    }

    fn subtree_top<'a>(&self, subtree: &'a Path, entries: &mut usize) -> SubtreeTop<'a> {
        let (Some(parent), Some(name)) = (subtree.parent(), subtree.name()) else {
            return SubtreeTop::Root;
        };
        *entries = entries.saturating_sub(parent.components().count());
        match self.resolve(&parent) {
            Ok(parent) => SubtreeTop::Named(parent, name),
            Err(_) => SubtreeTop::Nowhere,
        }
    }

    /// Returns whether a manager has the leadership lease at `now`.
    #[must_use]
    pub fn has_manager(&self, now: Instant) -> bool {
        self.leader.is_held(self.service.at(now))
    }

    pub(crate) fn check_manager(&self, holder: Nonce, now: Instant) -> Result<(), Refusal> {
        self.leader.check(self.service.at(now), holder)
    }

    /// Refuses a request from any process but the node's own.
    pub(crate) fn check_process(&self, node: NodeId, nonce: Nonce) -> Result<(), Refusal> {
        self.nodes.of_process(node, nonce).map(|_| ())
    }

    /// Returns whether a repeated notice would change something.
    #[must_use]
    pub fn is_forgotten(&self, id: NodeId, deadline: Option<Instant>, known_at: Instant) -> bool {
        let node = self.nodes.get(id).filter(|node| node.policy != Policy::Gone);
        node.is_some_and(|node| self.cancelled.is_forgotten(id, node, deadline, known_at))
    }

    /// Returns whether a report of damage changes anything.
    pub(crate) fn concerns(&self, node: NodeId, reported: &DamagedBlock) -> bool {
        damaged_replica(&self.blocks, node, reported).is_some()
    }

    /// Returns one page of the blocks that a node must hold.
    pub(crate) fn expected(
        &self,
        node: NodeId,
        nonce: Nonce,
        after: BlockId,
        limit: u32,
    ) -> Result<Reply, Refusal> {
        let holder = self.nodes.of_process(node, nonce)?;
        Ok(expected_page(&self.blocks, (node, holder), after, limit))
    }

    /// Returns the copies and reservations to drop so that blocks of so many bytes fit into a tier.
    pub(crate) fn in_the_way(&self, tier: Tier, bytes: u64) -> InTheWay {
        let spare = RoomForCopies {
            blocks: &self.blocks,
            nodes: &self.nodes,
            kept: self.keeps_shown_for().map(|_| &self.shown_moves),
            counts_excess: self.reaping.rules.counts_excess(),
            most: self.limits.promoted_per_turn_max,
        };
        spare.in_the_way(tier, bytes)
    }

    /// Returns one page of the blocks that must leave a node.
    pub(crate) fn candidates(
        &self,
        node: NodeId,
        after: BlockId,
        limit: u32,
        now: Instant,
    ) -> Result<Reply, Refusal> {
        let unknown = || Refusal::UnknownNode { node: node.to_string() };
        let living = self.nodes.get(node).filter(|node| node.policy != Policy::Gone);
        let node = living.ok_or_else(unknown)?;
        let limit = (limit as usize).clamp(1, BLOCKS_PER_PAGE_MAX);
        let mut page = node.held().homes.range((Bound::Excluded(after), Bound::Unbounded));
        let candidates: Vec<MoveCandidate> =
            page.by_ref().take(limit).map(|block| self.candidate(*block, now)).collect();
        Ok(Reply::Candidates { candidates, is_more: page.next().is_some() })
    }

    fn candidate(&self, id: BlockId, now: Instant) -> MoveCandidate {
        let block = &self.blocks[&id];
        let object = &self.objects[&block.object];
        let hints = self.jobs.hints(block.job);
        let bytes = object.data().map_or(0, |data| data.bytes);
        let own_cost =
            self.attributes.get(block.object).and_then(|it| it.recompute_millis_per_mib(bytes));
        MoveCandidate {
            block: id,
            epoch: block.epoch,
            length: block.length,
            reserve_bytes: block.reserve_bytes(),
            tier: block.tier,
            object: block.object,
            job: block.job,
            expires_in: object.expires_at.map(|at| self.service.at(now).until(at)),
            recompute_millis_per_mib: own_cost
                .or_else(|| hints?.recompute_millis_per_mib)
                .unwrap_or(0),
            expected_reads: hints.and_then(|hints| hints.expected_reads).unwrap_or(1),
            idle: now.since(object.modified_at),
            is_open: !block.is_ended(),
            reserved_to: block.moving.map(|planned| (planned.to, planned.tier)),
            copy: match block.copy {
                None if block.is_stored() => Some(IN_STORE),
                copy => copy.map(|copy| (copy.node, copy.tier)),
            },
        }
    }

    /// Returns the blocks of a datanode that are unwanted there: deleted while it was unreachable,
    /// stored by a move that was given up, or moved away from a node that stays. An object of the
    /// object tier is wanted as long as any node needs it: what is unwanted can be deleted. What
    /// only a lost end of the log can have put there is kept for a while after a start.
    pub(crate) fn unwanted(
        &self,
        now: Instant,
        id: NodeId,
        held: &[HeldBlock],
    ) -> Result<Reply, Refusal> {
        let node = self.nodes.get(id).filter(|node| node.policy != Policy::Gone);
        let node = node.ok_or(Refusal::NodeGone { node: id })?;
        let is_wanted = |block: &HeldBlock| {
            if block.tier == Tier::Object {
                return is_stored_object(&self.blocks, block);
            }
            node.held().homes.contains(&block.block)
                || node.held().incoming.contains_key(&block.block)
                || node.held().left.contains(&block.block)
                || node.held().copies.contains_key(&block.block)
        };
        let unwanted = held.iter().filter(|block| !is_wanted(block) && !self.keeps(now, block));
        Ok(Reply::Drop { blocks: unwanted.map(|block| block.block).collect() })
    }

    /// Returns the class of an object; `None` if it is gone or has no blocks, as a directory.
    #[must_use]
    pub fn class_of(&self, id: ObjectId) -> Option<StorageClass> {
        self.objects.get(&id).filter(|_| !self.is_deleted(id))?.data().map(|data| data.class)
    }

    /// Returns the class of an object by its name; `None` as for [`Self::class_of`], and for a path
    /// at which nothing is.
    #[must_use]
    pub fn class_at(&self, path: &Path) -> Option<StorageClass> {
        self.class_of(self.resolve(path).ok()?)
    }

    /// Returns how many blocks writers still have. Cost: linear in blocks.
    #[must_use]
    pub fn open_blocks(&self) -> u64 {
        self.blocks.iter().filter(|(_, block)| !block.is_ended()).count() as u64
    }
}
