//! Reading objects: whole, by ranges, as a stream.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use sanderling_core::read::{check_inside, makes_suspect};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::{Layout, ObjectStat};
use sanderling_protocol::refusal::{ByteRange, Recovery};
use sanderling_protocol::{Millis, Path, Refusal, Reply, Request};
use sanderling_transport::CallError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{Attempts, Client};
use crate::error::ClientError;
use crate::fetch::{Filling, FrameFailure, copy_to, fetch, fetch_one, finish, plan};
use crate::locations::CachedLayout;
use crate::metrics::count;

/// Bytes that a read into a caller's buffer has under way: enough for every node to be busy, few
/// enough that what was received is soon copied and free.
const INTO_BYTES: usize = 32 << 20;

/// Reads one object, as it was when it was opened. Locations are cached, for all readers of the
/// client together, and looked up again when a datanode says that they are out of date.
#[derive(Debug, Clone)]
pub struct Reader {
    client: Client,
    known: Arc<RwLock<CachedLayout>>,
}

impl Client {
    /// Opens an object for reading.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], [`Refusal::IsADirectory`].
    pub async fn open(&self, path: &Path) -> Result<Reader, ClientError> {
        let mut attempts = self.attempts(("open", path));
        self.open_within(&mut attempts, path).await
    }

    pub(crate) async fn open_within(
        &self,
        attempts: &mut Attempts,
        path: &Path,
    ) -> Result<Reader, ClientError> {
        let asked = self.shared.locations.forgotten();
        let layout = self.data_layout(attempts, path).await?;
        Ok(self.reader(asked, layout))
    }

    /// Returns the reader of a layout; `asked` counts what was forgotten before it was asked for.
    pub(crate) fn reader(&self, asked: u64, layout: Layout) -> Reader {
        let known = self.shared.locations.insert(asked, layout);
        Reader { client: self.clone(), known: Arc::new(RwLock::new(known)) }
    }

    /// Looks up where the bytes of a file or key-value are.
    pub(crate) async fn data_layout(
        &self,
        attempts: &mut Attempts,
        path: &Path,
    ) -> Result<Layout, ClientError> {
        let request = Request::Lookup { path: path.clone(), offset: 0, bytes: u64::MAX };
        let layout = self.layout_pages(attempts, request, u64::MAX).await?;
        if layout.stat.kind.is_container() {
            return Err(ClientError::Refused(Refusal::IsADirectory { path: path.clone() }));
        }
        Ok(layout)
    }

    /// Looks up which blocks of an object overlap a range of its bytes, and where they are: for who
    /// sends work to the data. A reader looks for itself.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub async fn layout(&self, path: &Path, range: Range<u64>) -> Result<Layout, ClientError> {
        let mut attempts = self.attempts(format!("look up {path}"));
        let bytes = range.end.saturating_sub(range.start);
        let request = Request::Lookup { path: path.clone(), offset: range.start, bytes };
        self.layout_pages(&mut attempts, request, range.end).await
    }

    /// Looks up where an object's bytes are, page by page, up to an offset.
    async fn layout_pages(
        &self,
        attempts: &mut Attempts,
        request: Request,
        until: u64,
    ) -> Result<Layout, ClientError> {
        let mut whole: Option<Layout> = None;
        let mut request = request;
        loop {
            let reply = self.request_within(attempts, request).await?;
            let Reply::Layout(page) = reply else {
                return Err(ClientError::BadReply { what: attempts.what.to_string() });
            };
            let (object, next) = (page.stat.object, page.next_offset);
            let layout = match &mut whole {
                None => whole.insert(page),
                Some(layout) => {
                    layout.blocks.extend(page.blocks);
                    layout.places.extend(page.places);
                    layout.places.sort_unstable_by_key(|place| place.node);
                    layout.places.dedup_by_key(|place| place.node);
                    layout
                }
            };
            layout.next_offset = None;
            let end = layout.blocks.last().map_or(0, |it| it.offset + u64::from(it.length));
            match next {
                Some(offset) if offset >= end => {
                    let bytes = until.saturating_sub(offset);
                    request = Request::LookupObject { object, offset, bytes };
                }
                Some(_) => return Err(ClientError::BadReply { what: attempts.what.to_string() }),
                None => return Ok(whole.expect("just kept")),
            }
        }
    }
}

