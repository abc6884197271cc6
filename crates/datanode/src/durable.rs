//! Stores outside of the cluster that durable directories are copied to.
//!
//! A store has the objects of one durable directory under their relative names, as any tool reads
//! them. Parts of an object are sent ahead and stay invisible; completing the upload gives them
//! their name at once. The manager decides what is sent and completed: see
//! [`sanderling_core::durable`]. Whose a store is, and which orders are too late, is decided there,
//! too.

mod bucket;
mod files;
mod left_uploads;
mod listing;
mod opened_directories;
mod options;
mod overlaps;
mod own_names;
mod read_yield;
pub(crate) mod report;
mod send_window;
mod store_error;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::datanode::{PartJoins, long_part_memory};
use sanderling_core::durable::{
    LeftUpload, NamedOwner, OwnerCheck, OwnerStep, STORE_OPERATION_MAX, SeenOwner, not_begun,
    part_within,
};
use sanderling_protocol::message::StoreSlice;
use sanderling_protocol::order::StoreChange;
use sanderling_protocol::{ClusterId, Millis, ObjectId, Refusal, amount};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::bucket::Bucket;
use self::files::Files;
use self::left_uploads::{BegunUpload, LeftList};
use self::options::check_apart;
pub use self::options::{DurableOptions, DurableStoreError};
pub(crate) use self::read_yield::ClientReads;
use self::read_yield::{OrderUnderWay, ReadYield};
use self::send_window::SendWindow;
use self::store_error::StoreError;
use crate::clock::ProcessClock;

/// Longest time to list a part of a store. The manager waits 64 s for the answer. A part has two of
/// S3's pages, which take well under a second each; a store that hangs is reported instead.
const LISTING_MAX: Duration = Duration::from_secs(60);

/// Longest time for a look at where the directories of the stores are. A file system that hangs is
/// as one that is away, and the start goes on. Chosen, not measured.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Pause before uploads that orders have left are tried to be ended again. Half of the longest
/// pause after which the manager tries a store again: they are gone about when its objects are
/// there. An upload that stays meanwhile costs its bytes and nothing else. Chosen, not measured.
const LEFT_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Bytes of the units in which memory for joined parts is counted.
const JOINED_UNIT_BYTES: u64 = 64 << 10;

/// The stores that this node reaches, by name.
#[derive(Debug)]
pub(crate) struct DurableStores {
    stores: BTreeMap<String, DurableStore>,
    /// Units of memory for parts that are joined with the one before.
    joined_parts: Semaphore,
    /// The parts that are under way to all of them.
    sending: Arc<ReadYield>,
    /// The bytes of all these units.
    joined_bytes: u64,
    /// One part of a huge object is in memory at a time.
    long_part: Semaphore,
    /// Uploads that orders have left in the stores.
    left: LeftList,
    clock: ProcessClock,
}

/// A part that may be joined with the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JoinablePart {
    /// Its bytes.
    pub(crate) bytes: u64,
    /// The memory that they take until they are sent.
    pub(crate) memory: u64,
}

/// Successive parts of an upload that one request sends, and the memory that they take.
pub(crate) struct JoinedParts<'a> {
    /// How many they are.
    pub(crate) count: usize,
    /// The memory of those after the first.
    _memory: Option<SemaphorePermit<'a>>,
}

/// The memory of a part of a huge object.
pub(crate) struct LongPart<'a> {
    _alone: SemaphorePermit<'a>,
    /// What it leaves to no joined parts.
    _memory: SemaphorePermit<'a>,
}

/// Names the durable directory that a store must belong to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreOwner {
    pub(crate) cluster: ClusterId,
    pub(crate) directory: ObjectId,
    /// Whether an empty place becomes this directory's.
    pub(crate) may_claim: bool,
}

impl StoreOwner {
    /// Returns how it is named in the store.
    fn text(&self) -> String {
        format!("cluster {} directory {}", self.cluster, self.directory.0)
    }
}

/// One store.
#[derive(Debug)]
struct DurableStore {
    url: String,
    medium: Medium,
    /// The owner that the store was seen to have.
    owner: Mutex<SeenOwner>,
    clock: ProcessClock,
    /// How long its parts may be.
    joins: Mutex<PartJoins>,
    /// How many of them may be under way.
    window: SendWindow,
}

#[derive(Debug)]
enum Medium {
    Files(Arc<Files>),
    Bucket(Bucket),
}

