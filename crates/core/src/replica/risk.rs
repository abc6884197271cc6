//! Whether a group survives the loss of one more member, and what its log has about that.

use std::collections::BTreeSet;

use sanderling_protocol::{EventKind, Instant, MemberId, Millis};
use thiserror::Error;

use super::group::GroupRole;
use super::notices::GroupPlan;
use super::output::MemberProgress;

/// How long a risk must last for an event: a restart of a namenode takes less. A million objects in
/// a snapshot take 0.7 s (docs/SCALE.md), an election as long.
pub const RISK_LASTS: Millis = Millis(5000);

/// A reason why the loss of one more member would stop a group, or soon will. The text is for
/// operators and names what to do where that is not evident.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GroupRisk {
    /// There is no group, and this machine has a notice.
    #[error("this namenode is alone, and its machine will be taken: start namenodes with --join")]
    Alone,
    /// Those that stay are no majority of the voters.
    #[error(
        "too few members stay: {noticed} of {members} have a notice, and {voters} vote: start \
         namenodes with --join"
    )]
    TooFewStay {
        /// Members with a notice.
        noticed: usize,
        /// All members, spares among them.
        members: usize,
        /// Members that vote.
        voters: usize,
    },
    /// Those that stay decide, and would not without one of them.
    #[error("{staying} of {voters} voters answer; one more loss stops the group")]
    NoLossLeft {
        /// Voters that answer and have no notice.
        staying: usize,
        /// Members that vote.
        voters: usize,
    },
    /// The group is smaller than the operator has set.
    #[error("it has {voters} voters, and {wanted} are wanted")]
    TooSmall {
        /// Members that vote.
        voters: usize,
        /// Voters that the operator has set.
        wanted: usize,
    },
}

impl GroupRisk {
    /// Returns the risk of a group whose members are `members` ([`super::Replica::progress`]), of
    /// which `wanted` should vote. `None` without a risk, and for a member that does not lead.
    #[must_use]
    pub fn of(
        members: &[MemberProgress],
        has_notice: impl Fn(MemberId) -> bool,
        wanted: usize,
        plan: Option<&GroupPlan>,
    ) -> Option<Self> {
        if members.is_empty() {
            return None;
        }
        let is_voter = |member: &&MemberProgress| member.role == GroupRole::Voter;
        let voters = members.iter().filter(is_voter).count();
        if plan.is_some_and(|plan| plan.is_at_risk) {
            let noticed = members.iter().filter(|member| has_notice(member.id)).count();
            return Some(Self::TooFewStay { noticed, members: members.len(), voters });
        }
        let stays = |member: &&MemberProgress| member.is_active && !has_notice(member.id);
        let staying = members.iter().filter(is_voter).filter(stays).count();
        let is_reduced = staying < voters || voters < wanted;
        if staying <= voters / 2 + 1 && voters >= 2 && is_reduced {
            return Some(Self::NoLossLeft { staying, voters });
        }
        (voters < wanted).then_some(Self::TooSmall { voters, wanted })
    }
}

/// A record of what a leader has written about its group into the log, and so what it writes next.
#[derive(Debug, Clone, Default)]
pub struct GroupEvents {
    voters: Option<BTreeSet<MemberId>>,
    at_risk_since: Option<Instant>,
    /// Whether the last event in the log about that is of a risk.
    is_risk_logged: bool,
}

