//! The machine of one member: what has arrived, what is written, and the time go in; what its shell
//! writes, sends and applies comes out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use raft::eraftpb::{ConfChangeV2, Entry, Message, MessageType};
use raft::{Config, RawNode, SnapshotStatus, StateRole};
use sanderling_protocol::{Instant, MemberId, Millis};
use thiserror::Error;

use super::clock::GroupClock;
use super::entry::{LogPlace, Payload, Vote};
use super::freshness::Freshness;
use super::group::{Group, GroupChange, GroupChangeError};
use super::guard::{self, MessageRefusal};
use super::lease::{Promise, Rounds};
use super::log::Log;
use super::message::{APPEND_BYTES_MAX, Body, Envelope, ROUND_BYTES_MAX};
use super::options::{ReplicaOptions, Restored};
use super::output::{MemberProgress, ReplicaOutput, ReplicaRole};
use super::raft_types;
use super::read_permission::{LeadState, LeaseView, ReadPermission};

mod process;

/// Messages of entries that a leader sends to one member before it has an answer. Of 1 MiB each
/// they are as many bytes as a leader takes before they are agreed (`uncommitted_bytes_max`).
pub const APPENDS_MAX: usize = 64;

/// Bytes of agreed entries in one [`ReplicaOutput::Apply`], if one entry is not longer: a start
/// with a long log applies it in pieces. As many as one round of the namenode has at most; readers
/// get the lock between two. Chosen, not measured.
const APPLY_BYTES_MAX: u64 = 4 << 20;

/// One member of a group: its log, the leader that it follows or is, and what it may answer. The
/// shell executes what [`Replica::poll_output`] returns in that order, and reports what is written
/// ([`Replica::persisted`]) and applied ([`Replica::applied`]).
pub struct Replica {
    options: ReplicaOptions,
    node: RawNode<Log>,
    group: Group,
    clock: GroupClock,
    rounds: Rounds,
    promise: Promise,
    incarnations: BTreeMap<MemberId, u64>,
    /// When each member last answered something that was sent to it.
    answered: BTreeMap<MemberId, Instant>,
    freshness: Freshness,
    now: Instant,
    outputs: VecDeque<ReplicaOutput>,
    /// What was put out to be written and is not reported as written.
    unwritten: VecDeque<PendingPersist>,
    /// The last write whose vote must be on the disk before anything is sent.
    vote_number: u64,
    written_vote: Vote,
    next_tick: Instant,
    reported: (ReplicaRole, u64, Option<MemberId>),
    /// The first entry of this leader's term.
    own_first: u64,
    applied: u64,
    /// The last transfer that made this member a candidate.
    transfer: u64,
    /// A request to lead that waits until everything is written.
    lead_request: Option<LeadRequest>,
    last_at: Instant,
    /// The term of the last round that was applied: its leader has served.
    applied_term: u64,
    /// The log is kept from here on for members that get a snapshot.
    hold: Option<u64>,
    /// When such a member was last active.
    held_at: Instant,
    is_removed: bool,
}

/// A leader's request that this member leads.
#[derive(Debug, Clone, Copy)]
struct LeadRequest {
    from: MemberId,
    term: u64,
    transfer: u64,
}

/// What waits for a write.
struct PendingPersist {
    number: u64,
    messages: Vec<Envelope>,
    restore: Option<(LogPlace, Group)>,
}

/// A reason why a leader does not take a round, a change or a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// Send it to the leader.
    #[error("this member does not lead")]
    NotLeader {
        /// The member that leads, as far as it is known.
        leader: Option<MemberId>,
    },
    /// The leader has not applied what earlier leaders agreed. Try again at once.
    #[error("the new leader has not applied the log yet")]
    NotServing,
    /// Keep it: either another member leads in a moment, or this one goes on.
    #[error("the leadership is being transferred")]
    Transferring,
    /// Too many rounds wait for a majority. Try again later.
    #[error("too many rounds wait for a majority")]
    Full,
    /// A round is at most [`ROUND_BYTES_MAX`](super::ROUND_BYTES_MAX) long.
    #[error("a round of {bytes} bytes is too long")]
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// The member to transfer to is no voter, or does not answer.
    #[error("member {0} cannot lead: it is no voter or does not answer")]
    CannotLead(MemberId),
    /// Why the change of the members is refused.
    #[error(transparent)]
    Change(#[from] GroupChangeError),
}

