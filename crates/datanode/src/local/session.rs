//! One connection of a client on the same machine. It has a thread of its own: a lease takes less
//! time than handing the request from the thread that waits for sockets to another.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sanderling_core::block_table::WriteRequest;
use sanderling_protocol::frame::{HEADER_BYTES, RangeRequest, decode_body, encode_body};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::local::{
    COPIED_BYTES_MAX, LeaseReply, LeaseRequest, LocalGreetingReply, PACKET_BYTES_MAX,
    REQUESTS_ARENA, decode_returns,
};
use sanderling_protocol::message::Hello;
use sanderling_protocol::{Header, Millis, NodeId, Op, Refusal, version};
use sanderling_transport::Pass;
use sanderling_transport::local::{PacketSocket, SharedMemory};

use super::leases::ConnectionLeases;
use super::listener::Local;
use super::stage::StagedCopy;
use crate::admission::{may_map_memory, may_write};
use crate::service::BlockService;
use crate::service::data::write_tier;
use crate::tier::TierBytes;
use crate::tiers::BlockBytes;

/// Bytes of a reply that copied ranges may take: what is more is leased. Two ranges of the longest
/// that are copied, or many short ones. Replies of all ranges take a tenth of the packet, refusals
/// begin only while less than half of it is used ([`REFUSALS_BYTES_MAX`]), so all of them fit.
const COPIES_BYTES_MAX: usize = PACKET_BYTES_MAX / 4;

/// Bytes of a reply after which refusals are not spelt out: clients request these ranges over TCP.
const REFUSALS_BYTES_MAX: usize = PACKET_BYTES_MAX / 2;

/// Time that a thread busy-polls for the next packet of a piece: the client is filling memory, and
/// a core that went to sleep meanwhile would take as long to wake as the client to fill.
const SPIN_MAX: Duration = Duration::from_micros(60);

/// The oldest version whose clients use TCP after [`Refusal::RetryAfter`]. Older ones do so after
/// [`Refusal::BadRequest`], and take any other refusal for a broken connection.
const RETRIES_MEMORY_MIN: u8 = 4;

/// Pause that is named to a client for which there is no memory. It uses TCP meanwhile. Memory is
/// free again when another client ends, which takes seconds. Chosen, not measured.
const NO_MEMORY_PAUSE: Millis = Millis(1000);

/// A connection.
pub(super) struct LocalSession {
    local: Arc<Local>,
    service: Arc<BlockService>,
    socket: Arc<PacketSocket>,
    /// The incarnation that the client has greeted.
    greeted: Option<NodeId>,
    /// The version of its messages.
    version: u8,
    /// What the client may do; `None` where callers are not authenticated.
    pass: Option<Pass>,
    held: ConnectionLeases,
    staging: Option<SharedMemory>,
    /// The piece that the client is filling the staging memory with.
    ahead: Option<StagedCopy>,
    oldest_millis: Arc<AtomicU64>,
}

/// What is answered: a packet, and the descriptor of the arena or of another memory.
struct LocalResponse {
    header: Header,
    body: Vec<u8>,
    file: Option<OwnedFd>,
}

impl LocalResponse {
    const fn of(header: Header, body: Vec<u8>) -> Self {
        Self { header, body, file: None }
    }

    fn refused(header: &Header, refusal: &Refusal) -> Self {
        let mut reply = header.reply();
        reply.status = refusal.code();
        Self::of(reply, encode_body(refusal))
    }
}

impl LocalSession {
    pub(super) fn new(
        local: Arc<Local>,
        service: Arc<BlockService>,
        socket: Arc<PacketSocket>,
        oldest_millis: Arc<AtomicU64>,
    ) -> Self {
        let held = ConnectionLeases::new(Arc::clone(&local.leases));
        let (greeted, pass, version) = (None, None, version::MESSAGES_MIN);
        let (staging, ahead) = (None, None);
        Self { local, service, socket, greeted, version, pass, held, staging, ahead, oldest_millis }
    }