impl Reader {
    /// Returns the object's facts as last looked up.
    #[must_use]
    pub fn stat(&self) -> ObjectStat {
        self.known.read().layout.stat.clone()
    }

    /// Returns how many bytes can be read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.known.read().layout.stat.bytes
    }

    /// Looks the object up again: what was published meanwhile can be read then.
    ///
    /// # Errors
    /// [`Refusal::ObjectGone`] when it was deleted or replaced.
    pub async fn refresh(&self) -> Result<(), ClientError> {
        let mut attempts = self.client.attempts(format!("look up {}", self.stat().path));
        self.look_up(&mut attempts).await
    }

    async fn look_up(&self, attempts: &mut Attempts) -> Result<(), ClientError> {
        let object = self.known.read().layout.stat.object;
        let request = Request::LookupObject { object, offset: 0, bytes: u64::MAX };
        let shared = &self.client.shared;
        count(&shared.counters.refreshed, 1);
        let asked = shared.locations.forgotten();
        let layout = self.client.layout_pages(attempts, request, u64::MAX).await?;
        *self.known.write() = shared.locations.insert(asked, layout);
        Ok(())
    }

    /// Reads `bytes` bytes from `offset`.
    ///
    /// # Errors
    /// [`Refusal::OutOfRange`] when the range passes the end; [`ClientError::DataUnavailable`] with
    /// the lost ranges.
    pub async fn read_range(&self, offset: u64, bytes: u64) -> Result<Bytes, ClientError> {
        let range = ByteRange { offset, bytes };
        let began = Instant::now();
        let failed = match self.read_at_once(range, began).await? {
            Some(Ok(read)) => return Ok(read),
            Some(Err(failure)) => Some(failure),
            None => None,
        };
        let mut attempts = self.client.attempts_since(began, format!("read {}", self.stat().path));
        if let Some(failure) = failed {
            self.again(&mut attempts, failure).await?;
        }
        let mut ranges = self.read_within(&mut attempts, &[range]).await?;
        Ok(ranges.pop().expect("one answer to one range"))
    }

    /// Reads a range of one block whose place is known, once. `None` when it is not such a range.
    async fn read_at_once(
        &self,
        range: ByteRange,
        began: Instant,
    ) -> Result<Option<Result<Bytes, FrameFailure>>, ClientError> {
        let known = self.known.read().clone();
        check_inside(&known.layout, &[range])?;
        let shared = &self.client.shared;
        if !shared.locations.is_current(&known) {
            return Ok(None);
        }
        let deadline = began + self.client.call_deadline();
        Ok(fetch_one(shared, &known.layout, range, deadline).await)
    }

    /// Returns where the blocks are, if that need not be asked and the ranges are inside.
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

    /// Tells whether it is a reader of this client, or of a clone of it.
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
        let bytes = left.min(buffer.len() as u64);
        if bytes == 0 {
            return Ok(0);
        }
        if bytes <= u64::from(BLOCK_BYTES_MAX) {
            let read = self.read_range(offset, bytes).await?;
            buffer[..read.len()].copy_from_slice(&read);
            return Ok(read.len());
        }
        // Not gathered first: the pieces go from where they were received to their place.
        let (mut start, mut rest) = (offset, &mut buffer[..bytes as usize]);
        while !rest.is_empty() {
            let (now, later) = rest.split_at_mut(rest.len().min(INTO_BYTES));
            let range = ByteRange { offset: start, bytes: now.len() as u64 };
            let mut attempts = self.client.attempts(format!("read {}", self.stat().path));
            let filling = self.fill_within(&mut attempts, &[range]).await?;
            copy_to(filling, now);
            start += range.bytes;
            rest = later;
        }
        Ok(bytes as usize)
    }

    /// Reads many ranges, with one call for all ranges of a datanode up to a bound in bytes.
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
            let failures = fetch(shared, &layout, pieces, &mut filling, attempts.deadline).await;
            let failure = failures.into_iter().next();
            let failed = failure.as_ref().map(|failure| failure.error.recovery());
            let Some(recovery) = filling.after(failed) else {
                self.client.succeeded(attempts);
                return Ok(filling);
            };
            let Some(failure) = failure else {
                // The layout is older than the length that was promised.
                shared.locations.forget(layout.stat.object);
                self.client.again(attempts, short(recovery).into()).await?;
                continue;
            };
            self.again(attempts, failure).await?;
        }
    }

    /// Forgets what a failure has proved wrong, and waits until the next attempt.
    async fn again(
        &self,
        attempts: &mut Attempts,
        failure: FrameFailure,
    ) -> Result<(), ClientError> {
        let FrameFailure { node, error } = failure;
        let is_silent = match &error {
            CallError::Unreachable { .. }
            | CallError::Closed { .. }
            | CallError::TimedOut { .. } => makes_suspect(None),
            CallError::Refused(refusal) => makes_suspect(Some(refusal)),
            _ => false,
        };
        if is_silent {
            self.client.suspect(node);
        }
        // Forgotten before the pause: other readers need not try what has just been refused.
        self.client.shared.locations.forget(self.known.read().layout.stat.object);
        self.client.again(attempts, error).await.map(|_| ())
    }

    /// Returns where the blocks are: what any reader of the object heard last, else what the
    /// namenode says now because what was heard has been proved wrong.
    async fn locations(&self, attempts: &mut Attempts) -> Result<Arc<Layout>, ClientError> {
        let object = self.known.read().layout.stat.object;
        if let Some(known) = self.client.shared.locations.known(object) {
            let layout = Arc::clone(&known.layout);
            let mut mine = self.known.write();
            // What others saw of a growing object is theirs until this reader asks.
            if mine.layout.stat.bytes == layout.stat.bytes {
                *mine = known;
            }
            return Ok(layout);
        }
        self.look_up(attempts).await?;
        Ok(Arc::clone(&self.known.read().layout))
    }

    /// Reads the object from the start, buffered: `read_ahead` bytes at a time, the next of them on
    /// their way while the caller works on these. Without a buffer, read ranges.
    #[must_use]
    pub fn stream(&self, read_ahead: u64) -> ReadStream {
        let end = self.bytes();
        let step = read_ahead.max(1);
        ReadStream { reader: self.clone(), offset: 0, end, step, current: None, ahead: None }
    }
}

