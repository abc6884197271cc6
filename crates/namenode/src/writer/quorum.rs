//! The writer as a member of a group: a round counts once the quorum has it, what other leaders
//! have agreed is applied, and a new leader takes over.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLockWriteGuard;
use sanderling_core::catalog::{Catalog, Command};
use sanderling_core::namenode::{CommitBatch, GroupCommit, Namenode, Unwritten};
use sanderling_core::replica::{
    GroupChangeError, GroupRisk, GroupRole, GroupStep, LogEntry, LogPlace, Payload, PlannerOptions,
    ProposeError, RoundLoss, RoundProgress,
};
use sanderling_protocol::limits::EVENTS_KEPT_MAX;
use sanderling_protocol::{MemberId, Refusal, Term};
use tracing::{error, info, warn};

use super::CatalogWriter;
use super::unwritten::UnwrittenCause;
use crate::directory::FileKind;
use crate::error::NamenodeFailure;
use crate::group::log::{GroupLog, LogError};
use crate::group::member::{MemberParts, Step};
use crate::group::round::{self, Round, RoundError};
use crate::group::{GroupInput, GroupSeat, GroupStatus, MemberRow, ServingState};
use crate::journal::{AppendError, JournalFailure};
use crate::server::MemberStart;

/// Pause before the journal of a member whose disk is late is tried again. A look costs little, and
/// a sync that makes room takes milliseconds on a fast disk. The group goes on with its other
/// members meanwhile. Chosen, not measured.
const BEHIND_PAUSE: Duration = Duration::from_millis(5);

impl CatalogWriter {
    /// Takes what came for the member of the group, and does what follows from it.
    pub(super) fn attend(&mut self) {
        let mut inputs = self.work.take_group();
        if self.member.is_none() && !self.found_group(&mut inputs) {
            return;
        }
        if let Some(member) = &mut self.member {
            member.take(inputs);
            if member.take_noticed() {
                // Without the pause between two looks.
                self.arranged_at = None;
            }
        }
        self.follow();
        self.leave_to_later_generation();
    }

    /// Ends a member whose group was begun anew without it.
    fn leave_to_later_generation(&self) {
        let Some(member) = &self.member else { return };
        if let Some(later) = member.later_generation() {
            let (own, later) = (member.generation().number(), later.number());
            self.state.group.set_lease(0);
            self.state.fail(NamenodeFailure::OlderGeneration { own, later });
        }
    }

    /// Does everything that the replica has put out.
    fn follow(&mut self) {
        loop {
            let Some(member) = &mut self.member else { return };
            self.state.group.set_seen();
            // Reads are answered on other threads. A request to lead, or a vote, must not leave
            // before they see that the lease it ends was given up.
            self.state.group.set_lease(member.lease_until().0);
            self.state.group.set_fresh(member.replica.fresh_until());
            let step = match member.next_step() {
                Ok(Some(step)) => step,
                Ok(None) => break,
                Err(error) => return self.end_member(error),
            };
            match step {
                Step::Apply(entries) => {
                    if let Err(error) = self.apply_agreed(entries) {
                        return self.end_unapplied(error);
                    }
                }
                Step::Restore(catalog) => {
                    if let Err(error) = self.adopt(*catalog) {
                        return self.end_member(error);
                    }
                }
                Step::Send(envelope) => {
                    let image = self.state.namenode.read().catalog().image();
                    if let Some(member) = &self.member {
                        member.send_snapshot(&envelope, image);
                    }
                }
                Step::Changed => self.show_group(),
                Step::Removed if member.has_notice() => {
                    info!("this namenode has left its group: its machine may be taken");
                    self.state.fail(NamenodeFailure::Left);
                }
                Step::Removed => {
                    warn!("this namenode was removed from its group: it serves no more");
                    self.state.fail(NamenodeFailure::Removed);
                }
            }
        }
        self.show_lease();
    }

    /// Ends this member: a file of it has failed. That is final, whatever the file does next.
    pub(super) fn end_member(&mut self, error: LogError) {
        let Some(member) = &mut self.member else { return };
        member.fail();
        let may_have_forgotten = member.may_have_forgotten();
        self.fail_group(error, may_have_forgotten);
        self.show_lease();
    }