    /// Serves until the client is gone, or the node stops.
    pub(super) fn run(mut self) {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        let is_gone = loop {
            match self.receive(&mut packet) {
                Ok(0) => break true,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break true,
                Err(error) => {
                    tracing::warn!(%error, "a connection of this machine broke");
                    break false;
                }
                Ok(bytes) => self.serve(&packet[..bytes]),
            }
            let oldest = u64::try_from(self.held.oldest().as_millis()).unwrap_or(u64::MAX);
            self.oldest_millis.store(oldest, Ordering::Relaxed);
        };
        if !is_gone || self.local.is_stopping.load(Ordering::SeqCst) {
            // This side ended it: the client may live, and look at what it leased.
            self.held.park();
        }
    }

    fn receive(&self, packet: &mut [u8]) -> std::io::Result<usize> {
        if self.ahead.is_some() {
            let began = Instant::now();
            while began.elapsed() < SPIN_MAX {
                if let Some((bytes, _)) = self.socket.receive_now(packet)? {
                    return Ok(bytes);
                }
                // Where there is one core for both, the client gets it.
                std::thread::yield_now();
            }
        }
        self.socket.receive(packet)
    }

    fn serve(&mut self, packet: &[u8]) {
        let Some(mut answer) = self.answer(packet) else { return };
        answer.header.body_bytes = u32::try_from(answer.body.len()).expect("a packet is short");
        let header = answer.header.encode();
        let parts = [IoSlice::new(&header), IoSlice::new(&answer.body)];
        let file = answer.file.as_ref().map(AsFd::as_fd);
        if let Err(error) = self.socket.send(&parts, file) {
            // Whether the client is gone is seen where the next packet is waited for.
            tracing::debug!(%error, "an answer was not taken");
        }
    }

    fn answer(&mut self, packet: &[u8]) -> Option<LocalResponse> {
        let (header, body) = match read_packet(packet) {
            Ok(read) => read,
            Err(refusal) => {
                self.service.counters().count_refusal(&refusal);
                return Some(LocalResponse::refused(&Header::new(Op::Hello, 0), &refusal));
            }
        };
        self.service.counters().count_request(header.op);
        let answered = match header.op {
            Op::Hello => self.greet(&header, body),
            Op::Return => {
                // A list that cannot be read gives nothing back; the end of the connection does.
                if let Ok(numbers) = decode_returns(body) {
                    self.held.take_back(&numbers);
                }
                return None;
            }
            Op::Lease => self.lease(&header, body),
            Op::Stage => self.stage(&header),
            Op::Fill => {
                self.fill(&header);
                return None;
            }
            Op::Write => self.write(&header),
            other => Err(Refusal::BadFrame { why: format!("{other:?} is served over TCP") }),
        };
        Some(answered.unwrap_or_else(|refusal| {
            let refusal = self.service.counted_refusal(&header, refusal);
            LocalResponse::refused(&header, &version::refusal_for(self.version, refusal))
        }))
    }

    fn greet(&mut self, header: &Header, body: &[u8]) -> Result<LocalResponse, Refusal> {
        let hello: Hello = decode_body(body)?;
        self.version = version::agreed_locally(header.flags);
        let membership = self.service.membership();
        let pass = membership.admit(&hello)?;
        if let Some(pass) = &pass {
            may_map_memory(pass.claims()?)?;
        }
        let reply = membership.greet(&hello)?;
        let asked = hello.node.unwrap_or_default();
        let node = reply.node.ok_or(Refusal::WrongNode { here: NodeId::default(), asked })?;
        self.greeted = Some(node);
        self.pass = pass;
        let arena = self.service.store().tiers().arena();
        let welcome = LocalGreetingReply { node, arena_bytes: arena.mapped_bytes() };
        let mut answer = LocalResponse::of(header.reply(), encode_body(&welcome));
        answer.header.flags = version::local_flags();
        if header.flags & REQUESTS_ARENA != 0 {
            let file = arena.descriptor().expect("a node that cannot share has no endpoint");
            let file = file.try_clone_to_owned();
            answer.file = Some(file.map_err(|error| self.not_shared(&error))?);
        }
        Ok(answer)
    }

