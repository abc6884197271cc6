//! The changes of durable directories that their stores do not have yet.
//!
//! A directory's changes become visible in the store in the order of their numbers, so what is
//! there is always a state that the directory has had. The numbers are taken from those of objects:
//! none is given out twice, also if the end of the log is lost.

use std::collections::BTreeMap;

use sanderling_protocol::limits::DURABLE_CHANGES_MAX;
use sanderling_protocol::message::{AdoptionStep, DurableRecord, MadeChange, RecordedUpload};
use sanderling_protocol::{Instant, Millis, ObjectId};
use serde::{Deserialize, Serialize};

/// Shortest time between two events that a store has everything: a steady writer empties its
/// queue many times each second.
const REPORT_EVERY: Millis = Millis(10_000);

/// One durable directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DurableDirectory {
    pub(super) store: String,
    pub(super) backlog_bytes_max: u64,
    queue: BTreeMap<u64, QueuedChange>,
    /// The objects that get their bytes by a change in the queue: key to number. Until it is made,
    /// an object is neither replaced nor deleted, unless it has bytes missing.
    pending: BTreeMap<String, u64>,
    backlog_bytes: u64,
    /// Objects and bytes that the store got since that was reported last, and when it was.
    drained: (u64, u64),
    reported_at: Option<Instant>,
    /// Whether the store has ever made a change: then an empty place is not this store.
    pub(super) is_claimed: bool,
    /// Why the first change could not be made; empty if it can.
    pub(super) stalled: String,
    /// What became of the objects that the store had; `None` if it began empty.
    pub(super) adoption: Option<Adopting>,
}

/// The adoption of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Adopting {
    /// What is next; `None` when the whole store was listed.
    pub(super) next: Option<AdoptionStep>,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    pub(super) skipped: u64,
    pub(super) skipped_first: String,
}

/// A change that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueuedChange {
    pub(super) at: Instant,
    /// The command that made it.
    command: u64,
    pub(super) key: String,
    pub(super) kind: QueuedKind,
    pub(super) upload: Option<String>,
}

/// Where and when a change is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangePlace {
    pub(super) number: u64,
    pub(super) command: u64,
    pub(super) at: Instant,
}

/// What a store has of an object that loses its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoreEntry {
    /// The durable directory of the store.
    pub(super) directory: ObjectId,
    /// The object's key in the store: its path below the directory, without a slash before it.
    pub(super) key: String,
    /// Whether it is a container: then everything below the key goes.
    pub(super) is_tree: bool,
}

/// What becomes of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum QueuedKind {
    Put { object: ObjectId, bytes: u64 },
    Remove,
    RemoveTree,
}

/// Of renamed objects that wait for their store: what it has of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RenamedObjects(BTreeMap<ObjectId, StoredName>);

/// A name in the store of a durable directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredName {
    pub(super) directory: ObjectId,
    pub(super) key: String,
    /// Whether the store has had another object by the new name.
    pub(super) replaces: bool,
}

impl RenamedObjects {
    /// Keeps by which name the store has an object.
    pub(super) fn keep(&mut self, id: ObjectId, stored: StoredName) {
        self.0.insert(id, stored);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectId, &StoredName)> {
        self.0.iter()
    }

    /// Passes to the new name of an object. Returns whether it had another one.
    pub(super) fn pass_to(&mut self, id: ObjectId, key: String) -> bool {
        let Some(stored) = self.0.get_mut(&id) else { return false };
        let is_new = stored.key != key;
        stored.key = key;
        is_new
    }

    /// Forgets an object: the store has it by its new name, has not got it, or it is deleted.
    pub(super) fn forget(&mut self, id: ObjectId) {
        self.0.remove(&id);
    }

    /// Forgets what the store of a directory has.
    pub(super) fn forget_directory(&mut self, directory: ObjectId) {
        self.0.retain(|_, stored| stored.directory != directory);
    }

    /// Returns whether an object that is missing by its old name can only be by the new one: no
    /// other object has been there.
    pub(super) fn may_have_arrived(&self, id: ObjectId) -> bool {
        self.0.get(&id).is_some_and(|stored| !stored.replaces)
    }

