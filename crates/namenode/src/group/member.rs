//! The member that this process is: it gives the replica what arrives, and executes what it puts
//! out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sanderling_core::catalog::Catalog;
use sanderling_core::replica::{
    Body, BootRecord, Envelope, FormerMembers, Group, GroupGeneration, GroupPlan, GroupPlanner,
    GroupRisk, LogEntry, LogPlace, MachineLife, MemberAddress, MemberRecord, MessageRefusal,
    OwnLife, OwnNotice, OwnNoticeReport, Payload, PersistStep, PlannerOptions, ProcessPhase,
    Replica, ReplicaOptions, ReplicaOutput, ReplicaRole, Restored, RoundProgress, SnapshotSends,
    StartAs, SyncMode, WriterRounds,
};
use sanderling_protocol::{ClusterId, Instant, MemberId};
use sanderling_transport::LogLimiter;
use tracing::{debug, info, warn};

use super::changes::PendingChanges;
use super::hard_state::{self, HardState};
use super::incoming::SnapshotFile;
use super::links::Links;
use super::log::{GroupFileDamage, GroupLog, LogError};
use super::origin;
use super::outgoing::{self, Sending};
use super::own_machine::OwnMachine;
use super::round;
use super::wire::GroupFrame;
use super::{GroupInput, boot_time};
use crate::directory::{Directory, FileKind};
use crate::options::Sync;
use crate::writer_queue::WorkQueue;

/// Bytes of the log on disk from which on its oldest part is removed: twice what is kept in memory
/// for members that lag.
const LOG_BYTES_MAX: u64 = 128 << 20;

/// Bytes of it that stay. As many as are kept in memory by default
/// (`ReplicaOptions::retained_bytes_max`): a member that starts again can give them to others.
const LOG_BYTES_KEPT: u64 = 64 << 20;

/// What the writer does after the replica was given something.
#[derive(Debug)]
pub(crate) enum Step {
    /// Apply these entries: they are agreed.
    Apply(Vec<LogEntry>),
    /// Replace the catalog by the one that arrived.
    Restore(Box<Catalog>),
    /// Send an image of the catalog to a member, with this message.
    Send(Envelope),
    /// The group's members, the role or the term have changed.
    Changed,
    /// The member was removed from the group.
    Removed,
}

/// What a member needs to start: its files, its connections, and the state of its group.
pub(crate) struct MemberParts {
    pub(crate) directory: Arc<Directory>,
    pub(crate) cluster: ClusterId,
    pub(crate) sync: Sync,
    pub(crate) links: Links,
    pub(crate) work: Arc<WorkQueue>,
    /// The time of the catalog's last command, and what the machine's clock shows.
    pub(crate) times: (Instant, Instant),
    /// How the group is kept by its leader.
    pub(crate) planner: PlannerOptions,
    /// When this machine will be taken, if it has a notice already.
    pub(crate) own_notice: Option<Instant>,
    /// The generation of the group, where its directory or its leader has one.
    pub(crate) generation: GroupGeneration,
    pub(crate) machine: OwnMachine,
}

/// A snapshot of a leader, as of an entry of the log.
struct ArrivedSnapshot {
    place: LogPlace,
    catalog: Box<Catalog>,
    file: SnapshotFile,
}

/// Gives the writer the end of a sending when it is dropped: a sending that ends without it would
/// hold up all others.
#[derive(Debug)]
struct SendReport {
    to: MemberId,
    work: Arc<WorkQueue>,
    is_sent: bool,
}

impl SendReport {
    const fn new(to: MemberId, work: Arc<WorkQueue>) -> Self {
        Self { to, work, is_sent: false }
    }

    /// Ends the sending. `is_sent`: whether the member has the snapshot.
    fn end(mut self, is_sent: bool) {
        self.is_sent = is_sent;
    }
}

impl Drop for SendReport {
    fn drop(&mut self) {
        let _ = self.work.push_group(GroupInput::Sent(self.to, self.is_sent));
    }
}

