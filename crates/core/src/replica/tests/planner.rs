//! What a leader does about its group's machines.

use super::*;

const GONE_AFTER: Millis = Millis(30_000);

/// Three voters and a spare that is member 4, and what their leader has of the machines.
fn group() -> (TestGroup, GroupPlanner) {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let now = test.now;
    let change = test.lead().group().add(address(4)).unwrap();
    test.lead().change_group(now, &change).unwrap();
    test.start(MemberId(4), Restored::default());
    test.pass(1000);
    let mut planner = GroupPlanner::new(PlannerOptions::new(3, 1));
    // From its first look in a term on it keeps what it receives.
    assert_eq!(next(&mut test, &mut planner).step, None);
    (test, planner)
}

fn next(test: &mut TestGroup, planner: &mut GroupPlanner) -> GroupPlan {
    let now = test.now;
    planner.plan(now, test.lead()).expect("it leads")
}

/// A voter that does not lead.
fn follower(test: &TestGroup) -> MemberId {
    let leader = test.leader();
    (1..=3).map(MemberId).find(|id| *id != leader).unwrap()
}

fn swap(leaves: MemberId) -> Option<GroupStep> {
    let (promote, remove) = ([MemberId(4)].into(), [leaves].into());
    Some(GroupStep::Change(GroupChange { add: None, promote, remove }))
}

#[test]
fn notice_counts_while_it_is_repeated_and_is_forgotten_when_it_is_taken_back() {
    let (mut test, mut planner) = group();
    let noticed = follower(&test);
    let deadline = test.now + Millis(60_000);
    planner.notice(test.now, noticed, Some(deadline));
    assert_eq!(planner.deadline(noticed), Some(deadline));
    assert_eq!(next(&mut test, &mut planner).step, swap(noticed));
    test.pass(2000);
    planner.notice(test.now, noticed, Some(deadline));
    test.pass(2000);
    assert_eq!(next(&mut test, &mut planner).step, swap(noticed));
    test.pass(1500);
    assert_eq!(next(&mut test, &mut planner).step, None, "it answers, and repeats no notice");
    planner.notice(test.now, noticed, Some(deadline));
    planner.notice(test.now, noticed, None);
    assert_eq!(next(&mut test, &mut planner).step, None);
}

#[test]
fn noticed_leader_gives_the_leadership_away() {
    let (mut test, mut planner) = group();
    let leader = test.leader();
    planner.notice(test.now, leader, Some(test.now + Millis(60_000)));
    assert_eq!(next(&mut test, &mut planner).step, None, "the others may have one, too");
    test.pass(2000);
    let step = next(&mut test, &mut planner).step;
    let Some(GroupStep::Transfer(to)) = step else { panic!("{step:?}") };
    let now = test.now;
    test.lead().transfer(now, to).unwrap();
    test.pass(100);
    assert_eq!(test.leader(), to);
    assert_eq!(planner.plan(test.now, &test.members[&leader]), None, "another one leads");
}

/// It was taken back while another member led, and a voter may be silent when this one leads again.
#[test]
fn notice_of_an_earlier_term_is_forgotten() {
    let (mut test, mut planner) = group();
    let (leader, noticed) = (test.leader(), follower(&test));
    planner.notice(test.now, noticed, Some(test.now + Millis(3000)));
    let other = MemberId(6 - leader.0 - noticed.0);
    for to in [other, leader] {
        let now = test.now;
        test.lead().transfer(now, to).unwrap();
        test.pass(1000);
        assert_eq!(test.leader(), to);
    }
    test.pass(3000);
    test.cut.push(noticed);
    test.pass(1000);
    assert_eq!(next(&mut test, &mut planner).step, None);
}

/// A voter that nothing reached while it was removed.
fn removed_while_away() -> (TestGroup, MemberId) {
    let (mut test, _) = group();
    let away = follower(&test);
    test.cut.push(away);
    let change = GroupChange { remove: [away].into(), ..GroupChange::default() };
    let now = test.now;
    test.lead().change_group(now, &change).unwrap();
    test.pass(200);
    test.cut.clear();
    (test, away)
}

