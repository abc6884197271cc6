//! Which stores a datanode reaches, and how they are opened.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::path::Path;
use sanderling_core::durable::{STORE_OPERATION_MAX, part_within};
use sanderling_protocol::limits::STORE_PREFIX_BYTES_MAX;
use thiserror::Error;

use super::Medium;
use super::bucket::{Bucket, BucketClients};
use super::files::Files;
use super::overlaps::{self, StorePlace};
use crate::object::{ObjectOptions, ObjectTierError, UnusableStore};

/// The options of one store of durable directories. All datanodes that name it must mean the same
/// place.
#[derive(Clone, PartialEq, Eq)]
pub struct DurableOptions {
    /// The name by which directories choose it.
    pub name: String,
    /// `file:///directory`, which must exist and be shared by all datanodes that name it, or
    /// `s3://bucket/prefix`.
    pub url: String,
    /// Settings of an S3 store by the names of its environment variables (`AWS_ENDPOINT_URL`,
    /// `AWS_ACCESS_KEY_ID` and others). They are secret.
    pub settings: Vec<(String, String)>,
}

/// A reason why a store of durable directories cannot be used.
#[derive(Debug, Error)]
pub enum DurableStoreError {
    /// The URL names no store that is known.
    #[error("the store {name} is at file:///directory or s3://bucket/prefix, not at {url:?}")]
    UnknownUrl {
        /// Its name.
        name: String,
        /// The URL.
        url: String,
    },
    /// The URL, or a variable of the environment, has a user or a password in it. The message has
    /// neither.
    #[error("the store {name}: {cause}")]
    HasUser {
        /// Its name.
        name: String,
        /// What has it.
        #[source]
        cause: Box<ObjectTierError>,
    },
    /// The store cannot be opened or does not answer.
    #[error("the store {name} at {url} cannot be used: {cause}")]
    Unusable {
        /// Its name.
        name: String,
        /// The URL.
        url: String,
        /// What is wrong with the store.
        #[source]
        cause: Box<UnusableStore>,
    },
    /// The part of the URL after the bucket leaves too few bytes for the names of objects.
    #[error(
        "the store {name} has {bytes} bytes after its bucket, with a slash, of which it may have \
         {STORE_PREFIX_BYTES_MAX}: names of objects follow them; choose a shorter prefix"
    )]
    LongPrefix {
        /// Its name.
        name: String,
        /// The bytes.
        bytes: usize,
    },
    /// Two stores have one name.
    #[error("there are two stores named {name}")]
    Twice {
        /// The name.
        name: String,
    },
    /// One store lies in another one, or both are in one place.
    #[error(
        "the store {inner} at {inner_url} lies in the store {outer} at {outer_url}, where each \
         would write over the files of the other: choose a place that is not in another store"
    )]
    Overlap {
        /// The name of the inner one.
        inner: String,
        /// Its URL.
        inner_url: String,
        /// The name of the outer one.
        outer: String,
        /// Its URL.
        outer_url: String,
    },
}

impl fmt::Debug for DurableOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.settings.iter().map(|(name, _)| name.as_str()).collect();
        formatter
            .debug_struct("DurableOptions")
            .field("name", &self.name)
            .field("url", &self.url)
            .field("settings", &names)
            .finish()
    }
}

/// Refuses stores of one datanode of which one lies in another one, by their places.
///
/// # Errors
/// [`DurableStoreError::Overlap`].
pub(super) fn check_apart(
    options: &[DurableOptions],
    place: impl Fn(&DurableOptions) -> StorePlace,
) -> Result<(), DurableStoreError> {
    let places: Vec<StorePlace> = options.iter().map(place).collect();
    let Some((inner, outer)) = overlaps::overlapping(&places) else { return Ok(()) };
    let (inner, outer) = (options[inner].clone(), options[outer].clone());
    Err(DurableStoreError::Overlap {
        inner: inner.name,
        inner_url: inner.url,
        outer: outer.name,
        outer_url: outer.url,
    })
}

impl DurableOptions {
    /// Returns where the store is by its URL alone.
    pub(super) fn named_place(&self) -> StorePlace {
        StorePlace::Named(PathBuf::from(self.directory().unwrap_or(&self.url)))
    }

    /// Returns where the store is; it calls its file system. That of a bucket is no path of this
    /// machine.
    pub(super) fn place(&self) -> StorePlace {
        match self.directory() {
            Some(directory) => StorePlace::Real(overlaps::real(directory)),
            None => self.named_place(),
        }
    }

    /// Returns the directory, if the store is one.
    fn directory(&self) -> Option<&str> {
        self.url.strip_prefix("file://").filter(|it| it.starts_with('/'))
    }

