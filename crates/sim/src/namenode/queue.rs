//! The queues of a namenode's process: frames of changes before the writer, and frames of reads
//! that take several slices, by tenant.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use sanderling_core::fair::{Fair, TaskSize};
use sanderling_core::namenode::{
    BatchBounds, FrameRead, ReadQueue, Waiter, WaitingFrames, changes_size, long_places,
};
use sanderling_protocol::Request;

use crate::plan::RunPlan;
use crate::plan::queues::QueuePlan;
use crate::random::Random;
use crate::wire::{FrameOrigin, FrameTenant, Response};

/// Requests, each with its call.
pub(super) type FrameCalls = Vec<(u64, Request)>;

/// The frames that a process has received and not answered.
#[derive(Debug)]
pub(super) struct FrameQueues {
    pub(super) plan: QueuePlan,
    /// Frames, or parts of them, that wait for the writer.
    pub(super) changes: Fair<FrameTenant, ChangePart>,
    pub(super) reads: ReadQueue<FrameTenant, ReadWaiter>,
    /// By a number that counts the frames.
    pub(super) frames: BTreeMap<u64, PendingFrame>,
    last: u64,
    /// Frames of each connection whose answers take long. One at a time is answered, the first.
    pub(super) long: BTreeMap<FrameOrigin, VecDeque<u64>>,
    /// Frames that may go on: another part of them is due, or their connection's turn has come.
    pub(super) ready: VecDeque<u64>,
    /// Frames whose waiters were dropped.
    dropped: Rc<RefCell<Vec<u64>>>,
    /// Whether a timer is set for the next slice.
    pub(super) is_slice_set: bool,
    pub(super) random: Random,
    pub(super) bugs: QueueBugState,
}

/// What the injected bugs of the queues hold back.
#[derive(Debug, Default)]
pub(super) struct QueueBugState {
    /// The frame that keeps its turn until it is answered.
    pub(super) kept: Option<(FrameTenant, WaitingFrames<ReadWaiter>)>,
    /// Frames that should be parked and are forgotten.
    pub(super) forgotten: Vec<WaitingFrames<ReadWaiter>>,
}

/// One frame.
#[derive(Debug)]
pub(super) struct PendingFrame {
    pub(super) origin: FrameOrigin,
    pub(super) tenant: FrameTenant,
    /// Parts that are not begun.
    pub(super) parts: VecDeque<FrameCalls>,
    /// Reads that wait for the connection's turn, and their calls.
    pub(super) reading: Option<FrameRead>,
    pub(super) calls: Vec<u64>,
    pub(super) replies: Vec<(u64, Response)>,
    /// Bytes of the whole frame: each part of it counts with them, as at the server.
    pub(super) bytes: u64,
    /// Whether its reads are in the queue: they wait for their turn, or are parked.
    pub(super) is_queued: bool,
    is_gone: Rc<Cell<bool>>,
}

/// A frame, or a part of it, that waits for the writer.
#[derive(Debug)]
pub(super) struct ChangePart {
    pub(super) frame: u64,
    pub(super) requests: FrameCalls,
}

/// What waits for the answers of a frame of reads.
#[derive(Debug)]
pub(super) struct ReadWaiter {
    pub(super) frame: u64,
    is_gone: Rc<Cell<bool>>,
    dropped: Rc<RefCell<Vec<u64>>>,
}

impl Waiter for ReadWaiter {
    fn is_gone(&self) -> bool {
        self.is_gone.get()
    }
}

impl Drop for ReadWaiter {
    fn drop(&mut self) {
        self.dropped.borrow_mut().push(self.frame);
    }
}

impl FrameQueues {
    pub(super) fn new(plan: &RunPlan) -> Self {
        Self {
            changes: Fair::new(plan.queues.changes),
            reads: ReadQueue::new(plan.queues.reads),
            frames: BTreeMap::new(),
            last: 0,
            long: BTreeMap::new(),
            ready: VecDeque::new(),
            dropped: Rc::default(),
            is_slice_set: false,
            random: Random::new(plan.seed, 49),
            bugs: QueueBugState::default(),
            plan: plan.queues,
        }
    }

