//! How long the members' machines are expected to go on: the reports of that, and the leadership
//! that follows from them.

use sanderling_core::replica::{GroupRole, MachineLife, MemberProgress, ReplicaRole};
use sanderling_protocol::{MemberId, Millis};

use super::host::BEHIND_MAX;
use super::scenario::FAULTS_END;
use super::world::{GroupEvent, GroupWorld};
use crate::InjectedBug;

/// Longest expected life in minutes: a machine is outlived by one that lives twice as long and ten
/// minutes, so most machines of a group are.
const MINUTES_MAX: u64 = 1000;

impl GroupWorld {
    /// Draws how long a new machine is expected to go on.
    pub(super) fn draw_life(&mut self) -> MachineLife {
        if !self.scenario.has_lives {
            return MachineLife::Unknown;
        }
        let minutes = self.lives.between(1, MINUTES_MAX);
        match self.lives.below(5) {
            0 => MachineLife::Unknown,
            1 => MachineLife::Steady,
            _ => MachineLife::Expected(Millis(minutes * 60_000)),
        }
    }

    /// Reports to the leader how long a member's machine goes on, when that is due.
    pub(super) fn report_life(&mut self, at: usize) {
        if !self.scenario.has_lives {
            return;
        }
        let now = self.now;
        let host = &mut self.hosts[at];
        let (id, life, local) = (host.id, host.life, host.local(now));
        let Some(replica) = &host.replica else { return };
        let Some(to) = host.own_life.due(local, replica.leader()) else { return };
        if to == id {
            return self.take_life(at, id, life);
        }
        let delay = self.lives.between(100, self.scenario.delay_micros_max);
        let is_lost = self.lives.permille(self.scenario.loss_permille) && now < FAULTS_END;
        if let Some(host) = self.hosts.iter().position(|host| host.id == to)
            && !is_lost
            && !self.is_cut(id, to)
        {
            self.at(now + delay, GroupEvent::Life { host, from: id, life });
        }
    }

    /// Gives a report to the process that it has reached.
    pub(super) fn take_life(&mut self, at: usize, from: MemberId, life: MachineLife) {
        let is_ignored = self.bug == Some(InjectedBug::LifeIgnored);
        let host = &mut self.hosts[at];
        let Some(replica) = &host.replica else { return };
        if replica.role() == ReplicaRole::Leader && replica.group().member(from).is_some() {
            host.lives_received.insert(from);
        }
        if !is_ignored {
            host.planner.take_life(replica, from, life);
        }
    }

    /// Checks the member to which a leader gives the leadership: of the voters that could lead as
    /// well, none lives longer by the reports that the leader has received. Without a notice it is
    /// given only to a machine that lives longer than the leader's.
    pub(super) fn check_life(&mut self, at: usize, to: MemberId) {
        self.checks.checks += 1;
        let host = &self.hosts[at];
        let Some(replica) = &host.replica else { return };
        let life = |id: MemberId| {
            let host = self.hosts.iter().find(|host| host.id == id);
            host.map_or(MachineLife::Unknown, |host| host.life)
        };
        let is_received = |id: MemberId| host.lives_received.contains(&id);
        let (_, agreed) = replica.ends();
        let can_lead = |it: &MemberProgress| {
            let is_caught_up = it.is_active && it.matched > 0 && it.matched + BEHIND_MAX >= agreed;
            let stays = host.planner.deadline(it.id).is_none();
            it.role == GroupRole::Voter && it.id != host.id && is_caught_up && stays
        };
        let mut voters = replica.progress().into_iter().filter(can_lead).map(|it| it.id);
        let better = voters.find(|id| is_received(*id) && life(*id) > life(to));
        let is_noticed = host.planner.deadline(host.id).is_some();
        let is_in_vain = !is_noticed && is_received(host.id) && life(to) <= life(host.id);
        let (from, lives) = (host.id, (life(host.id), life(to)));
        let message = format!("{from} gives the leadership to {to} ({lives:?})");
        if let Some(better) = better {
            let message = format!("{message}, and {better} has {:?}", life(better));
            self.checks.violate("group-life", message);
        } else if is_in_vain {
            self.checks.violate("group-life", format!("{message} without a notice"));
        }
    }
}
