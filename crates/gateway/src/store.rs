//! Storing: bytes that come in, from a client or from another object, become an object.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, StdError};
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::ObjectStat;
use sanderling_protocol::{Path, Refusal};

use crate::api::S3Api;
use crate::digest::{ALGORITHMS, Digested, Digests, sum_of};
use crate::refused::{Missing, body_error, refused};
use crate::slow_client::Lateness;
use crate::unfinished_put::UnfinishedPut;
use crate::{etag, metadata};

/// Times that a put is tried again when its directory is missing, or vanished under it with the
/// last key that was in it. Each time the last key below the directory was deleted between two
/// steps. Chosen, not measured.
const RETRIES_MAX: usize = 8;

/// Where bytes go.
#[derive(Debug)]
pub(crate) struct PutTarget {
    /// The bucket; `None` for parts of uploads, whose directory must be there.
    pub(crate) bucket: Option<Path>,
    pub(crate) path: Path,
    pub(crate) options: PutOptions,
    /// The entity tag, where it is known: of a copy.
    pub(crate) tag: Option<String>,
}

/// What was stored.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) stat: ObjectStat,
    pub(crate) tag: String,
    pub(crate) digested: Digested,
}

/// Returns the bytes of a body, with what can go wrong on their way in S3's words.
pub(crate) fn body(
    blob: Option<StreamingBlob>,
    lateness: Lateness,
) -> impl Stream<Item = S3Result<Bytes>> + Unpin {
    let blob = futures_util::stream::iter(blob).flatten();
    let failed = move |error: StdError| body_error(&error.to_string(), &lateness);
    Box::pin(blob.map(move |piece| piece.map_err(&failed)))
}

impl S3Api {
    /// Stores what a stream brings. Nothing is seen of it before all of it is there and is what it
    /// has to be; then it replaces what had the name.
    ///
    /// # Errors
    /// Those of the stream, of the digests, and of the store.
    pub(crate) async fn store(
        &self,
        mut target: PutTarget,
        mut bytes: impl Stream<Item = S3Result<Bytes>> + Unpin,
        mut digests: Digests,
    ) -> S3Result<Stored> {
        let mut block = Vec::with_capacity(first_capacity(digests.bytes_wanted()));
        let rest = fill(&mut block, &mut bytes, None, &mut digests).await?;
        let block = Bytes::from(block);
        digests.update_block(block.clone()).await;
        let Some(rest) = rest else {
            let digested = digests.finish().await?;
            let tag = target.tag.take().unwrap_or_else(|| etag::of_digest(digested.md5));
            keep(&mut target.options, &tag, &digested);
            let stat = self.store_block(target, block).await?;
            return Ok(Stored { stat, tag, digested });
        };
        self.store_blocks(target, block, rest, bytes, digests).await
    }

    /// Stores bytes that fit one block, at once.
    async fn store_block(&self, target: PutTarget, bytes: Bytes) -> S3Result<ObjectStat> {
        let mut unfinished = None;
        let stored = self.put_block(target, bytes, &mut unfinished).await;
        if let Some(unfinished) = unfinished {
            unfinished.end().await;
        }
        stored
    }

    /// Puts bytes that fit one block. A put that makes directories is unfinished until it succeeds.
    async fn put_block(
        &self,
        target: PutTarget,
        bytes: Bytes,
        unfinished: &mut Option<UnfinishedPut>,
    ) -> S3Result<ObjectStat> {
        let PutTarget { bucket, path, mut options, .. } = target;
        for _ in 0..RETRIES_MAX {
            let stored = if options.parents {
                let begin = || UnfinishedPut::begin(self, bucket.as_ref(), &path);
                let put = unfinished.take().unwrap_or_else(begin);
                let (put, stored) = put.put(bytes.clone(), &options).await?;
                *unfinished = Some(put);
                stored
            } else {
                self.client.put(&path, bytes.clone(), &options).await
            };
            match stored {
                Ok(stat) => return Ok(stat),
                Err(error) => self.make_way(bucket.as_ref(), &path, &mut options, error).await?,
            }
        }
        Err(S3ErrorCode::SlowDown.into())
    }

    /// Stores bytes block by block, as they come.
    async fn store_blocks(
        &self,
        mut target: PutTarget,
        first: Bytes,
        rest: Bytes,
        bytes: impl Stream<Item = S3Result<Bytes>> + Unpin,
        digests: Digests,
    ) -> S3Result<Stored> {
        target.options.expected_bytes = digests.bytes_wanted();
        let mut put = self.create(&mut target).await?;
        let stored = write_blocks(&mut put, target, (first, rest), bytes, digests).await;
        put.end().await;
        stored
    }

