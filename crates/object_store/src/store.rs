//! The store: its state, and `object_store`'s view of it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use futures_util::stream::BoxStream;
use object_store::path::Path as Location;
use object_store::{
    CopyMode, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    RenameTargetMode,
};
use sanderling_client::{Client, ClientError};
use sanderling_protocol::message::ObjectStat;
use sanderling_protocol::{Instant, ObjectId, Path};
use tokio::sync::OnceCell;

use crate::builder::StoreOptions;
use crate::error::{self, Result};
use crate::keys;
use crate::version;

/// A subtree of a cluster as an [`ObjectStore`]. Clones share everything; it connects when it is
/// first used.
#[derive(Clone)]
pub struct SanderlingStore {
    inner: Arc<Inner>,
}

struct Inner {
    options: StoreOptions,
    client: OnceCell<Client>,
}

impl SanderlingStore {
    pub(crate) fn of_options(options: StoreOptions, client: Option<Client>) -> Self {
        Self { inner: Arc::new(Inner { options, client: OnceCell::new_with(client) }) }
    }

    /// Returns the client that the store uses. The first call connects it to the cluster.
    ///
    /// # Errors
    /// [`ClientError::Call`] when no namenode answers there. The next call tries again.
    pub async fn client(&self) -> std::result::Result<&Client, ClientError> {
        let Inner { options, client } = &*self.inner;
        client.get_or_try_init(|| Client::connect(&options.address, options.client.clone())).await
    }

    /// Returns the client that the store uses, for a call about one object, which the error names.
    pub(crate) async fn client_for(&self, location: &Location) -> Result<&Client> {
        self.client().await.map_err(|error| error::of(location, error))
    }

    pub(crate) fn options(&self) -> &StoreOptions {
        &self.inner.options
    }

    pub(crate) fn path(&self, location: &Location) -> Result<Path> {
        keys::path(&self.inner.options.prefix, location)
    }
}

/// Returns an object's ETag. An object only ever grows, so with its length it names its bytes.
pub(crate) fn e_tag(object: ObjectId, bytes: u64) -> String {
    format!("{:x}-{bytes:x}", object.0)
}

/// Returns the object that an ETag names.
pub(crate) fn object_of(tag: &str) -> Option<ObjectId> {
    let (object, _) = tag.split_once('-')?;
    u64::from_str_radix(object, 16).ok().map(ObjectId)
}

/// Returns an object's metadata as `object_store` has it.
pub(crate) fn meta(
    location: Location,
    object: ObjectId,
    bytes: u64,
    modified_at: Instant,
) -> ObjectMeta {
    let micros = i64::try_from(modified_at.0).unwrap_or(i64::MAX);
    ObjectMeta {
        location,
        last_modified: DateTime::from_timestamp_micros(micros).unwrap_or_default(),
        size: bytes,
        e_tag: Some(e_tag(object, bytes)),
        version: None,
    }
}

pub(crate) fn put_result(stat: &ObjectStat) -> PutResult {
    version::put_result(e_tag(stat.object, stat.bytes))
}

impl fmt::Display for SanderlingStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.inner.options;
        write!(formatter, "Sanderling({}{})", options.address, options.prefix)
    }
}

impl fmt::Debug for SanderlingStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for SanderlingStore {
    async fn put_opts(
        &self,
        location: &Location,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.put_object(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Location,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.begin_upload(location, options).await
    }

    async fn get_opts(&self, location: &Location, options: GetOptions) -> Result<GetResult> {
        self.get_object(location, options).await
    }

    async fn get_ranges(&self, location: &Location, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.get_object_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Location>>,
    ) -> BoxStream<'static, Result<Location>> {
        self.delete_objects(locations)
    }

    fn list(&self, prefix: Option<&Location>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_objects(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Location>,
        offset: &Location,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_objects(prefix, Some(offset.clone()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Location>) -> Result<ListResult> {
        self.list_directory(prefix).await
    }

    async fn copy_opts(&self, from: &Location, to: &Location, options: CopyOptions) -> Result<()> {
        self.copy_object(from, to, options.mode == CopyMode::Create).await.map(drop)
    }

    async fn rename_opts(
        &self,
        from: &Location,
        to: &Location,
        options: RenameOptions,
    ) -> Result<()> {
        self.rename_object(from, to, options.target_mode == RenameTargetMode::Create).await
    }
}
