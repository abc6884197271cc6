//! The simulated namenode: the shell around the machine that the real one has, with a journal in
//! memory.
//!
//! As in the real shell, what waits is taken together: everything is prepared, then journalled,
//! then applied. Orders go to each datanode in two queues, one after the other, until they are
//! answered.

mod directory;
mod disk;
mod frames;
mod group_commit;
mod injected_bugs;
mod queue;
pub(crate) mod serve;

use std::collections::BTreeMap;
use std::ops::Range;

use sanderling_core::catalog::{Action, Catalog, Command, DatanodeOrder};
use sanderling_core::membership::Probe;
use sanderling_core::namenode::{
    GroupCommit, Namenode, NamenodeConfig, OrderKind, OrderQueue, SnapshotSchedule,
};
use sanderling_protocol::{
    ClusterId, Event, Instant, Millis, NodeId, OrderReply, Refusal, Reply, Request,
};

use self::disk::{Disk, Snapshot};
use self::injected_bugs::InjectedBugState;
use self::queue::FrameQueues;
use crate::InjectedBug;
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::Host;

/// The namenode's place and what survives its process.
#[derive(Debug)]
pub(crate) struct NamenodeHost {
    /// The process; its state stays here after its end, to be compared with what comes back.
    machine: Namenode,
    config: NamenodeConfig,
    /// The catalog as last written to disk, and how many records it has seen.
    snapshot: Snapshot,
    /// When the next snapshot is due. It counts commands: the plan sets how many, whatever the
    /// last snapshot has.
    schedule: SnapshotSchedule,
    /// The format that snapshots are written in.
    format: u32,
    disk: Disk,
    journal: Vec<Command>,
    /// Records of the journal that no process has applied: the last one died before.
    unapplied: usize,
    /// The namenode's own work.
    inbox: Vec<NamenodeWork>,
    queues: FrameQueues,
    /// The commands that the requests of the present round became.
    logged: Vec<(Command, Request)>,
    is_work_due: bool,
    group_commit: GroupCommit,
    wake_at: Option<u64>,
    order_queues: BTreeMap<(NodeId, OrderKind), NodeOrders>,
    started_at: u64,
    /// What its clock showed then; from there it never steps.
    clock_base: Instant,
    /// When the process was, or is, stopped.
    frozen: Range<u64>,
    /// Until when it has looked at what comes.
    looked_until: u64,
    /// How long a namenode has served, and until when that is counted.
    served_micros: (u64, u64),
    bugs: InjectedBugState,
    /// Whether the process dies after its next write to the journal.
    dies_after_journal: Option<u64>,
    random: Random,
    /// The injected bug of this run.
    bug: Option<InjectedBug>,
}

/// Something for the next batch besides frames.
#[derive(Debug)]
pub(crate) enum NamenodeWork {
    Ordered(Box<DatanodeOrder>, Option<OrderReply>),
    Probed(NodeId, Probe),
}

/// Orders of one kind to one node.
#[derive(Debug, Default)]
struct NodeOrders {
    queue: OrderQueue,
    /// Whether one is on its way, or the pause after it lasts.
    is_busy: bool,
}

const CLUSTER: ClusterId = ClusterId(7);

impl NamenodeHost {
    pub(crate) fn new(plan: &RunPlan, bug: Option<InjectedBug>) -> Self {
        let config = NamenodeConfig {
            lease: Millis(plan.lease_millis),
            placement_seed: plan.seed,
            ramp_up: plan.background.ramp,
            preemption: plan.preemption.clone(),
            departures: plan.departures,
            limits: plan.limits.catalog,
            logs_refusals: plan.has_successors,
            ..NamenodeConfig::default()
        };
        let machine = Namenode::new(config.clone(), CLUSTER);
        let format = if plan.begins_old { Catalog::FORMAT_MIN } else { Catalog::FORMAT };
        let snapshot = Snapshot::of(machine.catalog(), format, 0);
        Self {
            machine,
            config,
            snapshot,
            schedule: SnapshotSchedule::new(plan.snapshot_every - 1, u64::MAX, 0),
            format: Catalog::FORMAT,
            disk: Disk::new(plan.sync),
            journal: Vec::new(),
            unapplied: 0,
            inbox: Vec::new(),
            queues: FrameQueues::new(plan),
            logged: Vec::new(),
            is_work_due: false,
            group_commit: GroupCommit::new(Instant(0)),
            wake_at: None,
            order_queues: BTreeMap::new(),
            started_at: 0,
            clock_base: Instant(0),
            frozen: 0..0,
            looked_until: 0,
            served_micros: (0, 0),
            bugs: InjectedBugState::default(),
            dies_after_journal: None,
            random: Random::new(plan.seed, 6),
            bug,
        }
    }

