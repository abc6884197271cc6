//! Uploads in parts. A part is a hidden object; completing an upload makes one object of them in
//! one step, without moving a byte.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path as Location;
use object_store::{
    Error, MultipartId, MultipartUpload, PutMultipartOptions, PutPayload, PutResult, UploadPart,
};
use parking_lot::Mutex;
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::{Path, Refusal};
use thiserror::Error as ThisError;

use crate::error::{self, Result};
use crate::store::{SanderlingStore, put_result};

/// How the names of the hidden directories of uploads begin.
const UPLOAD: &str = ".upload-";

/// How the names of parts begin.
const PART: &str = "part-";

/// The hidden object of an upload that has the attributes.
const OPTIONS: &str = "options";

/// Why an upload cannot go on.
#[derive(Debug, ThisError)]
enum BadUpload {
    #[error("no upload has the id {id:?}")]
    Id { id: String },
    #[error("no part of this upload has the id {id:?}")]
    Part { id: String },
    #[error("the upload was completed, aborted, or has vanished: {cause}")]
    Gone {
        #[source]
        cause: ClientError,
    },
    #[error("part {part} was not uploaded")]
    Missing { part: usize },
}

impl SanderlingStore {
    pub(crate) async fn begin_upload(
        &self,
        location: &Location,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let directory = self.create_upload(location, options).await?;
        let (store, location) = (self.clone(), location.clone());
        Ok(Box::new(Upload { store, location, directory, parts: Arc::default(), next: 0 }))
    }

    /// Makes the hidden directory of an upload in the deepest directory above the target that
    /// exists: in the same job, and without making a directory that an abort would leave behind.
    async fn create_upload(
        &self,
        location: &Location,
        options: PutMultipartOptions,
    ) -> Result<Path> {
        let failed = |error| error::of_making(location, error);
        let put = self.options_with(location, &options.attributes, &options.tags)?;
        let target = self.path(location)?;
        let client = self.client_for(location).await?;
        let above: Vec<Path> = std::iter::successors(target.parent(), Path::parent).collect();
        let found = client.lookup_many(&above).await.map_err(failed)?;
        let existing = above.into_iter().zip(found).find_map(|(path, it)| match it {
            Ok(found) if found.kind == ObjectKind::Directory => Some(path),
            _ => None,
        });
        let name = format!("{UPLOAD}{:016x}", rand::random::<u64>());
        let directory = inside(&existing.unwrap_or_else(Path::root), &name).map_err(failed)?;
        let made = client.make_directory(&directory, ObjectKind::Directory, false, false).await;
        made.map_err(failed)?;
        let (kept, limited) = tokio::join!(
            self.keep_options(client, &directory, put),
            client.set_ttl(&directory, Some(self.options().upload_ttl)),
        );
        kept.and(limited).map_err(failed)?;
        Ok(directory)
    }

    /// Keeps beside the parts what the object will have beside its bytes.
    async fn keep_options(
        &self,
        client: &Client,
        directory: &Path,
        put: PutOptions,
    ) -> std::result::Result<(), ClientError> {
        let path = inside(directory, OPTIONS)?;
        let options = PutOptions { parents: false, ttl: None, ..put };
        client.put(&path, Bytes::new(), &options).await.map(|_| ())
    }

    /// Writes a part and returns its id, which is the name that this call alone writes to: whatever
    /// another call stores for the same part, late or again, the id stands for these bytes. Parts
    /// that no completion names are deleted with the upload.
    async fn write_part(
        &self,
        location: &Location,
        directory: &Path,
        index: usize,
        data: PutPayload,
    ) -> Result<String> {
        let failed = |error| error::of_making(location, error);
        let client = self.client_for(location).await?;
        let name = draw_part_name(index);
        let path = inside(directory, &name).map_err(failed)?;
        let kept = inside(directory, OPTIONS).map_err(failed)?;
        let kept = client.stat(&kept).await.map_err(|error| no_upload(location, error))?;
        let options = PutOptions {
            parents: false,
            ttl: None,
            class: kept.class,
            // A value in the catalog cannot be any part.
            is_inline_allowed: false,
            ..self.options().put.clone()
        };
        // An upload that still receives parts is not abandoned.
        let (written, kept) = tokio::join!(
            self.write_payload(&path, data, &options),
            client.set_ttl(directory, Some(self.options().upload_ttl)),
        );
        written.and(kept).map_err(failed)?;
        Ok(name)
    }

    /// Makes one object of parts and removes the upload.
    async fn complete_upload(
        &self,
        location: &Location,
        directory: &Path,
        parts: &[String],
    ) -> Result<PutResult> {
        let failed = |error| error::of_making(location, error);
        let client = self.client_for(location).await?;
        let target = self.path(location)?;
        let kept = inside(directory, OPTIONS).map_err(failed)?;
        let kept = client.stat(&kept).await.map_err(|error| no_upload(location, error))?;
        let options = PutOptions { attributes: kept.attributes, ..self.options().put.clone() };
        let parts: Vec<Path> =
            parts.iter().map(|part| part_path(directory, part)).collect::<Result<_>>()?;
        let stat = match parts.as_slice() {
            [] => client.put(&target, Bytes::new(), &options).await,
            parts => client.concat(parts, &target, &options).await,
        };
        let stat = stat.map_err(failed)?;
        // The object is there; what remains of the upload goes with its TTL at the latest.
        let _ = client.delete(directory, true).await;
        Ok(put_result(&stat))
    }

