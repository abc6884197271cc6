//! Which requests to the namenode share a frame, when a frame is sent, and what of it is repeated
//! when its connection breaks.
//!
//! The first caller sends its request itself. While its frame is under way, later requests wait and
//! are sent together in the next one, so frames grow with the load: once a frame has carried
//! several requests, the next one waits until the callers that were just answered had a chance to
//! send again. When a queue is long, another connection is used: more threads get more done.

use std::collections::VecDeque;

use sanderling_protocol::message::Repetition;
use sanderling_protocol::{Millis, Request};

use crate::group_view::Repeats;

/// Requests of one frame. A look-up among 128 takes 0.42 us of the server
/// (docs/mechanisms/catalog.md, *In memory*), a small part of one alone; beyond this the first of a
/// batch would wait noticeably for the last.
pub const BATCH_MAX: usize = 128;

/// Requests that may wait for a frame of one connection. 32 full frames ([`BATCH_MAX`]); a further
/// one fails at once. Callers of one process are its tasks, so a longer queue would only hold their
/// memory while the namenode is slow. Chosen, not measured.
const QUEUE_MAX: usize = 4096;

/// Requests that wait for a connection before the next one is used: half a batch.
const SPILL_AT: usize = BATCH_MAX / 2;

/// Time after which queued requests overtake a frame that its caller sends itself. The caller may
/// not be polling: a future that is polled only between other things, as in a buffered stream, is
/// not when these other things wait for the namenode in turn.
pub const OVERTAKE_AFTER: Millis = Millis(5);

/// The next step of a caller that has a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStep {
    /// It sends the request itself, in a frame with this number. [`BatchQueue::end_direct`]
    /// follows, however the frame ends.
    Direct(u64),
    /// It adds the request with [`BatchQueue::push`] and waits.
    Wait {
        /// Whether a frame begins with it: the caller lets all others that are ready add theirs.
        /// Then [`BatchQueue::next_batch`] follows.
        begins_frame: bool,
    },
    /// Too many wait: its call fails.
    Refused,
}

/// The requests that wait for one connection, and its frames under way. `P` is a request with its
/// caller.
#[derive(Debug)]
pub struct BatchQueue<P> {
    waiting: VecDeque<P>,
    /// Frames that may be under way together.
    frames_max: usize,
    /// Frames under way.
    frames: usize,
    /// Those of them whose callers send them themselves, the oldest first.
    direct: VecDeque<u64>,
    /// Number of the last of these.
    direct_last: u64,
    /// Whether the last frame carried several requests: then more come in a moment, from callers
    /// that have just got their answers, and the next frame waits for them.
    is_shared: bool,
}

impl<P> BatchQueue<P> {
    /// Returns an empty queue of a connection with so many frames in flight.
    #[must_use]
    pub const fn new(frames_max: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            frames_max,
            frames: 0,
            direct: VecDeque::new(),
            direct_last: 0,
            is_shared: false,
        }
    }

    /// Returns whether so few requests wait that the next connection is not used.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.waiting.len() < SPILL_AT
    }

    /// Returns how many frames are under way, and how many of them their callers send.
    #[must_use]
    pub fn frames(&self) -> (usize, usize) {
        (self.frames, self.direct.len())
    }

    /// Decides what a caller does with its request. A frame that begins is counted.
    pub fn admit(&mut self) -> SendStep {
        let begins_frame = self.frames < self.frames_max && self.waiting.is_empty();
        if begins_frame && !self.is_shared {
            self.frames += 1;
            self.direct_last += 1;
            self.direct.push_back(self.direct_last);
            return SendStep::Direct(self.direct_last);
        }
        if self.waiting.len() >= QUEUE_MAX {
            return SendStep::Refused;
        }
        self.frames += usize::from(begins_frame);
        SendStep::Wait { begins_frame }
    }

    /// Adds a request that waits, after [`SendStep::Wait`] only. A later frame takes it; a caller
    /// that gives up is passed over there.
    pub fn push(&mut self, pending: P) {
        self.waiting.push_back(pending);
    }

    /// Takes over from the oldest frame that its caller sends, after [`OVERTAKE_AFTER`]: the next
    /// one is sent in its place. Returns that, as [`BatchQueue::next_batch`] does.
    pub fn overtake(&mut self, is_awaited: impl Fn(&P) -> bool) -> Option<Vec<P>> {
        self.direct.pop_front()?;
        self.next_batch(is_awaited)
    }

    /// Ends the frame of a caller, whether it was answered or given up. Returns the next one, as
    /// [`BatchQueue::next_batch`] does; `None` also if it was overtaken.
    pub fn end_direct(&mut self, number: u64, is_awaited: impl Fn(&P) -> bool) -> Option<Vec<P>> {
        let place = self.direct.iter().position(|it| *it == number)?;
        self.direct.remove(place);
        self.next_batch(is_awaited)
    }

    /// Ends a frame, however it went, and takes the requests of the next one, without those whose
    /// callers have gone. `None` if none waits: then the frame is not counted any more.
    pub fn next_batch(&mut self, is_awaited: impl Fn(&P) -> bool) -> Option<Vec<P>> {
        let mut batch = Vec::with_capacity(self.waiting.len().min(BATCH_MAX));
        while batch.len() < BATCH_MAX
            && let Some(pending) = self.waiting.pop_front()
        {
            if is_awaited(&pending) {
                batch.push(pending);
            }
        }
        if batch.is_empty() {
            self.abandon();
            return None;
        }
        self.is_shared = batch.len() > 1;
        Some(batch)
    }

    /// Notes that a frame is not sent: nothing can send it any more.
    pub fn abandon(&mut self) {
        debug_assert!(self.frames > 0, "a frame is counted until it ends");
        self.frames -= 1;
    }
}

