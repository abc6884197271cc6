//! The way of a frame through the namenode: answered at once, in slices, part by part, or by the
//! writer. The machines that the server runs decide each step.

use sanderling_core::namenode::{
    Answers, CommitBatch, FrameStep, LongFrame, LongRefusal, WaitingFrames, WriterLoad,
    changes_size, queue_full, writer_at_once,
};
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::{Instant, Refusal, Reply, Request};

use super::NamenodeHost;
use super::queue::{ChangePart, FrameCalls, ReadWaiter};
use super::serve::NamenodeContext;
use crate::InjectedBug;
use crate::event::{Purpose, Timer};
use crate::wire::{FrameOrigin, FrameTenant, Host, Response};

/// The writer at the moment when changes arrive.
struct WriterAt<'a> {
    host: &'a NamenodeHost,
    now: Instant,
}

impl WriterLoad for WriterAt<'_> {
    fn waits_for_quorum(&self) -> bool {
        // It is no member of a group.
        false
    }

    fn is_due(&self) -> bool {
        self.host.machine.deadline().is_some_and(|due| due <= self.now)
    }

    fn has_waiting(&self) -> bool {
        !self.host.queues.changes.is_empty()
    }
}

impl NamenodeHost {
    /// Takes the requests of one frame.
    pub(crate) fn receive(
        &mut self,
        context: &mut NamenodeContext<'_>,
        from: Host,
        requests: FrameCalls,
    ) {
        let origin = FrameOrigin { host: from, life: context.runtime.life(from) };
        let sent: Vec<&Request> = requests.iter().map(|(_, request)| request).collect();
        let number = self.queues.open(origin, encode_body(&sent).len() as u64);
        context.checks.answered.arrived(context.runtime.now(), number, origin, &requests);
        self.submit(context, number, requests, true);
        self.go_on(context);
    }

    /// Starts to answer a frame, or a part of one.
    fn submit(
        &mut self,
        context: &mut NamenodeContext<'_>,
        number: u64,
        requests: FrameCalls,
        is_whole: bool,
    ) {
        let (calls, requests): (Vec<u64>, Vec<Request>) = requests.into_iter().unzip();
        let now = self.clock(context.runtime.now());
        let entries = self.queues.plan.at_once_entries;
        match FrameStep::first(requests, None, entries, || (now, &self.machine)) {
            FrameStep::Answered(requests, answers) => {
                self.answer_reads(context, number, calls, &requests, answers);
            }
            FrameStep::Changes(requests) => self.change(context, number, calls, requests),
            FrameStep::Long(LongFrame::Slices(reading)) => {
                context.runtime.statistics_mut().long_frames += 1;
                note_slices(context, &calls);
                if let Some(frame) = self.queues.frames.get_mut(&number) {
                    (frame.reading, frame.calls) = (Some(*reading), calls);
                }
                if is_whole { self.wait(context, number) } else { self.queue(context, number) }
            }
            FrameStep::Long(LongFrame::Parts(parts)) => {
                let mut calls = calls.into_iter();
                let parts = parts.into_iter().map(|part| calls.by_ref().zip(part).collect());
                let Some(frame) = self.queues.frames.get_mut(&number) else { return };
                for part in parts.collect::<Vec<FrameCalls>>().into_iter().rev() {
                    frame.parts.push_front(part);
                }
                if is_whole {
                    self.wait(context, number)
                } else {
                    self.queues.ready.push_back(number)
                }
            }
            step @ (FrameStep::Events { .. } | FrameStep::Long(LongFrame::Check)) => {
                unreachable!("no process here requests {step:?}")
            }
        }
    }

    /// Lets a frame wait until the long answers of its connection before it are sent.
    fn wait(&mut self, context: &mut NamenodeContext<'_>, number: u64) {
        let has_places = self.queues.has_long_places(number);
        let Some(frame) = self.queues.frames.get_mut(&number) else { return };
        if !has_places {
            let parts = std::mem::take(&mut frame.parts).into_iter().flatten();
            let calls = frame.calls.drain(..).chain(parts.map(|(call, _)| call)).collect();
            frame.reading = None;
            return self.refuse(context, number, calls, &LongRefusal::Places.refusal());
        }
        let waiting = self.queues.long.entry(frame.origin).or_default();
        waiting.push_back(number);
        context.checks.answered.waits(number);
        if waiting.len() == 1 {
            self.queues.ready.push_back(number);
        }
    }

    /// Puts reads into the queue of those that take several slices.
    fn queue(&mut self, context: &mut NamenodeContext<'_>, number: u64) {
        let Some(frame) = self.queues.frames.get_mut(&number) else { return };
        let (tenant, calls) = (frame.tenant, frame.calls.clone());
        if !self.queues.push_reads(number) {
            return self.refuse_full(context, number, calls);
        }
        context.checks.read_turns.pushed(tenant, number, 1);
        self.slice_soon(context);
    }

