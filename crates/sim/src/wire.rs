//! Places, messages, requests and responses.

use std::fmt;

use sanderling_core::block_table::{StoreRequest, WriteRequest};
use sanderling_core::call_outcome::CallOutcome;
use sanderling_protocol::{BlockId, Epoch, NodeId, Order, OrderReply, Refusal, Reply, Request};

use crate::content::Content;

/// Where a process runs. A process that ends leaves its place to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Host {
    Namenode,
    Datanode(u8),
    Manager(u8),
    Admin,
    Writer(u8),
    Reader(u8),
    Caller(u8),
}

/// The connection by which a frame comes: of the process that has had a place in one of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameOrigin {
    pub(crate) host: Host,
    pub(crate) life: u32,
}

/// Whose share of the namenode a frame counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FrameTenant {
    Connection(FrameOrigin),
    /// The owner of the tokens of several clients.
    Owner(u8),
}

/// Number of places. The sum of the hosts below, by [`Host::index`]; a cut is a number of 32 bits
/// with one for each.
pub(crate) const PLACES: usize = 28;

/// Places of which single faults are drawn: all but the four of callers, which have their share of
/// what befalls halves.
pub(crate) const PLACES_SINGLE: usize = 24;

/// Most callers of one run. 128 operations of a group's history (`OPERATIONS_MAX`) are 32 for each.
pub(crate) const CALLERS_MAX: u8 = 4;

/// Most datanodes, those that come in the end among them. A plan begins with six at most; the
/// others are room for machines that join.
pub(crate) const DATANODES_MAX: u8 = 8;

impl Host {
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Namenode => 0,
            Self::Datanode(slot) => 1 + slot as usize,
            Self::Manager(number) => 9 + number as usize,
            Self::Admin => 11,
            Self::Writer(number) => 12 + number as usize,
            Self::Reader(number) => 18 + number as usize,
            Self::Caller(number) => 24 + number as usize,
        }
    }

    /// Returns whether it is of a process that uses the client's library.
    pub(crate) const fn is_client(self) -> bool {
        matches!(self, Self::Writer(_) | Self::Reader(_) | Self::Caller(_))
    }

    /// Returns the datanode's place behind an address.
    pub(crate) fn at(address: &str) -> Option<Self> {
        address.strip_prefix("host").and_then(|slot| slot.parse().ok()).map(Self::Datanode)
    }
}

/// Returns the address of a datanode's place.
pub(crate) fn address(slot: u8) -> String {
    format!("host{slot}")
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namenode => formatter.write_str("namenode"),
            Self::Datanode(slot) => write!(formatter, "host{slot}"),
            Self::Manager(number) => write!(formatter, "manager{number}"),
            Self::Admin => formatter.write_str("admin"),
            Self::Writer(number) => write!(formatter, "writer{number}"),
            Self::Reader(number) => write!(formatter, "reader{number}"),
            Self::Caller(number) => write!(formatter, "caller{number}"),
        }
    }
}

/// What a message requests.
#[derive(Debug, Clone)]
pub(crate) enum RequestBody {
    /// Of the namenode.
    Meta(Request),
    /// Of the namenode, several in one frame, each with its call.
    Frame(Vec<(u64, Request)>),
    /// Of the datanode of that incarnation.
    Data(NodeId, DataRequest),
}

/// What is requested of a datanode.
#[derive(Debug, Clone)]
pub(crate) enum DataRequest {
    Hello,
    Write(WriteRequest, Content),
    Read { block: BlockId, epoch: Epoch, offset: u32, bytes: u32 },
    Store(StoreRequest, Content),
    Order(Order),
}

/// What a message answers.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "an answer lives for one event")]
pub(crate) enum Response {
    Meta(Result<Reply, Refusal>),
    /// To the requests of one frame, each with its call.
    Frame(Vec<(u64, Self)>),
    Data(Result<DataAnswer, Refusal>),
    /// No process listens there.
    Refused,
}

/// What a datanode answers.
#[derive(Debug, Clone)]
pub(crate) enum DataAnswer {
    Hello,
    Written,
    Stored,
    /// The bytes, and the epoch at which the node holds them.
    Bytes {
        content: Content,
        held: Epoch,
        /// Whether the block is also elsewhere, and the node leaves.
        is_leaving: bool,
    },
    Order(OrderReply),
}

/// One message.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) from: Host,
    pub(crate) to: Host,
    pub(crate) call: u64,
    pub(crate) body: MessageBody,
    /// The life of the process whose connection carries it; `None`: whichever is there.
    pub(crate) life: Option<u32>,
}

/// What a message carries.
#[derive(Debug, Clone)]
pub(crate) enum MessageBody {
    Request(RequestBody),
    Response(Response),
}

impl Message {
    /// Returns the bytes that take time on the wire.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match &self.body {
            MessageBody::Request(RequestBody::Data(
                _,
                DataRequest::Write(_, content) | DataRequest::Store(_, content),
            ))
            | MessageBody::Response(Response::Data(Ok(DataAnswer::Bytes { content, .. }))) => {
                u64::from(content.bytes())
            }
            _ => 0,
        }
    }
}

/// What the call to a datanode came to that has this answer; `None` when its time was over.
pub(crate) const fn call_outcome(answer: Option<&Response>) -> CallOutcome<'_> {
    match answer {
        None => CallOutcome::TimedOut,
        Some(Response::Data(Ok(_))) => CallOutcome::Answered,
        Some(Response::Data(Err(refusal))) => CallOutcome::Refused(refusal),
        Some(Response::Refused) => CallOutcome::NoProcess,
        Some(Response::Frame(_) | Response::Meta(_)) => CallOutcome::Broken,
    }
}

/// The answer of the namenode; `None` when there was none.
pub(crate) fn meta(answer: Option<Response>) -> Option<Result<Reply, Refusal>> {
    match answer? {
        Response::Meta(result) => Some(result),
        Response::Frame(_) | Response::Data(_) | Response::Refused => None,
    }
}

/// The answer of a datanode; `None` when there was none.
pub(crate) fn data(answer: Option<Response>) -> Option<Result<DataAnswer, Refusal>> {
    match answer? {
        Response::Data(result) => Some(result),
        Response::Frame(_) | Response::Meta(_) | Response::Refused => None,
    }
}
