//! Streaming writes with bounded memory.
//!
//! Which block gets which bytes is decided by `sanderling_core::write`; here its pieces are sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sanderling_core::writer::{Placed, Want, WriteMachine};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::{Attributes, Grant, ObjectStat, RECOMPUTE_MILLIS};
use sanderling_protocol::{
    Header, LeaseId, Millis, NodeId, ObjectId, Op, Path, Refusal, Reply, Request,
};
use sanderling_transport::{CallError, Timeouts};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Attempts, Client, ClientInner};
use crate::error::ClientError;
use crate::local::StagedPiece;
use crate::metrics::count;

/// Blocks asked for at once when the writer runs out of them.
const BLOCKS_AHEAD: u32 = 4;

/// Fences met one after the other without a pause: a fleet that drains altogether is no reason to
/// ask without end.
const MOVED_MAX: u32 = 8;

/// Writes one object, in order, once.
///
/// Bytes are sent in whole blocks; [`Writer::flush`] sends what is there. Dropped without
/// [`Writer::close`], it is aborted by a task of the runtime in whose context it is dropped;
/// without one its lease ends by itself, and the object stays with what was flushed.
#[derive(Debug)]
pub struct Writer {
    client: Client,
    path: Path,
    object: ObjectId,
    lease: LeaseId,
    lease_has_ended: Arc<AtomicBool>,
    machine: WriteMachine,
    addresses: BTreeMap<NodeId, String>,
    /// Bytes given and not placed yet.
    buffer: BytesMut,
    /// Pieces to place before anything new, oldest first.
    again: Vec<Bytes>,
    /// The first piece, given to a node before its block was known.
    ahead: Option<StagedPiece>,
    /// Pieces placed and not known to be in place, by number.
    kept: BTreeMap<u64, Bytes>,
    under_way: JoinSet<Answered>,
    position: u64,
    /// Fences met since the last acknowledgement.
    moved: u32,
    /// Since when the writer has been held up, and the first piece that was placed after that.
    held_up: Option<(Instant, u64)>,
    /// The number of the next piece.
    next_piece: u64,
    closed: Option<&'static str>,
    attributes: Attributes,
    /// Whether the namenode was asked to seal the object or to forget it.
    has_ended: bool,
}

impl Client {
    /// Creates an object and returns its writer.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with what is wrong about the name or the place.
    pub async fn create(
        &self,
        path: &Path,
        options: &crate::options::PutOptions,
    ) -> Result<Writer, ClientError> {
        let request = Request::Create(options.request(path));
        self.writer(path, request, format!("create {path}")).await
    }

    /// Opens a sealed file to write at its end.
    ///
    /// # Errors
    /// [`Refusal::SecondWriter`] while another writer has it.
    pub async fn append(&self, path: &Path) -> Result<Writer, ClientError> {
        let request = Request::Append { path: path.clone(), writer: crate::nonce::draw() };
        self.writer(path, request, format!("append to {path}")).await
    }

    async fn writer(
        &self,
        path: &Path,
        request: Request,
        what: String,
    ) -> Result<Writer, ClientError> {
        let mut attempts = self.attempts(what);
        match self.request_within(&mut attempts, request).await? {
            Reply::Grant(grant) => Ok(Writer::new(self.clone(), path.clone(), &grant)),
            _ => Err(ClientError::BadReply { what: attempts.what.to_string() }),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.client.shared.leases.forget(self.object, self.lease);
        if self.has_ended {
            return;
        }
        // Nobody else may write the object while its lease lasts.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (client, object, lease) = (self.client.clone(), self.object, self.lease);
            runtime.spawn(async move {
                // The lease ends by itself if the namenode cannot be told.
                let _ = client.request(Request::Abort { object, lease }).await;
            });
        }
    }
}

