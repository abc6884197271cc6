//! Objects that may be of no use any more, and their end.
//!
//! # The rule
//! An object is deleted only after the namenode has replied for this very block and epoch that no
//! node has it as home or copy and no move ends on it. The reply holds for ever: an epoch is given
//! out once, before the object is made, and one that was given up never comes back. So it does not
//! matter which node requests it, how late the deletion comes, or whether another node has adopted
//! the block since; orders to drop a block only choose the objects to check.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, Epoch, Reply, Request, Tier};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::ObjectTier;
use super::trailer::TierKey;
use crate::counters::Counters;
use crate::membership::Membership;

/// Time until a deletion is tried again. Twice the longest operation by default, so a store that
/// hangs gets one at a time. An object that stays costs its bytes and nothing else.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Deletions at once: an eighth of the operations that the tier may have under way
/// (`OPERATIONS_MAX`), so that reads and pushes go first. Chosen, not measured.
const DELETIONS_AT_ONCE: usize = 8;

/// Deletes the objects that no node serves.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) objects: Arc<ObjectTier>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) counters: Arc<Counters>,
}

impl Collector {
    /// Deletes objects until the node stops.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let objects = &self.objects;
        let every = objects.options.sweep_every;
        // The nodes of a fleet start together and need not search together.
        let mut sweep_at = Instant::now() + every.mul_f64(rand::random::<f64>());
        loop {
            let changed = objects.garbage.changed();
            let wake = objects.garbage.next().map_or(sweep_at, |next| next.min(sweep_at));
            tokio::select! {
                () = stop.cancelled() => return,
                _ = timeout_at(wake, changed) => {}
            }
            let working = async {
                while self.end_page().await {}
                if sweep_at <= Instant::now() {
                    self.sweep().await;
                    sweep_at = Instant::now() + every;
                }
                // Garbage that comes in small bits is checked together.
                sleep_until(Instant::now() + Duration::from_millis(100)).await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = working => {}
            }
        }
    }

    /// Deletes those of one page of garbage that no node serves; returns whether more is due.
    async fn end_page(&self) -> bool {
        let objects = &self.objects;
        let page = objects.garbage.take_page(Instant::now());
        if page.is_empty() {
            return false;
        }
        let later = Instant::now() + RETRY_AFTER;
        match self.unwanted(&page).await {
            Some(unwanted) => {
                let failed = self.delete(unwanted).await;
                failed.into_iter().for_each(|key| objects.garbage.add(key, later));
            }
            None => page.into_iter().for_each(|key| objects.garbage.add(key, later)),
        }
        true
    }

    /// Returns the keys of a page whose blocks no node serves and no move makes; `None` if the
    /// namenode did not answer.
    async fn unwanted(&self, page: &[TierKey]) -> Option<Vec<TierKey>> {
        let namenode = self.membership.namenode();
        let held = |(block, epoch): &TierKey| HeldBlock {
            block: *block,
            epoch: *epoch,
            length: 0,
            tier: Tier::Object,
        };
        let blocks = page.iter().map(held).collect();
        match namenode.call(Request::BlockReport { node: self.membership.id(), blocks }).await {
            Ok(Reply::Drop { blocks }) => {
                Some(page.iter().copied().filter(|key| blocks.contains(&key.0)).collect())
            }
            Ok(other) => {
                let error = namenode.bad_reply(other);
                tracing::error!(%error, "unwanted objects are not known");
                None
            }
            Err(error) => {
                tracing::debug!(%error, "unwanted objects are not known");
                None
            }
        }
    }

    /// Deletes objects; returns those that are still there.
    async fn delete(&self, keys: Vec<TierKey>) -> Vec<TierKey> {
        let objects = &self.objects;
        let deleting = keys.into_iter().map(|key| async move { (key, objects.remove(key).await) });
        let deleted: Vec<_> = futures_util::stream::iter(deleting)
            .buffer_unordered(DELETIONS_AT_ONCE)
            .collect()
            .await;
        let mut failed = Vec::new();
        for (key, result) in deleted {
            match result {
                Ok(()) => drop(self.counters.objects_deleted.inc()),
                Err(refusal) => {
                    tracing::debug!(block = %key.0, %refusal, "an object is not deleted yet");
                    failed.push(key);
                }
            }
        }
        failed
    }

    /// Searches the store for objects that no node serves.
    async fn sweep(&self) {
        let objects = &self.objects;
        let mut listed = match objects.list() {
            Ok(listed) => pin!(listed),
            Err(_) => return,
        };
        let mut page: BTreeMap<BlockId, Epoch> = BTreeMap::new();
        let (mut seen, mut found) = (0_u64, 0_usize);
        loop {
            let next = listed.next().await;
            if let Some(Err(refusal)) = &next {
                tracing::warn!(%refusal, "the object tier cannot be searched");
                return;
            }
            let is_end = next.is_none();
            if let Some(Ok(Some((key, age)))) = next {
                seen += 1;
                // Of two epochs of one block the other is checked in the next search.
                if age >= objects.options.sweep_age_min {
                    page.entry(key.0).or_insert(key.1);
                }
            }
            if page.len() >= BLOCKS_PER_PAGE_MAX || is_end {
                let keys: Vec<TierKey> = std::mem::take(&mut page).into_iter().collect();
                if !keys.is_empty()
                    && let Some(unwanted) = self.unwanted(&keys).await
                {
                    found += unwanted.len();
                    let _ = self.delete(unwanted).await;
                }
            }
            if is_end {
                tracing::info!(seen, unwanted = found, "object tier searched");
                return;
            }
        }
    }
}
