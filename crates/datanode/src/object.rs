//! Blocks in a store outside of the fleet: a directory that all nodes see, or an S3 bucket.
//!
//! An object is a block as it was when it was put there, followed by a trailer with its block
//! id and checksum, so that nothing depends on what a store keeps beside the
//! bytes. An object is written once and never changes: its name has the epoch, and the namenode
//! gives each epoch of a block to one copy only. It outlives the node that wrote it; any node with
//! the tier can serve it from its name alone, if it has the same key or neither has one.

pub(crate) mod caller;
pub(crate) mod collect;
mod create_bucket;
pub(crate) mod encryption;
pub(crate) mod failure;
mod garbage;
mod options;
mod reader;
pub(crate) mod trailer;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};
use parking_lot::Mutex;
use sanderling_core::shared_room::RoomBounds;
use sanderling_protocol::order::Damage;
use sanderling_protocol::token::read_hex;
use sanderling_protocol::{BlockId, ClusterId, Epoch, Millis, Refusal, Tier, amount};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::caller::OperationCaller;
pub use self::create_bucket::CreateBucketError;
pub use self::encryption::EncryptionMismatch;
use self::encryption::{END_BYTES, End, ObjectEncryption};
use self::failure::{failed, is_full, short};
use self::garbage::Garbage;
pub use self::options::{ObjectOptions, ObjectTierError, UnusableStore};
use self::reader::BlockFetcher;
use self::trailer::{TierKey, Trailer};
use crate::capacity::Capacity;
use crate::chunk_sums::ChunkSums;
use crate::encryption_key::EncryptionKey;
use crate::fair_room::RoomPermit;
use crate::tier::{ReadError, TierBytes, not_fetched};

/// Operations on the store at once: 64 MiB of blocks on the way. At 50 ms for a block they carry
/// 1.25 GiB/s, as much as a link of 10 Gbit/s. Chosen, not measured.
const OPERATIONS_MAX: usize = 64;

/// Most operations that wait for their turn; the next one is refused. Sixteen turns of
/// [`OPERATIONS_MAX`]: at 100 ms for one, the last waits 1.6 s of the 5 s that it has by default.
/// They may hold a block each, so it bounds memory as well.
const OPERATIONS_WAITING_MAX: usize = 1024;

/// The same bounds for what callers request, in which each tenant has a share. The node's own
/// operations need no place there.
pub(crate) const OBJECT_OPERATIONS: RoomBounds =
    RoomBounds { units_max: OPERATIONS_MAX as u64, waiting_max: OPERATIONS_WAITING_MAX };

/// What a caller lacks if its operation is one too many; part of the text of its refusal.
pub(crate) const OBJECT_TIER_BUSY: &str = "place for another operation of the object tier";

/// Objects that are looked at when a node starts: nodes of one store have one key. More than one,
/// because an object may vanish meanwhile or be left by another program.
const LOOKED_AT_MAX: usize = 4;

/// Entries of the store that are passed over on the way to them. One page of S3's listing, so one
/// request; a store with as many foreign entries in front is opened unchecked, and each read is
/// still checked.
const LISTED_MAX: usize = 1000;

/// When a caller that was one too many may try again. About the time of one operation on a bucket,
/// after which up to [`OPERATIONS_MAX`] places are free. Chosen, not measured.
const BUSY_RETRY: Millis = Millis(100);

/// The object tier.
#[derive(Debug)]
pub(crate) struct ObjectTier {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Set when the node has joined; a node never changes its cluster.
    cluster: OnceLock<ClusterId>,
    capacity: Capacity,
    options: ObjectOptions,
    encryption: ObjectEncryption,
    garbage: Garbage,
    operations: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    reader: Mutex<BlockFetcher>,
}

/// A block that this node serves from the object tier. What becomes of the object is not decided
/// here: it stays when this value goes.
#[derive(Debug)]
pub(crate) struct ObjectBytes {
    tier: Arc<ObjectTier>,
    key: TierKey,
    accounted_bytes: u64,
}

/// The bytes of an object, verified, with their checksums.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    pub(crate) bytes: Bytes,
    pub(crate) sums: ChunkSums,
}

