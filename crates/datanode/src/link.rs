//! The node's link: how many pushes there are at once, how fast bytes leave, and which leave first
//! when the node drains. `core` decides, this waits.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::datanode::Egress;
use sanderling_protocol::BlockId;
use sanderling_transport::{Handled, Response};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::sleep_until;

use crate::clock::ProcessClock;
use crate::drain_throttle::{ReadThrottle, ThrottlingPush};
use crate::push_rate::{MeasuredPush, PushRate};

/// The link.
#[derive(Debug)]
pub(crate) struct Link {
    is_limited: bool,
    queue: Mutex<Egress>,
    /// Pushes under way, over all orders.
    pushes: Semaphore,
    throttle: ReadThrottle,
    rate: PushRate,
    clock: ProcessClock,
}

/// One push under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Pushing<'a> {
    measured: Option<MeasuredPush<'a>>,
    throttling: ThrottlingPush<'a>,
}

impl Link {
    /// Returns a link without pushes; without `bytes_per_second` it is as fast as the network.
    pub(crate) fn new(
        bytes_per_second: Option<u64>,
        pushes_max: usize,
        clock: ProcessClock,
    ) -> Self {
        let queue = Egress::new(bytes_per_second);
        Self {
            is_limited: queue.is_limited(),
            queue: Mutex::new(queue),
            pushes: Semaphore::new(pushes_max),
            throttle: ReadThrottle::new(clock),
            rate: PushRate::new(clock),
            clock,
        }
    }

    /// Waits until another push may be prepared.
    pub(crate) async fn push_permit(&self) -> SemaphorePermit<'_> {
        self.pushes.acquire().await.expect("the semaphore is never closed")
    }

    /// Begins to send a block: the push counts from now on, and this waits until its bytes leave.
    pub(crate) async fn begin_push(&self, length: u32) -> Pushing<'_> {
        let measured = self.rate.begin(length);
        let pushing = Pushing { measured, throttling: self.throttle.begin() };
        self.leave(length.into()).await;
        pushing
    }

    /// Returns the bytes that pushes sent in the best second lately; 0 before there was one.
    pub(crate) fn pushed_bytes_per_second(&self) -> u64 {
        self.rate.bytes_per_second()
    }

    /// Waits until so many bytes have left.
    async fn leave(&self, bytes: u64) {
        if !self.is_limited {
            return;
        }
        let left_at = self.queue.lock().queue(self.clock.now(), bytes);
        if let Some(at) = left_at {
            sleep_until(self.clock.moment(at)).await;
        }
    }

    /// Holds an answer back until its bytes would have left, and, on a node that drains, until the
    /// blocks that leave have had their part of the link.
    pub(crate) fn paced(
        self: &Arc<Self>,
        is_fenced: impl FnOnce() -> bool,
        handled: Handled,
    ) -> Handled {
        let is_leaving = self.throttle.is_busy() && is_fenced();
        if !self.is_limited && !is_leaving {
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
            let bytes = body_bytes(&response);
            if is_leaving {
                link.throttle.read_turn(bytes).await;
            }
            link.leave(bytes).await;
            response
        }))
    }

    /// Returns the flags of the answer to a read of these blocks on a node that drains.
    pub(crate) fn flags(&self, blocks: impl Iterator<Item = BlockId>) -> u16 {
        self.throttle.flags(blocks)
    }

    /// Forgets pushes of blocks that were dropped.
    pub(crate) fn dropped(&self, blocks: impl Iterator<Item = BlockId>) {
        self.throttle.dropped(blocks);
    }

    /// Forgets the pushes of all blocks: another incarnation begins.
    pub(crate) fn forget(&self) {
        self.throttle.forget();
    }
}

impl Pushing<'_> {
    /// Notes that the block has arrived at its target.
    pub(crate) fn arrived(&mut self, block: BlockId, bytes: u32) {
        if let Some(measured) = &mut self.measured {
            measured.arrived(bytes.into());
        }
        self.throttling.arrived(block, bytes);
    }
}

fn body_bytes(response: &Response) -> u64 {
    response.body.iter().map(Bytes::len).sum::<usize>() as u64
}
