//! Whole objects.

use bytes::Bytes;
use sanderling_protocol::limits::{BLOCK_BYTES_MAX, INLINE_BYTES_MAX};
use sanderling_protocol::message::{Layout, ObjectStat};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{ObjectId, Path, Refusal, Reply, Request};

use crate::client::{Attempts, Client};
use crate::error::ClientError;
use crate::metrics::count;
use crate::options::PutOptions;
use crate::read::Reader;
use crate::write::Writer;

impl Client {
    /// Writes a whole object, seals it and returns its metadata. A small one takes one round trip
    /// to the namenode.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with what is wrong about the name or the place: correct that, as
    /// [`ClientError::recovery`] states.
    pub async fn put(
        &self,
        path: &Path,
        bytes: Bytes,
        options: &PutOptions,
    ) -> Result<ObjectStat, ClientError> {
        let mut attempts = self.attempts(("put", path));
        let mut request = options.request(path, self.shared.nonces.draw());
        request.expected_bytes = Some(bytes.len() as u64);
        if bytes.len() <= INLINE_BYTES_MAX && (options.is_inline_allowed || bytes.is_empty()) {
            count(&self.shared.counters.written_bytes, bytes.len() as u64);
            request.inline = Some(bytes.to_vec());
            return match self.request_within(&mut attempts, Request::Create(request)).await? {
                Reply::Stat(stat) => Ok(stat),
                _ => Err(ClientError::BadReply { what: attempts.what.to_string() }),
            };
        }
        // The likely home of the first block copies it while the namenode answers.
        let first = bytes.slice(..bytes.len().min(BLOCK_BYTES_MAX as usize));
        let deadline = attempts.deadline;
        let (reply, staged) = tokio::join!(
            self.request_within(&mut attempts, Request::Create(request)),
            self.shared.local.stage(&first, deadline),
        );
        match reply? {
            Reply::Grant(grant) => {
                let mut writer = Writer::new(self.clone(), path.clone(), &grant);
                writer.was_staged(staged);
                let written = writer.write_bytes(bytes).await;
                match written {
                    Ok(()) => writer.close().await,
                    Err(error) => {
                        // Neither half an object nor its lease must stay under the name.
                        let _ = writer.abort().await;
                        Err(error)
                    }
                }
            }
            _ => Err(ClientError::BadReply { what: attempts.what.to_string() }),
        }
    }

    /// Reads a whole object and returns its bytes as one piece. An object that is to be deleted
    /// after a read is deleted then.
    ///
    /// # Errors
    /// [`ClientError::DataUnavailable`] with the lost ranges: recompute these, a retry does not
    /// help.
    pub async fn get(&self, path: &Path) -> Result<Bytes, ClientError> {
        let mut attempts = self.attempts(("get", path));
        loop {
            let forgotten = self.shared.locations.forgotten();
            let layout = self.data_layout(&mut attempts, path).await?;
            if let Some(value) = whole_value(&layout) {
                count(&self.shared.counters.read_bytes, value.len() as u64);
                if layout.stat.delete_after_read {
                    self.delete_read(path, layout.stat.object).await;
                }
                return Ok(value);
            }
            let reader = self.reader(forgotten, layout);
            let bytes = reader.bytes();
            let whole = [ByteRange { offset: 0, bytes }];
            match self.read_of(&reader, &mut attempts, &whole).await? {
                Some(mut read) => {
                    if reader.stat().delete_after_read {
                        self.delete_read(path, reader.stat().object).await;
                    }
                    return Ok(read.pop().expect("one answer to one range"));
                }
                None => continue,
            }
        }
    }

    /// Reads into `buffer` from `offset` of an object and returns how many bytes there were: fewer
    /// only at the end. A buffer that takes the whole object is a whole read.
    ///
    /// # Errors
    /// As [`Client::get`]; what the buffer holds then is anything.
    pub async fn get_into(
        &self,
        path: &Path,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, ClientError> {
        let mut attempts = self.attempts(("get", path));
        loop {
            let reader = self.open_within(&mut attempts, path).await?;
            match reader.read_into(offset, buffer).await {
                Ok(read) => {
                    let stat = reader.stat();
                    if stat.delete_after_read && read as u64 == stat.bytes {
                        self.delete_read(path, stat.object).await;
                    }
                    return Ok(read);
                }
                Err(ClientError::Refused(refusal @ Refusal::ObjectGone { .. })) => {
                    self.again(&mut attempts, gone(&refusal).into()).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes an object that was read, unless another has its name by now. Where that fails the
    /// bytes that were read are good all the same: the object stays, and a warning is logged.
    pub async fn delete_read(&self, path: &Path, object: ObjectId) {
        match self.delete_object(path, object, false).await {
            // Another reader may have been first, or another object has the name.
            Ok(_)
            | Err(ClientError::Refused(
                Refusal::NotFound { .. } | Refusal::Changed { .. } | Refusal::ObjectGone { .. },
            )) => {}
            Err(error) => {
                tracing::warn!(%path, %object, %error, "an object that was read stays");
            }
        }
    }

    /// Reads `bytes` bytes of an object from `offset` and returns them as one piece. An object that
    /// is to be deleted after a whole read stays.
    ///
    /// # Errors
    /// As [`Client::get`], and [`Refusal::OutOfRange`]: read within the length that
    /// [`Client::stat`] returns.
    pub async fn get_range(
        &self,
        path: &Path,
        offset: u64,
        bytes: u64,
    ) -> Result<Bytes, ClientError> {
        let mut ranges = self.get_ranges(path, &[ByteRange { offset, bytes }]).await?;
        Ok(ranges.pop().expect("one answer to one range"))
    }

    /// Reads many ranges of an object and returns their bytes in the order of the ranges. If the
    /// object is replaced meanwhile, all of them are read from the new one.
    ///
    /// # Errors
    /// As [`Client::get_range`]; if any range fails, all do.
    pub async fn get_ranges(
        &self,
        path: &Path,
        ranges: &[ByteRange],
    ) -> Result<Vec<Bytes>, ClientError> {
        let mut attempts = self.attempts(("get", path));
        loop {
            let reader = self.open_within(&mut attempts, path).await?;
            if let Some(read) = self.read_of(&reader, &mut attempts, ranges).await? {
                return Ok(read);
            }
        }
    }

    /// Reads; `None` when the object was replaced meanwhile and its name must be looked up again.
    async fn read_of(
        &self,
        reader: &Reader,
        attempts: &mut Attempts,
        ranges: &[ByteRange],
    ) -> Result<Option<Vec<Bytes>>, ClientError> {
        match reader.read_within(attempts, ranges).await {
            Ok(read) => Ok(Some(read)),
            Err(ClientError::Refused(refusal @ Refusal::ObjectGone { .. })) => {
                self.again(attempts, gone(&refusal).into()).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the refusal of a read whose object was replaced: its name is looked up again.
fn gone(refusal: &Refusal) -> Refusal {
    Refusal::RetryAfter { after: sanderling_protocol::Millis(1), why: refusal.to_string() }
}

/// Returns an object's bytes if all of them live in the catalog and so came with its look-up.
fn whole_value(layout: &Layout) -> Option<Bytes> {
    let inline = layout.inline.as_ref()?;
    let is_whole = inline.len() as u64 == layout.stat.bytes && layout.blocks.is_empty();
    is_whole.then(|| Bytes::copy_from_slice(inline))
}
