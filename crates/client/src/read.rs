//! Reading objects: whole, by ranges, as a stream.
//!
//! `sanderling_core::read` plans; here its requests are sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use sanderling_core::read::{
    AfterPage, LayoutPages, ReadAhead, check_inside, first_step, is_kept, is_scattered,
};
use sanderling_protocol::message::{Layout, ObjectStat};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{Path, Refusal, Reply, Request};
use sanderling_transport::trace::carried;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{Attempts, Client};
use crate::error::ClientError;
use crate::fetch::{FailedRead, Filling, copy_to, fetch, fetch_one, finish, plan};
use crate::locations::CachedLayout;
use crate::metrics::count;

/// Reads one object, as it was when it was opened. All readers of the client share a cache of
/// locations. A reader looks the object up again when a datanode refuses a cached location.
#[derive(Debug, Clone)]
pub struct Reader {
    client: Client,
    known: Arc<RwLock<CachedLayout>>,
}

impl Client {
    /// Looks an object up and returns a reader with its metadata and the locations of its blocks.
    /// No bytes are read yet.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] and [`Refusal::IsADirectory`]: correct the path.
    pub async fn open(&self, path: &Path) -> Result<Reader, ClientError> {
        let mut attempts = self.attempts(("open", path));
        self.open_within(&mut attempts, path).await
    }

    pub(crate) async fn open_within(
        &self,
        attempts: &mut Attempts,
        path: &Path,
    ) -> Result<Reader, ClientError> {
        let forgotten = self.shared.locations.forgotten();
        let layout = self.data_layout(attempts, path).await?;
        Ok(self.reader(forgotten, layout))
    }

    /// Returns the reader of a layout. `forgotten` is [`Locations::forgotten`] from before the
    /// layout was requested: if it has changed since, the layout may be disproved.
    ///
    /// [`Locations::forgotten`]: crate::locations::Locations::forgotten
    pub(crate) fn reader(&self, forgotten: u64, layout: Layout) -> Reader {
        let known = self.shared.locations.insert(forgotten, layout);
        Reader { client: self.clone(), known: Arc::new(RwLock::new(known)) }
    }

    /// Looks up where the bytes of a file or key-value are.
    pub(crate) async fn data_layout(
        &self,
        attempts: &mut Attempts,
        path: &Path,
    ) -> Result<Layout, ClientError> {
        let request = Request::Lookup { path: path.clone(), offset: 0, bytes: u64::MAX };
        let layout = self.layout_pages(attempts, request, 0..u64::MAX).await?;
        if layout.stat.kind.is_container() {
            return Err(ClientError::Refused(Refusal::IsADirectory { path: path.clone() }));
        }
        Ok(layout)
    }

    /// Looks up which blocks of an object overlap a range of its bytes, and where they are, to send
    /// work to the data. A reader does not need it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: check the path.
    pub async fn layout(&self, path: &Path, range: Range<u64>) -> Result<Layout, ClientError> {
        let mut attempts = self.attempts(format!("look up {path}"));
        let bytes = range.end.saturating_sub(range.start);
        let request = Request::Lookup { path: path.clone(), offset: range.start, bytes };
        self.layout_pages(&mut attempts, request, range).await
    }

    /// Looks up where the bytes of a range are, page by page. `request` is that of the first page.
    async fn layout_pages(
        &self,
        attempts: &mut Attempts,
        mut request: Request,
        range: Range<u64>,
    ) -> Result<Layout, ClientError> {
        let mut pages = LayoutPages::new(range);
        loop {
            let taken = match self.request_within(attempts, request).await? {
                Reply::Layout(page) => pages.take(page),
                _ => None,
            };
            request = match taken {
                Some(AfterPage::Next(request)) => request,
                Some(AfterPage::Whole(layout)) => return Ok(*layout),
                None => return Err(ClientError::BadReply { what: attempts.what.to_string() }),
            };
        }
    }
}

impl Reader {
    /// Returns the object's metadata as last looked up.
    #[must_use]
    pub fn stat(&self) -> ObjectStat {
        self.known.read().layout.stat.clone()
    }