/// Returns the term of the last round up to an index; 0 if none is there.
fn term_of_last_round(entries: &[Entry], applied: u64) -> u64 {
    let is_round = |entry: &&Entry| {
        entry.index <= applied && matches!(raft_types::payload(entry), Payload::Round { .. })
    };
    entries.iter().rev().find(is_round).map_or(0, |entry| entry.term)
}

/// Senders that are remembered at most, beyond which those that are no members are forgotten: a
/// group has a few members. 15 members and 16 former ones at most.
const SENDERS_MAX: usize = 64;

impl Replica {
    /// Returns the machine of a member that starts now. `floor` is the time of the last entry or
    /// command that its directory has, `wall` what the machine's clock shows. `now` is of a clock
    /// that goes on while the machine is suspended.
    ///
    /// # Panics
    /// When `restored` has gaps: check the directory before.
    #[must_use]
    pub fn new(
        options: ReplicaOptions,
        restored: Restored,
        now: Instant,
        (floor, wall): (Instant, Instant),
    ) -> Self {
        let Restored { vote, start, group, entries, applied } = restored;
        let state = (raft_types::hard_state(&vote), raft_types::conf_state(&group));
        let mut log = Log::new(start, state.0, state.1);
        let entries: Vec<Entry> = entries.into_iter().map(raft_types::entry).collect();
        log.append(&entries);
        let applied = applied.max(start.index);
        let node = RawNode::new(&config(&options), log, &logger());
        let node = node.expect("the options and the directory are consistent");
        let (reported, promise) = (
            (ReplicaRole::Follower, node.raft.term, None),
            Promise::at_start(now, options.promise()),
        );
        let drift_permille = options.drift_permille;
        let mut replica = Self {
            next_tick: now + options.tick,
            options,
            node,
            group,
            clock: GroupClock::new(now, (floor, wall), drift_permille),
            rounds: Rounds::default(),
            promise,
            incarnations: BTreeMap::new(),
            outputs: VecDeque::new(),
            unwritten: VecDeque::new(),
            vote_number: 0,
            written_vote: vote,
            reported,
            own_first: u64::MAX,
            applied,
            transfer: 0,
            lead_request: None,
            last_at: floor,
            applied_term: term_of_last_round(&entries, applied),
            hold: None,
            held_at: now,
            is_removed: false,
            answered: BTreeMap::new(),
            freshness: Freshness::at_start(applied),
            now,
        };
        for entry in &entries {
            replica.take_time(now, entry);
        }
        // A leader that is alone need not wait for one that might be there.
        if replica.group.is_quorum(|id| id == replica.options.id) && !replica.group.is_changing() {
            replica.process(now);
            let _ = replica.node.campaign();
        }
        replica.process(now);
        let own = replica.options.id;
        if replica.group.member(own).is_none() && own < replica.group.next() {
            // The directory has the change that removed it, and no member reports it again.
            replica.leave();
        }
        replica
    }

