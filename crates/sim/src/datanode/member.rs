//! The membership of a simulated datanode: the world around the same machine as the real one has.

use sanderling_core::Mechanism;
use sanderling_core::datanode::{
    BlockTotals, CallFailure, Joining, Member, MemberOptions, MemberStep, ReportProgress,
    RequestStamp, StartLimit,
};
use sanderling_protocol::message::{Heartbeat, Join, Register};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_protocol::{Millis, NodeId, Nonce, Reply, Request, Tier};

use super::index;
use super::report::PAGE_BLOCKS;
use crate::Broken;
use crate::event::{DatanodeCall, Timer};
use crate::wire::{Host, Response, address};
use crate::world::World;

/// Returns a process that is no node yet. Reports come more often than in real life, so that races
/// with them show; a node whose notice has passed does not wait as long before it joins again.
pub(super) fn member(nonce: Nonce) -> Member {
    let options = MemberOptions {
        mechanism: Mechanism::Sanderling,
        attempt_every: Millis(250),
        draining_heartbeat: Millis(200),
        report_every: Millis(1500),
        rejoin_after_notice: Millis(3000),
    };
    Member::new(options, nonce, StartLimit::Endless)
}

/// Returns what came of a call to the namenode.
pub(super) fn outcome(answer: Option<Response>) -> Result<Reply, CallFailure> {
    match answer {
        Some(Response::Meta(Ok(reply))) => Ok(reply),
        Some(Response::Meta(Err(refusal))) => Err(CallFailure::Refused(refusal)),
        Some(Response::Frame(_) | Response::Data(_) | Response::Refused) => {
            Err(CallFailure::Broken)
        }
        None => Err(CallFailure::Busy),
    }
}

impl World {
    /// Does what the member does next.
    pub(super) fn datanode_step(&mut self, slot: u8) {
        let is_broken = self.is_disconnected(slot);
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        match datanode.member.next(now, is_broken) {
            MemberStep::Register(joining) => self.datanode_register(slot, joining),
            MemberStep::Beat { node, nonce, asked } => self.datanode_beat(slot, node, nonce, asked),
            MemberStep::Report(_) => {
                datanode.report = Some(ReportProgress::in_pages_of(PAGE_BLOCKS));
                self.datanode_report(slot);
            }
            MemberStep::Repeat => {
                let is_forgotten = self.runtime.is_broken(Broken::NoticeForgotten);
                if is_forgotten || !self.datanode_say(slot, true) {
                    self.datanode_repeated(slot);
                }
            }
            MemberStep::BeginAgain => self.datanode_begin_again(slot),
            MemberStep::Wait(at) => {
                let micros = at.0.saturating_sub(self.runtime.now());
                self.runtime.set_timer(Host::Datanode(slot), micros, Timer::Round);
            }
            MemberStep::Pending => {}
            // Whoever runs it starts it anew.
            MemberStep::Stop(_) => self.kill_datanode(slot, 300),
        }
    }

    /// Tells whether the connection over which a node registered is gone: it ends with the
    /// namenode's process, unless nothing tells of that before there is another one.
    fn is_disconnected(&self, slot: u8) -> bool {
        let namenode = Host::Namenode;
        let is_seen = self.runtime.is_up(namenode) || !self.runtime.plan().is_dead_silent;
        self.datanodes[usize::from(slot)].connected != Some(self.runtime.life(namenode)) && is_seen
    }

    fn datanode_register(&mut self, slot: u8, joining: Joining) {
        let egress = self
            .runtime
            .plan()
            .background
            .tells_egress
            .then_some(self.runtime.plan().link_bytes_per_second);
        let life = self.runtime.life(Host::Namenode);
        let datanode = &mut self.datanodes[usize::from(slot)];
        datanode.connected = Some(life);
        let larger = if self.runtime.is_broken(Broken::CapacityIgnored) { 1000 } else { 1 };
        let tiers = [Tier::Dram, Tier::Disk]
            .into_iter()
            .map(|tier| TierCapacity { tier, bytes: datanode.capacity[index(tier)] * larger })
            .filter(|tier| tier.bytes > 0)
            .collect();
        let Joining { cluster, nonce, seen, wiped, asked } = joining;
        let register = Register {
            cluster,
            nonce,
            name: String::new(),
            address: address(slot),
            http_address: String::new(),
            host: address(slot),
            tiers,
            notice_min: self.runtime.plan().notice_millis_min.map(Millis),
            egress_bytes_per_second: egress,
        };
        let join = Join { register, seen, wiped };
        self.datanode_call(slot, Request::Join(Box::new(join)), DatanodeCall::Register(asked));
    }

    pub(super) fn datanode_registered(
        &mut self,
        slot: u8,
        asked: RequestStamp,
        answer: Option<Response>,
    ) {
        let now = self.runtime.monotonic();
        let joined = match outcome(answer) {
            Ok(Reply::Joined(joined)) => Ok(joined),
            Ok(_) => Err(CallFailure::Broken),
            Err(failure) => Err(failure),
        };
        let datanode = &mut self.datanodes[usize::from(slot)];
        let answer = joined.as_deref().map_err(Clone::clone);
        datanode.member.registered(now, asked, answer);
        datanode.follow_member();
        self.datanode_step(slot);
    }

    fn datanode_beat(&mut self, slot: u8, node: NodeId, nonce: Nonce, asked: RequestStamp) {
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        let measured = datanode.push_rate.bytes_per_second(now);
        let load = Load {
            blocks: datanode.table.blocks(),
            pushed_bytes_per_second: measured,
            dram_used_bytes: datanode.used[0],
            disk_used_bytes: datanode.used[1],
            ..Load::default()
        };
        let request = Request::Beat(Heartbeat { node, nonce, load });
        self.datanode_call(slot, request, DatanodeCall::Heartbeat(asked));
    }

    pub(super) fn datanode_beaten(
        &mut self,
        slot: u8,
        asked: RequestStamp,
        answer: Option<Response>,
    ) {
        let now = self.runtime.monotonic();
        let answer = match outcome(answer) {
            Ok(Reply::Beat { heartbeat, position }) => Ok((heartbeat, position)),
            Ok(_) => Err(CallFailure::Broken),
            Err(failure) => Err(failure),
        };
        let datanode = &mut self.datanodes[usize::from(slot)];
        datanode.member.beaten(now, asked, answer);
        datanode.follow_member();
        self.datanode_step(slot);
    }

    pub(super) fn datanode_repeated(&mut self, slot: u8) {
        let now = self.runtime.monotonic();
        self.datanodes[usize::from(slot)].member.repeated(now);
        self.datanode_step(slot);
    }

    fn datanode_begin_again(&mut self, slot: u8) {
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        let held = BlockTotals {
            blocks: datanode.table.blocks(),
            bytes: datanode.used[0] + datanode.used[1],
        };
        let next = Nonce(datanode.random.next());
        datanode.member.begin_again(now, held, next);
        datanode.wipe();
        datanode.member.wiped(now);
        datanode.follow_member();
        self.datanode_step(slot);
    }
}
