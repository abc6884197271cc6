//! What a simulated datanode remembers of its notices, and says again: by the same machine as the
//! real one. It counts by the world's time, as a process does by a clock that does not jump.

use std::collections::VecDeque;

use sanderling_core::datanode::{Act, Agent, CallFailure, SourceReading, repeat};
use sanderling_core::notices::{Notice, Notices, Saying};
use sanderling_protocol::{Instant, Millis, NodeId, Policy, Reply};

use super::member::outcome;
use crate::Broken;
use crate::event::{DatanodeCall, Timer};
use crate::wire::{Host, Response};
use crate::world::World;

/// Time in which a namenode that can be reached has heard of a notice: a few heartbeats, and a call
/// that nobody answered.
const HEARD_MICROS: u64 = 4_000_000;

/// The name of the simulated source.
const SOURCE: &str = "agent";

/// Time between two looks of the agent.
const LOOK_MICROS: u64 = 100_000;

/// What the machine's cloud shows, and the agent that looks at it.
#[derive(Debug)]
pub(super) struct CloudSource {
    seen: SourceReading,
    agent: Agent,
    /// What the agent has still to tell the namenode; the first of it is under way.
    acts: VecDeque<Act>,
    pub(super) is_look_set: bool,
    /// Whether the namenode did not take something.
    is_undone: bool,
    /// Whether the machine ends by what is shown, so that it is not taken back.
    is_kept: bool,
}

impl CloudSource {
    pub(super) fn new() -> Self {
        let agent = Agent::new(SOURCE.to_owned());
        let (seen, acts) = (SourceReading::default(), VecDeque::new());
        Self { seen, agent, acts, is_look_set: false, is_undone: false, is_kept: false }
    }
}

impl World {
    /// The machine's cloud shows a notice to its agent. `is_kept`: the machine ends by it.
    pub(crate) fn datanode_own_notice(&mut self, slot: u8, deadline_millis: u64, is_kept: bool) {
        let deadline = self.runtime.monotonic() + Millis(deadline_millis);
        let datanode = &mut self.datanodes[usize::from(slot)];
        if datanode.node.is_none() {
            return;
        }
        let source = &mut datanode.source;
        let (source_name, reason) = (SOURCE.to_owned(), "spot".to_owned());
        let notice = Notice { source: source_name, deadline, reason };
        // Of several the cloud shows the one that comes first.
        if source.seen.notice.as_ref().is_none_or(|before| deadline < before.deadline) {
            source.seen.notice = Some(notice);
        }
        source.is_kept |= is_kept;
        self.datanode_look(slot);
    }

    /// The machine's cloud recommends to leave it.
    pub(crate) fn datanode_own_risk(&mut self, slot: u8) {
        let datanode = &mut self.datanodes[usize::from(slot)];
        if datanode.node.is_some() {
            datanode.source.seen.recommendation = Some("rebalance recommendation".to_owned());
            self.datanode_look(slot);
        }
    }

    /// The machine's cloud takes back what it shows, unless the machine ends by it. Returns whether
    /// it did.
    pub(crate) fn datanode_own_cancel(&mut self, slot: u8) -> bool {
        let Some(datanode) = self.datanodes.get_mut(usize::from(slot)) else { return false };
        let source = &mut datanode.source;
        if source.is_kept || source.seen == SourceReading::default() {
            return false;
        }
        source.seen = SourceReading::default();
        self.datanode_look(slot);
        true
    }

    /// The agent looks at what the cloud shows, as it does again and again.
    pub(super) fn datanode_look(&mut self, slot: u8) {
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(id) = datanode.node.filter(|_| datanode.source.acts.is_empty()) else {
            return self.datanode_look_again(slot);
        };
        let source = &mut datanode.source;
        source.is_undone = false;
        // A machine that is there after the deadline was not taken.
        source.seen.notice.take_if(|notice| !source.is_kept && notice.deadline <= now);
        let look = |notices: &mut Notices| source.agent.look(id, &source.seen, notices);
        let acts = datanode.member.registration_mut().remember(now, look);
        datanode.follow_member();
        datanode.source.acts = acts.into();
        self.datanode_act(slot);
    }

