//! Adopting a store: the objects that an earlier cluster left there become those of a durable
//! directory. Their bytes stay in the store until they are read.
//!
//! A store is listed in slices, in the order of its names. Each slice names the step that it
//! answers, so one that arrives twice, or from a manager that acts no more, changes nothing. Until
//! the last slice is in, nothing below the directory is found missing and nothing is changed there.

use sanderling_protocol::limits::{
    ADOPTED_BYTES_MAX, BLOCK_BYTES_MAX, NAME_BYTES_MAX, PATH_DEPTH_MAX, STORE_SLICE_OBJECTS_MAX,
    TEXT_BYTES_MAX,
};
use sanderling_protocol::message::{
    Adopted, Adoption, AdoptionStep, ObjectKind, STORE_OWN_NAME, StoreSlice,
};
use sanderling_protocol::{
    BlockId, Epoch, EventKind, Millis, NodeId, Nonce, ObjectId, Path, Refusal, StorageClass, Tier,
};
use thiserror::Error;

use super::Catalog;
use super::block::{Block, BlockState};
use super::durable_queue::Adopting;
use super::namespace::Destination;
use super::object::{Data, ObjectBody};

/// Pause after which a caller tries again whose directory is not adopted yet. About what one part
/// of a store's list takes. Chosen, not measured.
const ADOPTION_PAUSE: Millis = Millis(100);

/// Why an object of a store is not adopted: it is counted as skipped.
#[derive(Debug, Error)]
enum AdoptFault {
    #[error("it has {bytes} of {ADOPTED_BYTES_MAX} bytes")]
    TooLarge { bytes: u64 },
    #[error("{0}")]
    Path(#[source] Refusal),
    #[error("it has no name")]
    NoName,
    #[error("no object of a durable directory has such a name")]
    Reserved,
    #[error("{name} is an object, and no directory")]
    NotADirectory { name: String },
    #[error("there is such a name already")]
    Taken,
}

impl Adopting {
    pub(super) fn new() -> Self {
        Self { next: Some(AdoptionStep::Take), ..Self::default() }
    }

    /// Returns the adoption's progress in the form that clients receive.
    pub(super) fn reported(&self) -> Adoption {
        Adoption {
            is_done: self.next.is_none(),
            objects: self.objects,
            bytes: self.bytes,
            skipped: self.skipped,
            skipped_first: self.skipped_first.clone(),
        }
    }

    /// Counts what cannot be adopted.
    fn skip(&mut self, count: u64, first: &str) {
        if self.skipped == 0 {
            self.skipped_first = first.chars().take(TEXT_BYTES_MAX / 4).collect();
        }
        self.skipped += count;
    }
}

impl Catalog {
    /// Refuses what depends on the objects of a store that is not adopted to its end.
    pub(super) fn check_adopted(&self, directory: ObjectId) -> Result<(), Refusal> {
        let durable = self.durables.get(directory);
        let Some(adopting) = durable.and_then(|durable| durable.adoption.as_ref()) else {
            return Ok(());
        };
        if adopting.next.is_none() {
            return Ok(());
        }
        let (path, objects) = (self.path_or_root(directory), adopting.objects);
        let mut why = format!("the store of {path} is being adopted: {objects} objects so far");
        if let Some(durable) = durable.filter(|durable| !durable.stalled.is_empty()) {
            why = format!("{why}; that is stalled: {}", durable.stalled);
        }
        Err(Refusal::RetryAfter { after: ADOPTION_PAUSE, why })
    }

    /// Refuses with [`Refusal::RetryAfter`] while the store of the durable directory at or above an
    /// object is being adopted.
    pub(super) fn check_adopted_at(&self, id: ObjectId) -> Result<(), Refusal> {
        self.durable_at(id).map_or(Ok(()), |(directory, _)| self.check_adopted(directory))
    }

    /// Notes a step of an adoption, if it is the next one.
    pub(super) fn adopted(&mut self, adopted: &Adopted) {
        let Adopted { directory, step, slice } = adopted;
        let Some(durable) = self.durables.get_mut(*directory) else { return };
        if durable.adoption_step() != Some(step) {
            return;
        }
        durable.stalled.clear();
        // From now on an empty place is not this store.
        durable.is_claimed = true;
        let Some(adopting) = &mut durable.adoption else { return };
        let AdoptionStep::List(_) = step else {
            adopting.next = Some(AdoptionStep::List(String::new()));
            return;
        };
        adopting.next = slice.next.clone().map(AdoptionStep::List);
        let mut counts = std::mem::take(adopting);
        self.adopt_slice(*directory, slice, &mut counts);
        let durable = self.durables.get_mut(*directory).expect("found above");
        let is_done = counts.next.is_none();
        let (store, objects, bytes) = (durable.store.clone(), counts.objects, counts.bytes);
        let skipped = counts.skipped;
        durable.adoption = Some(counts);
        if is_done {
            let path = self.path_or_root(*directory);
            self.emit(EventKind::StoreAdopted { path, store, objects, bytes, skipped });
        }
    }

