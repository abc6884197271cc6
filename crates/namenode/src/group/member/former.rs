//! Members that have left, and members that do not know whether they have: the message with the
//! change that removed a member may never reach it.

use sanderling_core::replica::{Envelope, Group};
use sanderling_protocol::{Instant, MemberId, Millis};

use super::GroupSeat;
use crate::group::boot_time;

/// For how long former members are reported that they have left.
const REPORTED_FOR: Millis = Millis(5000);

/// Pause between two of these reports.
const REPORT_EVERY: Millis = Millis(200);

/// Former members that are remembered at once.
const FORMER_MAX: usize = 16;

/// Pause between two questions of a member that knows no leader.
const ASK_EVERY: Millis = Millis(2000);

/// A member that has left.
#[derive(Debug)]
pub(super) struct FormerMember {
    pub(super) id: MemberId,
    pub(super) address: String,
    pub(super) until: Instant,
    pub(super) reported: Instant,
}

impl GroupSeat {
    /// Reports to members that have left that they have, for a while.
    pub(super) fn report_removals(&mut self, now: Instant) {
        if self.removed.is_empty() {
            return;
        }
        for former in &mut self.removed {
            if former.reported.until(now) >= REPORT_EVERY {
                former.reported = now;
                self.replica.report_removal(former.id);
            }
        }
        self.removed.retain(|former| now < former.until);
        let (group, removed) = (self.replica.group(), &self.removed);
        let is_former = |id| removed.iter().any(|former| former.id == id);
        self.links.keep(|id| group.member(id).is_some() || is_former(id));
    }

    /// Asks the other members, one after the other, whether this one is still a member, while it
    /// knows no leader.
    pub(super) fn ask_membership(&mut self, now: Instant) {
        if self.replica.leader().is_some() {
            self.asked = None;
            return;
        }
        let since = *self.asked.get_or_insert(now);
        if since.until(now) < ASK_EVERY {
            return;
        }
        self.asked = Some(now);
        let own = self.id();
        let others: Vec<MemberId> =
            self.replica.group().members().map(|(id, _)| id).filter(|id| *id != own).collect();
        for to in others {
            self.replica.ask_membership(to);
        }
    }

    /// Remembers the members that a change has removed.
    pub(super) fn note_removed(&mut self, group: &Group) {
        let now = boot_time();
        let own = self.id();
        let before = self.groups.back().map(|(_, group)| group.clone()).unwrap_or_default();
        let left = before.members().filter(|(id, _)| group.member(*id).is_none() && *id != own);
        for (id, member) in left {
            let (address, until) = (member.at.address.clone(), now + REPORTED_FOR);
            self.removed.push(FormerMember { id, address, until, reported: Instant(0) });
        }
    }

    /// Remembers where a sender is that is no member as far as is known here: one that was removed
    /// is answered, so that it learns of that, and one that leads may have joined since.
    pub(super) fn note_sender(&mut self, now: Instant, envelope: &Envelope, address: String) {
        let (from, group) = (envelope.from, self.replica.group());
        if group.member(from).is_some() || self.removed.iter().any(|former| former.id == from) {
            return;
        }
        let is_former = group.members().next().is_some() && from < group.next();
        if is_former && self.removed.len() < FORMER_MAX {
            let (until, reported) = (now + REPORTED_FOR, now);
            self.removed.push(FormerMember { id: from, address, until, reported });
        } else if !is_former {
            self.sender = Some((from, address));
        }
    }
}
