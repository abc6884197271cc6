//! The simulated namenode: the shell around the machine that the real one has, with a journal in
//! memory.
//!
//! As in the real shell, what waits is taken together: everything is prepared, then journalled,
//! then applied. Orders go to each datanode in two lanes, one after the other, until they are
//! answered.

use std::collections::{BTreeMap, VecDeque};

use sanderling_core::catalog::{Action, Applied, Catalog, Command, DatanodeOrder};
use sanderling_core::membership::Probe;
use sanderling_core::namenode::{Namenode, NamenodeConfig, Prepared};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::{
    ClusterId, Instant, Millis, NodeId, Order, OrderReply, Policy, Refusal, Reply, Request,
};

use crate::event::{NamenodeCall, Purpose, Timer};
use crate::mistake::Mistakes;
use crate::plan::Plan;
use crate::random::Random;
use crate::wire::{Answer, Ask, DataAnswer, DataAsk, Place, data};
use crate::world::World;

/// The namenode's place and what survives its process.
#[derive(Debug)]
pub(crate) struct NamenodeHost {
    /// The process; what it knew stays here after its end, to be compared with what comes back.
    pub(crate) machine: Namenode,
    config: NamenodeConfig,
    /// The catalog as last written to disk, and how many records it has seen.
    snapshot: (Vec<u8>, usize),
    pub(crate) journal: Vec<Command>,
    /// Records of the journal that no process has applied: the last one died before.
    unapplied: usize,
    inbox: Vec<Work>,
    is_turn_set: bool,
    wake_at: Option<u64>,
    lanes: BTreeMap<(NodeId, bool), Lane>,
    pub(crate) started_at: u64,
    pub(crate) mistakes: Mistakes,
    /// Whether the process dies after its next write to the journal.
    pub(crate) dies_after_journal: Option<u64>,
    random: Random,
}

/// Something for the next turn.
#[derive(Debug)]
enum Work {
    Ask { from: Place, call: u64, request: Request },
    Ordered(Box<DatanodeOrder>, Option<OrderReply>),
    Probed(NodeId, Probe),
}

/// Orders to one node, one at a time.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<DatanodeOrder>,
    is_busy: bool,
    tries: u32,
}

/// Whose command it is.
type Origin = Option<(Place, u64, Request)>;

const CLUSTER: ClusterId = ClusterId(7);

/// Time of one order.
const ORDER_MILLIS: u64 = 2000;

/// Time of one probe.
const PROBE_MILLIS: u64 = 500;

impl NamenodeHost {
    pub(crate) fn new(plan: &Plan) -> Self {
        let config = NamenodeConfig {
            lease: Millis(plan.lease_millis),
            placement_seed: plan.seed,
            ramp_up: plan.background.ramp,
            preemption: plan.preemption.clone(),
            ..NamenodeConfig::default()
        };
        let machine = Namenode::new(config.clone(), CLUSTER);
        let snapshot = (encode_body(machine.catalog()), 0);
        Self {
            machine,
            config,
            snapshot,
            journal: Vec::new(),
            unapplied: 0,
            inbox: Vec::new(),
            is_turn_set: false,
            wake_at: None,
            lanes: BTreeMap::new(),
            started_at: 0,
            mistakes: Mistakes::default(),
            dies_after_journal: None,
            random: Random::new(plan.seed, 6),
        }
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        self.machine.catalog()
    }

    pub(crate) const fn commands(&self) -> u64 {
        self.journal.len() as u64
    }

    /// Replays the journal over the snapshot.
    pub(crate) fn replay(&self, now: Instant) -> Namenode {
        let catalog = decode_body(&self.snapshot.0).expect("what was written can be read");
        let mut machine = Namenode::restore(self.config.clone(), catalog, now);
        for command in &self.journal[self.snapshot.1..] {
            let _ = machine.apply(command);
        }
        machine.resume(now);
        machine
    }