    fn adopt_slice(&mut self, directory: ObjectId, slice: &StoreSlice, counts: &mut Adopting) {
        if slice.skipped > 0 {
            counts.skip(slice.skipped, &slice.skipped_first);
        }
        for (key, bytes) in slice.objects.iter().take(STORE_SLICE_OBJECTS_MAX) {
            match self.adopt_object(directory, key, *bytes) {
                Ok(()) => {
                    counts.objects += 1;
                    counts.bytes += bytes;
                }
                Err(fault) => counts.skip(1, &format!("{key:?}: {fault}")),
            }
        }
    }

    /// Makes an object of one in the store.
    fn adopt_object(
        &mut self,
        directory: ObjectId,
        key: &str,
        bytes: u64,
    ) -> Result<(), AdoptFault> {
        if bytes > ADOPTED_BYTES_MAX {
            return Err(AdoptFault::TooLarge { bytes });
        }
        let place = self.path_or_root(directory);
        let path: Path = format!("{place}/{key}").parse().map_err(AdoptFault::Path)?;
        let names: Vec<&str> = path.components().skip(place.components().count()).collect();
        debug_assert!(names.iter().all(|name| name.len() <= NAME_BYTES_MAX));
        debug_assert!(names.len() <= PATH_DEPTH_MAX);
        let Some((name, above)) = names.split_last() else {
            return Err(AdoptFault::NoName);
        };
        if key.chars().any(char::is_control) || names.first() == Some(&STORE_OWN_NAME) {
            return Err(AdoptFault::Reserved);
        }
        let mut parent = directory;
        for name in above {
            parent = match self.container_child(parent, name) {
                Some(child) if self.objects[&child].kind() == ObjectKind::Directory => child,
                Some(_) => return Err(AdoptFault::NotADirectory { name: (*name).to_owned() }),
                None => self.insert_container(parent, name, ObjectKind::Directory, true),
            };
        }
        if self.container_child(parent, name).is_some() {
            return Err(AdoptFault::Taken);
        }
        self.insert_stored(parent, name, bytes);
        Ok(())
    }

    /// Adds a sealed object whose bytes are in the store only.
    fn insert_stored(&mut self, parent: ObjectId, name: &str, bytes: u64) {
        let id = self.ids.next_object();
        let mut data = Data {
            is_sealed: true,
            bytes,
            sealed_by: self.ids.next_lease(),
            ..Data::new(ObjectKind::File, StorageClass::default(), Nonce(0))
        };
        let mut left = bytes;
        while left > 0 {
            let length = u32::try_from(left.min(u64::from(BLOCK_BYTES_MAX))).unwrap_or(u32::MAX);
            data.blocks.push(self.insert_stored_block(id, parent, length));
            left -= u64::from(length);
        }
        let place = Destination { parent, name, is_listed: true, ttl: None };
        self.insert_unbound(id, place, ObjectBody::Data(data));
        self.bind(id, parent, name);
        if bytes > 0 {
            self.durables.adopt(id, bytes);
        }
    }

    fn insert_stored_block(&mut self, object: ObjectId, parent: ObjectId, length: u32) -> BlockId {
        let id = self.ids.next_block();
        let block = Block {
            object,
            job: self.objects[&parent].job,
            epoch: Epoch(1),
            epoch_last: Epoch(1),
            length,
            reserved: 0,
            bytes_max: length,
            home: None,
            lost_on: NodeId(0),
            tier: Tier::Dram,
            state: BlockState::Stored,
            moving: None,
            copy: None,
        };
        self.blocks.insert(id, block, &mut self.nodes, &mut self.jobs);
        id
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;

    use super::*;

    #[test]
    fn name_that_is_no_path_has_the_refusal_as_its_source() {
        let refusal = "/a//b".parse::<Path>().expect_err("a name is empty");
        let fault = AdoptFault::Path(refusal.clone());
        assert_eq!(fault.to_string(), refusal.to_string());
        assert_eq!(fault.source().and_then(|it| it.downcast_ref()), Some(&refusal));
        let large = AdoptFault::TooLarge { bytes: ADOPTED_BYTES_MAX + 1 };
        let expected = format!("it has {} of {ADOPTED_BYTES_MAX} bytes", ADOPTED_BYTES_MAX + 1);
        assert_eq!(large.to_string(), expected);
    }
}