    fn has_bug(&self, bug: InjectedBug) -> bool {
        self.bug == Some(bug)
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        self.machine.catalog()
    }

    /// Returns where a node's process was started.
    pub(crate) fn place_of(&self, node: NodeId) -> Option<Host> {
        self.catalog().node_policy(node).and_then(|(_, address)| Host::at(address))
    }

    pub(crate) const fn commands(&self) -> u64 {
        self.journal.len() as u64
    }

    /// Returns the namenode of an empty log.
    pub(crate) fn anew(&self) -> Namenode {
        Namenode::new(self.config.clone(), CLUSTER)
    }

    /// Replays the journal over the snapshot.
    fn replay(&self) -> Namenode {
        let catalog = self.snapshot.read();
        let mut machine = Namenode::restore(self.config.clone(), catalog, Instant(0));
        for command in &self.journal[self.snapshot.records..] {
            let _ = machine.apply(command);
        }
        machine
    }

    /// Returns what its clock shows.
    pub(crate) fn clock(&self, now: u64) -> Instant {
        Instant(self.clock_base.0 + (now - self.started_at))
    }

    /// Replays the whole journal from its beginning.
    pub(crate) fn replay_all(&self, now: Instant) -> Namenode {
        let mut machine = self.anew();
        for command in &self.journal {
            let _ = machine.apply(command);
        }
        machine.resume(now);
        machine
    }

    /// Writes a snapshot of a whole journal.
    pub(crate) fn write_snapshot(&mut self) {
        let records = self.journal.len();
        self.snapshot = Snapshot::of(self.machine.catalog(), self.format, records);
        self.disk.settle();
    }

    /// Returns what the process would answer now to a request that changes nothing.
    pub(crate) fn peek(&self, now: u64, request: &Request) -> Result<Reply, Refusal> {
        self.machine.read(self.clock(now), request).expect("only reads are peeked at")
    }

    pub(crate) fn events_after(&self, after: u64, limit: usize) -> Vec<Event> {
        self.machine.events_after(after, limit)
    }

    /// Returns when the process started, in microseconds.
    pub(crate) const fn started_at(&self) -> u64 {
        self.started_at
    }

    /// Returns when the process went on, or goes on, that was stopped last.
    pub(crate) const fn frozen_until(&self) -> u64 {
        self.frozen.end
    }

    /// Returns when its disk last refused something.
    pub(crate) const fn refused_at(&self) -> u64 {
        self.disk.refused_at
    }

    /// Returns how long a namenode was up and not stopped.
    pub(crate) fn served_millis(&self, now: u64) -> u64 {
        let (sum, until) = self.served_micros;
        (sum + now.saturating_sub(until)) / 1000
    }

    /// Ends the faults of its machine.
    pub(crate) fn calm(&mut self) {
        self.dies_after_journal = None;
        self.disk.calm();
    }

    /// Counts the time in which a namenode was up and not stopped.
    fn count_served(&mut self, now: u64) {
        let (sum, until) = self.served_micros;
        self.served_micros = (sum + now.saturating_sub(until), now);
    }

    /// Loses the last record, unless a snapshot has it.
    pub(crate) fn forget_last(&mut self) {
        if self.journal.len() > self.snapshot.records {
            self.journal.pop();
        }
    }

    /// Loses the reservations behind the last commit and the last snapshot.
    pub(crate) fn forget_reservations(&mut self) {
        let is_commit = |command: &Command| matches!(command.action, Action::Commit { .. });
        let last = self.journal.iter().rposition(is_commit).map_or(0, |last| last + 1);
        let tail = self.journal.split_off(last.max(self.snapshot.records).min(self.journal.len()));
        let kept = tail.into_iter().filter(|it| !matches!(it.action, Action::Reserve { .. }));
        self.journal.extend(kept);
    }
}
