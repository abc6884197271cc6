//! The simulated namenode: the shell around the machine that the real one has, with a journal in
//! memory.
//!
//! As in the real shell, what waits is taken together: everything is prepared, then journalled,
//! then applied. Orders go to each datanode in two queues, one after the other, until they are
//! answered.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use sanderling_core::catalog::{Action, Applied, Catalog, Command, DatanodeOrder};
use sanderling_core::membership::Probe;
use sanderling_core::namenode::{FrameRead, Namenode, NamenodeConfig, Turns, start_time};
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::{
    ClusterId, Instant, Millis, NodeId, Order, OrderReply, Policy, Refusal, Reply, Request, Term,
};

use crate::Broken;
use crate::client::key;
use crate::disk::{Disk, Snapshot};
use crate::event::{NamenodeCall, Purpose, Timer};
use crate::mistake::Mistakes;
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{Ask, DataAnswer, DataAsk, Host, Response, data};
use crate::world::World;

/// The namenode's place and what survives its process.
#[derive(Debug)]
pub(crate) struct NamenodeHost {
    /// The process; what it knew stays here after its end, to be compared with what comes back.
    pub(crate) machine: Namenode,
    config: NamenodeConfig,
    /// The catalog as last written to disk, and how many records it has seen.
    pub(crate) snapshot: Snapshot,
    /// The format that snapshots are written in.
    pub(crate) format: u32,
    pub(crate) disk: Disk,
    pub(crate) journal: Vec<Command>,
    /// Records of the journal that no process has applied: the last one died before.
    pub(crate) unapplied: usize,
    pub(crate) inbox: Vec<NamenodeWork>,
    /// The commands that the requests of the present round became.
    pub(crate) logged: Vec<(Command, Request)>,
    pub(crate) is_turn_set: bool,
    pub(crate) turns: Turns,
    wake_at: Option<u64>,
    order_queues: BTreeMap<(NodeId, bool), NodeOrders>,
    pub(crate) started_at: u64,
    /// What its clock showed then; from there it never steps.
    clock_base: Instant,
    /// When the process was, or is, stopped.
    pub(crate) frozen: Range<u64>,
    /// Until when it has looked at what comes.
    pub(crate) looked_until: u64,
    /// How long a namenode has served, and until when that is counted.
    served_micros: (u64, u64),
    pub(crate) mistakes: Mistakes,
    /// Whether the process dies after its next write to the journal.
    pub(crate) dies_after_journal: Option<u64>,
    random: Random,
}

/// Something for the next turn.
#[derive(Debug)]
pub(crate) enum NamenodeWork {
    /// The requests of one frame, each with its call.
    Ask {
        from: Host,
        asked: Vec<(u64, Request)>,
    },
    Ordered(Box<DatanodeOrder>, Option<OrderReply>),
    Probed(NodeId, Probe),
}

/// Orders to one node, one at a time.
#[derive(Debug, Default)]
struct NodeOrders {
    waiting: VecDeque<DatanodeOrder>,
    is_busy: bool,
    tries: u32,
}

const CLUSTER: ClusterId = ClusterId(7);

/// Entries of one slice of reads: few, so that listings take several.
const SLICE_ENTRIES: usize = 2;

/// Time of one order.
const ORDER_MILLIS: u64 = 2000;