/// Returns whether a request has a frame of its own: it may take long, or is long, and others must
/// not wait for it.
#[must_use]
#[inline]
pub fn travels_alone(request: &Request) -> bool {
    match request.inner() {
        Request::Events { wait, .. } => wait.0 > 0,
        // A namenode of the version before refuses them, and all that is in their frame.
        Request::OpenClient { .. } | Request::DeleteObject { .. } | Request::Room => true,
        Request::BlockReport { .. }
        | Request::LookupMany { .. }
        | Request::Usage { .. }
        | Request::Fsck => true,
        _ => false,
    }
}

/// Returns whether a request is sent again alone when the answer to its frame was too large. That
/// does not make a change again: its answer is repeated.
#[must_use]
#[inline]
pub const fn may_follow_alone(request: &Request) -> bool {
    matches!(
        request,
        Request::Once(_)
            | Request::Lookup { .. }
            | Request::LookupObject { .. }
            | Request::Stat { .. }
            | Request::List { .. }
            | Request::Nodes { .. }
            | Request::NodeBlocks { .. }
            | Request::Jobs
            | Request::Report
    )
}

/// Returns the rule for a request that may have been done although its connection broke.
#[must_use]
#[inline]
pub const fn repeats_of(request: &Request) -> Repeats {
    match request.repeat() {
        Repetition::Reads => Repeats::Always,
        Repetition::Once | Repetition::Alike => Repeats::Undone,
    }
}

