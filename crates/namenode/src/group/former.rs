//! Members that have left, and members that may have: the message with the change that removed a
//! member may never reach it.

use sanderling_core::replica::{Group, Replica};
use sanderling_protocol::{Instant, MemberId, Millis};

/// For how long former members are reported that they have left.
const REPORTED_FOR: Millis = Millis(5000);

/// Pause between two of these reports.
const REPORT_EVERY: Millis = Millis(200);

/// Former members that are remembered at once.
const FORMER_MAX: usize = 16;

/// Pause between two requests of a member without a leader.
const REQUEST_EVERY: Millis = Millis(2000);

#[derive(Debug)]
struct FormerMember {
    id: MemberId,
    address: String,
    until: Instant,
    reported: Instant,
}

/// Members that have left lately, and whether this one may have left.
#[derive(Debug, Default)]
pub(super) struct FormerMembers {
    list: Vec<FormerMember>,
    /// When this member, which has no leader, sent its last request.
    requested: Option<Instant>,
}

impl FormerMembers {
    /// Returns whether a member has left lately.
    pub(super) fn has(&self, id: MemberId) -> bool {
        self.list.iter().any(|former| former.id == id)
    }

    /// Returns where a former member is.
    pub(super) fn address(&self, id: MemberId) -> Option<&str> {
        let former = self.list.iter().find(|former| former.id == id)?;
        Some(&former.address)
    }

    /// Remembers the members that a change has removed, but this one.
    pub(super) fn keep(&mut self, now: Instant, own: MemberId, before: &Group, after: &Group) {
        let left = before.members().filter(|(id, _)| after.member(*id).is_none() && *id != own);
        for (id, member) in left {
            let (address, until) = (member.at.address.clone(), now + REPORTED_FOR);
            self.list.push(FormerMember { id, address, until, reported: Instant(0) });
        }
    }

    /// Remembers where a former member is that sends a message: it is answered that it has left.
    pub(super) fn keep_sender(&mut self, now: Instant, id: MemberId, address: String) {
        if !self.has(id) && self.list.len() < FORMER_MAX {
            let (until, reported) = (now + REPORTED_FOR, now);
            self.list.push(FormerMember { id, address, until, reported });
        }
    }

    /// Reports to members that have left that they have, for a while. Returns whether there were
    /// any.
    pub(super) fn report(&mut self, now: Instant, replica: &mut Replica) -> bool {
        let were_there = !self.list.is_empty();
        for former in &mut self.list {
            if former.reported.until(now) >= REPORT_EVERY {
                former.reported = now;
                replica.report_removal(former.id);
            }
        }
        self.list.retain(|former| now < former.until);
        were_there
    }

    /// Requests from the other members whether this one is still a member, while it has no leader.
    pub(super) fn request(&mut self, now: Instant, own: MemberId, replica: &mut Replica) {
        if replica.leader().is_some() {
            self.requested = None;
            return;
        }
        let since = *self.requested.get_or_insert(now);
        if since.until(now) < REQUEST_EVERY {
            return;
        }
        self.requested = Some(now);
        let members = replica.group().members().map(|(id, _)| id);
        let others: Vec<MemberId> = members.filter(|id| *id != own).collect();
        for to in others {
            replica.request_membership(to);
        }
    }
}