    /// Returns the name under which the store has a renamed object: the old one, or the new one
    /// where its store lacks it by the old one. `None` if the object waits for no renaming there.
    pub(super) fn old_key(&self, id: ObjectId) -> Option<&str> {
        self.0.get(&id).map(|stored| stored.key.as_str())
    }
}

impl DurableDirectory {
    pub(super) const fn new(store: String, backlog_bytes_max: u64) -> Self {
        Self {
            store,
            backlog_bytes_max,
            queue: BTreeMap::new(),
            pending: BTreeMap::new(),
            backlog_bytes: 0,
            drained: (0, 0),
            reported_at: None,
            is_claimed: false,
            stalled: String::new(),
            adoption: None,
        }
    }

    /// Returns what is next in the adoption of the store.
    pub(super) fn adoption_step(&self) -> Option<&AdoptionStep> {
        self.adoption.as_ref()?.next.as_ref()
    }

    /// Adds the bytes of an object. A removal of the same name by the same command is taken back:
    /// the store replaces an object at once.
    pub(super) fn put(&mut self, place: ChangePlace, key: String, object: ObjectId, bytes: u64) {
        if let Some(last) = self.queue.last_entry()
            && last.get().command == place.command
            && last.get().kind == QueuedKind::Remove
            && last.get().key == key
        {
            last.remove();
        }
        self.pending.insert(key.clone(), place.number);
        self.backlog_bytes += bytes;
        self.push(place, key, QueuedKind::Put { object, bytes });
    }

    /// Adds that a name goes, or everything below it.
    pub(super) fn remove(&mut self, place: ChangePlace, key: String, is_tree: bool) {
        let kind = if is_tree { QueuedKind::RemoveTree } else { QueuedKind::Remove };
        self.push(place, key, kind);
    }

    fn push(&mut self, place: ChangePlace, key: String, kind: QueuedKind) {
        let ChangePlace { number, command, at } = place;
        let is_last = self.queue.last_key_value().is_none_or(|(last, _)| *last < number);
        assert!(is_last, "a change got a number that was given out before");
        self.queue.insert(number, QueuedChange { at, command, key, kind, upload: None });
    }

    /// Returns whether a report follows on what is recorded of this directory: each upload replaces
    /// the one of its change or is that already, and what was made are the first changes that wait,
    /// with the uploads that they have. What was made before counts for nothing, but for uploads:
    /// none is completed of a change that does not wait.
    pub(super) fn is_followed_by(&self, id: ObjectId, record: &DurableRecord) -> bool {
        let of_this = record.uploads.iter().filter(|it| it.directory == id);
        let uploads: BTreeMap<u64, &RecordedUpload> = of_this.map(|it| (it.number, it)).collect();
        let may_replace = |it: &&RecordedUpload| match self.queue.get(&it.number) {
            Some(change) => {
                change.upload == it.replaces || change.upload.as_ref() == Some(&it.upload)
            }
            None => {
                let is_same = |made: &MadeChange| (made.directory, made.number) == (id, it.number);
                record.made.iter().any(is_same)
            }
        };
        let upload_of = |number: u64, change: &QueuedChange| match uploads.get(&number) {
            Some(reported) => Some(reported.upload.clone()),
            None => change.upload.clone(),
        };
        let first = self.first().unwrap_or(u64::MAX);
        let mut made = record.made.iter().filter(|it| it.directory == id && it.number >= first);
        let mut waiting = self.changes();
        let is_next = |it: &MadeChange| {
            let next = waiting.next();
            next.is_some_and(|(number, change)| {
                number == it.number && upload_of(number, change) == it.upload
            })
        };
        uploads.values().all(may_replace) && made.all(is_next)
    }

    /// Notes which upload will be completed for a change, in place of any other.
    pub(super) fn uploaded(&mut self, number: u64, upload: &str) {
        if let Some(change) = self.queue.get_mut(&number) {
            change.upload = Some(upload.to_owned());
        }
    }

