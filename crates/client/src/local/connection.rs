//! A connection to a datanode on this machine, with one request under way at a time.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_core::client::Placed;
use sanderling_protocol::checksum::{Running, crc32c};
use sanderling_protocol::frame::{HEADER_BYTES, RangeRequest, decode_body, encode_body};
use sanderling_protocol::local::{
    LeaseReply, LeaseRequest, LocalGreetingReply, PACKET_BYTES_MAX, REQUESTS_ARENA,
};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{ClusterId, Header, NodeId, Op, Refusal, version};
use sanderling_transport::local::{PacketSocket, SharedMemory};
use sanderling_transport::{CallError, Credentials, ReplyFault};
use tokio::time::{Instant, timeout_at};

use super::LocalRanges;
use super::socket::{LeaseSocket, Returning};

/// Time that a thread busy-polls for an answer: as long as over TCP (`SPIN_MAX` of the transport's
/// `busy_poll`). A lease is answered in less; a core that went to sleep meanwhile would take longer
/// to wake.
const SPIN_MAX: Duration = Duration::from_micros(15);

/// Longest time that a thread waits for an answer in place. Most come sooner than a task can be put
/// to sleep and woken; the checksum of a block, or its copy, takes the node this long.
const IN_PLACE_MAX: Duration = Duration::from_micros(500);

/// Bytes copied before their checksum goes on: they are still in the first cache then. It has
/// 32 KiB or more.
const STEP_BYTES: usize = 16 << 10;

/// Bytes put into the staging memory before the node is notified. It copies them while the next are
/// put there. Eight steps of a block: with them the median of a put of 1 MiB took 0.81 of the time
/// without overlap (0.71 to 0.89).
const FILL_BYTES: usize = 128 << 10;

/// The oldest version whose datanodes answer [`Refusal::RetryAfter`] while they have no staging
/// memory. Older ones answer [`Refusal::BadRequest`].
const NAMES_NO_MEMORY_MIN: u8 = 4;

/// The identity of the caller.
#[derive(Debug)]
pub(super) struct LocalIdentity {
    pub(super) cluster: Option<ClusterId>,
    pub(super) credentials: Credentials,
}

/// A connection.
#[derive(Debug)]
pub(super) struct LocalConnection {
    lease_socket: Arc<LeaseSocket>,
    name: String,
    /// The version that both sides use.
    version: u8,
    next_lease: u64,
    staging: Option<SharedMemory>,
    /// The number of the next piece.
    next_piece: u64,
    packet: Vec<u8>,
    body: Vec<u8>,
}

/// A piece in the staging memory.
#[derive(Debug)]
pub(super) struct Staged {
    number: u64,
    pub(super) bytes: u32,
    checksum: u32,
}

/// An answer: its header, the length of its body, and the descriptor that it brought.
struct LocalReply {
    header: Header,
    body_bytes: usize,
    file: Option<OwnedFd>,
}

impl LocalConnection {
    /// Connects and greets. Returns the arena, mapped, if it was wanted.
    pub(super) async fn open(
        socket: &Path,
        caller: &LocalIdentity,
        node: NodeId,
        returning: Arc<Returning>,
        has_arena: bool,
        deadline: Instant,
    ) -> Result<(Self, Option<SharedMemory>), CallError> {
        let name = socket.display().to_string();
        let connected =
            PacketSocket::connect(socket).map_err(|error| CallError::unreachable(&name, error))?;
        let mut connection = Self {
            lease_socket: LeaseSocket::new(connected, returning),
            name,
            version: version::MESSAGES_MIN,
            next_lease: 1,
            staging: None,
            next_piece: 1,
            packet: vec![0; PACKET_BYTES_MAX],
            body: Vec::new(),
        };
        let (role, cluster) = (Role::Client, caller.cluster);
        let mut hello = Hello { role, cluster, node: Some(node), token: None };
        caller.credentials.sign(&connection.name, &mut hello)?;
        connection.body = encode_body(&hello);
        let mut header = Header::new(Op::Hello, 0);
        header.flags = version::local_flags() | if has_arena { REQUESTS_ARENA } else { 0 };
        let answer = connection.exchange(header, deadline).await?;
        connection.version = version::agreed_locally(answer.header.flags);
        let welcome: LocalGreetingReply = decode_body(connection.body_of(&answer))
            .map_err(|_| connection.bad_reply("the welcome"))?;
        if !has_arena {
            return Ok((connection, None));
        }
        let file = answer.file.ok_or_else(|| connection.bad_reply("no arena"))?;
        let memory = SharedMemory::read_only(file, welcome.arena_bytes);
        let memory = memory.map_err(|error| connection.closed(error))?;
        Ok((connection, Some(memory)))
    }

