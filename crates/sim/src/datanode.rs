//! The simulated datanode: the shell around the block table that the real one has, over symbolic
//! bytes.

mod damage;
mod member;
mod notices;
mod pace;
mod push;
mod report;

use std::collections::BTreeMap;

use sanderling_core::block_table::{
    BlockTable, StoreAdmission, StoreRequest, WriteAdmission, WriteRequest, WriteTicket,
};
use sanderling_core::catalog::allocated_bytes;
use sanderling_core::datanode::{
    Damages, DrainThrottle, Egress, HeldRead, Member, PushRate, ReportProgress,
};
use sanderling_protocol::order::{HeldBlock, PushMove, Pushed};
use sanderling_protocol::{
    BlockId, Epoch, Instant, Millis, NodeId, Nonce, Order, OrderReply, Refusal, Request, Term, Tier,
};

use self::damage::Rot;
use self::member::member;
use self::notices::CloudSource;
use crate::Broken;
use crate::content::Content;
use crate::event::{DatanodeCall, Purpose, Timer};
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{Ask, DataAnswer, DataAsk, Host, Response, data};
use crate::world::World;

/// One place for datanodes and the process that is in it.
#[derive(Debug)]
pub(crate) struct Datanode {
    /// The term of the namenode that has taken a whole block report last.
    pub(crate) reported_in: Option<Term>,
    pub(crate) member: Member,
    /// What the member is; `None` until it has registered.
    pub(crate) node: Option<NodeId>,
    /// The namenode's process over whose connection it registered.
    connected: Option<u32>,
    /// The block report that is under way.
    report: Option<ReportProgress>,
    damages: Damages,
    pub(crate) table: BlockTable<Content>,
    pub(crate) capacity: [u64; 2],
    pub(crate) used: [u64; 2],
    room: BTreeMap<BlockId, (Tier, u64)>,
    works: BTreeMap<u64, StoreWork>,
    pushes: BTreeMap<u64, PushJob>,
    next_number: u64,
    /// When its own agent saw a notice.
    noticed_at: Option<u64>,
    /// The queue in front of its link.
    egress: Egress,
    /// The notices of its cloud.
    source: CloudSource,
    push_rate: PushRate,
    throttle: DrainThrottle,
    /// Answers that the throttle holds back.
    held: BTreeMap<HeldRead, DelayedResponse>,
    /// Answers in the queue in front of the link.
    leaving: BTreeMap<u64, DelayedResponse>,
    throttle_at: Option<u64>,
    pub(crate) slow_until: u64,
    pub(crate) slow_micros: u64,
    /// Whether fences are acknowledged and not kept: one of the deliberate mistakes.
    pub(crate) is_fence_off: bool,
    pub(crate) rot: Rot,
    /// Block reports so far.
    reports: u32,
    random: Random,
}

/// Bytes on their way into the store.
#[derive(Debug)]
enum StoreWork {
    Write { from: Host, call: u64, ticket: WriteTicket, request: WriteRequest, whole: Content },
    Store { from: Host, call: u64, request: StoreRequest, content: Content },
}

impl StoreWork {
    /// Returns what is held once this is done: a block, its epoch and its bytes.
    fn held(&self) -> (BlockId, Epoch, Content) {
        match self {
            Self::Write { request, whole, .. } => (request.block, request.epoch, whole.clone()),
            Self::Store { request, content, .. } => (request.block, request.epoch, content.clone()),
        }
    }
}

/// An order to push that is not answered yet.
#[derive(Debug)]
struct PushJob {
    from: Host,
    call: u64,
    results: Vec<Option<Result<Pushed, Refusal>>>,
    /// What waits for the link, and whether its push is measured.
    waiting: Vec<Option<(PushMove, Content, bool)>>,
}

/// An answer that is not sent yet.
#[derive(Debug)]
struct DelayedResponse {
    from: Host,
    call: u64,
    answer: Response,
}

/// Bytes per second of every link once the faults have stopped.
pub(crate) const CALM_RATE: u64 = 1 << 30;

