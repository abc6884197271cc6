//! The calls of one connection that wait for their answers. Time comes from outside.

use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_protocol::Frame;
use sanderling_protocol::frame::held_requests;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::CallError;

pub(crate) type CallResult = Result<Frame<Bytes>, CallError>;

/// The times for which a call waits for its answer: until a deadline, and for how long on a silent
/// connection.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// The call ends by then, whatever happens.
    pub deadline: Instant,
    /// It ends before when the connection is silent for this long: neither did the peer send
    /// anything, of whatever answer, nor did the kernel take anything to send. It also ends when a
    /// call made that much later has its answer already, unless the peer has reported since that it
    /// holds this one back: then the wait is not the connection's.
    pub idle: Option<Duration>,
}

impl From<Instant> for Timeouts {
    fn from(deadline: Instant) -> Self {
        Self { deadline, idle: None }
    }
}

impl Timeouts {
    /// Returns when a call that begins now ends if no bytes arrive at all.
    #[must_use]
    pub fn soonest(&self, now: Instant) -> Instant {
        self.idle.map_or(self.deadline, |idle| self.deadline.min(now + idle))
    }
}

/// The calls under way, by slot. No allocation per call and one timer for all of them.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    state: Mutex<CallTable>,
    /// Notified when the connection breaks.
    breaks: Notify,
}

#[derive(Debug, Default)]
struct CallTable {
    slots: Vec<CallSlot>,
    free: Vec<u32>,
    under_way: usize,
    /// Why the connection broke, once it has.
    broken: Option<CallError>,
    /// When bytes last passed in either direction, but for those of reports.
    progress: Option<Instant>,
    /// The same before the bytes that came last, and when these came.
    progress_before: Option<Instant>,
    read_at: Option<Instant>,
    /// When the latest of the calls began that have their answer.
    answered_began: Option<Instant>,
    /// When a task next looks for calls that have waited long enough.
    look_at: Option<Instant>,
}

#[derive(Debug)]
struct CallSlot {
    /// Distinguishes a late answer to an earlier call of the slot.
    sequence: u32,
    /// When it began, or when the peer last reported that it holds the answer back.
    alive_at: Instant,
    began: Instant,
    timeouts: Timeouts,
    stage: SlotState,
}

#[derive(Debug)]
enum SlotState {
    Free,
    Waiting(Option<Waker>),
    Done(CallResult),
    /// It waited as long as it would.
    Late,
}

/// Why a call ended without an answer.
#[derive(Debug)]
pub(crate) enum CallEnd {
    Broken(CallError),
    Late(Duration),
}

/// The state of a new call.
pub(crate) struct Begun {
    pub(crate) request: u64,
    /// No other call was under way: no task is about to write.
    pub(crate) is_alone: bool,
    /// The timer has to be set anew.
    pub(crate) is_earliest: bool,
}

impl CallSlot {
    /// Returns when the call has waited long enough, as far as is known now.
    fn due(&self, progress: Option<Instant>, answered_began: Option<Instant>) -> Instant {
        let Timeouts { deadline, idle } = self.timeouts;
        let Some(idle) = idle else { return deadline };
        let earliest = self.alive_at + idle;
        if answered_began.is_some_and(|began| began > earliest) {
            return deadline.min(earliest);
        }
        deadline.min(progress.map_or(earliest, |at| earliest.max(at + idle)))
    }
}

const fn index(request: u64) -> usize {
    (request & 0xffff_ffff) as usize
}

impl CallTable {
    fn slot(&mut self, request: u64) -> Option<&mut CallSlot> {
        let slot = self.slots.get_mut(index(request))?;
        (u64::from(slot.sequence) == request >> 32).then_some(slot)
    }

    fn take_slot(&mut self, began: Instant, timeouts: Timeouts) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            let stage = SlotState::Free;
            self.slots.push(CallSlot { sequence: 0, alive_at: began, began, timeouts, stage });
            u32::try_from(self.slots.len() - 1).expect("calls are bounded")
        });
        let slot = &mut self.slots[index as usize];
        // Never 0: request 0 is the connection itself.
        slot.sequence = slot.sequence.wrapping_add(1).max(1);
        (slot.alive_at, slot.began, slot.timeouts) = (began, began, timeouts);
        slot.stage = SlotState::Waiting(None);
        u64::from(slot.sequence) << 32 | u64::from(index)
    }
}

impl Calls {
    /// Begins a call.
    pub(crate) fn begin(&self, timeouts: Timeouts, began: Instant) -> Result<Begun, CallError> {
        let mut state = self.state.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let request = state.take_slot(began, timeouts);
        let is_alone = state.under_way == 0;
        state.under_way += 1;
        let due =
            timeouts.idle.map_or(timeouts.deadline, |idle| timeouts.deadline.min(began + idle));
        let is_earliest = state.look_at.is_none_or(|at| due < at);
        if is_earliest {
            state.look_at = Some(due);
        }
        Ok(Begun { request, is_alone, is_earliest })
    }