/// The member of a group.
pub(crate) struct GroupSeat {
    pub(crate) replica: Replica,
    changes: PendingChanges,
    log: GroupLog,
    hard: HardState,
    directory: Arc<Directory>,
    links: Links,
    work: Arc<WorkQueue>,
    rounds: WriterRounds,
    applied: LogPlace,
    /// The members as of entries that the log keeps, ascending.
    groups: VecDeque<(u64, Group)>,
    /// The last sender that is no member as far as is known here.
    sender: Option<(MemberId, String)>,
    /// Snapshots that arrived, while the replica awaits them: as many as `SnapshotReceiver` takes.
    arrived: Vec<ArrivedSnapshot>,
    /// Whether this machine will be taken.
    own_notice: OwnNotice,
    /// What this member, if it leads, has of the others' machines.
    planner: GroupPlanner,
    /// Whether a notice came since the writer looked last.
    is_noticed: bool,
    former: FormerMembers,
    machine: OwnMachine,
    own_life: OwnLife,
    /// Snapshots for others. They wait until the round under way is applied.
    sends: SnapshotSends,
    /// Whether a file has failed: nothing is written, sent or applied any more.
    has_failed: bool,
}

impl std::fmt::Debug for GroupSeat {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("GroupSeat").field("id", &self.hard.member).finish_non_exhaustive()
    }
}

const fn mode(sync: Sync) -> SyncMode {
    match sync {
        Sync::Always => SyncMode::Always,
        Sync::Os => SyncMode::Os,
    }
}

/// Lines about messages that contradict what this member has.
static CONTRADICTIONS: LogLimiter = LogLimiter::per_second();

impl GroupSeat {
    /// Founds a group of this namenode alone, whose catalog counts as the first entry.
    pub(crate) fn found(mut parts: MemberParts, at: MemberAddress) -> Result<Self, LogError> {
        let group = Group::of_one(at);
        let mut restored = Restored::first(group);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if parts.generation == GroupGeneration::default() {
            parts.generation = origin::founding(&parts.directory, since.as_secs())?;
        }
        // One that was recovered has led alone in the generation's first term.
        restored.vote.term = parts.generation.first_term() + 1;
        let mut seat = Self::create(parts, MemberId(1), restored)?;
        seat.rounds.found(&seat.replica);
        Ok(seat)
    }

    /// Begins as a member that the group has just taken: everything comes from the leader.
    pub(crate) fn joined(parts: MemberParts, member: MemberId) -> Result<Self, LogError> {
        Self::create(parts, member, Restored::default())
    }

    fn create(parts: MemberParts, member: MemberId, restored: Restored) -> Result<Self, LogError> {
        let first = restored.start.index + 1;
        let log = GroupLog::begin(&parts.directory, parts.cluster, parts.sync, first)?;
        let boot =
            BootRecord { boot: hard_state::boot(), sync: mode(parts.sync), is_closed: false };
        let (vote, start, group) = (restored.vote, restored.start, restored.group.clone());
        let record = MemberRecord { vote, start, group };
        let (cluster, incarnation) = (parts.cluster, 1);
        let generation = parts.generation;
        let hard = HardState { cluster, member, incarnation, boot, record, generation };
        hard.write(&parts.directory)?;
        Ok(Self::start(parts, hard, log, restored))
    }

