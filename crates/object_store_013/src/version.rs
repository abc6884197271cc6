//! What differs in this version of `object_store`.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Location;
use object_store::{
    Attributes, GetResult, GetResultPayload, ListResult, MultipartId, ObjectMeta,
    PutMultipartOptions, PutPayload, PutResult, TagSet,
};

use crate::error::Result;
use crate::store::SanderlingStore;

pub(crate) fn has_tags(tags: &TagSet) -> bool {
    !tags.encoded().is_empty()
}

pub(crate) fn put_result(e_tag: String) -> PutResult {
    PutResult { e_tag: Some(e_tag), version: None }
}

pub(crate) fn get_result(
    payload: BoxStream<'static, Result<Bytes>>,
    meta: ObjectMeta,
    range: std::ops::Range<u64>,
    attributes: Attributes,
) -> GetResult {
    let payload = GetResultPayload::Stream(payload);
    GetResult { payload, meta, range, attributes }
}

pub(crate) fn list_result(common_prefixes: Vec<Location>, objects: Vec<ObjectMeta>) -> ListResult {
    ListResult { common_prefixes, objects }
}

#[async_trait]
impl MultipartStore for SanderlingStore {
    async fn create_multipart(&self, location: &Location) -> Result<MultipartId> {
        self.create_upload_id(location, PutMultipartOptions::default()).await
    }

    async fn put_part(
        &self,
        location: &Location,
        id: &MultipartId,
        index: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        self.put_part_of(location, id, index, data).await
    }

    async fn complete_multipart(
        &self,
        location: &Location,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        self.complete_upload_of(location, id, parts).await
    }

    async fn abort_multipart(&self, location: &Location, id: &MultipartId) -> Result<()> {
        self.abort_upload_of(location, id).await
    }
}