    /// Returns how many bytes can be read, as of the last look-up. [`Reader::refresh`] looks the
    /// object up again.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.known.read().layout.stat.bytes
    }

    /// Looks the object up again, so that bytes published meanwhile can be read.
    ///
    /// # Errors
    /// [`Refusal::ObjectGone`] when it was deleted or replaced: open the path again to read what is
    /// there now. [`ClientError`] if the namenode did not answer: what was known stays, and the
    /// call may be repeated.
    pub async fn refresh(&self) -> Result<(), ClientError> {
        let mut attempts = self.client.attempts(format!("look up {}", self.stat().path));
        self.look_up(&mut attempts).await
    }

    async fn look_up(&self, attempts: &mut Attempts) -> Result<(), ClientError> {
        let object = self.known.read().layout.stat.object;
        let request = Request::LookupObject { object, offset: 0, bytes: u64::MAX };
        let shared = &self.client.shared;
        count(&shared.counters.refreshed, 1);
        let forgotten = shared.locations.forgotten();
        let layout = self.client.layout_pages(attempts, request, 0..u64::MAX).await?;
        *self.known.write() = shared.locations.insert(forgotten, layout);
        Ok(())
    }

    /// Reads `bytes` bytes from `offset`, counted in bytes from the object's start, and returns
    /// them as one piece.
    ///
    /// # Errors
    /// [`Refusal::OutOfRange`] when the range passes the end: read less, or [`Reader::refresh`]
    /// first. [`ClientError::DataUnavailable`] with the lost ranges: recompute these.
    pub async fn read_range(&self, offset: u64, bytes: u64) -> Result<Bytes, ClientError> {
        let range = ByteRange { offset, bytes };
        let began = Instant::now();
        let failed = match self.read_at_once(range, began).await? {
            Some(Ok(read)) => return Ok(read),
            Some(Err(failed)) => Some(failed),
            None => None,
        };
        let mut attempts = self.client.attempts_since(began, format!("read {}", self.stat().path));
        if let Some(failed) = failed {
            self.again(&mut attempts, failed).await?;
        }
        let mut ranges = self.read_within(&mut attempts, &[range]).await?;
        Ok(ranges.pop().expect("one answer to one range"))
    }

    /// Reads a range of one block whose home is known, once. `None` for any other range.
    async fn read_at_once(
        &self,
        range: ByteRange,
        began: Instant,
    ) -> Result<Option<Result<Bytes, FailedRead>>, ClientError> {
        let known = self.known.read().clone();
        check_inside(&known.layout, &[range])?;
        let shared = &self.client.shared;
        if !shared.locations.is_current(&known) {
            return Ok(None);
        }
        let deadline = began + self.client.call_deadline();
        Ok(fetch_one(shared, &known.layout, range, deadline).await)
    }

    /// Returns where the blocks are, if that is cached and the ranges are inside the object.
    pub(crate) fn layout_now(&self, ranges: &[ByteRange]) -> Option<Arc<Layout>> {
        let known = self.known.read().clone();
        check_inside(&known.layout, ranges).ok()?;
        let locations = &self.client.shared.locations;
        if locations.is_current(&known) {
            return Some(known.layout);
        }
        Some(locations.known(known.layout.stat.object)?.layout)
    }

    /// Reads many ranges in a call that began before.
    pub(crate) async fn read_ranges_since(
        &self,
        began: Instant,
        ranges: &[ByteRange],
    ) -> Result<Vec<Bytes>, ClientError> {
        let what = format!("read {}", self.stat().path);
        let mut attempts = self.client.attempts_since(began, what);
        self.read_within(&mut attempts, ranges).await
    }

    /// Returns whether it is a reader of this client, or of a clone of it.
    pub(crate) fn is_of(&self, client: &Client) -> bool {
        Arc::ptr_eq(&self.client.shared, &client.shared)
    }

    /// Reads into `buffer` from `offset` and returns how many bytes there were: fewer only at the
    /// end.
    ///
    /// # Errors
    /// As [`Reader::read_range`].
    pub async fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ClientError> {
        let left = self.bytes().saturating_sub(offset);
        let mut wanted = ByteRange { offset, bytes: left.min(buffer.len() as u64) };
        if wanted.bytes == 0 {
            return Ok(0);
        }
        if !is_scattered(wanted) {
            let read = self.read_range(offset, wanted.bytes).await?;
            buffer[..read.len()].copy_from_slice(&read);
            return Ok(read.len());
        }
        let mut filled = 0;
        while wanted.bytes > 0 {
            let step = first_step(wanted);
            let mut attempts = self.client.attempts(format!("read {}", self.stat().path));
            let filling = self.fill_within(&mut attempts, &[step]).await?;
            let end = filled + step.bytes as usize;
            copy_to(filling, &mut buffer[filled..end]);
            filled = end;
            wanted.offset += step.bytes;
            wanted.bytes -= step.bytes;
        }
        Ok(filled)
    }

    /// Reads many ranges and returns their bytes in the order of the ranges. One call to a datanode
    /// requests all of its ranges, up to a bound in bytes.
    ///
    /// # Errors
    /// As [`Reader::read_range`]; if any range fails, all do.
    pub async fn read_ranges(&self, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ClientError> {
        let mut attempts = self.client.attempts(format!("read {}", self.stat().path));
        self.read_within(&mut attempts, ranges).await
    }

    pub(crate) async fn read_within(
        &self,
        attempts: &mut Attempts,
        ranges: &[ByteRange],
    ) -> Result<Vec<Bytes>, ClientError> {
        self.fill_within(attempts, ranges).await.map(finish)
    }

    async fn fill_within(
        &self,
        attempts: &mut Attempts,
        ranges: &[ByteRange],
    ) -> Result<Filling, ClientError> {
        check_inside(&self.known.read().layout, ranges)?;
        let mut filling = Filling::new(ranges);
        loop {
            let layout = self.locations(attempts).await?;
            let pieces = match plan(&mut filling, &layout) {
                Ok(pieces) => pieces,
                Err(ranges) => {
                    let (path, object) = (layout.stat.path.clone(), layout.stat.object);
                    return Err(ClientError::DataUnavailable { path, object, ranges });
                }
            };
            let shared = &self.client.shared;
            let failed = fetch(shared, &layout, pieces, &mut filling, attempts.deadline).await;
            let Some(failed) = failed else {
                self.client.succeeded(attempts);
                return Ok(filling);
            };
            self.again(attempts, failed).await?;
        }
    }

    /// Forgets the locations that a failure has disproved, and pauses until the next attempt.
    async fn again(&self, attempts: &mut Attempts, failed: FailedRead) -> Result<(), ClientError> {
        let FailedRead { error, suspects } = failed;
        for node in suspects {
            self.client.suspect(node);
        }
        // Before the pause, so that no other reader has to try them.
        self.client.shared.locations.forget(self.known.read().layout.stat.object);
        self.client.again(attempts, error).await
    }

    /// Returns where the blocks are: the cached layout, or a new one if the cache has none.
    async fn locations(&self, attempts: &mut Attempts) -> Result<Arc<Layout>, ClientError> {
        let object = self.known.read().layout.stat.object;
        if let Some(known) = self.client.shared.locations.known(object) {
            let layout = Arc::clone(&known.layout);
            let mut mine = self.known.write();
            if is_kept(&mine.layout, &layout) {
                *mine = known;
            }
            return Ok(layout);
        }
        self.look_up(attempts).await?;
        Ok(Arc::clone(&self.known.read().layout))
    }

    /// Reads the object from the start, `read_ahead` bytes at a time, at least one. The bytes of
    /// the next read are in flight while the caller works on those of the last one. To read without
    /// a buffer, read ranges.
    #[must_use]
    pub fn stream(&self, read_ahead: u64) -> ReadStream {
        let plan = ReadAhead::new(self.bytes(), read_ahead);
        ReadStream { reader: self.clone(), plan, current: None, ahead: None }
    }
}

