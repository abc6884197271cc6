//! A group of members whose messages arrive at once, and whose writes are done at once.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error as _;

use bytes::Bytes;
use raft::eraftpb::Entry;
use sanderling_protocol::{ClusterId, Instant, MemberId, Millis, Nonce};

use super::*;

mod freshness;
mod leader_moves;
mod planner;
mod proposed_round;
mod snapshots;
mod waiting_reads;
mod writer_rounds;

const CLUSTER: ClusterId = ClusterId(7);

fn address(id: u64) -> MemberAddress {
    let address = format!("host-{id}:1");
    MemberAddress { http_address: address.clone(), address, nonce: Nonce(id) }
}

struct TestGroup {
    now: Instant,
    members: BTreeMap<MemberId, Replica>,
    applied: BTreeMap<MemberId, Vec<LogEntry>>,
    /// Members that nothing reaches.
    cut: Vec<MemberId>,
    /// Snapshots on their way, while they are held back.
    held: Option<Vec<Envelope>>,
    retained_bytes_max: u64,
}

impl TestGroup {
    fn new(voters: u64) -> Self {
        Self::with_log(voters, 64 << 20)
    }

    /// A group whose members keep so many bytes of applied rounds.
    fn with_log(voters: u64, retained_bytes_max: u64) -> Self {
        let mut test = Self {
            now: Instant(1_000_000),
            members: BTreeMap::new(),
            applied: BTreeMap::new(),
            cut: Vec::new(),
            held: None,
            retained_bytes_max,
        };
        let group = Group::of_voters(1, (1..=voters).map(address).collect());
        for id in (1..=voters).map(MemberId) {
            test.start(id, Restored::first(group.clone()));
        }
        test
    }

    fn start(&mut self, id: MemberId, restored: Restored) {
        let retained_bytes_max = self.retained_bytes_max;
        let options =
            ReplicaOptions { retained_bytes_max, ..ReplicaOptions::new(CLUSTER, id, id.0) };
        let times = (Instant(0), Instant(1_700_000_000_000_000));
        self.members.insert(id, Replica::new(options, restored, self.now, times));
    }

    /// Delivers until nothing is under way.
    fn settle(&mut self) {
        let mut sent = VecDeque::new();
        loop {
            let ids: Vec<MemberId> = self.members.keys().copied().collect();
            for id in ids {
                while let Some(output) = self.members.get_mut(&id).unwrap().poll_output() {
                    self.execute(id, output, &mut sent);
                }
            }
            let Some(envelope) = sent.pop_front() else { return };
            let Envelope { from, to, .. } = envelope;
            if self.cut.contains(&from) || self.cut.contains(&to) {
                continue;
            }
            let decoded = Envelope::decode(&envelope.encode()).unwrap();
            assert_eq!(decoded, envelope);
            if let Some(member) = self.members.get_mut(&to) {
                let _ = member.receive(self.now, decoded);
            }
        }
    }

    fn execute(&mut self, id: MemberId, output: ReplicaOutput, sent: &mut VecDeque<Envelope>) {
        let now = self.now;
        let member = self.members.get_mut(&id).unwrap();
        match output {
            ReplicaOutput::Persist(persist) => member.persisted(now, persist.number),
            ReplicaOutput::Send(envelope) => {
                if let Body::Snapshot { .. } = envelope.body {
                    if let Some(held) = &mut self.held {
                        held.push(envelope);
                        return;
                    }
                    member.snapshot_sent(now, envelope.to, true);
                }
                sent.push_back(envelope);
            }
            ReplicaOutput::Apply(entries) => {
                let last = entries.last().unwrap().place.index;
                self.applied.entry(id).or_default().extend(entries);
                member.applied(now, last);
            }
            ReplicaOutput::TakeSnapshot => {
                let index = self.applied.get(&id).and_then(|all| all.last());
                let index = index.map_or(1, |entry| entry.place.index);
                let group = member.group().clone();
                member.snapshot_taken(index, group);
            }
            _ => {}
        }
    }