    /// Handles a message that another member of the group has sent. Of a [`Body::Snapshot`],
    /// [`Replica::awaits_snapshot`] returns then whether it is taken.
    ///
    /// # Errors
    /// [`MessageRefusal`]: nothing has changed. The shell counts and logs it.
    pub fn receive(&mut self, now: Instant, envelope: Envelope) -> Result<(), MessageRefusal> {
        self.check(&envelope)?;
        let Envelope { from, incarnation, term, round, transfers_ended, time, body, .. } = envelope;
        self.incarnations.insert(from, incarnation);
        self.now = self.now.max(now);
        if self.incarnations.len() > SENDERS_MAX {
            self.answered.retain(|id, _| self.group.member(*id).is_some());
            self.incarnations.retain(|id, _| self.group.member(*id).is_some());
        }
        let is_of_leader = body.is_of_leader();
        if is_of_leader && term >= self.node.raft.term {
            let length = self.options.promise();
            self.promise.renew(now, length, (term, round, transfers_ended));
        }
        match &body {
            Body::Removed { next } => {
                if *next > self.options.id {
                    self.leave();
                }
                return Ok(());
            }
            Body::VoteRequest { transfer, .. } if !self.promise.allows(now, term, *transfer) => {
                return Ok(());
            }
            Body::VoteAnswer { is_granted, .. } => {
                self.answered.insert(from, now);
                // A late one may have the time of a leader that never served, and this one has
                // excused all that its own time has jumped by when it began to serve.
                if *is_granted && self.role() != ReplicaRole::Leader {
                    self.take_leaders_time(now, time);
                }
            }
            Body::Appended { .. } | Body::AppendRejected { .. } | Body::HeartbeatAnswer { .. }
                if term == self.node.raft.term =>
            {
                // One that receives nothing may still send: requests for votes, or answers to
                // what it received long ago.
                let is_later = self.rounds.acknowledge(from, round);
                if is_later {
                    self.answered.insert(from, now);
                }
            }
            Body::Lead { transfer } => {
                self.lead_request = Some(LeadRequest { from, term, transfer: *transfer });
                self.campaign_if_requested(now);
                return Ok(());
            }
            // One of an earlier term is ignored, and may have a later place than the one that is
            // taken: its members must not be kept in place of that one's.
            Body::Snapshot { place, group } if term >= self.node.raft.term => {
                self.node.mut_store().set_snapshot(*place, group.clone());
            }
            _ => {}
        }
        if is_of_leader && term >= self.node.raft.term {
            self.note_agreed(now, &body, (term, time));
            self.take_leaders_time(now, time);
            // One that has not served yet has brought no round of its term.
            if let Some(time) = time.filter(|_| term == self.applied_term) {
                self.clock.served(time);
            }
        }
        if let Some(mut message) = raft_types::message(body) {
            (message.from, message.to, message.term) = (from.0, self.options.id.0, term);
            let _ = self.node.step(message);
        }
        self.process(now);
        Ok(())
    }

    /// Takes what a leader's message of a term and a time shows as agreed.
    fn note_agreed(&mut self, now: Instant, body: &Body, (term, time): (u64, Option<Instant>)) {
        let pause = self.options.promise();
        self.freshness.receive(now, body.agreed(), pause);
        // One that has not served yet may show less than what was agreed before its term.
        if !matches!(body, Body::Append { .. }) || term != self.applied_term {
            return;
        }
        if let Some((own, time)) = self.clock.live(now).zip(time) {
            let under_way = own.0.saturating_sub(time.0);
            let sent = Instant(now.0.saturating_sub(under_way));
            self.freshness.receive_entries(now, sent, pause);
        }
    }

    /// Stands for election if the leader has requested it. What is not written yet must not be what
    /// makes it the leader, so a request that comes before waits: it would take the leader as long
    /// as an election to repeat it.
    fn campaign_if_requested(&mut self, now: Instant) {
        if !self.unwritten.is_empty() {
            return;
        }
        let Some(LeadRequest { from, term, transfer }) = self.lead_request.take() else { return };
        // A request that comes late is of a transfer that was given up: the leader may have a lease
        // again, to which this member has contributed its promise.
        if !self.promise.allows(now, term + 1, Some(transfer)) {
            return;
        }
        self.transfer = transfer;
        if let Some(mut message) = raft_types::message(Body::Lead { transfer }) {
            (message.from, message.to, message.term) = (from.0, self.options.id.0, term);
            let _ = self.node.step(message);
        }
        self.process(now);
    }

