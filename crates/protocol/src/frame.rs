//! Frames: a fixed little-endian header of 48 bytes, then a body.
//!
//! ```text
//!  0 u16 magic      2 u8 version     3 u8 op
//!  4 u16 status     6 u16 flags      8 u64 request
//! 16 u64 block     24 u32 epoch     28 u32 length
//! 32 u64 offset    40 u32 checksum  44 u32 body bytes
//! ```
//!
//! A reply carries its request's `op` and `request`. `status` is 0 for success, else the number of
//! a [`Refusal`], which is then the body.

pub(crate) use bounded::{Budget, take_within};
use bytes_of::{u16_at, u32_at, u64_at};
use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::ids::{BlockId, Epoch};
use crate::limits::{FRAME_BODY_BYTES_MAX, GREETING_BYTES_MAX};
use crate::refusal::Refusal;
use crate::tier::Tier;
use crate::time::Millis;

/// Bytes of every header. The sum of the fields in the module's table, each at a multiple of its
/// own size.
pub const HEADER_BYTES: usize = 48;

/// The first two bytes of every frame. Neither a method of HTTP nor a record of TLS begins with
/// them, so a peer of another protocol is refused at its first bytes.
pub const MAGIC: u16 = 0x5344;

/// The version of the framing: of the header and of the greeting. The messages have versions of
/// their own, see [`crate::version`].
pub const VERSION: u8 = 3;

/// The number of a request to which its sender waits for no answer: a server sends none. A server
/// puts it into reports ([`Header::held`]). Numbers of requests count up from the start of a
/// connection and never get there.
pub const UNANSWERED: u64 = u64::MAX;

/// How often a server reports that it still holds an answer back ([`Header::held`]): ten times
/// within the 3 s of silence after which a client gives an attempt up by default. One that gives up
/// sooner than this gets no report in time.
pub const HELD_INTERVAL: Millis = Millis(250);

/// The operation that a frame requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// First frame of every connection: body [`crate::message::Hello`], reply
    /// [`crate::message::HelloReply`].
    Hello = 1,
    /// To the namenode: body `Vec<Request>`, reply `Vec<Result<Reply, Refusal>>` of the same
    /// length.
    Meta = 2,
    /// To a datanode: body [`crate::order::Order`], reply [`crate::order::OrderReply`].
    Order = 3,
    /// Reads `length` bytes of `block` from `offset`; the reply's body is the bytes, `checksum`
    /// theirs.
    Read = 4,
    /// Reads many ranges: body is [`RangeRequest`]s, the reply's body [`RangeReply`]s, then the
    /// bytes of each range in order.
    ReadMany = 5,
    /// Appends the body to `block` at `offset`; `checksum` is the body's; flags name the tier. The
    /// reply's `length` is the block's length now.
    Write = 6,
    /// Stores a whole sealed block that another datanode pushes: like `Write` at offset 0 of a
    /// block that this node must not have at this epoch or a later one.
    Store = 7,
    /// To a datanode over TCP: reply `Option<`[`crate::local::LocalEndpoint`]`>`, where a client of
    /// the same machine finds it.
    LocalEndpoint = 8,
    /// Through the local endpoint: body [`crate::local::LeaseRequest`], reply
    /// [`crate::local::LeaseReply`]s.
    Lease = 9,
    /// Through the local endpoint: gives leases back; body their numbers as `u64`. Has no reply.
    Return = 10,
    /// Through the local endpoint: requests the memory that bytes to write are put into. The reply
    /// comes with its descriptor; `length` is its size.
    Stage = 11,
    /// Through the local endpoint: reports that the first `offset` bytes of the `length` to be
    /// written are in that memory, so that the node can copy them before it has their block. The
    /// `Write` that follows has the same `request`. Has no reply. With `length` 0 nothing is to be
    /// written.
    Fill = 12,
    /// Announces the trace of the next request: see [`crate::trace`]. Only for a server that
    /// accepts it. Has no reply.
    Trace = 13,
    /// Between namenodes of one group: body and reply are theirs alone.
    Group = 14,
    /// The caller does not wait for the answer to its request `offset` any more: one that is held
    /// back is not sent. Only for a server that accepts it ([`ACCEPTS_CANCELS`]). Has no reply.
    Cancel = 15,
}

impl Op {
    /// The operation with the largest number.
    pub const LAST: Self = Self::Cancel;

