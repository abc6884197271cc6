//! Reads that take long, answered on a thread of their own, in slices and tenant by tenant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sanderling_core::fair::{Bounds, Fair, Size};
use sanderling_core::namenode::Reading;
use tokio::sync::oneshot;

use crate::caller::Tenant;
use crate::error::NamenodeFailure;
use crate::state::State;
use crate::work::Unqueued;

/// Entries that are visited while the writer and others wait: some 50 us.
const SLICE_ENTRIES: usize = 256;

/// Every slice is as much work as any other.
const SLICE: Size = Size { bytes: 0, cost: 1 };

/// Most frames with long reads that wait. Each connection has one.
const FRAMES_MAX: usize = 4096;

/// Entries from which the answers of a frame are large: some 4 MiB.
const LARGE_ENTRIES: usize = 16 << 10;

/// Most frames with large answers that are being answered. Others wait until one of them is done,
/// so that the answers of all take 200 MiB at most, and some 4 MiB for each connection.
const LARGE_MAX: usize = 4;

/// Most large frames that wait aside: 64 MiB of answers.
const PARKED: Bounds = Bounds { pieces_max: 16, bytes_max: u64::MAX, share: 4 };

/// A quarter of them for each tenant.
const SHARE: usize = 4;

/// Frames of reads, and the thread that answers them.
#[derive(Debug)]
pub(crate) struct LongReads {
    queue: Mutex<Queue>,
    came: Condvar,
}

#[derive(Debug)]
struct Queue {
    frames: Fair<Tenant, Waiting>,
    /// Frames whose answers have become large, of which some go on.
    large: usize,
    /// The others.
    parked: Fair<Tenant, Waiting>,
    is_stopped: bool,
}

#[derive(Debug)]
struct Waiting {
    reading: Reading,
    reply: oneshot::Sender<Reading>,
    /// Whether it is counted among the large ones.
    is_large: bool,
}

impl Queue {
    /// Puts a frame back that is not answered, or aside if too many large ones are being answered.
    fn go_on(&mut self, tenant: Tenant, mut waiting: Waiting) {
        if !waiting.is_large && waiting.reading.entries() > LARGE_ENTRIES {
            if self.large == LARGE_MAX {
                self.park(tenant, waiting);
                return;
            }
            self.large += 1;
            waiting.is_large = true;
        }
        self.frames.put_back(tenant, SLICE, waiting);
    }

    /// Puts a frame aside. Where too many are, it is dropped, and its caller tries again.
    fn park(&mut self, tenant: Tenant, waiting: Waiting) {
        let mut still = Fair::new(PARKED);
        while let Some((tenant, waiting)) = self.parked.pop() {
            if !waiting.reply.is_closed() {
                // There was room for it before.
                let _ = still.push(tenant, SLICE, waiting);
            }
        }
        self.parked = still;
        let _ = self.parked.push(tenant, SLICE, waiting);
    }

    /// Notes that a frame is done, or nobody waits for it.
    fn ended(&mut self, is_large: bool) {
        if !is_large {
            return;
        }
        self.large -= 1;
        while self.large < LARGE_MAX
            && let Some((tenant, waiting)) = self.parked.pop()
        {
            if !waiting.reply.is_closed() {
                self.go_on(tenant, waiting);
            }
        }
    }
}

/// Ends the namenode when the thread panics: else who asks for long reads would wait for nothing.
struct Ended(Arc<State>);

impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(NamenodeFailure::Ended { part: "long reads" });
        }
    }
}

impl LongReads {
    /// Starts the thread. It ends with [`LongReads::stop`].
    pub(crate) fn start(state: &Arc<State>) -> std::io::Result<Arc<Self>> {
        let bounds = Bounds { pieces_max: FRAMES_MAX, bytes_max: u64::MAX, share: SHARE };
        let (frames, parked) = (Fair::new(bounds), Fair::new(PARKED));
        let queue = Mutex::new(Queue { frames, large: 0, parked, is_stopped: false });
        let long = Arc::new(Self { queue, came: Condvar::new() });
        let (reads, state) = (Arc::clone(&long), Arc::clone(state));
        let thread = std::thread::Builder::new().name("long-reads".to_owned());
        thread.spawn(move || {
            let _ended = Ended(Arc::clone(&state));
            while let Some((tenant, waiting)) = reads.next() {
                reads.slice(&state, tenant, waiting);
            }
        })?;
        Ok(long)
    }

    /// Adds a frame; it comes back by the receiver with all its answers.
    pub(crate) fn push(
        &self,
        tenant: Tenant,
        reading: Reading,
    ) -> Result<oneshot::Receiver<Reading>, Unqueued> {
        let (reply, answers) = oneshot::channel();
        let mut queue = self.queue.lock();
        if queue.is_stopped {
            return Err(Unqueued::Stopped);
        }
        let waiting = Waiting { reading, reply, is_large: false };
        queue.frames.push(tenant, SLICE, waiting).map_err(|_| Unqueued::Full)?;
        self.came.notify_one();
        Ok(answers)
    }

    /// Returns why a frame that was taken comes back without answers.
    pub(crate) fn why_dropped(&self) -> Unqueued {
        if self.queue.lock().is_stopped { Unqueued::Stopped } else { Unqueued::Full }
    }

    /// Answers nothing more.
    pub(crate) fn stop(&self) {
        self.queue.lock().is_stopped = true;
        self.came.notify_one();
    }

    fn next(&self) -> Option<(Tenant, Waiting)> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_stopped {
                return None;
            }
            if let Some((tenant, waiting)) = queue.frames.pop() {
                return Some((tenant, waiting));
            }
            self.came.wait(&mut queue);
        }
    }

    /// Goes on with a frame's answers, sends them if they are whole, and leaves the processor to
    /// others for as long as that took if there are any.
    fn slice(&self, state: &State, tenant: Tenant, waiting: Waiting) {
        let Waiting { mut reading, reply, is_large } = waiting;
        if reply.is_closed() {
            self.queue.lock().ended(is_large);
            return;
        }
        let began = Instant::now();
        let frames = state.frames();
        let is_done = reading.slice(state.now(), &state.namenode.read(), SLICE_ENTRIES);
        if is_done {
            // A caller that is gone does not want them.
            let _ = reply.send(reading);
            self.queue.lock().ended(is_large);
        } else {
            self.queue.lock().go_on(tenant, Waiting { reading, reply, is_large });
        }
        if state.frames() != frames {
            std::thread::sleep(began.elapsed().min(Duration::from_millis(10)));
        }
    }
}