    /// Leases ranges of the arena; `memory` is its mapping.
    pub(super) async fn lease(
        &mut self,
        memory: &Arc<SharedMemory>,
        ranges: &[RangeRequest],
        deadline: Instant,
    ) -> Result<(LocalRanges, u16), CallError> {
        let mut returned = Vec::new();
        self.lease_socket.take_returned(&mut returned);
        self.body.clear();
        LeaseRequest::encode(&returned, ranges, &mut self.body);
        let mut header = Header::new(Op::Lease, self.next_lease);
        let first = header.request;
        header.length = ranges.len() as u32;
        self.next_lease += ranges.len() as u64;
        let answer = self.exchange(header, deadline).await?;
        let bad = || self.bad_reply("leases");
        let (replies, mut rest) =
            LeaseReply::decode_all(self.body_of(&answer), ranges.len()).map_err(|_| bad())?;
        let mut results = Vec::with_capacity(ranges.len());
        for ((number, range), reply) in (first..).zip(ranges).zip(replies) {
            let (bytes, later) = rest.split_at(reply.follows() as usize);
            rest = later;
            let result = match reply {
                LeaseReply::Elsewhere => None,
                LeaseReply::Refused { .. } => Some(Err(decode_body(bytes).map_err(|_| bad())?)),
                // The complaint about damaged bytes goes over TCP.
                LeaseReply::Copied { checksum, .. } => match copied(range, bytes, checksum) {
                    Err(Refusal::ChecksumMismatch { .. }) => None,
                    copied => Some(copied),
                },
                LeaseReply::Leased { place, length } => {
                    let lease = self.lease_socket.lease(number);
                    let view = memory.view(place, length, lease).ok_or_else(bad)?;
                    if length != range.length {
                        return Err(bad());
                    }
                    Some(Ok(Bytes::from_owner(view)))
                }
            };
            results.push(result);
        }
        Ok((results, answer.header.flags))
    }

    /// Writes a piece of a block. `None` when the node has no memory to take it from.
    pub(super) async fn write(
        &mut self,
        placed: &Placed,
        piece: &[u8],
        deadline: Instant,
    ) -> Result<Option<Result<(), Refusal>>, CallError> {
        // For a later piece the node first has to see which block it continues.
        let is_early = placed.offset == 0;
        match self.stage(piece, is_early, deadline).await? {
            Some(staged) => self.commit(placed, &staged, deadline).await.map(Some),
            None => Ok(None),
        }
    }

    /// Puts a piece into the staging memory, and with `is_early` lets the node copy it meanwhile.
    /// `None` if the node has no memory for it.
    pub(super) async fn stage(
        &mut self,
        piece: &[u8],
        is_early: bool,
        deadline: Instant,
    ) -> Result<Option<Staged>, CallError> {
        if self.staging.is_none() {
            self.body.clear();
            let answer = match self.exchange(Header::new(Op::Stage, 0), deadline).await {
                Err(CallError::Refused(refusal)) if is_without_memory(self.version, &refusal) => {
                    return Ok(None);
                }
                answer => answer?,
            };
            let file = answer.file.ok_or_else(|| self.bad_reply("no memory"))?;
            let memory = SharedMemory::writable(file, u64::from(answer.header.length));
            self.staging = Some(memory.map_err(|error| self.closed(error))?);
        }
        let staging = self.staging.as_ref().expect("it was just made");
        if piece.len() > staging.bytes() {
            return Ok(None);
        }
        let number = self.next_piece;
        self.next_piece += 1;
        let bytes = piece.len() as u32;
        let mut running = Running::default();
        for (index, step) in piece.chunks(STEP_BYTES).enumerate() {
            let from = index * STEP_BYTES;
            staging.put(from, step);
            running.update(step);
            let end = from + step.len();
            if is_early && (end.is_multiple_of(FILL_BYTES) || end == piece.len()) {
                self.notify(number, bytes, end as u64);
            }
        }
        Ok(Some(Staged { number, bytes, checksum: running.value() }))
    }

    /// Notifies the node how much of a piece is there. A lost notification costs time alone: the
    /// node copies the rest with the write.
    fn notify(&self, number: u64, bytes: u32, end: u64) {
        let mut header = Header::new(Op::Fill, number);
        (header.length, header.offset) = (bytes, end);
        let sent = self.lease_socket.socket.send_now(&[IoSlice::new(&header.encode())]);
        if let Err(error) = sent {
            tracing::debug!(%error, "a node was not notified what to copy");
        }
    }

    /// Writes a piece that was staged to its block.
    pub(super) async fn commit(
        &mut self,
        placed: &Placed,
        staged: &Staged,
        deadline: Instant,
    ) -> Result<Result<(), Refusal>, CallError> {
        let mut header = Header::new(Op::Write, staged.number);
        header.flags = placed.block.tier as u16;
        header.block = placed.block.block;
        header.epoch = placed.block.epoch;
        header.offset = u64::from(placed.offset);
        header.length = staged.bytes;
        header.checksum = staged.checksum;
        self.body.clear();
        match self.exchange(header, deadline).await {
            Ok(_) => Ok(Ok(())),
            Err(CallError::Refused(refusal)) => Ok(Err(refusal)),
            Err(error) => Err(error),
        }
    }