/// Time of a call to the namenode.
const CALL_MILLIS: u64 = 1500;

/// Time of one push to the target.
const PUSH_MILLIS: u64 = 2000;

const fn index(tier: Tier) -> usize {
    match tier {
        Tier::Dram => 0,
        Tier::Disk => 1,
        Tier::Object => 2,
    }
}

impl Datanode {
    pub(crate) fn new(plan: &RunPlan, slot: u8) -> Self {
        Self {
            reported_in: None,
            member: member(Nonce(0)),
            node: None,
            connected: None,
            report: None,
            damages: Damages::default(),
            table: BlockTable::default(),
            capacity: [plan.dram_bytes, plan.disk_bytes],
            used: [0; 2],
            room: BTreeMap::new(),
            works: BTreeMap::new(),
            pushes: BTreeMap::new(),
            next_number: 0,
            noticed_at: None,
            egress: Egress::new(Some(plan.link_bytes_per_second)),
            source: CloudSource::new(),
            push_rate: PushRate::new(Instant(0)),
            throttle: DrainThrottle::default(),
            held: BTreeMap::new(),
            leaving: BTreeMap::new(),
            throttle_at: None,
            slow_until: 0,
            slow_micros: 0,
            is_fence_off: false,
            rot: Rot::default(),
            reports: 0,
            random: Random::new(plan.seed, 100 + u64::from(slot)),
        }
    }

    fn wipe(&mut self) {
        let _ = self.table.wipe();
        self.rot = Rot::default();
        self.damages.forget();
        self.throttle.forget();
        self.room.clear();
        self.used = [0; 2];
        self.noticed_at = None;
    }

    /// Accounts a block of that length; refuses what does not fit.
    fn take_room(
        &mut self,
        block: BlockId,
        tier: Tier,
        length: u32,
        is_any: bool,
    ) -> Result<(), Refusal> {
        let bytes = u64::from(allocated_bytes(length));
        let (old_tier, old) = self.room.get(&block).copied().unwrap_or((tier, 0));
        let mut used = self.used;
        used[index(old_tier)] -= old;
        used[index(tier)] += bytes;
        if !is_any && used[index(tier)] > self.capacity[index(tier)] {
            return Err(Refusal::NodeFull { tier: tier.to_string(), bytes });
        }
        self.used = used;
        self.room.insert(block, (tier, bytes));
        Ok(())
    }

    fn drop_block(&mut self, block: BlockId, last: Epoch) {
        let _ = self.table.drop_block(block, last);
        self.throttle.dropped(std::iter::once(block));
        if self.table.stage(block).is_some() {
            return;
        }
        self.rot.is_dropped(block, last);
        if let Some((tier, bytes)) = self.room.remove(&block) {
            self.used[index(tier)] -= bytes;
        }
    }

    /// Brings up to date what depends on the member.
    fn follow_member(&mut self) {
        self.node = self.member.node();
        if self.member.registration().is_fenced() && !self.is_fence_off {
            self.table.fence_node();
        } else {
            self.table.unfence_node();
        }
    }

    /// Its link gets fast.
    pub(crate) fn calm(&mut self) {
        self.slow_until = 0;
        self.egress = Egress::new(Some(CALM_RATE));
    }

    /// Returns the bytes that its blocks take of a tier.
    pub(crate) fn used_bytes(&self, tier: Tier) -> u64 {
        self.used.get(index(tier)).copied().unwrap_or(0)
    }

    /// Returns how a block is held.
    pub(crate) fn held(&self, block: BlockId) -> Option<HeldBlock> {
        let found = self.table.list(BlockId(block.0 - 1), 1).pop();
        found.filter(|held| held.block == block)
    }
}

