//! The node's link: how many pushes there are at once, how fast bytes leave, and which leave first
//! when the node drains. `core` decides, this waits.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::datanode::{
    DrainThrottle, Egress, HeldRead, PushOutcome, PushRate, PushTargets,
};
use sanderling_protocol::frame::IS_LEAVING;
use sanderling_protocol::{BlockId, NodeId, Op, Refusal};
use sanderling_transport::{Handled, Response};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::sleep_until;

use crate::clock::ProcessClock;
use crate::pacer::Pacer;

/// The link.
#[derive(Debug)]
pub(crate) struct Link {
    /// What paces the bytes that leave, if their rate is limited.
    pacer: Option<Arc<Pacer>>,
    /// Pushes under way, over all orders.
    pushes: Semaphore,
    /// Those of them that wait for the pacer; the others wait here, in their order.
    queued_pushes: Semaphore,
    targets: Mutex<PushTargets>,
    rate: Mutex<PushRate>,
    /// The pushes, as reads see them.
    throttle: Mutex<DrainThrottle>,
    /// Wakes the reads that are held back: a push has arrived or ended, or one of them went on.
    changed: Notify,
    clock: ProcessClock,
}

/// One push under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Pushing<'a> {
    link: &'a Link,
    /// Whether it is long enough to count for the rate.
    is_measured: bool,
    arrived_bytes: u64,
}

/// A push that was let begin towards a target; given up when this is dropped without an outcome.
#[derive(Debug)]
pub(crate) struct TargetPush<'a> {
    link: &'a Link,
    target: NodeId,
    outcome: PushOutcome,
}

impl TargetPush<'_> {
    pub(crate) fn came_to(&mut self, outcome: PushOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for TargetPush<'_> {
    fn drop(&mut self) {
        let now = self.link.clock.now();
        self.link.targets.lock().ended(now, self.target, self.outcome);
    }
}

/// One read that is held back; it is given up when this is dropped.
#[derive(Debug)]
struct ThrottleGuard<'a>(&'a Link, HeldRead);

impl Link {
    /// Returns a link without pushes; without `bytes_per_second` it is as fast as the network.
    pub(crate) fn new(
        bytes_per_second: Option<u64>,
        pushes_max: usize,
        clock: ProcessClock,
    ) -> Self {
        Self {
            pacer: bytes_per_second.map(|rate| Arc::new(Pacer::new(rate, clock))),
            pushes: Semaphore::new(pushes_max),
            queued_pushes: Semaphore::new(Egress::PUSHES_QUEUED_MAX),
            targets: Mutex::default(),
            rate: Mutex::new(PushRate::new(clock.now())),
            throttle: Mutex::default(),
            changed: Notify::new(),
            clock,
        }
    }

