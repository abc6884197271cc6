//! Types that write and read integers one by one: what a stream costs beside its bytes.

use sanderling_client::Reader;
use sanderling_protocol::message::ObjectKind;

use super::error::BenchError;
use super::scenario::{Moved, Scenario, Stateless};
use super::streams::{Buffered, Growing, MultiBuffered, PARTS, part_of};
use super::work::{BenchThread, INTEGER_BYTES, check_integer, encoded, scattered};

/// `write-int`.
pub(super) struct WriteIntegers {
    work: BenchThread,
}

impl Scenario for WriteIntegers {
    type State = Growing;

    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        work.make(ObjectKind::Directory).await?;
        Ok(Self { work })
    }

    async fn state(&self) -> Result<Growing, BenchError> {
        Growing::open(&self.work).await
    }

    async fn operation(&self, file: &mut Growing, index: u64) -> Result<Moved, BenchError> {
        file.writer(INTEGER_BYTES).await?.write(&encoded(index)).await?;
        Ok(Moved::bytes(INTEGER_BYTES))
    }

    async fn finish(&self, file: Growing) -> Result<(), BenchError> {
        file.close().await
    }
}

/// `read-int`.
pub(super) struct ReadIntegers {
    reader: Reader,
    integers: u64,
}

impl ReadIntegers {
    async fn fill(work: BenchThread) -> Result<Self, BenchError> {
        work.make(ObjectKind::Directory).await?;
        let (path, integers) = (work.path("read")?, work.pieces());
        work.fill_integers(&path, 0..integers).await?;
        Ok(Self { reader: work.client.open(&path).await?, integers })
    }
}

/// The next bytes of a stream, and which integer they should be.
pub(super) struct NextInteger<S> {
    stream: S,
    integer: u64,
}

impl<S> NextInteger<S> {
    /// Checks the bytes that were read of a stream of so many integers.
    fn check(&mut self, bytes: &[u8], integers: u64) -> Result<Moved, BenchError> {
        check_integer(bytes, self.integer % integers)?;
        self.integer += 1;
        Ok(Moved::bytes(INTEGER_BYTES))
    }
}

impl Scenario for ReadIntegers {
    type State = NextInteger<Buffered>;

    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        Self::fill(work).await
    }

    async fn state(&self) -> Result<NextInteger<Buffered>, BenchError> {
        Ok(NextInteger { stream: Buffered::of(&self.reader, INTEGER_BYTES), integer: 0 })
    }

    async fn operation(
        &self,
        next: &mut NextInteger<Buffered>,
        _: u64,
    ) -> Result<Moved, BenchError> {
        let bytes = next.stream.next(INTEGER_BYTES).await?;
        next.check(&bytes, self.integers)
    }
}

/// The type `seek-int`: each operation reads one integer at a random place of a file.
pub(super) struct SeekIntegers(ReadIntegers);

impl Stateless for SeekIntegers {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        ReadIntegers::fill(work).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        let integer = scattered(index) % self.0.integers;
        let bytes = self.0.reader.read_range(integer * INTEGER_BYTES, INTEGER_BYTES).await?;
        check_integer(&bytes, integer)?;
        Ok(Moved::bytes(INTEGER_BYTES))
    }
}

/// The type `read-multi-stream-int`: reads the integers of a multifile in their order.
pub(super) struct ReadIntegerStream {
    work: BenchThread,
    integers: u64,
}

impl Scenario for ReadIntegerStream {
    type State = NextInteger<MultiBuffered>;

    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        work.make(ObjectKind::Multifile).await?;
        let each = work.pieces().div_ceil(PARTS);
        for part in 0..PARTS {
            let integers = part * each..(part + 1) * each;
            work.fill_integers(&part_of(&work, part)?, integers).await?;
        }
        Ok(Self { work, integers: PARTS * each })
    }

    async fn state(&self) -> Result<NextInteger<MultiBuffered>, BenchError> {
        Ok(NextInteger { stream: MultiBuffered::open(&self.work).await?, integer: 0 })
    }

    async fn operation(
        &self,
        next: &mut NextInteger<MultiBuffered>,
        _: u64,
    ) -> Result<Moved, BenchError> {
        let bytes = next.stream.next(INTEGER_BYTES).await?;
        next.check(&bytes, self.integers)
    }
}