impl GroupEvents {
    /// Returns what a new leader continues with: the events in the log, oldest first. The leader
    /// before it may have logged a risk that it did not see end.
    #[must_use]
    pub fn continued<'a>(events: impl DoubleEndedIterator<Item = &'a EventKind>) -> Self {
        let is_risk_logged = events
            .rev()
            .find_map(|event| match event {
                EventKind::GroupAtRisk { .. } => Some(true),
                EventKind::GroupRestored { .. } => Some(false),
                _ => None,
            })
            .unwrap_or(false);
        Self { voters: None, at_risk_since: None, is_risk_logged }
    }

    /// Returns the events that follow from the group's state, to be logged in this order: that
    /// other members vote, that the group has been at risk for `lasts` ([`RISK_LASTS`]), that it
    /// is no longer. The first state after a change of the leader is no change of the voters.
    pub fn look(
        &mut self,
        now: Instant,
        voters: BTreeSet<MemberId>,
        risk: Option<&GroupRisk>,
        lasts: Millis,
    ) -> Vec<EventKind> {
        let mut events = Vec::new();
        let count = voters.len() as u64;
        let before = self.voters.replace(voters);
        if let (Some(before), Some(voters)) = (before, &self.voters)
            && before != *voters
        {
            let joined = voters.difference(&before).copied().collect();
            let left = before.difference(voters).copied().collect();
            events.push(EventKind::GroupChanged { joined, left });
        }
        let Some(risk) = risk else {
            self.at_risk_since = None;
            if std::mem::take(&mut self.is_risk_logged) {
                events.push(EventKind::GroupRestored { voters: count });
            }
            return events;
        };
        let since = *self.at_risk_since.get_or_insert(now);
        if since.until(now) >= lasts && !std::mem::replace(&mut self.is_risk_logged, true) {
            events.push(EventKind::GroupAtRisk { why: risk.to_string() });
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(voters: u64, spares: u64) -> Vec<MemberProgress> {
        let role = |id| if id <= voters { GroupRole::Voter } else { GroupRole::Spare };
        let member =
            |id| MemberProgress { id: MemberId(id), role: role(id), matched: 1, is_active: true };
        (1..=voters + spares).map(member).collect()
    }

    fn risk(members: &[MemberProgress], noticed: &[u64]) -> Option<GroupRisk> {
        GroupRisk::of(members, |id| noticed.contains(&id.0), 3, None)
    }

    #[test]
    fn group_is_at_risk_when_the_next_loss_would_stop_it() {
        let mut group = members(3, 1);
        assert_eq!(risk(&group, &[]), None);
        assert_eq!(risk(&group, &[4]), None, "a spare counts for nothing");
        assert_eq!(risk(&group, &[2]), Some(GroupRisk::NoLossLeft { staying: 2, voters: 3 }));
        group[2].is_active = false;
        assert_eq!(risk(&group, &[]), Some(GroupRisk::NoLossLeft { staying: 2, voters: 3 }));
        assert_eq!(risk(&members(5, 0), &[2]), None, "four of five stay");
        assert_eq!(risk(&[], &[1]), None, "it does not lead");
    }

    #[test]
    fn group_is_at_risk_while_it_is_smaller_than_wanted() {
        assert_eq!(risk(&members(1, 2), &[]), Some(GroupRisk::TooSmall { voters: 1, wanted: 3 }));
        let two = Some(GroupRisk::NoLossLeft { staying: 2, voters: 2 });
        assert_eq!(risk(&members(2, 0), &[]), two);
    }

    #[test]
    fn plan_that_finds_no_majority_is_the_first_risk() {
        let plan = GroupPlan { step: None, spares_missing: 2, is_at_risk: true, is_closing: false };
        let found = GroupRisk::of(&members(3, 1), |id| id.0 <= 2, 3, Some(&plan));
        assert_eq!(found, Some(GroupRisk::TooFewStay { noticed: 2, members: 4, voters: 3 }));
        let text = "too few members stay: 2 of 4 have a notice, and 3 vote: start namenodes with \
                    --join";
        assert_eq!(found.unwrap().to_string(), text);
    }

    #[test]
    fn risk_is_logged_once_it_lasts_and_its_end_at_once() {
        let risk = GroupRisk::NoLossLeft { staying: 2, voters: 3 };
        let voters: BTreeSet<MemberId> = (1..=3).map(MemberId).collect();
        let mut log = GroupEvents::default();
        let mut look = |millis, risk: Option<&GroupRisk>| {
            log.look(Instant(7) + Millis(millis), voters.clone(), risk, RISK_LASTS)
        };
        assert_eq!(look(0, Some(&risk)), []);
        assert_eq!(look(4999, Some(&risk)), []);
        assert_eq!(look(5000, None), [], "a restart is no event");
        assert_eq!(look(5001, Some(&risk)), []);
        let why = "2 of 3 voters answer; one more loss stops the group".to_owned();
        assert_eq!(look(10_001, Some(&risk)), [EventKind::GroupAtRisk { why }]);
        assert_eq!(look(60_000, Some(&risk)), []);
        assert_eq!(look(60_001, None), [EventKind::GroupRestored { voters: 3 }]);
        assert_eq!(look(60_002, None), []);
    }

    #[test]
    fn new_leader_logs_the_end_of_a_risk_that_an_earlier_one_logged() {
        let at_risk = EventKind::GroupAtRisk { why: "it was".to_owned() };
        let restored = EventKind::GroupRestored { voters: 3 };
        let voters = || (1..=3).map(MemberId).collect::<BTreeSet<MemberId>>();
        let first = |events: &[EventKind]| {
            GroupEvents::continued(events.iter()).look(Instant(0), voters(), None, RISK_LASTS)
        };
        assert_eq!(first(&[restored.clone(), at_risk.clone()]), vec![restored.clone()]);
        assert_eq!(first(&[at_risk, restored]), []);
    }

    #[test]
    fn change_of_the_voters_is_logged_with_those_that_joined_and_left() {
        let mut log = GroupEvents::default();
        let mut look =
            |ids: [u64; 3]| log.look(Instant(0), ids.map(MemberId).into(), None, RISK_LASTS);
        assert_eq!(look([1, 2, 3]), []);
        let (joined, left) = (vec![MemberId(4)], vec![MemberId(2)]);
        assert_eq!(look([1, 3, 4]), [EventKind::GroupChanged { joined, left }]);
    }
}