    /// Continues as the member that the directory is of, with a catalog of so many commands. Those
    /// behind its newest snapshot came from the log, one entry after the other; a snapshot may have
    /// come from a leader before the log followed it.
    ///
    /// # Errors
    /// [`GroupFileDamage::Cut`]: the log lacks entries that the member has acknowledged.
    pub(crate) fn reopen(
        parts: MemberParts,
        mut hard: HardState,
        commands: u64,
    ) -> Result<Self, LogError> {
        let (directory, cluster) = (&parts.directory, parts.cluster);
        let fail = |cause| LogError::Io { path: directory.path().to_owned(), cause };
        let snapshots = directory.list(FileKind::Snapshot).map_err(fail)?;
        let own = snapshots.last().copied().unwrap_or_default()..commands;
        let is_only_member = hard.record.group.members().all(|(id, _)| id == hard.member);
        // The journal has nothing behind a snapshot that was received and has not replaced the log.
        let may_be_replaced = own.is_empty() || is_only_member;
        let start = hard.record.start;
        let (log, entries) =
            GroupLog::reopen(directory, cluster, parts.sync, start, may_be_replaced)?;
        let before = || GroupLog::kept_before(directory, cluster, start, round::is_round);
        let kept = match entries.iter().any(round::is_round) {
            true => Vec::new(),
            false => before().map_err(fail)?,
        };
        if !is_only_member && round::is_behind(kept.iter().chain(&entries), &own) {
            let path = directory.path().to_owned();
            return Err(LogError::Damaged { path, damage: GroupFileDamage::Cut });
        }
        hard.incarnation += 1;
        // What was not synced stays so until an orderly end.
        let sync = match hard.boot.sync {
            SyncMode::Os if !hard.boot.is_closed => SyncMode::Os,
            _ => mode(parts.sync),
        };
        hard.boot = BootRecord { boot: hard_state::boot(), sync, is_closed: false };
        hard.write(&parts.directory)?;
        let applied = round::last_applied(&entries, &own);
        let restored = hard.record.restored(entries, applied);
        Ok(Self::start(parts, hard, log, restored))
    }

    fn start(parts: MemberParts, hard: HardState, log: GroupLog, restored: Restored) -> Self {
        let MemberParts { directory, cluster, links, work, times, planner, own_notice, .. } = parts;
        let machine = parts.machine;
        let mut options = ReplicaOptions::new(cluster, hard.member, rand::random());
        options.incarnation = hard.incarnation;
        options.generation = hard.generation.0;
        let (applied, group) = (restored.start, restored.group.clone());
        let now = boot_time();
        let replica = Replica::new(options, restored, now, times);
        Self {
            replica,
            changes: PendingChanges::default(),
            log,
            hard,
            directory,
            links,
            work,
            rounds: WriterRounds::default(),
            applied,
            groups: VecDeque::from([(applied.index, group)]),
            sender: None,
            arrived: Vec::new(),
            own_notice: OwnNotice::new(own_notice),
            planner: GroupPlanner::new(planner),
            is_noticed: false,
            former: FormerMembers::default(),
            machine,
            own_life: OwnLife::default(),
            sends: SnapshotSends::default(),
            has_failed: false,
        }
    }

    /// Returns the member's number.
    pub(crate) const fn id(&self) -> MemberId {
        self.hard.member
    }

    /// Returns the members as of the last entry that was applied.
    pub(crate) fn group(&self) -> &Group {
        &self.groups.back().expect("there is always one").1
    }

    /// Returns which founding of the group it is of.
    pub(crate) const fn generation(&self) -> GroupGeneration {
        self.hard.generation
    }

    /// Returns the generation that another one has reported, if it is later than this member's.
    pub(crate) fn later_generation(&self) -> Option<GroupGeneration> {
        Some(self.links.later_generation()).filter(|later| later.is_after(self.hard.generation))
    }

    /// Returns whether no other member can go on without this one.
    pub(crate) fn is_last(&self) -> bool {
        self.leads() && self.replica.group().voters().eq([self.id()])
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.replica.role() == ReplicaRole::Leader && !self.has_failed
    }

    fn leads(&self) -> bool {
        self.rounds.serves(&self.replica)
    }

    /// Ends the member's part: a file has failed, and what this process has in memory may be more
    /// than the next one finds. It acknowledges nothing any more.
    pub(crate) fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Returns whether a file of the member has failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns whether the next start may find less than the member has acknowledged, after a sync
    /// has failed.
    pub(crate) fn may_have_forgotten(&self) -> bool {
        self.hard.start_as(&self.directory) == StartAs::NewMember
    }

    /// Returns whether this member leads and has applied what was agreed before, and has not begun
    /// to serve.
    pub(crate) fn is_to_take_over(&self) -> bool {
        self.rounds.is_to_take_over(&self.replica) && !self.has_failed
    }

    /// Begins the rounds of a leader that takes over.
    pub(crate) fn begin_term(&mut self) {
        self.rounds.begin_term(&self.replica);
    }

