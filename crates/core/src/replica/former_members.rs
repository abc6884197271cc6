//! Members that have left, and members that may have: the message with the change that removed a
//! member may never reach it.

use sanderling_protocol::{Instant, MemberId, Millis};

use super::group::Group;
use super::machine::Replica;

/// For how long former members are reported that they have left. Long enough for a member that
/// missed some reports to send two requests of its own ([`REQUEST_INTERVAL`]); short enough that
/// the leader's connections to former members end soon. One that is away for longer requests it
/// later.
const REPORTED_FOR: Millis = Millis(5000);

/// Pause between two of these reports. Two of them fit into the 0.4 s without a leader after which
/// a member stands for election at the earliest: one that can be reached ends before.
const REPORT_INTERVAL: Millis = Millis(200);

/// Former members that are remembered at once: one more than a group has, so that a change has room
/// for all that it removes.
const FORMER_MAX: usize = 16;

/// Pause between two requests of a member without a leader, and before the first one. Longer than
/// an election takes, 0.4 to 0.8 s and as long again if no candidate gets a majority, so that
/// members of a group that elects a leader send none; short enough that a removed member ends soon.
const REQUEST_INTERVAL: Millis = Millis(2000);

#[derive(Debug)]
struct FormerMember {
    id: MemberId,
    address: String,
    until: Instant,
    reported: Instant,
}

/// Members that have left lately, and whether this one may have left.
#[derive(Debug, Default)]
pub struct FormerMembers {
    list: Vec<FormerMember>,
    /// When this member, which has no leader, sent its last request.
    requested: Option<Instant>,
}

impl FormerMembers {
    /// Returns whether a member has left lately, within 5 s.
    #[must_use]
    pub fn has(&self, id: MemberId) -> bool {
        self.list.iter().any(|former| former.id == id)
    }

    /// Returns where a former member receives messages: the group has no address of it any more.
    #[must_use]
    pub fn address(&self, id: MemberId) -> Option<&str> {
        let former = self.list.iter().find(|former| former.id == id)?;
        Some(&former.address)
    }

    /// Remembers the members that a change has removed, but this one.
    pub fn keep(&mut self, now: Instant, own: MemberId, before: &Group, after: &Group) {
        let left = before.members().filter(|(id, _)| after.member(*id).is_none() && *id != own);
        for (id, member) in left {
            self.list.retain(|former| former.id != id);
            if self.list.len() == FORMER_MAX {
                // The oldest has had its reports.
                self.list.remove(0);
            }
            let (address, until) = (member.at.address.clone(), now + REPORTED_FOR);
            self.list.push(FormerMember { id, address, until, reported: Instant(0) });
        }
    }

    /// Remembers where a former member is that sends a message: it is answered that it has left.
    /// Ignored while there are 16 others: the member sends again.
    pub fn keep_sender(&mut self, now: Instant, id: MemberId, address: String) {
        if !self.has(id) && self.list.len() < FORMER_MAX {
            let (until, reported) = (now + REPORTED_FOR, now);
            self.list.push(FormerMember { id, address, until, reported });
        }
    }

    /// Reports to members that have left that they have, every 200 ms for 5 s, if `replica` leads.
    /// Returns whether there were any: the shell then ends the connections to those that are
    /// forgotten.
    pub fn report(&mut self, now: Instant, replica: &mut Replica) -> bool {
        let were_there = !self.list.is_empty();
        for former in &mut self.list {
            if former.reported.until(now) >= REPORT_INTERVAL {
                former.reported = now;
                replica.report_removal(former.id);
            }
        }
        self.list.retain(|former| now < former.until);
        were_there
    }

