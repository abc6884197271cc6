//! What is under way to one store: a part waits until those before it have left it room.

use parking_lot::Mutex;
use sanderling_core::datanode::{UploadWindow, WindowPart};
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::clock::ProcessClock;

/// The parts that are under way. `core` decides how many may be, this waits.
#[derive(Debug)]
pub(super) struct SendWindow {
    window: Mutex<UploadWindow>,
    /// Held by the part that is next, so that none is overtaken by shorter ones.
    next: AsyncMutex<()>,
    /// Notified when a part ends.
    ended: Notify,
    clock: ProcessClock,
}

/// A part that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct SentPart<'a> {
    of: &'a SendWindow,
    part: WindowPart,
    is_taken: bool,
}

impl SendWindow {
    pub(super) fn new() -> Self {
        Self {
            window: Mutex::default(),
            next: AsyncMutex::new(()),
            ended: Notify::new(),
            clock: ProcessClock::start(),
        }
    }

    /// Waits until a part of so many bytes may be sent.
    pub(super) async fn begin(&self, bytes: u64) -> SentPart<'_> {
        let _next = self.next.lock().await;
        loop {
            // Before the look: what ends after it is not missed.
            let ended = self.ended.notified();
            let begun = self.window.lock().begin(self.clock.now(), bytes);
            if let Some(part) = begun {
                return SentPart { of: self, part, is_taken: false };
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
        self.of.window.lock().end(self.of.clock.now(), self.part, self.is_taken);
        self.of.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Bytes of a part that no store takes in a second.
    const LARGE: u64 = 1 << 40;

    #[tokio::test]
    async fn part_waits_for_those_before_it_and_is_not_overtaken() {
        let window = SendWindow::new();
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
}
