//! Bytes of durable objects that are in their stores only: they are read back from there.
//!
//! An object that its store has as it is loses nothing when a node ends: its blocks wait for a
//! datanode that reads them back, and so do their readers. Of an object that was adopted from the
//! store no block is here until its first reader comes.

use sanderling_protocol::limits::PATH_DEPTH_MAX;
use sanderling_protocol::message::{DurableLoss, LostBlock, MissingObject, RestoredBlock};
use sanderling_protocol::{BlockId, Millis, NodeId, ObjectId, Policy, Refusal, Request, Tier};

use super::Catalog;
use super::durable_wanted::{WantedObjects, WantedOfDirectory};
use super::object::ROOT;

/// Pause after which a reader tries again whose bytes are being read back. About what reading a
/// block from a bucket takes (20 to 100 ms), so it is seldom tried twice in vain. Chosen, not
/// measured.
const RESTORE_PAUSE: Millis = Millis(50);

/// Objects that a manager gets at once to read back, but one of each directory in any case: what
/// four nodes have under way (`UPLOADS_PER_NODE_MAX`). Chosen, not measured.
const OBJECTS_MAX: usize = 16;

/// Blocks of each. A datanode reads them one after the other for 20 s at most (`RESTORE_MAX`): at
/// 100 ms for a block, 32 take 3 s. Chosen, not measured.
const BLOCKS_MAX: usize = 32;

/// Objects without room after which a directory has no further turn in a view: there may be many.
/// Each costs a look at the room of all nodes, for which others wait. Chosen, not measured.
const REFUSED_MAX: usize = 64;

/// The part of the nodes' room, one in so many, that is left free by what is read back without a
/// reader. Chosen: a reader, and a writer, find room at once after most machines were lost.
const KEPT_PART: u64 = 4;

impl Catalog {
    /// Takes blocks of an object that were just lost, if its store has it as it is. Returns whether
    /// that is so: then nothing is lost.
    pub(super) fn takes_loss(&mut self, id: ObjectId, blocks: &[BlockId]) -> bool {
        let lost = self.objects.get(&id).and_then(|it| it.data()).map_or(0, |it| it.lost_bytes);
        // Of lost bytes the store was found not to have the object.
        let is_stored = self.durables.is_restoring(id)
            || (lost == 0 && self.has_stored_bytes(id) && !self.is_deleted(id));
        if !is_stored {
            return false;
        }
        let bytes: u64 = blocks.iter().map(|block| u64::from(self.blocks[block].length)).sum();
        let directory = self.directory_above(id);
        self.durables.lose(directory, id, bytes);
        true
    }

    /// Returns whether a store has the bytes of an object: by its name, or while it waits by an
    /// earlier one, or by its own that is not reported.
    fn has_stored_bytes(&self, id: ObjectId) -> bool {
        self.is_in_store(id) || self.renamed.old_key(id).is_some()
    }

    /// Returns the durable directory at or above an object; the root if there is none. It ends also
    /// in a snapshot that is not sound.
    fn directory_above(&self, id: ObjectId) -> ObjectId {
        let parent = |id: &ObjectId| self.objects.get(id).map(|object| object.parent);
        let above = |id: &ObjectId| parent(id).filter(|parent| parent != id);
        let mut way = std::iter::successors(Some(id), above).take(PATH_DEPTH_MAX + 1);
        way.find(|id| self.durables.contains(*id)).unwrap_or(ROOT)
    }

    /// Derives what is to be read back, and why, of a snapshot that was just read. Cost: linear in
    /// the blocks of the objects that are to be read back.
    pub(super) fn derived_wanted(&self) -> WantedObjects {
        let mut wanted = WantedObjects::default();
        for id in self.durables.wanted() {
            let directory = self.directory_above(id);
            let data = self.objects.get(&id).and_then(|object| object.data());
            let blocks = data.into_iter().flat_map(|data| data.blocks.iter());
            // What was adopted and never read was lost with no node.
            let mut lost = blocks.filter_map(|id| self.blocks.get(id)).filter(|it| it.is_lost());
            match lost.any(|block| block.lost_on != NodeId(0)) {
                true => wanted.lost(directory, id),
                false => wanted.read(directory, id, self.now),
            }
        }
        wanted
    }

    /// Notes whether the blocks of an object are in a store as they are: then they survive their
    /// homes, and need no copy and no move when time is short.
    pub(super) fn set_stored(&mut self, id: ObjectId, is_stored: bool) {
        if self.durables.is_empty() {
            return;
        }
        let Some(data) = self.objects.get(&id).and_then(|object| object.data()) else { return };
        let changed = |id: &&BlockId| self.blocks[*id].is_stored() != is_stored;
        let blocks: Vec<BlockId> = data.blocks.iter().filter(changed).copied().collect();
        for block in blocks {
            self.blocks.set_stored(block, is_stored, &mut self.nodes);
        }
    }

    /// Returns whether a store has an object as it is now.
    pub(super) fn is_in_store(&self, id: ObjectId) -> bool {
        let Some((directory, key)) = self.durable_at(id).filter(|(_, key)| !key.is_empty()) else {
            return false;
        };
        let durable = &self.durables[&directory];
        let is_sealed = self.objects[&id].data().is_some_and(|data| data.is_sealed);
        is_sealed && !durable.is_pending(&key)
    }

