//! Pushes of the simulated datanode.

use sanderling_core::block_table::StoreRequest;
use sanderling_core::datanode::PUSH_TIMEOUT;
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{BlockId, OrderReply, Refusal};

use super::{Datanode, PushJob};
use crate::InjectedBug;
use crate::context::Context;
use crate::event::{DatanodeCall, Purpose, Timer};
use crate::wire::{DataAnswer, DataRequest, Host, RequestBody, Response};

impl Datanode {
    /// Fences each block and sends it to its target.
    pub(super) fn push(
        &mut self,
        context: &mut Context<'_>,
        from: Host,
        call: u64,
        moves: Vec<PushMove>,
    ) {
        let life = context.runtime.life(self.host());
        let mut results = vec![None; moves.len()];
        let mut waiting = vec![None; moves.len()];
        let mut bytes_in_all = 0;
        let mut found = Ok(());
        for (index, one) in moves.into_iter().enumerate() {
            found =
                found.and_then(|()| context.checks.blocks.pushed(&one, context.namenode.catalog()));
            let before = self.is_fence_off.then(|| self.table.clone());
            // What is about to leave is compared with what was written.
            self.meet(one.block);
            match self.table.admit_push(one.block, one.from_epoch) {
                Err(refusal) => results[index] = Some(Err(refusal)),
                Ok(admitted) => {
                    context.checks.bytes.fenced(self.slot, life, one.block, admitted.length);
                    match admitted.bytes {
                        None => results[index] = Some(Ok(Pushed { length: admitted.length })),
                        Some(content) => {
                            let content = content.part(0, content.bytes().min(one.bytes_max));
                            bytes_in_all += u64::from(content.bytes());
                            self.throttle.began();
                            let is_counted =
                                self.push_rate.began(context.runtime.monotonic(), content.bytes());
                            waiting[index] = Some((one, content, is_counted));
                        }
                    }
                }
            }
            if let Some(before) = before {
                self.table = before;
            }
        }
        self.next_number += 1;
        let number = self.next_number;
        context.runtime.expect(found);
        self.pushes.insert(number, PushJob { from, call, results, waiting });
        let now = context.runtime.monotonic();
        let left_at = self.egress.queue(now, bytes_in_all).unwrap_or(now);
        context.runtime.set_timer(self.host(), left_at.0 - now.0, Timer::Send(number));
    }

    pub(super) fn send_pushes(&mut self, context: &mut Context<'_>, job: u64) {
        let Some(push) = self.pushes.get_mut(&job) else { return };
        let mut waiting = std::mem::take(&mut push.waiting);
        if context.runtime.has_bug(InjectedBug::PushesMixed) {
            let mut mixed = waiting.iter_mut().flatten();
            if let (Some(first), Some(second)) = (mixed.next(), mixed.next()) {
                std::mem::swap(&mut first.1, &mut second.1);
            }
        }
        let mut refused = Vec::new();
        for (index, one) in waiting.into_iter().enumerate() {
            let Some((one, content, is_counted)) = one else { continue };
            let Some(target) = Host::at(&one.address) else { continue };
            let (block, length) = (one.block, content.bytes());
            let now = context.runtime.monotonic();
            if let Err(refusal) = self.push_targets.begin(now, one.to) {
                refused.push((index, block, is_counted, refusal));
                continue;
            }
            let request = StoreRequest {
                block: one.block,
                epoch: one.to_epoch,
                tier: one.tier,
                bytes: length,
            };
            let purpose = Purpose::Datanode(
                self.slot,
                DatanodeCall::Push { job, index, block, length, target: one.to, is_counted },
            );
            let body = RequestBody::Data(one.to, DataRequest::Store(request, content));
            context.runtime.call(self.host(), target, body, PUSH_TIMEOUT.0, purpose);
        }
        for (index, block, is_counted, refusal) in refused {
            self.pushed(context, (job, index), (block, is_counted), Err(refusal));
        }
        self.answer_push(context, job);
    }

    pub(super) fn pushed(
        &mut self,
        context: &mut Context<'_>,
        (job, index): (u64, usize),
        (block, is_counted): (BlockId, bool),
        result: Result<Pushed, Refusal>,
    ) {
        let now = context.runtime.monotonic();
        let length = result.as_ref().map_or(0, |pushed| pushed.length);
        if result.is_ok() {
            self.throttle.arrived(block, length);
        }
        self.throttle.ended(now);
        if is_counted {
            self.push_rate.ended(now, u64::from(length));
        }
        if let Some(push) = self.pushes.get_mut(&job) {
            push.results[index] = Some(result);
        }
        self.release(context);
        self.answer_push(context, job);
    }

    fn answer_push(&mut self, context: &mut Context<'_>, job: u64) {
        let is_done =
            self.pushes.get(&job).is_some_and(|push| push.results.iter().all(Option::is_some));
        if !is_done {
            return;
        }
        let push = self.pushes.remove(&job).expect("it was there just now");
        let results = push.results.into_iter().flatten().collect();
        let answer = Response::Data(Ok(DataAnswer::Order(OrderReply::Pushed(results))));
        context.runtime.reply(self.host(), push.from, push.call, answer);
    }
}
