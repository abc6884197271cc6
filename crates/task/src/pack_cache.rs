//! The packs of a generation that its readers share.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sanderling_cli_common::failure::Failure;
use tokio::sync::OnceCell;

/// Packs that are kept in memory while a generation is read: 32 MiB each.
const PACKS_MAX: usize = 4;

/// The packs of one generation that were used last, by their numbers in its manifest. CRIU reads
/// many images, most of them a few KiB of one pack.
#[derive(Default)]
pub(crate) struct PackCache(Mutex<Vec<(u32, Arc<OnceCell<Bytes>>)>>);

impl PackCache {
    /// Returns a pack, which is fetched if it is not here. A reader that requires it meanwhile
    /// waits for the same fetch.
    ///
    /// # Errors
    /// The fetch failed; the next reader tries again.
    pub(crate) async fn get(
        &self,
        number: u32,
        fetched: impl Future<Output = Result<Bytes, Failure>>,
    ) -> Result<Bytes, Failure> {
        self.slot(number).get_or_try_init(|| fetched).await.cloned()
    }

    /// Returns the slot of a pack, which is the newest from now on.
    fn slot(&self, number: u32) -> Arc<OnceCell<Bytes>> {
        // A reader that panicked has changed nothing by halves.
        let mut slots = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = slots.iter().position(|(other, _)| *other == number);
        let slot = at.map(|at| slots.remove(at)).unwrap_or_else(|| (number, Arc::default()));
        let cell = Arc::clone(&slot.1);
        slots.insert(0, slot);
        slots.truncate(PACKS_MAX);
        cell
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use sanderling_cli_common::failure::{Exit, FailureKind};

    use super::*;

    #[tokio::test]
    async fn packs_that_were_used_last_are_fetched_once() {
        let (cache, fetches) = (PackCache::default(), Cell::new(0));
        let fetch = async || {
            fetches.set(fetches.get() + 1);
            tokio::task::yield_now().await;
            Ok(Bytes::from_static(b"pack"))
        };
        let (one, other) = tokio::join!(cache.get(0, fetch()), cache.get(0, fetch()));
        assert!(one.is_ok() && other.is_ok());
        assert_eq!(fetches.get(), 1, "the second reader waits for the first one");
        for number in [1, 2, 0, 3, 4, 0] {
            cache.get(number, fetch()).await.expect("fetched");
        }
        assert_eq!(fetches.get(), 5, "the pack that is used again and again stays");
        cache.get(1, fetch()).await.expect("fetched");
        assert_eq!(fetches.get(), 6, "the one that was not used is gone");
    }

    #[tokio::test]
    async fn failed_fetch_is_repeated() {
        let cache = PackCache::default();
        let failed = async { Err(Failure::new(Exit::Failure, FailureKind::TaskBackend, "away")) };
        assert!(cache.get(0, failed).await.is_err());
        assert!(cache.get(0, async { Ok(Bytes::from_static(b"pack")) }).await.is_ok());
    }
}
