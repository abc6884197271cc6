//! The simulated datanode: the shell around the block table that the real one has, over symbolic
//! bytes.

mod bit_rot;
mod cloud;
mod damage;
mod member;
mod notices;
mod pace;
mod push;
mod report;
mod serve;

use std::collections::BTreeMap;

use sanderling_core::Mechanism;
use sanderling_core::block_table::{BlockTable, StoreRequest, WriteRequest, WriteTicket};
use sanderling_core::catalog::allocated_bytes;
use sanderling_core::datanode::{
    Damages, DrainThrottle, Egress, HeldRead, LatestLeader, MemberOptions, NodeMembership,
    PushRate, PushTargets, ReportProgress, StartLimit,
};
use sanderling_protocol::order::{Damage, HeldBlock, PushMove, Pushed};
use sanderling_protocol::{
    BlockId, Epoch, Instant, LogPosition, Millis, NodeId, Nonce, Refusal, Term, Tier,
};

use self::bit_rot::Rot;
use self::cloud::CloudSource;
use crate::InjectedBug;
use crate::content::Content;
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{Host, Response};

/// One place for datanodes and the process that is in it.
#[derive(Debug)]
pub(crate) struct Datanode {
    slot: u8,
    /// The term of the namenode that has taken a whole block report last.
    reported_in: Option<Term>,
    member: NodeMembership,
    /// What the member is; `None` until it has registered.
    node: Option<NodeId>,
    /// The namenode's process over whose connection it registered.
    connected: Option<u32>,
    /// The block report that is under way.
    report: Option<ReportProgress>,
    damages: Damages,
    table: BlockTable<Content>,
    capacity: [u64; 2],
    used: [u64; 2],
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
    push_targets: PushTargets,
    throttle: DrainThrottle,
    /// Answers that the throttle holds back.
    held: BTreeMap<HeldRead, DelayedResponse>,
    /// Answers in the queue in front of the link.
    leaving: BTreeMap<u64, DelayedResponse>,
    throttle_at: Option<u64>,
    slow_until: u64,
    slow_micros: u64,
    /// Which leader's orders count.
    latest_leader: LatestLeader,
    /// Whether fences are acknowledged and not kept: one of the injected bugs.
    is_fence_off: bool,
    rot: Rot,
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

/// Bytes per second of every link once the faults have stopped. 1 GiB/s: the slow links that a plan
/// drew would otherwise stretch the time until everything has settled.
pub(crate) const CALM_RATE: u64 = 1 << 30;

const fn index(tier: Tier) -> usize {
    match tier {
        Tier::Dram => 0,
        Tier::Disk => 1,
        Tier::Object => 2,
    }
}

impl Datanode {
    /// `bug`: one of the injected bugs, of which a fence that is not kept is part of its state.
    pub(crate) fn new(plan: &RunPlan, bug: Option<InjectedBug>, slot: u8) -> Self {
        Self {
            slot,
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
            push_targets: PushTargets::default(),
            throttle: DrainThrottle::default(),
            held: BTreeMap::new(),
            leaving: BTreeMap::new(),
            throttle_at: None,
            slow_until: 0,
            slow_micros: 0,
            latest_leader: LatestLeader::default(),
            is_fence_off: bug == Some(InjectedBug::FenceOff),
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
        self.dropped(block, last);
    }

    /// Drops a block that a report named at an epoch, unless it has come anew since.
    fn drop_block_at(&mut self, block: BlockId, epoch: Epoch) {
        let was_there = self.table.stage(block).is_some();
        let _ = self.table.drop_block_at(block, epoch);
        if was_there && self.table.stage(block).is_none() {
            self.dropped(block, epoch);
        }
    }

    /// Brings up to date what depends on a block that was dropped, if it was.
    fn dropped(&mut self, block: BlockId, last: Epoch) {
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

    /// Gives the machine other room than the plan has.
    pub(crate) const fn with_capacity(mut self, capacity: [u64; 2]) -> Self {
        self.capacity = capacity;
        self
    }

    /// Its link gets fast.
    pub(crate) fn calm(&mut self) {
        self.slow_until = 0;
        self.egress = Egress::new(Some(CALM_RATE));
    }

    pub(crate) const fn host(&self) -> Host {
        Host::Datanode(self.slot)
    }

    pub(crate) const fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Returns the term of the namenode that has taken a whole block report last.
    pub(crate) const fn reported_in(&self) -> Option<Term> {
        self.reported_in
    }

    /// Returns the last position of the log that the namenode has sent to it.
    pub(crate) fn log_position(&self) -> Option<LogPosition> {
        self.member.log().seen()
    }

    /// Returns when its own agent first had a notice for the namenode.
    pub(crate) const fn noticed_at(&self) -> Option<u64> {
        self.noticed_at
    }

    /// Lets copies take longer until a time.
    pub(crate) const fn slow_disk(&mut self, until: u64, micros: u64) {
        (self.slow_until, self.slow_micros) = (until, micros);
    }

    /// Returns all blocks that it holds.
    pub(crate) fn blocks(&self) -> Vec<HeldBlock> {
        self.table.list(BlockId(0), usize::MAX)
    }

    /// Returns the first bytes of a block at an epoch, as a reader would get them.
    ///
    /// # Errors
    /// What the reader would be refused with.
    pub(crate) fn peek(
        &self,
        block: BlockId,
        epoch: Epoch,
        length: u32,
    ) -> Result<Option<Content>, Refusal> {
        let found = self.table.admit_read(block, epoch, 0, length)?;
        Ok(found.map(|whole| whole.part(0, length)))
    }

    /// Returns what is wrong with a block that it must hold, whether or not it has noticed.
    pub(crate) fn damage_of(&self, expected: &HeldBlock) -> Option<Damage> {
        self.table.lacks(expected).or(self.rot.damage_of(expected.block))
    }

    /// Returns whether something has happened to a block since the process began.
    pub(crate) fn was_ever_hurt(&self, block: BlockId) -> bool {
        self.rot.was_ever_hurt(block)
    }

    /// Returns whether something has happened to a block that it holds or is missing.
    pub(crate) fn is_hurt(&self, block: BlockId) -> bool {
        self.rot.hurt(block)
    }

    /// Returns the bytes that are used of each tier, and those that there are.
    pub(crate) const fn room(&self) -> ([u64; 2], [u64; 2]) {
        (self.used, self.capacity)
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

/// Returns a process that is no node yet. Reports come more often than in real life, so that races
/// with them show; a node whose notice has passed does not wait as long before it joins again.
fn member(nonce: Nonce) -> NodeMembership {
    let options = MemberOptions {
        mechanism: Mechanism::Sanderling,
        attempt_every: Millis(250),
        draining_heartbeat: Millis(200),
        report_every: Millis(1500),
        rejoin_after_notice: Millis(3000),
    };
    NodeMembership::new(options, nonce, StartLimit::Endless)
}