impl ObjectTier {
    /// Opens the store and looks whether it answers. With a key objects are encrypted, and only
    /// those are read that are.
    ///
    /// # Errors
    /// [`ObjectTierError`]: the URL or the store's configuration is wrong, or it does not answer.
    pub(crate) async fn open(
        options: ObjectOptions,
        key: Option<EncryptionKey>,
    ) -> Result<Arc<Self>, ObjectTierError> {
        let (store, prefix) = options.store()?;
        let url = options.url.clone();
        let first = timeout(options.time_max, store.list(Some(&prefix)).next()).await;
        match first {
            Ok(None | Some(Ok(_))) => {}
            Ok(Some(Err(error))) => {
                return Err(ObjectTierError::Unusable { url, cause: Box::new(error.into()) });
            }
            Err(_) => {
                let cause = Box::new(UnusableStore::Silent { waited: options.time_max });
                return Err(ObjectTierError::Unusable { url, cause });
            }
        }
        Ok(Arc::new(Self {
            store,
            prefix,
            cluster: OnceLock::new(),
            capacity: Capacity::new(Tier::Object, options.bytes),
            options,
            encryption: ObjectEncryption::new(key),
            garbage: Garbage::default(),
            operations: Arc::new(Semaphore::new(OPERATIONS_MAX)),
            waiting: Arc::new(Semaphore::new(OPERATIONS_WAITING_MAX)),
            reader: Mutex::default(),
        }))
    }

    /// Returns the bytes of objects that this node serves, as the namenode counts them.
    pub(crate) const fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Returns the objects that may be of no use any more.
    pub(crate) const fn garbage(&self) -> &Garbage {
        &self.garbage
    }

    /// Learns the cluster, without which no object has a name.
    pub(crate) fn join(&self, cluster: ClusterId) {
        self.cluster.get_or_init(|| cluster);
    }

    fn cluster(&self) -> Result<ClusterId, Refusal> {
        self.cluster.get().copied().ok_or_else(|| failed("the node has not joined yet"))
    }

    /// Returns the name of everything that the cluster keeps in the store.
    fn directory(&self) -> Result<Path, Refusal> {
        Ok(self.directory_of(self.cluster()?))
    }

    fn directory_of(&self, cluster: ClusterId) -> Path {
        self.prefix.clone().join(cluster.to_string())
    }

    /// Looks whether this node can read what a cluster has in the store, by some of its objects.
    ///
    /// # Errors
    /// [`ObjectTierError::Unreadable`]: start the node with the cluster's key, or without one.
    pub(crate) async fn check_key(
        self: &Arc<Self>,
        cluster: ClusterId,
    ) -> Result<(), ObjectTierError> {
        let listed = self.store.list(Some(&self.directory_of(cluster)));
        let mut listed = listed.take(LISTED_MAX);
        let mut looked_at = 0;
        while looked_at < LOOKED_AT_MAX
            && let Ok(Some(Ok(meta))) = timeout(self.options.time_max, listed.next()).await
        {
            if key_of(&meta).is_none() {
                continue;
            }
            looked_at += 1;
            let found = self.end_of(meta.location.clone()).await;
            // What cannot be looked at now is looked at when it is read.
            let Ok(Ok((_, end))) = found else { continue };
            self.encryption.check(end).map_err(|cause| ObjectTierError::Unreadable {
                url: self.options.url.clone(),
                object: meta.location.to_string(),
                cause,
            })?;
        }
        Ok(())
    }

    /// Returns the size of an object, and what its end shows.
    async fn end_of(
        self: &Arc<Self>,
        path: Path,
    ) -> Result<Result<(u64, End), object_store::Error>, Refusal> {
        let store = Arc::clone(&self.store);
        self.operate(None, async move {
            let range = Some(GetRange::Suffix(END_BYTES as u64));
            let found =
                store.get_opts(&path, GetOptions { range, ..GetOptions::default() }).await?;
            let bytes = found.meta.size;
            Ok((bytes, End::of(&found.bytes().await?)))
        })
        .await
    }

    fn path(&self, (block, epoch): TierKey) -> Result<Path, Refusal> {
        Ok(self.directory()?.join(format!("{:016x}-{}", block.0, epoch.0)))
    }