    /// Refuses what is meant for another incarnation, or comes from a client that may not.
    fn check_greeted(&self) -> Result<(), Refusal> {
        if let Some(pass) = &self.pass {
            pass.claims()?;
        }
        let asked = self.greeted.ok_or(Refusal::NoHello)?;
        let here = self.service.membership().identity().node;
        if here == Some(asked) {
            return Ok(());
        }
        Err(Refusal::WrongNode { here: here.unwrap_or_default(), asked })
    }

    /// Refuses what is meant for another incarnation, and callers that may not write: they would
    /// hold memory that writers need.
    fn check_writer(&self) -> Result<(), Refusal> {
        self.check_greeted()?;
        match &self.pass {
            Some(pass) => may_write(pass.claims()?),
            None => Ok(()),
        }
    }

    fn lease(&mut self, header: &Header, body: &[u8]) -> Result<LocalResponse, Refusal> {
        let request = LeaseRequest::decode(body)?;
        self.held.take_back(&request.returned);
        self.check_greeted()?;
        let service = Arc::clone(&self.service);
        let _in_flight = service.activity().enter();
        let mut heads = Vec::with_capacity(request.ranges.len() * LeaseReply::BYTES);
        let mut tail = Vec::new();
        for (at, range) in (0..).zip(&request.ranges) {
            let number = header.request.wrapping_add(at);
            let length = u64::from(range.length);
            let reply = match self.lease_one(number, range, &mut tail) {
                Ok(reply) => {
                    if !matches!(reply, LeaseReply::Elsewhere) {
                        service.store().count_read_here(length);
                    }
                    reply
                }
                Err(refusal) => {
                    self.service.counters().count_refusal(&refusal);
                    refuse(&version::refusal_for(self.version, refusal), &mut tail)
                }
            };
            reply.encode(&mut heads);
        }
        heads.extend_from_slice(&tail);
        let mut reply = header.reply();
        reply.flags = self.service.read_flags(request.ranges.iter().map(|range| range.block));
        Ok(LocalResponse::of(reply, heads))
    }

    fn lease_one(
        &mut self,
        number: u64,
        range: &RangeRequest,
        tail: &mut Vec<u8>,
    ) -> Result<LeaseReply, Refusal> {
        let RangeRequest { block, epoch, offset, length } = *range;
        let store = self.service.store();
        let held = match store.admit_read(block, epoch, u64::from(offset), length) {
            Ok(Some(BlockBytes::Dram(held))) => held,
            Ok(None) => return Ok(LeaseReply::Copied { length: 0, checksum: 0 }),
            Ok(Some(_)) => return Ok(LeaseReply::Elsewhere),
            Err(refusal) if store.may_adopt(epoch, &refusal) => return Ok(LeaseReply::Elsewhere),
            Err(refusal) => return Err(refusal),
        };
        if length <= COPIED_BYTES_MAX && tail.len() + length as usize <= COPIES_BYTES_MAX {
            let read = held.read(offset, length);
            let damaged = |error| store.refusal_of(block, &BlockBytes::Dram(held), error);
            let read = read.map_err(damaged)?;
            read.slices.iter().for_each(|slice| tail.extend_from_slice(slice));
            return Ok(LeaseReply::Copied { length, checksum: read.checksum });
        }
        if let Err(error) = held.verify_within(self.local.options.verified_for) {
            return Err(store.refusal_of(block, &BlockBytes::Dram(held), error));
        }
        let Some(place) = held.place(offset, length) else { return Ok(LeaseReply::Elsewhere) };
        if self.held.give(number, held) {
            Ok(LeaseReply::Leased { place, length })
        } else {
            Ok(LeaseReply::Elsewhere)
        }
    }