    /// Notes that the store has all changes up to a number. Returns the objects that it got, and
    /// how many objects and bytes it got since that was returned last, if the queue is empty and
    /// that was some time ago.
    pub(super) fn done(
        &mut self,
        now: Instant,
        number: u64,
    ) -> (Vec<ObjectId>, Option<(u64, u64)>) {
        let mut objects = Vec::new();
        while let Some(first) = self.queue.first_entry()
            && *first.key() <= number
        {
            let (number, change) = first.remove_entry();
            // An upload that was begun has claimed the store, whatever became of it.
            self.is_claimed |= change.upload.is_some();
            if let QueuedKind::Put { object, bytes } = change.kind {
                objects.push(object);
                if self.pending.get(&change.key) == Some(&number) {
                    self.pending.remove(&change.key);
                }
                self.backlog_bytes -= bytes;
                self.drained.0 += 1;
                self.drained.1 += bytes;
            }
        }
        let was_reported = self.reported_at.is_some_and(|at| at.until(now) < REPORT_EVERY);
        if !self.queue.is_empty() || self.drained.0 == 0 || was_reported {
            return (objects, None);
        }
        self.reported_at = Some(now);
        (objects, Some(std::mem::take(&mut self.drained)))
    }

    /// Returns whether a change waits.
    pub(super) fn waits(&self, number: u64) -> bool {
        self.queue.contains_key(&number)
    }

    /// Returns the number of the oldest change that waits.
    pub(super) fn first(&self) -> Option<u64> {
        self.queue.first_key_value().map(|(number, _)| *number)
    }

