//! The queue of deleted subtrees: owners take turns, and what one deleted first is freed first.
//!
//! The log names no tokens, so an owner is what a token can be bound to: a place in the namespace.
//! The turn goes round the names in the root, and for each of them round the names below it. So a
//! tenant whose token is bound to `/jobs/x` has one turn in a round of `/jobs`, however many jobs
//! and directories it deletes there. An owner's subtrees take no turns among themselves: those that
//! come would slow down those that are there.

use std::collections::BTreeMap;

use sanderling_protocol::{JobId, ObjectId, Path};
use serde::{Deserialize, Serialize};

use super::id_map::{Id, IdMap};
use super::index::Hash;

/// Names of one level that have turns of their own; more share them by their hash. Its seed is the
/// cluster's number, which each client has: a client that may create names beside another's can
/// choose one that shares a turn with it. What the two delete is then freed in one line, in the
/// order of the deletions. The number bounds the queue's part that an image copies: 16,384 lines.
const BUCKETS: u64 = 128;

/// Memory of a subtree in the queue, beside the path of an ended job: its entry and its share of
/// the maps. Computed, not measured.
const SUBTREE_BYTES: u64 = 128;

/// Whose turn it is: the bucket of the first name of a path, and that of the second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ReapOwner {
    area: u8,
    part: u8,
}

impl ReapOwner {
    /// Returns the owner of what is below these names. `seed` is the cluster's number.
    pub(super) fn of(seed: u64, first: Option<&[u8]>, second: Option<&[u8]>) -> Self {
        let bucket = |name| Hash::of(seed, ObjectId(0), name).bucket(BUCKETS);
        Self { area: first.map_or(0, bucket), part: second.map_or(0, bucket) }
    }
}

/// What the event of a job that has ended names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndedJob {
    pub(super) job: JobId,
    pub(super) path: Path,
    pub(super) is_expired: bool,
}

/// The number of a subtree, in the order of the deletions; the first one is 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Ticket(u64);

impl Id for Ticket {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

/// Deleted subtrees by the third of the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReapQueue {
    /// The ticket of the subtree that came last.
    last: Ticket,
    subtrees: IdMap<Ticket, QueuedSubtree>,
    lines: BTreeMap<ReapOwner, Line>,
    /// Whose turn was the last one, in all and in each area.
    last_area: u8,
    last_parts: BTreeMap<u8, u8>,
    /// Entries that deletions themselves may still free in this slice.
    at_once: u32,
    /// Bytes of the paths of ended jobs.
    text_bytes: u64,
    /// How many subtrees count in a job's quota; follows from the subtrees.
    #[serde(skip)]
    by_job: BTreeMap<JobId, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct QueuedSubtree {
    root: ObjectId,
    /// The job in whose quota it counts.
    job: Option<JobId>,
    /// Published bytes that were freed.
    freed_bytes: u64,
    /// The job that ended with it.
    ended: Option<Box<EndedJob>>,
    /// The next one in its owner's line.
    next: Option<Ticket>,
}

/// The subtrees of one owner, of which there is one at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    first: Ticket,
    last: Ticket,
}

/// A subtree whose turn it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct DueSubtree {
    owner: ReapOwner,
    ticket: Ticket,
    pub(super) root: ObjectId,
}