impl Writer {
    pub(crate) fn new(client: Client, path: Path, grant: &Grant) -> Self {
        let lease_has_ended = client.shared.leases.keep(grant.object, grant.lease);
        let mut writer = Self {
            client,
            path,
            object: grant.object,
            lease: grant.lease,
            lease_has_ended,
            machine: WriteMachine::new(&grant.blocks),
            addresses: BTreeMap::new(),
            buffer: BytesMut::new(),
            again: Vec::new(),
            ahead: None,
            kept: BTreeMap::new(),
            under_way: JoinSet::new(),
            position: grant.bytes,
            moved: 0,
            held_up: None,
            next_piece: 0,
            closed: None,
            attributes: Attributes::none(),
            has_ended: false,
        };
        writer.learn(grant);
        writer
    }

    /// Says that the first piece was given to a node already.
    pub(crate) fn was_staged(&mut self, ahead: Option<StagedPiece>) {
        self.ahead = ahead;
    }

    /// Returns how many bytes the object will have, with those given so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the object's path when it was opened.
    #[must_use]
    pub const fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the object's id: nobody else's is the same, and a rename keeps it.
    #[must_use]
    pub const fn object(&self) -> ObjectId {
        self.object
    }

    /// Sets a text that is kept beside the bytes from the close on, in place of what the object was
    /// created with under that name.
    pub fn set_attribute(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.attributes.set(name, text);
    }

    /// Says how much time it took to make the object, from the close on: see
    /// [`crate::PutOptions::recompute`].
    pub fn set_recompute(&mut self, time: Millis) {
        self.set_attribute(RECOMPUTE_MILLIS, time.0.to_string());
    }