impl World {
    pub(crate) fn datanode_start(&mut self, slot: u8) {
        let datanode = &mut self.datanodes[usize::from(slot)];
        datanode.wipe();
        datanode.member = member(Nonce(datanode.random.next()));
        (datanode.connected, datanode.report) = (None, None);
        datanode.damages = Damages::default();
        datanode.works.clear();
        datanode.pushes.clear();
        let rate = if self.runtime.is_calm() {
            CALM_RATE
        } else {
            self.runtime.plan().link_bytes_per_second
        };
        datanode.egress = Egress::new(Some(rate));
        datanode.push_rate = PushRate::new(self.runtime.monotonic());
        datanode.throttle = DrainThrottle::default();
        datanode.source = CloudSource::new();
        datanode.held.clear();
        datanode.leaving.clear();
        datanode.throttle_at = None;
        datanode.follow_member();
        self.datanode_step(slot);
    }

    fn datanode_call(&mut self, slot: u8, request: Request, call: DatanodeCall) {
        let purpose = Purpose::Datanode(slot, call);
        self.runtime.call(
            Host::Datanode(slot),
            Host::Namenode,
            Ask::Meta(request),
            CALL_MILLIS,
            purpose,
        );
    }

    pub(crate) fn datanode_timer(&mut self, slot: u8, timer: Timer) {
        match timer {
            Timer::Round => self.datanode_step(slot),
            Timer::Damage => self.datanode_tell_damage_again(slot),
            Timer::Work(number) => self.datanode_finish(slot, number),
            Timer::Send(number) => self.datanode_send_pushes(slot, number),
            Timer::Look => {
                self.datanodes[usize::from(slot)].source.is_look_set = false;
                self.datanode_look(slot);
            }
            Timer::Throttle => {
                self.datanodes[usize::from(slot)].throttle_at = None;
                self.datanode_release(slot);
            }
            Timer::Left(number) => self.datanode_left(slot, number),
            _ => {}
        }
    }

    pub(crate) fn datanode_answered(
        &mut self,
        slot: u8,
        call: DatanodeCall,
        answer: Option<Response>,
    ) {
        match call {
            DatanodeCall::Register(asked) => self.datanode_registered(slot, asked, answer),
            DatanodeCall::Heartbeat(asked) => self.datanode_beaten(slot, asked, answer),
            DatanodeCall::Held => self.datanode_held(slot, answer),
            DatanodeCall::Expected => self.datanode_expected(slot, answer),
            DatanodeCall::Push { job, index, block, length, is_counted } => {
                let result = match data(answer) {
                    Some(Ok(_)) => Ok(Pushed { length }),
                    Some(Err(refusal)) => Err(refusal),
                    None => {
                        let why = "the target could not be reached".to_owned();
                        Err(Refusal::RetryAfter { after: Millis(200), why })
                    }
                };
                self.datanode_pushed(slot, (job, index), (block, is_counted), result);
            }
            DatanodeCall::Say { said, is_round } => {
                self.datanode_said(slot, *said, answer);
                if is_round {
                    self.datanode_repeated(slot);
                }
            }
            DatanodeCall::Act(act) => self.datanode_acted(slot, *act, answer),
            DatanodeCall::Damage(report) => self.datanode_told_damage(slot, &report, answer),
        }
    }

    pub(crate) fn datanode_ask(
        &mut self,
        slot: u8,
        from: Host,
        call: u64,
        node: NodeId,
        ask: DataAsk,
    ) {
        let here = self.datanodes[usize::from(slot)].node;
        if here != Some(node)
            && (!self.runtime.is_broken(Broken::StaleIncarnation) || here.is_none())
        {
            let here = here.unwrap_or_default();
            let refusal = Refusal::WrongNode { here, asked: node };
            return self.runtime.reply(
                Host::Datanode(slot),
                from,
                call,
                Response::Data(Err(refusal)),
            );
        }
        let answer = match ask {
            DataAsk::Hello => Some(Ok(DataAnswer::Hello)),
            DataAsk::Write(request, content) => {
                self.datanode_write(slot, from, call, request, content)
            }
            DataAsk::Read { block, epoch, offset, bytes } => {
                let read = self.datanode_read(slot, block, epoch, offset, bytes);
                self.datanode_pace(
                    slot,
                    DelayedResponse { from, call, answer: Response::Data(read) },
                );
                None
            }
            DataAsk::Store(request, content) => {
                self.datanode_store(slot, from, call, request, content)
            }
            DataAsk::Order(order) => self.datanode_order(slot, from, call, order),
        };
        if let Some(answer) = answer {
            self.runtime.reply(Host::Datanode(slot), from, call, Response::Data(answer));
        }
        self.datanode_tell_damage(slot);
    }

