//! Streaming writes with bounded memory.
//!
//! `sanderling_core::client::WriteMachine` decides; here its steps are performed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sanderling_core::client::{
    AfterFailure, BlockRequest, ClosedWriter, PIECE_BYTES_MAX, Placed, WriteGoal, WriteMachine,
    WriteStep, repeat_in_place,
};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::message::{Attributes, Grant, ObjectStat, RECOMPUTE_MILLIS};
use sanderling_protocol::{Header, Millis, NodeId, ObjectId, Op, Path, Refusal, Reply, Request};
use sanderling_transport::trace::carried;
use sanderling_transport::{CallError, Timeouts};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::changes::failure;
use crate::client::{Attempts, Client, ClientInner};
use crate::error::ClientError;
use crate::leases::RenewedLease;
use crate::local::StagedPiece;
use crate::metrics::count;

/// Bytes of a full piece: those of a full block (`PIECE_BYTES_MAX` of the core), so that it costs
/// one write.
const PIECE_BYTES: usize = PIECE_BYTES_MAX as usize;

/// Writes one object, in order, once.
///
/// Bytes are sent in whole blocks; [`Writer::flush`] sends what is there. A writer that is dropped
/// without [`Writer::close`] is aborted by a task of the runtime in whose context it is dropped.
/// Without a runtime its lease ends by itself, and the object stays with what was flushed.
#[derive(Debug)]
pub struct Writer {
    client: Client,
    path: Path,
    lease: RenewedLease,
    machine: WriteMachine<Bytes>,
    addresses: BTreeMap<NodeId, String>,
    /// Bytes of the next piece.
    buffer: BytesMut,
    /// The first piece, if it was staged at a node before its block was granted.
    staged: Option<StagedPiece>,
    in_flight: JoinSet<Answered>,
    /// Time of the failure that holds the writer up.
    held_up_since: Option<Instant>,
    attributes: Attributes,
}

impl Client {
    /// Creates an object and returns the writer that has its lease. [`Writer::close`] seals the
    /// object; a writer that is dropped before aborts it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with what is wrong about the name or the place: correct that, as
    /// [`ClientError::recovery`] states.
    pub async fn create(
        &self,
        path: &Path,
        options: &crate::options::PutOptions,
    ) -> Result<Writer, ClientError> {
        let request = Request::Create(options.request(path, self.shared.nonces.draw()));
        self.writer(path, request, format!("create {path}")).await
    }

    /// Opens a sealed file and returns a writer that adds bytes at its end. No other client can
    /// write the file until the writer is closed or dropped.
    ///
    /// # Errors
    /// [`Refusal::SecondWriter`] while another writer has it: try again after the time in the
    /// refusal.
    pub async fn append(&self, path: &Path) -> Result<Writer, ClientError> {
        let writer = self.shared.nonces.draw();
        let request = Request::Append { path: path.clone(), writer };
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
        if self.machine.is_ended() {
            return;
        }
        // No other client may write the object while the lease lasts.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (client, (object, lease)) = (self.client.clone(), self.lease.ids());
            runtime.spawn(async move {
                // Without an answer the lease ends by itself.
                let _ = client.request(Request::Abort { object, lease }).await;
            });
        }
    }
}

impl Writer {
    pub(crate) fn new(client: Client, path: Path, grant: &Grant) -> Self {
        let shared = &client.shared;
        let lease = RenewedLease::new(shared, grant);
        let window = shared.config.write_window_blocks;
        let machine = WriteMachine::new(grant.bytes, &grant.blocks, window);
        let mut writer = Self {
            client,
            path,
            lease,
            machine,
            addresses: BTreeMap::new(),
            buffer: BytesMut::new(),
            staged: None,
            in_flight: JoinSet::new(),
            held_up_since: None,
            attributes: Attributes::none(),
        };
        writer.learn(grant);
        writer
    }

    /// Takes the first piece as it was staged at a node.
    pub(crate) fn was_staged(&mut self, staged: Option<StagedPiece>) {
        self.staged = staged;
    }