    /// Begins to serve in a term, once its first rounds have ended. Returns whether it does.
    pub(crate) fn serve(&mut self, term: u64) -> bool {
        !self.has_failed && self.rounds.serve(term, &self.replica)
    }

    /// Returns whether this member serves as the leader.
    pub(crate) fn is_serving(&self) -> bool {
        self.leads() && !self.has_failed
    }

    /// Returns the index of the last entry that was applied.
    pub(crate) const fn applied_index(&self) -> u64 {
        self.applied.index
    }

    /// Returns how many messages were dropped because a member's queue was full.
    pub(crate) const fn dropped(&self) -> u64 {
        self.links.dropped()
    }

    /// Returns how long nothing is due.
    pub(crate) fn sleep(&self) -> Duration {
        let now = boot_time();
        let due = self.replica.deadline();
        due.map_or(Duration::from_millis(100), |due| Duration::from(now.until(due)))
    }

    /// Returns until when the leader may answer reads by itself.
    pub(crate) fn lease_until(&self) -> Instant {
        self.replica.lease_until().filter(|_| self.is_serving()).unwrap_or(Instant(0))
    }

    /// Gives the replica what arrived, and the time.
    pub(crate) fn take(&mut self, inputs: VecDeque<GroupInput>) {
        if self.has_failed {
            return;
        }
        for input in inputs {
            self.take_one(boot_time(), input);
        }
        let now = boot_time();
        // All reads that came with these inputs have one round.
        self.changes.confirm(&mut self.replica, now);
        self.sends.report(now, &mut self.replica);
        self.replica.handle_deadline(now);
        let successors = self.planner.successors(&self.replica);
        self.changes.repeat(&mut self.replica, now, &successors);
        self.changes.look(&self.replica, self.hard.generation, now);
        self.report_life(now);
        self.report_notice(now);
        if self.former.report(now, &mut self.replica) {
            self.keep_links();
        }
        self.former.request(now, self.hard.member, &mut self.replica);
    }

    fn take_one(&mut self, now: Instant, input: GroupInput) {
        match input {
            GroupInput::Message(envelope, address) => {
                self.note_sender(now, envelope.from, address);
                // The catalog of a snapshot goes before it, and both come as one input.
                if matches!(envelope.body, Body::Snapshot { .. }) {
                    debug!(from = envelope.from.0, "a snapshot without its catalog is ignored");
                } else {
                    self.receive(now, envelope);
                }
            }
            GroupInput::Snapshot(envelope, catalog, file) => {
                self.receive_snapshot(now, envelope, catalog, file);
            }
            GroupInput::Sent(member, is_sent) => {
                self.sends.ended(now, member, is_sent, &mut self.replica);
            }
            GroupInput::Confirm(reply) => self.changes.read(reply),
            GroupInput::Join(at, reply) => {
                let generation = self.hard.generation;
                self.changes.join(&mut self.replica, now, at, generation, reply);
            }
            GroupInput::OwnNotice(deadline) => {
                self.own_notice.set(now, deadline);
                self.is_noticed = true;
            }
            GroupInput::Notice(member, left) => {
                self.is_noticed |= self.planner.take_report(now, &self.replica, member, left);
            }
            GroupInput::Life(member, life) => {
                self.planner.take_life(&self.replica, member, life);
            }
            GroupInput::Order(order, reply) => {
                let successors = self.planner.successors(&self.replica);
                self.changes.order(&mut self.replica, now, &order, &successors, reply);
            }
        }
    }

    /// Gives the replica the message of a snapshot, and keeps the snapshot only if the replica
    /// takes it: one of an earlier leader, or a late one, is dropped with its file.
    fn receive_snapshot(
        &mut self,
        now: Instant,
        envelope: Envelope,
        catalog: Box<Catalog>,
        file: SnapshotFile,
    ) {
        let Body::Snapshot { place, .. } = envelope.body else { return };
        let is_there = self.arrived.iter().any(|it| it.place == place);
        self.receive(now, envelope);
        if !is_there && self.replica.awaits_snapshot(place) {
            self.arrived.push(ArrivedSnapshot { place, catalog, file });
        }
    }