    /// Takes what a member puts out. Nothing of it is done.
    fn outputs(&mut self, id: MemberId) -> Vec<ReplicaOutput> {
        let member = self.members.get_mut(&id).unwrap();
        std::iter::from_fn(|| member.poll_output()).collect()
    }

    fn pass(&mut self, millis: u64) {
        let end = self.now + Millis(millis);
        while self.now < end {
            self.now = self.now + Millis(5);
            for member in self.members.values_mut() {
                member.handle_deadline(self.now);
            }
            self.settle();
        }
    }

    fn leader(&self) -> MemberId {
        let leads = |(_, member): &(&MemberId, &Replica)| member.is_serving();
        let newest = self.members.iter().filter(leads).max_by_key(|(_, member)| member.term());
        *newest.expect("a member leads").0
    }

    fn lead(&mut self) -> &mut Replica {
        let leader = self.leader();
        self.members.get_mut(&leader).unwrap()
    }

    fn propose(&mut self, commands: &'static [u8]) -> LogPlace {
        let now = self.now;
        let leader = self.lead();
        let at = leader.time(now);
        let place = leader.propose(now, at, Bytes::from_static(commands)).unwrap();
        self.settle();
        place
    }

    fn rounds(&self, id: u64) -> Vec<(LogPlace, Bytes)> {
        let entries = self.applied.get(&MemberId(id)).map_or(&[][..], |all| &all[..]);
        let round = |entry: &LogEntry| match &entry.payload {
            Payload::Round { commands, .. } => Some((entry.place, commands.clone())),
            _ => None,
        };
        entries.iter().filter_map(round).collect()
    }
}

#[test]
fn one_member_leads_at_once_and_agrees_with_itself() {
    let mut test = TestGroup::new(1);
    let member = &test.members[&MemberId(1)];
    // Its first entry is not written.
    assert_eq!(member.may_read(test.now), ReadPermission::TakesOver);
    test.settle();
    let place = test.propose(b"one");
    assert_eq!(test.rounds(1), [(place, Bytes::from_static(b"one"))]);
    let now = test.now;
    assert_eq!(test.lead().may_read(now), ReadPermission::Yes);
}

#[test]
fn three_members_elect_a_leader_and_agree() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let place = test.propose(b"one");
    test.pass(100);
    for id in 1..=3 {
        assert_eq!(test.rounds(id), [(place, Bytes::from_static(b"one"))], "member {id}");
    }
    let (now, leader) = (test.now, test.leader());
    for (id, member) in &test.members {
        let expected = match *id == leader {
            true => ReadPermission::Yes,
            false => ReadPermission::NotLeader,
        };
        assert_eq!(member.may_read(now), expected);
        assert_eq!(member.leader(), Some(leader));
    }
}

fn heartbeat(from: u64, to: u64, term: u64, committed: u64) -> Envelope {
    Envelope {
        cluster: CLUSTER,
        generation: 0,
        from: MemberId(from),
        incarnation: 1,
        to: MemberId(to),
        term,
        round: 1,
        transfers_ended: 0,
        time: None,
        body: Body::Heartbeat { committed },
    }
}

#[test]
fn messages_have_these_bytes() {
    let mut envelope = heartbeat(2, 3, 300, 5);
    assert_eq!(envelope.encode()[..], [1, 7, 0, 2, 1, 3, 172, 2, 1, 0, 0, 3, 5]);
    let (at, commands) = (Instant(9), Bytes::from_static(b"ab"));
    let payload = Payload::Round { at, commands };
    let place = LogPlace { term: 4, index: 6 };
    let before = LogPlace { term: 4, index: 5 };
    envelope.body =
        Body::Append { before, committed: 5, entries: vec![LogEntry { place, payload }] };
    let append = [0, 4, 5, 5, 1, 4, 6, 1, 9, 2, b'a', b'b'];
    assert_eq!(envelope.encode()[11..], append);
    assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope.clone()));
    let mut bytes = envelope.encode().to_vec();
    bytes.push(0);
    let trailing = MessageError::Malformed(MessageFault::Trailing { bytes: 1 });
    assert_eq!(Envelope::decode(&bytes), Err(trailing));
    let cut = Envelope::decode(&bytes[..5]).unwrap_err();
    let fault = cut.source().and_then(|it| it.downcast_ref::<MessageFault>()).expect("a fault");
    assert!(fault.source().is_some_and(|it| it.is::<postcard::Error>()), "{fault:?}");
    assert!(cut.to_string().starts_with("a message between members cannot be decoded: "), "{cut}");
    bytes[0] = 2;
    assert_eq!(Envelope::decode(&bytes), Err(MessageError::Version { found: 2 }));
}

