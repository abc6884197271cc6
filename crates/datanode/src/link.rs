//! The node's link: how many pushes there are at once, how fast bytes leave, and which leave first
//! beside uploads, and when the node drains. `core` decides, this waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::datanode::{
    DrainThrottle, Egress, HeldRead, LinkClass, PushOutcome, PushRate, PushTargets,
};
use sanderling_protocol::frame::IS_LEAVING;
use sanderling_protocol::{BlockId, Instant, NodeId, Op, Refusal};
use sanderling_transport::{Handled, Response};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};
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
    reads: Mutex<ThrottledReads>,
    /// Wakes the timer of the reads that are held back: one is due sooner than it would look.
    is_due_sooner: Notify,
    clock: ProcessClock,
}

/// The pushes, as reads see them, and the reads that are held back for them.
#[derive(Debug, Default)]
struct ThrottledReads {
    throttle: DrainThrottle,
    /// What wakes each read that is held back.
    held: BTreeMap<HeldRead, oneshot::Sender<()>>,
    /// When the timer looks at them next; `None` while it does not run.
    timer_at: Option<Instant>,
}

impl ThrottledReads {
    /// Wakes the reads that are held back no more, and no others. Returns whether one of the others
    /// is due before the timer looks.
    fn release(&mut self, now: Instant) -> bool {
        for read in self.throttle.release(now) {
            if let Some(waker) = self.held.remove(&read) {
                // It may be given up at this moment.
                let _ = waker.send(());
            }
        }
        let due = self.throttle.deadline();
        self.timer_at.zip(due).is_some_and(|(timer_at, due)| due < timer_at)
    }
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
            reads: Mutex::default(),
            is_due_sooner: Notify::new(),
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
            let _permit = self.queued_pushes.acquire().await.expect("it is never closed");
            self.leave(LinkClass::Push, length.into()).await;
        }
        pushing
    }

    fn pushing(&self, length: u32) -> Pushing<'_> {
        let is_measured = self.rate.lock().began(self.clock.now(), length);
        self.reads.lock().throttle.began();
        Pushing { link: self, is_measured, arrived_bytes: 0 }
    }

    /// Returns the bytes that pushes sent in the best second lately; 0 before there was one.
    pub(crate) fn pushed_bytes_per_second(&self) -> u64 {
        self.rate.lock().bytes_per_second(self.clock.now())
    }

    /// Waits until so many bytes have left.
    async fn leave(&self, class: LinkClass, bytes: u64) {
        if let Some(pacer) = &self.pacer {
            pacer.leave(class, bytes).await;
        }
    }

    /// Holds an answer back until its bytes would have left, and, on a node that drains, until the
    /// blocks that leave have had their part of the link.
    pub(crate) fn paced(
        self: &Arc<Self>,
        class: LinkClass,
        is_fenced: impl FnOnce() -> bool,
        handled: Handled,
    ) -> Handled {
        let is_busy = self.reads.lock().throttle.is_busy(self.clock.now());
        let is_fenced = (is_busy || self.pacer.is_some()) && is_fenced();
        let is_leaving = is_busy && is_fenced;
        if self.pacer.is_none() && !is_leaving {
            return handled;
        }
        if matches!(&handled, Handled::Now(response) if body_bytes(response) == 0) {
            return handled;
        }
        if let Some(pacer) = &self.pacer {
            pacer.set_leaving(is_fenced);
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
            link.leave(class, bytes).await;
            response
        }))
    }

    /// Waits until a read of so many bytes may be answered.
    async fn read_turn(self: &Arc<Self>, bytes: u64) {
        if let Some((released, _place)) = self.hold(bytes) {
            // It is removed when it is released, or when this is dropped.
            let _ = released.await;
        }
    }

    /// Holds a read of so many bytes back; `None` if it may be answered at once.
    fn hold(self: &Arc<Self>, bytes: u64) -> Option<(oneshot::Receiver<()>, ThrottleGuard<'_>)> {
        let mut reads = self.reads.lock();
        let now = self.clock.now();
        if !reads.throttle.holds(now, bytes) {
            return None;
        }
        let read = reads.throttle.hold(now, bytes);
        let (waker, released) = oneshot::channel();
        reads.held.insert(read, waker);
        self.release(&mut reads);
        if !reads.held.contains_key(&read) {
            return None;
        }
        if reads.timer_at.is_none() {
            reads.timer_at = reads.throttle.deadline();
            tokio::spawn(Arc::clone(self).release_in_time());
        }
        Some((released, ThrottleGuard(self, read)))
    }

    /// Lets reads go on after something has changed for them.
    fn release(&self, reads: &mut ThrottledReads) {
        if reads.release(self.clock.now()) {
            self.is_due_sooner.notify_one();
        }
    }

    /// Lets reads go on that have waited too long, or whose pushes are over, until none is held
    /// back: one timer for all of them.
    async fn release_in_time(self: Arc<Self>) {
        loop {
            let due = {
                let mut reads = self.reads.lock();
                reads.release(self.clock.now());
                reads.timer_at = reads.throttle.deadline();
                reads.timer_at
            };
            let Some(due) = due else { return };
            tokio::select! {
                () = self.is_due_sooner.notified() => {}
                () = sleep_until(self.clock.moment(due)) => {}
            }
        }
    }

    /// Returns the flags of the answer to a read of these blocks on a node that drains.
    pub(crate) fn flags(&self, blocks: impl Iterator<Item = BlockId>) -> u16 {
        if self.reads.lock().throttle.is_pushed(blocks) { IS_LEAVING } else { 0 }
    }

    /// Forgets pushes of blocks that were dropped.
    pub(crate) fn dropped(&self, blocks: impl Iterator<Item = BlockId>) {
        self.reads.lock().throttle.dropped(blocks);
    }

    /// Forgets the pushes of all blocks: another incarnation begins.
    pub(crate) fn forget(&self) {
        self.reads.lock().throttle.forget();
    }
}