/// Refuses the stores that the start of a datanode refuses; no store receives a request.
///
/// # Errors
/// [`DurableStoreError`]: a URL or the settings are wrong, two stores have one name, or one is in
/// another one; correct the options.
pub async fn check_durable_stores(options: &[DurableOptions]) -> Result<(), DurableStoreError> {
    DurableStores::open(options, 0).await.map(drop)
}

/// Refuses stores of one datanode of which one lies in another one, by their URLs and then by where
/// their directories are. The file systems of these get 5 s; a look that takes longer is a warning
/// in the log.
async fn check_stores_apart(options: &[DurableOptions]) -> Result<(), DurableStoreError> {
    if options.len() < 2 {
        return Ok(());
    }
    check_apart(options, DurableOptions::named_place)?;
    let looked = options.to_vec();
    let looking = spawn_blocking(move || check_apart(&looked, DurableOptions::place));
    if let Ok(Ok(looked)) = timeout(LOOK_MAX, looking).await {
        return looked;
    }
    tracing::warn!("a durable store does not answer: not checked whether one is in another one");
    Ok(())
}

impl DurableStores {
    /// Opens stores, with so many bytes of memory for joined parts. One that is away now is no
    /// reason not to start: it is used when it is back.
    ///
    /// # Errors
    /// [`DurableStoreError`]: a URL or the settings are wrong, two stores have one name, or one is
    /// in another one.
    pub(crate) async fn open(
        options: &[DurableOptions],
        joined_bytes: u64,
    ) -> Result<Self, DurableStoreError> {
        options.iter().try_for_each(DurableOptions::refuse_users)?;
        let (mut stores, clock) = (BTreeMap::new(), ProcessClock::start());
        let sending = Arc::new(ReadYield::new());
        for one in options {
            let (url, medium) = (one.url.clone(), one.open()?);
            let (owner, joins) = (Mutex::default(), Mutex::default());
            let window = SendWindow::new(Arc::clone(&sending));
            let store = DurableStore { url, medium, owner, clock, joins, window };
            if stores.insert(one.name.clone(), store).is_some() {
                return Err(DurableStoreError::Twice { name: one.name.clone() });
            }
        }
        check_stores_apart(options).await?;
        let units = usize::try_from(joined_bytes / JOINED_UNIT_BYTES).unwrap_or_default();
        let (joined_parts, long_part) = (Semaphore::new(units), Semaphore::new(1));
        let joined_bytes = units as u64 * JOINED_UNIT_BYTES;
        let left = LeftList::default();
        Ok(Self { stores, joined_parts, joined_bytes, long_part, sending, left, clock })
    }

    /// Lets uploads give way from now on to clients whose reads this counts: nothing else limits
    /// what the node sends.
    pub(crate) fn yield_to(&self, reads: impl Fn() -> ClientReads + Send + Sync + 'static) {
        self.sending.watch(reads);
    }