#[test]
fn messages_of_others_and_contradictions_are_refused_and_change_nothing() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let leader = test.leader();
    let other = if leader == MemberId(1) { MemberId(2) } else { MemberId(1) };
    let third = MemberId(6 - leader.0 - other.0);
    let (now, term) = (test.now, test.lead().term());
    let member = test.members.get_mut(&other).unwrap();
    let before = (member.role(), member.term(), member.ends());
    let good = heartbeat(leader.0, other.0, term, 1);
    let mut refused = |change: &dyn Fn(&mut Envelope)| {
        let mut envelope = good.clone();
        change(&mut envelope);
        member.receive(now, envelope).unwrap_err()
    };
    let ours = CLUSTER;
    let cluster = refused(&|it| it.cluster = ClusterId(8));
    assert_eq!(cluster, MessageRefusal::Cluster { from: leader, theirs: ClusterId(8), ours });
    let generation = refused(&|it| it.generation = 1);
    assert_eq!(generation, MessageRefusal::Generation { from: leader, theirs: 1, ours: 0 });
    assert!(matches!(refused(&|it| it.to = third), MessageRefusal::NotMine { .. }));
    let contradictions: [&dyn Fn(&mut Envelope); 9] = [
        &|it| it.from = it.to,
        &|it| it.term = 0,
        &|it| it.term = u64::MAX,
        &|it| it.term += 1 << 30,
        &|it| it.from = third,
        &|it| it.body = Body::Heartbeat { committed: 1 << 20 },
        &|it| it.body = entries(&[(term, 9), (term, 11)]),
        &|it| it.body = entries(&[(term + 1, 9)]),
        &|it| {
            let (place, group) = (LogPlace { term: 1, index: 9 }, Group::default());
            it.body = Body::Snapshot { place, group };
        },
    ];
    for (number, change) in contradictions.into_iter().enumerate() {
        let refusal = refused(change);
        assert!(matches!(refusal, MessageRefusal::Contradiction { .. }), "{number}: {refusal}");
    }
    assert_eq!((member.role(), member.term(), member.ends()), before);
}

fn entries(places: &[(u64, u64)]) -> Body {
    let entry = |&(term, index): &(u64, u64)| LogEntry {
        place: LogPlace { term, index },
        payload: Payload::Empty,
    };
    let before = LogPlace { term: 1, index: 8 };
    Body::Append { before, committed: 1, entries: places.iter().map(entry).collect() }
}

/// The library takes an entry before the last agreed one for the same, and reports it as received.
#[test]
fn entries_that_contradict_an_agreed_one_are_refused() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let (leader, now, term) = (test.leader(), test.now, test.lead().term());
    let other = if leader == MemberId(1) { MemberId(2) } else { MemberId(1) };
    let third = MemberId(6 - leader.0 - other.0);
    let member = test.members.get_mut(&other).unwrap();
    let (_, agreed) = member.ends();
    assert!(agreed >= 2, "the leader has begun its term: {agreed}");
    let mut refused = |before: LogPlace, places: &[(u64, u64)]| {
        let Body::Append { entries, .. } = entries(places) else { panic!() };
        let body = Body::Append { before, committed: 1, entries };
        let envelope = Envelope { body, ..heartbeat(third.0, other.0, term + 1, 1) };
        match member.receive(now, envelope) {
            Err(MessageRefusal::Contradiction { contradiction, .. }) => Some(contradiction),
            _ => None,
        }
    };
    // A leader that has lost what this member has begins where it ends itself.
    let before = LogPlace { term: term + 1, index: agreed };
    assert_eq!(refused(before, &[]), Some(MessageContradiction::EntryContradicts));
    let start = LogPlace { term: 1, index: 1 };
    let later: Vec<(u64, u64)> = (2..=agreed).map(|index| (term + 1, index)).collect();
    assert_eq!(refused(start, &later), Some(MessageContradiction::EntryContradicts));
}