    fn slice_soon(&mut self, context: &mut NamenodeContext<'_>) {
        if !std::mem::replace(&mut self.queues.is_slice_set, true) {
            let micros = self.queues.random.below(self.queues.plan.slice_micros_max + 1);
            context.runtime.set_timer(Host::Namenode, micros, Timer::Slice);
        }
    }

    /// Gives the frame whose turn it is a slice.
    pub(super) fn slice(&mut self, context: &mut NamenodeContext<'_>) {
        self.queues.is_slice_set = false;
        self.queues.mark_gone(|origin| context.runtime.is_alive(origin));
        let kept = self.queues.bugs.kept.take();
        let next = kept.or_else(|| self.queues.reads.pop());
        self.end_dropped(context);
        if let Some((tenant, waiting)) = next {
            self.give_slice(context, tenant, waiting);
            self.end_dropped(context);
            self.slice_soon(context);
        }
        self.go_on(context);
        self.check_idle(context);
    }

    fn give_slice(
        &mut self,
        context: &mut NamenodeContext<'_>,
        tenant: FrameTenant,
        mut waiting: WaitingFrames<ReadWaiter>,
    ) {
        let number = waiting.waiter.frame;
        context.runtime.statistics_mut().slices += 1;
        let found = context.checks.read_turns.took(tenant, number, 1);
        context.runtime.expect(found);
        let now = self.clock(context.runtime.now());
        let entries = self.queues.plan.slice_entries;
        if waiting.reading.slice(now, &self.machine, entries) {
            context.checks.read_turns.ended(tenant, number);
            self.queues.reads.end(&waiting);
            let frame = self.queues.frames.get_mut(&number);
            let calls = frame.map_or_else(Vec::new, |frame| {
                frame.is_queued = false;
                std::mem::take(&mut frame.calls)
            });
            let (requests, answers) = waiting.reading.finish();
            return self.answer_reads(context, number, calls, &requests, answers);
        }
        if self.queues.reads.sets_aside(&waiting) {
            context.runtime.statistics_mut().parked_frames += 1;
            context.checks.read_turns.parked(tenant, number);
            if self.has_bug(InjectedBug::ParkedForgotten) {
                return self.queues.bugs.forgotten.push(waiting);
            }
        }
        match self.has_bug(InjectedBug::TurnKept) {
            true => self.queues.bugs.kept = Some((tenant, waiting)),
            false => self.queues.reads.put_back(tenant, waiting),
        }
    }

    /// Ends the frames that the queue of reads has dropped: their clients have ended, or there was
    /// no room to set them aside.
    fn end_dropped(&mut self, context: &mut NamenodeContext<'_>) {
        for number in self.queues.take_dropped() {
            let Some(frame) = self.queues.frames.get_mut(&number) else { continue };
            frame.is_queued = false;
            let (origin, calls) = (frame.origin, std::mem::take(&mut frame.calls));
            context.checks.read_turns.ended(frame.tenant, number);
            match context.runtime.is_alive(origin) {
                true => self.refuse_full(context, number, calls),
                false => self.forget(context, number),
            }
        }
    }

    /// Starts to make changes, among which there may be reads.
    fn change(
        &mut self,
        context: &mut NamenodeContext<'_>,
        number: u64,
        calls: Vec<u64>,
        requests: Vec<Request>,
    ) {
        let is_at_once = self.may_make(context, &requests);
        let count = requests.len();
        let part =
            ChangePart { frame: number, requests: calls.into_iter().zip(requests).collect() };
        if is_at_once {
            return self.make(context, part);
        }
        let Some(frame) = self.queues.frames.get(&number) else { return };
        let size = changes_size(frame.bytes, count, self.queues.plan.request_cost);
        let tenant = frame.tenant;
        let overtakes = self.has_bug(InjectedBug::ChangeOvertakes);
        let queued_as = self.bug_tenant(tenant);
        match self.queues.push_change(queued_as, size, part, overtakes) {
            Ok(()) => {
                context.checks.change_turns.pushed(tenant, number, size.cost);
                self.work_soon(context);
            }
            Err(part) => {
                let calls = part.requests.into_iter().map(|(call, _)| call).collect();
                self.refuse_full(context, number, calls);
            }
        }
    }

    /// Returns whether changes are made when they arrive.
    fn may_make(&self, context: &NamenodeContext<'_>, requests: &[Request]) -> bool {
        let writer = WriterAt { host: self, now: self.clock(context.runtime.now()) };
        let idle = || self.queues.plan.makes_at_once.then_some(&writer);
        writer_at_once(requests, idle).is_some()
    }

    fn make(&mut self, context: &mut NamenodeContext<'_>, part: ChangePart) {
        context.runtime.statistics_mut().made_frames += 1;
        self.looks(context);
        let requests = part.requests.iter().map(|(_, request)| request.clone()).collect();
        let batch = CommitBatch::asked(requests, None);
        self.work_off(context, batch, &[(part.frame, part.requests)]);
        self.wake(context);
    }

