//! The simulated datanode: the shell around the block table that the real one has, over symbolic
//! bytes.

use std::collections::BTreeMap;

use sanderling_core::catalog::allocated_bytes;
use sanderling_core::fence::{
    BlockTable, StoreAdmission, StoreRequest, WriteAdmission, WriteRequest, WriteTicket,
};
use sanderling_protocol::message::{Heartbeat, Register};
use sanderling_protocol::node::{Load, Policy, TierCapacity};
use sanderling_protocol::order::{HeldBlock, PushMove, Pushed};
use sanderling_protocol::{
    BlockId, Epoch, Millis, NodeId, NodeSelector, Nonce, Order, OrderReply, Refusal, Reply,
    Request, Tier,
};

use crate::Broken;
use crate::content::Content;
use crate::event::{DatanodeCall, Purpose, Timer};
use crate::plan::Plan;
use crate::random::Random;
use crate::wire::{Answer, Ask, DataAnswer, DataAsk, Place, address, data, meta};
use crate::world::World;

/// One place for datanodes and the process that is in it.
#[derive(Debug)]
pub(crate) struct Datanode {
    pub(crate) nonce: Nonce,
    /// `None` until it has registered.
    pub(crate) node: Option<NodeId>,
    pub(crate) table: BlockTable<Content>,
    pub(crate) capacity: [u64; 2],
    pub(crate) used: [u64; 2],
    room: BTreeMap<BlockId, (Tier, u64)>,
    works: BTreeMap<u64, Work>,
    pushes: BTreeMap<u64, PushJob>,
    next_number: u64,
    policy: Policy,
    fence_orders: u64,
    heartbeat: Millis,
    link_free_at: u64,
    has_pushed: bool,
    pub(crate) slow_until: u64,
    pub(crate) slow_micros: u64,
    /// Whether fences are acknowledged and not kept: one of the deliberate mistakes.
    pub(crate) is_fence_off: bool,
    random: Random,
}

/// Bytes on their way into the store.
#[derive(Debug)]
enum Work {
    Write { from: Place, call: u64, ticket: WriteTicket, request: WriteRequest, whole: Content },
    Store { from: Place, call: u64, request: StoreRequest, content: Content },
}

/// An order to push that is not answered yet.
#[derive(Debug)]
struct PushJob {
    from: Place,
    call: u64,
    results: Vec<Option<Result<Pushed, Refusal>>>,
    waiting: Vec<Option<(PushMove, Content)>>,
}

/// Time of a call to the namenode.
const CALL_MILLIS: u64 = 1500;

/// Time of one push to the target.
const PUSH_MILLIS: u64 = 2000;

/// Time between two block reports: shorter than in real life, so that races with them show.
const REPORT_MICROS: u64 = 1_500_000;

/// How long a node whose notice has passed waits before it joins again.
const REJOIN_MICROS: u64 = 3_000_000;

const fn index(tier: Tier) -> usize {
    match tier {
        Tier::Dram => 0,
        Tier::Disk => 1,
        Tier::Object => 2,
    }
}

impl Datanode {
    pub(crate) fn new(plan: &Plan, slot: u8) -> Self {
        Self {
            nonce: Nonce(0),
            node: None,
            table: BlockTable::default(),
            capacity: [plan.dram_bytes, plan.disk_bytes],
            used: [0; 2],
            room: BTreeMap::new(),
            works: BTreeMap::new(),
            pushes: BTreeMap::new(),
            next_number: 0,
            policy: Policy::Active,
            fence_orders: 0,
            heartbeat: Millis(500),
            link_free_at: 0,
            has_pushed: false,
            slow_until: 0,
            slow_micros: 0,
            is_fence_off: false,
            random: Random::new(plan.seed, 100 + u64::from(slot)),
        }
    }

    fn wipe(&mut self) {
        let _ = self.table.wipe();
        self.room.clear();
        self.used = [0; 2];
        self.node = None;
        self.policy = Policy::Active;
        self.fence_orders += 1;
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
        if self.table.stage(block).is_some() {
            return;
        }
        if let Some((tier, bytes)) = self.room.remove(&block) {
            self.used[index(tier)] -= bytes;
        }
    }

    fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        if policy.takes_blocks() || self.is_fence_off {
            self.table.unfence_node();
        } else {
            self.table.fence_node();
        }
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
        datanode.works.clear();
        datanode.pushes.clear();
        datanode.nonce = Nonce(datanode.random.next());
        datanode.link_free_at = 0;
        datanode.has_pushed = false;
        self.datanode_register(slot);
    }

    fn datanode_register(&mut self, slot: u8) {
        let egress = self.plan.background.tells_egress.then_some(self.plan.link_bytes_per_second);
        let datanode = &self.datanodes[usize::from(slot)];
        let larger = if self.broken == Some(Broken::CapacityIgnored) { 1000 } else { 1 };
        let tiers = [Tier::Dram, Tier::Disk]
            .into_iter()
            .map(|tier| TierCapacity { tier, bytes: datanode.capacity[index(tier)] * larger })
            .filter(|tier| tier.bytes > 0)
            .collect();
        let register = Register {
            cluster: None,
            nonce: datanode.nonce,
            name: String::new(),
            address: address(slot),
            http_address: String::new(),
            host: address(slot),
            tiers,
            notice_min: self.plan.notice_millis_min.map(Millis),
            egress_bytes_per_second: egress,
        };
        let fence_orders = datanode.fence_orders;
        self.datanode_call(
            slot,
            Request::Register(register),
            DatanodeCall::Register { fence_orders },
        );
    }

    fn datanode_call(&mut self, slot: u8, request: Request, call: DatanodeCall) {
        let purpose = Purpose::Datanode(slot, call);
        self.call(Place::Datanode(slot), Place::Namenode, Ask::Meta(request), CALL_MILLIS, purpose);
    }

    fn datanode_beat(&mut self, slot: u8) {
        let datanode = &self.datanodes[usize::from(slot)];
        let Some(node) = datanode.node else { return self.datanode_register(slot) };
        let measured = if datanode.has_pushed { self.plan.link_bytes_per_second } else { 0 };
        let load = Load {
            blocks: datanode.table.blocks(),
            pushed_bytes_per_second: measured,
            dram_used_bytes: datanode.used[0],
            disk_used_bytes: datanode.used[1],
            ..Load::default()
        };
        let heartbeat = Heartbeat { node, nonce: datanode.nonce, load };
        let fence_orders = datanode.fence_orders;
        self.datanode_call(
            slot,
            Request::Heartbeat(heartbeat),
            DatanodeCall::Heartbeat { fence_orders },
        );
    }

    pub(crate) fn datanode_report(&mut self, slot: u8) {
        let datanode = &self.datanodes[usize::from(slot)];
        let Some(node) = datanode.node else { return };
        let blocks = datanode.table.list(BlockId(0), usize::MAX);
        if !blocks.is_empty() {
            let request = Request::BlockReport { node, blocks: blocks.clone() };
            self.datanode_call(slot, request, DatanodeCall::Report(blocks));
        }
    }

    pub(crate) fn datanode_timer(&mut self, slot: u8, timer: Timer) {
        match timer {
            Timer::Heartbeat => self.datanode_beat(slot),
            Timer::Report => {
                self.datanode_report(slot);
                self.set_timer(Place::Datanode(slot), REPORT_MICROS, Timer::Report);
            }
            Timer::Work(number) => self.datanode_finish(slot, number),
            Timer::Send(number) => self.datanode_send_pushes(slot, number),
            _ => {}
        }
    }

    pub(crate) fn datanode_answered(
        &mut self,
        slot: u8,
        call: DatanodeCall,
        answer: Option<Answer>,
    ) {
        let place = Place::Datanode(slot);
        match call {
            DatanodeCall::Register { fence_orders } => {
                self.datanode_registered(slot, fence_orders, answer);
            }
            DatanodeCall::Heartbeat { fence_orders } => {
                let datanode = &mut self.datanodes[usize::from(slot)];
                match meta(answer) {
                    Some(Ok(Reply::Heartbeat(reply))) => {
                        if datanode.fence_orders == fence_orders {
                            datanode.set_policy(reply.policy);
                        }
                        let micros = datanode.heartbeat.0 * 1000;
                        self.set_timer(place, micros, Timer::Heartbeat);
                    }
                    Some(Err(Refusal::NodeGone { .. })) => self.datanode_gone(slot),
                    _ => self.datanode_register(slot),
                }
            }
            DatanodeCall::Report(reported) => {
                if let Some(Ok(Reply::Drop { blocks })) = meta(answer) {
                    self.datanode_drop_reported(slot, &reported, &blocks);
                }
            }
            DatanodeCall::Push { job, index, length } => {
                let result = match data(answer) {
                    Some(Ok(_)) => Ok(Pushed { length }),
                    Some(Err(refusal)) => Err(refusal),
                    None => {
                        let why = "the target could not be reached".to_owned();
                        Err(Refusal::RetryAfter { after: Millis(200), why })
                    }
                };
                self.datanode_pushed(slot, job, index, result);
            }
            DatanodeCall::Notice => {}
        }
    }

    fn datanode_registered(&mut self, slot: u8, fence_orders: u64, answer: Option<Answer>) {
        let place = Place::Datanode(slot);
        let datanode = &mut self.datanodes[usize::from(slot)];
        match meta(answer) {
            Some(Ok(Reply::Registered(registered))) => {
                datanode.heartbeat = registered.heartbeat;
                let is_new = datanode.node.is_none();
                if !is_new && datanode.node != Some(registered.node) {
                    // Known by another id now: what is here belongs to nobody.
                    datanode.wipe();
                }
                datanode.node = Some(registered.node);
                if datanode.fence_orders == fence_orders || is_new {
                    datanode.set_policy(registered.policy);
                }
                let micros = datanode.heartbeat.0 * 1000;
                self.set_timer(place, micros, Timer::Heartbeat);
                if is_new {
                    self.set_timer(place, 100, Timer::Report);
                }
            }
            Some(Err(Refusal::NodeGone { .. })) => self.datanode_gone(slot),
            _ => self.set_timer(place, 250_000, Timer::Heartbeat),
        }
    }

    /// The namenode gave this incarnation up: another begins, unless the machine is about to go.
    fn datanode_gone(&mut self, slot: u8) {
        let datanode = &mut self.datanodes[usize::from(slot)];
        let was_noticed = datanode.policy != Policy::Active || datanode.table.is_fenced();
        datanode.wipe();
        datanode.nonce = Nonce(datanode.random.next());
        if was_noticed {
            // What is placed on it now would go with it.
            self.set_timer(Place::Datanode(slot), REJOIN_MICROS, Timer::Heartbeat);
        } else {
            self.datanode_register(slot);
        }
    }

    fn datanode_drop_reported(&mut self, slot: u8, reported: &[HeldBlock], unwanted: &[BlockId]) {
        if self.broken == Some(Broken::DropForgotten) {
            return;
        }
        let datanode = &mut self.datanodes[usize::from(slot)];
        for reported in reported.iter().filter(|held| unwanted.contains(&held.block)) {
            // What came since the report was made is not what the namenode spoke of.
            let held = datanode.held(reported.block);
            if held.is_some_and(|held| held.epoch == reported.epoch) {
                datanode.drop_block(reported.block, reported.epoch);
            }
        }
    }

    pub(crate) fn datanode_ask(
        &mut self,
        slot: u8,
        from: Place,
        call: u64,
        node: NodeId,
        ask: DataAsk,
    ) {
        let here = self.datanodes[usize::from(slot)].node;
        if here != Some(node) && (self.broken != Some(Broken::StaleIncarnation) || here.is_none()) {
            let here = here.unwrap_or_default();
            let refusal = Refusal::WrongNode { here, asked: node };
            return self.reply(Place::Datanode(slot), from, call, Answer::Data(Err(refusal)));
        }
        let answer = match ask {
            DataAsk::Hello => Some(Ok(DataAnswer::Hello)),
            DataAsk::Write(request, content) => {
                self.datanode_write(slot, from, call, request, content)
            }
            DataAsk::Read { block, epoch, offset, bytes } => {
                Some(self.datanode_read(slot, block, epoch, offset, bytes))
            }
            DataAsk::Store(request, content) => {
                self.datanode_store(slot, from, call, request, content)
            }
            DataAsk::Order(order) => self.datanode_order(slot, from, call, order),
        };
        if let Some(answer) = answer {
            self.reply(Place::Datanode(slot), from, call, Answer::Data(answer));
        }
    }

    fn datanode_read(
        &mut self,
        slot: u8,
        block: BlockId,
        epoch: Epoch,
        offset: u32,
        bytes: u32,
    ) -> Result<DataAnswer, Refusal> {
        let datanode = &self.datanodes[usize::from(slot)];
        let epoch =
            if self.broken == Some(Broken::ReadIgnoresEpoch) { Epoch(u32::MAX) } else { epoch };
        let found = datanode.table.admit_read(block, epoch, u64::from(offset), bytes)?;
        let content = found.map(|whole| whole.part(offset, bytes)).unwrap_or_default();
        let held = datanode.held(block).map_or(Epoch(0), |held| held.epoch);
        Ok(DataAnswer::Bytes { content, held })
    }

    fn datanode_write(
        &mut self,
        slot: u8,
        from: Place,
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
                let work = Work::Write { from, call, ticket, request, whole };
                self.datanode_begin(slot, work);
                None
            }
        }
    }

    fn datanode_store(
        &mut self,
        slot: u8,
        from: Place,
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
                self.datanode_begin(slot, Work::Store { from, call, request, content });
                None
            }
        }
    }

    /// Copies bytes for a while.
    fn datanode_begin(&mut self, slot: u8, work: Work) {
        let now = self.now;
        let copy_max = self.plan.copy_micros_max;
        let datanode = &mut self.datanodes[usize::from(slot)];
        datanode.next_number += 1;
        let number = datanode.next_number;
        let slow = if datanode.slow_until > now { datanode.slow_micros } else { 0 };
        let micros = datanode.random.below(copy_max + 1) + slow;
        datanode.works.insert(number, work);
        if micros == 0 {
            self.datanode_finish(slot, number);
        } else {
            self.set_timer(Place::Datanode(slot), micros, Timer::Work(number));
        }
    }

    fn datanode_finish(&mut self, slot: u8, number: u64) {
        let is_any = self.broken == Some(Broken::CapacityIgnored);
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(work) = datanode.works.remove(&number) else { return };
        let (from, call, answer) = match work {
            Work::Write { from, call, ticket, request, whole } => {
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
            Work::Store { from, call, request, content } => {
                let before = datanode.room.get(&request.block).copied();
                let room = datanode.take_room(request.block, request.tier, request.bytes, is_any);
                let result = room.and_then(|()| datanode.table.stored(&request, content));
                if result.is_err() {
                    datanode.give_back(request.block, before);
                }
                (from, call, result.map(|()| DataAnswer::Stored))
            }
        };
        self.check_room(slot);
        self.reply(Place::Datanode(slot), from, call, Answer::Data(answer));
    }

    fn datanode_order(
        &mut self,
        slot: u8,
        from: Place,
        call: u64,
        order: Order,
    ) -> Option<Result<DataAnswer, Refusal>> {
        let datanode = &mut self.datanodes[usize::from(slot)];
        let reply = match order {
            Order::FenceNode { .. } => {
                datanode.fence_orders += 1;
                if !datanode.is_fence_off {
                    datanode.table.fence_node();
                }
                OrderReply::Done
            }
            Order::UnfenceNode => {
                datanode.fence_orders += 1;
                datanode.table.unfence_node();
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
                        self.lives[Place::Datanode(slot).index()],
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
                if self.broken != Some(Broken::DropForgotten) {
                    for (block, last) in blocks {
                        datanode.drop_block(block, last);
                    }
                }
                OrderReply::Done
            }
            Order::ListBlocks { after, limit } => {
                OrderReply::Blocks(datanode.table.list(after, limit as usize))
            }
            Order::Push { moves } => {
                self.datanode_push(slot, from, call, moves);
                return None;
            }
        };
        Some(Ok(DataAnswer::Order(reply)))
    }

    /// Fences each block and sends it to its target.
    fn datanode_push(&mut self, slot: u8, from: Place, call: u64, moves: Vec<PushMove>) {
        let life = self.lives[Place::Datanode(slot).index()];
        let datanode = &mut self.datanodes[usize::from(slot)];
        let mut results = vec![None; moves.len()];
        let mut waiting = vec![None; moves.len()];
        let mut bytes_in_all = 0;
        let mut found = Ok(());
        for (index, one) in moves.into_iter().enumerate() {
            found = found.and_then(|()| self.checks.blocks.pushed(&one, self.namenode.catalog()));
            let before = datanode.is_fence_off.then(|| datanode.table.clone());
            match datanode.table.admit_push(one.block, one.from_epoch) {
                Err(refusal) => results[index] = Some(Err(refusal)),
                Ok(admitted) => {
                    self.checks.bytes.fenced(slot, life, one.block, admitted.length);
                    match admitted.bytes {
                        None => results[index] = Some(Ok(Pushed { length: admitted.length })),
                        Some(content) => {
                            let content = content.part(0, content.bytes().min(one.bytes_max));
                            bytes_in_all += u64::from(content.bytes());
                            waiting[index] = Some((one, content));
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
        self.expect(found);
        let datanode = &mut self.datanodes[usize::from(slot)];
        datanode.has_pushed |= bytes_in_all > 0;
        datanode.pushes.insert(number, PushJob { from, call, results, waiting });
        let rate = if self.is_calm { 1 << 30 } else { self.plan.link_bytes_per_second };
        let begin = datanode.link_free_at.max(self.now);
        datanode.link_free_at = begin + bytes_in_all * 1_000_000 / rate;
        let micros = datanode.link_free_at - self.now;
        self.set_timer(Place::Datanode(slot), micros, Timer::Send(number));
    }

    fn datanode_send_pushes(&mut self, slot: u8, job: u64) {
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(push) = datanode.pushes.get_mut(&job) else { return };
        let waiting = std::mem::take(&mut push.waiting);
        for (index, one) in waiting.into_iter().enumerate() {
            let Some((one, content)) = one else { continue };
            let Some(target) = Place::at(&one.address) else { continue };
            let length = content.bytes();
            let request = StoreRequest {
                block: one.block,
                epoch: one.to_epoch,
                tier: one.tier,
                bytes: length,
            };
            let purpose = Purpose::Datanode(slot, DatanodeCall::Push { job, index, length });
            let ask = Ask::Data(one.to, DataAsk::Store(request, content));
            self.call(Place::Datanode(slot), target, ask, PUSH_MILLIS, purpose);
        }
        self.datanode_answer_push(slot, job);
    }

    fn datanode_pushed(
        &mut self,
        slot: u8,
        job: u64,
        index: usize,
        result: Result<Pushed, Refusal>,
    ) {
        let datanode = &mut self.datanodes[usize::from(slot)];
        if let Some(push) = datanode.pushes.get_mut(&job) {
            push.results[index] = Some(result);
        }
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
        let answer = Answer::Data(Ok(DataAnswer::Order(OrderReply::Pushed(results))));
        self.reply(Place::Datanode(slot), push.from, push.call, answer);
    }

    /// The machine's own agent tells the namenode of a notice.
    pub(crate) fn datanode_own_notice(&mut self, slot: u8, deadline_millis: u64) {
        let Some(node) = self.datanodes[usize::from(slot)].node else { return };
        let request = Request::Notice {
            node: NodeSelector::from(node),
            deadline_millis: deadline_millis.cast_signed(),
            reason: "sigterm".to_owned(),
        };
        self.datanode_call(slot, request, DatanodeCall::Notice);
    }

    /// The machine's own agent tells the namenode that its cloud recommends to leave it.
    pub(crate) fn datanode_own_risk(&mut self, slot: u8) {
        let Some(node) = self.datanodes[usize::from(slot)].node else { return };
        let (node, reason) = (NodeSelector::from(node), "rebalance recommendation".to_owned());
        let request = Request::Recommend { node, reason, is_withdrawn: false };
        self.datanode_call(slot, request, DatanodeCall::Notice);
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