    /// Counts an order of so many bytes, which are to be sent in its time.
    pub(crate) fn order(&self, bytes: u64) -> OrderUnderWay<'_> {
        self.sending.order(bytes)
    }

    fn find(&self, name: &str) -> Result<&DurableStore, Refusal> {
        self.stores.get(name).ok_or_else(|| Refusal::BadRequest {
            why: format!("this datanode has no store named {name}"),
        })
    }

    /// Begins an upload.
    ///
    /// # Errors
    /// [`Refusal::TierFailed`]: the store failed, is slow, or is another directory's.
    pub(crate) async fn begin(
        &self,
        owner: StoreOwner,
        store: &str,
        key: &str,
    ) -> Result<String, Refusal> {
        let found = self.find(store)?;
        found.within(store, found.check_owner(owner)).await?;
        found.within(store, found.begin(key)).await.map_err(|refusal| for_name(refusal, key))
    }

    /// Takes an upload that an order has begun. It is ended later, unless the order is done with
    /// it.
    pub(crate) fn begun(
        &self,
        owner: StoreOwner,
        store: &str,
        key: &str,
        upload: &str,
    ) -> BegunUpload<'_> {
        let StoreOwner { cluster, directory, .. } = owner;
        let [store, key, upload] = [store, key, upload].map(str::to_owned);
        let since = self.clock.now();
        self.left.begun(LeftUpload { cluster, directory, store, key, upload, since })
    }

    /// Ends the uploads that orders have left, until the node stops.
    pub(crate) async fn end_left(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let ending = async {
                sleep(LEFT_RETRY_INTERVAL).await;
                self.end_left_once().await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = ending => {}
            }
        }
    }

    /// Ends what orders have left.
    async fn end_left_once(&self) {
        let mut round = self.left.round();
        while let Some(left) = self.left.next(&mut round, self.clock.now()) {
            let (cluster, directory) = (left.cluster, left.directory);
            let owner = StoreOwner { cluster, directory, may_claim: false };
            let LeftUpload { store, key, upload, .. } = &left;
            match self.abort(owner, store, key, upload).await {
                Ok(()) => tracing::debug!(store, key, "an upload that was left is ended"),
                Err(error) => {
                    tracing::debug!(store, key, %error, "an upload that was left is not ended yet");
                    round.failed(left);
                }
            }
        }
        self.left.end(round, self.clock.now());
    }

    /// Returns which of the first of these parts are to be sent as one. A store in a directory has
    /// no requests that could be fewer.
    pub(crate) fn joined(&self, store: &str, parts: &[JoinablePart]) -> JoinedParts<'_> {
        let alone = JoinedParts { count: 1, _memory: None };
        let Some(found) = self.stores.get(store) else { return alone };
        if matches!(found.medium, Medium::Files(_)) {
            return alone;
        }
        let bytes: Vec<u64> = parts.iter().map(|part| part.bytes).collect();
        let count = found.joins.lock().joined(&bytes);
        assert!(count == 1 || count <= parts.len(), "only parts that are there are joined");
        let later: u64 = parts.iter().take(count).skip(1).map(|part| part.memory).sum();
        let units = u32::try_from(later.div_ceil(JOINED_UNIT_BYTES)).unwrap_or(u32::MAX);
        match self.joined_parts.try_acquire_many(units) {
            Ok(memory) => JoinedParts { count, _memory: Some(memory) },
            Err(_) => alone,
        }
    }

    /// Returns whether a store takes bytes at any offset: its parts need not be in memory whole.
    pub(crate) fn takes_pieces(&self, store: &str) -> bool {
        self.stores.get(store).is_some_and(|found| matches!(found.medium, Medium::Files(_)))
    }

    /// Waits until a part may be in memory whole; `None` if it is as short as most are. The one
    /// before ends, and joined parts leave as much of their memory as it takes.
    pub(crate) async fn long_part(&self, part: JoinablePart) -> Option<LongPart<'_>> {
        let bytes = long_part_memory(part.bytes, part.memory, self.joined_bytes)?;
        let units = u32::try_from(bytes / JOINED_UNIT_BYTES).unwrap_or(u32::MAX);
        let alone = self.long_part.acquire().await;
        let memory = self.joined_parts.acquire_many(units).await;
        let never = "the semaphores are never closed";
        Some(LongPart { _alone: alone.expect(never), _memory: memory.expect(never) })
    }

    /// Sends one part of an upload, once those under way and clients that read leave it room.
    /// Returns what the store answered.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub(crate) async fn send(
        &self,
        store: &str,
        (key, upload): (&str, &str),
        (number, offset): (u32, u64),
        part: Vec<Bytes>,
    ) -> Result<String, Refusal> {
        let (found, bytes) = (self.find(store)?, part.iter().map(|piece| piece.len() as u64).sum());
        let mut under_way = found.window.begin(bytes).await;
        let began = Instant::now();
        let sending = found.send(key, upload, (number, offset), part);
        let sent = found.for_at_most(part_within(bytes).into(), store, sending).await;
        match &sent {
            Ok(_) => {
                found.joins.lock().sent(bytes, began.elapsed().into());
                under_way.taken();
            }
            Err(_) => found.joins.lock().failed(bytes),
        }
        drop(under_way);
        sent.map_err(|refusal| for_bytes(refusal, bytes))
    }

    /// Makes one change visible.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: the owner of the store cannot be read, or is another one, and
    /// nothing was changed. Else as [`Self::begin`]; whether it was made is then unknown.
    pub(crate) async fn change(
        &self,
        owner: StoreOwner,
        store: &str,
        change: &StoreChange,
    ) -> Result<(), Refusal> {
        let found = self.find(store)?;
        found.within(store, found.check_owner(owner)).await.map_err(not_begun)?;
        let changed = found.within(store, found.change(owner, change)).await;
        changed.map_err(|refusal| for_name(refusal, key_of(change)))
    }

    /// Reads a range, (offset, bytes), of an object of so many bytes; `None` if there is no such
    /// object.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub(crate) async fn fetch(
        &self,
        owner: StoreOwner,
        store: &str,
        object: (&str, u64),
        range: (u64, u32),
    ) -> Result<Option<Bytes>, Refusal> {
        let found = self.find(store)?;
        found.within(store, found.check_owner(owner)).await?;
        found.within(store, found.fetch(owner, object, range)).await
    }

    /// Makes a store that has objects its new owner's, and ends what the former one has begun
    /// there. Returns how long that may still change it.
    ///
    /// # Errors
    /// As [`Self::begin`], and the store has neither an owner nor objects.
    pub(crate) async fn take(&self, owner: StoreOwner, store: &str) -> Result<Millis, Refusal> {
        let found = self.find(store)?;
        found.within(store, found.take(owner)).await
    }

    /// Lists a part of what a store has, after a name.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub(crate) async fn list(
        &self,
        owner: StoreOwner,
        store: &str,
        after: &str,
    ) -> Result<StoreSlice, Refusal> {
        let found = self.find(store)?;
        found.within(store, found.check_owner(owner)).await?;
        found.for_at_most(LISTING_MAX, store, found.list(owner, after)).await
    }

    /// Ends an upload, so that it can never be completed.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub(crate) async fn abort(
        &self,
        owner: StoreOwner,
        store: &str,
        key: &str,
        upload: &str,
    ) -> Result<(), Refusal> {
        let found = self.find(store)?;
        found.within(store, found.check_owner(owner)).await?;
        found.within(store, found.abort(owner, key, upload)).await
    }
}

