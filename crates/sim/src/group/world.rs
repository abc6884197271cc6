//! The world of a group: members on machines, the network between them, clients and faults.

use std::collections::BTreeMap;

use sanderling_core::replica::{
    Body, Envelope, Group, MachineLife, MemberAddress, Persist, ReadPermission, Replica,
    ReplicaOutput, ReplicaRole,
};
use sanderling_protocol::{EventKind, MemberId, Millis, Nonce};

use super::caller::{Caller, CallerEvent};
use super::check::{GroupChecks, Seen, round_of};
use super::disk::{AppliedState, MemberDisk};
use super::host::Host;
use super::operator::PLAN_MICROS;
use super::preempted::TracedFleet;
use super::scenario::{FAULTS_END, GroupFault, GroupScenario, Victim};
use crate::InjectedBug;
use crate::log::Log;
use crate::random::Random;

/// What happens, at a machine or in the whole world.
#[derive(Debug, Clone)]
pub(super) enum GroupEvent {
    Tick {
        host: usize,
        start: u64,
    },
    Deliver {
        host: usize,
        envelope: Box<Envelope>,
        file: Option<AppliedState>,
    },
    Written {
        host: usize,
        start: u64,
    },
    Sent {
        host: usize,
        start: u64,
        to: MemberId,
        is_ok: bool,
    },
    /// A member's report of its machine's notice arrives.
    Noticed {
        host: usize,
        from: MemberId,
        left: Option<Millis>,
    },
    /// A member's report of how long its machine goes on arrives.
    Life {
        host: usize,
        from: MemberId,
        life: MachineLife,
    },
    /// Something of a caller's, with its number.
    Caller {
        caller: usize,
        event: CallerEvent,
    },
    Propose,
    Read,
    Plan,
    Launch {
        host: usize,
    },
    /// A machine that lost its directory joins as a new member.
    Join {
        at: MemberAddress,
    },
    Fault(GroupFault),
    Deadline {
        host: usize,
    },
    /// A trace takes the machine of a place.
    Preempt {
        slot: u32,
    },
    /// Its replacement is there.
    Replaced {
        slot: u32,
    },
    Heal,
}

#[derive(Debug, Default)]
pub(super) struct GroupCounts {
    pub(super) events: u64,
    pub(super) kills: u64,
    pub(super) notices: u64,
    pub(super) elections: u64,
    pub(super) rounds: u64,
    pub(super) lease_reads: u64,
    /// Calls of callers that were answered.
    pub(super) calls: u64,
    pub(super) checks: u64,
}

pub(super) struct GroupWorld {
    pub(super) scenario: GroupScenario,
    pub(super) bug: Option<InjectedBug>,
    pub(super) now: u64,
    events: BTreeMap<(u64, u64), GroupEvent>,
    sequence: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) random: Random,
    network: Random,
    /// Draws what is about reports of notices, and the lengths of rounds.
    pub(super) notices: Random,
    /// Draws what is about expected lives.
    pub(super) lives: Random,
    /// Messages from one to another that are lost until then.
    cuts: Vec<(MemberId, MemberId, u64)>,
    /// How long the next leader is cut off while the others start again.
    strike: Option<u64>,
    pub(super) checks: GroupChecks,
    pub(super) log: Log,
    /// The events about the group that its leaders have logged.
    pub(super) events_logged: Vec<EventKind>,
    pub(super) proposals: BTreeMap<u64, u64>,
    pub(super) counts: GroupCounts,
    /// The fleet whose trace takes the members' machines.
    pub(super) traced: Option<TracedFleet>,
    pub(super) callers: Vec<Caller>,
    /// Draws what is about callers.
    pub(super) calls: Random,
    /// Whether a change of the members was proposed since the last one was done.
    pub(super) proposed: bool,
    /// When a caller last saw that no member led.
    pub(super) unled_at: u64,
}

pub(super) fn address(id: u64) -> MemberAddress {
    let address = format!("host-{id}:1");
    MemberAddress { http_address: address.clone(), address, nonce: Nonce(id) }
}

