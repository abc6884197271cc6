//! Frames with reads that take long: whose turn it is, and which wait until others are done.
//!
//! Tenants take turns, a slice each. A frame whose answers have become large holds much memory
//! until it is answered, so only some of those go on. Others are parked until one of these is done.

use super::FrameRead;
use crate::fair::{Bounds, Fair, TaskSize};

/// Every slice is as much work as any other.
const SLICE: TaskSize = TaskSize { bytes: 0, cost: 1 };

/// Bounds of a [`ReadQueue`], in frames. A frame beyond [`Self::frames_max`] is refused, and its
/// caller comes again.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimits {
    /// Most frames that wait for their turn.
    pub frames_max: usize,
    /// Entries from which the answers of a frame are large.
    pub large_entries: usize,
    /// Most frames with large answers that go on.
    pub large_max: usize,
    /// Most that are parked.
    pub parked_max: usize,
    /// Share of frames and parked frames that one tenant may have, as a divisor.
    pub share: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            // Each connection has one.
            frames_max: 4096,
            // Some 4 MiB.
            large_entries: 16 << 10,
            // The answers of all take 200 MiB at most, and some 4 MiB for each connection.
            large_max: 4,
            // 64 MiB of answers.
            parked_max: 16,
            share: 4,
        }
    }
}

/// A client that waits for the answers of a frame, and may be gone meanwhile.
pub trait Waiter {
    /// Returns whether the client no longer waits.
    fn is_gone(&self) -> bool;
}

/// A frame whose turn it is.
#[derive(Debug)]
pub struct WaitingFrames<W> {
    /// Its answers so far.
    pub reading: FrameRead,
    /// The client that waits for them.
    pub waiter: W,
    /// Whether it is counted among the large ones.
    is_large: bool,
}

/// A queue of the frames of long reads, by tenant.
#[derive(Debug)]
pub struct ReadQueue<K, W> {
    limits: ReadLimits,
    frames: Fair<K, WaitingFrames<W>>,
    /// Frames whose answers have become large, of which some go on.
    large: usize,
    parked: Fair<K, WaitingFrames<W>>,
}

impl<K: Ord + Clone, W: Waiter> ReadQueue<K, W> {
    /// Returns an empty queue with these bounds. The simulator has smaller ones than the server
    /// ([`ReadLimits::default`]).
    #[must_use]
    pub const fn new(limits: ReadLimits) -> Self {
        let frames = Fair::new(bounds(limits.frames_max, limits.share));
        let parked = Fair::new(bounds(limits.parked_max, limits.share));
        Self { limits, frames, large: 0, parked }
    }

    /// Adds a frame behind the tenant's others.
    ///
    /// # Errors
    /// The waiter, if the queue or the tenant's share of it is full: it tries again later.
    pub fn push(&mut self, tenant: K, reading: FrameRead, waiter: W) -> Result<(), W> {
        let waiting = WaitingFrames { reading, waiter, is_large: false };
        self.frames.push(tenant, SLICE, waiting).map_err(|waiting| waiting.waiter)
    }

    /// Takes the frame that gets the next slice, with its tenant; frames without a waiting client
    /// are dropped. The caller gives it to [`ReadQueue::put_back`] or [`ReadQueue::end`].
    pub fn pop(&mut self) -> Option<(K, WaitingFrames<W>)> {
        loop {
            let (tenant, waiting) = self.frames.pop()?;
            if !waiting.waiter.is_gone() {
                return Some((tenant, waiting));
            }
            self.end(&waiting);
        }
    }

    /// Puts a frame back that is not answered, or parks it if too many large ones go on. Where too
    /// many are parked it is dropped with its waiter, which tries again.
    pub fn put_back(&mut self, tenant: K, mut waiting: WaitingFrames<W>) {
        if self.sets_aside(&waiting) {
            self.park(tenant, waiting);
            return;
        }
        if self.has_become_large(&waiting) {
            self.large += 1;
            waiting.is_large = true;
        }
        self.frames.put_back(tenant, SLICE, waiting);
    }

    /// Returns whether [`ReadQueue::put_back`] would park a frame, or drop it: its answers have
    /// become large, and as many frames with large answers go on as may.
    #[must_use]
    pub fn sets_aside(&self, waiting: &WaitingFrames<W>) -> bool {
        self.has_become_large(waiting) && self.large == self.limits.large_max
    }

    /// Returns whether the answers of a frame are large that is not counted among the large ones.
    fn has_become_large(&self, waiting: &WaitingFrames<W>) -> bool {
        !waiting.is_large && waiting.reading.entries() > self.limits.large_entries
    }

