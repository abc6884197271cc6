//! Checkpoints in an S3 bucket.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_datanode::ObjectOptions;
use thiserror::Error;

/// Longest time for one object: a pack of 32 MiB at 300 kB/s.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest part of an error that is printed, in characters: it may be a page of XML. Four lines of
/// a terminal. Chosen, not measured.
const ERROR_CHARS_MAX: usize = 300;

/// A name that no runner writes.
const ABSENT: &str = "locks/none";

/// `s3://BUCKET` or `s3://BUCKET/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketUrl(String);

/// Why a text is no place in a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a bucket is s3://BUCKET or s3://BUCKET/PREFIX")]
pub(crate) struct BucketUrlError {
    /// What was given.
    text: String,
}

/// A place in a bucket.
#[derive(Debug, Clone)]
pub(crate) struct TaskBucket {
    store: Arc<dyn ObjectStore>,
    options: ObjectOptions,
    root: Path,
    url: String,
}

impl FromStr for BucketUrl {
    type Err = BucketUrlError;

    fn from_str(text: &str) -> Result<Self, BucketUrlError> {
        match text.strip_prefix("s3://") {
            Some(place) if !place.is_empty() && !place.starts_with('/') => {
                Ok(Self(text.trim_end_matches('/').to_owned()))
            }
            _ => Err(BucketUrlError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for TaskBucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.url)
    }
}

impl TaskBucket {
    /// Opens a bucket with the settings of the environment, `AWS_ENDPOINT_URL` and its kin.
    ///
    /// # Errors
    /// They name no store: correct the URL or the variables.
    pub(crate) fn open(url: &BucketUrl) -> Result<Self, Failure> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let settings = std::env::vars_os().filter_map(text);
        let settings = settings.filter(|(name, _)| name.starts_with("AWS_")).collect();
        let url = url.0.clone();
        let options = ObjectOptions {
            url: url.clone(),
            settings,
            time_max: OPERATION_TIMEOUT,
            ..ObjectOptions::default()
        };
        let (store, root) = options.open().map_err(|error| unusable(&url, &error))?;
        Ok(Self { store, options, root, url })
    }

    /// Returns the bucket's name.
    pub(crate) fn name(&self) -> &str {
        let place = self.options.url.strip_prefix("s3://").unwrap_or(&self.options.url);
        place.split('/').next().unwrap_or(place)
    }

    /// Returns whether the store has no bucket of that name, as far as it shows that.
    pub(crate) async fn is_missing(&self) -> bool {
        let found = self.store.get(&self.place(ABSENT)).await;
        // "Error responses", Amazon S3 API Reference. An object that is missing has another code.
        matches!(&found, Err(error @ object_store::Error::NotFound { .. })
            if error.to_string().contains("NoSuchBucket"))
    }

    /// Creates the bucket. Returns whether it did: another process may be doing it, too.
    ///
    /// # Errors
    /// The store does not do it: create the bucket by other means.
    pub(crate) async fn create(&self) -> Result<bool, Failure> {
        self.options.create_bucket().await.map_err(|error| {
            let why: String = error.to_string().chars().take(ERROR_CHARS_MAX).collect();
            let (url, name) = (&self.url, self.name());
            let cause = format!(
                "{url} cannot be used: there is no bucket {name}, and it cannot be created: {why}"
            );
            let next = format!("create the bucket {name}, or the same with keys that may do it");
            Failure::new(Exit::Unavailable, FailureKind::TaskBackend, cause).next(next)
        })
    }

    /// Returns the place of a name below.
    pub(crate) fn below(&self, name: &str) -> Self {
        let root = self.root.clone().join(name);
        let (store, options) = (Arc::clone(&self.store), self.options.clone());
        Self { store, options, root, url: format!("{}/{name}", self.url) }
    }

