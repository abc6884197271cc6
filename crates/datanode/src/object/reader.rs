//! Fetching objects: one fetch at a time of each, the last ones kept, absent ones remembered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use object_store::{GetResult, ObjectStoreExt};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::order::Damage;
use sanderling_protocol::{BlockId, Epoch, Refusal, Tier};

use super::caller::OperationCaller;
use super::encryption::{End, OBJECT_BYTES_MAX};
use super::failure::failed;
use super::trailer::{TierKey, Trailer};
use super::{Fetched, ObjectTier};
use crate::chunk_sums::{ChunkSums, sums_of};
use crate::encryption_key::Forged;
use crate::fair_room::RoomPermit;
use crate::tier::ReadError;

/// Bytes of blocks kept for the next read: small reads of one block follow each other, and each
/// would fetch it whole. 32 whole blocks; half of `READS_BYTES` of the budget. Chosen, not
/// measured.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Blocks kept, small as they may be. A sweep over small objects, with 8 KiB each, fills
/// [`KEPT_BYTES_MAX`] as well. It bounds what an entry takes beside its bytes. Chosen, not
/// measured.
const KEPT_MAX: usize = 4096;

/// How long an object that was not found is not looked for again. A store answers a read with what
/// was written before, so only a push that is under way makes it appear; a reader that looks for it
/// waits a second more at most. Chosen, not measured.
const ABSENT_FOR: Duration = Duration::from_secs(1);

/// Most objects remembered as absent. One page of a block report. Beyond it such an object is
/// looked for again, which costs one request. Chosen, not measured.
const ABSENT_MAX: usize = 4096;

type Fetch = Shared<BoxFuture<'static, Result<Option<Fetched>, Refusal>>>;

/// What was fetched, is being fetched, and was not there.
#[derive(Debug, Default)]
pub(super) struct BlockFetcher {
    under_way: BTreeMap<TierKey, Fetch>,
    kept: BTreeMap<TierKey, Fetched>,
    order: VecDeque<TierKey>,
    kept_bytes: usize,
    absent: BTreeMap<TierKey, Instant>,
}

impl BlockFetcher {
    /// Notes that an object is there now.
    pub(super) fn appeared(&mut self, key: TierKey) {
        self.absent.remove(&key);
    }

    /// Forgets what is known of an object.
    pub(super) fn forget(&mut self, key: TierKey) {
        if let Some(fetched) = self.kept.remove(&key) {
            self.kept_bytes -= fetched.bytes.len();
            self.order.retain(|kept| *kept != key);
        }
    }

    /// Forgets what was fetched of a block.
    pub(super) fn forget_block(&mut self, block: BlockId) {
        let range = (block, Epoch(0))..=(block, Epoch(u32::MAX));
        let keys: Vec<TierKey> = self.kept.range(range).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.forget(key));
    }

    /// Returns a fetch that has ended or is under way, if there is one of the object.
    fn found(&self, key: TierKey) -> Option<Fetch> {
        if let Some(kept) = self.kept.get(&key) {
            let kept = Ok(Some(kept.clone()));
            return Some(std::future::ready(kept).boxed().shared());
        }
        self.under_way.get(&key).cloned()
    }

    fn ended(&mut self, key: TierKey, found: &Result<Option<Fetched>, Refusal>) {
        self.under_way.remove(&key);
        match found {
            Ok(Some(fetched)) => self.keep(key, fetched.clone()),
            Ok(None) => {
                self.absent.retain(|_, at| at.elapsed() < ABSENT_FOR);
                if self.absent.len() < ABSENT_MAX {
                    self.absent.insert(key, Instant::now());
                }
            }
            Err(_) => {}
        }
    }

    fn keep(&mut self, key: TierKey, fetched: Fetched) {
        let bytes = fetched.bytes.len();
        if self.kept.insert(key, fetched).is_some() {
            return;
        }
        self.order.push_back(key);
        self.kept_bytes += bytes;
        while self.kept_bytes > KEPT_BYTES_MAX || self.order.len() > KEPT_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            let gone = self.kept.remove(&oldest).map_or(0, |gone| gone.bytes.len());
            self.kept_bytes -= gone;
        }
    }
}

impl ObjectTier {
    /// Returns whether an object was looked for and not found a moment ago.
    pub(crate) fn is_known_absent(&self, key: TierKey) -> bool {
        self.reader.lock().absent.get(&key).is_some_and(|at| at.elapsed() < ABSENT_FOR)
    }