impl GroupWorld {
    pub(super) fn new(seed: u64, bug: Option<InjectedBug>, keep_events: bool) -> Self {
        let mut world = Self::of(GroupScenario::new(seed), bug, keep_events);
        world.add_callers();
        world
    }

    pub(super) fn of(scenario: GroupScenario, bug: Option<InjectedBug>, keep_events: bool) -> Self {
        let seed = scenario.seed;
        let mut world = Self {
            bug,
            now: 0,
            events: BTreeMap::new(),
            sequence: 0,
            hosts: Vec::new(),
            random: Random::new(seed, 0x6702),
            network: Random::new(seed, 0x6703),
            notices: Random::new(seed, 0x6704),
            lives: Random::new(seed, 0x6706),
            events_logged: Vec::new(),
            cuts: Vec::new(),
            strike: None,
            checks: GroupChecks::default(),
            log: Log::new(keep_events),
            proposals: BTreeMap::new(),
            counts: GroupCounts::default(),
            traced: None,
            callers: Vec::new(),
            calls: Random::new(seed, 0x6705),
            proposed: false,
            unled_at: 0,
            scenario,
        };
        let group = Group::of_voters(1, (1..=world.scenario.voters).map(address).collect());
        world.checks.newest_group = (1, group.clone());
        let place = sanderling_core::replica::LogPlace { term: 1, index: 1 };
        let base = AppliedState { place, group: group.clone(), ..AppliedState::default() };
        for (id, member) in group.members() {
            world.add_host(id, member.at.address.clone(), base.clone());
        }
        for (at, fault) in world.scenario.faults.clone() {
            world.at(at, GroupEvent::Fault(fault));
        }
        world.at(400_000, GroupEvent::Propose);
        world.at(400_000, GroupEvent::Read);
        world.at(PLAN_MICROS, GroupEvent::Plan);
        world.at(FAULTS_END, GroupEvent::Heal);
        world
    }

    pub(super) fn add_host(&mut self, id: MemberId, address: String, base: AppliedState) {
        let ends = Random::new(self.scenario.seed ^ id.0, 0x6707);
        let ends = self.scenario.has_steps.then_some(ends);
        let disk = MemberDisk::new(base, self.scenario.is_synced, ends, self.bug);
        let life = self.draw_life();
        self.hosts.push(Host::new(id, address, disk, life, &mut self.random));
        let host = self.hosts.len() - 1;
        self.launch(host);
    }

    pub(super) fn at(&mut self, time: u64, event: GroupEvent) {
        self.sequence += 1;
        self.events.insert((time, self.sequence), event);
    }