    /// Has objects read back whose bytes are in their stores only. Returns the refusal of the
    /// caller, which tries again.
    pub(super) fn want(&mut self, objects: &[ObjectId]) -> Refusal {
        self.durables.purge_readers(self.now);
        for id in objects {
            if self.durables.is_restoring(*id) {
                let directory = self.directory_above(*id);
                self.durables.read(directory, *id, self.now);
            }
        }
        objects.first().map_or_else(|| being_restored(""), |id| self.being_restored(*id))
    }

    /// Returns the objects whose bytes a request needs, that are in their stores only, and of which
    /// no reader was logged for a while. Cost: nothing while there are none in stores only, else a
    /// look-up of each name.
    pub(crate) fn unwanted_of(&self, request: &Request) -> Vec<ObjectId> {
        if !self.durables.is_restoring_any() {
            return Vec::new();
        }
        let mut found: Vec<ObjectId> = match request {
            Request::Lookup { path, .. } => self.resolve(path).into_iter().collect(),
            Request::LookupObject { object, .. } => vec![*object],
            Request::LookupMany { paths } => {
                let parsed = paths.iter().filter_map(|path| path.parse().ok());
                parsed.filter_map(|path| self.resolve(&path).ok()).collect()
            }
            _ => Vec::new(),
        };
        let durables = &self.durables;
        found.retain(|id| durables.is_restoring(*id) && !durables.is_noted(*id, self.now));
        found
    }

    /// Refuses to return where bytes are that are being read back.
    pub(super) fn check_restored(&self, id: ObjectId) -> Result<(), Refusal> {
        match self.durables.is_restoring(id) {
            true => Err(self.being_restored(id)),
            false => Ok(()),
        }
    }

    /// Returns the refusal of a reader, with the reason if the bytes cannot be read back.
    fn being_restored(&self, id: ObjectId) -> Refusal {
        let directory = self.durable_at(id).map(|(directory, _)| directory);
        let durable = directory.and_then(|id| self.durables.get(id));
        being_restored(durable.map_or("", |durable| &durable.stalled))
    }

    /// Returns what is to be read back first: of each directory in turn, so that a store which does
    /// not answer holds up no other one. Cost: that of [`REFUSED_MAX`] objects of each
    /// directory beyond those that are returned.
    pub(crate) fn durable_losses(&self) -> Vec<DurableLoss> {
        let directories = self.durables.wanted_by_directory();
        let mut turns: Vec<_> =
            directories.map(|(directory, wanted)| self.losses_of(*directory, wanted)).collect();
        let mut losses = Vec::new();
        while losses.len() < OBJECTS_MAX && !turns.is_empty() {
            turns.retain_mut(|turn| {
                let loss = turn.next();
                let is_more = loss.is_some();
                losses.extend(loss);
                is_more
            });
        }
        losses
    }

    /// Returns what is to be read back of one directory, as much as finds room together: first what
    /// readers wait for. What else nodes have lost leaves a part of the room to later readers and
    /// to writers. Of the first object of a reader that finds none it names no blocks: the manager
    /// reports it.
    fn losses_of(
        &self,
        directory: ObjectId,
        wanted: &WantedOfDirectory,
    ) -> impl Iterator<Item = DurableLoss> {
        let (mut room, capacity) = self.room_to_restore(directory);
        let (mut refused, mut is_reported) = (0, false);
        let read = wanted.read(self.now).map(|id| (id, None));
        let lost = wanted.lost(self.now).map(move |id| (id, Some(capacity / KEPT_PART)));
        let turn = read.chain(lost).map_while(move |(id, kept)| {
            let less = room.checked_sub(self.durables.restoring_bytes(id));
            match less.filter(|less| *less >= kept.unwrap_or_default()) {
                Some(less) => {
                    room = less;
                    Some(self.loss_of(id))
                }
                None if refused >= REFUSED_MAX => None,
                None if kept.is_some() || is_reported => {
                    refused += 1;
                    Some(None)
                }
                None => {
                    (refused, is_reported) = (refused + 1, true);
                    Some(self.loss_of(id).map(|loss| DurableLoss { blocks: Vec::new(), ..loss }))
                }
            }
        });
        turn.flatten()
    }

    /// Returns the bytes for which the nodes have room that may hold what a directory's store has,
    /// and how many they have room for in all; as many as there can be, and none, if no such node
    /// is there. Cost: linear in the nodes.
    fn room_to_restore(&self, directory: ObjectId) -> (u64, u64) {
        let Some(durable) = self.durables.get(directory) else { return (0, 0) };
        let is_active = |node| self.nodes.get(node).is_some_and(|it| it.policy == Policy::Active);
        let nodes = self.durables.nodes().filter(|(_, it)| it.contains(&durable.store));
        let takers: Vec<NodeId> = nodes.map(|(node, _)| node).filter(|it| is_active(*it)).collect();
        if takers.is_empty() {
            return (u64::MAX, 0);
        }
        let tiers = takers
            .into_iter()
            .flat_map(|node| [Tier::Dram, Tier::Disk].map(|tier| self.node_room(node, tier)));
        tiers.fold((0_u64, 0_u64), |(room, all), (free, capacity)| {
            (room.saturating_add(free), all.saturating_add(capacity))
        })
    }

