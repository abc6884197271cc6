//! What the leader does about notices, and the machines that come and go.

use std::collections::BTreeSet;

use sanderling_core::replica::{
    BootRecord, FoundAtStart, Group, GroupEvents, GroupRisk, GroupRole, GroupStep, MemberAddress,
    OwnNoticeReport, ReadPermission, StartAs, SyncMode, start_as,
};
use sanderling_protocol::{EventKind, MemberId, Millis, Nonce};

use super::disk::AppliedState;
use super::preempted::TracedFleet;
use super::scenario::{FAULTS_END, LIVES_SETTLE, Victim};
use super::world::{GroupEvent, GroupWorld, address};
use crate::InjectedBug;

/// How often the leader looks at the notices. Every second or third tick of the machine (20 ms), so
/// that steps follow each other within a fault.
pub(super) const PLAN_MICROS: u64 = 50_000;

/// How often a process that joins tries again. Half of the product's pause, so that a run of 9 s
/// has many attempts.
const JOIN_MICROS: u64 = 100_000;

/// How long a risk must last for an event: outages are shorter here than in the product. Below the
/// 0.4 to 0.8 s without a leader of an election, so that each is an event.
const RISK_LASTS: Millis = Millis(300);

impl GroupWorld {
    /// Does the leader's next step.
    pub(super) fn plan(&mut self) {
        let now = self.now;
        self.at(now + PLAN_MICROS, GroupEvent::Plan);
        let Some(at) = self.leader() else { return };
        let has_machine = self.traced.as_ref().is_none_or(TracedFleet::has_machine);
        let may_start = self.hosts.len() < self.scenario.hosts_max && has_machine;
        // A move of the leadership that began now might not be over at the end.
        let is_ending = self.scenario.has_lives && now + LIVES_SETTLE / 2 > self.scenario.run_end;
        let host = &mut self.hosts[at];
        let local = host.local(now);
        let Some(replica) = &mut host.replica else { return };
        let Some(next) = host.planner.plan(local, replica) else { return };
        if let Some(GroupStep::Transfer(to)) = next.step {
            self.check_life(at, to);
        }
        let Some(replica) = &mut self.hosts[at].replica else { return };
        let group = replica.group();
        let joining = group.next().0;
        match next.step {
            Some(GroupStep::Transfer(_)) if is_ending => {}
            Some(GroupStep::Transfer(to)) => {
                let _ = replica.transfer(local, to);
            }
            Some(GroupStep::Change(change)) => {
                self.proposed |= replica.change_group(local, &change).is_ok();
            }
            None if next.spares_missing > 0 && may_start => {
                if let Some(change) = group.add(address(joining)) {
                    self.proposed |= replica.change_group(local, &change).is_ok();
                }
            }
            None => {}
        }
        self.drain(at);
        self.write_events(at);
    }

    /// Returns the host that leads in the last term, unless it is stopped.
    fn leader(&self) -> Option<usize> {
        let is_leading = |at: &usize| self.hosts[*at].is_serving();
        let term = |at: &usize| self.hosts[*at].replica.as_ref().map_or(0, |it| it.term());
        let at = (0..self.hosts.len()).filter(is_leading).max_by_key(term)?;
        (self.hosts[at].paused_until <= self.now).then_some(at)
    }

    /// What a process does at each tick beside the replica: it reports its machine's notice, and
    /// which members have left.
    pub(super) fn report(&mut self, at: usize) {
        let now = self.now;
        let host = &mut self.hosts[at];
        let (id, local) = (host.id, host.local(now));
        let Some(replica) = &mut host.replica else { return };
        let due = host.own_notice.due(local, replica.leader());
        if self.bug != Some(InjectedBug::RemovalUnreported) {
            host.former.report(local, replica);
            host.former.request(local, id, replica);
        }
        let Some(OwnNoticeReport { to, left }) = due else { return };
        if to == id {
            host.planner.take_report(local, replica, id, left);
            return;
        }
        let delay = self.notices.between(100, self.scenario.delay_micros_max);
        let is_lost = self.notices.permille(self.scenario.loss_permille) && now < FAULTS_END;
        if let Some(host) = self.hosts.iter().position(|host| host.id == to)
            && !is_lost
            && !self.is_cut(id, to)
        {
            self.at(now + delay, GroupEvent::Noticed { host, from: id, left });
        }
    }