    /// Ends this leader, whose journal did not take a round that the quorum has. Its catalog lacks
    /// that round, so the next one that it proposed would begin at the same number. Another leader
    /// has the round: whether its changes count is not known here.
    pub(super) fn end_agreed(&mut self, batch: &mut CommitBatch, error: AppendError) {
        let cause = RoundError::from(error);
        self.end_unapplied(cause.clone());
        self.state.namenode.write().refused();
        let why = Unwritten::Unknown(UnwrittenCause::Unapplied(cause));
        self.group_commit.refuse(batch, self.state.now(), &why);
    }

    /// Ends this member: its catalog cannot follow the group.
    pub(super) fn end_unapplied(&mut self, cause: RoundError) {
        if let Some(member) = self.member.as_mut().filter(|it| !it.has_failed()) {
            error!(why = %cause, "the journal cannot follow the group: this member ends");
            member.fail();
        }
        self.show_lease();
        self.state.fail(NamenodeFailure::Unapplied { cause });
    }

    pub(super) fn fail_group(&self, error: LogError, may_have_forgotten: bool) {
        error!(%error, "the log of the group has failed: this member ends");
        let cause = std::sync::Arc::new(error);
        self.state.fail(NamenodeFailure::GroupLog { cause, may_have_forgotten });
    }

    /// Shows what the member is and until when it may answer reads.
    fn show_lease(&self) {
        let Some(member) = &self.member else { return };
        let serving = match (member.is_serving(), member.is_leader()) {
            (true, _) => ServingState::Leader,
            (false, true) => ServingState::Elected,
            (false, false) => ServingState::Follower,
        };
        self.state.group.set_lease(member.lease_until().0);
        self.state.group.set_fresh(member.replica.fresh_until());
        if self.state.group.is_to_show(serving) {
            self.show_group();
            self.state.group.set_serving_state(serving);
        }
    }

    /// Shows the group to the other parts of the server.
    pub(super) fn show_group(&self) {
        let Some(member) = &self.member else { return };
        let replica = &member.replica;
        let (group, term, leader) = (replica.group(), replica.term(), replica.leader());
        let progress = replica.progress();
        let (last, committed) = replica.ends();
        let row = |(id, it): (MemberId, &sanderling_core::replica::GroupMember)| {
            let seen = progress.iter().find(|seen| seen.id == id);
            MemberRow {
                member: id,
                address: it.at.address.clone(),
                http: it.at.http_address.clone(),
                is_voter: it.role == GroupRole::Voter,
                is_leader: leader == Some(id),
                behind: seen.map(|seen| last.saturating_sub(seen.matched)),
                is_active: seen.map(|seen| seen.is_active),
                notice: member.notice_of(id),
                life: member.life_of(id),
            }
        };
        let rows: Vec<MemberRow> = group.members().map(row).collect();
        let status = GroupStatus {
            member: member.id(),
            term,
            committed,
            applied: member.applied_index(),
            dropped: member.dropped(),
            at_risk: member.risk(self.group_options.voters, self.group_plan.as_ref()),
            spares_missing: self.group_plan.as_ref().map(|plan| plan.spares_missing),
            rows,
        };
        self.state.namenode.write().set_members(group.list(member.id(), term, leader));
        self.state.group.set_status(status);
        if member.is_serving() {
            self.state.group.set_term(term);
        }
    }

    /// Applies entries that are agreed, but those of the round under way: its batch does that.
    fn apply_agreed(&mut self, entries: Vec<LogEntry>) -> Result<(), RoundError> {
        for LogEntry { place, payload } in entries {
            let Some(member) = &mut self.member else { return Ok(()) };
            let pieces = member.applies(place, &payload);
            self.apply_pieces(pieces)?;
        }
        if let Some(member) = &mut self.member {
            member.has_applied();
        }
        Ok(())
    }

    fn apply_pieces(&mut self, pieces: Vec<Bytes>) -> Result<(), RoundError> {
        pieces.iter().try_for_each(|piece| self.apply_round(&round::decode(piece)?))
    }