    pub(super) const fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes
    }

    pub(super) fn backlog_changes(&self) -> u64 {
        self.queue.len() as u64
    }

    /// Returns when the oldest change that waits was made.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|(_, change)| change.at)
    }

    /// Returns whether nothing more is to be written until the store has taken some.
    pub(super) fn is_full(&self) -> bool {
        self.backlog_bytes >= self.backlog_bytes_max || self.queue.len() >= DURABLE_CHANGES_MAX
    }

    /// Returns the changes that wait, with their numbers.
    pub(super) fn changes(&self) -> impl Iterator<Item = (u64, &QueuedChange)> {
        self.queue.iter().map(|(number, change)| (*number, change))
    }

    /// Returns whether the object of a name waits, or one below it.
    pub(super) fn is_pending(&self, key: &str) -> bool {
        if self.pending.contains_key(key) {
            return true;
        }
        let below = format!("{key}/");
        let mut from = self.pending.range(below.clone()..);
        from.next().is_some_and(|(next, _)| next.starts_with(&below))
    }

    /// Adds where the queue contradicts itself.
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let mut derived = BTreeMap::new();
        let mut bytes = 0;
        for (number, change) in self.changes() {
            if let QueuedKind::Put { bytes: length, .. } = change.kind {
                derived.insert(change.key.clone(), number);
                bytes += length;
            }
        }
        if derived != self.pending || bytes != self.backlog_bytes {
            problems.push("the backlog of a durable directory is not what its queue has".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::DurableReport;

    use super::*;

    /// Returns where a change is made that has this number, and a command of its own.
    const fn place(number: u64) -> ChangePlace {
        ChangePlace { number, command: number, at: Instant(0) }
    }

    #[test]
    fn directory_is_full_with_as_many_changes_as_may_wait() {
        let mut durable = DurableDirectory::new("archive".to_owned(), 100);
        let changes_max = DURABLE_CHANGES_MAX as u64;
        for number in 1..changes_max {
            durable.remove(place(number), number.to_string(), false);
        }
        assert!(!durable.is_full());
        durable.remove(place(changes_max), "last".to_owned(), false);
        assert!(durable.is_full() && durable.backlog_changes() == 65_536);
        assert_eq!(durable.done(Instant(0), 1), (Vec::new(), None));
        assert!(!durable.is_full());
    }

    const DIRECTORY: ObjectId = ObjectId(9);

    /// An upload of a change, and the one that it replaces.
    type Upload<'a> = (u64, &'a str, Option<&'a str>);

    fn record(uploads: &[Upload<'_>], made: &[(u64, Option<&str>)]) -> DurableRecord {
        let owned = |upload: Option<&str>| upload.map(str::to_owned);
        let upload = |(number, upload, replaces): &Upload<'_>| RecordedUpload {
            directory: DIRECTORY,
            number: *number,
            upload: (*upload).to_owned(),
            replaces: owned(*replaces),
        };
        let change = |(number, upload): &(u64, Option<&str>)| MadeChange {
            directory: DIRECTORY,
            number: *number,
            upload: owned(*upload),
        };
        let uploads = uploads.iter().map(upload).collect();
        let made = made.iter().map(change).collect();
        DurableRecord { uploads, made, report: DurableReport::default() }
    }

    /// Returns a directory in which three changes wait, the first with the upload `b` that has
    /// replaced `a`.
    fn waiting() -> DurableDirectory {
        let mut durable = DurableDirectory::new("archive".to_owned(), 100);
        durable.put(place(3), "one".to_owned(), ObjectId(1), 5);
        durable.put(place(4), "two".to_owned(), ObjectId(2), 5);
        durable.remove(place(5), "three".to_owned(), false);
        durable.uploaded(3, "a");
        durable.uploaded(3, "b");
        durable
    }

    #[test]
    fn upload_follows_only_on_the_one_that_it_replaces() {
        let durable = waiting();
        let follows = |upload, replaces| {
            durable.is_followed_by(DIRECTORY, &record(&[(3, upload, replaces)], &[]))
        };
        assert!(follows("c", Some("b")));
        assert!(follows("b", Some("a")), "the same report arrives twice");
        assert!(!follows("a", None), "it was held up");
        assert!(!follows("c", Some("a")));
        let gone = record(&[(2, "a", None)], &[]);
        assert!(!durable.is_followed_by(DIRECTORY, &gone), "the change does not wait any more");
        let passed_over = record(&[(2, "a", None)], &[(2, Some("a"))]);
        assert!(durable.is_followed_by(DIRECTORY, &passed_over), "the same report arrives twice");
        let late = record(&[(3, "a", None)], &[]);
        assert!(durable.is_followed_by(ObjectId(8), &late), "it is about another directory");
    }

    #[test]
    fn changes_that_were_made_are_the_first_with_the_uploads_that_are_recorded() {
        let durable = waiting();
        let follows =
            |made: &[(u64, Option<&str>)]| durable.is_followed_by(DIRECTORY, &record(&[], made));
        assert!(follows(&[(3, Some("b"))]));
        assert!(follows(&[(3, Some("b")), (4, None), (5, None)]));
        assert!(follows(&[(1, None), (2, Some("x")), (3, Some("b"))]), "the first two are gone");
        assert!(!follows(&[(3, Some("a"))]), "it was held up");
        assert!(!follows(&[(3, Some("b")), (4, Some("x"))]));
        assert!(!follows(&[(4, None)]), "one before it waits");
        assert!(!follows(&[(3, Some("b")), (4, None), (5, None), (6, None)]));
        let both = record(&[(4, "x", None)], &[(3, Some("b")), (4, Some("x"))]);
        assert!(durable.is_followed_by(DIRECTORY, &both));
        let empty = DurableDirectory::new("archive".to_owned(), 100);
        assert!(empty.is_followed_by(DIRECTORY, &both), "everything is there");
    }

    #[test]
    fn directory_is_full_with_the_bytes_of_its_bound() {
        let mut durable = DurableDirectory::new("archive".to_owned(), 100);
        durable.put(place(1), "one".to_owned(), ObjectId(1), 99);
        assert!(!durable.is_full());
        durable.put(place(2), "two".to_owned(), ObjectId(2), 1);
        assert!(durable.is_full());
        let (objects, _) = durable.done(Instant(0), 1);
        assert!(objects == [ObjectId(1)] && !durable.is_full());
    }
}