    /// Hands out the memory into which this client puts what it writes, made with the first call.
    fn stage(&mut self, header: &Header) -> Result<LocalResponse, Refusal> {
        self.check_writer()?;
        let bytes = u64::from(BLOCK_BYTES_MAX);
        let local = &self.local;
        if self.staging.is_some() {
            let why = "the connection has its staging memory already: put the bytes there";
            return Err(Refusal::BadRequest { why: why.to_owned() });
        }
        let taken = local.staging_bytes.fetch_add(bytes, Ordering::Relaxed);
        if taken + bytes > local.options.staging_bytes_max {
            local.staging_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let why = "other clients of this machine use all of the staging memory: use TCP";
            return Err(self.no_memory(why.to_owned()));
        }
        match SharedMemory::create("sanderling-staging", BLOCK_BYTES_MAX as usize) {
            Ok((memory, file)) => {
                self.staging = Some(memory);
                let mut reply = header.reply();
                reply.length = BLOCK_BYTES_MAX;
                let mut answer = LocalResponse::of(reply, Vec::new());
                answer.file = Some(file);
                Ok(answer)
            }
            Err(error) => {
                local.staging_bytes.fetch_sub(bytes, Ordering::Relaxed);
                Err(self.not_shared(&error))
            }
        }
    }

    /// Returns the refusal after which the client uses TCP, because there is no memory for it now.
    fn no_memory(&self, why: String) -> Refusal {
        if self.version < RETRIES_MEMORY_MIN {
            return Refusal::BadRequest { why };
        }
        Refusal::RetryAfter { after: NO_MEMORY_PAUSE, why }
    }

    /// The same where the kernel gives no memory, or no descriptor of it.
    fn not_shared(&self, error: &std::io::Error) -> Refusal {
        self.no_memory(format!("the datanode cannot share memory: {error}: use TCP"))
    }

    /// Copies what the client has filled. The write that follows gets its errors.
    fn fill(&mut self, header: &Header) {
        let bytes = header.length;
        if self.ahead.as_ref().is_some_and(|ahead| !ahead.is(header.request, bytes)) {
            self.ahead = None;
        }
        let Some(staged) = &self.staging else { return };
        if bytes == 0 || bytes as usize > staged.bytes() || self.check_writer().is_err() {
            self.ahead = None;
            return;
        }
        if self.ahead.is_none() {
            self.ahead =
                StagedCopy::take(self.service.store().tiers().arena(), header.request, bytes);
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.copy(staged, u32::try_from(header.offset).unwrap_or(bytes));
        }
    }

    fn write(&mut self, header: &Header) -> Result<LocalResponse, Refusal> {
        // Whatever becomes of the write, what was copied for another has to make room.
        let ahead = self.ahead.take().filter(|ahead| ahead.is(header.request, header.length));
        self.check_writer()?;
        let tier = write_tier(header)?;
        let bad = || Refusal::BadFrame { why: "more than was staged".to_owned() };
        let staged = self.staging.as_ref().ok_or_else(bad)?;
        if header.length as usize > staged.bytes() {
            return Err(bad());
        }
        if let Some(refusal) = self.service.membership().withheld() {
            return Err(refusal);
        }
        let Header { block, epoch, offset, length, .. } = *header;
        let request = WriteRequest { block, epoch, tier, offset, bytes: length };
        let _in_flight = self.service.activity().enter();
        let length = self.service.store().write_staged(request, staged, header.checksum, ahead)?;
        let mut reply = header.reply();
        reply.length = length;
        Ok(LocalResponse::of(reply, Vec::new()))
    }
}

impl Drop for LocalSession {
    fn drop(&mut self) {
        if let Some(staging) = &self.staging {
            let bytes = staging.bytes() as u64;
            self.local.staging_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Takes a packet apart.
///
/// # Errors
/// [`Refusal`]: it is not a packet, or its length differs from the one in its header.
pub(crate) fn read_packet(packet: &[u8]) -> Result<(Header, &[u8]), Refusal> {
    let bad = || Refusal::BadFrame { why: format!("a packet of {} bytes", packet.len()) };
    let (head, body) = packet.split_first_chunk::<HEADER_BYTES>().ok_or_else(bad)?;
    let header = Header::decode(head).map_err(|error| error.refusal())?;
    if header.body_bytes as usize != body.len() {
        return Err(bad());
    }
    Ok((header, body))
}

fn refuse(refusal: &Refusal, tail: &mut Vec<u8>) -> LeaseReply {
    let body = encode_body(refusal);
    if tail.len() + body.len() > REFUSALS_BYTES_MAX {
        return LeaseReply::Elsewhere;
    }
    tail.extend_from_slice(&body);
    LeaseReply::Refused { length: body.len() as u32 }
}