/// Returns the rule for a frame of requests with these rules: what one of them must not meet, the
/// frame does not meet.
#[must_use]
pub fn repeats_of_frame(requests: impl IntoIterator<Item = Repeats>) -> Repeats {
    let is_read = requests.into_iter().all(|it| it == Repeats::Always);
    if is_read { Repeats::Always } else { Repeats::Undone }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{LeaseId, ObjectId, Path};

    use super::*;

    const BEGINS: SendStep = SendStep::Wait { begins_frame: true };
    const WAITS: SendStep = SendStep::Wait { begins_frame: false };

    fn all(_: &u32) -> bool {
        true
    }

    /// A queue with one frame in flight, which a caller sends.
    fn sending() -> (BatchQueue<u32>, u64) {
        let mut queue = BatchQueue::new(1);
        let SendStep::Direct(number) = queue.admit() else { panic!("none is under way") };
        (queue, number)
    }

    fn wait(queue: &mut BatchQueue<u32>, requests: std::ops::Range<u32>) {
        for request in requests {
            assert_eq!(queue.admit(), WAITS);
            queue.push(request);
        }
    }

    #[test]
    fn caller_of_an_idle_connection_sends_its_request_and_later_ones_share_the_next_frame() {
        let (mut queue, number) = sending();
        wait(&mut queue, 0..3);
        assert_eq!(queue.end_direct(number, all), Some(vec![0, 1, 2]));
        assert_eq!(queue.frames(), (1, 0));
        assert_eq!(queue.next_batch(all), None);
        assert_eq!(queue.frames(), (0, 0));
    }

    /// Otherwise one frame would always have the request of one caller, and the next frame those of
    /// all others.
    #[test]
    fn callers_that_were_answered_together_send_together_again() {
        let (mut queue, number) = sending();
        wait(&mut queue, 0..2);
        assert!(queue.end_direct(number, all).is_some());
        assert_eq!(queue.next_batch(all), None);
        assert_eq!(queue.admit(), BEGINS);
        queue.push(7);
        wait(&mut queue, 8..10);
        assert_eq!(queue.next_batch(all), Some(vec![7, 8, 9]));
        // One that is alone sends its request itself again.
        wait(&mut queue, 10..11);
        assert_eq!(queue.next_batch(all), Some(vec![10]));
        assert_eq!(queue.next_batch(all), None);
        assert!(matches!(queue.admit(), SendStep::Direct(_)));
    }

    #[test]
    fn frame_has_128_requests_and_a_queue_4096() {
        let (mut queue, number) = sending();
        let waiting = u32::try_from(QUEUE_MAX).expect("few");
        for request in 0..waiting {
            assert_eq!(queue.is_short(), (request as usize) < SPILL_AT, "{request}");
            wait(&mut queue, request..request + 1);
        }
        assert_eq!(queue.admit(), SendStep::Refused);
        assert_eq!(queue.end_direct(number, all).map(|batch| batch.len()), Some(BATCH_MAX));
        let mut left = QUEUE_MAX - BATCH_MAX;
        while let Some(batch) = queue.next_batch(all) {
            assert_eq!(batch.len(), left.min(BATCH_MAX));
            left -= batch.len();
        }
        assert_eq!((left, queue.frames()), (0, (0, 0)));
    }

    #[test]
    fn as_many_frames_are_under_way_as_may_be() {
        let mut queue = BatchQueue::<u32>::new(2);
        assert!(matches!(queue.admit(), SendStep::Direct(1)));
        assert!(matches!(queue.admit(), SendStep::Direct(2)));
        wait(&mut queue, 0..1);
        assert_eq!(queue.end_direct(2, all), Some(vec![0]));
        assert_eq!(queue.frames(), (2, 1));
    }

    #[test]
    fn caller_that_has_gone_leaves_the_queue() {
        let (mut queue, number) = sending();
        wait(&mut queue, 0..4);
        assert_eq!(queue.end_direct(number, |it| it % 2 == 1), Some(vec![1, 3]));
        wait(&mut queue, 4..6);
        assert_eq!(queue.next_batch(|_| false), None);
        assert_eq!(queue.frames(), (0, 0));
    }

    #[test]
    fn frame_whose_caller_does_not_poll_is_overtaken_once() {
        let (mut queue, number) = sending();
        wait(&mut queue, 0..1);
        assert_eq!(queue.overtake(all), Some(vec![0]));
        assert_eq!(queue.overtake(all), None, "there is no other one");
        // Its end begins no frame: the one that has overtaken it does.
        wait(&mut queue, 1..2);
        assert_eq!(queue.end_direct(number, all), None);
        assert_eq!(queue.frames(), (1, 0));
        assert_eq!(queue.next_batch(all), Some(vec![1]));
    }

    #[test]
    fn frame_that_is_not_sent_is_not_counted() {
        let (mut queue, number) = sending();
        wait(&mut queue, 0..1);
        assert!(queue.end_direct(number, all).is_some());
        queue.abandon();
        assert_eq!(queue.frames(), (0, 0));
        assert!(matches!(queue.admit(), SendStep::Direct(_)));
    }

    #[test]
    fn frame_with_a_change_is_not_sent_to_another_member_by_itself() {
        let stat = Request::Stat { path: Path::root() };
        let renewal = Request::RenewLeases { leases: vec![(ObjectId(1), LeaseId(1))] };
        let (read, change) = (repeats_of(&stat), repeats_of(&renewal));
        assert_eq!((read, change), (Repeats::Always, Repeats::Undone));
        assert_eq!(repeats_of_frame([read, read]), Repeats::Always);
        assert_eq!(repeats_of_frame([read, change, read]), Repeats::Undone);
        assert!(may_follow_alone(&stat) && !may_follow_alone(&renewal));
        assert!(travels_alone(&Request::Fsck) && !travels_alone(&stat));
    }
}
