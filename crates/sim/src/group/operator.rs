//! What the leader does about notices, and the machines that come and go.

use std::collections::BTreeSet;

use sanderling_core::replica::{Group, GroupRole, GroupStep};
use sanderling_protocol::{MemberId, Millis};

use super::disk::AppliedState;
use super::scenario::{FAULTS_END, Victim};
use super::world::{GroupEvent, GroupWorld, address};

/// How often the leader looks at the notices.
pub(super) const PLAN_MICROS: u64 = 50_000;

/// Most machines of one run.
const HOSTS_MAX: usize = 14;

impl GroupWorld {
    /// Does the leader's next step.
    pub(super) fn plan(&mut self) {
        let now = self.now;
        self.at(now + PLAN_MICROS, GroupEvent::Plan);
        let is_leading = |at: &usize| self.hosts[*at].is_serving();
        let term = |at: &usize| self.hosts[*at].replica.as_ref().map_or(0, |it| it.term());
        let Some(at) = (0..self.hosts.len()).filter(is_leading).max_by_key(term) else { return };
        if self.hosts[at].paused_until > now {
            return;
        }
        self.repeat_notices(at);
        let may_start = self.hosts.len() < HOSTS_MAX;
        let host = &mut self.hosts[at];
        let local = host.local(now);
        let Some(replica) = &mut host.replica else { return };
        let Some(next) = host.planner.plan(local, replica) else { return };
        let group = replica.group();
        let joining = group.next().0;
        match next.step {
            Some(GroupStep::Transfer(to)) => {
                let _ = replica.transfer(local, to);
            }
            Some(GroupStep::Change(change)) => {
                let _ = replica.change_group(local, &change);
            }
            None if next.spares_missing > 0 && may_start => {
                if let Some(change) = group.add(address(joining)) {
                    let _ = replica.change_group(local, &change);
                }
            }
            None => {}
        }
        self.drain(at);
    }

    /// Members that run repeat their notices to the leader.
    fn repeat_notices(&mut self, at: usize) {
        let now = self.now;
        let noticed =
            self.hosts.iter().filter(|host| host.replica.is_some() && host.paused_until <= now);
        let noticed: Vec<(MemberId, Option<u64>)> =
            noticed.map(|host| (host.id, host.deadline)).collect();
        let leader = &mut self.hosts[at];
        let local = leader.local(now);
        for (id, deadline) in noticed {
            let left = |at: u64| local + Millis(at.saturating_sub(now) / 1000);
            leader.planner.notice(local, id, deadline.map(left));
        }
    }

    /// Starts the machines of members that were added.
    pub(super) fn changed(&mut self, group: &Group) {
        let there: BTreeSet<MemberId> = self.hosts.iter().map(|host| host.id).collect();
        let new: Vec<MemberId> =
            group.members().map(|(id, _)| id).filter(|id| !there.contains(id)).collect();
        for id in new {
            self.add_host(id, AppliedState::default());
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
        self.hosts[at].deadline = Some(deadline);
        self.at(deadline, GroupEvent::Deadline { host: at });
    }

    /// A machine is taken, unless the group would be lost with it: that is for the archive.
    pub(super) fn end_machine(&mut self, at: usize) {
        let id = self.hosts[at].id;
        self.hosts[at].deadline = None;
        if self.may_lose(id) {
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
        // A change that was proposed may have been agreed; it counts, too.
        let groups = self.hosts.iter().filter_map(|host| host.replica.as_ref());
        let is_changing = groups.clone().any(|replica| replica.group().is_changing());
        let decides = |group: &Group| group.is_quorum(is_there);
        let newest = &self.checks.newest_group.1;
        let is_voter = self.hosts.iter().any(|host| {
            let role = host.state.group.member(lost).map(|member| member.role);
            host.id != lost && !host.is_gone && role != Some(GroupRole::Spare) && role.is_some()
        });
        !is_changing && decides(newest) && (!is_voter || groups.map(|it| it.group()).all(decides))
    }

    /// The machine crashes. Without a sync it comes back as a new member.
    pub(super) fn crash(&mut self, victim: Victim, down: u64, kept: u64) {
        let Some(at) = self.victim(victim) else { return };
        self.counts.kills += 1;
        if self.scenario.is_synced {
            self.hosts[at].kill();
            self.hosts[at].disk.crash(kept);
            self.at(self.now + down, GroupEvent::Launch { host: at });
        } else if self.may_lose(self.hosts[at].id) {
            self.hosts[at].kill();
            self.hosts[at].is_gone = true;
        }
    }

    /// Checks that the group goes on when everything works again.
    pub(super) fn check_end(&mut self) {
        let group = self.checks.newest_group.1.clone();
        let serving = self.hosts.iter().filter(|host| host.is_serving()).count();
        if serving != 1 {
            let faults = (RUN_SECONDS, serving);
            let message = format!("{} members lead {} s after the last fault", faults.1, faults.0);
            return self.checks.violate("group-converges", message);
        }
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

const RUN_SECONDS: u64 = (super::scenario::RUN_END - FAULTS_END) / 1_000_000;
