//! Types that write and read streams of bytes.

use bytes::Bytes;
use sanderling_client::{MultiReader, ReadStream, Reader, Writer};
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectKind;

use super::error::BenchError;
use super::scenario::{Moved, Scenario, Stateless};
use super::work::{BenchThread, scattered};

/// Bytes that a buffered stream reads at a time: one block.
pub(super) const READ_AHEAD: u64 = 1 << 20;

/// Parts of a multifile: more than the nodes of a small cluster, so that all of them are read from
/// at once. Chosen, not measured.
pub(super) const PARTS: u64 = 16;

/// `write`, `write-async`.
pub(super) struct Append {
    work: BenchThread,
    piece: Bytes,
    is_buffered: bool,
}

/// `write-flush`.
pub(super) struct AppendAndFlush(Append);

/// A file that grows until the working set is used up, and then begins anew.
pub(super) struct Growing {
    work: BenchThread,
    files: u64,
    path: Path,
    writer: Writer,
}

impl Growing {
    pub(super) async fn open(work: &BenchThread) -> Result<Self, BenchError> {
        let path = work.path("written-0")?;
        let writer = work.client.create(&path, &work.options()).await?;
        Ok(Self { work: work.clone(), files: 1, path, writer })
    }

    /// Returns the writer of a file that has room for so many bytes.
    #[inline]
    pub(super) async fn writer(&mut self, bytes: u64) -> Result<&mut Writer, BenchError> {
        let position = self.writer.position();
        if position > 0 && position + bytes > self.work.load.share {
            self.begin_anew().await?;
        }
        Ok(&mut self.writer)
    }

    async fn begin_anew(&mut self) -> Result<(), BenchError> {
        let path = self.work.path(&format!("written-{}", self.files))?;
        let writer = self.work.client.create(&path, &self.work.options()).await?;
        std::mem::replace(&mut self.writer, writer).close().await?;
        let old = std::mem::replace(&mut self.path, path);
        self.work.client.delete(&old, false).await?;
        self.files += 1;
        Ok(())
    }

    pub(super) async fn close(self) -> Result<(), BenchError> {
        self.writer.close().await?;
        Ok(())
    }
}

impl Scenario for Append {
    type State = Growing;

    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        work.make(ObjectKind::Directory).await?;
        let (piece, is_buffered) = (work.piece(), work.load.is_buffered);
        Ok(Self { work, piece, is_buffered })
    }

    async fn state(&self) -> Result<Growing, BenchError> {
        Growing::open(&self.work).await
    }

    async fn operation(&self, file: &mut Growing, _: u64) -> Result<Moved, BenchError> {
        let bytes = self.piece.len() as u64;
        let writer = file.writer(bytes).await?;
        if self.is_buffered {
            writer.write_bytes(self.piece.clone()).await?;
        } else {
            writer.write_direct(self.piece.clone()).await?;
        }
        Ok(Moved::bytes(bytes))
    }

    async fn finish(&self, file: Growing) -> Result<(), BenchError> {
        file.close().await
    }
}

impl Scenario for AppendAndFlush {
    type State = Growing;

    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        Append::prepare(work).await.map(Self)
    }

    async fn state(&self) -> Result<Growing, BenchError> {
        self.0.state().await
    }

    async fn operation(&self, file: &mut Growing, _: u64) -> Result<Moved, BenchError> {
        let bytes = self.0.piece.len() as u64;
        let writer = file.writer(bytes).await?;
        writer.write_bytes(self.0.piece.clone()).await?;
        writer.flush().await?;
        Ok(Moved::bytes(bytes))
    }

    async fn finish(&self, file: Growing) -> Result<(), BenchError> {
        file.close().await
    }
}

/// `read-sequential`, `read-sequential-async`.
pub(super) struct ReadSequential {
    reader: Reader,
    size: u64,
    pieces: u64,
    is_buffered: bool,
}