    /// Takes the answer, or keeps the waker until there is one.
    pub(crate) fn poll(&self, request: u64, waker: &Waker) -> Poll<Result<Frame<Bytes>, CallEnd>> {
        let mut state = self.state.lock();
        let slot = state.slot(request).expect("a call keeps its slot until it is forgotten");
        match std::mem::replace(&mut slot.stage, SlotState::Waiting(None)) {
            SlotState::Done(Ok(frame)) => Poll::Ready(Ok(frame)),
            SlotState::Done(Err(error)) => Poll::Ready(Err(CallEnd::Broken(error))),
            SlotState::Late => Poll::Ready(Err(CallEnd::Late(slot.began.elapsed()))),
            SlotState::Waiting(kept) => {
                let kept = kept.filter(|kept| kept.will_wake(waker));
                slot.stage = SlotState::Waiting(Some(kept.unwrap_or_else(|| waker.clone())));
                Poll::Pending
            }
            SlotState::Free => unreachable!("a call keeps its slot until it is forgotten"),
        }
    }

    /// Forgets a call, however it ended. Its slot is free.
    pub(crate) fn forget(&self, request: u64) {
        let mut state = self.state.lock();
        let Some(slot) = state.slot(request) else { return };
        let stage = std::mem::replace(&mut slot.stage, SlotState::Free);
        // The number belongs to no call any more.
        slot.sequence = slot.sequence.wrapping_add(1);
        state.free.push(index(request) as u32);
        state.under_way -= 1;
        drop(state);
        drop(stage);
    }

    /// Takes a frame of the peer: an answer, or the report that one is held back.
    pub(crate) fn take(&self, frame: Frame<Bytes>) {
        match frame.header.is_held_report() {
            true => self.held(held_requests(&frame.body), Instant::now()),
            false => self.answer(frame),
        }
    }

    /// Notes that the peer holds the answers to calls back, so that they are waited for, whatever
    /// was answered before them. To other calls the bytes of the report are no sign of life.
    fn held(&self, requests: impl Iterator<Item = u64>, now: Instant) {
        let mut state = self.state.lock();
        state.progress = state.progress_before;
        for request in requests {
            if let Some(slot) = state.slot(request) {
                slot.alive_at = now;
            }
        }
    }

    /// Gives an answer to its call; drops it if the call was given up.
    pub(crate) fn answer(&self, frame: Frame<Bytes>) {
        let mut state = self.state.lock();
        state.progress = state.read_at.or(state.progress);
        state.progress_before = state.progress;
        let Some(slot) = state.slot(frame.header.request) else { return };
        let began = slot.began;
        let SlotState::Waiting(waker) = &mut slot.stage else { return };
        let waker = waker.take();
        slot.stage = SlotState::Done(Ok(frame));
        state.answered_began = state.answered_began.max(Some(began));
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns whether a call need not wait any more.
    pub(crate) fn is_done(&self, request: u64) -> bool {
        let mut state = self.state.lock();
        state.slot(request).is_none_or(|slot| !matches!(slot.stage, SlotState::Waiting(_)))
    }

    /// Notes that the peer took bytes.
    pub(crate) fn sent(&self, now: Instant) {
        let mut state = self.state.lock();
        (state.progress, state.progress_before) = (Some(now), Some(now));
    }

    /// Notes that bytes came: what they are is not known yet.
    pub(crate) fn received(&self, now: Instant) {
        let mut state = self.state.lock();
        state.progress_before = state.progress;
        (state.progress, state.read_at) = (Some(now), Some(now));
    }

    /// Fails every call, and those to come.
    pub(crate) fn fail(&self, error: &CallError) {
        let mut state = self.state.lock();
        state.broken.get_or_insert_with(|| error.clone());
        let wakers = state.end(|_| true, |_| SlotState::Done(Err(error.clone())));
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        self.breaks.notify_waiters();
    }

    /// Returns once the connection has broken.
    pub(crate) async fn broken(&self) {
        // Before the look: a break between the two is noticed.
        let breaks = self.breaks.notified();
        if !self.is_broken() {
            breaks.await;
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.state.lock().broken.is_some()
    }

    /// Ends the calls that have waited long enough; returns when to look again.
    pub(crate) fn end_late(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let (progress, answered_began) = (state.progress, state.answered_began);
        let wakers =
            state.end(|slot| slot.due(progress, answered_began) <= now, |_| SlotState::Late);
        let waiting = state.slots.iter().filter(|slot| matches!(slot.stage, SlotState::Waiting(_)));
        let next = waiting.map(|slot| slot.due(progress, answered_began)).min();
        state.look_at = next;
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        next
    }
}

impl CallTable {
    fn end(
        &mut self,
        is_meant: impl Fn(&CallSlot) -> bool,
        stage: impl Fn(&CallSlot) -> SlotState,
    ) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for slot in &mut self.slots {
            if !matches!(slot.stage, SlotState::Waiting(_)) || !is_meant(slot) {
                continue;
            }
            let ended = stage(slot);
            if let SlotState::Waiting(Some(waker)) = std::mem::replace(&mut slot.stage, ended) {
                wakers.push(waker);
            }
        }
        wakers
    }
}

#[cfg(test)]
mod tests;