    /// Writes bytes at the end. They are copied.
    ///
    /// # Errors
    /// After an error the writer takes nothing more; what was flushed before stays.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.begin()?;
        self.take(bytes).await?;
        self.end();
        Ok(())
    }

    async fn take(&mut self, mut bytes: &[u8]) -> Result<(), ClientError> {
        self.position += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = BLOCK_BYTES_MAX as usize - self.buffer.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == BLOCK_BYTES_MAX as usize {
                let piece = self.buffer.split().freeze();
                self.send(piece).await?;
            }
        }
        Ok(())
    }

    /// Writes bytes at the end without copying those that fill whole blocks.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub async fn write_bytes(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.begin()?;
        self.take_bytes(bytes).await?;
        self.end();
        Ok(())
    }

    async fn take_bytes(&mut self, mut bytes: Bytes) -> Result<(), ClientError> {
        if !self.buffer.is_empty() {
            let room = BLOCK_BYTES_MAX as usize - self.buffer.len();
            let head = bytes.split_to(bytes.len().min(room));
            self.take(&head).await?;
        }
        while bytes.len() >= BLOCK_BYTES_MAX as usize {
            let piece = bytes.split_to(BLOCK_BYTES_MAX as usize);
            self.position += u64::from(BLOCK_BYTES_MAX);
            self.send(piece).await?;
        }
        self.take(&bytes).await
    }

    /// Writes bytes at the end without waiting until a block is full: a direct stream. What was
    /// buffered before goes first.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub async fn write_direct(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.begin()?;
        self.take_bytes(bytes).await?;
        if !self.buffer.is_empty() {
            let piece = self.buffer.split().freeze();
            self.send(piece).await?;
        }
        self.end();
        Ok(())
    }

    /// Sends what was given so far and makes it readable by others.
    ///
    /// # Errors
    /// As [`Writer::write`]. [`ClientError::DataUnavailable`] with the ranges of the object that
    /// are lost already, also when an earlier call had flushed them: the object cannot be sealed
    /// any more. Read what is left, then drop the writer and write the whole again.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        self.begin()?;
        self.settle().await?;
        let mut attempts = self.client.attempts(format!("flush {}", self.path));
        let (object, lease) = (self.object, self.lease);
        let lengths = self.machine.lengths();
        let request = Request::Publish { object, lease, lengths };
        let answer = self.client.request_within(&mut attempts, request).await;
        self.done(answer)?;
        self.end();
        Ok(())
    }

    /// Sends the rest, seals the object and returns its facts. A replacement is visible from now
    /// on.
    ///
    /// # Errors
    /// As [`Writer::write`]; the object is not sealed then. [`ClientError::DataUnavailable`] with
    /// the ranges of it that are lost already: a new object is gone, what it was to replace stays,
    /// and an appended one ends with what was flushed. Write the whole again.
    pub async fn close(mut self) -> Result<ObjectStat, ClientError> {
        self.begin()?;
        self.settle().await?;
        let mut attempts = self.client.attempts(format!("close {}", self.path));
        let (object, lease) = (self.object, self.lease);
        let lengths = self.machine.lengths();
        let attributes = std::mem::take(&mut self.attributes);
        let request = Request::Seal { object, lease, lengths, attributes };
        match self.client.request_within(&mut attempts, request).await {
            Ok(Reply::Stat(stat)) => {
                self.has_ended = true;
                Ok(stat)
            }
            Ok(_) => Err(ClientError::BadReply { what: attempts.what.to_string() }),
            Err(error) => {
                // The namenode has given the object up itself.
                self.has_ended = matches!(error, ClientError::DataUnavailable { .. });
                Err(error)
            }
        }
    }

    /// Gives the object up: a new one vanishes, an appended one keeps what was flushed.
    ///
    /// # Errors
    /// [`ClientError`] when the namenode could not be told; the lease ends by itself then.
    pub async fn abort(mut self) -> Result<(), ClientError> {
        self.under_way.abort_all();
        let request = Request::Abort { object: self.object, lease: self.lease };
        let answer = self.client.request(request).await;
        self.has_ended = true;
        answer.map(|_| ())
    }

    /// Starts a call. One that is cancelled half-way took some of its bytes, nobody knows how many:
    /// the writer stays closed then, so that no object is sealed with bytes missing.
    fn begin(&mut self) -> Result<(), ClientError> {
        self.check_open()?;
        self.closed = Some("an earlier write was cancelled half-way");
        Ok(())
    }

    const fn end(&mut self) {
        self.closed = None;
    }

    fn check_open(&self) -> Result<(), ClientError> {
        if self.lease_has_ended.load(Ordering::Relaxed) {
            return Err(ClientError::Refused(Refusal::LeaseEnded { object: self.object }));
        }
        match self.closed {
            None => Ok(()),
            Some(why) => {
                let (path, why) = (self.path.clone(), why.to_owned());
                Err(ClientError::WriterClosed { path, why })
            }
        }
    }

    /// Sends everything and waits until it is in place.
    async fn settle(&mut self) -> Result<(), ClientError> {
        if !self.buffer.is_empty() {
            let piece = self.buffer.split().freeze();
            self.send(piece).await?;
        }
        let mut attempts = self.client.attempts(format!("write {}", self.path));
        while !self.under_way.is_empty() || !self.again.is_empty() {
            self.step(&mut attempts, usize::MAX).await?;
        }
        assert!(self.machine.is_settled(), "every piece is under way, waiting or in place");
        Ok(())
    }

    /// Places a piece, as soon as there is a place in the window.
    async fn send(&mut self, piece: Bytes) -> Result<(), ClientError> {
        let mut attempts = self.client.attempts(format!("write {}", self.path));
        self.again.push(piece);
        let window = self.client.shared.config.write_window_blocks.max(1);
        while !self.again.is_empty() || self.under_way.len() >= window {
            self.step(&mut attempts, window).await?;
        }
        Ok(())
    }

    /// Places what can be placed, else waits for one answer or asks for blocks.
    async fn step(&mut self, attempts: &mut Attempts, window: usize) -> Result<(), ClientError> {
        let window = window.min(self.client.shared.config.write_window_blocks.max(1));
        let result = if self.again.is_empty() || self.under_way.len() >= window {
            self.take_answer(attempts).await
        } else if self.machine.room() > 0 {
            self.place_next();
            Ok(())
        } else if self.machine.must_settle() {
            self.take_answer(attempts).await
        } else {
            self.add_blocks(attempts).await
        };
        self.done(result)
    }

    /// Closes the writer when something failed for good.
    fn done<T>(&mut self, result: Result<T, ClientError>) -> Result<T, ClientError> {
        if result.is_err() {
            self.closed = Some("an earlier write failed");
            self.under_way.abort_all();
        }
        result
    }

    fn place_next(&mut self) {
        let room = self.machine.room() as usize;
        let mut piece = self.again.remove(0);
        if piece.len() > room {
            let rest = piece.split_off(room);
            self.again.insert(0, rest);
        }
        let length = u32::try_from(piece.len()).expect("a piece is no longer than a block");
        let placed = self.machine.place(length).expect("the room was looked at");
        self.kept.insert(placed.piece, piece.clone());
        let address = self.addresses.get(&placed.block.node).cloned().unwrap_or_default();
        let shared = Arc::clone(&self.client.shared);
        let give_up = Instant::now() + self.client.call_deadline();
        if placed.piece == 0 {
            shared.local.began(placed.block.node);
        }
        // Where the guess was wrong, the piece is sent like any other.
        let ahead = self.ahead.take().filter(|ahead| placed.piece == 0 && ahead.fits(&placed));
        self.next_piece = placed.piece + 1;
        self.under_way.spawn(async move {
            let mut refused_at = None;
            let piece = Staging { piece, ahead };
            let answer =
                write_piece(&shared, &address, &placed, piece, give_up, &mut refused_at).await;
            Answered { placed, answer, refused_at }
        });
    }

    async fn take_answer(&mut self, attempts: &mut Attempts) -> Result<(), ClientError> {
        let Some(answered) = self.under_way.join_next().await else { return Ok(()) };
        let Ok(Answered { placed, answer, refused_at }) = answered else {
            let (path, why) = (self.path.clone(), "a piece was given up".to_owned());
            return Err(ClientError::WriterClosed { path, why });
        };
        match answer {
            Ok(()) => {
                count(&self.client.shared.counters.written_bytes, u64::from(placed.length));
                self.machine.acknowledged(placed.piece);
                self.moved = 0;
                self.goes_on(&placed, refused_at);
                self.forget_settled();
                self.client.succeeded(attempts);
                Ok(())
            }
            Err(error) => {
                let since = refused_at.unwrap_or_else(Instant::now);
                self.held_up.get_or_insert((since, self.next_piece));
                self.take_refusal(attempts, &placed, error).await
            }
        }
    }

    /// Counts how long the writer was held up, once a piece is in place that was placed after the
    /// refusal, or that was itself refused for a while.
    fn goes_on(&mut self, placed: &Placed, refused_at: Option<Instant>) {
        let counters = &self.client.shared.counters;
        if let Some(since) = refused_at {
            counters.stalled(since.elapsed());
        }
        if let Some((since, first)) = self.held_up
            && placed.piece >= first
        {
            counters.stalled(since.elapsed());
            self.held_up = None;
        }
    }

    /// Pieces are kept until all before them are in place: a refusal before them moves them too.
    fn forget_settled(&mut self) {
        if self.machine.is_settled() {
            self.kept.clear();
        } else if self.kept.len() > 2 * self.client.shared.config.write_window_blocks.max(1) {
            let first = self.machine.first_unsettled();
            self.kept = self.kept.split_off(&first);
        }
    }

    async fn take_refusal(
        &mut self,
        attempts: &mut Attempts,
        placed: &Placed,
        error: CallError,
    ) -> Result<(), ClientError> {
        let node = placed.block.node;
        let is_gone = !matches!(
            error,
            CallError::Refused(Refusal::ChecksumMismatch { .. } | Refusal::NotAtEnd { .. })
        );
        let pieces = self.machine.refused(placed.piece, is_gone);
        if pieces.is_empty() {
            // An answer about a piece that was placed again already.
            return Ok(());
        }
        let bytes: Vec<Bytes> =
            pieces.iter().filter_map(|number| self.kept.remove(number)).collect();
        assert_eq!(bytes.len(), pieces.len(), "a piece is kept until it is in place");
        self.again.splice(0..0, bytes);
        match &error {
            CallError::Refused(Refusal::Moved { .. }) => {
                // The fence is no failure: the next block is elsewhere and can be had at once.
                count(&self.client.shared.counters.moved, 1);
                self.moved += 1;
                if self.moved <= MOVED_MAX {
                    return Ok(());
                }
            }
            CallError::Unreachable { .. }
            | CallError::TimedOut { .. }
            | CallError::Closed { .. } => {
                self.client.suspect(node);
            }
            CallError::Refused(_)
            | CallError::TooBusy { .. }
            | CallError::Credentials { .. }
            | CallError::BadReply { .. } => {}
        }
        self.client.again(attempts, error).await.map(|_| ())
    }

    async fn add_blocks(&mut self, attempts: &mut Attempts) -> Result<(), ClientError> {
        let Want { ended, avoid } = self.machine.want();
        let waiting: usize = self.again.iter().map(Bytes::len).sum();
        let needed = waiting.div_ceil(BLOCK_BYTES_MAX as usize);
        let count = u32::try_from(needed).unwrap_or(BLOCKS_AHEAD).clamp(1, BLOCKS_AHEAD);
        let request = Request::AddBlocks {
            object: self.object,
            lease: self.lease,
            ended: ended.clone(),
            count: if self.position > 2 * u64::from(BLOCK_BYTES_MAX) {
                BLOCKS_AHEAD
            } else {
                count
            },
            avoid,
        };
        match self.client.request_within(attempts, request).await {
            Ok(Reply::Grant(grant)) => {
                self.learn(&grant);
                self.machine.granted(&grant.blocks);
                Ok(())
            }
            Ok(_) => Err(ClientError::BadReply { what: attempts.what.to_string() }),
            Err(error) => {
                self.machine.not_told(ended);
                Err(error)
            }
        }
    }

    fn learn(&mut self, grant: &Grant) {
        for place in &grant.places {
            self.addresses.insert(place.node, place.address.clone());
        }
    }
}

