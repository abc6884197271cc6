//! What a leader does about members whose machines will be taken.

use std::cmp::Reverse;

use sanderling_protocol::{Instant, MemberId, Millis};

use super::group::{GroupChange, GroupRole};

/// What a leader has of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemberView {
    /// The member.
    pub(super) id: MemberId,
    /// What it counts for.
    pub(super) role: GroupRole,
    /// Its machine is there. One that has been silent for long is treated as if its deadline were
    /// over.
    pub(super) is_active: bool,
    /// It answers, and has all that was agreed a moment ago.
    pub(super) is_caught_up: bool,
    /// When its machine will be taken.
    pub(super) deadline: Option<Instant>,
    /// How long its machine goes on, by the preemption model.
    pub(super) expected_life: Option<Millis>,
}

/// What a leader does next. Each step is looked for again until there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupStep {
    /// Transfer the leadership: this leader's machine will be taken.
    Transfer(MemberId),
    /// Change the members.
    Change(GroupChange),
}

/// The state of a group, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPlan {
    /// The next step.
    pub step: Option<GroupStep>,
    /// Spares to start.
    pub spares_missing: usize,
    /// With the members that stay there would be no majority of the voters: the operator must start
    /// namenodes before the deadlines, and the last voter closes the archive.
    pub is_at_risk: bool,
}

impl MemberView {
    const fn stays(&self) -> bool {
        self.deadline.is_none() && self.is_active
    }

    fn can_serve(&self) -> bool {
        self.stays() && self.is_caught_up
    }
}

/// Returns what the leader does next. `voters` and `spares` are the numbers that the operator set.
pub(super) fn plan(
    leader: MemberId,
    members: &[MemberView],
    voters: usize,
    spares: usize,
) -> GroupPlan {
    let of = |role| members.iter().filter(move |it| it.role == role);
    let best = |candidates: Vec<&MemberView>| {
        let mut candidates = candidates;
        candidates.sort_by_key(|it| (Reverse(it.expected_life), it.id));
        candidates.into_iter().map(|it| it.id).collect::<Vec<MemberId>>()
    };
    let ready = best(of(GroupRole::Spare).filter(|it| it.can_serve()).collect());
    let successors =
        best(of(GroupRole::Voter).filter(|it| it.can_serve() && it.id != leader).collect());
    let is_leader_noticed = of(GroupRole::Voter).any(|it| it.id == leader && !it.stays());
    let step = match successors.first() {
        Some(to) if is_leader_noticed => Some(GroupStep::Transfer(*to)),
        _ => change(leader, members, voters, &ready).map(GroupStep::Change),
    };
    let count = of(GroupRole::Voter).count();
    let voters_staying = of(GroupRole::Voter).filter(|it| it.stays()).count();
    let spares_staying = of(GroupRole::Spare).filter(|it| it.stays()).count();
    let missing = spares + (count - voters_staying) + voters.saturating_sub(count);
    GroupPlan {
        step,
        spares_missing: missing.saturating_sub(spares_staying),
        is_at_risk: voters_staying + ready.len() < count / 2 + 1,
    }
}