#[test]
fn term_is_refused_more_than_a_million_ahead_unless_the_member_has_none() {
    const BEHIND_MAX: u64 = 1 << 20;
    const TERM_MAX: u64 = (1 << 32) - 1;
    let refusal = |restored: Restored, term: u64| {
        let mut test = TestGroup::new(3);
        test.start(MemberId(2), restored);
        let member = test.members.get_mut(&MemberId(2)).unwrap();
        let received = member.receive(test.now, heartbeat(1, 2, term, 0));
        assert_eq!(member.term() == term, received.is_ok());
        received.err()
    };
    let is_refused = |refusal: Option<MessageRefusal>, why: MessageContradiction| match refusal {
        Some(MessageRefusal::Contradiction { contradiction, .. }) => assert_eq!(contradiction, why),
        other => panic!("{other:?}"),
    };
    for behind in [1, 2, 300] {
        let restored = || {
            let voters = (1..=3).map(address).collect();
            let mut restored = Restored::first(Group::of_voters(1, voters));
            restored.vote.term = behind;
            restored
        };
        assert_eq!(refusal(restored(), behind + BEHIND_MAX), None);
        is_refused(refusal(restored(), behind + BEHIND_MAX + 1), MessageContradiction::TermAhead);
    }
    // One that joins has no term.
    assert_eq!(refusal(Restored::default(), TERM_MAX), None);
    is_refused(refusal(Restored::default(), TERM_MAX + 1), MessageContradiction::TermGeneration);
    is_refused(refusal(Restored::default(), u64::MAX), MessageContradiction::TermRange);
}

#[test]
fn heartbeats_carry_the_number_of_the_reads_that_need_them_or_a_new_one() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let leader = test.leader();
    let heartbeats = |test: &mut TestGroup| -> Vec<u64> {
        let outputs = test.outputs(leader).into_iter();
        let round = |output| match output {
            ReplicaOutput::Send(Envelope { round, body: Body::Heartbeat { .. }, .. }) => {
                Some(round)
            }
            _ => None,
        };
        outputs.filter_map(round).collect()
    };
    let first = test.members.get_mut(&leader).unwrap().confirm_reads(test.now).unwrap();
    assert_eq!(heartbeats(&mut test), [first; 2]);
    let second = test.members.get_mut(&leader).unwrap().confirm_reads(test.now).unwrap();
    assert_eq!((second, heartbeats(&mut test)), (first + 1, vec![second; 2]));
    // Each tick also sends a round of entries at that moment.
    let mut found = Vec::new();
    for entries in 1..=3 {
        test.now = test.now + Millis(20);
        let member = test.members.get_mut(&leader).unwrap();
        let at = member.time(test.now);
        member.propose(test.now, at, Bytes::from_static(b"round")).unwrap();
        member.handle_deadline(test.now);
        found.extend(heartbeats(&mut test).into_iter().map(|round| (entries, round)));
    }
    let [(entries, third), (_, same)] = found[..] else { panic!("{found:?}") };
    assert_eq!((third, same), (second + entries + 1, third), "after {entries} rounds of entries");
}

/// Returns the number of the first write.
fn write_of(outputs: &[ReplicaOutput]) -> Option<u64> {
    outputs.iter().find_map(|it| match it {
        ReplicaOutput::Persist(persist) => Some(persist.number),
        _ => None,
    })
}