impl Pushing<'_> {
    /// Notes that the block has arrived at its target.
    pub(crate) fn arrived(&mut self, block: BlockId, bytes: u32) {
        self.arrived_bytes = bytes.into();
        let mut reads = self.link.reads.lock();
        reads.throttle.arrived(block, bytes);
        self.link.release(&mut reads);
    }
}

impl Drop for Pushing<'_> {
    fn drop(&mut self) {
        let now = self.link.clock.now();
        if self.is_measured {
            self.link.rate.lock().ended(now, self.arrived_bytes);
        }
        let mut reads = self.link.reads.lock();
        reads.throttle.ended(now);
        self.link.release(&mut reads);
    }
}

impl Drop for ThrottleGuard<'_> {
    fn drop(&mut self) {
        let mut reads = self.0.reads.lock();
        // One that was released has left them.
        if reads.held.remove(&self.1).is_some() {
            reads.throttle.give_up(self.1);
            self.0.release(&mut reads);
        }
    }
}

fn body_bytes(response: &Response) -> u64 {
    response.body.iter().map(Bytes::len).sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
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
        link.leave(LinkClass::Read, BLOCK.into()).await;
        let before = left.load(Ordering::Relaxed);
        assert!(before <= Egress::PUSHES_QUEUED_MAX, "{before} pushes were before the read");
    }

    #[tokio::test]
    async fn read_waits_for_its_part_of_what_is_pushed_or_for_the_end() {
        let link = Arc::new(Link::new(None, 1, ProcessClock::start()));
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

    #[tokio::test]
    async fn push_wakes_the_reads_that_it_lets_through_and_no_others() {
        const READS: usize = 500;
        let link = Arc::new(Link::new(None, 1, ProcessClock::start()));
        let mut push = link.pushing(1 << 20);
        let polls = Arc::new(AtomicUsize::new(0));
        let read = |_| {
            let (link, polls) = (Arc::clone(&link), Arc::clone(&polls));
            tokio::spawn(async move {
                let mut turn = pin!(link.read_turn(1 << 10));
                let polled = poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    turn.as_mut().poll(context)
                });
                polled.await;
            })
        };
        let reads: Vec<_> = (0..READS).map(read).collect();
        for block in 0..64 {
            tokio::task::yield_now().await;
            push.arrived(BlockId(block), 64 << 10);
        }
        drop(push);
        for read in reads {
            read.await.expect("it goes on");
        }
        let polls = polls.load(Ordering::Relaxed);
        assert!(polls <= 2 * READS, "{polls} polls: each waits once, and goes on once");
        assert!(link.reads.lock().held.is_empty());
    }

    #[tokio::test]
    async fn read_that_is_given_up_lets_those_behind_it_go_on() {
        let link = Arc::new(Link::new(None, 1, ProcessClock::start()));
        let mut push = link.pushing(1 << 20);
        let mut large = Box::pin(link.read_turn(1 << 20));
        assert!((&mut large).now_or_never().is_none());
        let mut small = Box::pin(link.read_turn(1 << 10));
        push.arrived(BlockId(7), 1 << 20);
        assert!((&mut small).now_or_never().is_none(), "it waits for the large one");
        drop(large);
        small.now_or_never().expect("it has its part");
        drop(push);
        assert!(link.reads.lock().held.is_empty());
    }
}