impl Scenario for ReadSequential {
    type State = Option<Buffered>;

    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        let reader = a_file(&work).await?;
        let (size, pieces) = (work.load.size, work.pieces());
        Ok(Self { reader, size, pieces, is_buffered: work.load.is_buffered })
    }

    async fn state(&self) -> Result<Option<Buffered>, BenchError> {
        Ok(self.is_buffered.then(|| Buffered::of(&self.reader, self.size)))
    }

    async fn operation(
        &self,
        stream: &mut Option<Buffered>,
        index: u64,
    ) -> Result<Moved, BenchError> {
        let bytes = match stream {
            Some(stream) => stream.next(self.size).await?,
            None => self.reader.read_range(index % self.pieces * self.size, self.size).await?,
        };
        Ok(Moved::bytes(bytes.len() as u64))
    }
}

/// `read-random`, `read-random-async`.
pub(super) struct ReadRandom(ReadSequential);

impl Stateless for ReadRandom {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        ReadSequential::prepare(work).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        let ReadSequential { reader, size, pieces, .. } = &self.0;
        let bytes = reader.read_range(scattered(index) % pieces * size, *size).await?;
        Ok(Moved::bytes(bytes.len() as u64))
    }
}

/// `read-multi-stream`.
pub(super) struct ReadMultiStream {
    work: BenchThread,
}

impl Scenario for ReadMultiStream {
    type State = MultiBuffered;

    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        work.make(ObjectKind::Multifile).await?;
        let each = work.pieces().div_ceil(PARTS) * work.load.size;
        for part in 0..PARTS {
            work.fill(&part_of(&work, part)?, each).await?;
        }
        Ok(Self { work })
    }

    async fn state(&self) -> Result<MultiBuffered, BenchError> {
        MultiBuffered::open(&self.work).await
    }

    async fn operation(&self, stream: &mut MultiBuffered, _: u64) -> Result<Moved, BenchError> {
        let bytes = stream.next(self.work.load.size).await?;
        Ok(Moved::bytes(bytes.len() as u64))
    }
}

/// Writes the file that is read and opens it.
async fn a_file(work: &BenchThread) -> Result<Reader, BenchError> {
    work.make(ObjectKind::Directory).await?;
    let path = work.path("read")?;
    work.fill(&path, work.pieces() * work.load.size).await?;
    Ok(work.client.open(&path).await?)
}

/// Returns the path of a multifile's part. Parts are read in the order of their names.
pub(super) fn part_of(work: &BenchThread, part: u64) -> Result<Path, BenchError> {
    work.path(&format!("part-{part:02}"))
}

/// A file read through a buffer, again from its start when it ends.
pub(super) struct Buffered {
    reader: Reader,
    read_ahead: u64,
    stream: ReadStream,
    rest: Bytes,
}

impl Buffered {
    /// Reads a file whose length is a multiple of `size`.
    pub(super) fn of(reader: &Reader, size: u64) -> Self {
        // A multiple, so that no operation is cut by the buffer's end.
        let read_ahead = READ_AHEAD.div_ceil(size.max(1)) * size;
        let stream = reader.stream(read_ahead);
        Self { reader: reader.clone(), read_ahead, stream, rest: Bytes::new() }
    }

    /// Returns the next bytes, `size` of them.
    #[inline]
    pub(super) async fn next(&mut self, size: u64) -> Result<Bytes, BenchError> {
        while self.rest.is_empty() {
            match self.stream.next().await {
                Some(read) => self.rest = read?,
                None => self.stream = self.reader.stream(self.read_ahead),
            }
        }
        Ok(self.rest.split_to(self.rest.len().min(size as usize)))
    }
}

/// A multifile read as one stream, again from its start when it ends.
pub(super) struct MultiBuffered {
    work: BenchThread,
    stream: MultiReader,
    rest: Bytes,
}

impl MultiBuffered {
    pub(super) async fn open(work: &BenchThread) -> Result<Self, BenchError> {
        let stream = work.client.open_multi(&work.directory).await?;
        Ok(Self { work: work.clone(), stream, rest: Bytes::new() })
    }

    /// Returns the next bytes, at most `size` of them.
    #[inline]
    pub(super) async fn next(&mut self, size: u64) -> Result<Bytes, BenchError> {
        while self.rest.is_empty() {
            match self.stream.next().await {
                Some(read) => self.rest = read?,
                None => self.stream = self.work.client.open_multi(&self.work.directory).await?,
            }
        }
        Ok(self.rest.split_to(self.rest.len().min(size as usize)))
    }
}
