//! What a node on its way out puts first; decided by [`DrainThrottle`], waited for here.

use parking_lot::Mutex;
use sanderling_core::datanode::{DrainThrottle, HeldRead};
use sanderling_protocol::BlockId;
use sanderling_protocol::frame::IS_LEAVING;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::clock::ProcessClock;

/// The pushes of a node, as its reads see them.
#[derive(Debug)]
pub(crate) struct ReadThrottle {
    throttle: Mutex<DrainThrottle>,
    /// Wakes the reads that are held back: a push has arrived or ended, or one of them went on.
    changed: Notify,
    clock: ProcessClock,
}

/// One push under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ThrottlingPush<'a>(&'a ReadThrottle);

/// One read that is held back; it is given up when this is dropped.
#[derive(Debug)]
struct ThrottleGuard<'a>(&'a ReadThrottle, HeldRead);

impl ReadThrottle {
    /// Starts without pushes.
    pub(crate) fn new(clock: ProcessClock) -> Self {
        Self { throttle: Mutex::default(), changed: Notify::new(), clock }
    }

    /// Notes that a push begins; it lasts until the answer is dropped.
    pub(crate) fn begin(&self) -> ThrottlingPush<'_> {
        self.throttle.lock().began();
        ThrottlingPush(self)
    }

    /// Returns whether blocks are leaving now.
    pub(crate) fn is_busy(&self) -> bool {
        self.throttle.lock().is_busy(self.clock.now())
    }

    /// Waits until a read of so many bytes may be answered.
    pub(crate) async fn read_turn(&self, bytes: u64) {
        let held = {
            let (mut throttle, now) = (self.throttle.lock(), self.clock.now());
            if !throttle.holds(now, bytes) {
                return;
            }
            ThrottleGuard(self, throttle.hold(now, bytes))
        };
        loop {
            let changed = self.changed.notified();
            let deadline = {
                let mut throttle = self.throttle.lock();
                let released = throttle.release(self.clock.now());
                if released.iter().any(|read| *read != held.1) {
                    self.changed.notify_waiters();
                }
                if !throttle.is_held(held.1) {
                    return;
                }
                throttle.deadline()
            };
            let Some(due) = deadline else { return };
            tokio::select! {
                () = changed => {}
                () = sleep_until(self.clock.moment(due)) => {}
            }
        }
    }

    /// Returns the flags of the answer to a read of these blocks.
    pub(crate) fn flags(&self, blocks: impl Iterator<Item = BlockId>) -> u16 {
        if self.throttle.lock().is_pushed(blocks) { IS_LEAVING } else { 0 }
    }

    /// Forgets blocks that are here no more.
    pub(crate) fn dropped(&self, blocks: impl Iterator<Item = BlockId>) {
        self.throttle.lock().dropped(blocks);
    }

    /// Forgets all blocks: the node begins again.
    pub(crate) fn forget(&self) {
        self.throttle.lock().forget();
    }
}

impl ThrottlingPush<'_> {
    /// Notes that the block has arrived at its target.
    pub(crate) fn arrived(&self, block: BlockId, bytes: u32) {
        self.0.throttle.lock().arrived(block, bytes);
        self.0.changed.notify_waiters();
    }
}

impl Drop for ThrottlingPush<'_> {
    fn drop(&mut self) {
        self.0.throttle.lock().ended(self.0.clock.now());
        self.0.changed.notify_waiters();
    }
}

impl Drop for ThrottleGuard<'_> {
    fn drop(&mut self) {
        self.0.throttle.lock().give_up(self.1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn read_waits_for_its_part_of_what_is_pushed_or_for_the_end() {
        let leaving = ReadThrottle::new(ProcessClock::start());
        assert!(!leaving.is_busy());
        let push = leaving.begin();
        let mut read = Box::pin(leaving.read_turn(1 << 10));
        assert!((&mut read).now_or_never().is_none(), "nothing was pushed yet");
        push.arrived(BlockId(7), 32 << 10);
        read.await;
        assert_eq!(leaving.flags(std::iter::once(BlockId(7))), IS_LEAVING);
        assert!(Box::pin(leaving.read_turn(1 << 10)).now_or_never().is_none());
        let waiting = leaving.read_turn(1 << 10);
        drop(push);
        // The pushes are over, so this ends.
        waiting.await;
    }
}
