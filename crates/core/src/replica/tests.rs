//! A group of members whose messages arrive at once, and whose writes are done at once.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use sanderling_protocol::{ClusterId, Instant, MemberId, Millis, Nonce};

use super::*;

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
}

impl TestGroup {
    fn new(voters: u64) -> Self {
        let mut test = Self {
            now: Instant(1_000_000),
            members: BTreeMap::new(),
            applied: BTreeMap::new(),
            cut: Vec::new(),
        };
        let group = Group::of_voters(1, (1..=voters).map(address).collect());
        for id in (1..=voters).map(MemberId) {
            test.start(id, Restored::first(group.clone()));
        }
        test
    }

    fn start(&mut self, id: MemberId, restored: Restored) {
        let options = ReplicaOptions::new(CLUSTER, id, id.0);
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
            false => ReadPermission::NotLeader { leader: Some(leader) },
        };
        assert_eq!(member.may_read(now), expected);
    }
}