    /// Creates the object of a put, and missing directories if the bucket is there.
    async fn create(&self, target: &mut PutTarget) -> S3Result<UnfinishedPut> {
        let PutTarget { bucket, path, options, .. } = target;
        let bucket = bucket.as_ref();
        let mut put = UnfinishedPut::begin(self, bucket, path);
        for _ in 0..RETRIES_MAX {
            let created;
            (put, created) = put.create(options).await?;
            match created {
                Ok(()) => return Ok(put),
                Err(error) if options.parents => {
                    put.end().await;
                    return Err(refused(&error, missing(bucket)));
                }
                Err(error) => self.make_way(bucket, path, options, error).await?,
            }
        }
        Err(S3ErrorCode::SlowDown.into())
    }

    /// Allows missing directories to be made, if the bucket is there: the directory of the key is
    /// missing, or went while the object was written. A key right in the bucket has no directory
    /// but that: another request made the bucket again.
    async fn make_way(
        &self,
        bucket: Option<&Path>,
        path: &Path,
        options: &mut PutOptions,
        error: ClientError,
    ) -> S3Result<()> {
        let is_missing = match &error {
            ClientError::Refused(Refusal::NotFound { .. }) => !options.parents,
            ClientError::Refused(Refusal::ObjectGone { .. }) => true,
            _ => false,
        };
        match bucket {
            None => Err(refused(&error, Missing::Upload)),
            Some(bucket) if is_missing => {
                self.check_bucket(bucket).await?;
                options.parents = path.parent().as_ref() != Some(bucket);
                Ok(())
            }
            Some(_) => Err(refused(&error, Missing::Key)),
        }
    }
}

/// Returns what is missing when a put finds nothing under a path.
const fn missing(bucket: Option<&Path>) -> Missing {
    if bucket.is_some() { Missing::Key } else { Missing::Upload }
}

/// Writes an object that was created, and seals it.
async fn write_blocks(
    put: &mut UnfinishedPut,
    target: PutTarget,
    (first, mut rest): (Bytes, Bytes),
    mut bytes: impl Stream<Item = S3Result<Bytes>> + Unpin,
    mut digests: Digests,
) -> S3Result<Stored> {
    let PutTarget { bucket, mut options, tag, .. } = target;
    let missing = missing(bucket.as_ref());
    let failed = |error: ClientError| refused(&error, missing);
    let writer = put.writer();
    writer.write_bytes(first).await.map_err(failed)?;
    loop {
        let mut block = Vec::with_capacity(BLOCK_BYTES_MAX as usize);
        let more = fill(&mut block, &mut bytes, Some(rest), &mut digests).await?;
        let block = Bytes::from(block);
        digests.update_block(block.clone()).await;
        writer.write_bytes(block).await.map_err(failed)?;
        match more {
            Some(more) => rest = more,
            None => break,
        }
    }
    let digested = digests.finish().await?;
    let tag = tag.unwrap_or_else(|| etag::of_digest(digested.md5));
    keep(&mut options, &tag, &digested);
    for (name, text) in options.attributes.iter() {
        writer.set_attribute(name, text);
    }
    let stat = put.close().await.map_err(|error| unstored(&error, missing))?;
    Ok(Stored { stat, tag, digested })
}

/// Returns the S3 error of an object whose end failed. Bytes that were lost on the way the client
/// still has: it sends them again.
fn unstored(error: &ClientError, missing: Missing) -> S3Error {
    match error {
        ClientError::DataUnavailable { .. } => {
            S3Error::with_message(S3ErrorCode::ServiceUnavailable, error.to_string())
        }
        error => refused(error, missing),
    }
}

/// Returns how much room the first block needs.
fn first_capacity(bytes: Option<u64>) -> usize {
    let most = u64::from(BLOCK_BYTES_MAX);
    usize::try_from(bytes.unwrap_or(most).min(most)).unwrap_or_default()
}

/// Fills a block from what is left of the last piece and from the stream. Returns what does not
/// fit; `None` at the end of the stream.
async fn fill(
    block: &mut Vec<u8>,
    bytes: &mut (impl Stream<Item = S3Result<Bytes>> + Unpin),
    rest: Option<Bytes>,
    digests: &mut Digests,
) -> S3Result<Option<Bytes>> {
    let mut piece = rest;
    loop {
        if let Some(mut piece) = piece.take() {
            let room = BLOCK_BYTES_MAX as usize - block.len();
            let now = piece.split_to(piece.len().min(room));
            digests.update(&now);
            block.extend_from_slice(&now);
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        match bytes.next().await.transpose()? {
            Some(next) => piece = Some(next),
            None => return Ok(None),
        }
    }
}

/// Keeps the entity tag and the checksums beside the bytes.
fn keep(options: &mut PutOptions, tag: &str, digested: &Digested) {
    let (name, text) = metadata::tag_attribute(tag, digested.bytes);
    options.attributes.set(name, text);
    for algorithm in ALGORITHMS {
        if let Some(sum) = sum_of(&digested.sums, algorithm) {
            metadata::set_checksum(&mut options.attributes, algorithm, sum, digested.bytes);
        }
    }
}
