//! Where the object tier is, and how it is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use sanderling_protocol::amount;
use thiserror::Error;

use super::encryption::EncryptionMismatch;

/// Attempts after the first one, within the deadline. Its pauses begin at 100 ms and double at
/// most, so all of them fit into the default deadline of 5 s.
const RETRIES_MAX: usize = 3;

/// Longest time until a store takes a connection. One lost packet is sent again within it (after 1
/// s, RFC 6298), and an attempt after it still fits into the default deadline of 5 s. Chosen, not
/// measured.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The options of the object tier. All nodes of a cluster that have one must name the same store: a
/// node that ends leaves its objects to the others.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectOptions {
    /// `file:///directory`, which must exist, or `s3://bucket/prefix`.
    pub url: String,
    /// Most bytes of blocks that this node is the home of there.
    pub bytes: u64,
    /// Settings of an S3 store by the names of its environment variables (`AWS_ENDPOINT_URL`,
    /// `AWS_ACCESS_KEY_ID` and others); names that it does not know are passed over. They are
    /// secret.
    pub settings: Vec<(String, String)>,
    /// Longest time for one operation on the store.
    pub time_max: Duration,
    /// Time between two searches for objects that no node serves.
    pub sweep_every: Duration,
    /// Objects younger than this are left alone by the search.
    pub sweep_age_min: Duration,
}

/// A reason why there is no object tier.
#[derive(Debug, Error)]
pub enum ObjectTierError {
    /// The URL names no store that is known.
    #[error("the object tier is at file:///directory or s3://bucket/prefix, not at {url:?}")]
    UnknownUrl {
        /// The URL.
        url: String,
    },
    /// The URL, or a variable of the environment, has a user or a password in it. Nothing was sent.
    #[error(
        "{place} has a user or a password; put keys into AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY"
    )]
    HasUser {
        /// What has it: the name of the variable, or "the URL".
        place: String,
    },
    /// The store cannot be opened or does not answer.
    #[error("the object tier at {url} cannot be used: {cause}")]
    Unusable {
        /// The URL.
        url: String,
        /// What is wrong with the store.
        #[source]
        cause: Box<UnusableStore>,
    },
    /// What is there was written with another key, or with one and without one.
    #[error("the object tier at {url} cannot be used: {object}: {cause}")]
    Unreadable {
        /// The URL.
        url: String,
        /// The name of an object.
        object: String,
        /// What is in the way.
        #[source]
        cause: EncryptionMismatch,
    },
}