    /// Returns the operation that has this number in a header; `None` for a number that this
    /// version does not have.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Hello,
            2 => Self::Meta,
            3 => Self::Order,
            4 => Self::Read,
            5 => Self::ReadMany,
            6 => Self::Write,
            7 => Self::Store,
            8 => Self::LocalEndpoint,
            9 => Self::Lease,
            10 => Self::Return,
            11 => Self::Stage,
            12 => Self::Fill,
            13 => Self::Trace,
            14 => Self::Group,
            15 => Self::Cancel,
            _ => return None,
        })
    }
}

/// In the answer to a read: a block is leaving this node, or has left. The bytes are right; before
/// it reads the block again, the caller should look up where it is now.
pub const IS_LEAVING: u16 = 1 << 8;

/// Without a request, from a server: answers are held back, see [`Header::held`].
pub const IS_HELD: u16 = 1 << 10;

/// In the `length` of the answer to a greeting: the server reads [`Op::Cancel`].
pub const ACCEPTS_CANCELS: u32 = 2;

/// In a `Read`: what came before did not have its checksum. The node compares its bytes with what
/// was written before it answers.
pub const IS_COMPLAINT: u16 = 1 << 9;

/// The fixed part of a frame: 48 bytes before the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The operation that is requested or answered.
    pub op: Op,
    /// 0, or the number of the refusal in the body.
    pub status: u16,
    /// `Write` and `Store`: the tier's number in the low byte. `Read`: [`IS_COMPLAINT`] or 0.
    /// Answers to `Read` and `ReadMany`: [`IS_LEAVING`] or 0. Reports of a server: [`IS_HELD`].
    /// Otherwise 0.
    pub flags: u16,
    /// Chosen by the caller, repeated in the reply.
    pub request: u64,
    /// The block, for data operations.
    pub block: BlockId,
    /// The epoch at which the caller looked up the block.
    pub epoch: Epoch,
    /// Requested bytes, or the block's length, by operation.
    pub length: u32,
    /// Offset within the block in bytes. `Order`: the term of the leader of a group of namenodes, 0
    /// of others.
    pub offset: u64,
    /// CRC32C of the body of `Write`, `Store` and the reply of `Read`.
    pub checksum: u32,
    /// Bytes that follow the header.
    pub body_bytes: u32,
}

/// A reason why bytes are not a frame. The connection is closed after it: its framing cannot be
/// trusted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The first bytes are not ours.
    #[error("not a frame: it starts with {0:#06x}")]
    Magic(u16),
    /// The peer speaks another version.
    #[error("protocol version {theirs} where {VERSION} is supported")]
    Version {
        /// The peer's version.
        theirs: u8,
    },
    /// The operation is unknown.
    #[error("unknown operation {0}")]
    Op(u8),
    /// The body would exceed [`FRAME_BODY_BYTES_MAX`].
    #[error("a body of {0} bytes exceeds the limit of {FRAME_BODY_BYTES_MAX}")]
    TooLarge(u32),
    /// The greeting would exceed [`GREETING_BYTES_MAX`].
    #[error("a greeting of {0} bytes exceeds the limit of {GREETING_BYTES_MAX}")]
    GreetingTooLarge(u32),
}

impl FrameError {
    /// Returns the refusal to send before the connection is closed.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Magic(_) => Refusal::BadFrame { why: self.to_string() },
            Self::Version { theirs } => Refusal::UnknownVersion { ours: VERSION, theirs: *theirs },
            Self::Op(op) => Refusal::UnknownOp { op: *op },
            Self::TooLarge(bytes) => too_large("frame body", *bytes, FRAME_BODY_BYTES_MAX),
            Self::GreetingTooLarge(bytes) => too_large("greeting", *bytes, GREETING_BYTES_MAX),
        }
    }
}

fn too_large(what: &str, value: u32, limit: u32) -> Refusal {
    Refusal::TooLarge { what: what.to_owned(), value: value.into(), limit: limit.into() }
}

/// Returns the body of a report that the answers to these requests are held back: their numbers, in
/// little endian.
#[must_use]
pub fn held_body(requests: impl Iterator<Item = u64>) -> Vec<u8> {
    requests.flat_map(u64::to_le_bytes).collect()
}

/// Returns the requests that the body of such a report names. What is left behind the last whole
/// number is passed over.
pub fn held_requests(body: &[u8]) -> impl Iterator<Item = u64> {
    body.chunks_exact(8).map(|number| u64_at(number, 0))
}