    /// Refuses a user or a password in the URL of a bucket or in its endpoint, which every other
    /// error would show.
    pub(super) fn refuse_users(&self) -> Result<(), DurableStoreError> {
        if !self.url.starts_with("s3://") {
            return Ok(());
        }
        self.bucket_options().refuse_users().map_err(|cause| DurableStoreError::HasUser {
            name: self.name.clone(),
            cause: Box::new(cause),
        })
    }

    /// Returns the options of a bucket.
    fn bucket_options(&self) -> ObjectOptions {
        ObjectOptions {
            url: self.url.clone(),
            settings: self.settings.clone(),
            time_max: STORE_OPERATION_MAX.into(),
            ..ObjectOptions::default()
        }
    }

    pub(super) fn open(&self) -> Result<Medium, DurableStoreError> {
        let unusable = |cause: UnusableStore| DurableStoreError::Unusable {
            name: self.name.clone(),
            url: self.url.clone(),
            cause: Box::new(cause),
        };
        if let Some(directory) = self.directory() {
            return Ok(Medium::Files(Arc::new(Files::new(PathBuf::from(directory)))));
        }
        let place = self.url.strip_prefix("s3://").filter(|place| !place.is_empty());
        let unknown =
            || DurableStoreError::UnknownUrl { name: self.name.clone(), url: self.url.clone() };
        let (bucket, prefix) =
            place.map(|it| it.split_once('/').unwrap_or((it, ""))).ok_or_else(unknown)?;
        let prefix = Path::parse(prefix.trim_end_matches('/'));
        let prefix = prefix.map_err(|error| unusable(error.into()))?;
        let bytes = prefix.as_ref().len() + 1;
        if bytes > STORE_PREFIX_BYTES_MAX {
            return Err(DurableStoreError::LongPrefix { name: self.name.clone(), bytes });
        }
        let clients = self.clients(bucket).map_err(unusable)?;
        Ok(Medium::Bucket(Bucket::new(clients, prefix)))
    }

    /// Opens a bucket.
    fn clients(&self, bucket: &str) -> Result<BucketClients, UnusableStore> {
        let options = self.bucket_options();
        // The caller's own limit is shorter, except for the longest part that there is.
        let patient = ObjectOptions { time_max: part_within(u64::MAX).into(), ..options.clone() };
        Ok(BucketClients {
            store: options.s3_builder(bucket)?.build()?,
            single: options.s3_builder(bucket)?.with_disable_bulk_delete(true).build()?,
            long_parts: patient.s3_builder(bucket)?.build()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::check_durable_stores;

    /// Returns the text of the refusal of two stores, which is empty if they are not refused.
    async fn refusal_of(stores: [(&str, &str); 2]) -> String {
        let options = stores.map(|(name, url)| DurableOptions {
            name: name.to_owned(),
            url: url.to_owned(),
            settings: Vec::new(),
        });
        let refused = check_durable_stores(&options).await.err();
        refused.map(|error| error.to_string()).unwrap_or_default()
    }

    #[tokio::test]
    async fn stores_that_cannot_be_used_are_refused_without_a_request() {
        let other = ("other", "s3://bucket/a");
        let long = format!("s3://bucket/{}", "p".repeat(256));
        for (store, part) in [
            (("other", "s3://bucket/b"), "there are two stores named other"),
            (("one", "gs://bucket/b"), "s3://bucket/prefix, not at \"gs://bucket/b\""),
            (("one", "file://relative"), "not at \"file://relative\""),
            (("one", "s3://"), "not at \"s3://\""),
            (("one", "s3://bucket/a/b"), "the store one at s3://bucket/a/b lies in the store"),
            (("one", long.as_str()), "the store one has 257 bytes after its bucket"),
        ] {
            for stores in [[store, other], [other, store]] {
                let refusal = refusal_of(stores).await;
                assert!(refusal.contains(part), "{stores:?}: {refusal}");
            }
        }
        assert_eq!(refusal_of([("one", "s3://bucket/b"), other]).await, "");
        assert_eq!(refusal_of([("one", &long[..long.len() - 1]), other]).await, "");
        assert_eq!(refusal_of([("one", "file:///none"), other]).await, "");
    }

    #[tokio::test]
    async fn user_or_password_in_a_url_is_refused_and_not_repeated() {
        for url in ["s3://AKIA:TOPSECRET@bucket/a", "s3://TOPSECRET@bucket"] {
            // The second store lies in the first one, too.
            let below = format!("{url}/b");
            let refusal = refusal_of([("one", url), ("two", below.as_str())]).await;
            let begin = "the store one: the URL has a user or a password; ";
            assert!(refusal.starts_with(begin), "{url}: {refusal}");
            assert!(!refusal.contains("TOPSECRET"), "{refusal}");
        }
    }
}
