//! From what the library has ready to outputs.

use raft::eraftpb::{ConfChangeV2, Entry, Message, MessageType};
use raft::{Ready, StateRole};
use sanderling_protocol::{Instant, MemberId};

use super::{PendingPersist, Replica};
use crate::replica::election;
use crate::replica::entry::{LogPlace, Payload};
use crate::replica::message::{Body, Envelope};
use crate::replica::output::{Persist, ReplicaOutput, ReplicaRole, SyncRequirement};
use crate::replica::raft_types;

/// How many times the bound of the log in memory may be kept for members that get a snapshot.
/// 256 MiB by default: a member takes a million objects in 1.65 s (docs/SCALE.md), in which
/// 1 Gbit/s of rounds is less.
const HELD_FACTOR: u64 = 4;

impl Replica {
    /// Takes everything that the library has ready.
    pub(super) fn process(&mut self, now: Instant) {
        self.set_election_time();
        self.change_role(now);
        while self.node.has_ready() {
            let ready = self.node.ready();
            self.process_one(now, ready);
            self.set_election_time();
            self.change_role(now);
        }
        self.shrink(now);
        self.confirm();
    }

    /// Forgets the oldest entries, unless a member that gets a snapshot will need them: it would
    /// need the next snapshot by the time it has this one.
    fn shrink(&mut self, now: Instant) {
        let applied = self.node.raft.raft_log.applied.min(self.applied);
        let mut from = self.node.store().take_snapshot_use();
        if self.node.store().take_snapshot_need() {
            from.get_or_insert(applied);
            self.outputs.push_back(ReplicaOutput::TakeSnapshot);
        }
        if let Some(from) = from {
            self.hold.get_or_insert(from);
            self.held_at = now;
        }
        let bytes_max = self.options.retained_bytes_max;
        let id = self.options.id.0;
        if let Some(hold) = self.hold {
            let raft = &self.node.raft;
            let others = raft.prs().iter().filter(|(of, _)| **of != id);
            let mut lagging = others.map(|(_, it)| it).filter(|it| it.matched < hold).peekable();
            let is_lagging = raft.state == StateRole::Leader && lagging.peek().is_some();
            // The library forgets which are active with every check of its majority: that alone is
            // no silence.
            if lagging.any(|progress| progress.recent_active) {
                self.held_at = now;
            }
            let is_silent = now >= self.held_at + self.options.promise();
            let is_long = self.node.store().bytes() > bytes_max.saturating_mul(HELD_FACTOR);
            if !is_lagging || is_silent || is_long {
                self.hold = None;
            }
        }
        let until = applied.min(self.hold.unwrap_or(u64::MAX));
        self.node.mut_store().shrink(bytes_max, until);
    }

    fn process_one(&mut self, now: Instant, mut ready: Ready) {
        let number = ready.number();
        let mut messages = ready.take_messages();
        let is_leading = !messages.is_empty();
        messages.extend(ready.take_persisted_messages());
        let (persist, restore) = self.persist(now, &mut ready);
        let must_wait = persist.is_some() || !self.unwritten.is_empty();
        if let Some(persist) = persist {
            if persist.durability == SyncRequirement::Always {
                self.vote_number = number;
            }
            self.outputs.push_back(ReplicaOutput::Persist(persist));
            self.unwritten.push_back(PendingPersist { number, messages: Vec::new(), restore });
        }
        let envelopes = self.envelopes(now, messages);
        // A leader sends its entries while it writes them, but nothing before its vote is written.
        let is_vote_written =
            self.unwritten.front().is_none_or(|first| first.number > self.vote_number);
        match self.unwritten.back_mut() {
            Some(last) if must_wait && !(is_leading && is_vote_written) => {
                last.messages.extend(envelopes);
            }
            _ => self.outputs.extend(envelopes.into_iter().map(ReplicaOutput::Send)),
        }
        let agreed = ready.take_committed_entries();
        self.node.advance_append_async(ready);
        if self.unwritten.is_empty() {
            self.node.on_persist_ready(number);
        }
        self.apply(agreed);
    }