    /// Replays the whole journal from its beginning.
    pub(crate) fn replay_all(&self, now: Instant) -> Namenode {
        let mut machine = Namenode::new(self.config.clone(), CLUSTER);
        for command in &self.journal {
            let _ = machine.apply(command);
        }
        machine.resume(now);
        machine
    }

    /// Writes a snapshot of a whole journal.
    pub(crate) fn write_snapshot(&mut self) {
        self.snapshot = (encode_body(self.machine.catalog()), self.journal.len());
    }
}

impl World {
    pub(crate) fn namenode_start(&mut self) {
        let now = self.clock(Place::Namenode);
        self.namenode.started_at = self.now;
        if self.lives[0] > 1 {
            self.statistics.namenode_restarts += 1;
            self.namenode_forget();
            let machine = self.namenode.replay(now);
            self.check_replay(&machine);
            self.namenode.machine = machine;
        }
        let host = &mut self.namenode;
        host.inbox.clear();
        host.is_turn_set = false;
        host.wake_at = None;
        host.lanes.clear();
        host.dies_after_journal = None;
        let commands = host.commands();
        self.namenode_commit(vec![(
            Command { at: now, action: Action::Started { commands, cut_bytes: 0 } },
            None,
        )]);
        self.namenode_wake();
    }

    fn check_replay(&mut self, machine: &Namenode) {
        let host = &mut self.namenode;
        // The process died after it had written these and before it had applied them.
        let unapplied = std::mem::take(&mut host.unapplied);
        let first = host.journal.len() - unapplied.min(host.journal.len());
        for index in first..self.namenode.journal.len() {
            let command = self.namenode.journal[index].clone();
            self.check_before(&command);
            let applied = self.namenode.machine.apply(&command);
            self.check_applied(&command, &applied);
        }
        if self.broken == Some(crate::Broken::EpochReused) {
            return;
        }
        let same = encode_body(self.namenode.machine.catalog()) == encode_body(machine.catalog());
        self.statistics.checks += 1;
        if !same {
            let (live, again) = (self.namenode.catalog().index(), machine.catalog().index());
            let message = format!("replay gives another catalog: {again} commands against {live}");
            self.violate("replay", message);
        }
    }

    pub(crate) fn namenode_ask(&mut self, from: Place, call: u64, request: Request) {
        let now = self.clock(Place::Namenode);
        // What changes nothing is answered beside the writer.
        if let Some(answer) = self.namenode.machine.read(now, &request) {
            let answer = self.mistake_answer(&request, answer);
            if let Ok(Reply::Layout(layout)) = &answer {
                let found = self.checks.blocks.told(layout);
                self.expect(found);
            }
            return self.reply(Place::Namenode, from, call, Answer::Meta(answer));
        }
        self.namenode.inbox.push(Work::Ask { from, call, request });
        self.namenode_turn_soon();
    }

    fn namenode_turn_soon(&mut self) {
        if std::mem::replace(&mut self.namenode.is_turn_set, true) {
            return;
        }
        let micros = self.namenode.random.below(self.plan.turn_micros_max + 1);
        self.set_timer(Place::Namenode, micros, Timer::Turn);
    }

