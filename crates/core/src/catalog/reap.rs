//! Freeing deleted subtrees slice by slice.
//!
//! A deletion takes the subtree's root out of its container at once: from then on no name leads to
//! anything in it, and no lease below it holds. What the subtree takes (objects, blocks, room,
//! quota) is given back entry by entry, at most so many in a millisecond of the log's time.
//! Until an entry is freed it counts in every account, so the accounts are what the objects hold at
//! any moment.

use std::collections::VecDeque;

use sanderling_protocol::{EventKind, Instant, JobId, Millis, ObjectId, Refusal};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::object::{NOWHERE, ROOT};
use super::orders::Orders;
use super::reap_queue::{EndedJob, ReapOwner};
use super::rules::Rules;

/// Time in which at most one slice is freed. A slice of 512 entries takes half of it, so changes
/// have the other half (`CatalogLimits::freed_per_slice_max`).
const PACE: Millis = Millis(1);

/// Pause after which a change is tried again for which room is being freed. Some twenty slices, ten
/// thousand entries. Chosen, not measured.
const ROOM_COMES: Millis = Millis(20);

/// Most deleted subtrees that one refusal is compared with, before the third of the rules. It must
/// stay: logs that were written then are replayed by it.
const LOOKED_AT_MAX: usize = 1024;

/// Part of a slice that one turn frees, as a divisor: so many owners have a turn in a slice. A
/// slice has 512 entries, so a turn frees 32; fewer would cost more for the turns than for the
/// entries. Chosen, not measured.
const TURNS: u32 = 16;

/// By which rules the log's commands are applied, and what is deleted and not freed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reaping {
    pub(super) rules: Rules,
    /// Entries that are freed in [`PACE`].
    slice: u32,
    /// Of these, what may still be freed before `slice_ends`.
    left: u32,
    slice_ends: Instant,
    /// Each gets a slice in its turn. By the third of the rules they are in the
    /// [`ReapQueue`](super::reap_queue::ReapQueue).
    subtrees: VecDeque<Subtree>,
}

/// A deleted subtree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Subtree {
    root: ObjectId,
    /// Published bytes that were freed.
    freed_bytes: u64,
    /// The job that ended with it, whose event is emitted when everything is freed.
    job: Option<EndedJob>,
}

/// What came of a deletion: objects and published bytes that were freed so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Freed {
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

impl Catalog {
    /// The rules of this program: with each number, commands do something else than before
    /// (`catalog/rules.rs` describes them).
    pub const RULES: u32 = Rules::LAST.0;

    /// Returns the rules by which commands are applied, and how many entries are freed in a slice.
    #[must_use]
    pub const fn rules(&self) -> (u32, u32) {
        (self.reaping.rules.0, self.reaping.slice)
    }

    pub(super) fn set_rules(&mut self, rules: u32, slice: u32) {
        self.reaping.rules = self.reaping.rules.max(Rules(rules));
        self.reaping.slice = slice.max(1);
        if self.reaping.rules.frees_by_owner() {
            for Subtree { root, freed_bytes, job } in std::mem::take(&mut self.reaping.subtrees) {
                let charged = self.objects.get(&root).and_then(|object| object.job);
                self.reap_queue.push(ReapOwner::default(), root, charged, freed_bytes);
                if let Some(job) = job {
                    let _ = self.reap_queue.job_ended(root, job);
                }
            }
        }
    }

    /// Returns when more of what is deleted is to be freed; `None` if everything is.
    #[must_use]
    pub fn reaps_at(&self) -> Option<Instant> {
        // What deletions leave of a slice is for turns at once: else the next deletion would begin
        // the next slice before them.
        let is_due = self.reaping.rules.frees_by_owner() && self.reaping.left > 0;
        let at = if is_due { self.now } else { self.reaping.slice_ends };
        (self.reaping_count() > 0).then_some(at.min(self.reaping.slice_ends))
    }

    /// Returns how many deleted subtrees are not freed yet.
    #[must_use]
    pub fn reaping_count(&self) -> usize {
        self.reaping.subtrees.len() + self.reap_queue.len()
    }

    /// Returns how many deletions had something left to be freed later, since the log began.
    pub(crate) const fn deletions_queued(&self) -> u64 {
        self.reap_queue.queued()
    }

    /// Returns whether an object is in a deleted subtree. An object that gets its name at its seal
    /// is not, whatever has become of its directory. Cost: its depth, while anything is being
    /// freed.
    pub(super) fn is_deleted(&self, id: ObjectId) -> bool {
        if self.reaping_count() == 0 {
            return false;
        }
        let mut at = id;
        while at != ROOT {
            let Some(object) = self.objects.get(&at) else { return false };
            if !object.is_bound {
                return object.parent == NOWHERE;
            }
            at = object.parent;
        }
        false
    }

