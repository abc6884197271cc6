//! Multifiles: many writers, read as one stream or part by part.

use bytes::Bytes;
use sanderling_protocol::Path;
use sanderling_protocol::message::{Entry, ObjectKind, ObjectStat};

use crate::client::Client;
use crate::error::ClientError;
use crate::options::PutOptions;
use crate::read::ReadStream;
use crate::write::Writer;

/// Bytes read at a time from each part: as many as one frame to a datanode requests by default
/// (`ClientConfig::read_frame_bytes_max`), so that a read is no more frames than datanodes with
/// bytes of it. A stream has two reads in flight and the bytes of a third with the caller: 12 MiB.
const READ_AHEAD: u64 = 4 << 20;

impl Client {
    /// Makes an empty multifile and the missing directories above it, and returns its metadata. A
    /// multifile that exists stays as it is.
    ///
    /// # Errors
    /// `Exists` when something else has the name: choose another one.
    pub async fn make_multifile(&self, path: &Path) -> Result<ObjectStat, ClientError> {
        self.make_directory(path, ObjectKind::Multifile, true, true).await
    }

    /// Creates a part of a multifile and returns its writer. Parts are read in the order of their
    /// names.
    ///
    /// # Errors
    /// `Exists` when the multifile has a part of this name: choose another one.
    pub async fn create_part(
        &self,
        multifile: &Path,
        part: &str,
        options: &PutOptions,
    ) -> Result<Writer, ClientError> {
        self.create(&multifile.join(part).map_err(ClientError::Refused)?, options).await
    }

    /// Opens a multifile, or a directory of files, to be read as one stream. Parts created from now
    /// on are not in it.
    ///
    /// # Errors
    /// `NotFound` and `NotADirectory`: correct the path.
    pub async fn open_multi(&self, path: &Path) -> Result<MultiReader, ClientError> {
        let parts = self.list_all(path).await?;
        let parts: Vec<Entry> =
            parts.into_iter().filter(|part| !part.kind.is_container()).collect();
        let parts = parts.into_iter().rev().collect();
        Ok(MultiReader { client: self.clone(), path: path.clone(), parts, open: None })
    }
}

/// Reads the parts of a multifile one after the other.
#[derive(Debug)]
pub struct MultiReader {
    client: Client,
    path: Path,
    /// Still to be read, the next one last.
    parts: Vec<Entry>,
    open: Option<ReadStream>,
}

impl MultiReader {
    /// Returns the parts that are not opened yet, in the order in which they are read. The part
    /// that is being read is not among them.
    pub fn parts(&self) -> impl Iterator<Item = &Entry> {
        self.parts.iter().rev()
    }

    /// Returns the next bytes; `None` at the end of the last part.
    ///
    /// A part that fails is left: its error names it, and the next call goes on with the part after
    /// it, so that one lost part does not hide the others.
    ///
    /// # Errors
    /// [`ClientError::DataUnavailable`]: bytes of this part are lost; compute the part again, and
    /// call again for the parts behind it. Others are as [`Client::open`] and
    /// [`ReadStream::next`] return them.
    pub async fn next(&mut self) -> Option<Result<Bytes, ClientError>> {
        loop {
            if let Some(stream) = &mut self.open {
                match stream.next().await {
                    Some(Ok(bytes)) => return Some(Ok(bytes)),
                    Some(Err(error)) => {
                        self.open = None;
                        return Some(Err(error));
                    }
                    None => self.open = None,
                }
            }
            let part = self.parts.pop()?;
            let opened = match self.path.join(&part.name) {
                Ok(path) => self.client.open(&path).await,
                Err(refusal) => Err(ClientError::Refused(refusal)),
            };
            match opened {
                Ok(reader) => self.open = Some(reader.stream(READ_AHEAD)),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads all parts that are left to the end and returns their bytes, in order, as one piece of
    /// memory.
    ///
    /// # Errors
    /// That of the first part that fails. To read the others call [`MultiReader::next`] instead.
    pub async fn read_all(mut self) -> Result<Bytes, ClientError> {
        let mut all = bytes::BytesMut::new();
        while let Some(read) = self.next().await {
            all.extend_from_slice(&read?);
        }
        Ok(all.freeze())
    }
}