fn sent(outputs: Vec<ReplicaOutput>) -> Vec<Envelope> {
    let envelope = |output| match output {
        ReplicaOutput::Send(envelope) => Some(envelope),
        _ => None,
    };
    outputs.into_iter().filter_map(envelope).collect()
}

#[test]
fn leader_sends_nothing_before_it_has_written_its_vote() {
    let mut test = TestGroup::new(1);
    let voter = Group::of_one(address(1));
    let with_spare = voter.changed(&voter.add(address(2)).unwrap()).unwrap();
    test.start(MemberId(1), Restored::first(with_spare));
    let outputs = test.outputs(MemberId(1));
    let write = write_of(&outputs).expect("it votes for itself");
    assert_eq!(sent(outputs), [], "the vote is not written");
    let (now, member) = (test.now, test.members.get_mut(&MemberId(1)).unwrap());
    member.persisted(now, write);
    assert_eq!(member.role(), ReplicaRole::Leader);
    let appends = sent(test.outputs(MemberId(1)));
    let is_append = |it: &Envelope| matches!(it.body, Body::Append { .. });
    assert!(!appends.is_empty() && appends.iter().all(is_append), "{appends:?}");
}

#[test]
fn leader_sends_entries_before_it_has_written_them_and_a_follower_answers_after_its_write() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let (now, leader) = (test.now, test.leader());
    let at = test.lead().time(now);
    test.lead().propose(now, at, Bytes::from_static(b"round")).unwrap();
    let outputs = test.outputs(leader);
    assert!(write_of(&outputs).is_some(), "{outputs:?}");
    let appends = sent(outputs);
    assert!(appends.iter().all(|it| matches!(it.body, Body::Append { .. })), "{appends:?}");
    assert_eq!(appends.len(), 2);
    let (append, to) = (appends[0].clone(), appends[0].to);
    let member = test.members.get_mut(&to).unwrap();
    member.receive(now, append.clone()).unwrap();
    let (term, committed) = (append.term, member.ends().1);
    let outputs = test.outputs(to);
    let write = write_of(&outputs);
    assert_eq!(sent(outputs), [], "the write is not done");
    let member = test.members.get_mut(&to).unwrap();
    member.receive(now, heartbeat(leader.0, to.0, term, committed)).unwrap();
    assert_eq!(sent(test.outputs(to)), [], "the write before is not done");
    test.members.get_mut(&to).unwrap().persisted(now, write.unwrap());
    let answers = sent(test.outputs(to));
    let bodies: Vec<&Body> = answers.iter().map(|it| &it.body).collect();
    assert!(
        matches!(bodies[..], [Body::Appended { .. }, Body::HeartbeatAnswer { .. }]),
        "{bodies:?}"
    );
}

const LONG_ROUND: &[u8] = &[7; 100_000];

/// Returns the bytes that the log counts for ten long rounds.
fn ten_rounds() -> u64 {
    let mut entry = Entry::default();
    let payload = Payload::Round { at: Instant(0), commands: Bytes::from_static(LONG_ROUND) };
    raft_types::set_payload(&mut entry, payload);
    10 * raft_types::bytes(&entry)
}

impl TestGroup {
    /// Makes a group of three with logs of exactly ten rounds, in which a member lags more, and
    /// returns that member and the last entry, which is in the snapshot that it gets.
    fn with_lagging_member() -> (Self, MemberId, u64) {
        let mut test = Self::with_log(3, ten_rounds());
        test.pass(1000);
        let leader = test.leader();
        let lagging = test.members.keys().copied().find(|id| *id != leader).unwrap();
        test.cut = vec![lagging];
        let last = (0..40).map(|_| test.propose(LONG_ROUND).index).max().unwrap();
        test.cut.clear();
        (test, lagging, last)
    }

    /// Goes on until a snapshot is sent, which does not arrive.
    fn hold_snapshot(&mut self) {
        self.held = Some(Vec::new());
        while self.held.as_ref().is_some_and(Vec::is_empty) {
            self.pass(5);
        }
    }