    fn check(&mut self, envelope: &Envelope) -> Result<(), MessageRefusal> {
        if self.is_removed {
            return Err(MessageRefusal::Removed);
        }
        let from = envelope.from;
        match guard::check_sender(envelope, &self.options, &self.group) {
            Err(refusal @ MessageRefusal::RemovedMember { .. }) => {
                let next = self.group.next();
                let answer = self.envelope(from, self.node.raft.term, Body::Removed { next });
                self.outputs.push_back(ReplicaOutput::Send(answer));
                return Err(refusal);
            }
            other => other?,
        }
        if self.incarnations.get(&from).is_some_and(|newest| envelope.incarnation < *newest) {
            return Err(MessageRefusal::OldIncarnation { from });
        }
        guard::check_body(envelope, &self.node, &self.group)
    }

    /// Notes that the shell has written the [`super::Persist`] of that number and all before it.
    /// What was held back until then is put out: messages, and the snapshot to restore.
    pub fn persisted(&mut self, now: Instant, number: u64) {
        let mut restored = None;
        while self.unwritten.front().is_some_and(|first| first.number <= number) {
            let Some(first) = self.unwritten.pop_front() else { break };
            if let Some((place, group)) = first.restore {
                self.applied = place.index;
                restored = Some(place.index);
                self.outputs.push_back(ReplicaOutput::Restore(place, group));
            }
            self.outputs.extend(first.messages.into_iter().map(ReplicaOutput::Send));
        }
        self.node.on_persist_ready(number);
        if let Some(index) = restored {
            // Otherwise the library looks for what is before the snapshot at its next election.
            self.node.advance_apply_to(index);
        }
        self.process(now);
        self.campaign_if_requested(now);
    }

    /// Notes that the shell has applied the entries up to `index`. A leader serves once that has an
    /// entry of its term.
    pub fn applied(&mut self, now: Instant, index: u64) {
        self.applied = self.applied.max(index);
        self.freshness.applied(index);
        self.confirm();
        self.drive(now);
        self.process(now);
    }