    /// Writes the events about the group that the leader's log gets. One that does not lead any
    /// more writes none that counts.
    fn write_events(&mut self, at: usize) {
        let wanted = self.scenario.voters as usize;
        let host = &mut self.hosts[at];
        let local = host.local(self.now);
        let Some(replica) = host.replica.as_ref().filter(|it| it.is_serving()) else { return };
        if replica.may_read(local) != ReadPermission::Yes {
            return;
        }
        let term = replica.term();
        if host.group_events.0 != term {
            let kept = match self.bug {
                Some(InjectedBug::RiskForgotten) => &[],
                _ => &self.events_logged[..],
            };
            host.group_events = (term, GroupEvents::continued(kept.iter()));
        }
        let has_notice = |id| host.planner.deadline(id).is_some();
        let risk = GroupRisk::of(&replica.progress(), has_notice, wanted, None);
        let voters = replica.group().voters().collect();
        let events = host.group_events.1.look(local, voters, risk.as_ref(), RISK_LASTS);
        self.events_logged.extend(events);
    }

    /// Checks that operators see no risk in the end if every voter that is wanted runs and stays.
    fn check_risk(&mut self, group: &Group) {
        let is_whole = |id: MemberId| {
            let host = self.hosts.iter().find(|host| host.id == id);
            host.is_some_and(|host| host.replica.is_some() && host.deadline.is_none())
        };
        let voters = group.voters().count() as u64;
        let is_shown = self.events_logged.iter().rev().find_map(|event| match event {
            EventKind::GroupAtRisk { .. } => Some(true),
            EventKind::GroupRestored { .. } => Some(false),
            _ => None,
        });
        let is_calm = voters >= self.scenario.voters && group.voters().all(is_whole);
        if is_calm && is_shown == Some(true) {
            let message = format!("{voters} voters stay, and the last event is that of a risk");
            self.checks.violate("group-risk", message);
        }
    }

    /// Starts the machines of members that were added.
    pub(super) fn changed(&mut self, group: &Group) {
        let there: BTreeSet<MemberId> = self.hosts.iter().map(|host| host.id).collect();
        let new: Vec<(MemberId, String)> = group
            .members()
            .filter(|(id, _)| !there.contains(id))
            .map(|(id, member)| (id, member.at.address.clone()))
            .collect();
        for (id, address) in new {
            if let Some(fleet) = &mut self.traced {
                fleet.place(id);
            }
            self.add_host(id, address, AppliedState::default());
        }
    }

    pub(super) fn transfer(&mut self, to: u64) {
        let Some(at) = self.hosts.iter().position(|host| host.is_serving()) else { return };
        let host = &mut self.hosts[at];
        let local = host.local(self.now);
        let Some(replica) = &mut host.replica else { return };
        let voters: Vec<MemberId> = replica.group().voters().collect();
        let to = voters[(to % voters.len() as u64) as usize];
        let _ = replica.transfer(local, to);
        self.drain(at);
    }

    pub(super) fn notice(&mut self, at: usize, deadline: u64) {
        self.counts.notices += 1;
        let (now, host) = (self.now, &mut self.hosts[at]);
        host.deadline = Some(deadline);
        let (local, deadline_there) = (host.local(now), host.local_deadline(now));
        host.own_notice.set(local, deadline_there);
        self.at(deadline, GroupEvent::Deadline { host: at });
    }

    /// A machine is taken, unless the group would be lost with it: that is for the archive.
    pub(super) fn end_machine(&mut self, at: usize) {
        let id = self.hosts[at].id;
        let local = self.hosts[at].local(self.now);
        self.hosts[at].deadline = None;
        self.hosts[at].own_notice.set(local, None);
        if self.traced.is_some() || self.may_lose(id) {
            self.hosts[at].kill();
            self.hosts[at].is_gone = true;
            self.counts.kills += 1;
        }
    }

    /// Returns whether the members that remain without one decide.
    fn may_lose(&self, lost: MemberId) -> bool {
        let is_there = |id: MemberId| {
            id != lost && self.hosts.iter().any(|host| host.id == id && !host.is_gone)
        };
        // A change that was proposed may have been agreed, or be agreed later; it counts, too.
        let groups = self.hosts.iter().filter_map(|host| host.replica.as_ref());
        let is_changing = groups.clone().any(|replica| replica.group().is_changing());
        let decides = |group: &Group| group.is_quorum(is_there);
        let newest = &self.checks.newest_group.1;
        let is_voter = self.hosts.iter().any(|host| {
            let role = host.state.group.member(lost).map(|member| member.role);
            host.id != lost && !host.is_gone && role != Some(GroupRole::Spare) && role.is_some()
        });
        !is_changing
            && !self.proposed
            && decides(newest)
            && (!is_voter || groups.map(|it| it.group()).all(decides))
    }