impl ReapQueue {
    pub(super) const fn len(&self) -> usize {
        self.subtrees.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many subtrees have been queued so far.
    pub(super) const fn queued(&self) -> u64 {
        self.last.0
    }

    /// Returns whether one of the first so many deletions is not freed yet.
    pub(super) fn holds_one_of(&self, first: u64) -> bool {
        self.subtrees.keys().next().is_some_and(|oldest| oldest.0 <= first)
    }

    pub(super) fn holds_of_job(&self, job: JobId) -> bool {
        self.by_job.contains_key(&job)
    }

    pub(super) fn roots(&self) -> impl Iterator<Item = ObjectId> {
        self.subtrees.values().map(|subtree| subtree.root)
    }

    pub(super) const fn memory_bytes(&self) -> u64 {
        self.len() as u64 * SUBTREE_BYTES + self.text_bytes
    }

    /// Begins a slice of so many entries. While subtrees wait, new deletions may free half of it at
    /// once, and the turns of what waits get the rest; else deletions may free all of it.
    pub(super) const fn begin_slice(&mut self, slice: u32) {
        self.at_once = if self.is_empty() { slice } else { slice / 2 };
    }

    pub(super) const fn at_once_mut(&mut self) -> &mut u32 {
        &mut self.at_once
    }

    pub(super) fn push(
        &mut self,
        owner: ReapOwner,
        root: ObjectId,
        job: Option<JobId>,
        freed_bytes: u64,
    ) {
        self.last.0 += 1;
        let subtree = QueuedSubtree { root, job, freed_bytes, ended: None, next: None };
        self.subtrees.insert(self.last, subtree);
        if let Some(job) = job {
            *self.by_job.entry(job).or_default() += 1;
        }
        let line = self.lines.entry(owner).or_insert(Line { first: self.last, last: self.last });
        let before = std::mem::replace(&mut line.last, self.last);
        if before != self.last
            && let Some(before) = self.subtrees.get_mut(&before)
        {
            before.next = Some(self.last);
        }
    }

    /// Notes the job that ended with the subtree that came last, if `root` is that.
    ///
    /// # Errors
    /// The job, if it is not.
    pub(super) fn job_ended(&mut self, root: ObjectId, ended: EndedJob) -> Result<(), EndedJob> {
        match self.subtrees.get_mut(&self.last).filter(|subtree| subtree.root == root) {
            Some(subtree) => {
                self.text_bytes += ended.path.as_str().len() as u64;
                subtree.ended = Some(Box::new(ended));
                Ok(())
            }
            None => Err(ended),
        }
    }

    /// Returns the subtree whose turn it is. [`Self::end_turn`] follows.
    pub(super) fn begin_turn(&mut self) -> Option<DueSubtree> {
        let owner = self.next_owner()?;
        self.last_area = owner.area;
        self.last_parts.insert(owner.area, owner.part);
        let ticket = self.lines.get(&owner)?.first;
        let root = self.subtrees.get(&ticket)?.root;
        Some(DueSubtree { owner, ticket, root })
    }

    fn next_owner(&self) -> Option<ReapOwner> {
        let from = |area, part| self.lines.range(ReapOwner { area, part }..).next();
        let (ReapOwner { area, .. }, _) = from(self.last_area + 1, 0).or_else(|| from(0, 0))?;
        let last_part = self.last_parts.get(area).copied();
        let next = last_part.and_then(|last| from(*area, last + 1));
        let next = next.filter(|(owner, _)| owner.area == *area);
        next.or_else(|| from(*area, 0)).map(|(owner, _)| *owner)
    }

    /// Ends a turn. If the subtree is freed, it leaves; then returns the job that ended with it and
    /// the bytes that it had.
    pub(super) fn end_turn(
        &mut self,
        turn: DueSubtree,
        freed_bytes: u64,
        is_freed: bool,
    ) -> Option<(EndedJob, u64)> {
        let DueSubtree { owner, ticket, .. } = turn;
        if !is_freed {
            self.subtrees.get_mut(&ticket)?.freed_bytes += freed_bytes;
            return None;
        }
        let subtree = self.subtrees.remove(&ticket)?;
        match (subtree.next, self.lines.get_mut(&owner)) {
            (Some(next), Some(line)) => line.first = next,
            _ => drop(self.lines.remove(&owner)),
        }
        if let Some(job) = subtree.job
            && let Some(count) = self.by_job.get_mut(&job)
        {
            *count -= 1;
            if *count == 0 {
                self.by_job.remove(&job);
            }
        }
        let ended = subtree.ended?;
        self.text_bytes -= ended.path.as_str().len() as u64;
        Some((*ended, subtree.freed_bytes + freed_bytes))
    }

    /// Returns what a snapshot holds. Its subtrees share their memory with these.
    pub(super) fn image(&self) -> Self {
        Self {
            last: self.last,
            subtrees: self.subtrees.clone(),
            lines: self.lines.clone(),
            last_area: self.last_area,
            last_parts: self.last_parts.clone(),
            at_once: self.at_once,
            text_bytes: self.text_bytes,
            by_job: BTreeMap::new(),
        }
    }

    /// Makes what an image leaves out.
    pub(super) fn restore(&mut self) {
        self.by_job.clear();
        for job in self.subtrees.values().filter_map(|subtree| subtree.job) {
            *self.by_job.entry(job).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the pages describe of owners that share a turn.
    #[test]
    fn client_can_choose_a_name_that_shares_a_turn_and_is_then_freed_in_one_line() {
        let cluster = 0x1234_5678_9abc_def0;
        let owner = |name: &str| ReapOwner::of(cluster, Some(b"jobs"), Some(name.as_bytes()));
        let chosen = (0..10_000).map(|number| number.to_string());
        let chosen = chosen.into_iter().find(|name| owner(name) == owner("victim"));
        let chosen = chosen.expect("one of 128 names shares it");
        let mut queue = ReapQueue::default();
        for (owner, root) in [(&*chosen, 1), (&*chosen, 2), ("victim", 3), ("other", 4)] {
            queue.push(
                ReapOwner::of(cluster, Some(b"jobs"), Some(owner.as_bytes())),
                ObjectId(root),
                None,
                0,
            );
        }
        let mut freed = Vec::new();
        while let Some(turn) = queue.begin_turn() {
            freed.push(turn.root.0);
            queue.end_turn(turn, 0, true);
        }
        freed.retain(|root| *root != 4);
        assert_eq!(freed, [1, 2, 3]);
    }

    #[test]
    fn queue_of_a_snapshot_has_the_deletions_of_each_job_until_the_last_is_freed() {
        let mut queue = ReapQueue::default();
        for (root, job) in [(1, 7), (2, 7), (3, 8)] {
            let owner = ReapOwner::of(1, Some(b"jobs"), Some(b"x"));
            queue.push(owner, ObjectId(root), Some(JobId(job)), 0);
        }
        let mut queue = queue.image();
        queue.restore();
        let mut held = Vec::new();
        while let Some(turn) = queue.begin_turn() {
            held.push([7, 8].map(|job| queue.holds_of_job(JobId(job))));
            queue.end_turn(turn, 0, true);
        }
        assert_eq!(held, [[true, true], [true, true], [false, true]]);
        assert!(!queue.holds_of_job(JobId(8)));
    }
}
