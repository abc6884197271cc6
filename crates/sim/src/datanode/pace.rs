//! Answers that wait for the link of a simulated datanode, by the machines that the real one has.
//! Time is the world's, as that of a clock that does not jump.

use super::DelayedResponse;
use crate::event::Timer;
use crate::wire::{DataAnswer, Host, Response};
use crate::world::World;

impl World {
    /// Answers a read when the blocks that leave have had their part of the link, and its bytes
    /// have left.
    pub(super) fn datanode_pace(&mut self, slot: u8, held: DelayedResponse) {
        let now = self.runtime.monotonic();
        let bytes = body_bytes(&held.answer);
        let datanode = &mut self.datanodes[usize::from(slot)];
        if !datanode.table.is_fenced() || !datanode.throttle.holds(now, bytes) {
            return self.datanode_leave(slot, held);
        }
        let read = datanode.throttle.hold(now, bytes);
        datanode.held.insert(read, held);
        self.datanode_release(slot);
    }

    /// Sends the reads that the throttle lets go.
    pub(super) fn datanode_release(&mut self, slot: u8) {
        let now = self.runtime.monotonic();
        for read in self.datanodes[usize::from(slot)].throttle.release(now) {
            if let Some(held) = self.datanodes[usize::from(slot)].held.remove(&read) {
                self.datanode_leave(slot, held);
            }
        }
        let datanode = &mut self.datanodes[usize::from(slot)];
        if let Some(due) = datanode.throttle.deadline()
            && datanode.throttle_at.is_none_or(|at| due.0 < at)
        {
            datanode.throttle_at = Some(due.0);
            self.runtime.set_timer(
                Host::Datanode(slot),
                due.0.saturating_sub(now.0),
                Timer::Throttle,
            );
        }
    }

    /// Puts an answer into the queue in front of the link.
    fn datanode_leave(&mut self, slot: u8, held: DelayedResponse) {
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(left_at) = datanode.egress.queue(now, body_bytes(&held.answer)) else {
            return self.runtime.reply(Host::Datanode(slot), held.from, held.call, held.answer);
        };
        datanode.next_number += 1;
        let number = datanode.next_number;
        datanode.leaving.insert(number, held);
        self.runtime.set_timer(Host::Datanode(slot), left_at.0 - now.0, Timer::Left(number));
    }

    pub(super) fn datanode_left(&mut self, slot: u8, number: u64) {
        if let Some(held) = self.datanodes[usize::from(slot)].leaving.remove(&number) {
            self.runtime.reply(Host::Datanode(slot), held.from, held.call, held.answer);
        }
    }
}

fn body_bytes(answer: &Response) -> u64 {
    match answer {
        Response::Data(Ok(DataAnswer::Bytes { content, .. })) => u64::from(content.bytes()),
        _ => 0,
    }
}
