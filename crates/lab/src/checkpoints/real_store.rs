//! A real S3 server in which the lab measures, beside the stores that it emulates.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use sanderling_datanode::ObjectOptions;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::{Exit, Failure, FailureKind};

/// Longest time for one request: as long as that of a checkpoint in a bucket.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest time in which everything below the lab's directory is removed: some hundred objects,
/// eight at once. Chosen, not measured.
pub(crate) const CLEAR_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a request of a process that was killed may take to end in the store: an object of it
/// may appear after the first removal. A write to a bucket takes 20 to 100 ms. Chosen, not
/// measured.
const LATE_REQUESTS: Duration = Duration::from_secs(1);

/// Bytes with which the rate is measured: half of a pack, so that the time is the store's rate
/// rather than its latency. Chosen, not measured.
const RATE_BYTES: usize = 16 << 20;

/// The slowest rate that is reckoned with, in bytes per second: it sets the time between dumps,
/// which would be hours otherwise. Chosen, not measured.
const RATE_MIN: f64 = 1e6;

/// Objects that are removed at once: they hide the round trips of a bucket. Chosen, not measured.
const REMOVALS: usize = 8;

/// `s3://BUCKET/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RealStoreUrl(String);

/// A text names no place in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RealStoreUrlError;

/// A directory of one lab in a real store, below the prefix that was given.
#[derive(Debug)]
pub(crate) struct RealStore {
    store: Arc<dyn ObjectStore>,
    /// The directory, as the product names it.
    url: String,
    /// The directory, as the store names it.
    root: ObjectPath,
    /// Counts the places of cases.
    places: AtomicU64,
}

/// A real store, and how many bytes per second it takes from one writer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RatedStore<'a> {
    pub(crate) store: &'a RealStore,
    pub(crate) bytes_per_second: f64,
}

/// What a record has of a real store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RealStoreSetup {
    pub(crate) url: String,
    /// From one writer, in bytes per second.
    pub(crate) bytes_per_second: f64,
}

impl FromStr for RealStoreUrl {
    type Err = RealStoreUrlError;

    fn from_str(text: &str) -> Result<Self, RealStoreUrlError> {
        let place = text.strip_prefix("s3://").ok_or(RealStoreUrlError)?.trim_end_matches('/');
        match place.split_once('/') {
            Some((bucket, prefix)) if !bucket.is_empty() && !prefix.is_empty() => {
                Ok(Self(format!("s3://{place}")))
            }
            _ => Err(RealStoreUrlError),
        }
    }
}

impl fmt::Display for RealStoreUrlError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a store to measure with is s3://BUCKET/PREFIX")
    }
}

impl std::error::Error for RealStoreUrlError {}

impl RealStore {
    /// Opens a store with the settings of the environment, `AWS_ENDPOINT_URL` and its kin. Nothing
    /// is written.
    ///
    /// # Errors
    /// It cannot be used, or something is below the prefix.
    pub(crate) async fn open(url: &RealStoreUrl) -> Result<Self, Failure> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let settings = std::env::vars_os().filter_map(text);
        let settings = settings.filter(|(name, _)| name.starts_with("AWS_")).collect();
        let RealStoreUrl(url) = url;
        let options = ObjectOptions {
            url: url.clone(),
            settings,
            time_max: OPERATION_TIMEOUT,
            ..ObjectOptions::default()
        };
        let (store, prefix) = options.open().map_err(|error| unusable(url, &error))?;
        match store.list(Some(&prefix)).next().await {
            None => {}
            Some(Ok(found)) => {
                let cause = format!("{url} is not empty: it has {}", found.location);
                return Err(Failure::new(Exit::Failure, FailureKind::ObjectStore, cause)
                    .next("the same with a prefix below which nothing is"));
            }
            Some(Err(error)) => return Err(unusable(url, &error)),
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let own = format!("lab-{}-{}", now.as_secs(), std::process::id());
        let (root, url) = (prefix.join(own.as_str()), format!("{url}/{own}"));
        Ok(Self { store, url, root, places: AtomicU64::new(0) })
    }

    /// Returns the URL of a place that no case had before: what a request that came late wrote for
    /// one is not in the way of the next.
    pub(crate) fn next_place(&self) -> String {
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        format!("{}/{number}", self.url)
    }

