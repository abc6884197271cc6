//! The scrub: reads blocks that no client reads, so that damage is found while there may be
//! another copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sanderling_protocol::BlockId;
use sanderling_protocol::order::HeldBlock;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::blocking::on_thread;
use crate::store::BlockStore;
use crate::tiers::BlockBytes;

/// Bytes that a block is accounted at least: finding it takes as long as reading so much of it. A
/// page; chosen, not measured.
const BLOCK_BYTES_MIN: u64 = 4096;

/// How far ahead of its rate the scrub may be before it pauses. Timers resolve one millisecond, so
/// it pauses for several of them: at the default of 32 MiB/s after 160 KiB of small blocks, and
/// after each longer one. Chosen, not measured.
const STEP: Duration = Duration::from_millis(5);

/// Pause after a pass, and while there is nothing to do: a node that is nearly empty is not looked
/// at all the time.
const PASS_PAUSE: Duration = Duration::from_secs(1);

/// How long the scrub waits at most for requests that are being served. A node that is never idle
/// must be scrubbed, too: so it compares seven of the longest blocks a second at the default rate.
/// Chosen, not measured.
const YIELD_MAX: Duration = Duration::from_millis(100);

/// Time between two looks whether any are. As long as [`STEP`]: the scrub goes on so much after the
/// last request. Chosen, not measured.
const YIELD_STEP: Duration = Duration::from_millis(5);

/// The scrub, and what it has done.
#[derive(Debug)]
pub(crate) struct Scrub {
    store: Arc<BlockStore>,
    activity: Arc<Activity>,
    bytes: AtomicU64,
    passes: AtomicU64,
    last_pass: AtomicU64,
}

impl Scrub {
    pub(crate) const fn new(store: Arc<BlockStore>, activity: Arc<Activity>) -> Self {
        let [bytes, passes, last_pass] = [const { AtomicU64::new(0) }; 3];
        Self { store, activity, bytes, passes, last_pass }
    }

    /// Returns the bytes that were compared with their checksums.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns how often every block was looked at.
    pub(crate) fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// Returns when that was so last, in seconds of Unix time; 0 for never.
    pub(crate) fn last_pass(&self) -> u64 {
        self.last_pass.load(Ordering::Relaxed)
    }

    fn passed(&self) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_pass.store(since.as_secs(), Ordering::Relaxed);
    }

    /// Compares all blocks in memory and on disk with their checksums, one after the other and
    /// again and again, at a rate, until the node stops. A draining node does nothing of it.
    pub(crate) async fn run(self: Arc<Self>, bytes_per_second: u64, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.pass_after_pass(bytes_per_second.max(1)) => {}
        }
    }

    async fn pass_after_pass(&self, rate: u64) {
        loop {
            self.pass(rate).await;
            self.passed();
            sleep(PASS_PAUSE).await;
        }
    }

    async fn pass(&self, rate: u64) {
        let mut after = BlockId(0);
        let mut due = Instant::now();
        loop {
            while self.store.is_fenced() {
                sleep(PASS_PAUSE).await;
            }
            // One at a time: a block that is dropped meanwhile must not keep its memory.
            let next = self.store.table().list_bytes(after, 1).pop();
            let Some((held, bytes)) = next else { return };
            after = held.block;
            if !bytes.is_here() {
                continue;
            }
            self.look_at(held, bytes).await;
            let length = u64::from(held.length);
            self.bytes.fetch_add(length, Ordering::Relaxed);
            #[expect(clippy::cast_precision_loss, reason = "a block has few bytes")]
            let takes = Duration::from_secs_f64(length.max(BLOCK_BYTES_MIN) as f64 / rate as f64);
            due += takes;
            if due > Instant::now() + STEP {
                sleep_until(due).await;
                self.yield_to_requests().await;
                due = Instant::now();
            }
        }
    }

    async fn look_at(&self, held: HeldBlock, bytes: BlockBytes) {
        if !bytes.is_blocking() {
            self.store.look_at(&held, &bytes, true);
            return tokio::task::yield_now().await;
        }
        let store = Arc::clone(&self.store);
        let looked = on_thread(move || {
            store.look_at(&held, &bytes, true);
            Ok(())
        });
        if let Err(refusal) = looked.await {
            tracing::debug!(block = %held.block, %refusal, "not scrubbed");
        }
    }

    /// Waits while requests are being served, but not for ever: a node that is always busy is
    /// scrubbed too.
    async fn yield_to_requests(&self) {
        let until = Instant::now() + YIELD_MAX;
        while self.activity.is_busy() && Instant::now() < until {
            sleep(YIELD_STEP).await;
        }
    }
}
