//! The membership of a simulated datanode: the shell around the machine that the real one has.

use sanderling_core::datanode::{
    BlockTotals, CallFailure, Joining, MemberStep, ReportProgress, RequestStamp,
};
use sanderling_protocol::message::{Heartbeat, Join, Register};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_protocol::{Millis, NodeId, Nonce, Reply, Request, Tier};

use super::report::PAGE_BLOCKS;
use super::{Datanode, index};
use crate::InjectedBug;
use crate::context::Context;
use crate::event::{DatanodeCall, Timer};
use crate::wire::{Host, Response, address};

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

impl Datanode {
    /// Does what the member does next.
    pub(super) fn step(&mut self, context: &mut Context<'_>) {
        let has_bug = self.is_disconnected(context);
        let now = context.runtime.monotonic();
        match self.member.next(now, has_bug) {
            MemberStep::Register(joining) => self.register(context, joining),
            MemberStep::Beat { node, nonce, asked } => self.beat(context, node, nonce, asked),
            MemberStep::Report(_) => {
                self.report = Some(ReportProgress::in_pages_of(PAGE_BLOCKS));
                self.report_next(context);
            }
            MemberStep::Repeat => {
                let is_forgotten = context.runtime.has_bug(InjectedBug::NoticeForgotten);
                if is_forgotten || !self.send_notice(context, true) {
                    self.repeated(context);
                }
            }
            MemberStep::BeginAgain => self.begin_again(context),
            MemberStep::Wait(at) => {
                let micros = at.0.saturating_sub(context.runtime.now());
                context.runtime.set_timer(self.host(), micros, Timer::Round);
            }
            MemberStep::Pending => {}
            // Its supervisor starts it anew.
            MemberStep::Stop(_) => context.runtime.kill(self.host(), 300),
        }
    }

    /// Returns whether the connection over which a node registered is gone: it ends with the
    /// namenode's process, which `is_dead_silent` hides until the next process runs.
    fn is_disconnected(&self, context: &Context<'_>) -> bool {
        let namenode = Host::Namenode;
        let is_seen = context.runtime.is_up(namenode) || !context.runtime.plan().is_dead_silent;
        self.connected != Some(context.runtime.life(namenode)) && is_seen
    }

    fn register(&mut self, context: &mut Context<'_>, joining: Joining) {
        let plan = context.runtime.plan();
        let egress = plan.background.declares_egress.then_some(plan.link_bytes_per_second);
        let life = context.runtime.life(Host::Namenode);
        self.connected = Some(life);
        let larger = if context.runtime.has_bug(InjectedBug::CapacityIgnored) { 1000 } else { 1 };
        let tiers = [Tier::Dram, Tier::Disk]
            .into_iter()
            .map(|tier| TierCapacity { tier, bytes: self.capacity[index(tier)] * larger })
            .filter(|tier| tier.bytes > 0)
            .collect();
        let Joining { cluster, nonce, seen, wiped, asked } = joining;
        let register = Register {
            cluster,
            nonce,
            name: String::new(),
            address: address(self.slot),
            http_address: String::new(),
            host: address(self.slot),
            tiers,
            notice_min: plan.notice_millis_min.map(Millis),
            egress_bytes_per_second: egress,
        };
        let join = Join { register, seen, wiped };
        self.call(context, Request::Join(Box::new(join)), DatanodeCall::Register(asked));
    }

    pub(super) fn registered(
        &mut self,
        context: &mut Context<'_>,
        asked: RequestStamp,
        answer: Option<Response>,
    ) {
        let now = context.runtime.monotonic();
        let joined = match outcome(answer) {
            Ok(Reply::Joined(joined)) => Ok(joined),
            Ok(_) => Err(CallFailure::Broken),
            Err(failure) => Err(failure),
        };
        let answer = joined.as_deref().map_err(Clone::clone);
        self.member.registered(now, asked, answer);
        self.follow_member();
        self.step(context);
    }

    fn beat(&mut self, context: &mut Context<'_>, node: NodeId, nonce: Nonce, asked: RequestStamp) {
        let now = context.runtime.monotonic();
        let measured = self.push_rate.bytes_per_second(now);
        let load = Load {
            blocks: self.table.blocks(),
            pushed_bytes_per_second: measured,
            dram_used_bytes: self.used[0],
            disk_used_bytes: self.used[1],
            ..Load::default()
        };
        let request = Request::Beat(Heartbeat { node, nonce, load });
        self.call(context, request, DatanodeCall::Heartbeat(asked));
    }

    pub(super) fn beaten(
        &mut self,
        context: &mut Context<'_>,
        asked: RequestStamp,
        answer: Option<Response>,
    ) {
        let now = context.runtime.monotonic();
        let answer = match outcome(answer) {
            Ok(Reply::Beat { heartbeat, position }) => Ok((heartbeat, position)),
            Ok(_) => Err(CallFailure::Broken),
            Err(failure) => Err(failure),
        };
        self.member.beaten(now, asked, answer);
        self.follow_member();
        self.step(context);
    }

    pub(super) fn repeated(&mut self, context: &mut Context<'_>) {
        let now = context.runtime.monotonic();
        self.member.repeated(now);
        self.step(context);
    }

    fn begin_again(&mut self, context: &mut Context<'_>) {
        let now = context.runtime.monotonic();
        let held = BlockTotals { blocks: self.table.blocks(), bytes: self.used[0] + self.used[1] };
        let next = Nonce(self.random.next());
        if self.member.begin_again(now, held, next) {
            self.wipe();
        } else {
            self.table.revoke_writes();
        }
        self.throttle.forget();
        self.noticed_at = None;
        self.member.wiped(now);
        self.follow_member();
        self.step(context);
    }
}