impl Header {
    /// Returns the header of a request without a block.
    #[must_use]
    pub const fn new(op: Op, request: u64) -> Self {
        Self {
            op,
            status: 0,
            flags: 0,
            request,
            block: BlockId(0),
            epoch: Epoch(0),
            length: 0,
            offset: 0,
            checksum: 0,
            body_bytes: 0,
        }
    }

    /// Returns the header of the reply to this request.
    #[must_use]
    pub const fn reply(&self) -> Self {
        let mut reply = Self::new(self.op, self.request);
        reply.block = self.block;
        reply.epoch = self.epoch;
        reply
    }

    /// Returns the report that the server lives and holds answers back, as one whose link is slow
    /// does; the body names their requests ([`held_requests`]). It has no request of its own: a
    /// caller of an earlier version passes over an answer that nothing waits for.
    #[must_use]
    pub const fn held() -> Self {
        let mut report = Self::new(Op::Read, UNANSWERED);
        report.flags = IS_HELD;
        report
    }

    /// Returns whether this is such a report.
    #[must_use]
    pub const fn is_held_report(&self) -> bool {
        self.request == UNANSWERED && self.flags & IS_HELD != 0
    }

    /// Returns the tier that the header's flags name; `None` if they name none.
    #[must_use]
    pub const fn tier(&self) -> Option<Tier> {
        Tier::from_wire((self.flags & 0xff) as u8)
    }

    /// Returns the header as it travels: [`HEADER_BYTES`] bytes, all numbers in little endian.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = VERSION;
        bytes[3] = self.op as u8;
        bytes[4..6].copy_from_slice(&self.status.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.request.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.block.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.length.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.offset.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes
    }

    /// Decodes the header that precedes the body of a frame.
    ///
    /// # Errors
    /// [`FrameError`]: send its refusal and close the connection.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let magic = u16_at(bytes, 0);
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        if bytes[2] != VERSION {
            return Err(FrameError::Version { theirs: bytes[2] });
        }
        let body_bytes = u32_at(bytes, 44);
        if body_bytes > FRAME_BODY_BYTES_MAX {
            return Err(FrameError::TooLarge(body_bytes));
        }
        Ok(Self {
            op: Op::from_wire(bytes[3]).ok_or(FrameError::Op(bytes[3]))?,
            status: u16_at(bytes, 4),
            flags: u16_at(bytes, 6),
            request: u64_at(bytes, 8),
            block: BlockId(u64_at(bytes, 16)),
            epoch: Epoch(u32_at(bytes, 24)),
            length: u32_at(bytes, 28),
            offset: u64_at(bytes, 32),
            checksum: u32_at(bytes, 40),
            body_bytes,
        })
    }
}

/// A header with its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<B> {
    /// The fixed part. Its `body_bytes` is the body's length.
    pub header: Header,
    /// The bytes that follow the header.
    pub body: B,
}

/// One range of a `ReadMany` request, 24 bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeRequest {
    /// The block.
    pub block: BlockId,
    /// The epoch at which the caller looked it up.
    pub epoch: Epoch,
    /// First byte within the block.
    pub offset: u32,
    /// Requested bytes.
    pub length: u32,
}

/// One range of a `ReadMany` reply, 16 bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeReply {
    /// 0, or the number of the refusal that is sent instead of the bytes.
    pub status: u16,
    /// Bytes of this range in the body: data, or an encoded refusal.
    pub length: u32,
    /// CRC32C of the data; 0 for a refusal.
    pub checksum: u32,
}

impl RangeRequest {
    /// Bytes on the wire: 8 of the block, 4 each of epoch, offset and length, and 4 zeros, so that
    /// the next range begins at a multiple of 8.
    pub const BYTES: usize = 24;

    /// Appends the range to `out` as [`Self::BYTES`] bytes, numbers in little endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.block.0.to_le_bytes());
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    /// Decodes all ranges of a request's body, in their order; an empty body has none.
    ///
    /// # Errors
    /// [`Refusal::BadFrame`] when the body is not a whole number of ranges: answer with it.
    pub fn decode_all(body: &[u8]) -> Result<Vec<Self>, Refusal> {
        if !body.len().is_multiple_of(Self::BYTES) {
            let why = format!("{} bytes are not a whole number of ranges", body.len());
            return Err(Refusal::BadFrame { why });
        }
        let read = |bytes: &[u8]| Self {
            block: BlockId(u64_at(bytes, 0)),
            epoch: Epoch(u32_at(bytes, 8)),
            offset: u32_at(bytes, 12),
            length: u32_at(bytes, 16),
        };
        Ok(body.chunks_exact(Self::BYTES).map(read).collect())
    }
}

