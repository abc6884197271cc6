//! Answers that wait for the link of a simulated datanode, by the machines that the real one has.
//! Time is virtual time, as that of a clock that does not jump.

use super::{Datanode, DelayedResponse};
use crate::context::Context;
use crate::event::Timer;
use crate::wire::{DataAnswer, Response};

impl Datanode {
    /// Answers a read when the blocks that leave have had their part of the link, and its bytes
    /// have left.
    pub(super) fn pace(&mut self, context: &mut Context<'_>, held: DelayedResponse) {
        let now = context.runtime.monotonic();
        let bytes = body_bytes(&held.answer);
        if !self.table.is_fenced() || !self.throttle.holds(now, bytes) {
            return self.leave(context, held);
        }
        let read = self.throttle.hold(now, bytes);
        self.held.insert(read, held);
        self.release(context);
    }

    /// Sends the reads that the throttle lets go.
    pub(super) fn release(&mut self, context: &mut Context<'_>) {
        let now = context.runtime.monotonic();
        for read in self.throttle.release(now) {
            if let Some(held) = self.held.remove(&read) {
                self.leave(context, held);
            }
        }
        if let Some(due) = self.throttle.deadline()
            && self.throttle_at.is_none_or(|at| due.0 < at)
        {
            self.throttle_at = Some(due.0);
            context.runtime.set_timer(self.host(), due.0.saturating_sub(now.0), Timer::Throttle);
        }
    }

    /// Puts an answer into the queue in front of the link.
    fn leave(&mut self, context: &mut Context<'_>, held: DelayedResponse) {
        let now = context.runtime.monotonic();
        let Some(left_at) = self.egress.queue(now, body_bytes(&held.answer)) else {
            return context.runtime.reply(self.host(), held.from, held.call, held.answer);
        };
        self.next_number += 1;
        let number = self.next_number;
        self.leaving.insert(number, held);
        context.runtime.set_timer(self.host(), left_at.0 - now.0, Timer::Left(number));
    }

    pub(super) fn left(&mut self, context: &mut Context<'_>, number: u64) {
        if let Some(held) = self.leaving.remove(&number) {
            context.runtime.reply(self.host(), held.from, held.call, held.answer);
        }
    }
}

fn body_bytes(answer: &Response) -> u64 {
    match answer {
        Response::Data(Ok(DataAnswer::Bytes { content, .. })) => u64::from(content.bytes()),
        _ => 0,
    }
}