    /// Puts a whole block there. When this returns the store has it for good.
    ///
    /// # Errors
    /// [`Refusal::NodeFull`]: the tier's limit, or the disk under a directory, is reached.
    /// [`Refusal::TierFailed`], [`Refusal::RetryAfter`]: the store failed, is slow or busy. Whether
    /// the object is there or comes to be is then unknown.
    pub(crate) async fn put(
        self: &Arc<Self>,
        key: TierKey,
        bytes: Bytes,
        checksum: u32,
        caller: &OperationCaller,
    ) -> Result<ObjectBytes, Refusal> {
        let length = bytes.len() as u32;
        let held = self.reserved(key, length)?;
        let trailer = Trailer { block: key.0, epoch: key.1, length, checksum };
        let path = self.path(key)?;
        let object = self.encryption.encrypt(self.cluster()?, key, bytes, &trailer);
        let payload = PutPayload::from_iter(object);
        let store = Arc::clone(&self.store);
        let put = async move { store.put(&path, payload).await };
        let done = match self.operate_for(caller, put).await {
            Ok(done) => done.map_err(|error| self.refusal(&error, u64::from(length))),
            Err(refusal) => Err(refusal),
        };
        match done {
            Ok(_) => {
                self.reader.lock().appeared(key);
                Ok(held)
            }
            Err(refusal) => {
                self.garbage.add_later(key);
                Err(refusal)
            }
        }
    }

    /// Forgets what was fetched of a block: it has changed in this node's memory.
    pub(crate) fn fetch_again(&self, block: BlockId) {
        self.reader.lock().forget_block(block);
    }

    /// Accounts for a block that is there already.
    pub(crate) fn adopted(self: &Arc<Self>, key: TierKey, length: u32) -> ObjectBytes {
        let accounted_bytes = self.capacity.take(length);
        ObjectBytes { tier: Arc::clone(self), key, accounted_bytes }
    }

    fn reserved(self: &Arc<Self>, key: TierKey, length: u32) -> Result<ObjectBytes, Refusal> {
        let accounted_bytes = self.capacity.reserve(length)?;
        Ok(ObjectBytes { tier: Arc::clone(self), key, accounted_bytes })
    }

    /// Returns the length of the block in an object; `None` when there is no such object.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub(crate) async fn length(self: &Arc<Self>, key: TierKey) -> Result<Option<u32>, Refusal> {
        let found = self.end_of(self.path(key)?).await?;
        match found {
            Ok((bytes, end)) => {
                self.check_end(key, end)?;
                let extra = self.encryption.extra_bytes();
                let length = Trailer::length_within(bytes, extra);
                length.map(Some).map_err(|error| failed(error.to_string()))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.refusal(&error, 0)),
        }
    }

    /// Refuses an object that was written with another key, or with one and without one. That is a
    /// mistake in how a node was started: nothing is damaged.
    fn check_end(&self, (block, epoch): TierKey, end: End) -> Result<(), Refusal> {
        self.encryption.check(end).map_err(|mismatch| {
            tracing::error!(%block, %epoch, "an object cannot be read: {mismatch}");
            failed(format!("block {block} at {epoch} cannot be read: {mismatch}"))
        })
    }

    /// Removes an object; one that is not there has been removed.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub(crate) async fn remove(self: &Arc<Self>, key: TierKey) -> Result<(), Refusal> {
        let path = self.path(key)?;
        let store = Arc::clone(&self.store);
        self.reader.lock().forget(key);
        let removed = self.operate(None, async move { store.delete(&path).await }).await?;
        match removed {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.refusal(&error, 0)),
        }
    }

    /// Lists the cluster's objects in the store, each with its age; objects with names that no
    /// datanode writes are `None`.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub(crate) fn list(&self) -> Result<impl futures_util::Stream<Item = Listed> + use<>, Refusal> {
        let listed = self.store.list(Some(&self.directory()?));
        Ok(listed.map(|found| match found {
            Ok(meta) => Ok(key_of(&meta).map(|key| (key, age_of(&meta)))),
            Err(error) => Err(failed(short(&error))),
        }))
    }

    /// Returns whether the store has any object of the cluster.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    async fn has_any(self: &Arc<Self>, caller: &OperationCaller) -> Result<bool, Refusal> {
        let mut listed = self.store.list(Some(&self.directory()?));
        match self.operate_for(caller, async move { listed.next().await }).await? {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) => Err(self.refusal(&error, 0)),
        }
    }

    /// Does one operation for a caller, once that has a place, on a task of its own.
    async fn operate_for<T, F>(
        self: &Arc<Self>,
        caller: &OperationCaller,
        operation: F,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let tier = Arc::clone(self);
        let working = caller
            .begin(move |place| tokio::spawn(async move { tier.operate(place, operation).await }));
        working.await?.await.unwrap_or_else(|error| Err(failed(error.to_string())))
    }

    /// Does one operation on the store, within the deadline and the bounds of the tier. One that
    /// does not end in time keeps its place until it ends, and that of its caller: a store that
    /// hangs is not given more and more to do.
    async fn operate<T, F>(
        &self,
        callers_place: Option<RoomPermit>,
        operation: F,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() else {
            let why = "the object tier has too much to do".to_owned();
            return Err(Refusal::RetryAfter { after: BUSY_RETRY, why });
        };
        let operations = Arc::clone(&self.operations);
        let working = tokio::spawn(async move {
            let permit = operations.acquire_owned().await.expect("the semaphore is never closed");
            let done = operation.await;
            drop((permit, place, callers_place));
            done
        });
        match timeout(self.options.time_max, working).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => {
                tracing::warn!(url = %self.options.url, "the object tier does not answer");
                let within = amount::duration(self.options.time_max);
                Err(failed(format!("no answer within {within}")))
            }
        }
    }

    fn refusal(&self, error: &object_store::Error, bytes: u64) -> Refusal {
        if is_full(error) {
            return Refusal::NodeFull { tier: Tier::Object.to_string(), bytes };
        }
        tracing::error!(url = %self.options.url, %error, "the object tier failed");
        failed(short(error))
    }
}