    /// Sends a request to each other member every 2 s while no leader sends anything to this one.
    /// The answer reports whether this one was removed while nothing reached it.
    pub fn request(&mut self, now: Instant, own: MemberId, replica: &mut Replica) {
        if replica.is_led(now) {
            self.requested = None;
            return;
        }
        let since = *self.requested.get_or_insert(now);
        if since.until(now) < REQUEST_INTERVAL {
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

#[cfg(test)]
mod tests {
    use sanderling_protocol::{ClusterId, Nonce};

    use super::*;
    use crate::replica::{
        Body, GroupChange, MemberAddress, ReplicaOptions, ReplicaOutput, Restored,
    };

    const OWN: MemberId = MemberId(1);

    fn address(id: u64) -> MemberAddress {
        let address = format!("host-{id}:1");
        MemberAddress { http_address: address.clone(), address, nonce: Nonce(id) }
    }

    fn replica(group: Group) -> Replica {
        let options = ReplicaOptions::new(ClusterId(7), OWN, 1);
        let times = (Instant(0), Instant(0));
        Replica::new(options, Restored::first(group), Instant(1), times)
    }

    /// Counts the messages that are put out, which must have this receiver.
    fn sent_to(replica: &mut Replica, to: MemberId, is_right: fn(&Body) -> bool) -> usize {
        let outputs = std::iter::from_fn(|| replica.poll_output());
        let is_sent = |output: &ReplicaOutput| match output {
            ReplicaOutput::Send(envelope) => envelope.to == to && is_right(&envelope.body),
            _ => false,
        };
        outputs.filter(is_sent).count()
    }

    /// Three members, and the two that stay when the third is removed.
    fn groups() -> (Group, Group) {
        let before = Group::of_voters(1, (1..=3).map(address).collect());
        let remove = [MemberId(3)].into();
        let change = GroupChange { add: None, promote: [].into(), remove };
        let after = before.changed(&change).unwrap();
        let after = if after.is_changing() { after.done() } else { after };
        (before, after)
    }

    #[test]
    fn removed_member_is_remembered_for_five_seconds_and_this_one_never() {
        let (before, after) = groups();
        let mut former = FormerMembers::default();
        former.keep(Instant(0), MemberId(3), &before, &after);
        assert!(!former.has(MemberId(3)), "it is this member");
        former.keep(Instant(0), OWN, &before, &after);
        former.keep(Instant(0), OWN, &before, &after);
        assert_eq!(former.address(MemberId(3)), Some("host-3:1"));
        assert_eq!(former.list.len(), 1);
        let mut replica = replica(after);
        assert!(former.report(Instant(0) + Millis(4999), &mut replica));
        assert!(former.has(MemberId(3)));
        assert!(former.report(Instant(0) + Millis(5000), &mut replica), "it was there before");
        assert!(!former.has(MemberId(3)));
        assert!(!former.report(Instant(0) + Millis(5001), &mut replica));
    }

    #[test]
    fn senders_do_not_displace_members_that_a_change_has_removed() {
        let (before, after) = groups();
        let mut former = FormerMembers::default();
        for id in 100..200 {
            former.keep_sender(Instant(0), MemberId(id), "peer:1".to_owned());
        }
        assert_eq!(former.list.len(), FORMER_MAX);
        former.keep(Instant(0), OWN, &before, &after);
        assert!(former.has(MemberId(3)));
        assert_eq!(former.list.len(), FORMER_MAX);
    }

    /// A spare does not look for another leader, so that it has the one that is gone for ever.
    #[test]
    fn member_whose_leader_is_silent_sends_requests_too() {
        let (group, _) = groups();
        let mut replica = replica(group);
        let mut former = FormerMembers::default();
        let start = Instant(1);
        let heartbeat = crate::replica::Envelope {
            cluster: ClusterId(7),
            generation: 0,
            from: MemberId(2),
            incarnation: 1,
            to: OWN,
            term: 2,
            round: 1,
            transfers_ended: 0,
            time: None,
            body: Body::Heartbeat { committed: 1 },
        };
        replica.receive(start, heartbeat).unwrap();
        assert_eq!(replica.leader(), Some(MemberId(2)));
        let is_request = |body: &Body| matches!(body, Body::HeartbeatAnswer { .. });
        let _ = sent_to(&mut replica, MemberId(2), is_request);
        let mut requests = |millis| {
            former.request(start + Millis(millis), OWN, &mut replica);
            sent_to(&mut replica, MemberId(2), is_request)
        };
        // It is silent from twice 380 ms on, and the first request comes 2 s after that.
        assert_eq!([0, 759, 760, 2759, 2760].map(&mut requests), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn member_without_a_leader_sends_requests_every_two_seconds() {
        let (group, _) = groups();
        let mut replica = replica(group);
        let mut former = FormerMembers::default();
        let is_request = |body: &Body| matches!(body, Body::HeartbeatAnswer { .. });
        let mut requests = |millis| {
            former.request(Instant(1) + Millis(millis), OWN, &mut replica);
            sent_to(&mut replica, MemberId(2), is_request)
        };
        assert_eq!([0, 1999, 2000, 2001, 3999, 4000].map(&mut requests), [0, 0, 1, 0, 0, 1]);
    }
}