    /// Stores what is ready in memory and returns what is to be written.
    fn persist(
        &mut self,
        now: Instant,
        ready: &mut Ready,
    ) -> (Option<Persist>, Option<(LogPlace, crate::replica::Group)>) {
        let mut restore = None;
        if !ready.snapshot().is_empty() {
            let metadata = ready.snapshot().get_metadata();
            let place = LogPlace { term: metadata.term, index: metadata.index };
            let group = self.node.store().snapshot_group(place.index).cloned();
            let group = group.expect("a snapshot's members are stored before it is taken");
            self.node.mut_store().restart(place);
            self.group = group.clone();
            restore = Some((place, group));
        }
        let entries = ready.take_entries();
        for entry in &entries {
            self.take_time(now, entry);
        }
        self.node.mut_store().append(&entries);
        let vote = ready.hs().map(raft_types::vote);
        if vote.is_none() && entries.is_empty() && restore.is_none() {
            return (None, None);
        }
        let is_of_vote = vote.is_some_and(|vote| {
            (vote.term, vote.candidate) != (self.written_vote.term, self.written_vote.candidate)
        });
        self.written_vote = vote.unwrap_or(self.written_vote);
        let persist = Persist {
            number: ready.number(),
            vote,
            snapshot: restore.clone(),
            durability: match () {
                () if is_of_vote => SyncRequirement::Always,
                () if !entries.is_empty() || restore.is_some() => SyncRequirement::Log,
                () => SyncRequirement::None,
            },
            entries: entries.iter().map(raft_types::log_entry).collect(),
        };
        (Some(persist), restore)
    }

    /// Puts out entries that are agreed and on the disk.
    fn apply(&mut self, agreed: Vec<Entry>) {
        let Some(last) = agreed.last().map(|entry| entry.index) else { return };
        let mut batch = Vec::new();
        for entry in agreed {
            let entry = raft_types::log_entry(&entry);
            let index = entry.place.index;
            if matches!(entry.payload, Payload::Round { .. }) {
                self.applied_term = entry.place.term;
            }
            let changed = self.change(&entry.payload);
            batch.push(entry);
            if changed {
                self.outputs.push_back(ReplicaOutput::Apply(std::mem::take(&mut batch)));
                self.outputs.push_back(ReplicaOutput::GroupChanged(index, self.group.clone()));
            }
        }
        if !batch.is_empty() {
            self.outputs.push_back(ReplicaOutput::Apply(batch));
        }
        self.node.advance_apply_to(last);
        if self.group.members().next().is_some()
            && self.group.member(self.options.id).is_none()
            && self.options.id < self.group.next()
        {
            self.leave();
        }
    }

    /// Applies a change of the members. One that does not fit has no effect, at any member.
    fn change(&mut self, payload: &Payload) -> bool {
        let (group, change) = match payload {
            Payload::Change(change) => {
                (self.group.changed(change).ok(), raft_types::conf_change(change))
            }
            Payload::ChangeDone if self.group.is_changing() => {
                (Some(self.group.done()), ConfChangeV2::default())
            }
            _ => return false,
        };
        let Some(group) = group else { return false };
        if self.node.apply_conf_change(&change).is_err() {
            return false;
        }
        self.group = group;
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader && !self.group.counts(self.options.id) {
            // The library would go on to lead a group that it is not in.
            raft.become_follower(raft.term, 0);
        }
        true
    }

