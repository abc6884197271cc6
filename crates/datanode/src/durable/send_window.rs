//! What is under way to one store: a part waits until those before it have left it room, and gives
//! way to clients that read.

use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_core::datanode::{UploadWindow, WindowPart};
use sanderling_protocol::Instant;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::sleep_until;

use super::read_yield::ReadYield;

/// The parts that are under way. `core` decides how many may be, this waits.
#[derive(Debug)]
pub(super) struct SendWindow {
    window: Mutex<UploadWindow>,
    /// Held by the part that is next, so that none is overtaken by shorter ones.
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
        let _next = self.next.lock().await;
        loop {
            // Before the look: what ends after it is not missed.
            let ended = self.all.ended();
            match self.begin_now(bytes) {
                Ok(part) => return SentPart { of: self, part, bytes, is_taken: false },
                Err(None) => ended.await,
                Err(Some(at)) => tokio::select! {
                    () = ended => {}
                    () = sleep_until(self.all.clock.moment(at)) => {}
                },
            }
        }
    }

    /// Begins with a part, if it need not wait; else until when, as [`ReadYield::may_begin`].
    fn begin_now(&self, bytes: u64) -> Result<WindowPart, Option<Instant>> {
        self.all.may_begin(bytes)?;
        let begun = self.window.lock().begin(self.all.clock.now(), bytes);
        let Some(part) = begun else { return Err(None) };
        self.all.begin(bytes);
        Ok(part)
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
    use futures_util::FutureExt;

    use super::*;

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
}