    /// Answers reads.
    fn answer_reads(
        &mut self,
        context: &mut NamenodeContext<'_>,
        number: u64,
        calls: Vec<u64>,
        requests: &[Request],
        answers: Answers,
    ) {
        let Some(from) = self.queues.frames.get(&number).map(|frame| frame.origin.host) else {
            return answered_again(context, number);
        };
        let mut replies = Vec::with_capacity(calls.len());
        for ((call, request), answer) in calls.into_iter().zip(requests).zip(answers) {
            let answer = self.bug_answer(request, answer);
            let answer = self.bug_stale(from, request, answer, context.runtime.now());
            context.checking(self).sent(request, &answer);
            if let Ok(Reply::Layout(layout)) = &answer {
                context.checking(self).located(layout);
            }
            replies.push((call, Response::Meta(answer)));
        }
        self.answer(context, number, replies);
    }

    /// Answers what the writer has made.
    pub(super) fn changed(
        &mut self,
        context: &mut NamenodeContext<'_>,
        number: u64,
        requests: &[(u64, Request)],
        answers: Answers,
    ) {
        let mut replies = Vec::with_capacity(requests.len());
        for ((call, request), answer) in requests.iter().zip(answers) {
            let answer = self.bug_answer(request, answer);
            context.checking(self).sent(request, &answer);
            replies.push((*call, Response::Meta(answer)));
        }
        self.answer(context, number, replies);
    }

    fn refuse_full(&mut self, context: &mut NamenodeContext<'_>, number: u64, calls: Vec<u64>) {
        self.refuse(context, number, calls, &queue_full());
    }

    fn refuse(
        &mut self,
        context: &mut NamenodeContext<'_>,
        number: u64,
        calls: Vec<u64>,
        refusal: &Refusal,
    ) {
        context.runtime.statistics_mut().refused_frames += 1;
        let refused = |call| (call, Response::Meta(Err(refusal.clone())));
        self.answer(context, number, calls.into_iter().map(refused).collect());
    }

    /// Adds the answers of a part to those of its frame, and sends them if that was the last part.
    fn answer(
        &mut self,
        context: &mut NamenodeContext<'_>,
        number: u64,
        replies: Vec<(u64, Response)>,
    ) {
        let Some(frame) = self.queues.frames.get_mut(&number) else {
            return answered_again(context, number);
        };
        frame.replies.extend(replies);
        if !frame.parts.is_empty() {
            return self.queues.ready.push_back(number);
        }
        let (host, replies) = (frame.origin.host, std::mem::take(&mut frame.replies));
        let found = context.checks.answered.answered(number, &replies);
        context.runtime.expect(found);
        context.runtime.reply_frame(host, replies);
        self.close(number);
    }

    /// Drops a frame whose client has ended.
    fn forget(&mut self, context: &mut NamenodeContext<'_>, number: u64) {
        let found = context.checks.answered.dropped(context.runtime, number);
        context.runtime.expect(found);
        self.close(number);
    }

    /// Removes a frame: the connection's next one with long answers may go on.
    fn close(&mut self, number: u64) {
        let Some(frame) = self.queues.frames.remove(&number) else { return };
        let Some(waiting) = self.queues.long.get_mut(&frame.origin) else { return };
        if waiting.front() == Some(&number) {
            waiting.pop_front();
            self.queues.ready.extend(waiting.front());
        }
        if waiting.is_empty() {
            self.queues.long.remove(&frame.origin);
        }
    }

    /// Lets the frames go on that may: with their next part, or as the first of their connection.
    /// What a client that has ended waits for is dropped.
    pub(super) fn go_on(&mut self, context: &mut NamenodeContext<'_>) {
        while context.runtime.is_up(Host::Namenode)
            && let Some(number) = self.queues.ready.pop_front()
        {
            let Some(frame) = self.queues.frames.get_mut(&number) else { continue };
            if !context.runtime.is_alive(frame.origin) {
                self.forget(context, number);
            } else if let Some(part) = frame.parts.pop_front() {
                self.submit(context, number, part, false);
            } else {
                self.queue(context, number);
            }
        }
    }

    /// Lets a checker look at a namenode that has nothing to do.
    pub(super) fn check_idle(&self, context: &mut NamenodeContext<'_>) {
        let is_idle = !self.queues.is_slice_set && self.queues.changes.is_empty();
        if is_idle && context.runtime.is_up(Host::Namenode) {
            let found = context.checks.answered.check_idle(context.runtime);
            context.runtime.expect(found);
        }
    }
}

/// Lets a checker look at an answer to a frame that was answered or dropped before.
fn answered_again(context: &mut NamenodeContext<'_>, number: u64) {
    let found = context.checks.answered.answered(number, &[]);
    context.runtime.expect(found);
}

/// Notes that reads take several slices: what a caller's list has of each name is then of a moment
/// of its own.
fn note_slices(context: &mut NamenodeContext<'_>, calls: &[u64]) {
    for call in calls {
        if let Some(Purpose::Caller(_, call)) = context.runtime.purpose(*call) {
            context.checks.history.slice(call.operation);
        }
    }
}
