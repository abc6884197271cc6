//! Which names objects may get below durable directories, and what becomes of those that a store
//! refuses for good.
//!
//! Whether a store takes a name depends on its server, which no namenode calls. So what some server
//! refuses is refused here, for requests alone: what a log has is applied as it was. A name that a
//! store refuses all the same stalls its directory until the object is deleted.

use sanderling_protocol::limits::{STORE_KEY_BYTES_MAX, STORE_PREFIX_BYTES_MAX};
use sanderling_protocol::message::is_refused_name;
use sanderling_protocol::{ObjectId, Path, Refusal};

use super::Catalog;
use super::durable_changes::RENAMED_MAX;
use super::durable_queue::QueuedKind;
use super::object::ROOT;

/// Most bytes of a new name below a durable directory. The rest is for the store's prefix.
const NEW_KEY_BYTES_MAX: usize = STORE_KEY_BYTES_MAX - STORE_PREFIX_BYTES_MAX;

/// Characters that no document in XML may have, besides control characters. Servers of buckets get
/// and return names in such documents.
const NOT_IN_XML: [char; 2] = ['\u{fffe}', '\u{ffff}'];

impl Catalog {
    /// Refuses a path below a durable directory that a store may not take.
    pub(crate) fn check_new_name(&self, path: &Path) -> Result<(), Refusal> {
        if self.durables.is_empty() {
            return Ok(());
        }
        let (mut at, mut names) = (ROOT, path.components());
        while !self.durables.contains(at) {
            let child = names.next().and_then(|name| self.container_child(at, name));
            let Some(child) = child else { return Ok(()) };
            at = child;
        }
        let below: Vec<&str> = names.collect();
        below.iter().try_for_each(|name| check_new(name))?;
        check_new_length(below.join("/").len(), path.name().unwrap_or_default())
    }

    /// Refuses to rename what has names that a store may not take to a place below a durable
    /// directory. Cost: at most as many objects as one rename may bring.
    pub(crate) fn check_renamed_names(&self, from: &Path, to: &Path) -> Result<(), Refusal> {
        self.check_new_name(to)?;
        if self.durables.is_empty() {
            return Ok(());
        }
        let above = to.parent().and_then(|above| self.resolve(&above).ok());
        let (Some(above), Ok(id)) = (above, self.resolve(from)) else { return Ok(()) };
        let Some((_, above)) = self.durable_at(above) else { return Ok(()) };
        let name = to.name().unwrap_or_default();
        let own = if above.is_empty() { name.len() } else { above.len() + 1 + name.len() };
        let (mut found, mut next) = (vec![(id, own)], 0);
        while let Some((at, length)) = found.get(next).copied().filter(|_| next <= RENAMED_MAX) {
            next += 1;
            if at != id {
                let name = self.objects[&at].name.as_str();
                Self::check_key_name(name)?;
                check_new(name)?;
                check_new_length(length, name)?;
            }
            let child = |child| (child, length + 1 + self.objects[&child].name.as_bytes().len());
            found.extend(self.names.children(at).take(RENAMED_MAX + 1).map(child));
        }
        Ok(())
    }

    /// Returns the object at or below another one that its store refuses for good, if it is the
    /// first that the store is to get. What is behind it waits for it as well.
    pub(super) fn refused_at(&self, id: ObjectId) -> Option<ObjectId> {
        if !self.reaping.rules.deletes_refused() {
            return None;
        }
        let (directory, key) = self.durable_at(id)?;
        self.check_adopted(directory).ok()?;
        let durable = self.durables.get(directory)?;
        let (number, change) = durable.changes().next()?;
        let QueuedKind::Put { object, .. } = change.kind else { return None };
        let is_there = self.objects.contains_key(&object) && !self.is_deleted(object);
        if !is_there || !is_refused_name(&durable.stalled, number) {
            return None;
        }
        let (other, name) = self.durable_at(object)?;
        let is_below = name.strip_prefix(&key).is_some_and(|rest| rest.starts_with('/'));
        (object == id || (other == directory && is_below)).then_some(object)
    }
}

/// Refuses a name with characters that a server may not take.
fn check_new(name: &str) -> Result<(), Refusal> {
    if !name.contains(NOT_IN_XML) {
        return Ok(());
    }
    let why = "stores take neither U+FFFE nor U+FFFF in names".to_owned();
    Err(Refusal::BadPath { path: name.to_owned(), why })
}

/// Refuses a name that may be too long for a store, with the prefix that it may have.
fn check_new_length(length: usize, name: &str) -> Result<(), Refusal> {
    if length <= NEW_KEY_BYTES_MAX {
        return Ok(());
    }
    Err(Refusal::long_store_key(name, length, NEW_KEY_BYTES_MAX))
}
