//! A store in an S3 bucket.
//!
//! Every object is a multipart upload, also a small one: an upload that was aborted can never be
//! completed, where a simple put that is late would cover a newer object.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};

use sanderling_core::durable::{NamedOwner, PART_BYTES_MIN};
use sanderling_protocol::message::{STORE_OWN_NAME, StoreSlice};

use super::listing::SliceBuilder;
use super::opened_directories::may_be_object;
use super::own_names::OWNER_NAME;
use super::store_error::{StoreError, is_no_name};

/// Characters that no document in XML may have, besides control characters, which no name has.
const NOT_IN_XML: [char; 2] = ['\u{fffe}', '\u{ffff}'];

/// How requests are sent to a bucket.
#[derive(Debug)]
pub(super) struct BucketClients {
    pub(super) store: AmazonS3,
    /// Removes each object by a request of its own.
    pub(super) single: AmazonS3,
    /// Waits for longer: for parts that are longer than the shortest.
    pub(super) long_parts: AmazonS3,
}

/// A bucket, or what begins with a prefix in it.
#[derive(Debug)]
pub(super) struct Bucket {
    store: AmazonS3,
    single: AmazonS3,
    long_parts: AmazonS3,
    prefix: Path,
}

impl Bucket {
    pub(super) fn new(clients: BucketClients, prefix: Path) -> Self {
        let BucketClients { store, single, long_parts } = clients;
        Self { store, single, long_parts, prefix }
    }

    fn place(&self, key: &str) -> Result<Path, StoreError> {
        let begins = |name: &str| key == name || key.starts_with(&format!("{name}/"));
        if key.is_empty() || begins(STORE_OWN_NAME) {
            return Err(StoreError::BadName { key: key.to_owned() });
        }
        let names = key.split('/');
        if names.clone().any(|name| matches!(name, "" | "." | "..")) {
            return Err(StoreError::BadName { key: key.to_owned() });
        }
        let relative = Path::parse(key)?;
        Ok(self.prefix.parts().chain(relative.parts()).collect())
    }

    fn owner(&self) -> Path {
        self.prefix.clone().join(STORE_OWN_NAME).join(OWNER_NAME)
    }

    pub(super) async fn read_owner(&self) -> Result<Option<String>, StoreError> {
        match self.store.get(&self.owner()).await {
            Ok(found) => {
                let bytes = found.bytes().await.map_err(StoreError::Owner)?;
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(StoreError::Owner(error)),
        }
    }

    pub(super) async fn write_owner(&self, owner: &str) -> Result<(), StoreError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let payload = PutPayload::from(format!("{owner}\n").into_bytes());
        match self.store.put_opts(&self.owner(), payload, options).await {
            Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(StoreError::Owner(error)),
        }
    }