    fn datanode_look_again(&mut self, slot: u8) {
        let source = &mut self.datanodes[usize::from(slot)].source;
        let must_look = source.seen != SourceReading::default() || source.is_undone;
        if must_look && !std::mem::replace(&mut source.is_look_set, true) {
            self.runtime.set_timer(Host::Datanode(slot), LOOK_MICROS, Timer::Look);
        }
    }

    /// Begins the next act of the agent.
    fn datanode_act(&mut self, slot: u8) {
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        let (Some(id), Some(act)) = (datanode.node, datanode.source.acts.front().cloned()) else {
            datanode.source.acts.clear();
            return self.datanode_look_again(slot);
        };
        let mut saying = None;
        if let Act::Give { notice, is_first } = &act {
            if *is_first {
                datanode.noticed_at = Some(self.runtime.now());
            }
            saying = Some(Saying::from(notice));
        }
        let nonce = datanode.member.nonce();
        let said = saying.as_ref().map(|saying| repeat::request(saying, now, id, nonce));
        let Some(request) = said.or_else(|| act.request(id)) else { return };
        let act = Box::new((now, id, act, saying));
        self.datanode_call(slot, request, DatanodeCall::Act(act));
    }

    pub(super) fn datanode_acted(
        &mut self,
        slot: u8,
        (asked_at, id, act, saying): (Instant, NodeId, Act, Option<Saying>),
        answer: Option<Response>,
    ) {
        if let Some(saying) = saying {
            self.datanode_said(slot, (asked_at, saying), answer.clone());
        }
        let is_forgotten = self.runtime.is_broken(Broken::NoticeForgotten);
        let outcome = outcome(answer)
            .map(|_| ())
            .or_else(|failure| if is_forgotten { Ok(()) } else { Err(failure) });
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        let source = &mut datanode.source;
        source.acts.pop_front();
        let outcome = outcome.as_ref().copied();
        let done = |notices: &mut Notices| {
            source.is_undone |= !source.agent.done((id, asked_at), act, outcome, notices);
        };
        datanode.member.registration_mut().remember(now, done);
        datanode.follow_member();
        self.datanode_act(slot);
    }

    /// Says what the namenode does not know, or does not know any more; `is_round`: in its turn.
    /// Returns whether there is anything to say.
    pub(super) fn datanode_say(&mut self, slot: u8, is_round: bool) -> bool {
        let now = self.runtime.monotonic();
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(id) = datanode.node else { return false };
        let saying =
            datanode.member.registration_mut().remember(now, |notices| notices.to_say(now));
        datanode.follow_member();
        let Some(saying) = saying else { return false };
        let request = repeat::request(&saying, now, id, datanode.member.nonce());
        let said = Box::new((now, saying));
        self.datanode_call(slot, request, DatanodeCall::Say { said, is_round });
        true
    }

    pub(super) fn datanode_said(
        &mut self,
        slot: u8,
        (asked_at, saying): (Instant, Saying),
        answer: Option<Response>,
    ) {
        let info = match outcome(answer) {
            Ok(Reply::Node(info)) => Ok(info),
            Ok(_) => Err(CallFailure::Broken),
            Err(failure) => Err(failure),
        };
        let now = self.runtime.monotonic();
        let said = repeat::said(now, info.as_ref().map(|info| &**info));
        let datanode = &mut self.datanodes[usize::from(slot)];
        let take = |notices: &mut Notices| notices.said(asked_at, &saying, said);
        datanode.member.registration_mut().remember(now, take);
        datanode.follow_member();
    }

    /// A machine that saw its own notice, and could tell of it all the while, does not end as a
    /// node that the namenode takes for active.
    pub(crate) fn check_notice_kept(&mut self, slot: u8) {
        let datanode = &self.datanodes[usize::from(slot)];
        let catalog = self.namenode.catalog();
        let found = datanode.node.and_then(|node| Some((node, catalog.node_policy(node)?.0)));
        let Some((node, Policy::Active)) = found else { return };
        let since = datanode.noticed_at.unwrap_or(self.runtime.now()).max(self.namenode.started_at);
        // While it is stopped it hears nothing.
        let since = since.max(self.runtime.stop_ends_at(Host::Namenode));
        let is_up = self.runtime.is_up(Host::Namenode);
        if is_up && self.runtime.plan().is_reachable() && self.runtime.now() >= since + HEARD_MICROS
        {
            self.runtime
                .violate("notice-kept", format!("node {node} ends by a notice and is active"));
        }
    }
}