    /// The machine crashes, and is booted again.
    pub(super) fn crash(&mut self, victim: Victim, down: u64, kept: u64) {
        let Some(at) = self.victim(victim) else { return };
        self.counts.kills += 1;
        let sync = if self.scenario.is_synced { SyncMode::Always } else { SyncMode::Os };
        let last = BootRecord { boot: "before".to_owned(), sync, is_closed: false };
        let is_only_member = self.checks.newest_group.1.members().count() == 1;
        let found = FoundAtStart { boot: "after", has_sync_failed: false, is_only_member };
        match start_as(&last, &found) {
            StartAs::Itself => {
                self.hosts[at].kill();
                self.hosts[at].disk.crash(kept);
                self.at(self.now + down, GroupEvent::Launch { host: at });
            }
            StartAs::NewMember if self.may_lose(self.hosts[at].id) => {
                self.hosts[at].kill();
                self.hosts[at].is_gone = true;
                self.come_back(self.hosts[at].id, down);
            }
            StartAs::NewMember => {}
        }
    }

    /// Lets the machine of a member start with an empty directory after a while.
    fn come_back(&mut self, id: MemberId, down: u64) {
        let Some(member) = self.checks.newest_group.1.member(id) else { return };
        let nonce = Nonce(self.now << 8 | id.0);
        let at = MemberAddress { nonce, ..member.at.clone() };
        self.at((self.now + down).min(FAULTS_END), GroupEvent::Join { at });
    }

    /// Lets a process join at the leader, and try again until it is a member.
    pub(super) fn join(&mut self, joining: MemberAddress) {
        let now = self.now;
        if self.checks.newest_group.1.joined(joining.nonce).is_some() {
            return;
        }
        self.at(now + JOIN_MICROS, GroupEvent::Join { at: joining.clone() });
        let Some(at) = self.leader() else { return };
        let host = &mut self.hosts[at];
        let local = host.local(now);
        let Some(replica) = &mut host.replica else { return };
        let Some(mut change) = replica.group().add(joining) else { return };
        if self.bug == Some(InjectedBug::AddressTwice) {
            change.remove.clear();
        }
        self.proposed |= replica.change_group(local, &change).is_ok();
        self.drain(at);
    }

    /// Checks that the group goes on when everything works again.
    pub(super) fn check_end(&mut self) {
        let group = self.checks.newest_group.1.clone();
        let serving = self.hosts.iter().filter(|host| host.is_serving()).count();
        if serving != 1 {
            let seconds = (self.scenario.run_end - FAULTS_END) / 1_000_000;
            let faults = (seconds, serving);
            let message = format!("{} members lead {} s after the last fault", faults.1, faults.0);
            let running = self.hosts.iter().filter_map(|host| {
                let replica = host.replica.as_ref()?;
                let voters: Vec<u64> = replica.group().voters().map(|id| id.0).collect();
                let outgoing: Vec<u64> = replica.group().outgoing().map(|id| id.0).collect();
                let place = (replica.term(), host.state.place.index);
                Some((host.id.0, replica.role(), place, voters, outgoing))
            });
            let running: Vec<_> = running.collect();
            return self.checks.violate("group-converges", format!("{message}: {running:?}"));
        }
        let removed = self.hosts.iter().find(|host| {
            host.replica.is_some() && group.member(host.id).is_none() && host.id < group.next()
        });
        if let Some(host) = removed {
            let message = format!("member {} was removed and still runs", host.id);
            return self.checks.violate("group-converges", message);
        }
        self.check_risk(&group);
        let newest = self.checks.newest();
        let behind = self.hosts.iter().find(|host| {
            let is_member = group.member(host.id).is_some();
            is_member && !host.is_gone && host.state.place.index + 100 < newest
        });
        if let Some(host) = behind {
            let message = format!("member {} is at {}", host.id, host.state.place.index);
            self.checks.violate("group-converges", format!("{message} of {newest}"));
        }
    }
}