/// One entry of the store: `None` when it is none of ours.
pub(crate) type Listed = Result<Option<(TierKey, Duration)>, Refusal>;

impl ObjectBytes {
    pub(crate) const fn key(&self) -> TierKey {
        self.key
    }

    /// Looks whether the object is there and has so many bytes of the block. Only one that seems to
    /// have fewer is fetched.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub(crate) async fn look(&self, length: u32) -> Result<(), ReadError> {
        let tier = &self.tier;
        match tier.end_of(tier.path(self.key)?).await? {
            Ok((bytes, end)) => {
                let found = Trailer::length_within(bytes, tier.encryption.extra_bytes());
                if tier.encryption.check(end).is_ok() && found.is_ok_and(|found| found >= length) {
                    return Ok(());
                }
            }
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(tier.refusal(&error, 0).into()),
        }
        tier.fetch_again(self.key.0);
        self.fetch(&OperationCaller::Node).await.map(drop)
    }

    /// Fetches the whole block for a caller, verified.
    ///
    /// # Errors
    /// As [`ObjectTier::fetch_twice`]; [`ReadError::Damaged`] also when the object, which was there
    /// when the node began to serve it, is not there and others are: a directory that is not
    /// mounted, or a bucket that was renamed, has none.
    pub(crate) async fn fetch(&self, caller: &OperationCaller) -> Result<Fetched, ReadError> {
        if let Some(fetched) = self.tier.fetch_twice(self.key, caller).await? {
            return Ok(fetched);
        }
        if self.tier.has_any(caller).await? {
            return Err(ReadError::Damaged(Damage::Missing));
        }
        let why = format!("block {} at {} is missing, as is all else", self.key.0, self.key.1);
        Err(failed(why).into())
    }
}

/// The bytes have to be fetched first.
impl TierBytes for ObjectBytes {}

impl TierBytes for Fetched {
    fn sums(&self) -> Option<&ChunkSums> {
        Some(&self.sums)
    }

    fn raw(&self, offset: u32, bytes: u32) -> Result<Vec<Bytes>, ReadError> {
        let range = offset as usize..offset as usize + bytes as usize;
        let range = self.bytes.get(range).ok_or_else(not_fetched)?;
        Ok(vec![self.bytes.slice_ref(range)])
    }
}

impl Drop for ObjectBytes {
    fn drop(&mut self) {
        self.tier.capacity.release(self.accounted_bytes);
    }
}

fn key_of(meta: &ObjectMeta) -> Option<TierKey> {
    let (block, epoch) = meta.location.filename()?.split_once('-')?;
    Some((BlockId(read_hex(block)?), Epoch(epoch.parse().ok()?)))
}

fn age_of(meta: &ObjectMeta) -> Duration {
    let modified = std::time::SystemTime::from(meta.last_modified);
    modified.elapsed().unwrap_or_default()
}

#[cfg(test)]
mod tests;