    /// Notifies the node that the last staged piece is void: it needs no room.
    pub(super) fn give_up(&self) {
        self.notify(0, 0, 0);
    }

    /// Sends a request with the body that was prepared and waits for its answer. After an error
    /// other than a refusal, or when it is given up, the connection must not be used again.
    async fn exchange(
        &mut self,
        header: Header,
        deadline: Instant,
    ) -> Result<LocalReply, CallError> {
        let began = Instant::now();
        let mut header = header;
        header.body_bytes = self.body.len() as u32;
        let head = header.encode();
        let parts = [IoSlice::new(&head), IoSlice::new(&self.body)];
        self.lease_socket.socket.send_now(&parts).map_err(|error| self.closed(error))?;
        let answer = match self.answer_in_place()? {
            Some(answer) => answer,
            None => loop {
                let ready = timeout_at(deadline, self.lease_socket.socket.ready()).await;
                let timed_out = |_| {
                    let (address, waited) = (self.name.clone(), began.elapsed());
                    CallError::TimedOut { address, waited }
                };
                ready.map_err(timed_out)?.map_err(|error| self.closed(error))?;
                if let Some(answer) = self.receive()? {
                    break answer;
                }
            },
        };
        if answer.header.op != header.op || answer.header.request != header.request {
            return Err(self.bad_reply("another question"));
        }
        if answer.header.status == 0 {
            return Ok(answer);
        }
        let refusal = decode_body(self.body_of(&answer));
        Err(refusal.map_or_else(|_| self.bad_reply("a refusal"), CallError::Refused))
    }

    fn answer_in_place(&mut self) -> Result<Option<LocalReply>, CallError> {
        let began = std::time::Instant::now();
        while began.elapsed() < SPIN_MAX {
            if let Some(answer) = self.receive()? {
                return Ok(Some(answer));
            }
            // Where there is one core for both, the node gets it.
            std::thread::yield_now();
        }
        if self.lease_socket.socket.wait(IN_PLACE_MAX).map_err(|error| self.closed(error))? {
            return self.receive();
        }
        Ok(None)
    }

    fn receive(&mut self) -> Result<Option<LocalReply>, CallError> {
        let received = self.lease_socket.socket.receive_now(&mut self.packet);
        let Some((bytes, file)) = received.map_err(|error| self.closed(error))? else {
            return Ok(None);
        };
        if bytes == 0 {
            return Err(self.closed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let bad = || self.bad_reply("no frame");
        let head = self.packet[..bytes].first_chunk::<HEADER_BYTES>().ok_or_else(bad)?;
        let header = Header::decode(head).map_err(|_| bad())?;
        let body_bytes = bytes - HEADER_BYTES;
        if header.body_bytes as usize != body_bytes {
            return Err(bad());
        }
        Ok(Some(LocalReply { header, body_bytes, file }))
    }

    fn body_of(&self, answer: &LocalReply) -> &[u8] {
        &self.packet[HEADER_BYTES..HEADER_BYTES + answer.body_bytes]
    }

    /// Returns whether this process made it.
    pub(super) fn is_own(&self) -> bool {
        self.lease_socket.is_own()
    }

    /// Returns whether the node is gone.
    pub(super) fn is_ended(&self) -> bool {
        self.lease_socket.socket.is_ended()
    }

    fn closed(&self, error: std::io::Error) -> CallError {
        CallError::Closed { address: self.name.clone(), cause: error.into() }
    }

    fn bad_reply(&self, part: &'static str) -> CallError {
        CallError::BadReply { address: self.name.clone(), fault: ReplyFault::Local { part } }
    }
}

/// Returns whether a datanode of this version refuses staging memory because it has none now: the
/// bytes go over TCP, and the connection stays.
const fn is_without_memory(version: u8, refusal: &Refusal) -> bool {
    match refusal {
        Refusal::RetryAfter { .. } => true,
        Refusal::BadRequest { .. } => version < NAMES_NO_MEMORY_MIN,
        _ => false,
    }
}

fn copied(range: &RangeRequest, bytes: &[u8], expected: u32) -> Result<Bytes, Refusal> {
    let RangeRequest { block, length, .. } = *range;
    if bytes.len() != length as usize {
        let why = format!("{} bytes of block {block} where {length} were requested", bytes.len());
        return Err(Refusal::BadFrame { why });
    }
    let computed = crc32c(bytes);
    if computed != expected {
        return Err(Refusal::ChecksumMismatch { block, expected, computed });
    }
    Ok(Bytes::copy_from_slice(bytes))
}
