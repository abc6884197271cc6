//! Reads of a leader without a lease.

use super::*;

/// Returns the rounds of the heartbeats that a member puts out, and the reads that are confirmed.
fn rounds(test: &mut TestGroup, of: MemberId) -> (Vec<u64>, Vec<u64>) {
    let (mut sent, mut confirmed) = (Vec::new(), Vec::new());
    for output in test.outputs(of) {
        match output {
            ReplicaOutput::Send(Envelope { round, body: Body::Heartbeat { .. }, .. }) => {
                sent.push(round);
            }
            ReplicaOutput::ReadsConfirmed(number) => confirmed.push(number),
            _ => {}
        }
    }
    (sent, confirmed)
}

impl TestGroup {
    fn begin_reads(&mut self, reads: &mut WaitingReads<u64>) {
        let now = self.now;
        reads.begin(now, self.lead());
    }
}

#[test]
fn reads_that_come_together_are_confirmed_by_one_message_to_each_member() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let leader = test.leader();
    let mut reads = WaitingReads::default();
    (0..5000).for_each(|read| reads.add(read));
    test.begin_reads(&mut reads);
    let (sent, confirmed) = rounds(&mut test, leader);
    let [first, other] = sent[..] else { panic!("{} messages", sent.len()) };
    assert!(first == other && confirmed.is_empty());
    // What comes later needs a round of its own, which waits for the one under way.
    reads.add(5000);
    test.begin_reads(&mut reads);
    assert_eq!(rounds(&mut test, leader), (Vec::new(), Vec::new()));
    assert_eq!(reads.confirmed(first - 1), Vec::<u64>::new());
    assert_eq!(reads.confirmed(first), (0..5000).collect::<Vec<_>>());
    test.begin_reads(&mut reads);
    let (sent, _) = rounds(&mut test, leader);
    assert_eq!(sent, [first + 1; 2]);
    assert_eq!(reads.confirmed(first + 1), [5000]);
    test.begin_reads(&mut reads);
    assert_eq!(rounds(&mut test, leader).0, Vec::<u64>::new(), "none waits");
}

#[test]
fn next_round_begins_after_a_tick_if_the_one_before_is_not_confirmed() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let leader = test.leader();
    let mut reads = WaitingReads::default();
    reads.add(1);
    test.begin_reads(&mut reads);
    let (first, _) = rounds(&mut test, leader);
    reads.add(2);
    test.now = Instant(test.now.0 + 19_999);
    test.begin_reads(&mut reads);
    assert_eq!(rounds(&mut test, leader).0, Vec::<u64>::new());
    test.now = Instant(test.now.0 + 1);
    test.begin_reads(&mut reads);
    let (second, _) = rounds(&mut test, leader);
    assert_eq!(second, [first[0] + 1; 2]);
    // A later number allows all before it.
    assert_eq!(reads.confirmed(second[0]), [1, 2]);
}

#[test]
fn reads_end_where_another_member_leads_and_begin_anew_in_a_later_term() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let leader = test.leader();
    let mut reads = WaitingReads::default();
    reads.add(1);
    test.begin_reads(&mut reads);
    assert_eq!(reads.ended(&test.members[&leader]), Vec::<u64>::new(), "it leads");
    test.cut = vec![leader];
    test.pass(2000);
    let next = test.leader();
    assert_ne!(next, leader);
    // The next leader's numbers are others.
    test.begin_reads(&mut reads);
    assert_eq!(reads.confirmed(u64::MAX), [1]);
    let mut reads = WaitingReads::default();
    reads.add(2);
    reads.begin(test.now, test.members.get_mut(&leader).unwrap());
    assert_eq!(reads.ended(&test.members[&leader]), [2], "it does not lead");
}
