//! Pushes of the simulated datanode.

use sanderling_core::block_table::StoreRequest;
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{BlockId, OrderReply, Refusal};

use super::{PUSH_MILLIS, PushJob};
use crate::Broken;
use crate::event::{DatanodeCall, Purpose, Timer};
use crate::wire::{Ask, DataAnswer, DataAsk, Host, Response};
use crate::world::World;

impl World {
    /// Fences each block and sends it to its target.
    pub(super) fn datanode_push(&mut self, slot: u8, from: Host, call: u64, moves: Vec<PushMove>) {
        let life = self.runtime.life(Host::Datanode(slot));
        let datanode = &mut self.datanodes[usize::from(slot)];
        let mut results = vec![None; moves.len()];
        let mut waiting = vec![None; moves.len()];
        let mut bytes_in_all = 0;
        let mut found = Ok(());
        for (index, one) in moves.into_iter().enumerate() {
            found = found.and_then(|()| self.checks.blocks.pushed(&one, self.namenode.catalog()));
            let before = datanode.is_fence_off.then(|| datanode.table.clone());
            // What is about to leave is compared with what was written.
            datanode.meet(one.block);
            match datanode.table.admit_push(one.block, one.from_epoch) {
                Err(refusal) => results[index] = Some(Err(refusal)),
                Ok(admitted) => {
                    self.checks.bytes.fenced(slot, life, one.block, admitted.length);
                    match admitted.bytes {
                        None => results[index] = Some(Ok(Pushed { length: admitted.length })),
                        Some(content) => {
                            let content = content.part(0, content.bytes().min(one.bytes_max));
                            bytes_in_all += u64::from(content.bytes());
                            datanode.throttle.began();
                            let is_counted =
                                datanode.push_rate.began(self.runtime.monotonic(), content.bytes());
                            waiting[index] = Some((one, content, is_counted));
                        }
                    }
                }
            }
            if let Some(before) = before {
                datanode.table = before;
            }
        }
        datanode.next_number += 1;
        let number = datanode.next_number;
        self.runtime.expect(found);
        let datanode = &mut self.datanodes[usize::from(slot)];
        datanode.pushes.insert(number, PushJob { from, call, results, waiting });
        let now = self.runtime.monotonic();
        let left_at = datanode.egress.queue(now, bytes_in_all).unwrap_or(now);
        self.runtime.set_timer(Host::Datanode(slot), left_at.0 - now.0, Timer::Send(number));
    }

    pub(super) fn datanode_send_pushes(&mut self, slot: u8, job: u64) {
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(push) = datanode.pushes.get_mut(&job) else { return };
        let mut waiting = std::mem::take(&mut push.waiting);
        if self.runtime.is_broken(Broken::PushesMixed) {
            let mut mixed = waiting.iter_mut().flatten();
            if let (Some(first), Some(second)) = (mixed.next(), mixed.next()) {
                std::mem::swap(&mut first.1, &mut second.1);
            }
        }
        for (index, one) in waiting.into_iter().enumerate() {
            let Some((one, content, is_counted)) = one else { continue };
            let Some(target) = Host::at(&one.address) else { continue };
            let (block, length) = (one.block, content.bytes());
            let request = StoreRequest {
                block: one.block,
                epoch: one.to_epoch,
                tier: one.tier,
                bytes: length,
            };
            let purpose = Purpose::Datanode(
                slot,
                DatanodeCall::Push { job, index, block, length, is_counted },
            );
            let ask = Ask::Data(one.to, DataAsk::Store(request, content));
            self.runtime.call(Host::Datanode(slot), target, ask, PUSH_MILLIS, purpose);
        }
        self.datanode_answer_push(slot, job);
    }

    pub(super) fn datanode_pushed(
        &mut self,
        slot: u8,
        (job, index): (u64, usize),
        (block, is_counted): (BlockId, bool),
        result: Result<Pushed, Refusal>,
    ) {
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        let length = result.as_ref().map_or(0, |pushed| pushed.length);
        if result.is_ok() {
            datanode.throttle.arrived(block, length);
        }
        datanode.throttle.ended(now);
        if is_counted {
            datanode.push_rate.ended(now, u64::from(length));
        }
        if let Some(push) = datanode.pushes.get_mut(&job) {
            push.results[index] = Some(result);
        }
        self.datanode_release(slot);
        self.datanode_answer_push(slot, job);
    }

    fn datanode_answer_push(&mut self, slot: u8, job: u64) {
        let datanode = &mut self.datanodes[usize::from(slot)];
        let is_done =
            datanode.pushes.get(&job).is_some_and(|push| push.results.iter().all(Option::is_some));
        if !is_done {
            return;
        }
        let push = datanode.pushes.remove(&job).expect("it was there just now");
        let results = push.results.into_iter().flatten().collect();
        let answer = Response::Data(Ok(DataAnswer::Order(OrderReply::Pushed(results))));
        self.runtime.reply(Host::Datanode(slot), push.from, push.call, answer);
    }
}