    /// Applies a round of another leader: its answers and orders are that leader's.
    fn apply_round(&mut self, round: &Round) -> Result<(), RoundError> {
        let index = self.state.namenode.read().catalog().index();
        let commands = round.after(index, self.restored)?;
        if commands.is_empty() {
            return Ok(());
        }
        self.store_agreed(commands.iter().collect())?;
        let mut namenode = self.state.namenode.write();
        for (place, command) in commands.iter().enumerate() {
            if place % Self::APPLIED_MAX == Self::APPLIED_MAX - 1 {
                RwLockWriteGuard::bump(&mut namenode);
            }
            namenode.apply(command);
        }
        self.state.show_revocations(namenode.catalog());
        let sent = *self.state.event_last.borrow();
        let events = namenode.events_after(sent, EVENTS_KEPT_MAX);
        drop(namenode);
        if let Some(last) = events.last() {
            self.state.event_last.send_replace(last.sequence);
        }
        Ok(())
    }

    /// Writes commands that are agreed to the journal: there is no way back.
    ///
    /// # Errors
    /// [`JournalFailure`]: the catalog of this member cannot follow the group any more.
    pub(super) fn store_agreed(&mut self, commands: Vec<&Command>) -> Result<(), JournalFailure> {
        loop {
            match self.journal.append(commands.iter().copied()) {
                Ok(()) => return Ok(()),
                Err(AppendError::Behind { .. }) => std::thread::sleep(BEHIND_PAUSE),
                Err(AppendError::Refused(refusal)) => return Err(JournalFailure::Refused(refusal)),
                Err(AppendError::Failed(failure)) => return Err(failure),
            }
        }
    }

    /// Replaces the catalog by a snapshot of the leader, whose file is in the directory.
    fn adopt(&mut self, catalog: Catalog) -> Result<(), LogError> {
        let index = catalog.index();
        let path = self.snapshots.directory().file(FileKind::Snapshot, index);
        let fail = |cause: std::io::Error| LogError::Io { path: path.clone(), cause };
        let failed = |error: AppendError| fail(std::io::Error::other(error));
        self.journal.restart(index).map_err(failed)?;
        self.snapshots.adopted(index, &mut self.journal).map_err(fail)?;
        let mut namenode = self.state.namenode.write();
        let config = namenode.config().clone();
        *namenode = Namenode::restore(config, catalog, self.state.now());
        self.state.show_revocations(namenode.catalog());
        let last = namenode.catalog().event_last();
        drop(namenode);
        self.restored = index;
        self.state.event_last.send_replace(last);
        self.show_group();
        info!(commands = index, "the catalog is the leader's");
        Ok(())
    }

    /// Founds a group when another namenode joins. Returns whether there is one now.
    fn found_group(&mut self, inputs: &mut VecDeque<GroupInput>) -> bool {
        if !inputs.iter().any(|input| matches!(input, GroupInput::Join(..))) {
            for input in inputs.drain(..) {
                if let GroupInput::OwnNotice(deadline) = &input {
                    self.own_notice = *deadline;
                    self.show_alone();
                }
                if let GroupInput::Order(_, reply) = input {
                    let why = "this namenode is alone: another one joins it with --join".to_owned();
                    let _ = reply.send(Err(Refusal::BadRequest { why }));
                }
            }
            return false;
        }
        let parts = self.member_parts();
        match GroupSeat::found(parts, self.group_options.at.clone()) {
            Ok(member) => {
                info!("this namenode has founded a group");
                self.state.group.set_generation(member.generation());
                self.member = Some(member);
                self.follow();
                true
            }
            Err(error @ LogError::Unsynced { .. }) => {
                self.fail_group(error, false);
                false
            }
            Err(error) => {
                warn!(%error, "a group cannot be founded");
                false
            }
        }
    }

