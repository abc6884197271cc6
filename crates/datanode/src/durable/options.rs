//! Which stores a datanode reaches, and how they are opened.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::path::Path;
use sanderling_core::durable::STORE_OPERATION_MAX;
use thiserror::Error;

use super::Medium;
use super::apart::{self, StorePlace};
use super::bucket::Bucket;
use super::files::Files;
use crate::object::{ObjectOptions, UnusableStore};

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
    let Some((inner, outer)) = apart::overlapping(&places) else { return Ok(()) };
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
            Some(directory) => StorePlace::Real(apart::real(directory)),
            None => self.named_place(),
        }
    }

    /// Returns the directory, if the store is one.
    fn directory(&self) -> Option<&str> {
        self.url.strip_prefix("file://").filter(|it| it.starts_with('/'))
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
        let options = ObjectOptions {
            url: self.url.clone(),
            settings: self.settings.clone(),
            time_max: STORE_OPERATION_MAX.into(),
            ..ObjectOptions::default()
        };
        let store = options.s3(bucket).map_err(|error| unusable(error.into()))?;
        Ok(Medium::Bucket(Bucket::new(store, prefix)))
    }
}