    /// Lets everything happen until the end, or until a checker has found something.
    pub(super) fn play(&mut self) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > self.scenario.run_end || self.checks.violation.is_some() {
                break;
            }
            self.now = time;
            self.counts.events += 1;
            self.step(event);
            self.break_calls();
        }
    }

    pub(super) fn run(mut self) -> (Option<Seen>, Log, GroupCounts) {
        self.play();
        if self.checks.violation.is_none() {
            self.checks.end();
            self.check_end();
            self.check_callers();
        }
        if let Some((checker, message)) = &self.checks.violation {
            let (now, text) = (self.now, format!("VIOLATION of {checker}: {message}"));
            self.log.event(now, 99, 0, || text);
        }
        self.counts.checks = self.checks.checks;
        (self.checks.violation, self.log, self.counts)
    }

    fn step(&mut self, event: GroupEvent) {
        let host = match &event {
            GroupEvent::Tick { host, .. }
            | GroupEvent::Deliver { host, .. }
            | GroupEvent::Written { host, .. }
            | GroupEvent::Noticed { host, .. }
            | GroupEvent::Life { host, .. }
            | GroupEvent::Sent { host, .. } => Some(*host),
            _ => None,
        };
        if let Some(host) = host {
            let until = self.hosts[host].paused_until;
            if until > self.now {
                return self.at(until, event);
            }
            self.step_host(host, event);
            return self.drain(host);
        }
        match event {
            GroupEvent::Caller { caller, event } => self.step_caller(caller, event),
            GroupEvent::Propose => self.propose(),
            GroupEvent::Read => self.read(),
            GroupEvent::Plan => self.plan(),
            GroupEvent::Launch { host } => self.launch(host),
            GroupEvent::Join { at } => self.join(at),
            GroupEvent::Fault(fault) => self.fault(fault),
            GroupEvent::Deadline { host } => self.end_machine(host),
            GroupEvent::Preempt { slot } => self.preempt(slot),
            GroupEvent::Replaced { slot } => self.replaced(slot),
            GroupEvent::Heal => self.heal(),
            _ => {}
        }
    }

    fn step_host(&mut self, at: usize, event: GroupEvent) {
        let now = self.now;
        let host = &mut self.hosts[at];
        let local = host.local(now);
        let current = host.start;
        let Some(replica) = &mut host.replica else { return };
        match event {
            GroupEvent::Tick { start, .. } if start == current => {
                replica.handle_deadline(local);
                if let Some(deadline) = replica.deadline() {
                    let next = host.real(deadline, now).max(now + 1);
                    self.at(next, GroupEvent::Tick { host: at, start });
                }
                self.report(at);
                self.report_life(at);
            }
            GroupEvent::Deliver { envelope, file, .. } => {
                if let (Body::Snapshot { place, .. }, Some(file)) = (&envelope.body, file) {
                    host.received.insert(place.index, file);
                }
                let (code, from) = (envelope.round ^ envelope.term << 20, envelope.from.0);
                self.log.event(now, from, code, String::new);
                let _ = replica.receive(local, *envelope);
            }
            GroupEvent::Written { start, .. } if start == current => {
                // One write of the disk is of all that waits, as a server's is.
                let mut number = 0;
                for persist in std::mem::take(&mut host.writing) {
                    let place = persist.snapshot.as_ref().map(|(place, _)| place.index);
                    number = persist.number;
                    let received = place.and_then(|index| host.received.get(&index).cloned());
                    host.disk.write(persist, received);
                }
                if number > 0 {
                    replica.persisted(local, number);
                }
            }
            GroupEvent::Noticed { from, left, .. } => {
                host.planner.take_report(local, replica, from, left);
            }
            GroupEvent::Life { from, life, .. } => self.take_life(at, from, life),
            GroupEvent::Sent { start, to, is_ok, .. } if start == current => {
                replica.snapshot_sent(local, to, is_ok);
            }
            _ => {}
        }
    }

    fn launch(&mut self, at: usize) {
        if self.hosts[at].is_gone || self.hosts[at].replica.is_some() {
            return;
        }
        let id = self.hosts[at].id;
        if let Some(fault) = self.hosts[at].disk.fault() {
            return self.checks.violate("member-starts", format!("member {id}: {fault}"));
        }
        self.hosts[at].launch(self.now, &self.scenario);
        let (now, start) = (self.now, self.hosts[at].start);
        self.log.event(now, 1, id.0, || format!("member {id} starts"));
        self.at(now + 1, GroupEvent::Tick { host: at, start });
        self.drain(at);
    }

    /// Executes what a member puts out.
    pub(super) fn drain(&mut self, at: usize) {
        let now = self.now;
        while let Some(output) = self.hosts[at].replica.as_mut().and_then(Replica::poll_output) {
            self.execute(at, output);
        }
        let host = &mut self.hosts[at];
        let local = host.local(now);
        if let Some(replica) = &host.replica {
            if host.timed_since.is_none() && replica.has_group_time(local) {
                host.timed_since = Some(now);
            }
            if replica.may_read(local) == ReadPermission::Yes {
                host.old_lease = replica.lease_until();
            }
            if replica.is_removed() {
                host.is_gone = true;
                host.kill();
            }
        }
    }

    fn execute(&mut self, at: usize, output: ReplicaOutput) {
        let now = self.now;
        match output {
            ReplicaOutput::Persist(persist) => self.write(at, persist),
            ReplicaOutput::Send(envelope) => self.send(at, envelope),
            ReplicaOutput::Restore(place, _) => {
                let host = &mut self.hosts[at];
                host.rounds.restored();
                if let Some(state) = host.received.remove(&place.index) {
                    host.snapshot = Some(state.clone());
                    host.state = state;
                }
            }
            ReplicaOutput::Apply(entries) => self.apply(at, &entries),
            ReplicaOutput::GroupChanged(index, group) => {
                let host = &mut self.hosts[at];
                let (id, local) = (host.id, host.local(now));
                host.former.keep(local, id, &host.state.group, &group);
                host.state.group = group.clone();
                host.disk.change_group(&host.state);
                self.proposed &= group.is_changing() || index <= self.checks.newest_group.0;
                self.checks.changed(index, &group);
                self.changed(&group);
            }
            ReplicaOutput::RoleChanged { role, term, .. } => {
                let id = self.hosts[at].id;
                if role == ReplicaRole::Leader {
                    self.counts.elections += 1;
                    self.checks.leads(term, id);
                    if let Some(span) = self.strike.take() {
                        self.strike(at, span);
                    }
                } else {
                    self.hosts[at].reads.clear();
                    self.answer_calls(at, None);
                }
                let code = id.0 ^ term << 8;
                self.log.event(now, 2, code, || format!("member {id} is {role:?} in term {term}"));
            }
            ReplicaOutput::ReadsConfirmed(round) => {
                let host = &mut self.hosts[at];
                let (id, applied) = (host.id, host.state.place.index);
                let confirmed: Vec<_> = host.reads.extract_if(.., |it| it.0 <= round).collect();
                for (_, must) in confirmed {
                    self.checks.reads(id, applied, must);
                }
                self.answer_calls(at, Some(round));
            }
            ReplicaOutput::TakeSnapshot => self.take_snapshot(at),
            ReplicaOutput::Removed => {}
        }
    }

    fn write(&mut self, at: usize, persist: Persist) {
        let took = self.random.between(20, self.scenario.write_micros_max);
        let host = &mut self.hosts[at];
        let is_writing = !host.writing.is_empty();
        host.writing.push(persist);
        let start = host.start;
        if !is_writing {
            self.at(self.now + took, GroupEvent::Written { host: at, start });
        }
    }

    pub(super) fn is_cut(&self, from: MemberId, to: MemberId) -> bool {
        self.cuts.iter().any(|cut| (cut.0, cut.1) == (from, to) && cut.2 > self.now)
    }

    fn send(&mut self, at: usize, envelope: Envelope) {
        let (from, to) = (envelope.from, envelope.to);
        let target = self.hosts.iter().position(|host| host.id == to);
        let calm = self.now >= FAULTS_END;
        let is_cut = self.is_cut(from, to);
        let is_lost = !calm && self.network.permille(self.scenario.loss_permille) || is_cut;
        let delay = self.network.between(100, self.scenario.delay_micros_max);
        let is_late = !calm && self.network.permille(self.scenario.late_permille);
        let late = self.network.between(0, self.scenario.late_micros_max);
        let is_twice = !calm && self.network.permille(self.scenario.duplicate_permille);
        let again = self.network.between(0, self.scenario.late_micros_max);
        let mut file = None;
        if let Body::Snapshot { place, .. } = &envelope.body {
            let host = &self.hosts[at];
            let snapshot = host.snapshot.as_ref().filter(|it| it.place == *place);
            file = snapshot.cloned();
            let (start, is_ok) = (host.start, !is_lost && file.is_some());
            let event = GroupEvent::Sent { host: at, start, to, is_ok };
            self.at(self.now + 2 * delay, event);
            if file.is_none() {
                return;
            }
        }
        let Some(host) = target.filter(|_| !is_lost) else { return };
        let envelope = Box::new(envelope);
        let time = self.now + delay + if is_late { late } else { 0 };
        if is_twice {
            let (envelope, file) = (envelope.clone(), file.clone());
            self.at(time + again, GroupEvent::Deliver { host, envelope, file });
        }
        if self.bug == Some(InjectedBug::SpareCounted) {
            self.count_spare(host, &envelope);
        }
        self.at(time, GroupEvent::Deliver { host, envelope, file });
    }

    fn apply(&mut self, at: usize, entries: &[sanderling_core::replica::LogEntry]) {
        for entry in entries {
            let host = &mut self.hosts[at];
            let (id, applied) = (host.id, host.state.place.index);
            host.state.place = entry.place;
            if let Some((round, time)) = round_of(entry) {
                host.state.rounds.push(round);
                host.state.at = time;
            }
            let voters: Vec<MemberId> = self.checks.newest_group.1.voters().collect();
            let hosts = &self.hosts;
            let has_time = |id: &MemberId, since: u64| {
                let host = hosts.iter().find(|host| host.id == *id);
                host.and_then(|host| host.timed_since).is_some_and(|time| time <= since)
            };
            let is_carried = |since: u64| {
                voters.iter().filter(|id| has_time(id, since)).count() * 2 > voters.len()
            };
            let proposals = &self.proposals;
            let proposed = |round: u64| proposals.get(&round).copied().unwrap_or(0);
            self.checks.applies(id, applied, entry, proposed, is_carried);
            self.agreed(at, entry);
        }
        let host = &mut self.hosts[at];
        let (local, last) = (host.local(self.now), host.state.place.index);
        if let Some(replica) = &mut host.replica {
            replica.applied(local, last);
        }
        if self.random.permille(10) {
            self.take_snapshot(at);
        }
    }

    fn take_snapshot(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let state = host.state.clone();
        let Some(replica) = &mut host.replica else { return };
        // A change of the members comes behind its entry.
        if state.place.index > 0
            && state.group == *replica.group()
            && replica.snapshot_taken(state.place.index, state.group.clone()).is_some()
        {
            host.disk.compact(state.clone());
            host.snapshot = Some(state);
        }
    }

    fn read(&mut self) {
        let next = self.now + self.random.between(1, 10_000);
        self.at(next, GroupEvent::Read);
        let at = self.random.below(self.hosts.len() as u64) as usize;
        let (now, must) = (self.now, self.checks.acknowledged_to);
        let host = &mut self.hosts[at];
        let (id, applied, local) = (host.id, host.state.place.index, host.local(now));
        if host.paused_until > now {
            return;
        }
        let Some(replica) = &mut host.replica else { return };
        let is_leader = replica.role() == ReplicaRole::Leader;
        let may_read = match self.bug {
            Some(InjectedBug::PausedLeaderAnswers) if replica.is_serving() => ReadPermission::Yes,
            Some(InjectedBug::LeaseKept)
                if is_leader && host.old_lease.is_some_and(|until| local < until) =>
            {
                ReadPermission::Yes
            }
            _ => replica.may_read(local),
        };
        match may_read {
            ReadPermission::Yes => {
                self.counts.lease_reads += 1;
                self.checks.reads(id, applied, must);
            }
            // Reads that wait at a leader which is elected again are confirmed by its next term.
            ReadPermission::NeedsQuorum | ReadPermission::TakesOver => {
                if let Some(number) = replica.confirm_reads(local) {
                    host.reads.push((number, must));
                }
                self.drain(at);
            }
            ReadPermission::NotLeader => {}
        }
    }

    /// The bug: what a spare confirms counts as if a voter had confirmed it.
    fn count_spare(&mut self, to: usize, envelope: &Envelope) {
        let group = &self.hosts[to].state.group;
        let is_spare = group.spares().any(|id| id == envelope.from);
        let voter = group.voters().find(|id| *id != envelope.to);
        let voter = self.hosts.iter().find(|host| Some(host.id) == voter);
        if let (true, Body::Appended { .. }, Some(voter)) = (is_spare, &envelope.body, voter) {
            let (from, incarnation) = (voter.id, voter.start);
            let envelope = Box::new(Envelope { from, incarnation, ..envelope.clone() });
            let time = self.now + 100;
            self.at(time, GroupEvent::Deliver { host: to, envelope, file: None });
        }
    }

    pub(super) fn victim(&self, victim: Victim) -> Option<usize> {
        let running: Vec<usize> =
            (0..self.hosts.len()).filter(|at| self.hosts[*at].replica.is_some()).collect();
        let leader = running.iter().copied().find(|at| self.hosts[*at].is_serving());
        match victim {
            Victim::Leader if leader.is_some() => leader,
            Victim::Leader => running.first().copied(),
            Victim::Any(draw) => {
                let at = draw.checked_rem(running.len() as u64)?;
                Some(running[at as usize])
            }
        }
    }

    fn fault(&mut self, fault: GroupFault) {
        let now = self.now;
        self.log.event(now, 3, 0, || format!("{fault:?}"));
        match fault {
            GroupFault::Kill { victim, down } => {
                let Some(at) = self.victim(victim) else { return };
                self.counts.kills += 1;
                self.hosts[at].kill();
                self.at(now + down, GroupEvent::Launch { host: at });
            }
            GroupFault::Crash { victim, down, kept } => self.crash(victim, down, kept),
            GroupFault::Pause { victim, span } => {
                let Some(at) = self.victim(victim) else { return };
                self.hosts[at].paused_until = now + span;
            }
            GroupFault::Partition { sides, is_one_way, span } => {
                let side = |id: MemberId| sides >> (id.0 % 64) & 1;
                let ids: Vec<MemberId> = self.hosts.iter().map(|host| host.id).collect();
                for from in &ids {
                    for to in &ids {
                        let is_apart = side(*from) != side(*to);
                        if is_apart && (!is_one_way || side(*from) == 0) {
                            self.cuts.push((*from, *to, now + span));
                        }
                    }
                }
            }
            GroupFault::Isolate { victim, span } => {
                let Some(at) = self.victim(victim) else { return };
                let id = self.hosts[at].id;
                for other in 0..self.hosts.len() {
                    let other = self.hosts[other].id;
                    self.cuts.extend([(id, other, now + span), (other, id, now + span)]);
                }
            }
            GroupFault::Transfer { to, cut } => {
                let leader = self.victim(Victim::Leader);
                self.transfer(to);
                let Some(at) = leader.filter(|_| cut > 0) else { return };
                let id = self.hosts[at].id;
                self.cuts.extend(self.hosts.iter().map(|host| (host.id, id, now + cut)));
            }
            GroupFault::Strike { span } => {
                self.strike = Some(span);
                self.fault(GroupFault::Isolate { victim: Victim::Leader, span: 900_000 });
            }
            GroupFault::Notice { victim, ahead } => {
                let Some(at) = self.victim(victim) else { return };
                self.notice(at, now + ahead);
            }
        }
    }

    /// Cuts the new leader off, and starts all others again.
    fn strike(&mut self, leader: usize, span: u64) {
        let (now, id) = (self.now, self.hosts[leader].id);
        self.cuts.clear();
        for at in (0..self.hosts.len()).filter(|at| *at != leader) {
            let other = self.hosts[at].id;
            self.cuts.extend([(id, other, now + span), (other, id, now + span)]);
            if self.hosts[at].replica.is_some() {
                self.hosts[at].kill();
                self.at(now + 50_000, GroupEvent::Launch { host: at });
            }
        }
    }

    /// Everything works again, and every machine that was not taken starts.
    fn heal(&mut self) {
        self.cuts.clear();
        self.strike = None;
        for at in 0..self.hosts.len() {
            self.hosts[at].paused_until = 0;
            self.launch(at);
        }
    }
}