    async fn abort_upload(&self, location: &Location, directory: &Path) -> Result<()> {
        let client = self.client_for(location).await?;
        match client.delete(directory, true).await {
            Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => Ok(()),
            Err(error) => Err(error::of(location, error)),
        }
    }

    /// Begins an upload that any holder of its id can continue.
    pub(crate) async fn create_upload_id(
        &self,
        location: &Location,
        options: PutMultipartOptions,
    ) -> Result<MultipartId> {
        Ok(self.create_upload(location, options).await?.to_string())
    }

    pub(crate) async fn put_part_of(
        &self,
        location: &Location,
        id: &MultipartId,
        index: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        let directory = self.upload_directory(id)?;
        let content_id = self.write_part(location, &directory, index, data).await?;
        Ok(PartId { content_id })
    }

    pub(crate) async fn complete_upload_of(
        &self,
        location: &Location,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let directory = self.upload_directory(id)?;
        let parts: Vec<String> = parts.into_iter().map(|part| part.content_id).collect();
        self.complete_upload(location, &directory, &parts).await
    }

    pub(crate) async fn abort_upload_of(
        &self,
        location: &Location,
        id: &MultipartId,
    ) -> Result<()> {
        self.abort_upload(location, &self.upload_directory(id)?).await
    }

    /// Returns the hidden directory that an upload's id names.
    fn upload_directory(&self, id: &MultipartId) -> Result<Path> {
        let directory = id.parse::<Path>().ok().filter(|path| {
            let is_upload = path.name().is_some_and(|name| name.starts_with(UPLOAD));
            let above = path.parent().unwrap_or_else(Path::root);
            is_upload
                && (self.options().prefix.contains(&above)
                    || above.contains(&self.options().prefix))
        });
        directory.ok_or_else(|| error::bad(BadUpload::Id { id: id.clone() }))
    }
}

fn inside(directory: &Path, name: &str) -> std::result::Result<Path, ClientError> {
    directory.join(name).map_err(ClientError::Refused)
}

/// Returns the error of a call about an upload that was completed, aborted, or has vanished.
fn no_upload(location: &Location, error: ClientError) -> Error {
    match error.refusal() {
        Some(Refusal::NotFound { .. }) => error::bad(BadUpload::Gone { cause: error }),
        _ => error::of_making(location, error),
    }
}

/// Draws a name for one write of a part.
fn draw_part_name(index: usize) -> String {
    format!("{PART}{index:06}-{:016x}", rand::random::<u64>())
}

/// Returns whether this is the name of a part, as [`draw_part_name`] makes it. Earlier versions
/// named a part by its index alone.
fn is_part_name(name: &str) -> bool {
    let is_index = |it: &str| it.len() >= 6 && it.bytes().all(|byte| byte.is_ascii_digit());
    let is_drawn = |it: &str| it.len() == 16 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix(PART).is_some_and(|rest| match rest.split_once('-') {
        Some((index, drawn)) => is_index(index) && is_drawn(drawn),
        None => is_index(rest),
    })
}

/// Returns the path of the part that an id names.
fn part_path(directory: &Path, id: &str) -> Result<Path> {
    let bad = || error::bad(BadUpload::Part { id: id.to_owned() });
    // Earlier versions added the number of bytes.
    let name = id.split_once(':').map_or(id, |(name, _)| name);
    if !is_part_name(name) {
        return Err(bad());
    }
    directory.join(name).map_err(|_| bad())
}

/// One upload, and which of its parts are there.
#[derive(Debug)]
struct Upload {
    store: SanderlingStore,
    location: Location,
    directory: Path,
    /// The ids of the parts, in their order; empty until they are there.
    parts: Arc<Mutex<Vec<String>>>,
    next: usize,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let index = self.next;
        self.next += 1;
        self.parts.lock().push(String::new());
        let (store, location) = (self.store.clone(), self.location.clone());
        let (directory, parts) = (self.directory.clone(), Arc::clone(&self.parts));
        Box::pin(async move {
            let id = store.write_part(&location, &directory, index, data).await?;
            parts.lock()[index] = id;
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let parts = self.parts.lock().clone();
        if let Some(part) = parts.iter().position(String::is_empty) {
            return Err(error::bad(BadUpload::Missing { part }));
        }
        self.store.complete_upload(&self.location, &self.directory, &parts).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.abort_upload(&self.location, &self.directory).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_a_part_names_one_write_of_it() {
        let directory: Path = "/.upload-0".parse().unwrap();
        let (first, again) = (draw_part_name(3), draw_part_name(3));
        assert_ne!(first, again);
        assert!(first.starts_with("part-000003-"));
        for id in [&first, &draw_part_name(12_345_678)] {
            assert_eq!(part_path(&directory, id).unwrap(), directory.join(id).unwrap());
        }
        // Of an upload that an earlier version began.
        let earlier = part_path(&directory, "part-000003:77").unwrap();
        assert_eq!(earlier, directory.join("part-000003").unwrap());
        let long = format!("{first}0");
        for wrong in ["", "part-", "part-3", "options", "part-00000x", "part-000003-", &long] {
            assert!(part_path(&directory, wrong).is_err(), "{wrong}");
        }
        assert!(part_path(&directory, "part-000003/../x").is_err());
    }
}
