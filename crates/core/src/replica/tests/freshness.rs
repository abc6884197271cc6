//! Until when a member may rely on what it has applied.

use super::*;

impl TestGroup {
    fn fresh(&self) -> Vec<u64> {
        let is_fresh = |(_, member): &(&MemberId, &Replica)| self.now < member.fresh_until();
        self.members.iter().filter(is_fresh).map(|(id, _)| id.0).collect()
    }
}

#[test]
fn member_relies_on_what_it_has_for_six_elections_after_a_leader_has_reached_it() {
    let mut test = TestGroup::new(3);
    assert_eq!(test.fresh(), [0_u64; 0], "none has been reached");
    test.pass(2000);
    test.propose(b"one");
    test.pass(100);
    assert_eq!(test.fresh(), [1, 2, 3]);
    let leader = test.leader();
    let cut = test.members.keys().copied().find(|id| *id != leader).unwrap();
    test.cut = vec![cut];
    test.pass(4700);
    assert_eq!(test.fresh(), [1, 2, 3]);
    test.pass(200);
    let others: Vec<u64> = (1..=3).filter(|id| *id != cut.0).collect();
    assert_eq!(test.fresh(), others);
    test.cut.clear();
    test.pass(2000);
    assert_eq!(test.fresh(), [1, 2, 3]);
    // A leader that most others do not answer has no lease, and leads no more.
    test.cut = test.members.keys().copied().collect();
    test.pass(4000);
    assert_eq!(test.fresh(), [1, 2, 3]);
    test.pass(2000);
    assert_eq!(test.fresh(), [0_u64; 0]);
}

/// A member whose writes take longer than the time after which it looks for another leader: each
/// message comes after such a pause.
#[test]
fn member_whose_writes_take_long_relies_on_the_entries_of_its_leader() {
    let mut test = TestGroup::new(3);
    test.pass(2000);
    test.propose(b"one");
    test.pass(100);
    let leader = test.leader();
    let slow = test.members.keys().copied().find(|id| *id != leader).unwrap();
    let (term, place) = (test.lead().term(), test.applied[&slow].last().unwrap().place);
    let append = |test: &mut TestGroup, time: Instant| {
        let mut envelope = heartbeat(leader.0, slow.0, term, 0);
        envelope.time = Some(time);
        envelope.body = Body::Append { before: place, committed: place.index, entries: Vec::new() };
        let member = test.members.get_mut(&slow).unwrap();
        member.receive(test.now, envelope).unwrap();
        let fresh_until = member.fresh_until();
        test.outputs(slow);
        fresh_until
    };
    for _ in 0..12 {
        test.now = test.now + Millis(500);
        let now = test.now;
        let time = test.lead().time(now);
        let fresh_until = append(&mut test, time);
        assert!(now + Millis(4000) < fresh_until, "{now:?} {fresh_until:?}");
    }
    // What was sent before a member was cut off shows nothing of what was agreed meanwhile.
    let now = test.now;
    let time = test.lead().time(now);
    test.now = now + Millis(9000);
    let fresh_until = append(&mut test, time);
    assert!(fresh_until < test.now, "{fresh_until:?}");
}
