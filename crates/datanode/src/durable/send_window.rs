//! What is under way to one store: a part waits until those before it have left it room, and gives
//! way to clients that read.

use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_core::datanode::{UploadWindow, WindowPart};
use tokio::sync::Mutex as AsyncMutex;

use super::read_yield::ReadYield;

/// The parts that are under way. `core` decides how many may be, this waits.
#[derive(Debug)]
pub(super) struct SendWindow {
    window: Mutex<UploadWindow>,
    /// Held by the part that has the next room, so that none is overtaken by shorter ones.
    next: AsyncMutex<()>,
    /// The parts to all stores of the node.
    all: Arc<ReadYield>,
}

/// A part that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct SentPart<'a> {
    of: &'a SendWindow,
    part: WindowPart,
    bytes: u64,
    is_taken: bool,
}

impl SendWindow {
    /// Returns a window without parts, of a node that sends these.
    pub(super) fn new(all: Arc<ReadYield>) -> Self {
        Self { window: Mutex::default(), next: AsyncMutex::new(()), all }
    }

    /// Waits until a part of so many bytes may be sent.
    pub(super) async fn begin(&self, bytes: u64) -> SentPart<'_> {
        loop {
            // First: a part that waits for clients holds up none that does not.
            self.all.wait_for_clients(bytes).await;
            if let Some(part) = self.begin_next(bytes).await {
                return SentPart { of: self, part, bytes, is_taken: false };
            }
        }
    }

    /// Waits for room and begins with a part; `None` if it has to wait for clients once more.
    async fn begin_next(&self, bytes: u64) -> Option<WindowPart> {
        let _next = self.next.lock().await;
        loop {
            // Before the look: what ends after it is not missed.
            let ended = self.all.ended();
            self.all.may_begin(bytes).ok()?;
            let begun = self.window.lock().begin(self.all.clock.now(), bytes);
            if let Some(part) = begun {
                self.all.begin(bytes);
                return Some(part);
            }
            ended.await;
        }
    }
}

impl SentPart<'_> {
    /// Notes that the store has taken the part.
    pub(super) const fn taken(&mut self) {
        self.is_taken = true;
    }
}

impl Drop for SentPart<'_> {
    fn drop(&mut self) {
        self.of.window.lock().end(self.of.all.clock.now(), self.part, self.is_taken);
        // Last: it wakes those that wait.
        self.of.all.end(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::timeout;

    use super::*;
    use crate::durable::ClientReads;

    /// Bytes of a part that no store takes in a second.
    const LARGE: u64 = 1 << 40;

    #[tokio::test]
    async fn part_waits_for_those_before_it_and_is_not_overtaken() {
        let window = SendWindow::new(Arc::new(ReadYield::new()));
        let mut measured = window.begin(1 << 20).await;
        measured.taken();
        drop(measured);
        let [first, second] = [window.begin(LARGE).await, window.begin(LARGE).await];
        let mut large = Box::pin(window.begin(LARGE));
        assert!((&mut large).now_or_never().is_none(), "it waits for the first two");
        let mut small = Box::pin(window.begin(1));
        assert!((&mut small).now_or_never().is_none(), "it waits for the large one");
        drop(first);
        let large = large.await;
        drop(second);
        drop(large);
        drop(small.await);
    }

    #[tokio::test]
    async fn part_that_waits_for_clients_holds_up_no_short_one_and_goes_from_a_node_that_leaves() {
        let (all, read) = (ReadYield::new(), AtomicU64::new(0));
        let is_leaving = Arc::new(AtomicBool::new(false));
        let leaves = Arc::clone(&is_leaving);
        all.watch(move || ClientReads {
            bytes: read.fetch_add(1 << 20, Ordering::Relaxed),
            is_leaving: leaves.load(Ordering::Relaxed),
        });
        let window = SendWindow::new(Arc::new(all));
        // Clients read, and how much they lose by this part is not seen yet. So the next one waits
        // for the end of its turn, in which an order of one part would end.
        let first = window.begin(8 << 20).await;
        let mut second = Box::pin(window.begin(8 << 20));
        assert!((&mut second).now_or_never().is_none(), "it waits for clients");
        let short = window.begin(4096).now_or_never();
        assert!(short.is_some(), "it waits for the long one");
        is_leaving.store(true, Ordering::Relaxed);
        let second = timeout(Duration::from_secs(10), second).await;
        assert!(second.is_ok(), "it waits on a node that leaves");
        drop((first, second, short));
    }
}