impl NamenodeHost {
    pub(crate) fn new(plan: &RunPlan) -> Self {
        let config = NamenodeConfig {
            lease: Millis(plan.lease_millis),
            placement_seed: plan.seed,
            ramp_up: plan.background.ramp,
            preemption: plan.preemption.clone(),
            departures: plan.departures,
            limits: plan.limits.catalog,
            ..NamenodeConfig::default()
        };
        let machine = Namenode::new(config.clone(), CLUSTER);
        let format = if plan.begins_old { Catalog::FORMAT_MIN } else { Catalog::FORMAT };
        let snapshot = Snapshot::of(machine.catalog(), format, 0);
        Self {
            machine,
            config,
            snapshot,
            format: Catalog::FORMAT,
            disk: Disk::new(plan.sync),
            journal: Vec::new(),
            unapplied: 0,
            inbox: Vec::new(),
            logged: Vec::new(),
            is_turn_set: false,
            turns: Turns::new(Instant(0)),
            wake_at: None,
            order_queues: BTreeMap::new(),
            started_at: 0,
            clock_base: Instant(0),
            frozen: 0..0,
            looked_until: 0,
            served_micros: (0, 0),
            mistakes: Mistakes::default(),
            dies_after_journal: None,
            random: Random::new(plan.seed, 6),
        }
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
}

impl World {
    pub(crate) fn namenode_start(&mut self) {
        self.namenode.clock_base = self.namenode.clock(self.runtime.now());
        self.namenode.started_at = self.runtime.now();
        self.namenode.frozen = 0..0;
        self.namenode.looked_until = self.runtime.now();
        self.namenode.served_micros.1 = self.runtime.now();
        if self.runtime.is_broken(Broken::OldFormatMisread) {
            self.namenode.format = Catalog::FORMAT_MIN;
        }
        if self.runtime.life(Host::Namenode) == 1 {
            // A new cluster, or one of the release before.
            self.namenode.machine = self.namenode.replay();
        } else {
            self.runtime.statistics_mut().namenode_restarts += 1;
            self.namenode_forget();
            self.namenode_read();
        }
        let now = self.namenode_clock_starts();
        let host = &mut self.namenode;
        host.inbox.clear();
        host.is_turn_set = false;
        host.wake_at = None;
        host.order_queues.clear();
        host.dies_after_journal = None;
        let (commands, term) = (host.commands(), Term(host.random.next()));
        let mut begun = host.machine.begin(now, term, commands, 0);
        if commands == 0 {
            // The operator, the writers and the callers, in the order of their numbers.
            let others = self.runtime.plan().writers + self.runtime.plan().callers;
            let numbers = 1..=1 + u64::from(others);
            let open = |number| Action::OpenClient { key: key(number) };
            begun.extend(numbers.map(|number| Command { at: now, action: open(number) }));
        }
        if self.runtime.is_broken(Broken::ReserveIgnored) {
            begun.retain(|command| !matches!(command.action, Action::Departures { .. }));
        }
        let begun = self.mistake_begun(begun);
        self.namenode.turns = Turns::new(now);
        self.namenode_begin(begun);
    }

    /// Reads what an earlier process left.
    fn namenode_read(&mut self) {
        if let Some(lost) = self.namenode.disk.lost.take() {
            self.namenode.unapplied = 0;
            self.lose_end(lost);
        }
        let machine = self.namenode.replay();
        self.check_replay(&machine);
        self.namenode.machine = machine;
        self.checks.numbers.starts(self.namenode.catalog());
        // What was read is on the disk before anything is written behind it.
        self.namenode.disk.settle();
    }

    /// Starts the process's clock: by the machine's and by the log.
    fn namenode_clock_starts(&mut self) -> Instant {
        let wall = self.runtime.clock(Host::Namenode);
        let floor = self.namenode.catalog().now();
        self.namenode.clock_base = self.mistake_clock(wall).unwrap_or(start_time(floor, wall));
        self.namenode.clock_base
    }

    fn check_replay(&mut self, machine: &Namenode) {
        let host = &mut self.namenode;
        // The process died after it had written these and before it had applied them.
        let unapplied = std::mem::take(&mut host.unapplied);
        let first = host.journal.len() - unapplied.min(host.journal.len());
        for index in first..self.namenode.journal.len() {
            let command = self.namenode.journal[index].clone();
            self.check_before(&command);
            let arriving = self.check_arriving(&command, None);
            let applied = self.namenode.machine.apply(&command);
            if !self.check_made(arriving, &applied.result) {
                self.check_applied(&command, &applied);
            }
        }
        if self.runtime.is_broken(Broken::EpochReused) {
            return;
        }
        let same = encode_body(self.namenode.machine.catalog()) == encode_body(machine.catalog());
        self.runtime.statistics_mut().checks += 1;
        if !same {
            let (live, again) = (self.namenode.catalog().index(), machine.catalog().index());
            let message = format!("replay gives another catalog: {again} commands against {live}");
            self.runtime.violate("replay", message);
        }
    }