    /// Fetches a whole block for a caller and verifies it; `None` when there is no such object.
    /// Callers that want the same one share one fetch. What is kept needs no place, nor does what
    /// is being fetched.
    ///
    /// # Errors
    /// [`Refusal::ChecksumMismatch`]: the bytes are not those that were put there.
    /// [`Refusal::BlockDamaged`]: it is no block, or another one. [`Refusal::TierFailed`]: the
    /// store failed or is slow.
    /// [`Refusal::RetryAfter`]: too much is being fetched.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        key: TierKey,
        caller: &OperationCaller,
    ) -> Result<Option<Fetched>, Refusal> {
        let found = self.reader.lock().found(key);
        let fetch = match found {
            Some(fetch) => fetch,
            None => {
                let tier = Arc::clone(self);
                caller.begin(move |place| tier.begin_fetch(key, place)).await?
            }
        };
        fetch.await
    }

    /// Returns the fetch of a block: a new one, unless another caller has begun it meanwhile.
    fn begin_fetch(self: &Arc<Self>, key: TierKey, place: Option<RoomPermit>) -> Fetch {
        let mut reader = self.reader.lock();
        if let Some(fetch) = reader.found(key) {
            return fetch;
        }
        let fetch = self.fetching(key, place);
        reader.under_way.insert(key, fetch.clone());
        fetch
    }

    /// Fetches a whole block; where what comes is damaged, a second time.
    ///
    /// # Errors
    /// [`ReadError::Damaged`]: the object is not what was put there. Else as [`Self::fetch`].
    pub(crate) async fn fetch_twice(
        self: &Arc<Self>,
        key: TierKey,
        caller: &OperationCaller,
    ) -> Result<Option<Fetched>, ReadError> {
        let is_damage = |refusal: &Refusal| {
            matches!(refusal, Refusal::ChecksumMismatch { .. } | Refusal::BlockDamaged { .. })
        };
        let again = match self.fetch(key, caller).await {
            Err(refusal) if is_damage(&refusal) => self.fetch(key, caller).await,
            first => first,
        };
        again.map_err(|refusal| match refusal {
            refusal if is_damage(&refusal) => ReadError::Damaged(Damage::Checksum),
            refusal => refusal.into(),
        })
    }

    /// Fetches on a task of its own: the caller that began it may go away, and others wait for it.
    fn fetching(self: &Arc<Self>, key: TierKey, place: Option<RoomPermit>) -> Fetch {
        let tier = Arc::clone(self);
        let working = tokio::spawn(async move {
            let found = tier.load(key, place).await;
            tier.reader.lock().ended(key, &found);
            found
        });
        let done = async { working.await.unwrap_or_else(|error| Err(failed(error.to_string()))) };
        done.boxed().shared()
    }

    async fn load(
        &self,
        key: TierKey,
        place: Option<RoomPermit>,
    ) -> Result<Option<Fetched>, Refusal> {
        let path = self.path(key)?;
        let store = Arc::clone(&self.store);
        let get = async move {
            let found: GetResult = store.get(&path).await?;
            if found.meta.size > OBJECT_BYTES_MAX {
                // Not ours to load into memory.
                return Ok(Bytes::new());
            }
            found.bytes().await
        };
        match self.operate(place, get).await? {
            Ok(object) => self.opened(key, object).map(Some),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.refusal(&error, 0)),
        }
    }

    fn opened(&self, key: TierKey, object: Bytes) -> Result<Fetched, Refusal> {
        self.check_end(key, End::of(&object))?;
        let (block, epoch) = key;
        match self.encryption.decrypt(self.cluster()?, key, object) {
            Ok(opened) => verified(key, &opened),
            Err(Forged) => {
                tracing::error!(%block, %epoch, "an encrypted object is damaged");
                Err(Refusal::BlockDamaged { block })
            }
        }
    }
}

fn verified(key: TierKey, object: &Bytes) -> Result<Fetched, Refusal> {
    let (block, epoch) = key;
    let decoded = Trailer::decode(object);
    let is_block = |found: &(Trailer, usize)| (1..=BLOCK_BYTES_MAX).contains(&found.0.length);
    let Some((trailer, length)) = decoded.filter(is_block) else {
        let bytes = object.len();
        tracing::error!(%block, %epoch, bytes, "an object is damaged");
        return Err(Refusal::BlockDamaged { block });
    };
    if (trailer.block, trailer.epoch) != key {
        tracing::error!(%block, %epoch, found = %trailer.block, "an object is another block");
        return Err(Refusal::BlockDamaged { block });
    }
    let bytes = object.slice(..length);
    let sums = ChunkSums::default().with(&sums_of(0, &bytes));
    let computed = sums.whole();
    if computed == trailer.checksum {
        return Ok(Fetched { bytes, sums });
    }
    tracing::error!(%block, %epoch, tier = %Tier::Object, "the bytes of an object changed");
    Err(Refusal::ChecksumMismatch { block, expected: trailer.checksum, computed })
}
