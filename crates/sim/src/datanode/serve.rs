//! What a simulated datanode does with its timers, the answers to its calls, and the requests that
//! it receives.

use sanderling_core::block_table::{StoreAdmission, StoreRequest, WriteAdmission, WriteRequest};
use sanderling_core::datanode::{
    Damages, DrainThrottle, Egress, LatestLeader, PushOutcome, PushRate, PushTargets, push_failed,
};
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{BlockId, Epoch, NodeId, Nonce, Order, OrderReply, Refusal, Request};

use super::cloud::CloudSource;
use super::{CALM_RATE, Datanode, DelayedResponse, StoreWork, member};
use crate::InjectedBug;
use crate::check;
use crate::content::Content;
use crate::context::Context;
use crate::event::{DatanodeCall, Purpose, Timer};
use crate::wire::{DataAnswer, DataRequest, Host, Response, call_outcome, data};

/// Time of a call to the namenode. Half of the product's default, so that a run has many that time
/// out.
const CALL_MILLIS: u64 = 1500;

impl Datanode {
    pub(crate) fn start(&mut self, context: &mut Context<'_>) {
        self.wipe();
        self.member = member(Nonce(self.random.next()));
        (self.connected, self.report) = (None, None);
        self.damages = Damages::default();
        self.works.clear();
        self.pushes.clear();
        let rate = context.runtime.plan().link_bytes_per_second;
        let rate = if context.runtime.is_calm() { CALM_RATE } else { rate };
        self.egress = Egress::new(Some(rate));
        self.push_rate = PushRate::new(context.runtime.monotonic());
        self.push_targets = PushTargets::default();
        self.throttle = DrainThrottle::default();
        self.latest_leader = LatestLeader::default();
        self.source = CloudSource::new();
        self.held.clear();
        self.leaving.clear();
        self.throttle_at = None;
        self.follow_member();
        self.step(context);
    }

    pub(super) fn call(&mut self, context: &mut Context<'_>, request: Request, call: DatanodeCall) {
        let purpose = Purpose::Datanode(self.slot, call);
        context.runtime.call_namenode(self.host(), request, CALL_MILLIS, purpose);
    }

    pub(crate) fn timer(&mut self, context: &mut Context<'_>, timer: Timer) {
        match timer {
            Timer::Round => self.step(context),
            Timer::Damage => self.report_damage_again(context),
            Timer::Work(number) => self.finish(context, number),
            Timer::Send(number) => self.send_pushes(context, number),
            Timer::Look => {
                self.source.is_look_set = false;
                self.look(context);
            }
            Timer::Throttle => {
                self.throttle_at = None;
                self.release(context);
            }
            Timer::Left(number) => self.left(context, number),
            _ => {}
        }
    }

    pub(crate) fn answered(
        &mut self,
        context: &mut Context<'_>,
        call: DatanodeCall,
        answer: Option<Response>,
    ) {
        match call {
            DatanodeCall::Register(asked) => self.registered(context, asked, answer),
            DatanodeCall::Heartbeat(asked) => self.beaten(context, asked, answer),
            DatanodeCall::Held => self.take_unwanted(context, answer),
            DatanodeCall::Expected => self.take_expected(context, answer),
            DatanodeCall::Push { job, index, block, length, target, is_counted } => {
                let outcome = PushOutcome::of(call_outcome(answer.as_ref()));
                self.push_targets.ended(context.runtime.monotonic(), target, outcome);
                let result = match data(answer) {
                    Some(Ok(_)) => Ok(Pushed { length }),
                    Some(Err(refusal)) => Err(refusal),
                    None => Err(push_failed("the target could not be reached".to_owned())),
                };
                self.pushed(context, (job, index), (block, is_counted), result);
            }
            DatanodeCall::Repeat { sent, is_round } => {
                self.notice_answered(context, *sent, answer);
                if is_round {
                    self.repeated(context);
                }
            }
            DatanodeCall::Act(act) => self.act_answered(context, *act, answer),
            DatanodeCall::Damage(report) => self.damage_answered(context, &report, answer),
        }
    }