impl RangeReply {
    /// Bytes on the wire: 2 of the status, 4 each of length and checksum, and zeros between and
    /// behind them, up to a multiple of 8.
    pub const BYTES: usize = 16;

    /// Appends the header of the range's answer to `out` as [`Self::BYTES`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.status.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    /// Reads the headers of `count` ranges from the start of a reply's body; the bytes follow them.
    ///
    /// # Errors
    /// [`Refusal::BadFrame`] when the body is shorter than its headers and their lengths state:
    /// close the connection.
    pub fn decode_all(body: &[u8], count: usize) -> Result<Vec<Self>, Refusal> {
        let short = || Refusal::BadFrame { why: "a vectored reply is too short".to_owned() };
        let headers = body.get(..count * Self::BYTES).ok_or_else(short)?;
        let read = |bytes: &[u8]| Self {
            status: u16_at(bytes, 0),
            length: u32_at(bytes, 4),
            checksum: u32_at(bytes, 8),
        };
        let replies: Vec<Self> = headers.chunks_exact(Self::BYTES).map(read).collect();
        let bytes: u64 = replies.iter().map(|reply| u64::from(reply.length)).sum();
        if bytes != (body.len() - headers.len()) as u64 {
            return Err(short());
        }
        Ok(replies)
    }
}

/// Encodes a message for a frame's body.
///
/// # Panics
/// Never for the messages of this crate: all of them have an encoding.
#[must_use]
pub fn encode_body<T: Serialize + ?Sized>(message: &T) -> Vec<u8> {
    encode_onto(message, Vec::new())
}

/// Encodes a message behind what is there already, or into memory that is large enough for it.
///
/// # Panics
/// As [`encode_body`].
#[must_use]
pub fn encode_onto<T: Serialize + ?Sized>(message: &T, out: Vec<u8>) -> Vec<u8> {
    let encoded = postcard::serialize_with_flavor(message, Onto(out));
    encoded.expect("messages of this crate have an encoding")
}

/// Encodes a list of messages that are encoded already.
#[must_use]
pub fn encode_list<'a>(items: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Vec<u8> {
    let bytes: usize = items.clone().map(<[u8]>::len).sum();
    let mut body = encode_onto(&(items.len() as u64), Vec::with_capacity(bytes + LENGTH_BYTES_MAX));
    items.for_each(|item| body.extend_from_slice(item));
    body
}

/// Bytes of the longest encoded length: a varint has 7 bits of the 64 in each byte.
const LENGTH_BYTES_MAX: usize = 10;

/// Where encoded bytes go: behind others.
struct Onto(Vec<u8>);

impl Flavor for Onto {
    type Output = Vec<u8>;

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// Memory that the lists and texts of any message may take beside [`DECODED_PER_BYTE`], in bytes.
/// As much as the longest body has: an element of one byte may take a hundred, so a short message
/// of a legal list needs more than a multiple of its length. No measurement has chosen it; a larger
/// one lets each short frame take more memory.
const DECODED_BYTES_MIN: usize = 16 << 20;

/// Bytes of memory for each byte of a message. A block of a layout has four, a number eight; what
/// has more, such as refusals, comes in short lists.
pub const DECODED_PER_BYTE: usize = 4;

/// Decodes a frame's body, all of it. The lists in it may take 16 MiB and four times its length in
/// memory, and while the last of them grows as much again.
///
/// # Errors
/// [`Refusal::BadFrame`] when the body is not such a message, something follows it, or it would
/// take more memory than that: close the connection.
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let bytes_max = DECODED_BYTES_MIN + DECODED_PER_BYTE * body.len();
    let budget = Budget::new(bytes_max);
    match take_within(body, &budget) {
        Err(_) if budget.is_exceeded() => {
            let why = format!("the message takes more than {bytes_max} bytes of memory");
            Err(Refusal::BadFrame { why })
        }
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => {
            Err(Refusal::BadFrame { why: format!("{} bytes follow the message", rest.len()) })
        }
        Err(error) => Err(Refusal::BadFrame { why: format!("the body cannot be read: {error}") }),
    }
}

mod bytes_of {
    //! Little-endian numbers at fixed places of a slice whose length was checked before.

    pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
    }

    pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    }

    pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    }
}

mod bounded;
#[cfg(test)]
mod tests;