    /// Writes an object if there is none of that name; returns whether it was written.
    ///
    /// # Errors
    /// The bucket does not take it.
    pub(crate) async fn put_absent(&self, name: &str, bytes: Vec<u8>) -> Result<bool, Failure> {
        let bytes = Bytes::from(bytes);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let payload = PutPayload::from(bytes.clone());
        match self.store.put_opts(&self.place(name), payload, options).await {
            Ok(_) => Ok(true),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => {
                // A request whose answer was lost is repeated, and finds what it wrote itself.
                let found = self.get_within(name, bytes.len() as u64).await?;
                Ok(matches!(found, Some(Ok(found)) if found == bytes))
            }
            Err(error) => Err(unusable(&self.url, &error)),
        }
    }

    /// Writes an object, whatever has its name.
    ///
    /// # Errors
    /// The bucket does not take it.
    pub(crate) async fn replace(&self, name: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let put = self.store.put(&self.place(name), PutPayload::from(bytes)).await;
        put.map(|_| ()).map_err(|error| unusable(&self.url, &error))
    }

    /// Returns an object; `None` if there is none of that name. Of one that is longer than
    /// `bytes_max` its length is returned, and nothing is read.
    ///
    /// # Errors
    /// The bucket cannot be read.
    pub(crate) async fn get_within(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<Result<Bytes, u64>>, Failure> {
        let found = async {
            let found = self.store.get(&self.place(name)).await?;
            match found.meta.size {
                bytes if bytes > bytes_max => Ok(Err(bytes)),
                _ => found.bytes().await.map(Ok),
            }
        };
        match found.await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(unusable(&self.url, &error)),
        }
    }

    /// Returns a range of an object's bytes, or as many of them as there are; `None` if there is
    /// none of that name.
    ///
    /// # Errors
    /// The bucket cannot be read.
    pub(crate) async fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, Failure> {
        let place = self.place(name);
        let error = match self.store.get_range(&place, range.clone()).await {
            Ok(found) => return Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => error,
        };
        // A store refuses a range that begins where the object has ended.
        match self.store.head(&place).await {
            Ok(found) if found.size <= range.start => Ok(Some(Bytes::new())),
            _ => Err(unusable(&self.url, &error)),
        }
    }

    /// Returns the names and lengths of the objects of a directory, without those in directories
    /// below it; of the root the names of directories.
    ///
    /// # Errors
    /// The bucket cannot be read.
    pub(crate) async fn list(&self, directory: &str) -> Result<Vec<(String, u64)>, Failure> {
        let failed = |error: object_store::Error| unusable(&self.url, &error);
        let place = self.place(directory);
        let listed = self.store.list_with_delimiter(Some(&place)).await.map_err(failed)?;
        let mut found: Vec<(String, u64)> = if directory.is_empty() {
            let names = listed.common_prefixes.iter().filter_map(Path::filename);
            names.map(|name| (name.to_owned(), 0)).collect()
        } else {
            let names =
                listed.objects.iter().filter_map(|it| Some((it.location.filename()?, it.size)));
            names.map(|(name, bytes)| (name.to_owned(), bytes)).collect()
        };
        found.sort();
        Ok(found)
    }

    /// Deletes an object, if it exists.
    ///
    /// # Errors
    /// The bucket does not delete it.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Failure> {
        match self.store.delete(&self.place(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(unusable(&self.url, &error)),
        }
    }

    /// Deletes the objects of a directory whose names begin so and that were written `age` ago or
    /// before. The bucket's time is that of an object which is written now: `own` is its name. What
    /// is not deleted is left to the next call.
    pub(crate) async fn remove_left(
        &self,
        directory: &str,
        own: &str,
        age: Duration,
        is_left: fn(&str) -> bool,
    ) {
        let place = self.place(directory);
        let Ok(listed) = self.store.list_with_delimiter(Some(&place)).await else { return };
        let is_named = |it: &ObjectMeta| it.location.filename().is_some_and(is_left);
        let left: Vec<ObjectMeta> = listed.objects.into_iter().filter(is_named).collect();
        if left.is_empty() {
            return;
        }
        let own = place.join(own);
        let written = self.store.put(&own, PutPayload::from_static(b"now")).await.is_ok();
        let found = self.store.head(&own).await;
        let _ = self.store.delete(&own).await;
        let Some(now) = found.ok().filter(|_| written).map(|it| it.last_modified) else { return };
        for it in left {
            let passed = now.signed_duration_since(it.last_modified).to_std();
            if passed.is_ok_and(|passed| passed >= age) {
                let _ = self.store.delete(&it.location).await;
            }
        }
    }