    /// Returns when [`Replica::handle_deadline`] is to be called, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_removed).then_some(self.next_tick)
    }

    /// Handles the time of [`Replica::deadline`]: ticks once if that has come. A call before it
    /// does nothing.
    pub fn handle_deadline(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.is_removed || now < self.next_tick {
            return;
        }
        // Ticks that a pause has swallowed are not made up for: what arrived meanwhile comes
        // first, and a promise never ends early.
        self.next_tick = now + self.options.tick;
        if self.may_read(now) == ReadPermission::Yes {
            self.freshness.lead(now);
            if self.applied_term == self.term() {
                self.clock.served(self.clock.time(now));
            }
        }
        // A member that cannot write does not stand for election.
        if self.role() == ReplicaRole::Leader || self.unwritten.is_empty() {
            self.node.tick();
        }
        self.drive(now);
        self.process(now);
    }

    /// Removes and returns the next thing that the shell has to do; `None` if there is none now.
    pub fn poll_output(&mut self) -> Option<ReplicaOutput> {
        self.outputs.pop_front()
    }

    /// Proposes a round that was made at the group's time `at` ([`Replica::time`]). It is agreed
    /// when [`ReplicaOutput::Apply`] has an entry of this place; an entry of another term with the
    /// same number means that it was overruled.
    ///
    /// # Errors
    /// [`ProposeError`] names what to do; nothing was proposed.
    pub fn propose(
        &mut self,
        now: Instant,
        at: Instant,
        commands: Bytes,
    ) -> Result<LogPlace, ProposeError> {
        if commands.len() > ROUND_BYTES_MAX {
            return Err(ProposeError::TooLong { bytes: commands.len() });
        }
        if !self.is_serving() {
            let leader = self.leader();
            let is_leader = self.role() == ReplicaRole::Leader;
            let not_leader = ProposeError::NotLeader { leader };
            return Err(if is_leader { ProposeError::NotServing } else { not_leader });
        }
        let at = at.max(self.last_at);
        let mut entry = Entry::default();
        raft_types::set_payload(&mut entry, Payload::Round { at, commands });
        self.step_proposal(entry)?;
        self.last_at = at;
        let index = self.node.raft.raft_log.last_index();
        let place = LogPlace { term: self.node.raft.term, index };
        self.process(now);
        Ok(place)
    }

    fn step_proposal(&mut self, entry: Entry) -> Result<(), ProposeError> {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.options.id.0;
        message.set_entries(vec![entry].into());
        if self.rounds.is_transferring() {
            return Err(ProposeError::Transferring);
        }
        self.node.raft.step(message).map_err(|_| ProposeError::Full)
    }

    /// Proposes a change of the members. It is done when [`ReplicaOutput::GroupChanged`] has it and
    /// [`Group::is_changing`] is false.
    ///
    /// # Errors
    /// [`ProposeError`] names what to do; nothing was proposed.
    pub fn change_group(&mut self, now: Instant, change: &GroupChange) -> Result<(), ProposeError> {
        if !self.is_serving() {
            return Err(ProposeError::NotLeader { leader: self.leader() });
        }
        if self.node.raft.has_pending_conf() {
            return Err(GroupChangeError::UnderWay.into());
        }
        self.group.check(change, self.options.id)?;
        self.propose_change(raft_types::encode(change), raft_types::conf_change(change))?;
        self.process(now);
        Ok(())
    }

    fn propose_change(
        &mut self,
        context: Vec<u8>,
        change: ConfChangeV2,
    ) -> Result<(), ProposeError> {
        if self.rounds.is_transferring() {
            return Err(ProposeError::Transferring);
        }
        self.node.propose_conf_change(context, change).map_err(|_| ProposeError::Full)
    }

    /// Transfers the leadership. It takes a few round trips, or fails after the shortest time of an
    /// election; [`ReplicaOutput::RoleChanged`] reports a new leader. No round is taken meanwhile,
    /// and no read is answered without a majority.
    ///
    /// # Errors
    /// [`ProposeError`] names what to do.
    pub fn transfer(&mut self, now: Instant, to: MemberId) -> Result<(), ProposeError> {
        if self.role() != ReplicaRole::Leader {
            return Err(ProposeError::NotLeader { leader: self.leader() });
        }
        let is_other_voter = to != self.options.id && self.group.voters().any(|id| id == to);
        if !is_other_voter || !self.is_recent(to) {
            return Err(ProposeError::CannotLead(to));
        }
        if self.rounds.is_transferring() {
            return Err(ProposeError::Transferring);
        }
        // Given up first: what follows forces votes of members that owe this leader a promise.
        self.rounds.begin_transfer();
        self.node.transfer_leader(to.0);
        self.process(now);
        Ok(())
    }

    /// Returns whether reads may be answered from what is applied, at this moment.
    #[must_use]
    pub fn may_read(&self, now: Instant) -> ReadPermission {
        let lead = match self.role() {
            ReplicaRole::Leader if self.is_serving() => LeadState::Serves,
            ReplicaRole::Leader => LeadState::Elected,
            ReplicaRole::Candidate | ReplicaRole::Follower => LeadState::Follows,
        };
        let lease_until = self.lease_until().unwrap_or(Instant(0));
        ReadPermission::of(&LeaseView { lead, lease_until, seen_at: now }, now)
    }

    /// Returns until when [`Replica::may_read`] answers yes if nothing else happens; `None`
    /// without a lease. Nothing that this machine was given may lie between.
    #[must_use]
    pub fn lease_until(&self) -> Option<Instant> {
        if !self.is_serving() {
            return None;
        }
        self.rounds.lease(&self.group, self.options.id, self.options.lease())
    }

    /// Returns until when this member may rely on what it has applied for what it answers by
    /// itself, whether it leads or not. The moment has passed if no leader has reached it for six
    /// times the longest time to an election, nor since it started.
    #[must_use]
    pub fn fresh_until(&self) -> Instant {
        self.freshness.at().map_or(Instant(0), |at| at + self.options.fresh())
    }

    /// Returns whether a snapshot of this place was received and taken, and is not reported as
    /// written. The shell needs its catalog until [`ReplicaOutput::Restore`] has this place. All
    /// others that arrive are of no use.
    #[must_use]
    pub fn awaits_snapshot(&self, place: LogPlace) -> bool {
        let mut restored = self.unwritten.iter().filter_map(|it| it.restore.as_ref());
        restored.any(|(at, _)| *at == place)
    }

    /// Starts to confirm with a majority that this member leads. [`ReplicaOutput::ReadsConfirmed`]
    /// with the number that is returned, or a higher one, allows all reads that arrived before this
    /// call. `None` when this member does not lead, or too much waits already.
    pub fn confirm_reads(&mut self, now: Instant) -> Option<u64> {
        if self.role() != ReplicaRole::Leader || !self.rounds.may_await_reads() {
            return None;
        }
        let round = self.rounds.next(now, true);
        let index = self.node.raft.raft_log.committed.max(self.own_first);
        self.rounds.await_reads(round, index);
        self.node.ping();
        self.confirm();
        self.process(now);
        Some(round)
    }

    /// Notes whether a snapshot was sent to the member `to` as a whole.
    pub fn snapshot_sent(&mut self, now: Instant, to: MemberId, is_ok: bool) {
        let status = if is_ok { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.node.report_snapshot(to.0, status);
        self.process(now);
    }

    /// Takes a snapshot that the shell has made or has at its start: of everything up to the
    /// entry `index`, with the members as of that entry. Returns its place, or `None` if the log
    /// no longer reaches back to it: take a newer one.
    pub fn snapshot_taken(&mut self, index: u64, group: Group) -> Option<LogPlace> {
        let place = self.node.store().place(index)?;
        self.node.mut_store().set_snapshot(place, group);
        Some(place)
    }

    /// Forgets the log up to `index`, which is applied: members that lag more get a snapshot.
    pub fn compact(&mut self, index: u64) {
        let index = index.min(self.applied);
        self.node.mut_store().forget(index);
    }

    /// Returns the group's time at `now`, which is not before that of the last entry. Only a
    /// leader's is to be logged.
    #[must_use]
    pub fn time(&self, now: Instant) -> Instant {
        self.clock.time(now).max(self.last_at)
    }

    /// Returns for how long no leader served before this one, which begins to. `last` is the
    /// group's time of the last command that it has applied. The catalog does not count the absence
    /// against leases and times to live.
    #[must_use]
    pub fn absence(&self, now: Instant, last: Instant) -> Millis {
        self.clock.absence(now, last)
    }

    /// Returns whether the time comes from a leader of this process's lifetime.
    #[must_use]
    pub fn has_group_time(&self, now: Instant) -> bool {
        self.clock.live(now).is_some()
    }

    /// Returns the members as of the last agreed change.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// Returns whether this member leads, follows, or is a candidate in an election.
    #[must_use]
    pub fn role(&self) -> ReplicaRole {
        match self.node.raft.state {
            StateRole::Leader => ReplicaRole::Leader,
            StateRole::Follower => ReplicaRole::Follower,
            StateRole::Candidate | StateRole::PreCandidate => ReplicaRole::Candidate,
        }
    }

    /// Returns the leader of the current term, which may be this member; `None` if this member has
    /// received from none.
    #[must_use]
    pub fn leader(&self) -> Option<MemberId> {
        let leader = self.node.raft.leader_id;
        (leader != 0).then_some(MemberId(leader))
    }

    /// Returns whether this member leads, or has received something from the leader that it has
    /// within twice the shortest time of an election. Voters look for another leader by then, and
    /// spares never do.
    #[must_use]
    pub fn is_led(&self, now: Instant) -> bool {
        let lately = self.promise.until + self.options.promise();
        let is_leader = self.role() == ReplicaRole::Leader;
        is_leader || (self.leader().is_some() && now < lately)
    }

    /// Returns the term in which this member is. It grows with each election.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// Returns the index of the last entry of the log, and that of the last one that is agreed.
    #[must_use]
    pub fn ends(&self) -> (u64, u64) {
        (self.node.raft.raft_log.last_index(), self.node.raft.raft_log.committed)
    }

    /// Returns whether this member leads and has applied an entry of its own term, and so all that
    /// earlier leaders agreed.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.role() == ReplicaRole::Leader && self.applied >= self.own_first
    }

    /// Returns whether this member was removed from the group.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Returns which entries each member has confirmed and whether it answers, as this leader sees
    /// it; empty if this member does not lead.
    #[must_use]
    pub fn progress(&self) -> Vec<MemberProgress> {
        if self.role() != ReplicaRole::Leader {
            return Vec::new();
        }
        let of = |(id, member): (MemberId, &super::GroupMember)| {
            let progress = self.node.raft.prs().get(id.0);
            MemberProgress {
                id,
                role: member.role,
                matched: progress.map_or(0, |it| it.matched),
                is_active: id == self.options.id || self.is_recent(id),
            }
        };
        self.group.members().map(of).collect()
    }

    /// Checks a change that an operator or a joining process requests, before
    /// [`Replica::change_group`]: no member that answers is replaced by one that joins, and a
    /// majority of the voters that are left answers. The planner checks its own changes itself.
    ///
    /// # Errors
    /// [`ProposeError::NotLeader`]: the leader alone sees what answers.
    /// [`GroupChangeError::InUse`] and [`GroupChangeError::NoMajority`] name what to do first.
    pub fn check_requested(&self, change: &GroupChange) -> Result<(), ProposeError> {
        if !self.is_serving() {
            return Err(ProposeError::NotLeader { leader: self.leader() });
        }
        let is_silent = |id: &MemberId| *id != self.options.id && !self.is_recent(*id);
        if change.add.is_some()
            && let Some(id) = change.remove.iter().find(|id| !is_silent(id))
        {
            return Err(GroupChangeError::InUse(*id).into());
        }
        if !self.group.voters().any(|id| change.remove.contains(&id)) {
            return Ok(());
        }
        self.group.check(change, self.options.id)?;
        let left = self.group.changed(change)?;
        let silent: BTreeSet<MemberId> = left.voters().filter(is_silent).collect();
        match 2 * silent.len() < left.voters().count() {
            true => Ok(()),
            false => Err(GroupChangeError::NoMajority(silent).into()),
        }
    }

    /// Returns whether a member has lately answered something that was sent to it. The library
    /// forgets that at each of its looks, and would have a third of the answers wrong.
    fn is_recent(&self, id: MemberId) -> bool {
        let Millis(tick) = self.options.tick;
        let lately = Millis(2 * tick * self.options.election_ticks as u64);
        self.answered.get(&id).is_some_and(|at| at.until(self.now) < lately)
    }

    /// Reports to a former member that it was removed: the message in which the change was agreed
    /// may never reach it.
    pub fn report_removal(&mut self, to: MemberId) {
        let next = self.group.next();
        if self.role() == ReplicaRole::Leader && self.group.member(to).is_none() && to < next {
            let report = self.envelope(to, self.node.raft.term, Body::Removed { next });
            self.outputs.push_back(ReplicaOutput::Send(report));
        }
    }

    /// Sends an empty answer to a member, which reports it if this one was removed while it was
    /// away. Without that, one that does not vote would wait for a leader for ever.
    pub fn request_membership(&mut self, to: MemberId) {
        let (_, committed) = self.ends();
        let question = self.envelope(to, self.node.raft.term, Body::HeartbeatAnswer { committed });
        self.outputs.push_back(ReplicaOutput::Send(question));
    }
}

fn config(options: &ReplicaOptions) -> Config {
    Config {
        id: options.id.0,
        election_tick: options.election_ticks,
        heartbeat_tick: options.heartbeat_ticks,
        max_size_per_msg: APPEND_BYTES_MAX,
        max_inflight_msgs: APPENDS_MAX,
        check_quorum: true,
        pre_vote: true,
        max_uncommitted_size: options.uncommitted_bytes_max.max(APPEND_BYTES_MAX),
        max_committed_size_per_ready: APPLY_BYTES_MAX,
        // The next entry or heartbeat has how far the log is agreed: alone it would be a
        // message to each member after each round, and its answer.
        skip_bcast_commit: true,
        ..Config::default()
    }
}

fn logger() -> slog::Logger {
    slog::Logger::root(slog::Discard, slog::o!())
}