    /// Notes that a frame is answered, or that no client waits for it: a parked one may go on.
    pub fn end(&mut self, waiting: &WaitingFrames<W>) {
        if !waiting.is_large {
            return;
        }
        self.large -= 1;
        while self.large < self.limits.large_max
            && let Some((tenant, waiting)) = self.parked.pop()
        {
            if !waiting.waiter.is_gone() {
                self.put_back(tenant, waiting);
            }
        }
    }

    fn park(&mut self, tenant: K, waiting: WaitingFrames<W>) {
        let mut still = Fair::new(bounds(self.limits.parked_max, self.limits.share));
        while let Some((tenant, waiting)) = self.parked.pop() {
            if !waiting.waiter.is_gone() {
                // There was room for it before.
                let _ = still.push(tenant, SLICE, waiting);
            }
        }
        self.parked = still;
        let _ = self.parked.push(tenant, SLICE, waiting);
    }
}

const fn bounds(pieces_max: usize, share: usize) -> Bounds {
    Bounds { pieces_max, bytes_max: u64::MAX, share }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use sanderling_protocol::{ClusterId, Path, Request};

    use super::*;
    use crate::namenode::{Namenode, NamenodeConfig};

    /// A caller with a number, and whether it may go.
    #[derive(Debug, Clone)]
    struct Caller(u32, Rc<Cell<bool>>);

    impl Waiter for Caller {
        fn is_gone(&self) -> bool {
            self.1.get()
        }
    }

    struct Rig {
        namenode: Namenode,
        queue: ReadQueue<&'static str, Caller>,
    }

    impl Rig {
        /// A frame is large once two requests of it are answered; one may go on, two are parked.
        fn new() -> Self {
            let limits = ReadLimits {
                frames_max: 8,
                large_entries: 1,
                large_max: 1,
                parked_max: 2,
                share: 1,
            };
            let namenode = Namenode::new(NamenodeConfig::default(), ClusterId(1));
            Self { namenode, queue: ReadQueue::new(limits) }
        }

        fn push(&mut self, tenant: &'static str, number: u32, requests: usize) -> Caller {
            let caller = Caller(number, Rc::default());
            let requests = vec![Request::Stat { path: Path::root() }; requests];
            let reading = FrameRead::new(requests, None);
            self.queue.push(tenant, reading, caller.clone()).unwrap();
            caller
        }

        /// Gives one slice of one request. Returns whose frame that was, and whether it is done.
        fn step(&mut self) -> Option<(u32, bool)> {
            let (tenant, mut waiting) = self.queue.pop()?;
            let now = self.namenode.catalog().now();
            let (number, is_done) =
                (waiting.waiter.0, waiting.reading.slice(now, &self.namenode, 1));
            match is_done {
                true => self.queue.end(&waiting),
                false => self.queue.put_back(tenant, waiting),
            }
            Some((number, is_done))
        }

        fn done(&mut self) -> Vec<u32> {
            let steps = std::iter::from_fn(|| self.step());
            steps.filter(|(_, is_done)| *is_done).map(|(number, _)| number).collect()
        }
    }

    #[test]
    fn tenants_take_turns_slice_by_slice() {
        let mut rig = Rig::new();
        rig.push("greedy", 1, 2);
        rig.push("greedy", 2, 2);
        rig.push("modest", 3, 1);
        let steps: Vec<u32> = (0..3).filter_map(|_| rig.step()).map(|(number, _)| number).collect();
        assert!(steps.contains(&3), "{steps:?}");
        rig.done();
        assert!(rig.step().is_none());
    }

    #[test]
    fn large_frames_wait_until_one_is_done_and_are_answered_then() {
        let mut rig = Rig::new();
        rig.push("a", 1, 6);
        rig.push("b", 2, 6);
        rig.push("c", 3, 6);
        rig.push("d", 4, 1);
        assert_eq!(rig.done(), [4, 1, 2, 3]);
        assert_eq!(rig.queue.large, 0);
    }

    #[test]
    fn frame_that_cannot_be_parked_is_dropped() {
        let mut rig = Rig::new();
        for (tenant, number) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
            rig.push(tenant, number, 6);
        }
        assert_eq!(rig.done(), [1, 2, 3]);
    }

    #[test]
    fn caller_that_is_gone_keeps_no_place() {
        let mut rig = Rig::new();
        let callers: Vec<Caller> =
            [("a", 1), ("b", 2), ("c", 3)].map(|(tenant, it)| rig.push(tenant, it, 9)).into();
        // All of them are large by then: one goes on, two are parked.
        for _ in 0..8 {
            rig.step();
        }
        assert_eq!(rig.queue.large, 1);
        callers.iter().take(2).for_each(|caller| caller.1.set(true));
        rig.push("d", 4, 9);
        assert_eq!(rig.done(), [3, 4]);
        assert_eq!(rig.queue.large, 0);
    }
}