    /// Returns whether a container is there, and named.
    pub(super) fn has_container(&self, id: ObjectId) -> bool {
        self.objects.contains_key(&id) && !self.is_deleted(id)
    }

    /// Turns the refusal for a job's limit into one to retry if what the job deleted is freed soon.
    pub(super) fn unless_freed(&self, job: JobId, refusal: Refusal) -> Refusal {
        let is_of_job =
            |it: &Subtree| self.objects.get(&it.root).is_some_and(|root| root.job == Some(job));
        // A tenant that deletes very many small subtrees must not make each refusal a walk of them.
        let is_freed_soon = self.reap_queue.holds_of_job(job)
            || self.reaping.subtrees.iter().take(LOOKED_AT_MAX).any(is_of_job);
        if !is_freed_soon {
            return refusal;
        }
        let why = format!("what the job has deleted is being freed: {refusal}");
        Refusal::RetryAfter { after: ROOM_COMES, why }
    }

    /// Returns whether one of the first so many deletions of [`Self::deletions_queued`] is not
    /// freed yet.
    pub(crate) fn is_freeing_one_of(&self, deletions: u64) -> bool {
        self.reap_queue.holds_one_of(deletions)
    }

    /// Turns a refusal for want of room into one that is tried again, because room is being freed
    /// by the first so many deletions of [`Self::deletions_queued`].
    pub(crate) fn unless_reaping(&self, refusal: Refusal, deletions: u64) -> Refusal {
        if !self.is_freeing_one_of(deletions) {
            return refusal;
        }
        let why = format!("what was deleted is being freed: {refusal}");
        Refusal::RetryAfter { after: ROOM_COMES, why }
    }

    /// Returns whose turn frees a subtree, while its root has its name. Cost: its depth.
    fn owner_of(&self, root: ObjectId) -> ReapOwner {
        let (mut at, mut first, mut second) = (root, None, None);
        while at != ROOT {
            let object = self.objects.get(&at).filter(|object| object.parent != NOWHERE);
            let Some(object) = object else { return ReapOwner::default() };
            second = first.replace(object.name.as_bytes());
            at = object.parent;
        }
        ReapOwner::of(self.cluster.0, first, second)
    }

    /// Deletes an object with everything in it: takes it out of its container, frees what the slice
    /// still allows, and leaves the rest to [`Catalog::reap`].
    pub(super) fn delete_tree(&mut self, root: ObjectId, orders: &mut Orders) -> Freed {
        if !self.reaping.rules.frees_in_slices() {
            let (objects, bytes) = self.remove_tree(root, orders);
            return Freed { objects, bytes };
        }
        if self.is_deleted(root) {
            return Freed::default();
        }
        let data = self.objects.get(&root).and_then(|object| object.data());
        let whole = data.map(|data| Freed { objects: 1, bytes: data.bytes });
        let owner = self.reaping.rules.frees_by_owner().then(|| self.owner_of(root));
        self.awaits_no_name(root);
        self.durable_goes(root);
        self.unbind(root);
        let Some(object) = self.objects.get_mut(&root) else { return Freed::default() };
        (object.parent, object.is_bound) = (NOWHERE, false);
        let job = object.job;
        self.begin_slice();
        let freed = match owner {
            Some(_) => {
                let at_once = *self.reap_queue.at_once_mut();
                let (freed, used) = self.free_share(root, at_once, orders);
                *self.reap_queue.at_once_mut() -= used;
                freed
            }
            None => self.free_some(root, orders),
        };
        if self.objects.contains_key(&root) {
            let freed_bytes = freed.bytes;
            match owner {
                Some(owner) => self.reap_queue.push(owner, root, job, freed_bytes),
                None => self.reaping.subtrees.push_back(Subtree { root, freed_bytes, job: None }),
            }
        }
        // `whole` is the exact number for a single object.
        whole.unwrap_or(freed)
    }

    /// Emits the end of a job, now or once the subtree that it ended with is freed.
    pub(super) fn report_job_ended(&mut self, root: ObjectId, freed_bytes: u64, ended: EndedJob) {
        let Err(ended) = self.reap_queue.job_ended(root, ended) else { return };
        let last = self.reaping.subtrees.back_mut().filter(|last| last.root == root);
        match last {
            Some(subtree) => subtree.job = Some(ended),
            None => self.emit_job_ended(ended, freed_bytes),
        }
    }

    fn emit_job_ended(&mut self, ended: EndedJob, freed_bytes: u64) {
        let EndedJob { job, path, is_expired } = ended;
        self.emit(EventKind::JobEnded { job, path, is_expired, freed_bytes });
    }

