//! Whole objects in.

use object_store::path::Path as Location;
use object_store::{Error, PutMode, PutPayload, PutResult};
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::Path;
use sanderling_protocol::limits::INLINE_BYTES_MAX;
use sanderling_protocol::message::{CreateMode, ObjectStat};

use crate::error::{self, Result};
use crate::store::{SanderlingStore, put_result};

/// Times that a call begins again because somebody removed the directory above, or the object,
/// between two of its steps. Each time somebody else got something done.
pub(crate) const TRIES_MAX: usize = 16;

impl SanderlingStore {
    pub(crate) async fn put_object(
        &self,
        location: &Location,
        payload: PutPayload,
        options: object_store::PutOptions,
    ) -> Result<PutResult> {
        let path = self.path(location)?;
        let put = self.put_options(&options)?;
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
    fn put_options(&self, options: &object_store::PutOptions) -> Result<PutOptions> {
        let mut put = self.options().put.clone();
        put.mode = match &options.mode {
            PutMode::Overwrite => CreateMode::Replace,
            PutMode::Create => CreateMode::New,
            PutMode::Update(_) => return Err(not_implemented("put_opts with PutMode::Update")),
        };
        if !options.attributes.is_empty() || !options.tags.is_empty() {
            return Err(not_implemented("put_opts with attributes"));
        }
        Ok(put)
    }

    pub(crate) async fn write_payload(
        &self,
        path: &Path,
        payload: PutPayload,
        options: &PutOptions,
    ) -> std::result::Result<ObjectStat, ClientError> {
        let client = self.client().await?;
        let bytes = payload.content_length();
        if bytes <= INLINE_BYTES_MAX || payload.as_ref().len() == 1 {
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

pub(crate) fn not_implemented(operation: &str) -> Error {
    let (operation, implementer) = (operation.to_owned(), error::STORE.to_owned());
    Error::NotImplemented { operation, implementer }
}