    /// Returns the object's length in bytes, with those that were passed to the writer so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.machine.position()
    }

    /// Returns the path under which the object was created or opened. A later rename does not
    /// change it.
    #[must_use]
    pub const fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the object's id. It is unique in the cluster for good, and a rename keeps it.
    #[must_use]
    pub const fn object(&self) -> ObjectId {
        self.lease.ids().0
    }

    /// Sets an attribute, effective with the close. It replaces one of the same name.
    pub fn set_attribute(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.attributes.set(name, text);
    }

    /// Sets how long it took to compute the object, effective with the close: see
    /// [`crate::PutOptions::recompute`].
    pub fn set_recompute(&mut self, time: Millis) {
        self.set_attribute(RECOMPUTE_MILLIS, time.0.to_string());
    }

    /// Copies bytes to the object's end. They are sent in full pieces, and other clients can read
    /// them after [`Writer::flush`] or [`Writer::close`].
    ///
    /// # Errors
    /// After an error the writer takes no further call; what was flushed before stays. Create the
    /// object again, or append to it.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.begin()?;
        self.take(bytes).await?;
        self.machine.succeeded();
        Ok(())
    }

    async fn take(&mut self, mut bytes: &[u8]) -> Result<(), ClientError> {
        self.machine.passed(bytes.len() as u64);
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.buffer.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == PIECE_BYTES {
                self.send_buffer().await?;
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
        self.machine.succeeded();
        Ok(())
    }

    /// Writes bytes at the end as [`Writer::write_bytes`] does, and waits until all that was not
    /// copied is acknowledged: the writer holds nothing of `bytes` when this returns. For memory
    /// that its owner changes afterwards.
    ///
    /// A connection may hold parts of it for up to 30 s more: if its node did not answer an attempt
    /// at a write in time, the bytes were written again, and those of that attempt may still be on
    /// their way. If they are changed meanwhile, the node refuses them by their checksum.
    ///
    /// # Errors
    /// As [`Writer::write`]. Writes that are under way are given up, and let go of `bytes` in a
    /// moment.
    pub async fn write_borrowed(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.begin()?;
        self.take_bytes(bytes).await?;
        self.drive(WriteGoal::Settled).await?;
        self.machine.succeeded();
        Ok(())
    }

    async fn take_bytes(&mut self, mut bytes: Bytes) -> Result<(), ClientError> {
        if !self.buffer.is_empty() {
            let room = PIECE_BYTES - self.buffer.len();
            let head = bytes.split_to(bytes.len().min(room));
            self.take(&head).await?;
        }
        while bytes.len() >= PIECE_BYTES {
            self.machine.passed(u64::from(PIECE_BYTES_MAX));
            self.send(bytes.split_to(PIECE_BYTES)).await?;
        }
        self.take(&bytes).await
    }

    /// Writes bytes at the end and sends them, without waiting for a full block: a direct stream.
    /// Bytes that were buffered before go first.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub async fn write_direct(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.begin()?;
        self.take_bytes(bytes).await?;
        self.send_buffer().await?;
        self.machine.succeeded();
        Ok(())
    }

    /// Sends all bytes so far, waits until they are acknowledged, and makes them readable.
    ///
    /// # Errors
    /// As [`Writer::write`]. [`ClientError::DataUnavailable`] with the ranges of the object that
    /// are lost already, also when an earlier call had flushed them: the object cannot be sealed
    /// any more. Read what is left, then drop the writer and write the whole again.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        self.begin()?;
        self.settle().await?;
        let mut attempts = self.client.attempts(("flush", &self.path));
        let ((object, lease), lengths) = (self.lease.ids(), self.machine.lengths());
        let request = Request::Publish { object, lease, lengths };
        let answer = self.client.request_within(&mut attempts, request).await;
        self.checked(answer)?;
        self.machine.succeeded();
        Ok(())
    }

    /// Sends the rest, seals the object and returns its metadata. It is visible from now on, also
    /// if it replaces another one.
    ///
    /// # Errors
    /// As [`Writer::write`]; the object is not sealed then. [`ClientError::DataUnavailable`] with
    /// the ranges of it that are lost already: a new object is gone, what it was to replace stays,
    /// and an appended one ends with what was flushed. Write the whole again.
    pub async fn close(mut self) -> Result<ObjectStat, ClientError> {
        self.begin()?;
        self.settle().await?;
        let mut attempts = self.client.attempts(("close", &self.path));
        let (object, lease) = self.lease.ids();
        let lengths = self.machine.final_lengths().expect("every piece is acknowledged");
        let attributes = std::mem::take(&mut self.attributes);
        let request = Request::Seal { object, lease, lengths, attributes };
        match self.client.request_within(&mut attempts, request).await {
            Ok(Reply::Stat(stat)) => {
                self.machine.ended();
                Ok(stat)
            }
            Ok(_) => Err(ClientError::BadReply { what: attempts.what.to_string() }),
            Err(error) => {
                self.machine.not_sealed(error.recovery());
                Err(error)
            }
        }
    }

    /// Gives the object up: a new one vanishes, an appended one keeps what was flushed.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer: nothing is left to do, since the lease ends
    /// by itself.
    pub async fn abort(mut self) -> Result<(), ClientError> {
        let answer = self.try_abort().await;
        self.machine.ended();
        answer
    }

    /// Gives the object up as [`Writer::abort`] does, for a caller that cannot wait until the lease
    /// ends: after an error it calls this again. The writer takes no other call any more.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer: call it again, or drop the writer.
    pub async fn try_abort(&mut self) -> Result<(), ClientError> {
        self.machine.failed();
        self.in_flight.abort_all();
        let (object, lease) = self.lease.ids();
        self.client.request(Request::Abort { object, lease }).await?;
        self.machine.ended();
        Ok(())
    }

    fn begin(&mut self) -> Result<(), ClientError> {
        if self.lease.has_ended() {
            return Err(ClientError::Refused(Refusal::LeaseEnded { object: self.object() }));
        }
        self.machine.begin().map_err(|cause| self.closed(cause))
    }

    fn closed(&self, cause: ClosedWriter) -> ClientError {
        ClientError::WriterClosed { path: self.path.clone(), cause }
    }

    /// Sends everything and waits until it is acknowledged.
    async fn settle(&mut self) -> Result<(), ClientError> {
        self.send_buffer().await?;
        self.drive(WriteGoal::Settled).await
    }

    async fn send_buffer(&mut self) -> Result<(), ClientError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = self.buffer.split().freeze();
        self.send(piece).await
    }

    /// Sends a piece, as soon as there is room in the window.
    async fn send(&mut self, piece: Bytes) -> Result<(), ClientError> {
        let length = u32::try_from(piece.len()).expect("a piece is no longer than a block");
        self.machine.push(piece, length);
        self.drive(WriteGoal::Room).await
    }

    /// Performs the machine's steps until a goal is reached.
    async fn drive(&mut self, goal: WriteGoal) -> Result<(), ClientError> {
        let mut attempts = self.client.attempts(("write", &self.path));
        loop {
            let result = match self.machine.next(goal) {
                WriteStep::Done => return Ok(()),
                WriteStep::Send(placed, piece) => {
                    self.spawn_write(placed, &piece);
                    Ok(())
                }
                WriteStep::Wait => self.take_answer(&mut attempts).await,
                WriteStep::AddBlocks(request) => self.add_blocks(&mut attempts, request).await,
            };
            self.checked(result)?;
        }
    }

    /// Closes the writer if something failed for good.
    fn checked<T>(&mut self, result: Result<T, ClientError>) -> Result<T, ClientError> {
        if result.is_err() {
            self.machine.failed();
            self.in_flight.abort_all();
        }
        result
    }

    fn spawn_write(&mut self, placed: Placed, piece: &Bytes) {
        let piece = piece.slice(placed.from..placed.from + placed.length as usize);
        let address = self.addresses.get(&placed.block.node).cloned().unwrap_or_default();
        let shared = Arc::clone(&self.client.shared);
        let give_up = Instant::now() + self.client.call_deadline();
        let is_first = placed.number == 0;
        if is_first {
            shared.local.began(placed.block.node);
        }
        // If the guess was wrong, the piece is sent like any other.
        let staged = self.staged.take().filter(|staged| is_first && staged.fits(&placed));
        self.in_flight.spawn(carried(async move {
            let (answer, refused_at) =
                write_piece(&shared, &address, &placed, piece, staged, give_up).await;
            Answered { placed, answer, refused_at }
        }));
    }

    async fn take_answer(&mut self, attempts: &mut Attempts) -> Result<(), ClientError> {
        let Some(Ok(answered)) = self.in_flight.join_next().await else {
            return Err(self.closed(ClosedWriter::GivenUp));
        };
        let Answered { placed, answer, refused_at } = answered;
        let Err(error) = answer else {
            let counters = &self.client.shared.counters;
            count(&counters.written_bytes, u64::from(placed.length));
            if let Some(since) = refused_at {
                counters.stalled(since.elapsed());
            }
            if self.machine.acknowledged(placed.number)
                && let Some(since) = self.held_up_since.take()
            {
                counters.stalled(since.elapsed());
            }
            self.client.succeeded(attempts);
            return Ok(());
        };
        let failure = failure(&error);
        let next = self.machine.refused(placed.number, &failure);
        if next == AfterFailure::Late {
            return Ok(());
        }
        self.held_up_since.get_or_insert_with(|| refused_at.unwrap_or_else(Instant::now));
        if failure.makes_suspect() {
            self.client.suspect(placed.block.node);
        }
        if matches!(failure.refusal, Some(Refusal::Moved { .. })) {
            count(&self.client.shared.counters.moved, 1);
        }
        match next {
            AfterFailure::Pause => self.client.again(attempts, error).await,
            AfterFailure::Late | AfterFailure::GoOn => Ok(()),
        }
    }

    async fn add_blocks(
        &mut self,
        attempts: &mut Attempts,
        request: BlockRequest,
    ) -> Result<(), ClientError> {
        let (object, lease) = self.lease.ids();
        let BlockRequest { ended, count, avoid } = request;
        let request = Request::AddBlocks { object, lease, ended, count, avoid };
        match self.client.request_within(attempts, request).await {
            Ok(Reply::Grant(grant)) => {
                self.learn(&grant);
                if !self.machine.granted(&grant.blocks) {
                    let why = "no block was granted that can be filled".to_owned();
                    let again = Refusal::RetryAfter { after: Millis(0), why };
                    self.client.again(attempts, again.into()).await?;
                }
                Ok(())
            }
            Ok(_) => Err(ClientError::BadReply { what: attempts.what.to_string() }),
            Err(error) => {
                self.machine.not_granted();
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

/// The outcome of a write.
#[derive(Debug)]
struct Answered {
    placed: Placed,
    answer: Result<(), CallError>,
    /// When the datanode was first busy.
    refused_at: Option<Instant>,
}

/// Writes to one block: once, or until `give_up` as often as the datanode is busy. Returns when it
/// first was, too.
async fn write_piece(
    shared: &ClientInner,
    address: &str,
    placed: &Placed,
    piece: Bytes,
    mut staged: Option<StagedPiece>,
    give_up: Instant,
) -> (Result<(), CallError>, Option<Instant>) {
    let mut header = Header::new(Op::Write, 0);
    header.flags = placed.block.tier as u16;
    header.block = placed.block.block;
    header.epoch = placed.block.epoch;
    header.offset = u64::from(placed.offset);
    header.length = placed.length;
    let (mut checksum, mut refused_at) = (None, None);
    let node = Some(placed.block.node);
    loop {
        // Writes wait for each other on a slow link: only an idle connection ends one early.
        let idle = Some(shared.config.attempt_deadline);
        let timeouts = Timeouts { deadline: give_up, idle };
        let (pool, local) = (&shared.pool, &shared.local);
        let written = match staged.take() {
            Some(staged) => local.commit(staged, placed, give_up).await,
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
        let Err(CallError::Refused(refusal)) = answer else { return (answer, refused_at) };
        let now = Instant::now();
        let left = give_up.saturating_duration_since(now).into();
        let Some(pause) = repeat_in_place(&refusal, left) else {
            return (Err(refusal.into()), refused_at);
        };
        refused_at.get_or_insert(now);
        count(&shared.counters.retries, 1);
        tokio::time::sleep(pause.into()).await;
    }
}
