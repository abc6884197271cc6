//! What a node on its way out puts first: its blocks, then the reads of them.
//!
//! While the blocks of a noticed node leave, every read of one of them takes its link from the
//! blocks that would be lost. Nothing below knows that: TCP gives a connection that is always busy
//! with reads most of a link that pushes of single blocks share with it. So reads are let through
//! by what the pushes get: one byte for every [`PUSH_SHARE`] bytes that have arrived elsewhere.
//! That needs no knowledge of the link's rate.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_protocol::BlockId;
use sanderling_protocol::frame::IS_LEAVING;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// Bytes of pushes for one byte of reads: a node that leaves at full rate while clients read needs
/// a thirty-second part longer. More was too much where a drain may take a fifth longer in all, and
/// reads were no faster for it: what they want is soon elsewhere.
const PUSH_SHARE: usize = 32;

/// One permit stands for so many bytes.
const PERMIT_BYTES: usize = 1 << 10;

/// Permits that may be left over: reads that come in a bunch do not take the link from the pushes.
const PERMITS_MAX: usize = (256 << 10) / PERMIT_BYTES;

/// Pushes that follow each other this closely are one departure.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Longest time that a read is held back: within a client's patience with one attempt.
const READ_WAIT_MAX: Duration = Duration::from_millis(1500);

/// Blocks that are remembered as pushed: 16 MiB of memory. Beyond it, all are forgotten, and
/// readers learn where those are when the node is gone.
const PUSHED_MAX: usize = 1 << 20;

/// How often is looked whether the pushes go on.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The pushes of a node, as its reads see them.
#[derive(Debug)]
pub(crate) struct Leaving {
    pushing: AtomicUsize,
    last_push: Mutex<Option<Instant>>,
    permits: Semaphore,
    /// Blocks that are also elsewhere, where their home may be by now.
    pushed: Mutex<HashSet<BlockId>>,
}

/// One push under way.
#[derive(Debug)]
pub(crate) struct Pushing<'a>(&'a Leaving);

impl Leaving {
    /// Starts without pushes.
    pub(crate) fn new() -> Self {
        Self {
            pushing: AtomicUsize::new(0),
            last_push: Mutex::new(None),
            permits: Semaphore::new(0),
            pushed: Mutex::new(HashSet::new()),
        }
    }

    /// Notes that a push begins; it lasts until the answer is dropped.
    pub(crate) fn begin(&self) -> Pushing<'_> {
        self.pushing.fetch_add(1, Ordering::Relaxed);
        Pushing(self)
    }

    /// Tells whether blocks are leaving now.
    pub(crate) fn is_busy(&self) -> bool {
        self.pushing.load(Ordering::Relaxed) > 0
            || self.last_push.lock().is_some_and(|last| last.elapsed() < PAUSE_MAX)
    }

    /// Waits until a read of so many bytes may be answered.
    pub(crate) async fn read_turn(&self, bytes: usize) {
        let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let over = async {
            while self.is_busy() {
                sleep(LOOK_EVERY).await;
            }
        };
        let turn = async {
            tokio::select! {
                biased;
                permits = self.permits.acquire_many(permits) => {
                    permits.expect("the semaphore is never closed").forget();
                }
                () = over => {}
            }
        };
        // Whoever waited so long is answered in any case.
        let _ = timeout(READ_WAIT_MAX, turn).await;
    }

    /// Returns the flags of the answer to a read of these blocks.
    pub(crate) fn flags(&self, mut blocks: impl Iterator<Item = BlockId>) -> u16 {
        let pushed = self.pushed.lock();
        let is_leaving = !pushed.is_empty() && blocks.any(|block| pushed.contains(&block));
        if is_leaving { IS_LEAVING } else { 0 }
    }

    /// Forgets blocks that are here no more.
    pub(crate) fn dropped(&self, blocks: impl Iterator<Item = BlockId>) {
        let mut pushed = self.pushed.lock();
        blocks.for_each(|block| {
            pushed.remove(&block);
        });
    }

    /// Forgets all blocks: the node begins again.
    pub(crate) fn forget(&self) {
        self.pushed.lock().clear();
    }
}

impl Pushing<'_> {
    /// Notes that the block has arrived at its target.
    pub(crate) fn arrived(&self, block: BlockId, bytes: u32) {
        let leaving = self.0;
        let mut pushed = leaving.pushed.lock();
        if pushed.len() >= PUSHED_MAX {
            pushed.clear();
        }
        pushed.insert(block);
        drop(pushed);
        let room = PERMITS_MAX.saturating_sub(leaving.permits.available_permits());
        leaving.permits.add_permits((bytes as usize / PERMIT_BYTES / PUSH_SHARE).min(room));
    }
}

impl Drop for Pushing<'_> {
    fn drop(&mut self) {
        *self.0.last_push.lock() = Some(Instant::now());
        self.0.pushing.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn reads_get_their_part_of_what_was_pushed_and_all_of_it_afterwards() {
        let leaving = Leaving::new();
        assert!(!leaving.is_busy());
        let push = leaving.begin();
        let mut read = Box::pin(leaving.read_turn(PERMIT_BYTES));
        assert!((&mut read).now_or_never().is_none(), "nothing was pushed yet");
        push.arrived(BlockId(7), (PERMIT_BYTES * PUSH_SHARE) as u32);
        read.await;
        assert!(Box::pin(leaving.read_turn(PERMIT_BYTES)).now_or_never().is_none());
        let waiting = leaving.read_turn(PERMIT_BYTES);
        drop(push);
        // The pushes are over, so this ends.
        waiting.await;
    }

    #[test]
    fn reads_of_pushed_blocks_are_told() {
        let leaving = Leaving::new();
        leaving.begin().arrived(BlockId(7), 1);
        assert_eq!(leaving.flags([BlockId(6), BlockId(7)].into_iter()), IS_LEAVING);
        assert_eq!(leaving.flags([BlockId(6)].into_iter()), 0);
        leaving.forget();
        assert_eq!(leaving.flags([BlockId(7)].into_iter()), 0);
    }
}
