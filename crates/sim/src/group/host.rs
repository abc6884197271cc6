//! One machine with a member.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::replica::{
    FormerMembers, GroupEvents, GroupPlanner, LogPlace, MachineLife, OwnLife, OwnNotice, Persist,
    PlannerOptions, Replica, ReplicaOptions, WriterRounds,
};
use sanderling_protocol::{ClusterId, Instant, MemberId, Millis};

use super::disk::{AppliedState, MemberDisk};
use super::scenario::GroupScenario;
use crate::random::Random;

/// Entries that a member may be behind what is agreed and count as caught up. Few, as the runs have
/// some hundred entries. Chosen, not measured.
pub(super) const BEHIND_MAX: u64 = 20;

/// How long a leader leads before a machine that lives longer leads instead. Two reports of lives.
const LEADS_AT_LEAST: Millis = Millis(1000);

/// Pause between two reports of how long a machine goes on: a tenth of the product's.
const LIFE_INTERVAL: Millis = Millis(500);

/// A call that waits at a member until a majority has confirmed that it leads.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingCall {
    pub(super) number: u64,
    pub(super) caller: usize,
    pub(super) attempt: u64,
}

/// A machine, its clock, and the member's process.
pub(super) struct Host {
    pub(super) id: MemberId,
    /// Where callers reach it.
    pub(super) address: String,
    /// How much faster the clock runs than time, in millionths.
    rate: i64,
    offset: u64,
    wall: u64,
    pub(super) disk: MemberDisk,
    pub(super) replica: Option<Replica>,
    /// Counts the starts.
    pub(super) start: u64,
    pub(super) state: AppliedState,
    pub(super) snapshot: Option<AppliedState>,
    pub(super) received: BTreeMap<u64, AppliedState>,
    pub(super) writing: Vec<Persist>,
    pub(super) paused_until: u64,
    pub(super) proposed: BTreeMap<LogPlace, u64>,
    /// The rounds of several entries, of which at most one is under way.
    pub(super) rounds: WriterRounds,
    /// Entries of that one which were applied: their rounds and places.
    pub(super) pieces: Vec<(u64, LogPlace)>,
    /// Reads that wait for a majority: the number, and what was acknowledged when they arrived.
    pub(super) reads: Vec<(u64, u64)>,
    /// Calls that wait for a majority, and those that waited when the process ended.
    pub(super) calls: Vec<WaitingCall>,
    pub(super) broken: Vec<WaitingCall>,
    /// The last term in which the process began to serve.
    pub(super) served_term: u64,
    /// Since when the process has the group's time.
    pub(super) timed_since: Option<u64>,
    pub(super) deadline: Option<u64>,
    /// When the process reports that.
    pub(super) own_notice: OwnNotice,
    /// How long the machine is expected to go on.
    pub(super) life: MachineLife,
    /// When the process reports that.
    pub(super) own_life: OwnLife,
    /// The members whose report of that this process has received as their leader.
    pub(super) lives_received: BTreeSet<MemberId>,
    pub(super) former: FormerMembers,
    /// The events that this member, if it leads, writes about the group, and in which term.
    pub(super) group_events: (u64, GroupEvents),
    /// What this member, if it leads, has of the others' machines.
    pub(super) planner: GroupPlanner,
    pub(super) is_gone: bool,
    /// What a shell with a bug keeps of the lease.
    pub(super) old_lease: Option<Instant>,
}