    /// Reports this machine's notice to the leader, when that is due.
    fn report_notice(&mut self, now: Instant) {
        let Some(OwnNoticeReport { to, left }) = self.own_notice.due(now, self.replica.leader())
        else {
            return;
        };
        let member = self.id();
        if to == member {
            self.is_noticed |= self.planner.take_report(now, &self.replica, member, left);
        } else if let Some(address) = self.address(to) {
            let generation = self.hard.generation;
            let frame = GroupFrame::Notice { generation, member, left };
            self.links.send_frame(to, &address, &frame);
        }
    }

    /// Repeats to the leader how long this machine goes on.
    fn report_life(&mut self, now: Instant) {
        let Some(to) = self.own_life.due(now, self.replica.leader()) else { return };
        let (generation, member, life) = (self.hard.generation, self.id(), self.machine.life());
        if to == member {
            self.planner.take_life(&self.replica, member, life);
        } else if let Some(address) = self.address(to) {
            let frame = GroupFrame::Life { generation, member, life };
            self.links.send_frame(to, &address, &frame);
        }
    }

    /// Returns how long a member's machine goes on, as far as this member has received it.
    pub(crate) fn life_of(&self, member: MemberId) -> MachineLife {
        match member == self.id() {
            true => self.machine.life(),
            false => self.planner.life(member),
        }
    }

    /// Returns when a member's machine will be taken, as far as this member has received it.
    pub(crate) fn notice_of(&self, member: MemberId) -> Option<Instant> {
        let own = self.own_notice.deadline().filter(|_| member == self.id());
        own.or_else(|| self.planner.deadline(member).filter(|_| self.is_serving()))
    }

    /// Returns whether this machine will be taken, or had a notice when its leader decided: what is
    /// taken back may come too late.
    pub(crate) fn has_notice(&self) -> bool {
        self.own_notice.explains_removal(boot_time())
    }

    /// Returns why the loss of one more member would stop the group, if this member leads it and
    /// that is so. `wanted` voters were set, and `plan` was made last.
    pub(crate) fn risk(&self, wanted: usize, plan: Option<&GroupPlan>) -> Option<GroupRisk> {
        let has_notice = |id| self.notice_of(id).is_some();
        GroupRisk::of(&self.replica.progress(), has_notice, wanted, plan)
    }

    /// Returns whether a notice came since the last call.
    pub(crate) const fn take_noticed(&mut self) -> bool {
        std::mem::replace(&mut self.is_noticed, false)
    }

    /// Returns what the leader does next about its group's machines.
    pub(crate) fn plan(&mut self) -> Option<GroupPlan> {
        self.planner.plan(boot_time(), &self.replica)
    }

    /// Ends the connections to whoever is no member, nor was one a moment ago.
    fn keep_links(&mut self) {
        let (group, former) = (self.replica.group(), &self.former);
        self.links.keep(|id| group.member(id).is_some() || former.has(id));
    }

    /// Remembers where a sender is that is no member as far as is known here: one that has left is
    /// answered so, and one that leads may have joined since.
    fn note_sender(&mut self, now: Instant, from: MemberId, address: String) {
        let group = self.replica.group();
        if group.member(from).is_some() {
            return;
        }
        if group.members().next().is_some() && from < group.next() {
            self.former.keep_sender(now, from, address);
        } else {
            self.sender = Some((from, address));
        }
    }

    fn receive(&mut self, now: Instant, envelope: Envelope) {
        if let Err(refusal) = self.replica.receive(now, envelope) {
            match refusal {
                MessageRefusal::Contradiction { .. } => {
                    if let Some(passed_over) = CONTRADICTIONS.admit(std::time::Instant::now()) {
                        warn!(%refusal, passed_over, "a message of the group is refused");
                    }
                }
                refusal => debug!(%refusal, "a message of the group is refused"),
            }
        }
    }

    /// Executes what the replica puts out, up to something that the writer has to do. After an
    /// error it executes nothing any more.
    pub(crate) fn next_step(&mut self) -> Result<Option<Step>, LogError> {
        let step = self.execute();
        self.has_failed |= step.is_err();
        step
    }