/// Returns the change of the members that is needed most, as one step. At most one voter is
/// replaced in a step: of three voters, the two that stay must decide even if the new one dies at
/// once.
fn change(
    leader: MemberId,
    members: &[MemberView],
    voters: usize,
    ready: &[MemberId],
) -> Option<GroupChange> {
    let is_voter = |it: &&MemberView| it.role == GroupRole::Voter;
    let count = members.iter().filter(is_voter).count();
    let leaving = members.iter().filter(is_voter).filter(|it| !it.stays());
    let is_leaving = leaving.clone().any(|it| it.id == leader);
    // A machine that is gone first, then by deadline. The leader cannot remove itself.
    let first = leaving
        .filter(|it| it.id != leader)
        .min_by_key(|it| (it.is_active, it.deadline, it.id))
        .map(|it| it.id);
    let change = |promote: &[MemberId], remove: Option<MemberId>| {
        let promote = promote.iter().copied().collect();
        Some(GroupChange { add: None, promote, remove: remove.into_iter().collect() })
    };
    match (first, ready) {
        (Some(first), [spare, ..]) => return change(&[*spare], Some(first)),
        // An even number of voters survives no more than one voter less.
        (Some(first), []) if count.is_multiple_of(2) => return change(&[], Some(first)),
        // Then there is one to which it can give the leadership.
        (None, [spare, ..]) if is_leaving => return change(&[*spare], None),
        _ => {}
    }
    // A number that is even makes each round wait for one more and survives no more.
    let more = voters.saturating_sub(count).min(ready.len());
    let more = if (count + more).is_multiple_of(2) { more.saturating_sub(1) } else { more };
    if more > 0 {
        return change(&ready[..more], None);
    }
    let of_spares = || members.iter().filter(|it| it.role == GroupRole::Spare);
    // One that is only silent may come back, unless another has taken its place.
    let has_other = !ready.is_empty();
    let surplus = of_spares().find(|it| it.deadline.is_some() || (has_other && !it.is_active));
    surplus.and_then(|spare| change(&[], Some(spare.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Instant = Instant(30_000_000);

    fn member(id: u64, role: GroupRole) -> MemberView {
        MemberView {
            id: MemberId(id),
            role,
            is_active: true,
            is_caught_up: true,
            deadline: None,
            expected_life: None,
        }
    }

    fn three_and_spares(spares: u64) -> Vec<MemberView> {
        let voters = (1..=3).map(|id| member(id, GroupRole::Voter));
        voters.chain((4..4 + spares).map(|id| member(id, GroupRole::Spare))).collect()
    }

    fn swap(promote: &[u64], remove: &[u64]) -> Option<GroupStep> {
        let ids = |of: &[u64]| of.iter().map(|id| MemberId(*id)).collect();
        let (promote, remove) = (ids(promote), ids(remove));
        Some(GroupStep::Change(GroupChange { add: None, promote, remove }))
    }

    #[test]
    fn noticed_leader_gives_the_lead_to_the_longest_lived_voter_that_is_caught_up() {
        let mut members = three_and_spares(1);
        members[0].deadline = Some(DEADLINE);
        members[1].expected_life = Some(Millis(10));
        members[2].expected_life = Some(Millis(20));
        let next = plan(MemberId(1), &members, 3, 1);
        assert_eq!(next.step, Some(GroupStep::Transfer(MemberId(3))));
        members[2].is_caught_up = false;
        let next = plan(MemberId(1), &members, 3, 1);
        assert_eq!(next.step, Some(GroupStep::Transfer(MemberId(2))));
        // The next leader swaps it.
        assert_eq!(plan(MemberId(2), &members, 3, 1).step, swap(&[4], &[1]));
    }

    #[test]
    fn several_noticed_voters_are_swapped_one_by_one() {
        let mut members = three_and_spares(2);
        (members[1].deadline, members[2].deadline) = (Some(DEADLINE), Some(DEADLINE));
        let next = plan(MemberId(1), &members, 3, 1);
        assert_eq!(next.step, swap(&[4], &[2]), "2 of the next three are voters already");
        assert!(!next.is_at_risk);
        members[2].deadline = Some(Instant(1));
        assert_eq!(plan(MemberId(1), &members, 3, 1).step, swap(&[4], &[3]));
    }

    #[test]
    fn noticed_leader_that_votes_alone_gets_a_successor() {
        for voters in [1, 3] {
            let mut members = vec![member(1, GroupRole::Voter), member(2, GroupRole::Spare)];
            members[0].deadline = Some(DEADLINE);
            let next = plan(MemberId(1), &members, voters, 1);
            assert_eq!((next.step, next.is_at_risk), (swap(&[2], &[]), false));
            members[1].is_caught_up = false;
            let next = plan(MemberId(1), &members, voters, 1);
            assert_eq!((next.step, next.is_at_risk), (None, true));
            members[1] = member(2, GroupRole::Voter);
            let next = plan(MemberId(1), &members, voters, 1);
            assert_eq!(next.step, Some(GroupStep::Transfer(MemberId(2))));
            // Two voters would survive no more than one.
            assert_eq!(plan(MemberId(2), &members, voters, 1).step, swap(&[], &[1]));
        }
    }

    #[test]
    fn silent_spare_keeps_its_place_unless_another_one_is_ready() {
        let mut members = three_and_spares(1);
        (members[3].is_active, members[3].is_caught_up) = (false, false);
        assert_eq!(plan(MemberId(1), &members, 3, 1).step, None);
        members.push(member(5, GroupRole::Spare));
        assert_eq!(plan(MemberId(1), &members, 3, 1).step, swap(&[], &[4]));
    }

    #[test]
    fn group_is_at_risk_when_those_that_stay_are_no_majority() {
        let mut members = three_and_spares(0);
        members[1].deadline = Some(DEADLINE);
        let next = plan(MemberId(1), &members, 3, 1);
        assert_eq!((next.step, next.spares_missing, next.is_at_risk), (None, 2, false));
        members[2].deadline = Some(DEADLINE);
        assert!(plan(MemberId(1), &members, 3, 1).is_at_risk);
        members.extend([member(4, GroupRole::Spare)]);
        assert!(!plan(MemberId(1), &members, 3, 1).is_at_risk);
    }

    #[test]
    fn all_noticed_keeps_the_leader_and_swaps_what_it_can() {
        let mut members = three_and_spares(1);
        members[..3].iter_mut().for_each(|it| it.deadline = Some(DEADLINE));
        let next = plan(MemberId(1), &members, 3, 1);
        assert_eq!((next.step, next.is_at_risk), (swap(&[4], &[2]), true));
    }

    #[test]
    fn group_below_its_size_grows_and_a_spare_that_leaves_is_removed() {
        let mut members = three_and_spares(1);
        members.remove(1);
        assert_eq!(plan(MemberId(1), &members, 3, 1).step, swap(&[4], &[]));
        // Two voters survive the loss of none, as one does.
        members.remove(1);
        let next = plan(MemberId(1), &members, 3, 1);
        assert_eq!((next.step, next.spares_missing), (None, 2));
        members.push(member(5, GroupRole::Spare));
        assert_eq!(plan(MemberId(1), &members, 3, 1).step, swap(&[4, 5], &[]));
        let mut members = three_and_spares(1);
        members[3].deadline = Some(DEADLINE);
        assert_eq!(plan(MemberId(1), &members, 3, 1).step, swap(&[], &[4]));
    }

    #[test]
    fn cancelled_notice_leaves_nothing_to_do() {
        let next = plan(MemberId(1), &three_and_spares(1), 3, 1);
        assert_eq!(next, GroupPlan { step: None, spares_missing: 0, is_at_risk: false });
    }
}