    /// Stops to take part.
    pub(super) fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_removed, true) {
            let raft = &mut self.node.raft;
            raft.become_follower(raft.term, 0);
            self.outputs.push_back(ReplicaOutput::Removed);
        }
    }

    /// Does what only a leader does by itself: ends a change of several voters, and notices that a
    /// transfer did not succeed.
    pub(super) fn drive(&mut self, now: Instant) {
        if self.role() != ReplicaRole::Leader {
            return;
        }
        if self.rounds.is_transferring() && self.node.raft.lead_transferee.is_none() {
            self.rounds.end_transfer();
        }
        let raft = &self.node.raft;
        if !self.group.is_changing()
            || raft.has_pending_conf()
            || self.rounds.is_transferring()
            || !self.is_serving()
        {
            return;
        }
        if self.group.voters().any(|id| id == self.options.id) {
            // Refused when the leader is full; the next tick tries again.
            let _ = self.propose_change(Vec::new(), ConfChangeV2::default());
            return;
        }
        let matched = |id: &MemberId| raft.prs().get(id.0).map_or(0, |it| it.matched);
        let is_active = |id: &MemberId| raft.prs().get(id.0).is_some_and(|it| it.recent_active);
        if let Some(to) = self.group.voters().filter(is_active).max_by_key(matched) {
            let _ = self.transfer(now, to);
        }
    }

    /// Puts out what is confirmed of the reads that wait.
    pub(super) fn confirm(&mut self) {
        if !self.is_serving() {
            return;
        }
        let (group, id) = (&self.group, self.options.id);
        if let Some(round) = self.rounds.take_reads(group, id, self.applied) {
            self.outputs.push_back(ReplicaOutput::ReadsConfirmed(round));
        }
    }

    /// Reports a role, term or leader that is new, and begins or ends what belongs to a leader.
    fn change_role(&mut self, now: Instant) {
        let state = (self.role(), self.term(), self.leader());
        if state == self.reported {
            return;
        }
        let was_leader = self.reported.0 == ReplicaRole::Leader;
        if state.0 == ReplicaRole::Leader && (!was_leader || state.1 != self.reported.1) {
            self.rounds = Default::default();
            self.own_first = self.node.raft.raft_log.last_index();
            self.clock.lead(now);
        } else if state.0 != ReplicaRole::Leader {
            self.rounds = Default::default();
            self.own_first = u64::MAX;
            if was_leader {
                self.clock.follow(now);
            }
        }
        self.reported = state;
        let (role, term, leader) = state;
        self.outputs.push_back(ReplicaOutput::RoleChanged { role, term, leader });
    }

    /// Replaces the library's draw of the time before an election, which is not reproducible.
    fn set_election_time(&mut self) {
        let ticks = election::ticks(&self.options, &self.group, self.node.raft.term);
        self.node.raft.set_randomized_election_timeout(ticks);
    }

    fn envelopes(&mut self, now: Instant, messages: Vec<Message>) -> Vec<Envelope> {
        let kind = |message: &Message| message.get_msg_type();
        let is_heartbeat = |it: &Message| kind(it) == MessageType::MsgHeartbeat;
        let is_sent = |it: &Message| {
            matches!(
                kind(it),
                MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot
            )
        };
        if messages.iter().any(is_sent) && self.role() == ReplicaRole::Leader {
            let is_asked = self.rounds.is_awaiting();
            self.rounds.next(now, !is_asked && messages.iter().any(is_heartbeat));
        }
        messages.into_iter().filter_map(|message| self.envelope_of(now, &message)).collect()
    }

    fn envelope_of(&self, now: Instant, message: &Message) -> Option<Envelope> {
        let transfer = match message.get_msg_type() {
            MessageType::MsgTimeoutNow => self.rounds.transfers,
            _ => self.transfer,
        };
        let group_of = |index| self.node.store().snapshot_group(index).cloned();
        let body = raft_types::body(message, transfer, group_of)?;
        let mut envelope = self.envelope(MemberId(message.to), message.term, body);
        envelope.time = self.clock.live(now);
        Some(envelope)
    }

    pub(super) fn envelope(&self, to: MemberId, term: u64, body: Body) -> Envelope {
        let is_leader = self.role() == ReplicaRole::Leader;
        let (round, transfers_ended) = match is_leader {
            true => (self.rounds.last(), self.rounds.transfers_ended),
            false if self.promise.term == term => (self.promise.round, 0),
            false => (0, 0),
        };
        Envelope {
            cluster: self.options.cluster,
            generation: self.options.generation,
            from: self.options.id,
            incarnation: self.options.incarnation,
            to,
            term,
            round,
            transfers_ended,
            time: None,
            body,
        }
    }

    pub(super) fn take_leaders_time(&mut self, now: Instant, time: Option<Instant>) {
        if let Some(time) = time {
            self.clock.receive(now, time);
        }
    }

    pub(super) fn take_time(&mut self, now: Instant, entry: &Entry) {
        if let Payload::Round { at, .. } = raft_types::payload(entry) {
            self.clock.raise(now, at);
            self.last_at = self.last_at.max(at);
        }
    }
}
