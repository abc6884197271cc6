//! Snapshots: which of them a member takes, and when a leader sends them.

use super::*;

/// A message with a snapshot of four voters.
fn snapshot(from: u64, to: u64, term: u64, place: LogPlace) -> Envelope {
    let group = Group::of_voters(1, (1..=4).map(address).collect());
    Envelope { body: Body::Snapshot { place, group }, ..heartbeat(from, to, term, 0) }
}

fn at(term: u64, index: u64) -> LogPlace {
    LogPlace { term, index }
}

/// A member that has nothing, and receives from the leader of term 6.
fn joined() -> TestGroup {
    let mut test = TestGroup::new(3);
    test.start(MemberId(4), Restored::default());
    let now = test.now;
    let member = test.members.get_mut(&MemberId(4)).unwrap();
    member.receive(now, heartbeat(2, 4, 6, 0)).unwrap();
    test
}

/// Its place is later, since the next leader has applied less so far.
#[test]
fn snapshot_of_an_earlier_leader_is_not_awaited_and_the_next_ones_is_taken() {
    let mut test = joined();
    let now = test.now;
    let member = test.members.get_mut(&MemberId(4)).unwrap();
    member.receive(now, snapshot(1, 4, 5, at(5, 120))).unwrap();
    assert!(!member.awaits_snapshot(at(5, 120)), "its term has ended");
    member.receive(now, snapshot(2, 4, 6, at(5, 110))).unwrap();
    assert!(member.awaits_snapshot(at(5, 110)));
    // Late and repeated ones: what they have is there already.
    member.receive(now, snapshot(2, 4, 6, at(5, 100))).unwrap();
    assert!(!member.awaits_snapshot(at(5, 100)));
    let other = Envelope { generation: 1, ..snapshot(2, 4, 6, at(5, 130)) };
    assert!(matches!(member.receive(now, other), Err(MessageRefusal::Generation { .. })));
    assert!(!member.awaits_snapshot(at(5, 130)));
    test.settle();
    let member = &test.members[&MemberId(4)];
    assert_eq!(member.ends(), (110, 110));
    assert!(!member.awaits_snapshot(at(5, 110)), "it is written");
}

#[test]
fn two_snapshots_that_arrive_before_one_is_written_are_awaited_both() {
    let mut test = joined();
    let now = test.now;
    let member = test.members.get_mut(&MemberId(4)).unwrap();
    member.receive(now, snapshot(2, 4, 6, at(5, 100))).unwrap();
    member.receive(now, snapshot(2, 4, 6, at(6, 120))).unwrap();
    assert!(member.awaits_snapshot(at(5, 100)) && member.awaits_snapshot(at(6, 120)));
    let mut restored = Vec::new();
    while let Some(output) = test.members.get_mut(&MemberId(4)).unwrap().poll_output() {
        match output {
            ReplicaOutput::Persist(persist) => {
                test.members.get_mut(&MemberId(4)).unwrap().persisted(now, persist.number);
            }
            ReplicaOutput::Restore(place, _) => restored.push(place),
            _ => {}
        }
    }
    assert_eq!(restored, [at(5, 100), at(6, 120)]);
}

#[test]
fn two_snapshots_are_sent_at_once_and_none_of_an_earlier_leadership() {
    let mut test = TestGroup::new(1);
    test.settle();
    let (now, term) = (test.now, test.lead().term());
    let mut sends = SnapshotSends::default();
    let (later, replica) = (now + Millis(60_000), test.lead());
    sends.request(snapshot(1, 2, term, at(1, 1)));
    sends.request(snapshot(1, 3, term, at(1, 1)));
    sends.request(snapshot(1, 4, term, at(1, 1)));
    sends.request(snapshot(1, 4, term, at(1, 2)));
    let begun = [2, 3].map(|to| {
        let envelope = sends.begin(now, replica).expect("fewer than two are being sent");
        assert_eq!(envelope.to, MemberId(to));
        envelope
    });
    assert_eq!(sends.begin(later, replica), None, "two are being sent");
    sends.ended(later, MemberId(4), true, replica);
    assert_eq!(sends.begin(later, replica), None, "another one has ended");
    sends.ended(later, MemberId(2), true, replica);
    let third = sends.begin(later, replica).expect("the first one has ended");
    assert_eq!(third, snapshot(1, 4, term, at(1, 2)), "the later one of two");
    sends.ended(later, MemberId(4), true, replica);
    assert_eq!(sends.begin(later, replica), None, "each is sent once");
    sends.request(begun[1].clone());
    assert_eq!(sends.begin(later, replica), None, "one is being sent to this member");
    sends.ended(later, MemberId(3), true, replica);
    assert_eq!(sends.begin(later, replica), Some(begun[1].clone()));
    sends.ended(later, MemberId(3), true, replica);
    sends.request(snapshot(1, 2, term - 1, at(1, 1)));
    assert_eq!(sends.begin(later, replica), None, "this term's members would ignore it");
}

/// Goes on until the leader puts out the next snapshot; returns how long that took.
fn until_requested(test: &mut TestGroup, sends: &mut SnapshotSends) -> (u64, Envelope) {
    let began = test.now;
    test.held = Some(Vec::new());
    loop {
        let now = test.now;
        sends.report(now, test.lead());
        test.pass(5);
        if let Some(envelope) = test.held.as_mut().and_then(Vec::pop) {
            return (began.until(test.now).0, envelope);
        }
    }
}

#[test]
fn snapshot_that_a_member_does_not_take_is_sent_again_after_pauses_that_grow_to_ten_seconds() {
    let (mut test, lagging, _) = TestGroup::with_lagging_member();
    let mut sends = SnapshotSends::default();
    let (_, mut envelope) = until_requested(&mut test, &mut sends);
    for pause in [1000, 2000, 4000, 8000, 10_000, 10_000] {
        assert_eq!(envelope.to, lagging);
        sends.request(envelope);
        let now = test.now;
        assert!(sends.begin(now, test.lead()).is_some());
        sends.ended(now, lagging, false, test.lead());
        let (took, next) = until_requested(&mut test, &mut sends);
        assert!((pause..pause + 200).contains(&took), "{took} ms, {pause} ms expected");
        envelope = next;
    }
    // An attempt that takes long is followed by as long a pause.
    sends.request(envelope);
    let now = test.now;
    assert!(sends.begin(now, test.lead()).is_some());
    test.pass(15_000);
    let now = test.now;
    sends.ended(now, lagging, false, test.lead());
    let (took, envelope) = until_requested(&mut test, &mut sends);
    assert!((15_000..15_200).contains(&took), "{took} ms");
    // One that the member has taken ends the pauses.
    sends.request(envelope);
    let now = test.now;
    assert!(sends.begin(now, test.lead()).is_some());
    sends.ended(now, lagging, true, test.lead());
    let (_, envelope) = until_requested(&mut test, &mut sends);
    sends.request(envelope);
    let now = test.now;
    assert!(sends.begin(now, test.lead()).is_some());
    sends.ended(now, lagging, false, test.lead());
    let (took, _) = until_requested(&mut test, &mut sends);
    assert!((1000..1200).contains(&took), "{took} ms");
}
