//! The rounds of a member's writer, and how each of them ends.

use super::*;
use crate::replica::ROUND_BYTES_MAX;

mod world;

const RUNS: ProcessPhase = ProcessPhase::Runs;
const ENDS: ProcessPhase = ProcessPhase::Ends;
const FAILED: ProcessPhase = ProcessPhase::Failed;

/// A piece that no entry can have.
const LONG: &[u8] = &[0; ROUND_BYTES_MAX + 1];

fn pieces(of: &[&'static [u8]]) -> Vec<Bytes> {
    of.iter().map(|piece| Bytes::from_static(piece)).collect()
}

/// Returns how a round ends of which these pieces are agreed.
fn ended(agreed: &[&'static [u8]], loss: RoundLoss) -> RoundProgress {
    RoundProgress::Ended { agreed: pieces(agreed), loss }
}

/// A group of three, its first leader, and the writer of that.
struct TestWriter {
    test: TestGroup,
    rounds: WriterRounds,
    leader: MemberId,
}

impl TestWriter {
    fn new() -> Self {
        let mut test = TestGroup::new(3);
        test.pass(1000);
        test.applied.clear();
        let leader = test.leader();
        let mut writer = Self { test, rounds: WriterRounds::default(), leader };
        writer.take_over();
        writer
    }

    fn take_over(&mut self) {
        let replica = &self.test.members[&self.leader];
        assert!(self.rounds.is_to_take_over(replica) && !self.rounds.serves(replica));
        self.rounds.begin_term(replica);
        assert!(self.rounds.serve(replica.term(), replica) && self.rounds.serves(replica));
        assert!(!self.rounds.is_to_take_over(replica));
    }

    /// Lets another member lead, and then this one again.
    fn lead_again(&mut self) {
        let leader = self.leader;
        let other = (1..=3).map(MemberId).find(|id| *id != leader).unwrap();
        for to in [other, leader] {
            let now = self.test.now;
            self.test.lead().transfer(now, to).unwrap();
            self.test.pass(1000);
            assert_eq!(self.test.leader(), to);
        }
    }

    /// A writer with a round of these pieces, which are proposed as far as that is possible.
    fn with(of: &[&'static [u8]]) -> Self {
        let mut writer = Self::new();
        writer.begin(of);
        writer.propose();
        writer
    }

    fn begin(&mut self, of: &[&'static [u8]]) {
        let (now, replica) = (self.test.now, &self.test.members[&self.leader]);
        self.rounds.begin(replica.time(now), pieces(of), replica);
    }

    fn propose(&mut self) {
        let (now, replica) = (self.test.now, self.test.members.get_mut(&self.leader).unwrap());
        self.rounds.propose(now, replica);
    }

    /// Lets the members agree, and returns what the leader's writer gets to apply.
    fn settle(&mut self) -> Vec<LogEntry> {
        self.test.settle();
        self.test.applied.remove(&self.leader).unwrap_or_default()
    }

    fn look_after(&mut self, millis: u64, process: ProcessPhase) -> RoundProgress {
        let replica = &self.test.members[&self.leader];
        self.rounds.look(self.test.now + Millis(millis), replica, process)
    }

    /// Returns the index of the last entry of the leader's log.
    fn last(&self) -> u64 {
        self.test.members[&self.leader].ends().0
    }
}

#[test]
fn round_is_its_writers_once_all_of_it_is_agreed() {
    let mut writer = TestWriter::new();
    assert!(!writer.rounds.has_begun());
    assert_eq!(writer.look_after(0, RUNS), ended(&[], RoundLoss::NotLeader), "there is none");
    writer.begin(&[b"one", b"two"]);
    assert!(writer.rounds.has_begun());
    writer.propose();
    for entry in writer.settle() {
        assert_eq!(writer.look_after(0, RUNS), RoundProgress::UnderWay);
        assert_eq!(writer.rounds.agreed(entry.place, &entry.payload), Vec::<Bytes>::new());
        assert!(writer.rounds.is_between_pieces());
    }
    assert_eq!(writer.look_after(0, RUNS), RoundProgress::Agreed);
    assert!(!writer.rounds.has_begun() && !writer.rounds.is_between_pieces());
}

#[test]
fn round_is_given_up_half_a_second_after_the_process_began_to_end_and_not_before() {
    let mut writer = TestWriter::with(&[b"one", b"two"]);
    let entries = writer.settle();
    let first = &entries[entries.len() - 2];
    assert!(writer.rounds.agreed(first.place, &first.payload).is_empty());
    assert_eq!(writer.look_after(60_000, RUNS), RoundProgress::UnderWay, "it does not end");
    assert_eq!(writer.look_after(60_000, ENDS), RoundProgress::UnderWay);
    assert_eq!(writer.look_after(60_499, ENDS), RoundProgress::UnderWay);
    assert_eq!(writer.look_after(60_500, ENDS), ended(&[b"one"], RoundLoss::Undecided));
}

#[test]
fn round_that_is_agreed_when_the_process_ends_is_its_writers_however_late() {
    let mut writer = TestWriter::with(&[b"one"]);
    assert_eq!(writer.look_after(0, ENDS), RoundProgress::UnderWay);
    for entry in writer.settle() {
        assert!(writer.rounds.agreed(entry.place, &entry.payload).is_empty());
    }
    assert_eq!(writer.look_after(9000, ENDS), RoundProgress::Agreed);
}

/// The quorum may get the round that was given up: its catalog lacks that, so the next one would
/// begin at the same number, and no member could apply both.
#[test]
fn leader_that_gave_up_a_round_proposes_no_other_one_in_its_term() {
    let mut writer = TestWriter::new();
    let before = writer.last();
    writer.begin(&[b"one"]);
    writer.propose();
    assert_eq!(writer.last(), before + 1);
    assert_eq!(writer.look_after(0, ENDS), RoundProgress::UnderWay);
    assert_eq!(writer.look_after(500, ENDS), ended(&[], RoundLoss::Undecided));
    writer.begin(&[b"two"]);
    writer.propose();
    assert_eq!(writer.last(), before + 1, "nothing more is proposed");
    assert_eq!(writer.look_after(500, ENDS), ended(&[], RoundLoss::NotLeader));
    writer.lead_again();
    writer.take_over();
    let before = writer.last();
    writer.begin(&[b"three"]);
    writer.propose();
    assert_eq!(writer.last(), before + 1);
}

/// Its commands would come before those with which the term begins.
#[test]
fn round_that_is_begun_before_the_writer_has_taken_over_is_never_proposed() {
    let mut writer = TestWriter::new();
    let (leader, term) = (writer.leader, writer.test.lead().term());
    writer.lead_again();
    let replica = &writer.test.members[&leader];
    assert!(!writer.rounds.serves(replica), "not in this term");
    assert!(!writer.rounds.serve(term, replica), "it was too late for that");
    let before = writer.last();
    writer.begin(&[b"one"]);
    writer.propose();
    assert_eq!(writer.last(), before);
    assert_eq!(writer.look_after(0, RUNS), ended(&[], RoundLoss::NotLeader));
}

/// Its catalog may lack what earlier leaders agreed.
#[test]
fn round_that_is_begun_before_the_member_serves_is_never_proposed() {
    let mut test = TestGroup::new(1);
    let mut rounds = WriterRounds::default();
    let replica = &test.members[&MemberId(1)];
    rounds.found(replica);
    rounds.begin(replica.time(test.now), pieces(&[b"one"]), replica);
    test.settle();
    let (now, before) = (test.now, test.lead().ends().0);
    rounds.propose(now, test.lead());
    assert_eq!(test.lead().ends().0, before);
    assert_eq!(rounds.look(now, test.lead(), RUNS), ended(&[], RoundLoss::NotLeader));
}

#[test]
fn writer_of_a_namenode_that_founds_a_group_goes_on() {
    let mut test = TestGroup::new(1);
    let mut rounds = WriterRounds::default();
    rounds.found(&test.members[&MemberId(1)]);
    test.settle();
    let now = test.now;
    let replica = test.lead();
    assert!(rounds.serves(replica) && !rounds.is_to_take_over(replica));
    let before = replica.ends().0;
    rounds.begin(replica.time(now), pieces(&[b"one"]), replica);
    rounds.propose(now, replica);
    assert_eq!(replica.ends().0, before + 1);
}

#[test]
fn round_of_which_nothing_was_proposed_bars_no_other_one() {
    let mut writer = TestWriter::new();
    writer.begin(&[b"one"]);
    assert_eq!(writer.look_after(0, ENDS), RoundProgress::UnderWay);
    assert_eq!(writer.look_after(500, ENDS), ended(&[], RoundLoss::NotLeader));
    let before = writer.last();
    writer.begin(&[b"two"]);
    writer.propose();
    assert_eq!(writer.last(), before + 1);
    // The time of the one before does not count.
    assert_eq!(writer.look_after(500, ENDS), RoundProgress::UnderWay);
}

#[test]
fn entry_of_another_leader_comes_behind_what_is_agreed_of_the_round() {
    let mut writer = TestWriter::with(&[b"one", b"two"]);
    let entries = writer.settle();
    let [.., first, second] = &entries[..] else { panic!("{entries:?}") };
    assert!(writer.rounds.agreed(first.place, &first.payload).is_empty());
    let next = LogPlace { term: second.place.term + 1, ..second.place };
    assert!(writer.rounds.agreed(next, &Payload::Empty).is_empty(), "it has no commands");
    assert!(writer.rounds.is_between_pieces());
    let other = Payload::Round { at: Instant(9), commands: Bytes::from_static(b"other") };
    assert_eq!(writer.rounds.agreed(next, &other), pieces(&[b"one", b"other"]));
    assert!(!writer.rounds.is_between_pieces());
    assert_eq!(writer.rounds.agreed(next, &other), pieces(&[b"other"]), "once only");
    assert_eq!(writer.look_after(0, RUNS), ended(&[], RoundLoss::Undecided));
    assert_eq!(writer.rounds.agreed(next, &other), pieces(&[b"other"]));
}

#[test]
fn snapshot_of_a_leader_has_what_is_agreed_of_the_round() {
    let mut writer = TestWriter::with(&[b"one", b"two"]);
    let entries = writer.settle();
    let first = &entries[entries.len() - 2];
    assert!(writer.rounds.agreed(first.place, &first.payload).is_empty());
    writer.rounds.restored();
    assert!(!writer.rounds.is_between_pieces());
    assert_eq!(writer.look_after(0, RUNS), ended(&[], RoundLoss::Undecided));
}

#[test]
fn nothing_counts_any_more_for_a_process_whose_file_has_failed() {
    let mut writer = TestWriter::with(&[b"one"]);
    for entry in writer.settle() {
        assert!(writer.rounds.agreed(entry.place, &entry.payload).is_empty());
    }
    assert_eq!(writer.look_after(0, FAILED), ended(&[], RoundLoss::Undecided));
    let mut writer = TestWriter::new();
    writer.begin(&[b"one"]);
    assert_eq!(writer.look_after(0, FAILED), ended(&[], RoundLoss::NotLeader));
}

#[test]
fn round_that_is_too_long_is_refused_for_good_unless_a_part_was_proposed() {
    let mut writer = TestWriter::with(&[LONG]);
    assert_eq!(writer.look_after(0, RUNS), ended(&[], RoundLoss::TooLong { bytes: LONG.len() }));
    let mut writer = TestWriter::with(&[b"one", LONG]);
    assert_eq!(writer.look_after(0, RUNS), ended(&[], RoundLoss::Undecided));
}

#[test]
fn round_of_a_member_that_does_not_lead_is_refused_and_one_of_a_former_leader_is_undecided() {
    let mut writer = TestWriter::with(&[b"one"]);
    let leader = writer.leader;
    writer.test.cut.push(leader);
    writer.test.pass(2000);
    assert_eq!(writer.look_after(0, RUNS), ended(&[], RoundLoss::Undecided));
    writer.begin(&[b"two"]);
    writer.propose();
    assert_eq!(writer.look_after(0, RUNS), ended(&[], RoundLoss::NotLeader));
}