    pub(crate) fn receive(
        &mut self,
        context: &mut Context<'_>,
        from: Host,
        call: u64,
        node: NodeId,
        body: DataRequest,
    ) {
        let here = self.node;
        if here != Some(node)
            && (!context.runtime.has_bug(InjectedBug::StaleIncarnation) || here.is_none())
        {
            let here = here.unwrap_or_default();
            let refusal = Refusal::WrongNode { here, asked: node };
            return context.runtime.reply(self.host(), from, call, Response::Data(Err(refusal)));
        }
        let answer = match body {
            DataRequest::Hello => Some(Ok(DataAnswer::Hello)),
            DataRequest::Write(request, content) => {
                self.write(context, from, call, request, content)
            }
            DataRequest::Read { block, epoch, offset, bytes } => {
                let read = self.read(context, block, epoch, offset, bytes);
                self.pace(context, DelayedResponse { from, call, answer: Response::Data(read) });
                None
            }
            DataRequest::Store(request, content) => {
                self.store(context, from, call, request, content)
            }
            // The namenode is no member of a group, and managers have no term.
            DataRequest::Order(order) => match self.latest_leader.admits(0) {
                Ok(()) => self.order(context, from, call, order),
                Err(refusal) => Some(Err(refusal)),
            },
        };
        if let Some(answer) = answer {
            context.runtime.reply(self.host(), from, call, Response::Data(answer));
        }
        self.report_damage(context);
    }

    fn read(
        &mut self,
        context: &mut Context<'_>,
        block: BlockId,
        epoch: Epoch,
        offset: u32,
        bytes: u32,
    ) -> Result<DataAnswer, Refusal> {
        let is_served = context.runtime.has_bug(InjectedBug::DamageServed);
        let is_rotten = if is_served { self.rot.has(block) } else { self.meet(block) };
        let epoch = if context.runtime.has_bug(InjectedBug::ReadIgnoresEpoch) {
            Epoch(u32::MAX)
        } else {
            epoch
        };
        let found = self.table.admit_read(block, epoch, u64::from(offset), bytes)?;
        let content = found.map(|whole| whole.part(offset, bytes)).unwrap_or_default();
        let content = if is_rotten { content.rotten() } else { content };
        let held = self.held(block).map_or(Epoch(0), |held| held.epoch);
        // Copies that were made ahead of a notice do not count before it comes.
        let is_leaving = self.table.is_fenced() && self.throttle.is_pushed(std::iter::once(block));
        Ok(DataAnswer::Bytes { content, held, is_leaving })
    }

    fn write(
        &mut self,
        context: &mut Context<'_>,
        from: Host,
        call: u64,
        request: WriteRequest,
        content: Content,
    ) -> Option<Result<DataAnswer, Refusal>> {
        match self.table.admit_write(&request) {
            Err(refusal) => Some(Err(refusal)),
            Ok(WriteAdmission::AlreadyThere { bytes, .. }) => {
                let offset = u32::try_from(request.offset).expect("admitted");
                if bytes.part(offset, request.bytes) == content {
                    Some(Ok(DataAnswer::Written))
                } else {
                    Some(Err(self.table.not_at_end(&request)))
                }
            }
            Ok(WriteAdmission::Append { ticket, bytes }) => {
                let whole = bytes.unwrap_or_default().with(&content);
                let work = StoreWork::Write { from, call, ticket, request, whole };
                self.begin(context, work);
                None
            }
        }
    }

    fn store(
        &mut self,
        context: &mut Context<'_>,
        from: Host,
        call: u64,
        request: StoreRequest,
        content: Content,
    ) -> Option<Result<DataAnswer, Refusal>> {
        match self.table.admit_store(&request) {
            Err(refusal) => Some(Err(refusal)),
            Ok(StoreAdmission::AlreadyThere { bytes }) if bytes == content => {
                Some(Ok(DataAnswer::Stored))
            }
            Ok(StoreAdmission::AlreadyThere { .. }) => {
                let (block, expected, computed) = (request.block, 0, 1);
                Some(Err(Refusal::ChecksumMismatch { block, expected, computed }))
            }
            Ok(StoreAdmission::Copy) => {
                self.begin(context, StoreWork::Store { from, call, request, content });
                None
            }
        }
    }

    /// Copies bytes for a while.
    fn begin(&mut self, context: &mut Context<'_>, work: StoreWork) {
        let now = context.runtime.now();
        let copy_max = context.runtime.plan().copy_micros_max;
        self.next_number += 1;
        let number = self.next_number;
        let slow = if self.slow_until > now { self.slow_micros } else { 0 };
        let micros = self.random.below(copy_max + 1) + slow;
        self.works.insert(number, work);
        if micros == 0 {
            self.finish(context, number);
        } else {
            context.runtime.set_timer(self.host(), micros, Timer::Work(number));
        }
    }

