//! Reads that take long, answered on a thread of their own, in slices and tenant by tenant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sanderling_core::namenode::{FrameRead, ReadLimits, ReadQueue, Waiter, WaitingFrames};
use sanderling_transport::time_slice;
use tokio::sync::oneshot;

use crate::caller::Tenant;
use crate::error::NamenodeFailure;
use crate::state::NamenodeState;
use crate::writer_queue::Unqueued;

/// Frames of reads, and the thread that answers them.
#[derive(Debug)]
pub(crate) struct LongReads {
    queue: Mutex<FrameQueue>,
    came: Condvar,
}

#[derive(Debug)]
struct FrameQueue {
    frames: ReadQueue<Tenant, Reply>,
    is_stopped: bool,
}

/// Where the answers of a frame are sent.
#[derive(Debug)]
struct Reply(oneshot::Sender<FrameRead>);

impl Waiter for Reply {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

/// Ends the namenode when the thread panics: else callers would wait for long reads for ever.
struct ReadThreadGuard(Arc<NamenodeState>);

impl Drop for ReadThreadGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(NamenodeFailure::Ended { part: "long reads" });
        }
    }
}

impl LongReads {
    /// Starts the thread. It ends with [`LongReads::stop`].
    pub(crate) fn start(state: &Arc<NamenodeState>) -> std::io::Result<Arc<Self>> {
        let frames = ReadQueue::new(ReadLimits::default());
        let queue = Mutex::new(FrameQueue { frames, is_stopped: false });
        let long = Arc::new(Self { queue, came: Condvar::new() });
        let (reads, state) = (Arc::clone(&long), Arc::clone(state));
        let thread = std::thread::Builder::new().name("long-reads".to_owned());
        thread.spawn(move || {
            let _ended = ReadThreadGuard(Arc::clone(&state));
            time_slice::set(time_slice::BULK);
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
        reading: FrameRead,
    ) -> Result<oneshot::Receiver<FrameRead>, Unqueued> {
        let (reply, answers) = oneshot::channel();
        let mut queue = self.queue.lock();
        if queue.is_stopped {
            return Err(Unqueued::Stopped);
        }
        queue.frames.push(tenant, reading, Reply(reply)).map_err(|_| Unqueued::Full)?;
        self.came.notify_one();
        Ok(answers)
    }

    /// Returns why a frame that was taken comes back without answers.
    pub(crate) fn why_dropped(&self) -> Unqueued {
        if self.queue.lock().is_stopped { Unqueued::Stopped } else { Unqueued::Full }
    }

    /// Ends the thread after the slice that it works on. Frames that wait get no answer.
    pub(crate) fn stop(&self) {
        self.queue.lock().is_stopped = true;
        self.came.notify_one();
    }

    fn next(&self) -> Option<(Tenant, WaitingFrames<Reply>)> {
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
    fn slice(&self, state: &NamenodeState, tenant: Tenant, mut waiting: WaitingFrames<Reply>) {
        let began = Instant::now();
        let frames = state.frames();
        let entries = FrameRead::SLICE_ENTRIES;
        let is_done = waiting.reading.slice(state.now(), &state.namenode.read(), entries);
        if is_done {
            self.queue.lock().frames.end(&waiting);
            // A caller that is gone does not want them.
            let _ = waiting.waiter.0.send(waiting.reading);
        } else {
            self.queue.lock().frames.put_back(tenant, waiting);
        }
        if state.frames() != frames {
            std::thread::sleep(began.elapsed().min(Duration::from_millis(10)));
        }
    }
}
