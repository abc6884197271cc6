//! What waits for the writer: the namenode's own work first, then frames of changes, tenant by
//! tenant.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sanderling_core::access::Claims;
use sanderling_core::catalog::DatanodeOrder;
use sanderling_core::fair::{Bounds, Fair};
use sanderling_core::membership::Probe;
use sanderling_core::namenode::{
    Answers, BatchBounds, CHANGES_WAITING, REQUEST_COST, changes_size,
};
use sanderling_protocol::{NodeId, OrderReply, Request};
use tokio::sync::{Semaphore, oneshot};

use crate::caller::Tenant;
use crate::group::GroupInput;

/// Requests of one frame, and where their answers go.
#[derive(Debug)]
pub(crate) struct WaitingFrame {
    pub(crate) requests: Vec<Request>,
    pub(crate) claims: Option<Arc<Claims>>,
    pub(crate) reply: oneshot::Sender<Answers>,
}

/// Something for the writer to do besides frames.
#[derive(Debug)]
pub(crate) enum OwnWork {
    /// What a datanode answered to an order; `None` when it could not be reached.
    Ordered { order: DatanodeOrder, reply: Option<OrderReply> },
    /// What came of dialling a node.
    Probed { node: NodeId, outcome: Probe },
}

/// Work that is done together.
#[derive(Debug, Default)]
pub(crate) struct WorkBatch {
    pub(crate) own: Vec<OwnWork>,
    pub(crate) frames: Vec<WaitingFrame>,
    /// The server stops: this is the last batch.
    pub(crate) is_last: bool,
}

/// Why work is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unqueued {
    /// The queue is full: as many frames or bytes wait as may.
    Full,
    /// The server stops.
    Stopped,
}

/// The queue of the writer. Its bounds hold for frames; own work has the bound of the orders on
/// their way.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    queue: Mutex<QueueState>,
    came: Condvar,
    /// Places of reads that wait for a confirmation by the quorum.
    unconfirmed: Semaphore,
}

#[derive(Debug)]
struct QueueState {
    own: VecDeque<OwnWork>,
    frames: Fair<Tenant, WaitingFrame>,
    /// What came for the member of a group.
    group: VecDeque<GroupInput>,
    /// Those of them that other processes have sent.
    group_messages: usize,
    is_stopped: bool,
}

/// Most messages that wait for the member of a group: far more than members have on their way. What
/// is beyond is dropped, and sent again by its sender. What this process itself gives the member
/// has bounds of its own, and takes no place of theirs.
const GROUP_MAX: usize = 4096;

/// Most reads that wait at once until the quorum has confirmed that this member leads. More are to
/// come again later. As many frames as 32 connections have under way by default; the memory of each
/// counts as that of its connection. Chosen, not measured.
const UNCONFIRMED_MAX: usize = 8192;

impl WorkQueue {
    /// Returns an empty queue for at most so many frames of so many bytes.
    pub(crate) fn new(frames_max: usize, bytes_max: usize) -> Self {
        let (pieces_max, bytes_max) = (frames_max, bytes_max as u64);
        let bounds = Bounds { pieces_max, bytes_max, ..CHANGES_WAITING };
        let (own, frames, group) = (VecDeque::new(), Fair::new(bounds), VecDeque::new());
        let (group_messages, is_stopped) = (0, false);
        let queue = Mutex::new(QueueState { own, frames, group, group_messages, is_stopped });
        Self { queue, came: Condvar::new(), unconfirmed: Semaphore::new(UNCONFIRMED_MAX) }
    }

    /// Adds a frame of so many bytes.
    pub(crate) fn push_frame(
        &self,
        tenant: Tenant,
        bytes: usize,
        frame: WaitingFrame,
    ) -> Result<(), Unqueued> {
        let mut queue = self.queue.lock();
        if queue.is_stopped {
            return Err(Unqueued::Stopped);
        }
        let size = changes_size(bytes as u64, frame.requests.len(), REQUEST_COST);
        queue.frames.push(tenant, size, frame).map_err(|_| Unqueued::Full)?;
        self.came.notify_one();
        Ok(())
    }

    /// Adds work of the namenode itself. After the end it is dropped: block reports, heartbeats and
    /// the next probe repeat it.
    pub(crate) fn push_own(&self, work: OwnWork) {
        self.queue.lock().own.push_back(work);
        self.came.notify_one();
    }

    /// Adds what came for the member of a group, or drops it.
    pub(crate) fn push_group(&self, input: GroupInput) -> Result<(), Unqueued> {
        self.push_group_silently(input)?;
        self.wake();
        Ok(())
    }

    /// Adds what came for the member of a group, or drops it. The caller takes it, or wakes the
    /// writer.
    pub(crate) fn push_group_silently(&self, input: GroupInput) -> Result<(), Unqueued> {
        let mut queue = self.queue.lock();
        if queue.is_stopped {
            return Err(Unqueued::Stopped);
        }
        if input.is_message() {
            if queue.group_messages >= GROUP_MAX {
                return Err(Unqueued::Full);
            }
            queue.group_messages += 1;
        }
        queue.group.push_back(input);
        Ok(())
    }

    /// Wakes the writer if it waits for work.
    pub(crate) fn wake(&self) {
        self.came.notify_one();
    }

    /// Takes everything that came for the member of a group.
    pub(crate) fn take_group(&self) -> VecDeque<GroupInput> {
        let mut queue = self.queue.lock();
        queue.group_messages = 0;
        std::mem::take(&mut queue.group)
    }

    /// Returns the places of reads that wait until the quorum has confirmed that this member leads.
    /// Each read takes one.
    pub(crate) const fn unconfirmed(&self) -> &Semaphore {
        &self.unconfirmed
    }