    /// Waits until another push may be prepared.
    pub(crate) async fn push_permit(&self) -> SemaphorePermit<'_> {
        self.pushes.acquire().await.expect("the semaphore is never closed")
    }

    /// Decides whether a push to a target begins, as [`PushTargets::begin`].
    pub(crate) fn begin_to(&self, target: NodeId) -> Result<TargetPush<'_>, Refusal> {
        self.targets.lock().begin(self.clock.now(), target)?;
        Ok(TargetPush { link: self, target, outcome: PushOutcome::GivenUp })
    }

    /// Begins to send a block: the push counts from now on, and this waits until its bytes leave.
    pub(crate) async fn begin_push(&self, length: u32) -> Pushing<'_> {
        let pushing = self.pushing(length);
        if self.pacer.is_some() {
            let _turn = self.queued_pushes.acquire().await.expect("it is never closed");
            self.leave(length.into()).await;
        }
        pushing
    }

    fn pushing(&self, length: u32) -> Pushing<'_> {
        let is_measured = self.rate.lock().began(self.clock.now(), length);
        self.throttle.lock().began();
        Pushing { link: self, is_measured, arrived_bytes: 0 }
    }

    /// Returns the bytes that pushes sent in the best second lately; 0 before there was one.
    pub(crate) fn pushed_bytes_per_second(&self) -> u64 {
        self.rate.lock().bytes_per_second(self.clock.now())
    }

    /// Waits until so many bytes have left.
    async fn leave(&self, bytes: u64) {
        if let Some(pacer) = &self.pacer {
            pacer.leave(bytes).await;
        }
    }

    /// Holds an answer back until its bytes would have left, and, on a node that drains, until the
    /// blocks that leave have had their part of the link.
    pub(crate) fn paced(
        self: &Arc<Self>,
        is_fenced: impl FnOnce() -> bool,
        handled: Handled,
    ) -> Handled {
        let is_leaving = self.throttle.lock().is_busy(self.clock.now()) && is_fenced();
        if self.pacer.is_none() && !is_leaving {
            return handled;
        }
        if matches!(&handled, Handled::Now(response) if body_bytes(response) == 0) {
            return handled;
        }
        let link = Arc::clone(self);
        Handled::Later(Box::pin(async move {
            let response = match handled {
                Handled::Now(response) => response,
                Handled::Later(answer) => answer.await,
            };
            // What refuses, and what a drain needs, waits for no read.
            if response.header.status != 0 || response.header.op == Op::Order {
                return response;
            }
            let bytes = body_bytes(&response);
            if is_leaving {
                link.read_turn(bytes).await;
            }
            link.leave(bytes).await;
            response
        }))
    }

    /// Waits until a read of so many bytes may be answered.
    async fn read_turn(&self, bytes: u64) {
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

    /// Returns the flags of the answer to a read of these blocks on a node that drains.
    pub(crate) fn flags(&self, blocks: impl Iterator<Item = BlockId>) -> u16 {
        if self.throttle.lock().is_pushed(blocks) { IS_LEAVING } else { 0 }
    }

    /// Forgets pushes of blocks that were dropped.
    pub(crate) fn dropped(&self, blocks: impl Iterator<Item = BlockId>) {
        self.throttle.lock().dropped(blocks);
    }

    /// Forgets the pushes of all blocks: another incarnation begins.
    pub(crate) fn forget(&self) {
        self.throttle.lock().forget();
    }
}

impl Pushing<'_> {
    /// Notes that the block has arrived at its target.
    pub(crate) fn arrived(&mut self, block: BlockId, bytes: u32) {
        self.arrived_bytes = bytes.into();
        self.link.throttle.lock().arrived(block, bytes);
        self.link.changed.notify_waiters();
    }
}

impl Drop for Pushing<'_> {
    fn drop(&mut self) {
        let now = self.link.clock.now();
        if self.is_measured {
            self.link.rate.lock().ended(now, self.arrived_bytes);
        }
        self.link.throttle.lock().ended(now);
        self.link.changed.notify_waiters();
    }
}

impl Drop for ThrottleGuard<'_> {
    fn drop(&mut self) {
        self.0.throttle.lock().give_up(self.1);
    }
}

fn body_bytes(response: &Response) -> u64 {
    response.body.iter().map(Bytes::len).sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;

    use super::*;

    /// Bytes of a block in these tests, which take 60 ms each.
    const BLOCK: u32 = 64 << 10;
    const RATE: u64 = 1 << 20;

    #[tokio::test]
    async fn read_waits_for_two_pushes_and_not_for_all_that_are_prepared() {
        let link = Arc::new(Link::new(Some(RATE), 16, ProcessClock::start()));
        let left = Arc::new(AtomicUsize::new(0));
        for _ in 0..16 {
            let (link, left) = (Arc::clone(&link), Arc::clone(&left));
            tokio::spawn(async move {
                drop(link.begin_push(BLOCK).await);
                left.fetch_add(1, Ordering::Relaxed);
            });
        }
        tokio::task::yield_now().await;
        link.leave(BLOCK.into()).await;
        let before = left.load(Ordering::Relaxed);
        assert!(before <= Egress::PUSHES_QUEUED_MAX, "{before} pushes were before the read");
    }

    #[tokio::test]
    async fn read_waits_for_its_part_of_what_is_pushed_or_for_the_end() {
        let link = Link::new(None, 1, ProcessClock::start());
        let read_turn = || Box::pin(link.read_turn(1 << 10));
        read_turn().now_or_never().expect("nothing is pushed");
        let mut push = link.pushing(32 << 10);
        let mut read = read_turn();
        assert!((&mut read).now_or_never().is_none(), "nothing was pushed yet");
        push.arrived(BlockId(7), 32 << 10);
        read.await;
        assert_eq!(link.flags(std::iter::once(BlockId(7))), IS_LEAVING);
        assert!(read_turn().now_or_never().is_none());
        let waiting = read_turn();
        drop(push);
        // The pushes are over, so this ends.
        waiting.await;
    }
}