    pub(crate) fn namenode_ask(&mut self, from: Host, asked: Vec<(u64, Request)>) {
        let now = self.namenode.clock(self.runtime.now());
        let (calls, requests): (Vec<u64>, Vec<Request>) = asked.into_iter().unzip();
        // What changes nothing is answered beside the writer.
        let machine = &self.namenode.machine;
        if requests.iter().all(|request| machine.is_read(request)) {
            let mut reading = FrameRead::new(requests, None);
            while !reading.slice(now, machine, SLICE_ENTRIES) {}
            let (requests, answers) = reading.finish();
            let mut replies = Vec::with_capacity(calls.len());
            for ((call, request), answer) in calls.into_iter().zip(&requests).zip(answers) {
                let answer = self.mistake_answer(request, answer);
                let answer = self.mistake_stale(from, request, answer);
                if let Ok(Reply::Layout(layout)) = &answer {
                    let found = self.checks.blocks.told(layout);
                    self.runtime.expect(found);
                }
                replies.push((call, Response::Meta(answer)));
            }
            return self.runtime.reply_frame(from, replies);
        }
        let asked = calls.into_iter().zip(requests).collect();
        self.namenode.inbox.push(NamenodeWork::Ask { from, asked });
        self.namenode_turn_soon();
    }

    fn namenode_turn_soon(&mut self) {
        if std::mem::replace(&mut self.namenode.is_turn_set, true) {
            return;
        }
        let micros = self.namenode.random.below(self.runtime.plan().turn_micros_max + 1);
        self.runtime.set_timer(Host::Namenode, micros, Timer::Turn);
    }