impl Host {
    pub(super) fn new(
        id: MemberId,
        address: String,
        disk: MemberDisk,
        life: MachineLife,
        random: &mut Random,
    ) -> Self {
        Self {
            id,
            address,
            rate: random.below(40_000) as i64 - 20_000,
            offset: random.between(1_000_000, 1 << 40),
            // Up to an hour before or after the others.
            wall: 1_700_000_000_000_000 + random.below(7_200_000_000),
            disk,
            replica: None,
            start: 0,
            state: AppliedState::default(),
            snapshot: None,
            received: BTreeMap::new(),
            writing: Vec::new(),
            paused_until: 0,
            proposed: BTreeMap::new(),
            reads: Vec::new(),
            calls: Vec::new(),
            broken: Vec::new(),
            served_term: 0,
            timed_since: None,
            rounds: WriterRounds::default(),
            pieces: Vec::new(),
            deadline: None,
            own_notice: OwnNotice::default(),
            life,
            own_life: OwnLife::repeated(LIFE_INTERVAL),
            lives_received: BTreeSet::new(),
            former: FormerMembers::default(),
            group_events: (0, GroupEvents::default()),
            planner: GroupPlanner::new(PlannerOptions::new(0, 0)),
            is_gone: false,
            old_lease: None,
        }
    }

    /// Returns what the machine's clock that is never set shows.
    pub(super) fn local(&self, now: u64) -> Instant {
        Instant((self.offset + now).saturating_add_signed(now as i64 * self.rate / 1_000_000))
    }

    /// Returns what the machine's clock of the day shows.
    pub(super) const fn wall(&self, now: u64) -> Instant {
        Instant(self.wall + now)
    }

    /// Returns when the local clock shows `at`.
    pub(super) fn real(&self, at: Instant, now: u64) -> u64 {
        let left = at.0.saturating_sub(self.local(now).0);
        let mut real = now + (left as i64 * 1_000_000 / (1_000_000 + self.rate)) as u64;
        while self.local(real) < at {
            real += 1;
        }
        real
    }

    /// Returns when the machine will be taken, by its own clock.
    pub(super) fn local_deadline(&self, now: u64) -> Option<Instant> {
        let left = |at: u64| self.local(now) + Millis(at.saturating_sub(now) / 1000);
        self.deadline.map(left)
    }

    /// Starts the process on its directory.
    pub(super) fn launch(&mut self, now: u64, scenario: &GroupScenario) {
        self.start += 1;
        let (restored, state, floor) = self.disk.start(self.state.place.index);
        let mut options = ReplicaOptions::new(ClusterId(1), self.id, scenario.seed ^ self.id.0);
        options.incarnation = self.start;
        options.tick = Millis(20);
        options.heartbeat_ticks = 2;
        options.election_ticks = scenario.election_ticks;
        options.retained_bytes_max = scenario.retained_bytes_max;
        options.uncommitted_bytes_max = 1 << 21;
        let times = (floor, self.wall(now));
        let mut replica = Replica::new(options, restored, self.local(now), times);
        if state.place.index > 0 {
            replica.snapshot_taken(state.place.index, state.group.clone());
            self.snapshot = Some(state.clone());
        }
        self.state = state;
        self.replica = Some(replica);
        let planner = PlannerOptions::new(scenario.voters as usize, scenario.spares);
        self.planner = GroupPlanner::new(PlannerOptions {
            // Processes are away for shorter than in the product.
            gone_after: Millis(1000),
            behind_max: BEHIND_MAX,
            leads_at_least: LEADS_AT_LEAST,
            ..planner
        });
        self.own_notice = OwnNotice::new(self.local_deadline(now));
        self.own_life = OwnLife::repeated(LIFE_INTERVAL);
        self.lives_received.clear();
        self.former = FormerMembers::default();
        self.group_events = (0, GroupEvents::default());
    }

    /// Ends the process.
    pub(super) fn kill(&mut self) {
        self.replica = None;
        self.start += 1;
        self.disk.end(std::mem::take(&mut self.writing), &self.received);
        self.received.clear();
        self.proposed.clear();
        self.rounds = WriterRounds::default();
        self.pieces.clear();
        self.reads.clear();
        self.broken.append(&mut self.calls);
        self.timed_since = None;
        self.served_term = 0;
        self.old_lease = None;
        self.paused_until = 0;
    }

    pub(super) fn is_serving(&self) -> bool {
        self.replica.as_ref().is_some_and(Replica::is_serving)
    }
}