    /// Frees the next slice of what is deleted, if it is time.
    pub(super) fn reap(&mut self, orders: &mut Orders) {
        self.begin_slice();
        self.reap_queued(orders);
        while self.reaping.left > 0 {
            let Some(mut subtree) = self.reaping.subtrees.pop_front() else { return };
            subtree.freed_bytes += self.free_some(subtree.root, orders).bytes;
            if self.objects.contains_key(&subtree.root) {
                self.reaping.subtrees.push_back(subtree);
            } else if let Some(ended) = subtree.job {
                self.emit_job_ended(ended, subtree.freed_bytes);
            }
        }
    }

    /// Frees what is queued by owners, a part of the slice in each turn.
    fn reap_queued(&mut self, orders: &mut Orders) {
        let share = (self.reaping.slice / TURNS).max(1);
        while self.reaping.left > 0 {
            let Some(turn) = self.reap_queue.begin_turn() else { return };
            let (freed, _) = self.free_share(turn.root, share, orders);
            let is_freed = !self.objects.contains_key(&turn.root);
            if let Some((ended, bytes)) = self.reap_queue.end_turn(turn, freed.bytes, is_freed) {
                self.emit_job_ended(ended, bytes);
            }
        }
    }

    /// Frees at most so many entries of a deleted subtree, as far as the slice allows. Returns how
    /// many that were, too.
    fn free_share(&mut self, root: ObjectId, share: u32, orders: &mut Orders) -> (Freed, u32) {
        let left = self.reaping.left;
        self.reaping.left = left.min(share);
        let freed = self.free_some(root, orders);
        let used = left.min(share) - self.reaping.left;
        self.reaping.left = left - used;
        (freed, used)
    }

    /// Allows another slice if the last one is over.
    fn begin_slice(&mut self) {
        if self.now >= self.reaping.slice_ends {
            self.reaping.left = self.reaping.slice;
            self.reaping.slice_ends = self.now + PACE;
            // Before the third of the rules it is not used: it must not differ from that of a
            // catalog whose snapshot has no queue.
            if self.reaping.rules.frees_by_owner() {
                self.reap_queue.begin_slice(self.reaping.slice);
            }
        }
    }

    /// Frees entries of a deleted subtree, each container after what it holds, until everything is
    /// freed or the slice is used up. Blocks are entries, too.
    fn free_some(&mut self, root: ObjectId, orders: &mut Orders) -> Freed {
        let mut freed = Freed::default();
        let mut way = vec![root];
        while self.reaping.left > 0
            && let Some(at) = way.last().copied()
        {
            if let Some(child) = self.names.last_child(at) {
                way.push(child);
                continue;
            }
            freed.bytes += self.shed_blocks(at, orders);
            if self.reaping.left == 0 {
                break;
            }
            self.reaping.left -= 1;
            way.pop();
            self.unbind(at);
            let Some(object) = self.objects.remove(&at) else { continue };
            self.names.close(at);
            self.sums.remove(&at);
            freed.objects += 1;
            freed.bytes += self.free(at, object, orders);
        }
        freed
    }

    /// Frees the last blocks of an object, as many as the slice allows. Returns the published bytes
    /// that they had.
    fn shed_blocks(&mut self, id: ObjectId, orders: &mut Orders) -> u64 {
        let mut freed = 0;
        while self.reaping.left > 0 {
            let data = self.objects.get_mut(&id).and_then(|object| object.data_mut());
            let Some(data) = data else { break };
            let Some(last) = data.blocks.as_slice().last().copied() else { break };
            data.blocks.remove(last);
            let block = &self.blocks[&last];
            let bytes = u64::from(block.length);
            if bytes == 0 {
                data.count_blank(false);
            }
            let is_lost = block.is_lost();
            let is_stored = is_lost && self.durables.free_stored(id, bytes);
            let lost_bytes = if is_lost && !is_stored { bytes } else { 0 };
            data.bytes -= bytes;
            data.lost_bytes -= lost_bytes;
            self.sum_bytes(id, -bytes.cast_signed(), -lost_bytes.cast_signed());
            self.remove_block(last, orders);
            self.reaping.left -= 1;
            freed += bytes;
        }
        freed
    }

    /// Adds what is wrong with the deleted subtrees.
    pub(super) fn check_reaping(&self, problems: &mut Vec<String>) {
        let unordered = self.reaping.subtrees.iter().map(|subtree| subtree.root);
        for root in unordered.chain(self.reap_queue.roots()) {
            let object = self.objects.get(&root);
            if object.is_none_or(|object| object.is_bound || object.parent != NOWHERE) {
                problems.push(format!("object {root} is to be freed and is not deleted"));
            }
        }
        let deleted = self.objects.values().filter(|object| object.parent == NOWHERE).count();
        let known = self.reaping_count();
        if deleted != known {
            problems.push(format!("{deleted} subtrees are deleted, {known} are to be freed"));
        }
    }
}
