//! Whole objects in.

use object_store::path::Path as Location;
use object_store::{Attributes, Error, PutMode, PutPayload, PutResult, TagSet, UpdateVersion};
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::Path;
use sanderling_protocol::limits::INLINE_BYTES_MAX;
use sanderling_protocol::message::{Condition, ObjectStat};

use crate::attributes;
use crate::error::{self, Result};
use crate::store::{SanderlingStore, e_tag, object_of, put_result};

/// Times that a call begins again because another call removed the directory above, or the object,
/// between two of its steps. Each time that other call made progress. So 16 in a row need 16 others
/// that succeeded between two of its requests. Chosen, not measured.
pub(crate) const TRIES_MAX: usize = 16;

impl SanderlingStore {
    pub(crate) async fn put_object(
        &self,
        location: &Location,
        payload: PutPayload,
        options: object_store::PutOptions,
    ) -> Result<PutResult> {
        let path = self.path(location)?;
        let put = self.put_options(location, &options)?;
        self.check_length(location, &path, &options.mode).await?;
        let mut tries = 1..TRIES_MAX;
        loop {
            match self.write_payload(&path, payload.clone(), &put).await {
                Ok(stat) => return Ok(put_result(&stat)),
                Err(gone) if error::is_gone(&gone) && tries.next().is_some() => {}
                Err(error) => return Err(error::of_making(location, error)),
            }
        }
    }

    /// Returns the client's options for those of one put.
    fn put_options(
        &self,
        location: &Location,
        options: &object_store::PutOptions,
    ) -> Result<PutOptions> {
        let mut put = self.options_with(location, &options.attributes, &options.tags)?;
        put.condition = match &options.mode {
            PutMode::Overwrite => None,
            PutMode::Create => Some(Condition::Absent),
            PutMode::Update(version) => {
                let tag = version.e_tag.as_ref().or(version.version.as_ref());
                let Some(object) = tag.and_then(|tag| object_of(tag)) else {
                    let path = location.to_string();
                    let source = format!("{version:?} is no version of this store").into();
                    return Err(Error::Precondition { path, source });
                };
                Some(Condition::Is(object))
            }
        };
        Ok(put)
    }

    /// Returns the options of what is written with these attributes and tags.
    pub(crate) fn options_with(
        &self,
        location: &Location,
        attributes: &Attributes,
        tags: &TagSet,
    ) -> Result<PutOptions> {
        let failed = |error| error::of(location, error);
        let mut put = self.options().put.clone();
        put.attributes = attributes::kept(attributes, tags).map_err(failed)?;
        if let Some(class) = attributes::class(&put.attributes).map_err(failed)? {
            put.class = class;
        }
        Ok(put)
    }

    /// Refuses an update of an object that has grown since its ETag was taken.
    async fn check_length(&self, location: &Location, path: &Path, mode: &PutMode) -> Result<()> {
        let PutMode::Update(UpdateVersion { e_tag: Some(wanted), .. }) = mode else {
            return Ok(());
        };
        let client = self.client_for(location).await?;
        match client.stat(path).await {
            // Nothing under the name is refused when the object is written.
            Err(ClientError::Refused(_)) => Ok(()),
            Err(error) => Err(error::of(location, error)),
            Ok(stat) if e_tag(stat.object, stat.bytes) == *wanted => Ok(()),
            Ok(stat) => {
                let path = location.to_string();
                let source =
                    format!("the object has ETag {}, not {wanted}", e_tag(stat.object, stat.bytes));
                Err(Error::Precondition { path, source: source.into() })
            }
        }
    }

    pub(crate) async fn write_payload(
        &self,
        path: &Path,
        payload: PutPayload,
        options: &PutOptions,
    ) -> std::result::Result<ObjectStat, ClientError> {
        let client = self.client().await?;
        let bytes = payload.content_length();
        let is_inline = bytes == 0 || options.is_inline_allowed && bytes <= INLINE_BYTES_MAX;
        if is_inline || payload.as_ref().len() == 1 {
            return client.put(path, payload.into(), options).await;
        }
        let options = PutOptions { expected_bytes: Some(bytes as u64), ..options.clone() };
        let mut writer = client.create(path, &options).await?;
        for chunk in payload {
            if let Err(error) = writer.write_bytes(chunk).await {
                // Otherwise the writer's lease would end by itself, only later.
                let _ = writer.abort().await;
                return Err(error);
            }
        }
        writer.close().await
    }
}
