//! The order of the writes to a block on disk.
//!
//! A caller may send the next part of a block before the one before it was acknowledged. In memory
//! each is done before the next is looked at; the disk is slower, so there they wait for each
//! other.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_protocol::BlockId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Block, offset, and a number that distinguishes two writes at the same offset.
type WriteSlot = (BlockId, u64, u64);

/// The writes that wait.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    waiting: Mutex<WaitingWrites>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct WaitingWrites {
    slots: BTreeSet<WriteSlot>,
    serial: u64,
}

/// A place in the queue, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    queue: Arc<WriteQueue>,
    slot: WriteSlot,
}

impl WriteQueue {
    /// Queues a write.
    pub(crate) fn queue(self: &Arc<Self>, block: BlockId, offset: u64) -> QueuedWrite {
        let mut waiting = self.waiting.lock();
        waiting.serial += 1;
        let place = (block, offset, waiting.serial);
        waiting.slots.insert(place);
        drop(waiting);
        QueuedWrite { queue: Arc::clone(self), slot: place }
    }

    /// Returns whether a write to this block with a smaller offset waits.
    pub(crate) fn is_one_before(&self, block: BlockId, offset: u64) -> bool {
        self.waiting.lock().slots.range((block, 0, 0)..(block, offset, 0)).next().is_some()
    }

    /// Waits for [`Self::change`], or for a place to be given back.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Wakes the writes that wait: one has ended.
    pub(crate) fn change(&self) {
        self.changed.notify_waiters();
    }
}

impl Drop for QueuedWrite {
    fn drop(&mut self) {
        self.queue.waiting.lock().slots.remove(&self.slot);
        self.queue.change();
    }
}

#[cfg(test)]
mod tests {
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
}
