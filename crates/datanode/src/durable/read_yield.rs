//! How uploads give way to clients that read, where nothing limits what the node sends.

use std::fmt;
use std::sync::OnceLock;

use parking_lot::Mutex;
use sanderling_core::datanode::UploadYield;
use sanderling_protocol::Instant;
use tokio::sync::futures::Notified;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::sleep_until;

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
    /// Held by the part that is the next one of those that wait for clients.
    resting: AsyncMutex<()>,
    /// Notified when a part ends.
    ended: Notify,
    pub(super) clock: ProcessClock,
    /// What clients read; absent where a part never waits for them.
    reads: OnceLock<ReadCounter>,
}

/// An order that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct OrderUnderWay<'a> {
    of: &'a ReadYield,
    number: u64,
}

impl ReadYield {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            resting: AsyncMutex::new(()),
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

    /// Counts an order that sends so many bytes.
    pub(super) fn order(&self, bytes: u64) -> OrderUnderWay<'_> {
        let number = self.state.lock().order_begins(bytes);
        OrderUnderWay { of: self, number }
    }

    /// Returns what is ready when a part has ended after this call.
    pub(super) fn ended(&self) -> Notified<'_> {
        self.ended.notified()
    }

    fn reads(&self) -> Option<ClientReads> {
        self.reads.get().map(|reads| (reads.0)())
    }

    /// Waits until clients leave room for a part of so many bytes. Those that have to wait do so
    /// one after the other; a short one never has to.
    pub(super) async fn wait_for_clients(&self, bytes: u64) {
        if !UploadYield::is_counted(bytes) {
            return;
        }
        let _resting = self.resting.lock().await;
        loop {
            // Before the look: what ends after it is not missed.
            let ended = self.ended();
            let Err(at) = self.may_begin(bytes) else { return };
            tokio::select! {
                () = ended => {}
                () = sleep_until(self.clock.moment(at)) => {}
            }
        }
    }

    /// Decides as [`UploadYield::may_begin`]. On a node that leaves, uploads wait for nothing.
    pub(super) fn may_begin(&self, bytes: u64) -> Result<(), Instant> {
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

impl Drop for OrderUnderWay<'_> {
    fn drop(&mut self) {
        self.of.state.lock().order_ends(self.number);
    }
}