/// Names in a refusal of a name which it is.
fn for_name(refusal: Refusal, key: &str) -> Refusal {
    match refusal {
        Refusal::BadPath { why, .. } => Refusal::BadPath { path: key.to_owned(), why },
        refusal => refusal,
    }
}

/// Returns the name of an object that a change is about.
fn key_of(change: &StoreChange) -> &str {
    match change {
        StoreChange::Complete { key, .. }
        | StoreChange::Remove { key, .. }
        | StoreChange::RemoveTree { key, .. } => key,
    }
}

/// Names in a refusal for want of room how many bytes were to be stored.
fn for_bytes(refusal: Refusal, bytes: u64) -> Refusal {
    match refusal {
        Refusal::NodeFull { tier, .. } => Refusal::NodeFull { tier, bytes },
        refusal => refusal,
    }
}

impl DurableStore {
    async fn within<T>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Refusal> {
        self.for_at_most(STORE_OPERATION_MAX.into(), name, work).await
    }

    async fn for_at_most<T>(
        &self,
        most: Duration,
        name: &str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Refusal> {
        let shown = |why: String| {
            let why = format!("the store {name} at {}: {why}", self.url);
            tracing::debug!(store = name, %why, "a store failed");
            why
        };
        let failed = |why| Refusal::TierFailed { tier: "durable".to_owned(), why: shown(why) };
        match timeout(most, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) if error.is_full() => {
                let tier = format!("durable ({name} at {})", self.url);
                Err(Refusal::NodeFull { tier, bytes: 0 })
            }
            // The manager reports it, so that the object may be deleted.
            Ok(Err(error)) if error.is_no_name() => {
                Err(Refusal::BadPath { path: String::new(), why: shown(error.to_string()) })
            }
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("no answer within {}", amount::duration(most)))),
        }
    }

    /// Returns whose the store is; `None` if no directory has used it.
    async fn owner_there(&self) -> Result<Option<NamedOwner>, StoreError> {
        let found = match &self.medium {
            Medium::Files(files) => files.read_owner().await?,
            Medium::Bucket(bucket) => bucket.read_owner().await?,
        };
        Ok(found.as_deref().map(NamedOwner::of))
    }

    /// Names the owner unless there is one.
    async fn write_owner(&self, owner: &str) -> Result<(), StoreError> {
        match &self.medium {
            Medium::Files(files) => files.write_owner(owner).await,
            Medium::Bucket(bucket) => bucket.write_owner(owner).await,
        }
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        match &self.medium {
            Medium::Files(files) => files.is_empty().await,
            Medium::Bucket(bucket) => bucket.is_empty().await,
        }
    }

    async fn take(&self, owner: StoreOwner) -> Result<Millis, StoreError> {
        let wanted = owner.text();
        let settles_in = match &self.medium {
            // No change of the former owner is under way, and no upload of it can be completed.
            Medium::Files(files) => files.take(&wanted).await?.then_some(Millis(0)),
            Medium::Bucket(bucket) => {
                bucket.take(&wanted).await?.map(|found| found.settles_in(&wanted))
            }
        };
        let check = match settles_in {
            Some(_) => OwnerCheck::new(wanted.clone(), false),
            None => OwnerCheck::adopting(wanted.clone()),
        };
        self.run(check, wanted).await?;
        Ok(settles_in.unwrap_or_default())
    }

    async fn fetch(
        &self,
        owner: StoreOwner,
        (key, bytes): (&str, u64),
        (offset, length): (u64, u32),
    ) -> Result<Option<Bytes>, StoreError> {
        match &self.medium {
            Medium::Files(files) => {
                let fetched = files.fetch(key, bytes, offset, length).await?;
                if fetched.is_none() {
                    self.check_still_there(owner).await?;
                }
                Ok(fetched)
            }
            Medium::Bucket(bucket) => bucket.fetch(key, bytes, offset, length).await,
        }
    }

    async fn list(&self, owner: StoreOwner, after: &str) -> Result<StoreSlice, StoreError> {
        match &self.medium {
            Medium::Files(files) => {
                let slice = files.list(after).await?;
                self.check_still_there(owner).await?;
                Ok(slice)
            }
            Medium::Bucket(bucket) => bucket.list(after).await,
        }
    }

    /// Checks that the store is this directory's after an operation that may not have found a name.
    /// If it was unmounted or moved meanwhile, every name in it seems to be missing.
    async fn check_still_there(&self, owner: StoreOwner) -> Result<(), StoreError> {
        self.check_owner(StoreOwner { may_claim: false, ..owner }).await
    }

    /// Checks that the store is this directory's, and makes it so if it is empty.
    async fn check_owner(&self, owner: StoreOwner) -> Result<(), StoreError> {
        let wanted = owner.text();
        let may_vanish = matches!(self.medium, Medium::Files(_));
        if self.owner.lock().holds(self.clock.now(), &wanted, may_vanish) {
            return Ok(());
        }
        self.run(OwnerCheck::new(wanted.clone(), owner.may_claim), wanted).await
    }

    /// Does the steps of a look at whose the store is.
    async fn run(&self, mut check: OwnerCheck, wanted: String) -> Result<(), StoreError> {
        let mut looked_at = self.clock.now();
        loop {
            match check.step() {
                OwnerStep::ReadOwner => {
                    looked_at = self.clock.now();
                    let found = self.owner_there().await?;
                    check.found_owner(found.as_ref());
                }
                OwnerStep::LookForObjects => {
                    let is_empty = self.is_empty().await?;
                    check.found_objects(is_empty);
                }
                OwnerStep::NameOwner => {
                    self.write_owner(&wanted).await?;
                    check.named();
                }
                OwnerStep::Ended(Ok(())) => {
                    self.owner.lock().seen(looked_at, wanted);
                    return Ok(());
                }
                OwnerStep::Ended(Err(refusal)) => return Err(refusal.into()),
            }
        }
    }

    async fn begin(&self, key: &str) -> Result<String, StoreError> {
        match &self.medium {
            Medium::Files(files) => {
                files.begin().await.map_err(|error| error.at(".sanderling/uploads"))
            }
            Medium::Bucket(bucket) => bucket.begin(key).await,
        }
    }

    async fn send(
        &self,
        key: &str,
        upload: &str,
        (number, offset): (u32, u64),
        part: Vec<Bytes>,
    ) -> Result<String, StoreError> {
        match &self.medium {
            Medium::Files(files) => {
                files.send(upload, offset, part).await.map_err(|error| error.at(key))
            }
            Medium::Bucket(bucket) => bucket.send(key, upload, number, part).await,
        }
    }

    async fn change(&self, owner: StoreOwner, change: &StoreChange) -> Result<(), StoreError> {
        let owner = owner.text();
        match (&self.medium, change) {
            (Medium::Files(files), StoreChange::Complete { key, upload, bytes, .. }) => {
                files.complete(&owner, (key, upload), *bytes).await.map_err(|error| error.at(key))
            }
            (Medium::Files(files), StoreChange::Remove { key, .. }) => {
                files.remove(&owner, key).await.map_err(|error| error.at(key))
            }
            (Medium::Files(files), StoreChange::RemoveTree { key, .. }) => {
                files.remove_tree(&owner, key).await.map_err(|error| error.at(key))
            }
            (Medium::Bucket(bucket), StoreChange::Complete { key, upload, parts, bytes }) => {
                bucket.complete(key, upload, parts, *bytes).await
            }
            (Medium::Bucket(bucket), StoreChange::Remove { key, .. }) => bucket.remove(key).await,
            (Medium::Bucket(bucket), StoreChange::RemoveTree { key, .. }) => {
                bucket.remove_tree(key).await
            }
        }
    }

    async fn abort(&self, owner: StoreOwner, key: &str, upload: &str) -> Result<(), StoreError> {
        match &self.medium {
            Medium::Files(files) => {
                files.abort(upload).await?;
                self.check_still_there(owner).await
            }
            Medium::Bucket(bucket) => bucket.abort(key, upload).await,
        }
    }
}