#[test]
fn member_that_was_removed_while_it_was_away_requests_its_membership_and_leaves() {
    let (mut test, away) = removed_while_away();
    let leader = test.leader();
    test.members.get_mut(&away).unwrap().request_membership(leader);
    test.settle();
    assert_eq!(test.members[&away].deadline(), None, "it takes no part");
    // Its directory has the members without it, or gets them in time.
    let group = test.lead().group().clone();
    let start = LogPlace { term: 1, index: 1 };
    let restored = Restored { start, group, applied: 1, ..Restored::default() };
    test.start(away, restored);
    let outputs = test.outputs(away);
    assert!(outputs.iter().any(|it| matches!(it, ReplicaOutput::Removed)), "{outputs:?}");
}

#[test]
fn leader_reports_a_removal_to_the_member() {
    let (mut test, away) = removed_while_away();
    test.lead().report_removal(away);
    test.settle();
    assert_eq!(test.members[&away].deadline(), None, "it takes no part");
}

#[test]
fn silent_voter_keeps_its_place_as_long_as_a_restart_may_take() {
    let (mut test, mut planner) = group();
    let silent = follower(&test);
    test.cut.push(silent);
    test.pass(1000);
    assert_eq!(next(&mut test, &mut planner).step, None);
    test.pass(GONE_AFTER.0 - 1000);
    assert_eq!(next(&mut test, &mut planner).step, None);
    // It answers once, and counts anew.
    test.cut.clear();
    test.pass(1000);
    assert_eq!(next(&mut test, &mut planner).step, None);
    test.cut.push(silent);
    test.pass(2000);
    assert_eq!(next(&mut test, &mut planner).step, None);
    test.pass(GONE_AFTER.0);
    assert_eq!(next(&mut test, &mut planner).step, swap(silent));
}

/// A machine that was taken does not come back: the silence need not be long. While it is silent,
/// the notice that it gave still holds.
#[test]
fn voter_that_is_silent_after_its_deadline_is_replaced_at_once() {
    let (mut test, mut planner) = group();
    let taken = follower(&test);
    planner.notice(test.now, taken, Some(test.now + Millis(5000)));
    test.cut.push(taken);
    test.pass(10_000);
    let planned = next(&mut test, &mut planner);
    assert_eq!((planned.step, planned.is_at_risk), (swap(taken), false));
    assert_eq!(planned.spares_missing, 1, "the spare becomes a voter");
}

#[test]
fn swap_is_made_once_and_a_new_spare_is_missing() {
    let (mut test, mut planner) = group();
    let noticed = follower(&test);
    planner.notice(test.now, noticed, Some(test.now + Millis(60_000)));
    let step = next(&mut test, &mut planner).step;
    let Some(GroupStep::Change(change)) = step else { panic!("{step:?}") };
    let now = test.now;
    test.lead().change_group(now, &change).unwrap();
    let again = test.lead().change_group(now, &change);
    assert_eq!(again, Err(ProposeError::Change(GroupChangeError::UnderWay)));
    test.pass(1000);
    let planned = next(&mut test, &mut planner);
    assert_eq!((planned.step, planned.spares_missing), (None, 1));
    assert_eq!(planner.deadline(noticed), None, "it is no member any more");
}

#[test]
fn successors_are_the_voters_that_are_caught_up_and_the_one_without_a_notice_is_first() {
    let (mut test, mut planner) = group();
    let (leader, noticed) = (test.leader(), follower(&test));
    let other = MemberId(6 - leader.0 - noticed.0);
    let of = |test: &TestGroup, planner: &GroupPlanner| planner.successors(&test.members[&leader]);
    assert_eq!(of(&test, &planner), [noticed, other], "of equals the lowest number is first");
    planner.notice(test.now, noticed, Some(test.now + Millis(60_000)));
    assert_eq!(of(&test, &planner), [other, noticed]);
    // It is behind, and as far as the leader has noticed it answers.
    test.cut.push(other);
    for _ in 0..100 {
        test.propose(b"one");
    }
    assert_eq!(of(&test, &planner), [noticed]);
}

#[test]
fn namenode_alone_stops_thirteen_seconds_before_the_deadline_of_its_notice() {
    let (options, deadline) = (PlannerOptions::new(1, 0), Instant(60_000_000));
    assert!(!options.is_closing(deadline, None));
    assert!(!options.is_closing(Instant(46_999_000), Some(deadline)));
    assert!(options.is_closing(Instant(47_000_000), Some(deadline)));
    assert!(options.is_closing(Instant(61_000_000), Some(deadline)));
}
