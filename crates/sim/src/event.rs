//! What happens when: virtual time, the queue of events, and what each call and timer is for.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use sanderling_core::client::Placed;
use sanderling_core::datanode::{Act, DamageReport, RequestStamp};
use sanderling_core::manager::{LeadershipRequest, ViewRequest};
use sanderling_core::namenode::OrderKind;
use sanderling_core::notices::NoticeReport;
use sanderling_core::read::ReadPiece;
use sanderling_core::relocation::CallId;
use sanderling_protocol::message::{MoveCommit, MoveProposal};
use sanderling_protocol::{BlockId, Instant, NodeId, Request};

use crate::wire::{Host, Message};

/// Virtual time in microseconds, and the events that are to come.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    now: u64,
    events: BinaryHeap<Timed>,
    last: u64,
}

impl EventQueue {
    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    /// Queues an event for a time, which is now if that has passed.
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.last += 1;
        self.events.push(Timed { at: at.max(self.now), number: self.last, event });
    }

    /// Returns the next event, and lets the time pass until then. Events of the same time come in
    /// the order in which they were queued.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let next = self.events.pop()?;
        debug_assert!(next.at >= self.now, "time goes on");
        self.now = next.at;
        Some(next.event)
    }
}

/// One event with its time. The number makes the order total.
#[derive(Debug)]
struct Timed {
    at: u64,
    number: u64,
    event: Event,
}

/// What happens.
#[derive(Debug)]
pub(crate) enum Event {
    Deliver(Box<Message>),
    Timeout(u64),
    /// A timer of one process; it means nothing to the next process in that place.
    Timer {
        place: Host,
        life: u32,
        timer: Timer,
    },
    Fault(usize),
    /// A killed process starts again.
    Start(Host),
    /// A noticed machine dies, and a manager's process on it.
    Die {
        slot: u8,
        life: u32,
        manager: Option<u8>,
    },
    /// The requests that have gathered travel together.
    Frame,
    Calm,
    Settle,
}

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    Round,
    Damage,
    Work(u64),
    Send(u64),
    Commit,
    Wake,
    /// The namenode goes on with a frame of reads.
    Slice,
    /// A client sends a frame of listings.
    List,
    OrderQueue(NodeId, OrderKind),
    Poll,
    Relocate,
    /// A manager's next view may be due.
    View,
    Lead,
    Throttle,
    Look,
    Left(u64),
    Late(u64),
    Begin,
    Again,
    /// A writer's leases may be due for their renewal.
    Renew,
    /// A job's call that writes has waited after a failure.
    Pause(u32),
    /// A datanode was busy: a write of a job is sent again.
    Repeat(u32, SentPiece),
}

/// What the answer of a call is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    Datanode(u8, DatanodeCall),
    Namenode(NamenodeCall),
    Manager(u8, ManagerCall),
    Writer(u8, WriterCall),
    Reader(u8, ReaderCall),
    Caller(u8, CallerCall),
    Admin(AdminCall),
    /// Of a listing: the answer changes nothing.
    List,
    /// Of a report that a node did not answer: nothing waits for the answer.
    Suspect,
}

#[derive(Debug)]
pub(crate) enum DatanodeCall {
    Register(RequestStamp),
    Heartbeat(RequestStamp),
    /// A page of a block report.
    Held,
    Push {
        job: u64,
        index: usize,
        block: BlockId,
        length: u32,
        target: NodeId,
        /// Whether the push is measured.
        is_counted: bool,
    },
    /// A notice that the namenode does not know, sent at that time; `is_round`: in its turn.
    Repeat {
        sent: Box<(Instant, NoticeReport)>,
        is_round: bool,
    },
    /// What the machine's agent sends, of an incarnation, and the notice in it.
    Act(Box<(Instant, NodeId, Act, Option<NoticeReport>)>),
    Damage(DamageReport),
    /// A page of what a block report is compared with.
    Expected,
}

#[derive(Debug)]
pub(crate) enum NamenodeCall {
    Order(NodeId, OrderKind),
    Probe(NodeId),
}

#[derive(Debug)]
pub(crate) enum ManagerCall {
    Lease(LeadershipRequest),
    Drains(ViewRequest),
    Events,
    Fetch(NodeId),
    Reserve(CallId),
    Push(CallId),
    Commit(CallId),
    Abandon(CallId),
    Forecast,
    Page(CallId),
    DropCopies(CallId),
    Random(RandomCall),
}

/// One write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentPiece {
    pub(crate) placed: Placed,
    /// Offset in the object.
    pub(crate) offset: u64,
    /// When it is not repeated any more.
    pub(crate) give_up: Instant,
}

/// Calls of the random manager.
#[derive(Debug)]
pub(crate) enum RandomCall {
    Page(NodeId),
    Reserve(NodeId, Vec<MoveProposal>),
    Push(Vec<(MoveProposal, MoveCommit)>),
    /// The answer changes nothing.
    Other,
}

#[derive(Debug)]
pub(crate) enum WriterCall {
    Open { job: u32 },
    Piece { job: u32, piece: SentPiece },
    Add { job: u32 },
    Publish { job: u32, prefix: u64 },
    Seal { job: u32, prefix: u64 },
    Renew { number: u64 },
    Abort { job: u32 },
}

#[derive(Debug)]
pub(crate) enum ReaderCall {
    Layout { job: u32 },
    Bytes { job: u32, piece: ReadPiece },
}

#[derive(Debug)]
pub(crate) struct CallerCall {
    pub(crate) job: u32,
    /// The number of the operation in the history.
    pub(crate) operation: usize,
}

#[derive(Debug)]
pub(crate) enum AdminCall {
    /// Sent again a few times.
    Change { request: Request, tries: u32 },
    /// Sent again until it is answered.
    Must(Request),
}

impl Ord for Timed {
    /// The earliest is the greatest: the heap returns its greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Timed {}
