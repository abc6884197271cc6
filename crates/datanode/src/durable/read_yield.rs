//! How uploads give way to clients that read, where nothing limits what the node sends.

use std::fmt;
use std::sync::OnceLock;

use parking_lot::Mutex;
use sanderling_core::datanode::UploadYield;
use sanderling_protocol::Instant;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::clock::ProcessClock;

/// What a node shows of its clients to uploads that may wait for them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientReads {
    /// Bytes that clients have read over the network.
    pub(crate) bytes: u64,
    /// Whether the node is to leave: uploads wait for nothing then.
    pub(crate) is_leaving: bool,
}

/// Returns what clients have read until now.
struct ReadCounter(Box<dyn Fn() -> ClientReads + Send + Sync>);

impl fmt::Debug for ReadCounter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&(self.0)(), formatter)
    }
}

/// The parts of the node that are under way to any store. `core` decides whether another one may
/// begin.
#[derive(Debug)]
pub(super) struct ReadYield {
    state: Mutex<UploadYield>,
    /// Notified when a part ends.
    ended: Notify,
    pub(super) clock: ProcessClock,
    /// What clients read; absent where a part never waits for them.
    reads: OnceLock<ReadCounter>,
}

/// The parts of an order that are not sent yet. They are none when this is dropped.
#[derive(Debug)]
pub(crate) struct OrderedParts<'a> {
    of: &'a ReadYield,
    left: u64,
}

impl ReadYield {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            ended: Notify::new(),
            clock: ProcessClock::start(),
            reads: OnceLock::new(),
        }
    }

    /// Lets parts wait from now on for clients whose reads this counts.
    pub(super) fn watch(&self, reads: impl Fn() -> ClientReads + Send + Sync + 'static) {
        let before = self.reads.set(ReadCounter(Box::new(reads)));
        assert!(before.is_ok(), "a node has one counter of reads");
    }

    /// Counts the parts of an order.
    pub(super) fn order(&self, parts: usize) -> OrderedParts<'_> {
        let left = parts as u64;
        self.state.lock().order_begins(left);
        OrderedParts { of: self, left }
    }

    /// Returns what is ready when a part has ended after this call.
    pub(super) fn ended(&self) -> Notified<'_> {
        self.ended.notified()
    }

    fn reads(&self) -> Option<ClientReads> {
        self.reads.get().map(|reads| (reads.0)())
    }

    /// Decides as [`UploadYield::may_begin`]. On a node that leaves, uploads wait for nothing.
    pub(super) fn may_begin(&self, bytes: u64) -> Result<(), Option<Instant>> {
        match self.reads() {
            Some(reads) if !reads.is_leaving => {
                self.state.lock().may_begin(self.clock.now(), reads.bytes, bytes)
            }
            _ => Ok(()),
        }
    }

    /// Notes that a part has begun.
    pub(super) fn begin(&self, bytes: u64) {
        self.state.lock().began(self.clock.now(), bytes);
    }

    /// Notes that it has ended.
    pub(super) fn end(&self, bytes: u64) {
        let read = self.reads().unwrap_or_default();
        self.state.lock().ended(self.clock.now(), read.bytes, bytes);
        self.ended.notify_waiters();
    }
}

impl OrderedParts<'_> {
    /// Notes that so many of the parts were sent.
    pub(crate) fn sent(&mut self, parts: usize) {
        let parts = self.left.min(parts as u64);
        self.left -= parts;
        self.of.state.lock().parts_end(parts);
    }
}

impl Drop for OrderedParts<'_> {
    fn drop(&mut self) {
        self.of.state.lock().parts_end(self.left);
    }
}
