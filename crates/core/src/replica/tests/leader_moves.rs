//! Transfers of the leadership that an operator has ordered.

use super::*;

/// Three voters, the one that leads, and another one.
fn group() -> (TestGroup, MemberId, MemberId) {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let leader = test.leader();
    let other = test.members.keys().copied().find(|id| *id != leader).unwrap();
    (test, leader, other)
}

#[test]
fn ordered_transfer_begins_at_once_and_ends_when_another_member_leads() {
    for is_named in [true, false] {
        let (mut test, leader, other) = group();
        let (now, mut moves) = (test.now, LeaderMoves::default());
        let to = is_named.then_some(other);
        moves.order(test.lead(), now, to, &[other], 'a').unwrap();
        assert!(moves.ended(&test.members[&leader], now).is_empty());
        test.pass(100);
        assert_eq!(test.leader(), other);
        assert_eq!(moves.ended(&test.members[&leader], test.now), [('a', Ok(()))]);
        assert!(moves.ended(&test.members[&leader], test.now).is_empty());
    }
}

#[test]
fn transfer_whose_message_was_lost_is_begun_anew_once_the_first_one_has_ended() {
    let (mut test, leader, other) = group();
    let (now, mut moves) = (test.now, LeaderMoves::default());
    test.cut.push(other);
    moves.order(test.lead(), now, Some(other), &[], 'a').unwrap();
    test.settle();
    test.cut.clear();
    moves.repeat(test.lead(), now, &[]);
    assert_eq!(test.lead().transfer(now, other), Err(ProposeError::Transferring));
    test.pass(1000);
    assert_eq!(test.leader(), leader, "the request to lead was lost");
    let now = test.now;
    moves.repeat(test.lead(), now, &[]);
    test.pass(100);
    assert_eq!(test.leader(), other);
    assert_eq!(moves.ended(&test.members[&leader], test.now), [('a', Ok(()))]);
}

#[test]
fn successor_that_does_not_lead_is_followed_by_the_next_one_and_then_tried_again() {
    for lost in [1, 2] {
        let (mut test, leader, other) = group();
        let successors = [other, MemberId(6 - leader.0 - other.0)];
        let (now, mut moves) = (test.now, LeaderMoves::default());
        moves.order(test.lead(), now, None, &successors, 'a').unwrap();
        for member in successors.into_iter().take(lost) {
            // The request to lead is lost; what the member sends afterwards arrives.
            test.cut.push(member);
            test.settle();
            test.cut.clear();
            test.pass(600);
            assert_eq!(test.leader(), leader);
            assert!(moves.ended(&test.members[&leader], test.now).is_empty());
            let now = test.now;
            moves.repeat(test.lead(), now, &successors);
        }
        test.pass(100);
        assert_eq!(test.leader(), successors[lost % 2]);
        assert_eq!(moves.ended(&test.members[&leader], test.now), [('a', Ok(()))]);
    }
}

#[test]
fn order_to_a_silent_voter_waits_two_seconds_for_its_answer() {
    let (mut test, leader, silent) = group();
    test.cut.push(silent);
    test.pass(2000);
    let (now, mut moves) = (test.now, LeaderMoves::default());
    moves.order(test.lead(), now, Some(silent), &[], 'a').unwrap();
    assert!(moves.ended(&test.members[&leader], now + Millis(1999)).is_empty());
    let refused = LeaderMoveError::Refused(ProposeError::CannotLead(silent));
    let ended = moves.ended(&test.members[&leader], now + Millis(2000));
    assert_eq!(ended, [('a', Err(refused))]);
}

#[test]
fn order_fails_after_two_seconds_if_the_member_answers_and_does_not_lead() {
    let (mut test, leader, other) = group();
    let (now, mut moves) = (test.now, LeaderMoves::default());
    moves.order(test.lead(), now, Some(other), &[], 'a').unwrap();
    // What the leader sends stays where it is.
    let ended = moves.ended(&test.members[&leader], now + Millis(2000));
    assert_eq!(ended, [('a', Err(LeaderMoveError::TooLate))]);
}

#[test]
fn order_that_cannot_succeed_is_refused_at_once() {
    let mut alone = TestGroup::new(1);
    alone.settle();
    let (now, mut moves) = (alone.now, LeaderMoves::default());
    let refused = moves.order(alone.lead(), now, None, &[], 'a');
    assert_eq!(refused, Err(('a', LeaderMoveError::NoVoter)));
    let refused = moves.order(alone.lead(), now, Some(MemberId(9)), &[], 'b');
    let no_voter = LeaderMoveError::Refused(ProposeError::CannotLead(MemberId(9)));
    assert_eq!(refused, Err(('b', no_voter)));
    let (mut test, leader, other) = group();
    let follower = test.members.get_mut(&other).unwrap();
    let refused = moves.order(follower, now, None, &[], 'c');
    let elsewhere = LeaderMoveError::Refused(ProposeError::NotLeader { leader: Some(leader) });
    assert_eq!(refused, Err(('c', elsewhere)));
    assert!(moves.ended(&alone.members[&MemberId(1)], now + Millis(2000)).is_empty());
}