    fn datanode_read(
        &mut self,
        slot: u8,
        block: BlockId,
        epoch: Epoch,
        offset: u32,
        bytes: u32,
    ) -> Result<DataAnswer, Refusal> {
        let is_served = self.runtime.is_broken(Broken::DamageServed);
        let datanode = &mut self.datanodes[usize::from(slot)];
        let is_rotten = if is_served { datanode.rot.has(block) } else { datanode.meet(block) };
        let epoch =
            if self.runtime.is_broken(Broken::ReadIgnoresEpoch) { Epoch(u32::MAX) } else { epoch };
        let found = datanode.table.admit_read(block, epoch, u64::from(offset), bytes)?;
        let content = found.map(|whole| whole.part(offset, bytes)).unwrap_or_default();
        let content = if is_rotten { content.rotten() } else { content };
        let held = datanode.held(block).map_or(Epoch(0), |held| held.epoch);
        // Copies that were made ahead of a notice say nothing before it comes.
        let is_leaving =
            datanode.table.is_fenced() && datanode.throttle.is_pushed(std::iter::once(block));
        Ok(DataAnswer::Bytes { content, held, is_leaving })
    }

    fn datanode_write(
        &mut self,
        slot: u8,
        from: Host,
        call: u64,
        request: WriteRequest,
        content: Content,
    ) -> Option<Result<DataAnswer, Refusal>> {
        let datanode = &mut self.datanodes[usize::from(slot)];
        match datanode.table.admit_write(&request) {
            Err(refusal) => Some(Err(refusal)),
            Ok(WriteAdmission::AlreadyThere { bytes, .. }) => {
                let offset = u32::try_from(request.offset).expect("admitted");
                if bytes.part(offset, request.bytes) == content {
                    Some(Ok(DataAnswer::Written))
                } else {
                    Some(Err(datanode.table.not_at_end(&request)))
                }
            }
            Ok(WriteAdmission::Append { ticket, bytes }) => {
                let whole = bytes.unwrap_or_default().with(&content);
                let work = StoreWork::Write { from, call, ticket, request, whole };
                self.datanode_begin(slot, work);
                None
            }
        }
    }

    fn datanode_store(
        &mut self,
        slot: u8,
        from: Host,
        call: u64,
        request: StoreRequest,
        content: Content,
    ) -> Option<Result<DataAnswer, Refusal>> {
        let datanode = &mut self.datanodes[usize::from(slot)];
        match datanode.table.admit_store(&request) {
            Err(refusal) => Some(Err(refusal)),
            Ok(StoreAdmission::AlreadyThere { bytes }) if bytes == content => {
                Some(Ok(DataAnswer::Stored))
            }
            Ok(StoreAdmission::AlreadyThere { .. }) => {
                let (block, expected, computed) = (request.block, 0, 1);
                Some(Err(Refusal::ChecksumMismatch { block, expected, computed }))
            }
            Ok(StoreAdmission::Copy) => {
                self.datanode_begin(slot, StoreWork::Store { from, call, request, content });
                None
            }
        }
    }

    /// Copies bytes for a while.
    fn datanode_begin(&mut self, slot: u8, work: StoreWork) {
        let now = self.runtime.now();
        let copy_max = self.runtime.plan().copy_micros_max;
        let datanode = &mut self.datanodes[usize::from(slot)];
        datanode.next_number += 1;
        let number = datanode.next_number;
        let slow = if datanode.slow_until > now { datanode.slow_micros } else { 0 };
        let micros = datanode.random.below(copy_max + 1) + slow;
        datanode.works.insert(number, work);
        if micros == 0 {
            self.datanode_finish(slot, number);
        } else {
            self.runtime.set_timer(Host::Datanode(slot), micros, Timer::Work(number));
        }
    }