    /// Names this owner if there is another one. Returns the owner that there was, or that the
    /// store was adopted from.
    pub(super) async fn take(&self, wanted: &str) -> Result<Option<NamedOwner>, StoreError> {
        let found = match self.store.get(&self.owner()).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(StoreError::Owner(error)),
        };
        let seen = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: None };
        let bytes = found.bytes().await.map_err(StoreError::Owner)?;
        let named = NamedOwner::of(&String::from_utf8_lossy(&bytes));
        if named.check(wanted).is_err() {
            self.replace_owner(&named.replaced_by(wanted), seen).await?;
        }
        Ok(Some(named))
    }

    /// Replaces the owner that was seen, and no other one, where the server has conditions.
    async fn replace_owner(&self, text: &str, seen: UpdateVersion) -> Result<(), StoreError> {
        let payload = PutPayload::from(format!("{text}\n").into_bytes());
        // A server without entity tags has no conditions.
        let mode = if seen.e_tag.is_some() { PutMode::Update(seen) } else { PutMode::Overwrite };
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.store.put_opts(&self.owner(), payload.clone(), options).await {
            Err(object_store::Error::NotImplemented { .. }) => {
                self.store.put(&self.owner(), payload).await.map_err(StoreError::Owner)?;
            }
            Err(object_store::Error::Precondition { .. }) => {
                return Err(StoreError::AdoptedByAnother);
            }
            Err(error) => return Err(StoreError::Owner(error)),
            Ok(_) => {}
        }
        Ok(())
    }

    /// Lists a part of what is there, in the order of the names.
    pub(super) async fn list(&self, after: &str) -> Result<StoreSlice, StoreError> {
        let prefix = self.prefix.as_ref();
        let offset = match (prefix, after) {
            (_, "") => None,
            ("", after) => Some(after.to_owned()),
            (prefix, after) => Some(format!("{prefix}/{after}")),
        };
        let mut listed = match offset {
            None => self.store.list(Some(&self.prefix)),
            Some(offset) => {
                let offset = Path::parse(offset)?;
                self.store.list_with_offset(Some(&self.prefix), &offset)
            }
        };
        let mut slice = SliceBuilder::default();
        while let Some(found) = listed.next().await.transpose()? {
            let key = found.location.as_ref().strip_prefix(prefix).unwrap_or_default();
            let key = key.trim_start_matches('/');
            if key.is_empty() || key.starts_with(&format!("{STORE_OWN_NAME}/")) {
                continue;
            }
            if slice.is_full() {
                return Ok(slice.finish(true));
            }
            slice.add(key.to_owned(), found.size);
        }
        Ok(slice.finish(false))
    }

    pub(super) async fn is_empty(&self) -> Result<bool, StoreError> {
        let mut listed = self.store.list(Some(&self.prefix));
        let first = listed.next().await.transpose().map_err(StoreError::Owner)?;
        Ok(first.is_none())
    }

    pub(super) async fn begin(&self, key: &str) -> Result<String, StoreError> {
        Ok(self.store.create_multipart(&self.place(key)?).await?)
    }

    pub(super) async fn send(
        &self,
        key: &str,
        upload: &str,
        number: u32,
        part: Vec<Bytes>,
    ) -> Result<String, StoreError> {
        let (place, upload) = (self.place(key)?, upload.to_owned());
        let payload = PutPayload::from_iter(part);
        let is_long = payload.content_length() as u64 > PART_BYTES_MIN;
        let client = if is_long { &self.long_parts } else { &self.store };
        let sent = client.put_part(&place, &upload, number as usize, payload).await?;
        Ok(sent.content_id)
    }

    pub(super) async fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[String],
        bytes: u64,
    ) -> Result<(), StoreError> {
        let (place, upload) = (self.place(key)?, upload.to_owned());
        let parts = parts.iter().map(|part| PartId { content_id: part.clone() }).collect();
        let completed = self.store.complete_multipart(&place, &upload, parts).await?;
        let found = self.store.head(&place).await?;
        if found.size != bytes {
            let (key, found) = (key.to_owned(), found.size);
            return Err(StoreError::ObjectLength { key, found, bytes });
        }
        // The name may have had an object of that length before.
        let (wanted, there) = (tag(completed.e_tag.as_deref()), tag(found.e_tag.as_deref()));
        if wanted.is_some() && there.is_some() && wanted != there {
            return Err(StoreError::OtherObject { key: key.to_owned() });
        }
        Ok(())
    }

    pub(super) async fn remove(&self, key: &str) -> Result<(), StoreError> {
        match self.single.delete(&self.place(key)?).await {
            Ok(()) => Ok(()),
            // No object can have the name.
            Err(error) if is_no_name(&error) => Ok(()),
            // The object is gone, or the whole bucket.
            Err(error @ object_store::Error::NotFound { .. }) => match self.read_owner().await? {
                Some(_) => Ok(()),
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn remove_tree(&self, key: &str) -> Result<(), StoreError> {
        let listed = self.store.list(Some(&self.place(key)?));
        let ours = |found: &object_store::ObjectMeta| {
            let is_ours = may_be_object(found.location.as_ref(), found.size);
            std::future::ready(is_ours)
        };
        // A request that names several objects is a document, and some names cannot be in one.
        let single = self.single.clone();
        let named = move |found: object_store::ObjectMeta| {
            let single = single.clone();
            async move {
                if !found.location.as_ref().contains(NOT_IN_XML) {
                    return Ok(Some(found.location));
                }
                match single.delete(&found.location).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        };
        let places = listed.try_filter(ours).try_filter_map(named).boxed();
        let mut removed = self.store.delete_stream(places);
        while let Some(one) = removed.next().await {
            match one {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                // Nothing can be below the name.
                Err(error) if is_no_name(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads a range of an object of so many bytes; `None` if there is none.
    pub(super) async fn fetch(
        &self,
        key: &str,
        bytes: u64,
        offset: u64,
        length: u32,
    ) -> Result<Option<Bytes>, StoreError> {
        let range = Some(GetRange::Bounded(offset..offset + u64::from(length)));
        let options = GetOptions { range, ..GetOptions::default() };
        match self.store.get_opts(&self.place(key)?, options).await {
            Ok(found) if found.meta.size == bytes => Ok(Some(found.bytes().await?)),
            Ok(_) => Ok(None),
            Err(object_store::Error::NotFound { .. }) => match self.read_owner().await? {
                Some(_) => Ok(None),
                None => Err(StoreError::BucketGone),
            },
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn abort(&self, key: &str, upload: &str) -> Result<(), StoreError> {
        match self.store.abort_multipart(&self.place(key)?, &upload.to_owned()).await {
            Ok(()) => Ok(()),
            // The upload is gone, or the whole bucket.
            Err(object_store::Error::NotFound { .. }) => match self.read_owner().await? {
                Some(_) => Ok(()),
                None => Err(StoreError::BucketGone),
            },
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns an entity tag without its quotes and the mark of a weak one; `None` if there is none.
fn tag(answered: Option<&str>) -> Option<&str> {
    let tag = answered?.trim();
    let tag = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    (!tag.is_empty()).then_some(tag)
}
