//! The threads that work on the MD5s of several streams at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::lanes::{Md5State, compress};

/// Streams beside each other: what the vector instructions hold that every processor has.
const LANES: usize = 4;

/// Bytes of each stream before those that came meanwhile are looked at. At about five cycles for a
/// byte one that came waits for some 100 us. Chosen, not measured.
const SLICE_BYTES: usize = 64 << 10;

/// Threads for MD5s. Clones share them; they end with the last.
#[derive(Debug, Clone)]
pub(crate) struct Threads(Arc<Workers>);

#[derive(Debug)]
struct Workers {
    queue: Arc<HashQueue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct HashQueue {
    waiting: Mutex<TaskQueue>,
    came: Condvar,
}

/// What waits. No stream has more than one job, so there are never more than connections.
#[derive(Debug, Default)]
struct TaskQueue {
    jobs: VecDeque<HashTask>,
    is_over: bool,
}

/// Whole chunks of one stream.
#[derive(Debug)]
struct HashTask {
    state: Md5State,
    bytes: Bytes,
    after: oneshot::Sender<Md5State>,
}

impl Threads {
    /// Starts threads. Where the system allows none, callers work by themselves.
    pub(crate) fn start(count: usize) -> Self {
        let queue = Arc::new(HashQueue::default());
        let start = |number: usize| {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new().name(format!("md5-{number}"));
            thread.spawn(move || queue.work()).ok()
        };
        let threads: Vec<_> = (0..count).filter_map(start).collect();
        queue.waiting.lock().is_over = threads.is_empty();
        Self(Arc::new(Workers { queue, threads }))
    }

    /// Hands whole chunks over. Returns what brings the state after them; nothing comes when the
    /// threads have ended.
    pub(super) fn begin(&self, state: Md5State, bytes: Bytes) -> oneshot::Receiver<Md5State> {
        let (after, receiver) = oneshot::channel();
        let queue = &self.0.queue;
        let mut waiting = queue.waiting.lock();
        if !waiting.is_over {
            waiting.jobs.push_back(HashTask { state, bytes, after });
            queue.came.notify_one();
        }
        receiver
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.waiting.lock().is_over = true;
        self.queue.came.notify_all();
        for thread in self.threads.drain(..) {
            // It ends after at most one slice.
            let _ = thread.join();
        }
    }
}

impl HashQueue {
    fn work(&self) {
        let mut lanes: Vec<HashTask> = Vec::with_capacity(LANES);
        while self.fill(&mut lanes) {
            step(&mut lanes);
            while let Some(done) = lanes.iter().position(|job| job.bytes.is_empty()) {
                let job = lanes.swap_remove(done);
                // Whoever gave the stream up does not listen.
                let _ = job.after.send(job.state);
            }
        }
    }

    /// Takes what waits into free lanes; with none in use, waits for something. Returns whether to
    /// go on.
    fn fill(&self, lanes: &mut Vec<HashTask>) -> bool {
        lanes.retain(|job| !job.after.is_closed());
        let mut waiting = self.waiting.lock();
        while lanes.is_empty() && waiting.jobs.is_empty() && !waiting.is_over {
            self.came.wait(&mut waiting);
        }
        if waiting.is_over {
            waiting.jobs.clear();
            return false;
        }
        while lanes.len() < LANES {
            let Some(job) = waiting.jobs.pop_front() else { break };
            lanes.push(job);
        }
        true
    }
}

/// Works on the next slice of every lane.
fn step(lanes: &mut [HashTask]) {
    let left = lanes.iter().map(|job| job.bytes.len()).min().unwrap_or(0);
    let slices: Vec<Bytes> =
        lanes.iter_mut().map(|job| job.bytes.split_to(left.min(SLICE_BYTES))).collect();
    match lanes {
        [] => {}
        [job] => compress(std::array::from_mut(&mut job.state), &[&slices[0]]),
        lanes => {
            // Unused lanes repeat the first one's work.
            let of = |lane: usize| if lane < lanes.len() { lane } else { 0 };
            let mut states: [Md5State; LANES] = std::array::from_fn(|lane| lanes[of(lane)].state);
            compress(
                &mut states,
                &std::array::from_fn::<&[u8], LANES, _>(|lane| &slices[of(lane)]),
            );
            for (job, state) in lanes.iter_mut().zip(states) {
                job.state = state;
            }
        }
    }
}
