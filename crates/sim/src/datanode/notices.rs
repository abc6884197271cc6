//! What a simulated datanode remembers of its notices, and says again: by the same machine as the
//! real one. It counts by the world's time, as a process does by a clock that does not jump.

use sanderling_core::datanode::{CallFailure, repeat};
use sanderling_core::notices::{Notices, Saying};
use sanderling_protocol::{Instant, Millis, Policy, Reply};

use super::member::outcome;
use crate::event::DatanodeCall;
use crate::wire::{Answer, Place};
use crate::world::World;

/// Time in which a namenode that can be reached has heard of a notice: a few heartbeats, and a call
/// that nobody answered.
const HEARD_MICROS: u64 = 4_000_000;

impl World {
    /// The machine's own agent sees a notice.
    pub(crate) fn datanode_own_notice(&mut self, slot: u8, deadline_millis: u64) {
        let now = Instant(self.now);
        let deadline = now + Millis(deadline_millis);
        let datanode = &mut self.datanodes[usize::from(slot)];
        if datanode.node.is_none() {
            return;
        }
        let show = |notices: &mut Notices| notices.show("agent", deadline, "sigterm");
        let is_news = datanode.member.standing_mut().remember(now, show);
        datanode.follow_member();
        if is_news {
            datanode.noticed_at = Some(self.now);
            self.datanode_say(slot, false);
        }
    }

    /// The machine's own agent sees that its cloud recommends to leave it.
    pub(crate) fn datanode_own_risk(&mut self, slot: u8) {
        let now = Instant(self.now);
        let datanode = &mut self.datanodes[usize::from(slot)];
        if datanode.node.is_some() {
            let recommend = |notices: &mut Notices| {
                notices.recommend("agent", "rebalance recommendation", None)
            };
            datanode.member.standing_mut().remember(now, recommend);
            self.datanode_say(slot, false);
        }
    }

    /// Says what the namenode does not know, or does not know any more; `is_round`: in its turn.
    /// Returns whether there is anything to say.
    pub(super) fn datanode_say(&mut self, slot: u8, is_round: bool) -> bool {
        let now = Instant(self.now);
        let datanode = &mut self.datanodes[usize::from(slot)];
        let Some(id) = datanode.node else { return false };
        let saying = datanode.member.standing_mut().remember(now, |notices| notices.to_say(now));
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
        answer: Option<Answer>,
    ) {
        let info = match outcome(answer) {
            Ok(Reply::Node(info)) => Ok(info),
            Ok(_) => Err(CallFailure::Broken),
            Err(failure) => Err(failure),
        };
        let now = Instant(self.now);
        let said = repeat::said(now, info.as_ref().map(|info| &**info));
        let datanode = &mut self.datanodes[usize::from(slot)];
        let take = |notices: &mut Notices| notices.said(asked_at, &saying, said);
        datanode.member.standing_mut().remember(now, take);
        datanode.follow_member();
    }

    /// A machine that saw its own notice, and could tell of it all the while, does not end as a
    /// node that the namenode takes for active.
    pub(crate) fn check_notice_kept(&mut self, slot: u8) {
        let datanode = &self.datanodes[usize::from(slot)];
        let catalog = self.namenode.catalog();
        let found = datanode.node.and_then(|node| Some((node, catalog.node_policy(node)?.0)));
        let Some((node, Policy::Active)) = found else { return };
        let since = datanode.noticed_at.unwrap_or(self.now).max(self.namenode.started_at);
        // While it is stopped it hears nothing.
        let since = since.max(self.namenode.frozen.end);
        let is_up = self.is_up[Place::Namenode.index()];
        if is_up && self.plan.is_reachable() && self.now >= since + HEARD_MICROS {
            self.violate("notice-kept", format!("node {node} ends by a notice and is active"));
        }
    }
}
