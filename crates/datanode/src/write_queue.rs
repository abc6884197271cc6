//! The order of the writes to a block on disk.
//!
//! A caller may send the next part of a block before the one before it was acknowledged. In memory
//! each is done before the next is looked at; the disk is slower, so there they wait for each
//! other.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_protocol::BlockId;
use tokio::sync::Notify;

/// Block, offset, and a number that distinguishes two writes at the same offset.
type WriteSlot = (BlockId, u64, u64);

/// The writes that wait.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    waiting: Mutex<WaitingWrites>,
}

#[derive(Debug, Default)]
struct WaitingWrites {
    /// Each with what wakes it.
    slots: BTreeMap<WriteSlot, Arc<Notify>>,
    serial: u64,
}

impl WaitingWrites {
    /// Wakes the first write to a block: no other may be next.
    fn wake_first(&self, block: BlockId) {
        let first = self.slots.range((block, 0, 0)..=(block, u64::MAX, u64::MAX)).next();
        if let Some((_, turn)) = first {
            turn.notify_one();
        }
    }
}

/// A place in the queue, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    queue: Arc<WriteQueue>,
    slot: WriteSlot,
    turn: Arc<Notify>,
}

impl WriteQueue {
    /// Queues a write.
    pub(crate) fn queue(self: &Arc<Self>, block: BlockId, offset: u64) -> QueuedWrite {
        let turn = Arc::new(Notify::new());
        let mut waiting = self.waiting.lock();
        waiting.serial += 1;
        let slot = (block, offset, waiting.serial);
        waiting.slots.insert(slot, Arc::clone(&turn));
        drop(waiting);
        QueuedWrite { queue: Arc::clone(self), slot, turn }
    }

    /// Returns whether a write to this block with a smaller offset waits.
    pub(crate) fn is_one_before(&self, block: BlockId, offset: u64) -> bool {
        self.waiting.lock().slots.range((block, 0, 0)..(block, offset, 0)).next().is_some()
    }

    /// Wakes the write to a block that is next: one to that block has ended.
    pub(crate) fn ended(&self, block: BlockId) {
        self.waiting.lock().wake_first(block);
    }
}

impl QueuedWrite {
    /// Waits until a write before this one has ended since it was queued or last woken, which is
    /// when it may be next. No end is missed, whenever this is called.
    pub(crate) async fn woken(&self) {
        self.turn.notified().await;
    }
}

impl Drop for QueuedWrite {
    fn drop(&mut self) {
        let mut waiting = self.queue.waiting.lock();
        waiting.slots.remove(&self.slot);
        waiting.wake_first(self.slot.0);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn only_earlier_bytes_of_the_same_block_come_before() {
        let turns = Arc::new(WriteQueue::default());
        let turn = turns.queue(BlockId(7), 100);
        assert!(turns.is_one_before(BlockId(7), 101));
        assert!(!turns.is_one_before(BlockId(7), 100));
        assert!(!turns.is_one_before(BlockId(8), 101));
        drop(turn);
        assert!(!turns.is_one_before(BlockId(7), 101));
    }

    #[test]
    fn write_that_ends_wakes_the_next_of_its_block_and_no_other() {
        let queue = Arc::new(WriteQueue::default());
        let queued = |(block, offset)| queue.queue(BlockId(block), offset);
        let places = [(6, 0), (7, 300), (7, 100), (7, 200), (7, 100), (8, 0)];
        let mut waiting = Vec::from_iter(places.map(queued));
        let woken = |waiting: &[QueuedWrite]| {
            let is_woken = |it: &&QueuedWrite| it.woken().now_or_never().is_some();
            Vec::from_iter(waiting.iter().filter(is_woken).map(|it| it.slot))
        };
        assert_eq!(woken(&waiting), []);
        queue.ended(BlockId(7));
        queue.ended(BlockId(9));
        assert_eq!(woken(&waiting), [(BlockId(7), 100, 3)]);
        assert_eq!(woken(&waiting), [], "each end wakes once");
        for next in [(100, 5), (200, 4), (300, 2)] {
            let (block, first) = (BlockId(7), |it: &QueuedWrite| (it.slot.1, it.slot.2));
            let of_block = waiting.iter().filter(|it| it.slot.0 == block);
            let ends = of_block.map(first).min().expect("one is left");
            waiting.retain(|it| (it.slot.0, first(it)) != (block, ends));
            assert_eq!(woken(&waiting), [(block, next.0, next.1)]);
        }
    }
}
