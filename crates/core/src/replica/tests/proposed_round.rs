//! A round of several entries, while it is agreed and while the leader changes.

use super::*;
use crate::replica::ROUND_BYTES_MAX;
use crate::replica::proposed_round::{FlightState, RoundFlight};

/// Three members, and a round of these pieces at their leader, of which none is proposed.
fn group(pieces: &[&'static [u8]]) -> (TestGroup, RoundFlight) {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let pieces: Vec<Bytes> = pieces.iter().map(|piece| Bytes::from_static(piece)).collect();
    let flight = RoundFlight::new(test.lead().term(), pieces);
    (test, flight)
}

/// Proposes at a member as its shell does.
fn propose(test: &mut TestGroup, id: MemberId, flight: &mut RoundFlight) {
    let (now, member) = (test.now, test.members.get_mut(&id).unwrap());
    let at = member.time(now);
    flight.propose(now, at, member);
}

/// Gives the round what a member has applied, and returns its pieces among that.
fn apply(test: &mut TestGroup, id: MemberId, flight: &mut RoundFlight) -> usize {
    let entries = test.applied.remove(&id).unwrap_or_default();
    entries.iter().filter(|entry| flight.applies(entry.place, &entry.payload)).count()
}

#[test]
fn round_is_agreed_once_all_its_entries_are() {
    let (mut test, mut flight) = group(&[b"one", b"two", b"three"]);
    let leader = test.leader();
    apply(&mut test, leader, &mut flight);
    assert_eq!(flight.state(test.lead()), FlightState::UnderWay);
    propose(&mut test, leader, &mut flight);
    test.settle();
    let entries = test.applied.remove(&leader).unwrap();
    assert_eq!(entries.len(), 3);
    for (at, entry) in entries.iter().enumerate() {
        assert!(flight.applies(entry.place, &entry.payload));
        let expected = if at == 2 { FlightState::Agreed } else { FlightState::UnderWay };
        assert_eq!(flight.state(test.lead()), expected);
    }
}

#[test]
fn round_of_a_leader_without_a_majority_is_lost_and_keeps_nothing() {
    let (mut test, mut flight) = group(&[b"one", b"two"]);
    let leader = test.leader();
    test.cut.push(leader);
    propose(&mut test, leader, &mut flight);
    assert_eq!(flight.state(&test.members[&leader]), FlightState::UnderWay);
    test.pass(2000);
    assert_eq!(flight.state(&test.members[&leader]), FlightState::Lost);
    assert_eq!(flight.give_up(), Vec::<Bytes>::new());
    test.cut.clear();
    test.pass(1000);
    assert_eq!(apply(&mut test, leader, &mut flight), 0, "its entries were overruled");
}

#[test]
fn what_is_agreed_of_a_round_is_handed_over_when_it_is_given_up() {
    let (mut test, mut flight) = group(&[b"one", b"two"]);
    let leader = test.leader();
    propose(&mut test, leader, &mut flight);
    test.settle();
    let entries = test.applied.remove(&leader).unwrap();
    let (first, second) = (&entries[entries.len() - 2], &entries[entries.len() - 1]);
    assert!(flight.applies(first.place, &first.payload));
    assert_eq!(flight.give_up(), [Bytes::from_static(b"one")]);
    assert!(!flight.applies(second.place, &second.payload), "it is another leader's now");
    assert_eq!(flight.state(test.lead()), FlightState::Lost);
    propose(&mut test, leader, &mut flight);
    test.settle();
    assert_eq!(test.applied.remove(&leader), None, "nothing more of it is proposed");
}

#[test]
fn piece_waits_while_the_leadership_moves_and_is_lost_with_it() {
    let (mut test, mut flight) = group(&[b"one"]);
    let (now, leader) = (test.now, test.leader());
    let to = (1..=3).map(MemberId).find(|id| *id != leader).unwrap();
    test.lead().transfer(now, to).unwrap();
    propose(&mut test, leader, &mut flight);
    assert_eq!(flight.state(&test.members[&leader]), FlightState::UnderWay);
    test.pass(1000);
    assert_eq!(test.leader(), to);
    assert_eq!(flight.state(&test.members[&leader]), FlightState::Lost);
}

#[test]
fn piece_that_no_entry_can_have_is_reported_with_its_length() {
    const LONG: &[u8] = &[0; ROUND_BYTES_MAX + 1];
    let (mut test, mut flight) = group(&[LONG]);
    let leader = test.leader();
    propose(&mut test, leader, &mut flight);
    let bytes = LONG.len();
    assert_eq!(flight.state(&test.members[&leader]), FlightState::TooLong { bytes });
}
