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