    /// Shows the notice of a namenode that is alone: no other can take its place.
    fn show_alone(&self) {
        let at = &self.group_options.at;
        let row = MemberRow {
            member: MemberId(1),
            address: at.address.clone(),
            http: at.http_address.clone(),
            is_voter: true,
            is_leader: true,
            behind: None,
            is_active: None,
            notice: self.own_notice,
            life: self.group_options.machine.life(),
        };
        let status = GroupStatus { member: row.member, rows: vec![row], ..GroupStatus::default() };
        self.state.group.set_status(match self.own_notice {
            Some(_) => GroupStatus {
                at_risk: Some(GroupRisk::Alone),
                spares_missing: Some(self.group_options.spares.max(1)),
                ..status
            },
            None => GroupStatus::default(),
        });
    }

    /// Begins as a member of a group that there is.
    ///
    /// # Errors
    /// [`LogError`]: the member's files cannot be used, and the namenode does not start.
    pub(crate) fn begin_as_member(&mut self, start: MemberStart) -> Result<(), LogError> {
        self.state.group.set_serving_state(ServingState::Follower);
        let mut parts = self.member_parts();
        let member = match start {
            MemberStart::Alone(_) => return Ok(()),
            MemberStart::Joined(id, generation) => {
                parts.generation = generation;
                GroupSeat::joined(parts, id)
            }
            MemberStart::Member(hard) => {
                let start = hard.record.start;
                let commands = self.state.namenode.read().catalog().index();
                let member = GroupSeat::reopen(parts, *hard, commands);
                self.apply_kept(start)?;
                member
            }
        };
        let member = member?;
        self.state.group.set_generation(member.generation());
        self.member = Some(member);
        // Before the first answer: else this member would report that it is alone.
        self.show_group();
        self.attend();
        Ok(())
    }

    /// Applies what is agreed up to the place from which the member goes on, and is not in its
    /// journal.
    fn apply_kept(&mut self, start: LogPlace) -> Result<(), LogError> {
        let directory = std::sync::Arc::clone(self.snapshots.directory());
        let path = directory.path().to_owned();
        let index = self.state.namenode.read().catalog().index();
        let is_known = |entry: &LogEntry| round::is_known(entry, index);
        let kept = GroupLog::kept_before(&directory, self.state.cluster, start, is_known);
        for entry in kept.map_err(|cause| LogError::Io { path: path.clone(), cause })? {
            let Payload::Round { commands, .. } = entry.payload else { continue };
            let applied = round::decode(&commands).and_then(|round| self.apply_round(&round));
            let damaged =
                |error: RoundError| LogError::Damaged { path: path.clone(), damage: error.into() };
            applied.map_err(damaged)?;
        }
        Ok(())
    }

    fn member_parts(&self) -> MemberParts {
        let times = (self.state.namenode.read().catalog().now(), self.state.now());
        MemberParts {
            directory: std::sync::Arc::clone(self.snapshots.directory()),
            cluster: self.state.cluster,
            sync: self.group_options.sync,
            links: self
                .group_options
                .links(self.state.cluster, self.state.group.known_generation().clone()),
            work: std::sync::Arc::clone(&self.work),
            times,
            planner: PlannerOptions::new(self.group_options.voters, self.group_options.spares),
            own_notice: self.own_notice,
            generation: self.state.group.generation(),
            machine: self.group_options.machine.clone(),
        }
    }

    /// Begins to serve as the leader, once everything that was agreed is applied.
    pub(super) fn take_over(&mut self) {
        let Some(member) = self.member.as_mut().filter(|it| it.is_to_take_over()) else { return };
        member.begin_term();
        let (term, booted) = (member.replica.term(), crate::group::boot_time());
        self.state.clock.follow(member.replica.time(booted));
        let last = self.state.namenode.read().catalog().now();
        let absence = member.replica.absence(booted, last);
        let now = self.state.now();
        self.group_commit = GroupCommit::new(now);
        let start = Term(rand::random());
        let commands = self.state.namenode.write().take_over(now, start, absence);
        let batch = self.group_commit.begin(commands);
        self.work_off(batch);
        if self.member.as_mut().is_some_and(|it| it.serve(term)) {
            self.show_group();
            self.show_lease();
            let absent_millis = absence.0;
            info!(term, absent_millis, "this namenode leads the group");
            self.write_leadership();
        }
    }