    /// Begins anew with the next process, which has received nothing.
    pub(super) fn restart(&mut self, plan: &RunPlan) {
        let (last, random) = (self.last, self.random.clone());
        *self = Self { last, random, ..Self::new(plan) };
    }

    /// Opens a frame of so many bytes and returns its number.
    pub(super) fn open(&mut self, origin: FrameOrigin, bytes: u64) -> u64 {
        let owners = self.plan.owners;
        let tenant = if origin.host.is_client() && owners > 0 {
            FrameTenant::Owner(origin.host.index() as u8 % owners)
        } else {
            FrameTenant::Connection(origin)
        };
        self.last += 1;
        let frame = PendingFrame {
            origin,
            tenant,
            parts: VecDeque::new(),
            reading: None,
            calls: Vec::new(),
            replies: Vec::new(),
            bytes,
            is_queued: false,
            is_gone: Rc::default(),
        };
        self.frames.insert(self.last, frame);
        self.last
    }

    /// Returns the work that so many requests count as.
    pub(super) const fn cost(&self, requests: usize) -> u64 {
        changes_size(0, requests, self.plan.request_cost).cost
    }

    /// Returns whether a frame that takes long has places beside those of its connection.
    pub(super) fn has_long_places(&self, number: u64) -> bool {
        let Some(frame) = self.frames.get(&number) else { return false };
        let places = |frame: &PendingFrame| long_places(frame.bytes, self.plan.long_places);
        let waiting = self.long.get(&frame.origin).into_iter().flatten();
        let taken: u32 = waiting.filter_map(|other| self.frames.get(other)).map(places).sum();
        taken + places(frame) <= self.plan.long_places
    }

    /// Puts a part of a frame before the writer; gives it back if the queue, or the tenant's share
    /// of it, is full. `overtakes`: an injected bug lets it go before the tenant's others.
    pub(super) fn push_change(
        &mut self,
        tenant: FrameTenant,
        size: TaskSize,
        part: ChangePart,
        overtakes: bool,
    ) -> Result<(), ChangePart> {
        if overtakes {
            self.changes.put_back(tenant, size, part);
            return Ok(());
        }
        self.changes.push(tenant, size, part)
    }

    /// Takes the parts whose changes are written together, each with the tenant of its frame.
    pub(super) fn take_changes(&mut self) -> Vec<(FrameTenant, ChangePart)> {
        let batch = BatchBounds::ALONE.take(&mut self.changes);
        let owned = batch.into_iter().map(|(queued_as, part)| {
            let tenant = self.frames.get(&part.frame).map_or(queued_as, |frame| frame.tenant);
            (tenant, part)
        });
        owned.collect()
    }

    /// Puts the reads of a frame into the queue. Returns whether there was room.
    pub(super) fn push_reads(&mut self, number: u64) -> bool {
        let Some(frame) = self.frames.get_mut(&number) else { return false };
        let Some(reading) = frame.reading.take() else { return false };
        let (is_gone, dropped) = (Rc::clone(&frame.is_gone), Rc::clone(&self.dropped));
        let waiter = ReadWaiter { frame: number, is_gone, dropped };
        let is_taken = self.reads.push(frame.tenant, reading, waiter).is_ok();
        frame.is_queued = is_taken;
        if !is_taken {
            self.dropped.borrow_mut().retain(|it| *it != number);
        }
        is_taken
    }

    /// Notes which connections have ended.
    pub(super) fn mark_gone(&self, is_alive: impl Fn(FrameOrigin) -> bool) {
        for frame in self.frames.values().filter(|frame| frame.is_queued) {
            frame.is_gone.set(!is_alive(frame.origin));
        }
    }

    /// Returns the frames that the queue of reads has dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> Vec<u64> {
        let mut dropped = std::mem::take(&mut *self.dropped.borrow_mut());
        dropped.retain(|number| self.frames.get(number).is_some_and(|frame| frame.is_queued));
        dropped
    }
}