/// A piece, and where it was put before its block was known.
struct Staging {
    piece: Bytes,
    ahead: Option<StagedPiece>,
}

/// What became of a piece.
#[derive(Debug)]
struct Answered {
    placed: Placed,
    answer: Result<(), CallError>,
    /// When the datanode asked first to try the same again.
    refused_at: Option<Instant>,
}

/// Writes one piece once, or as often as the datanode asks to try the same again until `give_up`.
async fn write_piece(
    shared: &ClientInner,
    address: &str,
    placed: &Placed,
    piece: Staging,
    give_up: Instant,
    refused_at: &mut Option<Instant>,
) -> Result<(), CallError> {
    let Staging { piece, mut ahead } = piece;
    let mut header = Header::new(Op::Write, 0);
    header.flags = placed.block.tier as u16;
    header.block = placed.block.block;
    header.epoch = placed.block.epoch;
    header.offset = u64::from(placed.offset);
    header.length = placed.length;
    let mut checksum = None;
    let node = Some(placed.block.node);
    loop {
        // Pieces wait for each other on a slow link: only silence ends an attempt early.
        let idle = Some(shared.config.attempt_deadline);
        let timeouts = Timeouts { deadline: give_up, idle };
        let (pool, local) = (&shared.pool, &shared.local);
        let written = match ahead.take() {
            Some(ahead) => local.commit(ahead, placed, give_up).await,
            None => local.write(pool, address, placed, &piece, give_up).await,
        };
        let answer = match written {
            Some(Ok(())) => {
                count(&shared.counters.same_host_written_bytes, piece.len() as u64);
                Ok(())
            }
            Some(Err(refusal)) => Err(CallError::Refused(refusal)),
            None => {
                header.checksum = *checksum.get_or_insert_with(|| crc32c(&piece));
                let call = pool.call(address, node, header, vec![piece.clone()], timeouts);
                call.await.map(|_| ())
            }
        };
        match answer {
            Err(CallError::Refused(Refusal::RetryAfter { after, why })) => {
                refused_at.get_or_insert_with(Instant::now);
                let pause = Duration::from(after);
                if Instant::now() + pause >= give_up {
                    return Err(Refusal::RetryAfter { after, why }.into());
                }
                count(&shared.counters.retries, 1);
                tokio::time::sleep(pause).await;
            }
            answer => return answer,
        }
    }
}