    /// Measures how fast the store takes an object.
    ///
    /// # Errors
    /// It does not take it.
    pub(crate) async fn rated(&self) -> Result<RatedStore<'_>, Failure> {
        let place = self.root.clone().join("rate");
        let begun = Instant::now();
        let put = self.store.put(&place, PutPayload::from(vec![7; RATE_BYTES])).await;
        put.map_err(|error| unusable(&self.url, &error))?;
        let seconds = begun.elapsed().as_secs_f64().max(1e-6);
        self.clear().await?;
        let bytes_per_second = (RATE_BYTES as f64 / seconds).max(RATE_MIN);
        Ok(RatedStore { store: self, bytes_per_second })
    }

    /// Removes everything that this lab wrote, also what its processes wrote that have just ended.
    ///
    /// # Errors
    /// The store does not remove it: the failure names the place.
    pub(crate) async fn clear_finally(&self) -> Result<(), Failure> {
        self.clear().await?;
        sleep(LATE_REQUESTS).await;
        self.clear().await
    }

    /// Removes everything that this lab wrote so far.
    ///
    /// # Errors
    /// The store does not remove it: the failure names the place.
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        let left = |why: &dyn fmt::Display| {
            let cause = format!("what the lab wrote below {} is not removed: {why}", self.url);
            Failure::new(Exit::Unavailable, FailureKind::ObjectStore, cause)
        };
        match timeout(CLEAR_TIMEOUT, self.removed()).await {
            Ok(removed) => removed.map_err(|error| left(&error)),
            Err(_) => Err(left(&"the store is slow")),
        }
    }

    async fn removed(&self) -> object_store::Result<()> {
        let store = &self.store;
        loop {
            let listed = store.list(Some(&self.root)).map_ok(|it| it.location);
            let found: Vec<ObjectPath> = listed.try_collect().await?;
            if found.is_empty() {
                return Ok(());
            }
            let remove = |location: ObjectPath| async move {
                match store.delete(&location).await {
                    Err(object_store::Error::NotFound { .. }) => Ok(()),
                    removed => removed,
                }
            };
            let removals = stream::iter(found).map(remove).buffer_unordered(REMOVALS);
            removals.try_for_each(|()| std::future::ready(Ok(()))).await?;
        }
    }
}

impl RatedStore<'_> {
    /// Returns what a record has of it.
    pub(crate) fn setup(&self) -> RealStoreSetup {
        let bytes_per_second = self.bytes_per_second;
        RealStoreSetup { url: self.store.url.clone(), bytes_per_second }
    }
}

fn unusable(url: &str, error: &dyn fmt::Display) -> Failure {
    let cause = format!("{url} cannot be used: {error}");
    Failure::new(Exit::Unavailable, FailureKind::ObjectStore, cause)
        .next("the same with AWS_ENDPOINT_URL, AWS_REGION and the keys in the environment")
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn url_has_a_bucket_and_a_prefix() {
        for good in ["s3://b/p", "s3://b/p/q/"] {
            let url = good.parse::<RealStoreUrl>().expect("it is one");
            assert_eq!(url.0, good.trim_end_matches('/'));
        }
        for bad in ["s3://b", "s3://b/", "s3:///p", "b/p", "file:///b/p"] {
            assert_eq!(bad.parse::<RealStoreUrl>(), Err(RealStoreUrlError), "{bad}");
        }
    }

    #[tokio::test]
    async fn only_the_directory_of_the_lab_is_cleared() {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let (root, url) = (ObjectPath::from("p/lab-1"), "s3://b/p/lab-1".to_owned());
        let store = Arc::clone(&memory);
        let real = RealStore { store, url, root, places: AtomicU64::new(0) };
        assert_eq!(real.next_place(), "s3://b/p/lab-1/0");
        assert_eq!(real.next_place(), "s3://b/p/lab-1/1");
        for name in ["p/lab-1/0/a", "p/lab-1/0/b/c", "p/lab-1/1/a", "p/lab-10/a", "p/other"] {
            memory.put(&ObjectPath::from(name), PutPayload::from(vec![1])).await.expect("put");
        }
        assert!(real.rated().await.expect("measured").bytes_per_second >= RATE_MIN);
        let left = memory.list(None).map_ok(|it| it.location);
        let left: Vec<ObjectPath> = left.try_collect().await.expect("listed");
        assert_eq!(left, [ObjectPath::from("p/lab-10/a"), ObjectPath::from("p/other")]);
    }
}