    /// Returns the first lost blocks of an object, and where its bytes are in its store.
    fn loss_of(&self, object: ObjectId) -> Option<DurableLoss> {
        let (directory, key) = self.read_back_from(object)?;
        let store = self.durables[&directory].store.clone();
        let data = self.objects.get(&object)?.data()?;
        let mut offset = data.inline_bytes();
        let mut blocks = Vec::new();
        for id in data.blocks.iter() {
            let block = &self.blocks[id];
            if block.is_lost() && block.length > 0 {
                let (epoch, length) = (block.epoch, block.length);
                blocks.push(LostBlock { block: *id, epoch, offset, length });
                if blocks.len() == BLOCKS_MAX {
                    break;
                }
            }
            offset += u64::from(block.length);
        }
        Some(DurableLoss { directory, store, object, key, bytes: data.bytes, blocks })
    }

    /// Returns the durable directory of an object, and the name in its store by which lost bytes of
    /// the object are read back.
    fn read_back_from(&self, object: ObjectId) -> Option<(ObjectId, String)> {
        let (directory, key) = self.durable_at(object)?;
        Some((directory, self.renamed.old_key(object).map_or(key, str::to_owned)))
    }

    /// Makes a node the home of a lost block that it has read back.
    pub(super) fn restored_block(&mut self, restored: &RestoredBlock) {
        let RestoredBlock { block: id, epoch, node, tier } = *restored;
        let is_there = self.nodes.get(node).is_some_and(|node| node.policy == Policy::Active);
        let Some(block) = self.blocks.get(&id) else { return };
        let object = block.object;
        if !is_there || !self.durables.is_restoring(object) {
            return;
        }
        let length = self.blocks.restore(id, (epoch, node, tier), &mut self.nodes, &mut self.jobs);
        if let Some(length) = length {
            self.durables.restored(object, u64::from(length));
        }
    }

    /// Declares lost what its store does not have by the name by which it would be read back now.
    /// A report by another name, or of a loss of before, is late or came twice: it changes nothing,
    /// and the manager reads the object by the name that the next view shows.
    pub(super) fn missing_from_store(&mut self, missing: &MissingObject) {
        let MissingObject { object, key, block, epoch, why } = missing;
        let Some(found) = self.blocks.get(block) else { return };
        let is_same = found.is_lost() && (found.object, found.epoch) == (*object, *epoch);
        let is_named = self.read_back_from(*object).is_some_and(|(_, name)| name == *key);
        if is_same && is_named {
            self.gone_from_store(*object, why);
        }
    }

    /// Declares lost what its store does not have by the name by which it was read.
    pub(super) fn gone_from_store(&mut self, id: ObjectId, why: &str) {
        if !self.durables.is_restoring(id) || self.is_deleted(id) {
            return;
        }
        if self.passes_to_new_name(id) {
            return;
        }
        self.durables.forget_object(id);
        self.renamed.forget(id);
        self.set_stored(id, false);
        let Some(data) = self.objects.get(&id).and_then(|object| object.data()) else { return };
        let is_lost = |id: &&BlockId| self.blocks[*id].is_lost() && self.blocks[*id].length > 0;
        let lost: Vec<BlockId> = data.blocks.iter().filter(is_lost).copied().collect();
        let Some(first) = lost.first() else { return };
        let node = self.blocks[first].lost_on;
        self.declare_lost(node, id, &lost, why);
    }

    /// Adds where the bytes that are in stores only are not those of the lost blocks.
    pub(super) fn check_restoring(&self, problems: &mut Vec<String>) {
        for (id, bytes) in self.durables.restoring() {
            let Some(data) = self.objects.get(&id).and_then(|object| object.data()) else {
                problems.push(format!("object {id} is in its store only and does not exist"));
                continue;
            };
            let blocks = data.blocks.iter().filter_map(|block| self.blocks.get(block));
            let lost = blocks.filter(|block| block.is_lost());
            let lost: u64 = lost.map(|block| u64::from(block.length)).sum();
            if lost != bytes {
                problems
                    .push(format!("object {id} has {bytes} bytes in its store only, not {lost}"));
            }
        }
        for (id, block) in self.blocks.iter().filter(|(_, block)| block.is_stored()) {
            let object = block.object;
            let is_there = self.objects.contains_key(&object);
            if is_there && !self.is_deleted(object) && !self.is_in_store(object) {
                problems
                    .push(format!("block {id} counts as stored, and its object is in no store"));
            }
        }
    }
}

fn being_restored(stalled: &str) -> Refusal {
    let mut why = "its bytes are being read back from its store".to_owned();
    if !stalled.is_empty() {
        why = format!("{why}; that is stalled: {stalled}");
    }
    Refusal::RetryAfter { after: RESTORE_PAUSE, why }
}