    fn datanode_finish(&mut self, slot: u8, number: u64) {
        let is_any = self.runtime.is_broken(Broken::CapacityIgnored);
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(work) = datanode.works.remove(&number) else { return };
        let held = work.held();
        let (from, call, answer) = match work {
            StoreWork::Write { from, call, ticket, request, whole } => {
                let (tier, length) = (ticket.tier(), whole.bytes());
                let before = datanode.room.get(&request.block).copied();
                let result = match datanode.take_room(request.block, tier, length, is_any) {
                    Err(refusal) => {
                        datanode.table.abandon_write(ticket);
                        Err(refusal)
                    }
                    Ok(()) => {
                        let wrote = datanode.table.wrote(ticket, whole);
                        if wrote.is_err() {
                            datanode.give_back(request.block, before);
                        }
                        wrote
                    }
                };
                if result.is_ok() {
                    self.check_write(slot, from, &request, length);
                }
                (from, call, result.map(|_| DataAnswer::Written))
            }
            StoreWork::Store { from, call, request, content } => {
                let before = datanode.room.get(&request.block).copied();
                let room = datanode.take_room(request.block, request.tier, request.bytes, is_any);
                let result = room.and_then(|()| datanode.table.stored(&request, content));
                if result.is_err() {
                    datanode.give_back(request.block, before);
                } else {
                    datanode.rot.is_stored(request.block);
                }
                (from, call, result.map(|()| DataAnswer::Stored))
            }
        };
        self.check_room(slot);
        if answer.is_ok() {
            let (block, epoch, content) = held;
            let found = self.checks.numbers.held(block, epoch, &content);
            self.runtime.expect(found);
        }
        self.runtime.reply(Host::Datanode(slot), from, call, Response::Data(answer));
    }

    fn datanode_order(
        &mut self,
        slot: u8,
        from: Host,
        call: u64,
        order: Order,
    ) -> Option<Result<DataAnswer, Refusal>> {
        let datanode = &mut self.datanodes[usize::from(slot)];
        let reply = match order {
            Order::FenceNode { .. } | Order::UnfenceNode => {
                let is_fenced = matches!(order, Order::FenceNode { .. });
                datanode.member.registration_mut().order(self.runtime.monotonic(), is_fenced);
                datanode.follow_member();
                OrderReply::Done
            }
            // No simulated node has the object tier.
            Order::Adopt { .. } => OrderReply::Done,
            Order::FenceBlocks { blocks } => {
                let before = datanode.is_fence_off.then(|| datanode.table.clone());
                let mut lengths = Vec::new();
                for (block, epoch) in blocks {
                    let length = datanode.table.fence_block(block, epoch);
                    lengths.push(length);
                    self.checks.bytes.fenced(
                        slot,
                        self.runtime.life(Host::Datanode(slot)),
                        block,
                        length,
                    );
                }
                if let Some(before) = before {
                    datanode.table = before;
                }
                OrderReply::Fenced(lengths)
            }
            Order::Drop { blocks } => {
                if !self.runtime.is_broken(Broken::DropForgotten) {
                    for (block, last) in blocks {
                        datanode.drop_block(block, last);
                    }
                }
                OrderReply::Done
            }
            Order::ListBlocks { after, limit } => {
                OrderReply::Blocks(datanode.table.list(after, limit as usize))
            }
            Order::Verify { .. } => OrderReply::Verified(Vec::new()),
            Order::Push { moves } => {
                self.datanode_push(slot, from, call, moves);
                return None;
            }
        };
        Some(Ok(DataAnswer::Order(reply)))
    }
}

impl Datanode {
    fn give_back(&mut self, block: BlockId, before: Option<(Tier, u64)>) {
        // A drop may have come between and given everything back.
        let Some((tier, bytes)) = self.room.remove(&block) else { return };
        self.used[index(tier)] -= bytes;
        let is_here = self.table.stage(block).is_some();
        if let Some((tier, bytes)) = before.filter(|_| is_here) {
            self.used[index(tier)] += bytes;
            self.room.insert(block, (tier, bytes));
        }
    }
}