    /// Waits until something came for the member of a group, at most for `sleep`.
    pub(crate) fn wait_group(&self, sleep: Duration) {
        let until = Instant::now() + sleep;
        let mut queue = self.queue.lock();
        while queue.group.is_empty() && !queue.is_stopped {
            if self.came.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }

    /// Returns whether the queue takes no further frame.
    pub(crate) fn is_stopped(&self) -> bool {
        self.queue.lock().is_stopped
    }

    /// Returns whether frames wait.
    pub(crate) fn has_frames(&self) -> bool {
        !self.queue.lock().frames.is_empty()
    }

    /// Takes no further frame; those that wait are worked off.
    pub(crate) fn stop(&self) {
        self.queue.lock().is_stopped = true;
        self.came.notify_one();
    }

    /// Waits until there is work, at most for `sleep`.
    pub(crate) fn wait(&self, sleep: Duration) {
        let until = Instant::now() + sleep;
        let mut queue = self.queue.lock();
        while queue.is_idle() {
            if self.came.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }

    /// Takes what is to be done together, if anything waits.
    pub(crate) fn take(&self, is_in_group: bool) -> WorkBatch {
        let bounds = if is_in_group { BatchBounds::IN_GROUP } else { BatchBounds::ALONE };
        let mut queue = self.queue.lock();
        let own = queue.own.len().min(BatchBounds::OWN_MAX);
        let own = queue.own.drain(..own).collect();
        let frames = bounds.take(&mut queue.frames).into_iter().map(|(_, frame)| frame).collect();
        let is_last = queue.is_stopped && queue.own.is_empty() && queue.frames.is_empty();
        WorkBatch { own, frames, is_last }
    }
}

impl QueueState {
    fn is_idle(&self) -> bool {
        self.own.is_empty() && self.frames.is_empty() && self.group.is_empty() && !self.is_stopped
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::MemberId;

    use super::*;

    fn frame(requests: usize) -> WaitingFrame {
        let (reply, _) = oneshot::channel();
        WaitingFrame { requests: vec![Request::Jobs; requests], claims: None, reply }
    }

    #[test]
    fn long_frame_has_a_batch_of_its_own_and_short_ones_share_theirs() {
        let queue = WorkQueue::new(1024, 1 << 20);
        for (connection, requests) in (0..).zip([60, 60, 300, 512, 1]) {
            queue.push_frame(Tenant::Connection(connection), 100, frame(requests)).unwrap();
        }
        let sizes = |batch: &WorkBatch| -> Vec<usize> {
            batch.frames.iter().map(|it| it.requests.len()).collect()
        };
        let next = || sizes(&queue.take(false));
        assert_eq!([next(), next(), next(), next()], [vec![60, 60], vec![300], vec![512], vec![1]]);
        for connection in 0..100 {
            queue.push_frame(Tenant::Connection(connection), 100, frame(10)).unwrap();
        }
        assert_eq!([next().len(), next().len(), next().len()], [51, 49, 0]);
    }

    #[test]
    fn frames_of_128_share_a_batch_in_a_group_up_to_512_requests() {
        let queue = WorkQueue::new(1024, 1 << 20);
        for connection in 0..5 {
            queue.push_frame(Tenant::Connection(connection), 100, frame(128)).unwrap();
        }
        assert_eq!([(); 2].map(|()| queue.take(true).frames.len()), [4, 1]);
        queue.push_frame(Tenant::Connection(1), 100, frame(128)).unwrap();
        queue.push_frame(Tenant::Connection(2), 100, frame(128)).unwrap();
        assert_eq!(queue.take(false).frames.len(), 1);
    }

    #[test]
    fn modest_tenant_is_in_the_next_batch_however_much_a_greedy_one_has_brought() {
        let queue = WorkQueue::new(64, 1 << 20);
        let mut pushed = 0;
        while queue.push_frame(Tenant::Connection(1), 100, frame(512)).is_ok() {
            pushed += 1;
        }
        assert_eq!(pushed, 64 / CHANGES_WAITING.share);
        assert_eq!(queue.take(false).frames.len(), 1);
        queue.push_frame(Tenant::Connection(2), 100, frame(1)).unwrap();
        assert_eq!(queue.take(false).frames[0].requests.len(), 1);
    }

    #[test]
    fn reads_and_reports_of_this_process_take_no_place_of_other_members_messages() {
        let queue = WorkQueue::new(64, 1 << 20);
        let member = MemberId(2);
        for _ in 0..2 * GROUP_MAX {
            let (reply, _) = oneshot::channel();
            queue.push_group(GroupInput::Confirm(reply)).unwrap();
        }
        for _ in 0..GROUP_MAX {
            queue.push_group(GroupInput::Notice(member, None)).unwrap();
        }
        let refused = queue.push_group(GroupInput::Notice(member, None));
        assert_eq!(refused, Err(Unqueued::Full));
        // Without it no other snapshot would be sent.
        queue.push_group(GroupInput::Sent(member, false)).unwrap();
        assert_eq!(queue.take_group().len(), 3 * GROUP_MAX + 1);
        queue.push_group(GroupInput::Notice(member, None)).unwrap();
    }

    #[test]
    fn stopped_queue_is_worked_off() {
        let queue = WorkQueue::new(64, 1 << 20);
        queue.push_frame(Tenant::Connection(1), 100, frame(512)).unwrap();
        queue.push_frame(Tenant::Connection(1), 100, frame(1)).unwrap();
        queue.stop();
        let refused = queue.push_frame(Tenant::Connection(1), 100, frame(1));
        assert_eq!(refused, Err(Unqueued::Stopped));
        queue.wait(Duration::from_secs(60));
        assert!(!queue.take(false).is_last);
        let last = queue.take(false);
        assert_eq!((last.frames.len(), last.is_last), (1, true));
    }
}