    pub(crate) fn namenode_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Turn => self.namenode_turn(),
            Timer::Wake if self.namenode.wake_at.is_some_and(|at| at <= self.runtime.now()) => {
                self.namenode.wake_at = None;
                self.namenode_turn();
            }
            Timer::OrderQueue(node, is_fence) => {
                if let Some(order_queue) = self.namenode.order_queues.get_mut(&(node, is_fence)) {
                    order_queue.is_busy = false;
                }
                self.namenode_order_queue(node, is_fence);
            }
            _ => {}
        }
    }

    /// Stops the process for a while.
    pub(crate) fn namenode_freeze(&mut self, millis: u64) {
        if !self.runtime.is_up(Host::Namenode) || self.runtime.is_stopped(Host::Namenode) {
            return;
        }
        self.served_millis();
        let until = self.runtime.now() + millis * 1000;
        self.namenode.frozen = self.runtime.now()..until;
        self.runtime.stop(Host::Namenode, millis);
        self.namenode.served_micros.1 = until;
        self.runtime.set_timer(Host::Namenode, millis * 1000, Timer::Turn);
    }

    /// Counts the time in which a namenode was up and not stopped.
    pub(crate) fn served_millis(&mut self) -> u64 {
        let host = &mut self.namenode;
        let (sum, until) = host.served_micros;
        host.served_micros = (sum + self.runtime.now().saturating_sub(until), self.runtime.now());
        host.served_micros.0 / 1000
    }

    pub(crate) fn namenode_apply(
        &mut self,
        command: &Command,
        origin: Option<(Host, &Request)>,
    ) -> Applied {
        let index = self.namenode.catalog().index();
        self.runtime.log(10, index, || format!("namenode: [{index}] {:?}", command.action));
        self.check_before(command);
        let arriving = self.check_arriving(command, origin.map(|(_, request)| request));
        let applied = self.mistake_around(command);
        if !applied.orders.is_empty() || applied.result.is_err() {
            self.runtime.log(11, applied.orders.len() as u64, || {
                format!("namenode: [{index}] gives {:?} {:?}", applied.result, applied.orders)
            });
        }
        let applied = self.mistake_applied(command, origin.map(|(_, request)| request), applied);
        if self.check_made(arriving, &applied.result) {
            return applied;
        }
        if !self.runtime.has_violation() {
            self.check_applied(command, &applied);
        }
        if let Some((from, request)) = origin {
            self.check_answer(from, request, &applied.result);
        }
        applied
    }

    pub(crate) fn namenode_wake_at(&mut self, due: Instant) {
        // Never faster than the real shell's shortest sleep.
        let at = self.runtime.now()
            + due.0.saturating_sub(self.namenode.clock(self.runtime.now()).0).max(1000);
        if self.namenode.wake_at.is_none_or(|before| at < before) {
            self.namenode.wake_at = Some(at);
            self.runtime.set_timer(Host::Namenode, at - self.runtime.now(), Timer::Wake);
        }
    }

    pub(crate) fn namenode_order(&mut self, order: DatanodeOrder) {
        let is_fence = matches!(order.order, Order::FenceNode { .. } | Order::UnfenceNode);
        let node = order.node;
        self.namenode.order_queues.entry((node, is_fence)).or_default().waiting.push_back(order);
        self.namenode_order_queue(node, is_fence);
    }

    fn namenode_order_queue(&mut self, node: NodeId, is_fence: bool) {
        let policy = self.namenode.catalog().node_policy(node).map(|(policy, _)| policy);
        let Some(order_queue) = self.namenode.order_queues.get_mut(&(node, is_fence)) else {
            return;
        };
        if policy.is_none_or(|policy| policy == Policy::Gone) {
            self.namenode.order_queues.remove(&(node, is_fence));
            return;
        }
        if order_queue.is_busy {
            return;
        }
        let Some(order) = order_queue.waiting.front().cloned() else { return };
        let Some(place) = Host::at(&order.address) else { return };
        order_queue.is_busy = true;
        let ask = Ask::Data(node, DataAsk::Order(order.order.clone()));
        let purpose = Purpose::Namenode(NamenodeCall::Order(Box::new(order), is_fence));
        self.runtime.call(Host::Namenode, place, ask, ORDER_MILLIS, purpose);
    }

    pub(crate) fn namenode_answered(&mut self, call: NamenodeCall, answer: Option<Response>) {
        match call {
            NamenodeCall::Order(order, is_fence) => {
                let (node, key) = (order.node, (order.node, is_fence));
                let work = match answer {
                    Some(Response::Data(Ok(DataAnswer::Order(reply)))) => {
                        NamenodeWork::Ordered(order, Some(reply))
                    }
                    Some(Response::Data(Err(refusal)))
                        if Probe::refused_by(&refusal) == Some(Probe::Refused) =>
                    {
                        self.namenode.order_queues.remove(&key);
                        NamenodeWork::Probed(node, Probe::Refused)
                    }
                    _ => NamenodeWork::Ordered(order, None),
                };
                let is_done = matches!(work, NamenodeWork::Ordered(_, Some(_)));
                self.namenode.inbox.push(work);
                self.namenode_turn_soon();
                let Some(order_queue) = self.namenode.order_queues.get_mut(&key) else { return };
                if is_done {
                    order_queue.waiting.pop_front();
                    (order_queue.is_busy, order_queue.tries) = (false, 0);
                    self.namenode_order_queue(node, is_fence);
                } else {
                    order_queue.tries += 1;
                    let micros = (50_000 << order_queue.tries.min(5)).min(1_000_000);
                    self.runtime.set_timer(
                        Host::Namenode,
                        micros,
                        Timer::OrderQueue(node, is_fence),
                    );
                }
            }
            NamenodeCall::Probe(node) => {
                let outcome = match answer {
                    Some(Response::Refused) => Probe::Refused,
                    answer => match data(answer) {
                        Some(Err(refusal)) => Probe::refused_by(&refusal).unwrap_or(Probe::Timeout),
                        Some(Ok(_)) => Probe::Alive,
                        None => Probe::Timeout,
                    },
                };
                if outcome == Probe::Alive {
                    self.heard(node);
                }
                self.namenode.inbox.push(NamenodeWork::Probed(node, outcome));
                self.namenode_turn_soon();
            }
        }
    }

    /// Asks the namenode what it would answer now, from outside the world.
    pub(crate) fn peek(&self, request: &Request) -> Result<Reply, Refusal> {
        let now = self.namenode.clock(self.runtime.now());
        self.namenode.machine.read(now, request).expect("only reads are peeked at")
    }
}

impl NamenodeHost {
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