    /// Returns whether the leader's log in memory reaches back to an entry.
    fn has_log_from(&mut self, index: u64) -> bool {
        let group = self.lead().group().clone();
        self.lead().snapshot_taken(index, group).is_some()
    }
}

#[test]
fn log_is_kept_up_to_four_times_its_bound_for_a_member_that_gets_a_snapshot() {
    let (mut test, _, last) = TestGroup::with_lagging_member();
    test.hold_snapshot();
    // Longer than the leader takes to look whether it has a majority.
    test.pass(2000);
    for _ in 0..40 {
        test.propose(LONG_ROUND);
        assert!(test.has_log_from(last), "the member would need another snapshot");
    }
    let end = test.propose(LONG_ROUND).index;
    assert!(test.has_log_from(end - 10) && !test.has_log_from(end - 11));
}

#[test]
fn log_is_not_kept_for_a_member_that_became_silent_while_it_got_a_snapshot() {
    let (mut test, lagging, last) = TestGroup::with_lagging_member();
    test.hold_snapshot();
    test.cut = vec![lagging];
    test.pass(2000);
    for _ in 0..15 {
        test.propose(LONG_ROUND);
    }
    assert!(test.has_log_from(last + 5) && !test.has_log_from(last + 4));
}

#[test]
fn log_is_within_its_bound_once_the_member_has_confirmed_the_snapshot() {
    let (mut test, lagging, last) = TestGroup::with_lagging_member();
    while test.members[&lagging].ends().0 < last {
        test.pass(5);
    }
    let is_lagging = |it: &MemberProgress| it.id == lagging;
    let progress = test.lead().progress().into_iter().find(is_lagging).unwrap();
    assert_eq!((progress.matched, progress.is_active), (last, true));
    test.cut = vec![lagging];
    for _ in 0..15 {
        test.propose(LONG_ROUND);
    }
    assert!(test.has_log_from(last + 5) && !test.has_log_from(last + 4));
}

#[test]
fn leader_without_a_majority_agrees_to_nothing_and_loses_its_lease() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let leader = test.leader();
    test.cut = test.members.keys().copied().filter(|id| *id != leader).collect();
    test.propose(b"lost");
    test.pass(390);
    let now = test.now;
    assert_ne!(test.members[&leader].may_read(now), ReadPermission::Yes);
    assert_eq!(test.rounds(leader.0), []);
    test.cut = vec![leader];
    test.pass(2000);
    let next = test.leader();
    assert_ne!(next, leader);
    let place = test.propose(b"kept");
    test.cut.clear();
    test.pass(1000);
    for id in 1..=3 {
        assert_eq!(test.rounds(id), [(place, Bytes::from_static(b"kept"))], "member {id}");
    }
}

#[test]
fn transfer_and_swap_move_the_lead_and_a_vote_in_one_step_each() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let (now, old) = (test.now, test.leader());
    let to = test.members.keys().copied().find(|id| *id != old).unwrap();
    test.lead().transfer(now, to).unwrap();
    assert_eq!(test.members[&old].may_read(now), ReadPermission::NeedsQuorum);
    test.settle();
    assert_eq!(test.leader(), to);
    let change = test.lead().group().add(address(4)).unwrap();
    test.lead().change_group(now, &change).unwrap();
    test.settle();
    test.start(MemberId(4), Restored::default());
    test.pass(500);
    let (promote, remove) = ([MemberId(4)].into(), [old].into());
    let swap = GroupChange { add: None, promote, remove };
    let now = test.now;
    test.lead().change_group(now, &swap).unwrap();
    test.pass(500);
    let group = test.lead().group().clone();
    assert!(!group.is_changing() && group.member(old).is_none(), "{group:?}");
    assert_eq!(group.voters().count(), 3);
    // What it did not receive itself, another member reports when it looks for votes.
    test.pass(2000);
    assert!(test.members[&old].is_removed());
}