    fn execute(&mut self) -> Result<Option<Step>, LogError> {
        while !self.has_failed {
            if !self.rounds.is_between_pieces()
                && let Some(envelope) = self.sends.begin(boot_time(), &self.replica)
            {
                return Ok(Some(Step::Send(envelope)));
            }
            let Some(output) = self.replica.poll_output() else { break };
            if let Some(step) = self.execute_one(output)? {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    fn execute_one(&mut self, output: ReplicaOutput) -> Result<Option<Step>, LogError> {
        match output {
            ReplicaOutput::Persist(persist) => {
                let number = persist.number;
                let steps = self.hard.record.persist(persist);
                self.write(steps)?;
                self.replica.persisted(boot_time(), number);
            }
            ReplicaOutput::Send(envelope) => self.send(envelope),
            ReplicaOutput::Apply(entries) => return Ok(Some(Step::Apply(entries))),
            ReplicaOutput::Restore(place, group) => {
                let there = self.arrived.iter().position(|it| it.place == place);
                let there = there.ok_or_else(|| self.no_snapshot())?;
                let catalog = self.arrived.swap_remove(there).catalog;
                self.applied = place;
                self.rounds.restored();
                self.groups = VecDeque::from([(place.index, group)]);
                self.replica.applied(boot_time(), place.index);
                return Ok(Some(Step::Restore(catalog)));
            }
            ReplicaOutput::GroupChanged(index, group) => {
                if let Some((_, before)) = self.groups.back() {
                    self.former.keep(boot_time(), self.hard.member, before, &group);
                }
                self.keep_links();
                // The next step need not wait for a look.
                self.is_noticed = true;
                // A snapshot for a member must be of a group that has it.
                let place = self.replica.snapshot_taken(index, group.clone());
                self.keep_group(index, place, &group)?;
                self.groups.push_back((index, group));
                self.changes.look(&self.replica, self.hard.generation, boot_time());
                return Ok(Some(Step::Changed));
            }
            ReplicaOutput::RoleChanged { role, term, leader } => {
                info!(?role, term, leader = leader.map(|id| id.0), "the group's leader");
                self.changes.look(&self.replica, self.hard.generation, boot_time());
                return Ok(Some(Step::Changed));
            }
            ReplicaOutput::ReadsConfirmed(number) => {
                self.changes.confirmed(number);
                // Those that came meanwhile need a round of their own.
                self.changes.confirm(&mut self.replica, boot_time());
            }
            ReplicaOutput::TakeSnapshot => {
                let (index, group) = (self.applied.index, self.group().clone());
                self.replica.snapshot_taken(index, group);
            }
            ReplicaOutput::Removed => return Ok(Some(Step::Removed)),
        }
        Ok(None)
    }

    /// Writes what must be there before anything that follows from it is sent.
    fn write(&mut self, steps: impl IntoIterator<Item = PersistStep>) -> Result<(), LogError> {
        steps.into_iter().try_for_each(|step| match step {
            PersistStep::PublishSnapshot(place) => self.publish_arrived(place),
            PersistStep::WriteRecord => self.hard.write(&self.directory),
            PersistStep::RestartLog { first } => self.log.restart(first),
            // An overruled end is cut by the entries that replace it.
            PersistStep::Append(entries) => self.log.append(&entries),
            PersistStep::ForgetLog { before } => self.log.compact(before).map(|_| ()),
        })
    }

    /// Remembers the members before anything is decided by them.
    fn keep_group(
        &mut self,
        index: u64,
        place: Option<LogPlace>,
        group: &Group,
    ) -> Result<(), LogError> {
        let place = match place {
            // It is no longer in memory.
            None => self.log.term_of(index)?.map(|term| LogPlace { term, index }),
            place => place,
        };
        let Some(place) = place else { return Ok(()) };
        let steps = self.hard.record.change_group(place, group.clone());
        self.write(steps)
    }

    fn no_snapshot(&self) -> LogError {
        let path = self.directory.path().to_owned();
        LogError::Damaged { path, damage: GroupFileDamage::NoSnapshot }
    }

    /// Gives the file of the snapshot at a place its name in the directory.
    fn publish_arrived(&self, place: LogPlace) -> Result<(), LogError> {
        let there = self.arrived.iter().find(|it| it.place == place);
        let ArrivedSnapshot { catalog, file, .. } = there.ok_or_else(|| self.no_snapshot())?;
        let target = self.directory.file(FileKind::Snapshot, catalog.index());
        let renamed = self.directory.files().rename(file.path(), &target);
        let renamed = renamed.and_then(|()| self.directory.sync());
        renamed.map_err(|cause| LogError::Io { path: target, cause })
    }

    fn send(&mut self, envelope: Envelope) {
        if matches!(envelope.body, Body::Snapshot { .. }) {
            self.sends.request(envelope);
        } else if let Some(address) = self.address(envelope.to) {
            self.links.send(envelope.to, &address, envelope.encode());
        }
    }

    fn address(&self, id: MemberId) -> Option<String> {
        let known = self.replica.group().member(id).or_else(|| self.group().member(id));
        let known = known.map(|member| member.at.address.clone());
        let known = known.or_else(|| self.former.address(id).map(str::to_owned));
        let sender = self.sender.as_ref().filter(|(from, _)| *from == id);
        known.or_else(|| sender.map(|(_, address)| address.clone()))
    }

    /// Sends an image of the catalog to the receiver of a message, without holding up anything.
    pub(crate) fn send_snapshot(&self, envelope: &Envelope, catalog: Catalog) {
        assert!(!self.rounds.is_between_pieces(), "the image has all commands up to its place");
        let report = SendReport::new(envelope.to, Arc::clone(&self.work));
        let Some(address) = self.address(envelope.to) else { return };
        let sending = Sending { address, message: envelope.encode(), catalog };
        let dialer = Arc::clone(self.links.dialer());
        self.links.runtime().spawn(async move {
            report.end(outgoing::deliver(dialer, sending).await);
        });
    }

    /// Begins a round of these pieces, the last of whose commands is of the time `at`.
    pub(crate) fn begin_round(&mut self, at: Instant, pieces: Vec<Vec<u8>>) {
        self.rounds.begin(at, pieces.into_iter().map(Bytes::from), &self.replica);
    }

    /// Proposes what is left of the round.
    pub(crate) fn propose(&mut self) {
        self.rounds.propose(boot_time(), &mut self.replica);
    }

    /// Notes that the writer takes an entry. Returns the pieces of rounds that it applies now.
    pub(crate) fn applies(&mut self, place: LogPlace, payload: &Payload) -> Vec<Bytes> {
        self.applied = place;
        self.rounds.agreed(place, payload)
    }

    /// Reports to the replica what was applied.
    pub(crate) fn has_applied(&mut self) {
        self.replica.applied(boot_time(), self.applied.index);
    }

    /// Returns what became of the round under way. `is_ending`: whether the process is.
    pub(crate) fn look_at_round(&mut self, is_ending: bool) -> RoundProgress {
        let process = match is_ending {
            _ if self.has_failed => ProcessPhase::Failed,
            true => ProcessPhase::Ends,
            false => ProcessPhase::Runs,
        };
        self.rounds.look(boot_time(), &self.replica, process)
    }

    /// Removes the oldest part of the log on disk when it is large.
    pub(crate) fn compact(&mut self) -> Result<(), LogError> {
        if self.log.bytes() <= LOG_BYTES_MAX || self.has_failed {
            return Ok(());
        }
        assert!(!self.rounds.is_between_pieces(), "the catalog has what the log forgets");
        let Some(before) = self.log.place_with(LOG_BYTES_KEPT, self.applied.index) else {
            return Ok(());
        };
        while self.groups.len() > 1 && self.groups[1].0 <= before.index {
            self.groups.pop_front();
        }
        let steps = self.hard.record.forget(before, self.groups[0].1.clone());
        self.write(steps)
    }

    /// Notes that the process ends and the disk has everything. A member that has failed notes
    /// nothing: a sync that succeeds now would prove nothing.
    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        if self.has_failed {
            return Ok(());
        }
        self.log.sync()?;
        self.hard.boot.is_closed = true;
        self.hard.write(&self.directory)
    }
}

#[cfg(test)]
mod tests;