/// A reason why a store cannot be used.
#[derive(Debug, Error)]
pub enum UnusableStore {
    /// The store cannot be opened, or refuses the first request. Its text may be pages of XML: the
    /// message has the beginning.
    #[error("{}", super::failure::short(.0))]
    Store(#[from] object_store::Error),
    /// The part of the URL after the bucket is no prefix of names.
    #[error("{0}")]
    Prefix(#[from] object_store::path::Error),
    /// It did not answer the first request.
    #[error("no answer within {}", amount::duration(*waited))]
    Silent {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Its bucket cannot be opened as that of an object tier.
    #[error("{0}")]
    Bucket(#[from] ObjectTierError),
}

impl Default for ObjectOptions {
    fn default() -> Self {
        Self {
            url: String::new(),
            bytes: 0,
            settings: Vec::new(),
            // A block is at most 1 MiB: slower than this the store is of no use in a notice.
            time_max: Duration::from_secs(5),
            // Only nodes that died in the middle of a deletion leave anything behind.
            sweep_every: Duration::from_secs(6 * 3600),
            // Objects that are being moved right now must be left alone.
            sweep_age_min: Duration::from_secs(3600),
        }
    }
}

impl fmt::Debug for ObjectOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.settings.iter().map(|(name, _)| name.as_str()).collect();
        formatter
            .debug_struct("ObjectOptions")
            .field("url", &self.url)
            .field("bytes", &self.bytes)
            .field("settings", &names)
            .field("time_max", &self.time_max)
            .field("sweep_every", &self.sweep_every)
            .field("sweep_age_min", &self.sweep_age_min)
            .finish()
    }
}

impl ObjectOptions {
    /// Opens the store; returns it with the prefix of all names in it.
    ///
    /// # Errors
    /// [`ObjectTierError`]: the URL or the settings name no store; correct them.
    pub fn open(&self) -> Result<(Arc<dyn ObjectStore>, Path), ObjectTierError> {
        self.store()
    }

    /// Returns the store and the prefix of all names in it.
    pub(super) fn store(&self) -> Result<(Arc<dyn ObjectStore>, Path), ObjectTierError> {
        if let Some(directory) = self.url.strip_prefix("file://").filter(|it| it.starts_with('/')) {
            // Acknowledged means there for good, as with a remote store.
            let store = LocalFileSystem::new_with_prefix(directory)
                .map_err(|error| self.unusable(error))?
                .with_fsync(true);
            return Ok((Arc::new(store), Path::default()));
        }
        let (bucket, prefix) = self.place()?;
        self.refuse_users()?;
        let prefix = Path::parse(prefix.trim_end_matches('/'));
        let prefix = prefix.map_err(|error| self.unusable(error))?;
        Ok((Arc::new(self.s3(bucket)?), prefix))
    }

    /// Returns the bucket that the URL names, and what follows it there.
    fn place(&self) -> Result<(&str, &str), ObjectTierError> {
        let place = self.url.strip_prefix("s3://").filter(|place| !place.is_empty());
        let place = place.ok_or_else(|| ObjectTierError::UnknownUrl { url: self.url.clone() })?;
        Ok(place.split_once('/').unwrap_or((place, "")))
    }

    /// Returns the bucket that the URL names.
    pub(super) fn bucket(&self) -> Result<&str, ObjectTierError> {
        self.place().map(|(bucket, _)| bucket)
    }

    /// Returns a bucket by the settings.
    pub(crate) fn s3(&self, bucket: &str) -> Result<AmazonS3, ObjectTierError> {
        self.s3_builder(bucket)?.build().map_err(|error| self.unusable(error))
    }

    /// Returns what makes a bucket by the settings.
    pub(crate) fn s3_builder(&self, bucket: &str) -> Result<AmazonS3Builder, ObjectTierError> {
        self.refuse_users()?;
        // Several crates of the process may use TLS; the first one chooses, and all choose ring.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = ClientOptions::new()
            .with_timeout(self.time_max)
            .with_connect_timeout(self.time_max.min(CONNECT_MAX))
            .with_allow_http(self.is_endpoint_plain());
        let retry = RetryConfig {
            max_retries: RETRIES_MAX,
            retry_timeout: self.time_max,
            ..RetryConfig::default()
        };
        let builder = AmazonS3Builder::new()
            .with_client_options(client)
            .with_retry(retry)
            .with_bucket_name(bucket);
        let with = |builder: AmazonS3Builder, (name, value): &(String, String)| match name
            .to_ascii_lowercase()
            .parse::<AmazonS3ConfigKey>()
        {
            Ok(key) => builder.with_config(key, value),
            Err(_) => builder,
        };
        Ok(self.settings.iter().fold(builder, with))
    }

    /// Refuses a user or a password in the URL or in an endpoint, which an error would show.
    pub(crate) fn refuse_users(&self) -> Result<(), ObjectTierError> {
        let has_user = |place: &str| Err(ObjectTierError::HasUser { place: place.to_owned() });
        let place = self.url.strip_prefix("s3://").unwrap_or_default();
        let bucket = place.split('/').next().unwrap_or_default();
        // A secret key may have a slash. The name of an access point has colons, but no user.
        let has_key = bucket.contains(':') && !bucket.starts_with("arn:") && place.contains('@');
        if has_key || bucket.contains('@') {
            return has_user("the URL");
        }
        let is_endpoint = |name: &str| name.to_ascii_uppercase().starts_with("AWS_ENDPOINT");
        let mut endpoints = self.settings.iter().filter(|(name, _)| is_endpoint(name));
        match endpoints.find(|(_, value)| value.contains('@')) {
            Some((name, _)) => has_user(name),
            None => Ok(()),
        }
    }

    /// Plain HTTP is used where the endpoint that was configured is plain.
    fn is_endpoint_plain(&self) -> bool {
        self.settings.iter().any(|(name, value)| {
            name.starts_with("AWS_ENDPOINT") && value.to_ascii_lowercase().starts_with("http://")
        })
    }

    pub(super) fn unusable(&self, cause: impl Into<UnusableStore>) -> ObjectTierError {
        ObjectTierError::Unusable { url: self.url.clone(), cause: Box::new(cause.into()) }
    }
}