type RunningRead = JoinHandle<Result<Bytes, ClientError>>;

/// Reads an object from the start to the end that it had when the stream began.
#[derive(Debug)]
pub struct ReadStream {
    reader: Reader,
    plan: ReadAhead,
    /// The read for the caller.
    current: Option<RunningRead>,
    /// The read behind it.
    ahead: Option<RunningRead>,
}

impl Drop for ReadStream {
    fn drop(&mut self) {
        self.forget_ahead();
    }
}

impl ReadStream {
    /// Returns the next bytes; `None` at the end.
    ///
    /// A call that is cancelled loses nothing: the next one returns the same bytes. After an error
    /// the stream goes on behind the bytes that failed.
    ///
    /// # Errors
    /// [`ClientError::DataUnavailable`]: the bytes at this place are lost; compute them again, or
    /// call again for those behind them. Others are as [`Reader::read_range`] returns them.
    pub async fn next(&mut self) -> Option<Result<Bytes, ClientError>> {
        let [current, ahead] = self.plan.ranges();
        if self.current.is_none() {
            self.current = self.start(current);
        }
        if self.ahead.is_none() {
            self.ahead = self.start(ahead);
        }
        let joined = self.current.as_mut()?.await;
        self.plan.advance();
        self.current = self.ahead.take();
        let read = joined.unwrap_or_else(|_| {
            let what = "read ahead".to_owned();
            Err(ClientError::BadReply { what })
        });
        if read.is_err() {
            self.forget_ahead();
        }
        Some(read)
    }

    fn start(&self, range: Option<ByteRange>) -> Option<RunningRead> {
        let (reader, ByteRange { offset, bytes }) = (self.reader.clone(), range?);
        Some(tokio::spawn(carried(async move { reader.read_range(offset, bytes).await })))
    }

    /// Continues the stream at `offset`, in bytes of the object, and aborts the reads that are
    /// under way. An offset behind the end is the end.
    pub fn seek(&mut self, offset: u64) {
        self.forget_ahead();
        self.plan.seek(offset);
    }

    fn forget_ahead(&mut self) {
        for reading in [self.current.take(), self.ahead.take()].into_iter().flatten() {
            reading.abort();
        }
    }
}