/// Returns what a reader waits for whose layout ends before its range.
fn short(recovery: Recovery) -> Refusal {
    let after = if let Recovery::RetryAfter(after) = recovery { after } else { Millis(0) };
    Refusal::RetryAfter { after, why: "the layout ends before the range".to_owned() }
}

type ReadAhead = JoinHandle<Result<Bytes, ClientError>>;

/// Reads an object from the start to the end that it had when the stream began.
#[derive(Debug)]
pub struct ReadStream {
    reader: Reader,
    offset: u64,
    end: u64,
    step: u64,
    /// What is read from `offset` on.
    current: Option<ReadAhead>,
    /// What is read behind that.
    ahead: Option<ReadAhead>,
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
    pub async fn next(&mut self) -> Option<Result<Bytes, ClientError>> {
        let next = self.offset + self.step.min(self.end - self.offset);
        if self.current.is_none() {
            self.current = self.start(self.offset);
        }
        if self.ahead.is_none() {
            self.ahead = self.start(next);
        }
        let joined = self.current.as_mut()?.await;
        self.offset = next;
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

    fn start(&self, offset: u64) -> Option<ReadAhead> {
        let bytes = self.step.min(self.end - offset);
        if bytes == 0 {
            return None;
        }
        let reader = self.reader.clone();
        Some(tokio::spawn(async move { reader.read_range(offset, bytes).await }))
    }

    /// Goes on at another offset.
    pub fn seek(&mut self, offset: u64) {
        self.forget_ahead();
        self.offset = offset.min(self.end);
    }

    fn forget_ahead(&mut self) {
        for reading in [self.current.take(), self.ahead.take()].into_iter().flatten() {
            reading.abort();
        }
    }
}