    /// Proposes a round and waits until the quorum has it. Messages and time go on meanwhile.
    pub(super) fn agree(&mut self, batch: &CommitBatch) -> Result<(), Unwritten<UnwrittenCause>> {
        let first = self.state.namenode.read().catalog().index();
        let Some(at) = batch.commands().last().map(|command| command.at) else { return Ok(()) };
        let Some(member) = &mut self.member else { return Ok(()) };
        member.begin_round(at, round::encode(first, batch.commands()));
        loop {
            let Some(member) = &mut self.member else { return Ok(()) };
            member.propose();
            self.follow();
            let is_ending = self.work.is_stopped() || self.state.failure.borrow().is_some();
            let Some(member) = &mut self.member else { return Ok(()) };
            match member.look_at_round(is_ending) {
                RoundProgress::UnderWay => self.attend_for_a_while(),
                RoundProgress::Agreed => return Ok(()),
                RoundProgress::Ended { agreed, loss } => return Err(self.lost(agreed, loss)),
            }
        }
    }

    /// Applies what was agreed of a round that did not become this member's. Returns why its
    /// callers are refused.
    fn lost(&mut self, agreed: Vec<Bytes>, loss: RoundLoss) -> Unwritten<UnwrittenCause> {
        if let Err(error) = self.apply_pieces(agreed) {
            self.end_unapplied(error.clone());
            return Unwritten::Unknown(UnwrittenCause::Unapplied(error));
        }
        match loss {
            RoundLoss::Undecided => Unwritten::Unknown(UnwrittenCause::FormerLeader),
            RoundLoss::TooLong { bytes } => {
                Unwritten::Refused(UnwrittenCause::RoundTooLong { bytes })
            }
            RoundLoss::NotLeader => {
                let status = self.state.group.status();
                let is_other_leader = |it: &&MemberRow| it.is_leader && it.member != status.member;
                let leader = status.rows.iter().find(is_other_leader);
                Unwritten::NotLeader { leader: leader.map(|it| it.address.clone()) }
            }
        }
    }

    fn attend_for_a_while(&mut self) {
        if let Some(member) = &self.member {
            self.work.wait_group(member.sleep());
        }
        self.attend();
    }

    /// Does the next step about the group's machines: of a leader whose machine will be taken, of
    /// voters that spares replace, and of voters that are missing.
    pub(super) fn arrange(&mut self) {
        let Some(member) = self.member.as_mut().filter(|it| it.is_serving()) else {
            self.group_plan = None;
            return;
        };
        let Some(plan) = member.plan() else { return };
        let (now, step) = (crate::group::boot_time(), plan.step.clone());
        let is_closing = plan.is_closing;
        self.group_plan = Some(plan);
        if is_closing {
            self.close_archive();
            return;
        }
        match step {
            Some(GroupStep::Transfer(to)) => {
                if member.replica.transfer(now, to).is_ok() {
                    info!(to = to.0, "this machine will be taken: another member leads");
                }
            }
            Some(GroupStep::Change(change)) => match member.replica.change_group(now, &change) {
                Ok(()) => {
                    let numbers = |ids: &BTreeSet<MemberId>| ids.iter().map(|id| id.0).collect();
                    let (voters, leaves): (Vec<u64>, Vec<u64>) =
                        (numbers(&change.promote), numbers(&change.remove));
                    info!(?voters, ?leaves, "the group changes its members");
                }
                Err(ProposeError::Change(GroupChangeError::UnderWay)) => {}
                Err(error) => warn!(%error, "the members of the group cannot be changed"),
            },
            None => return,
        }
        self.follow();
    }
}

impl CatalogWriter {
    /// Stops the only namenode whose machine will be taken in a moment.
    pub(super) fn close_alone(&self) {
        let (options, now) = (PlannerOptions::new(1, 0), crate::group::boot_time());
        if self.member.is_none() && options.is_closing(now, self.own_notice) {
            self.close_archive();
        }
    }

    /// Stops the last voter, so that its archive gets everything. Without one, each moment that it
    /// serves is worth more.
    fn close_archive(&self) {
        if self.group_options.has_archive && self.state.failure.borrow().is_none() {
            warn!(
                "no other namenode can take the place of this one: it stops and closes its archive"
            );
            self.state.fail(NamenodeFailure::Last);
        }
    }
}