#[test]
fn process_that_joins_takes_the_place_of_the_member_at_its_address() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let old = test.members.keys().copied().find(|id| *id != test.leader()).unwrap();
    let group = test.lead().group().clone();
    let there = group.member(old).unwrap().at.clone();
    assert_eq!(group.add(there.clone()), None, "it is a member");
    let anew = MemberAddress { nonce: Nonce(99), ..there.clone() };
    let change = group.add(anew.clone()).unwrap();
    let remove = [old].into();
    let add = Some((MemberId(4), anew.clone()));
    assert_eq!(change, GroupChange { add, remove, ..GroupChange::default() });
    let now = test.now;
    test.lead().change_group(now, &change).unwrap();
    test.pass(500);
    let group = test.lead().group();
    let at: Vec<_> = group.members().filter(|(_, it)| it.at.address == there.address).collect();
    let spare = GroupMember { at: anew, role: GroupRole::Spare };
    assert_eq!(at, [(MemberId(4), &spare)]);
}

/// A leader under load sends its last entries and the request to lead at once.
#[test]
fn request_to_lead_that_comes_before_a_write_has_ended_is_followed_after_it() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let (now, old) = (test.now, test.leader());
    let to = test.members.keys().copied().find(|id| *id != old).unwrap();
    let leader = test.lead();
    let at = leader.time(now);
    leader.propose(now, at, Bytes::from_static(b"last")).unwrap();
    let outputs = test.outputs(old);
    let append = outputs.into_iter().find_map(|output| match output {
        ReplicaOutput::Send(envelope) if envelope.to == to => Some(envelope),
        _ => None,
    });
    let append = append.expect("the entry is sent");
    let lead = Envelope { body: Body::Lead { transfer: 1 }, ..append.clone() };
    let member = test.members.get_mut(&to).unwrap();
    member.receive(now, append).unwrap();
    member.receive(now, lead).unwrap();
    assert_eq!(member.role(), ReplicaRole::Follower, "its log is not written yet");
    for output in test.outputs(to) {
        if let ReplicaOutput::Persist(persist) = output {
            test.members.get_mut(&to).unwrap().persisted(now, persist.number);
        }
    }
    assert_eq!(test.members[&to].role(), ReplicaRole::Candidate);
}

/// The leader may have a lease again, to which the member that is late has contributed.
#[test]
fn request_to_lead_that_comes_after_its_transfer_was_given_up_is_not_followed() {
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let (now, old) = (test.now, test.leader());
    let to = test.members.keys().copied().find(|id| *id != old).unwrap();
    test.lead().transfer(now, to).unwrap();
    let is_lead = |output: ReplicaOutput| match output {
        ReplicaOutput::Send(envelope) if matches!(envelope.body, Body::Lead { .. }) => {
            Some(envelope)
        }
        _ => None,
    };
    let late = test.outputs(old).into_iter().find_map(is_lead).expect("it is sent");
    test.pass(1000);
    assert_eq!(test.leader(), old, "the transfer was given up");
    let now = test.now;
    let lease = test.lead().lease_until().expect("it leads with a lease");
    assert!(now < lease);
    let member = test.members.get_mut(&to).unwrap();
    let _ = member.receive(now, late);
    assert_eq!(member.role(), ReplicaRole::Follower, "it owes the leader its promise");
    test.settle();
    assert_eq!(test.leader(), old);
}

/// The library resets whether a member has answered lately once in each election time.
#[test]
fn leadership_moves_at_any_time_to_a_member_that_answers_and_never_to_a_silent_one() {
    for later in (0..500).step_by(20) {
        let mut test = TestGroup::new(3);
        test.pass(1000 + later);
        let old = test.leader();
        let to = test.members.keys().copied().find(|id| *id != old).unwrap();
        let now = test.now;
        assert_eq!(test.lead().transfer(now, to), Ok(()), "{later} ms later");
    }
    let mut test = TestGroup::new(3);
    test.pass(1000);
    let old = test.leader();
    let to = test.members.keys().copied().find(|id| *id != old).unwrap();
    test.cut = vec![to];
    test.pass(2000);
    let now = test.now;
    assert_eq!(test.lead().transfer(now, to), Err(ProposeError::CannotLead(to)));
}