    pub(crate) fn namenode_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Turn => self.namenode_turn(),
            Timer::Wake if self.namenode.wake_at.is_some_and(|at| at <= self.now) => {
                self.namenode.wake_at = None;
                self.namenode_turn();
            }
            Timer::Lane(node, is_fence) => {
                if let Some(lane) = self.namenode.lanes.get_mut(&(node, is_fence)) {
                    lane.is_busy = false;
                }
                self.namenode_lane(node, is_fence);
            }
            _ => {}
        }
    }

    /// Does everything that waits, and what time has made necessary.
    fn namenode_turn(&mut self) {
        self.namenode.is_turn_set = false;
        let now = self.clock(Place::Namenode);
        let inbox = std::mem::take(&mut self.namenode.inbox);
        let mut commands: Vec<(Command, Origin)> = Vec::new();
        let mut asked = Vec::new();
        for work in inbox {
            let machine = &mut self.namenode.machine;
            let own = match work {
                Work::Ask { from, call, request } => {
                    asked.push((from, call, request));
                    continue;
                }
                Work::Ordered(order, reply) => machine.ordered(now, &order, reply),
                Work::Probed(node, outcome) => machine.probed(now, node, outcome),
            };
            commands.extend(own.into_iter().map(|command| (command, None)));
        }
        if self.namenode.machine.deadline().is_some_and(|due| due <= now) {
            let due = self.namenode.machine.tick(now);
            let due = self.mistake_due(due);
            commands.extend(due.into_iter().map(|command| (command, None)));
            for (node, address) in self.namenode.machine.to_probe(now) {
                let Some(place) = Place::at(&address) else { continue };
                let purpose = Purpose::Namenode(NamenodeCall::Probe(node));
                self.call(
                    Place::Namenode,
                    place,
                    Ask::Data(node, DataAsk::Hello),
                    PROBE_MILLIS,
                    purpose,
                );
            }
        }
        for (from, call, request) in asked {
            let asked = request.clone();
            let request = self.mistake_request(request);
            let prepared = self.namenode.machine.prepare(now, request);
            match self.mistake_prepared(prepared) {
                Prepared::Answer(answer) => {
                    self.check_full(&asked, &answer);
                    self.reply(Place::Namenode, from, call, Answer::Meta(answer));
                }
                Prepared::Log(command) => {
                    let command = self.mistake_command(command);
                    commands.push((command, Some((from, call, asked))));
                }
            }
        }
        self.namenode_commit(commands);
        self.namenode_wake();
    }

    /// Writes commands to the journal, then applies them.
    fn namenode_commit(&mut self, commands: Vec<(Command, Origin)>) {
        if commands.is_empty() {
            return;
        }
        for (command, _) in &commands {
            self.namenode.journal.push(command.clone());
        }
        if let Some(down_millis) = self.namenode.dies_after_journal.take() {
            self.namenode.unapplied = commands.len();
            self.kill(Place::Namenode, down_millis);
            return;
        }
        for (command, origin) in commands {
            let applied = self.namenode_apply(&command, origin.as_ref());
            if self.violation.is_some() {
                return;
            }
            for order in applied.orders {
                self.namenode_order(order);
            }
            if let Some((from, call, request)) = origin {
                let answer = self.mistake_answer(&request, applied.result);
                self.reply(Place::Namenode, from, call, Answer::Meta(answer));
            }
        }
        let records = self.namenode.journal.len() - self.namenode.snapshot.1;
        if records as u64 >= self.plan.snapshot_every {
            self.namenode.write_snapshot();
        }
    }

    fn namenode_apply(
        &mut self,
        command: &Command,
        origin: Option<&(Place, u64, Request)>,
    ) -> Applied {
        let index = self.namenode.catalog().index();
        self.log.event(self.now, 10, index, || format!("namenode: [{index}] {:?}", command.action));
        self.check_before(command);
        let applied = self.mistake_around(command);
        if !applied.orders.is_empty() || applied.result.is_err() {
            self.log.event(self.now, 11, applied.orders.len() as u64, || {
                format!("namenode: [{index}] gives {:?} {:?}", applied.result, applied.orders)
            });
        }
        let applied = self.mistake_applied(command, origin.map(|(_, _, request)| request), applied);
        if self.violation.is_none() {
            self.check_applied(command, &applied);
        }
        if let Some((from, _, request)) = origin {
            self.check_answer(*from, request, &applied.result);
        }
        applied
    }

    fn namenode_wake(&mut self) {
        let Some(due) = self.namenode.machine.deadline() else { return };
        // Never faster than the real shell's shortest sleep.
        let at = self.now + self.until(Place::Namenode, due).max(1000);
        if self.namenode.wake_at.is_none_or(|before| at < before) {
            self.namenode.wake_at = Some(at);
            self.set_timer(Place::Namenode, at - self.now, Timer::Wake);
        }
    }

    fn namenode_order(&mut self, order: DatanodeOrder) {
        let is_fence = matches!(order.order, Order::FenceNode { .. } | Order::UnfenceNode);
        let node = order.node;
        self.namenode.lanes.entry((node, is_fence)).or_default().waiting.push_back(order);
        self.namenode_lane(node, is_fence);
    }

    fn namenode_lane(&mut self, node: NodeId, is_fence: bool) {
        let policy = self.namenode.catalog().node_policy(node).map(|(policy, _)| policy);
        let Some(lane) = self.namenode.lanes.get_mut(&(node, is_fence)) else { return };
        if policy.is_none_or(|policy| policy == Policy::Gone) {
            self.namenode.lanes.remove(&(node, is_fence));
            return;
        }
        if lane.is_busy {
            return;
        }
        let Some(order) = lane.waiting.front().cloned() else { return };
        let Some(place) = Place::at(&order.address) else { return };
        lane.is_busy = true;
        let ask = Ask::Data(node, DataAsk::Order(order.order.clone()));
        let purpose = Purpose::Namenode(NamenodeCall::Order(Box::new(order), is_fence));
        self.call(Place::Namenode, place, ask, ORDER_MILLIS, purpose);
    }

    pub(crate) fn namenode_answered(&mut self, call: NamenodeCall, answer: Option<Answer>) {
        match call {
            NamenodeCall::Order(order, is_fence) => {
                let (node, key) = (order.node, (order.node, is_fence));
                let work = match answer {
                    Some(Answer::Data(Ok(DataAnswer::Order(reply)))) => {
                        Work::Ordered(order, Some(reply))
                    }
                    Some(Answer::Data(Err(Refusal::WrongNode { .. }))) => {
                        self.namenode.lanes.remove(&key);
                        Work::Probed(node, Probe::Refused)
                    }
                    _ => Work::Ordered(order, None),
                };
                let is_done = matches!(work, Work::Ordered(_, Some(_)));
                self.namenode.inbox.push(work);
                self.namenode_turn_soon();
                let Some(lane) = self.namenode.lanes.get_mut(&key) else { return };
                if is_done {
                    lane.waiting.pop_front();
                    (lane.is_busy, lane.tries) = (false, 0);
                    self.namenode_lane(node, is_fence);
                } else {
                    lane.tries += 1;
                    let micros = (50_000 << lane.tries.min(5)).min(1_000_000);
                    self.set_timer(Place::Namenode, micros, Timer::Lane(node, is_fence));
                }
            }
            NamenodeCall::Probe(node) => {
                let outcome = match answer {
                    Some(Answer::Refused) => Probe::Refused,
                    answer => match data(answer) {
                        Some(Err(_)) => Probe::Refused,
                        Some(Ok(_)) => Probe::Alive,
                        None => Probe::Timeout,
                    },
                };
                self.namenode.inbox.push(Work::Probed(node, outcome));
                self.namenode_turn_soon();
            }
        }
    }

    /// Asks the namenode what it would answer now, from outside the world.
    pub(crate) fn peek(&self, request: &Request) -> Result<Reply, Refusal> {
        let now = self.clock(Place::Namenode);
        self.namenode.machine.read(now, request).expect("only reads are peeked at")
    }
}

impl NamenodeHost {
    /// Loses the last record, unless a snapshot has it.
    pub(crate) fn forget_last(&mut self) {
        if self.journal.len() > self.snapshot.1 {
            self.journal.pop();
        }
    }

    /// Loses the reservations behind the last commit and the last snapshot.
    pub(crate) fn forget_reservations(&mut self) {
        let is_commit = |command: &Command| matches!(command.action, Action::Commit { .. });
        let last = self.journal.iter().rposition(is_commit).map_or(0, |last| last + 1);
        let tail = self.journal.split_off(last.max(self.snapshot.1).min(self.journal.len()));
        let kept = tail.into_iter().filter(|it| !matches!(it.action, Action::Reserve { .. }));
        self.journal.extend(kept);
    }
}