    fn finish(&mut self, context: &mut Context<'_>, number: u64) {
        let is_any = context.runtime.has_bug(InjectedBug::CapacityIgnored);
        let Some(work) = self.works.remove(&number) else { return };
        let held = work.held();
        let (from, call, answer) = match work {
            StoreWork::Write { from, call, ticket, request, whole } => {
                let (tier, length) = (ticket.tier(), whole.bytes());
                let before = self.room.get(&request.block).copied();
                let result = match self.take_room(request.block, tier, length, is_any) {
                    Err(refusal) => {
                        self.table.abandon_write(ticket);
                        Err(refusal)
                    }
                    Ok(()) => {
                        let wrote = self.table.wrote(ticket, whole);
                        if wrote.is_err() {
                            self.give_back(request.block, before);
                        }
                        wrote
                    }
                };
                if result.is_ok() {
                    let life = (self.slot, context.runtime.life(self.host()));
                    let bytes = &context.checks.bytes;
                    let found = bytes.wrote(life, self.node, from, &request, length);
                    context.runtime.expect(found);
                }
                (from, call, result.map(|_| DataAnswer::Written))
            }
            StoreWork::Store { from, call, request, content } => {
                let before = self.room.get(&request.block).copied();
                let room = self.take_room(request.block, request.tier, request.bytes, is_any);
                let result = room.and_then(|()| self.table.stored(&request, content));
                if result.is_err() {
                    self.give_back(request.block, before);
                } else {
                    self.rot.is_stored(request.block);
                }
                (from, call, result.map(|()| DataAnswer::Stored))
            }
        };
        context.runtime.expect(check::room(self));
        if answer.is_ok() {
            let (block, epoch, content) = held;
            let found = context.checks.numbers.held(block, epoch, &content);
            context.runtime.expect(found);
        }
        context.runtime.reply(self.host(), from, call, Response::Data(answer));
    }

    fn order(
        &mut self,
        context: &mut Context<'_>,
        from: Host,
        call: u64,
        order: Order,
    ) -> Option<Result<DataAnswer, Refusal>> {
        let reply = match order {
            Order::FenceNode { .. } | Order::UnfenceNode => {
                let is_fenced = matches!(order, Order::FenceNode { .. });
                self.member.registration_mut().order(context.runtime.monotonic(), is_fenced);
                self.follow_member();
                OrderReply::Done
            }
            // No simulated node has the object tier.
            Order::Adopt { .. } => OrderReply::Done,
            Order::FenceBlocks { .. } if context.runtime.has_bug(InjectedBug::FenceUnanswered) => {
                return None;
            }
            Order::FenceBlocks { blocks } => {
                self.member.registration_mut().fences_blocks(context.runtime.monotonic());
                let before = self.is_fence_off.then(|| self.table.clone());
                let mut lengths = Vec::new();
                for (block, epoch) in blocks {
                    let length = self.table.fence_block(block, epoch);
                    lengths.push(length);
                    context.checks.bytes.fenced(
                        self.slot,
                        context.runtime.life(self.host()),
                        block,
                        length,
                    );
                }
                if let Some(before) = before {
                    self.table = before;
                }
                OrderReply::Fenced(lengths)
            }
            Order::Drop { blocks } => {
                if !context.runtime.has_bug(InjectedBug::DropForgotten) {
                    for (block, last) in blocks {
                        self.drop_block(block, last);
                    }
                }
                OrderReply::Done
            }
            Order::ListBlocks { after, limit } => {
                OrderReply::Blocks(self.table.list(after, limit as usize))
            }
            // No simulated node reaches a store: core's tests simulate the drain of directories.
            Order::Upload(_)
            | Order::ChangeStore { .. }
            | Order::AbortUploads { .. }
            | Order::Restore(_)
            | Order::TakeStore { .. }
            | Order::ListStore { .. } => {
                let why = "this node has no stores".to_owned();
                OrderReply::Refused(Refusal::BadRequest { why })
            }
            Order::Verify { .. } => OrderReply::Verified(Vec::new()),
            Order::Push { moves } => {
                self.push(context, from, call, moves);
                return None;
            }
        };
        Some(Ok(DataAnswer::Order(reply)))
    }
}
