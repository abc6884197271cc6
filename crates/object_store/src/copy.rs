//! Copies, which stream through this process, and renames, which move no byte.

use futures_util::StreamExt;
use object_store::path::Path as Location;
use sanderling_client::{Client, ClientError, PutOptions, Reader, Writer};
use sanderling_protocol::limits::INLINE_BYTES_MAX;
use sanderling_protocol::message::{Condition, ObjectKind, ObjectStat};
use sanderling_protocol::{ObjectId, Path, Refusal};

use crate::attributes;
use crate::error::{self, Result};
use crate::get::pieces;
use crate::keys;
use crate::put::TRIES_MAX;
use crate::store::SanderlingStore;

impl SanderlingStore {
    /// Copies an object. Returns its id, which distinguishes it from another of the same name.
    pub(crate) async fn copy_object(
        &self,
        from: &Location,
        to: &Location,
        must_be_new: bool,
    ) -> Result<ObjectId> {
        let (source, target) = (self.path(from)?, self.path(to)?);
        let client = self.client_for(from).await?;
        let condition = must_be_new.then_some(Condition::Absent);
        let mut tries = 1..TRIES_MAX;
        loop {
            let reader = client.open(&source).await.map_err(|error| error::of(from, error))?;
            if !keys::is_object(&reader.stat()) {
                return Err(error::not_found(from, &source));
            }
            let object = reader.stat().object;
            if source == target && !must_be_new {
                return Ok(object);
            }
            let attributes = reader.stat().attributes;
            let class = attributes::class(&attributes).map_err(|error| error::of(from, error))?;
            let own = self.options().put.clone();
            let class = class.unwrap_or(own.class);
            let options = PutOptions { condition, attributes, class, ..own };
            match self.write_from(client, &reader, &target, &options).await {
                Ok(_) => return Ok(object),
                Err(gone) if error::is_gone(&gone) && tries.next().is_some() => {}
                Err(error) => return Err(error::of_making(to, error)),
            }
        }
    }

    /// Writes one object of the bytes of another, with a few pieces of them in memory.
    async fn write_from(
        &self,
        client: &Client,
        reader: &Reader,
        target: &Path,
        options: &PutOptions,
    ) -> std::result::Result<ObjectStat, ClientError> {
        let bytes = reader.bytes();
        if bytes <= INLINE_BYTES_MAX as u64 {
            let value = reader.read_range(0, bytes).await?;
            return client.put(target, value, options).await;
        }
        let options = PutOptions { expected_bytes: Some(bytes), ..options.clone() };
        let mut writer = client.create(target, &options).await?;
        match self.stream_into(&mut writer, reader).await {
            Ok(()) => writer.close().await,
            Err(error) => {
                let _ = writer.abort().await;
                Err(error)
            }
        }
    }

    async fn stream_into(
        &self,
        writer: &mut Writer,
        reader: &Reader,
    ) -> std::result::Result<(), ClientError> {
        let step = self.options().read_ahead_bytes;
        let mut pieces = pieces(reader.clone(), 0..reader.bytes(), step);
        while let Some(piece) = pieces.next().await {
            writer.write_bytes(piece?).await?;
        }
        Ok(())
    }

    pub(crate) async fn rename_object(
        &self,
        from: &Location,
        to: &Location,
        must_be_new: bool,
    ) -> Result<()> {
        let (source, target) = (self.path(from)?, self.path(to)?);
        let client = self.client_for(from).await?;
        let mut tries = 1..TRIES_MAX;
        loop {
            let stat = client.stat(&source).await.map_err(|error| error::of(from, error))?;
            if !keys::is_object(&stat) {
                return Err(error::not_found(from, &source));
            }
            if source == target && must_be_new {
                let exists = ClientError::Refused(Refusal::Exists { path: target });
                return Err(error::of(to, exists));
            }
            match client.rename(&source, &target, !must_be_new).await {
                Ok(()) => break,
                Err(ClientError::Refused(Refusal::NotFound { path })) if path == source => {
                    return Err(error::not_found(from, &source));
                }
                Err(error) if tries.next().is_none() => return Err(error::of_making(to, error)),
                // The directory above the target is missing, or was removed a moment ago.
                Err(ClientError::Refused(Refusal::NotFound { .. })) => {
                    self.make_above(client, to, &target).await?;
                }
                Err(ClientError::Refused(Refusal::CrossesJob { .. })) => {
                    let copied = self.copy_object(from, to, must_be_new).await?;
                    match client.delete_object(&source, copied, false).await {
                        // What has the name by now came after the rename, and stays.
                        Ok(_) | Err(ClientError::Refused(Refusal::Changed { .. })) => break,
                        Err(error) => return Err(error::of(from, error)),
                    }
                }
                Err(ClientError::Refused(Refusal::Exists { path })) if !must_be_new => {
                    let is_directory = ClientError::Refused(Refusal::IsADirectory { path });
                    return Err(error::of_making(to, is_directory));
                }
                Err(error) => return Err(error::of_making(to, error)),
            }
        }
        self.remove_empty(client, &[source]).await;
        Ok(())
    }

    async fn make_above(&self, client: &Client, to: &Location, target: &Path) -> Result<()> {
        let above = target.parent().unwrap_or_else(Path::root);
        match client.make_directory(&above, ObjectKind::Directory, true, true).await {
            // Another kind of container is as good.
            Ok(_) | Err(ClientError::Refused(Refusal::Exists { .. })) => Ok(()),
            Err(error) => Err(error::of_making(to, error)),
        }
    }
}