    fn place(&self, name: &str) -> Path {
        let names = name.split('/').filter(|name| !name.is_empty());
        names.fold(self.root.clone(), |path, name| path.join(name))
    }
}

fn unusable(url: &str, error: &dyn fmt::Display) -> Failure {
    let why: String = error.to_string().chars().take(ERROR_CHARS_MAX).collect();
    Failure::new(
        Exit::Unavailable,
        FailureKind::TaskBackend,
        format!("{url} cannot be used: {why}"),
    )
    .next("the same with AWS_ENDPOINT_URL, AWS_REGION and the keys in the environment")
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn bucket_in_memory() -> TaskBucket {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let (root, url) = (Path::from("tasks"), "s3://bucket/tasks".to_owned());
        TaskBucket { store, options: ObjectOptions::default(), root, url }
    }

    #[tokio::test]
    async fn list_of_a_directory_has_nothing_of_those_below_it() {
        let bucket = bucket_in_memory();
        for name in ["t/locks/0000000001", "t/locks/old/0000000099", "u/locks/0000000002"] {
            assert!(bucket.put_absent(name, b"record".to_vec()).await.expect("put"));
        }
        let listed = bucket.list("t/locks").await.expect("listed");
        assert_eq!(listed, [("0000000001".to_owned(), 6)]);
        let tasks = bucket.list("").await.expect("listed");
        assert_eq!(tasks, [("t".to_owned(), 0), ("u".to_owned(), 0)]);
    }

    #[tokio::test]
    async fn objects_that_are_left_are_removed_when_they_are_old() {
        let bucket = bucket_in_memory();
        for name in ["agents/check-1", "agents/check-2", "agents/0123", "locks/check-3"] {
            assert!(bucket.put_absent(name, b"record".to_vec()).await.expect("put"));
        }
        let names = async |directory: &str| {
            let listed = bucket.list(directory).await.expect("listed");
            listed.into_iter().map(|(name, _)| name).collect::<Vec<String>>()
        };
        let is_left = |name: &str| name.starts_with("check-");
        bucket.remove_left("agents", "check-own", Duration::from_secs(3600), is_left).await;
        assert_eq!(names("agents").await, ["0123", "check-1", "check-2"]);
        bucket.remove_left("agents", "check-own", Duration::ZERO, is_left).await;
        assert_eq!(names("agents").await, ["0123"]);
        assert_eq!(names("locks").await, ["check-3"]);
    }

    #[tokio::test]
    async fn range_of_an_object_ends_with_the_object() {
        let bucket = bucket_in_memory();
        assert!(bucket.put_absent("packs/a", b"0123456789".to_vec()).await.expect("put"));
        let read = async |name: &str, range| bucket.get_range(name, range).await.expect("read");
        assert_eq!(read("packs/a", 2..5).await.as_deref(), Some(&b"234"[..]));
        assert_eq!(read("packs/a", 8..20).await.as_deref(), Some(&b"89"[..]));
        assert_eq!(read("packs/a", 10..20).await.as_deref(), Some(&b""[..]));
        assert_eq!(read("packs/b", 0..1).await, None);
    }

    #[tokio::test]
    async fn bucket_has_the_name_in_its_url() {
        for (url, name) in [("s3://b", "b"), ("s3://b/p/q", "b")] {
            let url: BucketUrl = url.parse().expect("a URL");
            assert_eq!(TaskBucket::open(&url).expect("opened").below("task").name(), name);
        }
    }

    #[test]
    fn urls_name_a_bucket() {
        for good in ["s3://b", "s3://b/p/q", "s3://b/"] {
            assert!(good.parse::<BucketUrl>().is_ok(), "{good}");
        }
        for bad in ["s3://", "s3:///p", "b", "file:///b"] {
            assert!(bad.parse::<BucketUrl>().is_err(), "{bad}");
        }
    }
}
