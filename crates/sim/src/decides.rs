//! The namenode's turns: the machine that the servers run, over what waits in the simulation.

use sanderling_core::access::Claims;
use sanderling_core::catalog::{Catalog, Command, DatanodeOrder};
use sanderling_core::namenode::{
    Decides, Origin, Prepared, Probe, Turn, TurnWork as Taken, Turns, Unwritten,
};
use sanderling_protocol::{Instant, Millis, NodeId, OrderReply, Refusal, Request};

use crate::event::{NamenodeCall, Purpose};
use crate::namenode::NamenodeWork;
use crate::wire::{Ask, DataAsk, Host, Response};
use crate::world::World;

/// Who waits for the answers of each frame, and what was asked by which call.
type PendingFrames = Vec<(Host, Vec<(u64, Request)>)>;

/// Time between two looks at what has come.
const LOOK_MICROS: u64 = 100_000;

/// Time of one probe.
const PROBE_MILLIS: u64 = 500;

/// The namenode with the mistakes and the checks around it.
struct Decider<'a>(&'a mut World);

impl Decides for Decider<'_> {
    fn catalog(&self) -> &Catalog {
        self.0.namenode.catalog()
    }

    fn prepare(&mut self, now: Instant, asked: Request) -> Prepared {
        let world = &mut *self.0;
        let request = world.mistake_request(asked.clone());
        let prepared = match world.mistake_beat(&request) {
            Some(answer) => Prepared::Answer(answer),
            None => world.namenode.machine.prepare(now, request),
        };
        match world.mistake_prepared(prepared) {
            Prepared::Answer(answer) => {
                world.check_beat(&asked, answer.as_ref().ok());
                world.check_full(&asked, &answer);
                world.check_repeated(&asked, &answer);
                Prepared::Answer(answer)
            }
            Prepared::Log(command) => {
                let command = world.mistake_command(command);
                world.namenode.logged.push((command.clone(), asked));
                Prepared::Log(command)
            }
        }
    }

    fn refuses(&mut self, command: &Command) -> Option<Refusal> {
        let refusal = self.0.namenode.machine.refuses(command)?;
        self.0.note_not_logged(command);
        Some(refusal)
    }

    fn allows(&self, claims: &Claims, request: &Request) -> Result<(), Refusal> {
        self.0.namenode.machine.allows(claims, request)
    }

    fn listened(&mut self, now: Instant) -> Option<Command> {
        let command = self.0.namenode.machine.listened(now)?;
        self.0.mistake_absence(command)
    }

    fn ordered(
        &mut self,
        now: Instant,
        order: &DatanodeOrder,
        reply: Option<OrderReply>,
    ) -> Vec<Command> {
        self.0.namenode.machine.ordered(now, order, reply)
    }

    fn probed(&mut self, now: Instant, node: NodeId, outcome: Probe) -> Vec<Command> {
        let outcome = self.0.mistake_probe(outcome);
        self.0.namenode.machine.probed(now, node, outcome)
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.namenode.machine.deadline()
    }

    fn tick(&mut self, now: Instant) -> Vec<Command> {
        let due = self.0.namenode.machine.tick(now);
        self.0.mistake_due(due)
    }

    fn to_probe(&mut self, now: Instant) -> Vec<(NodeId, String)> {
        self.0.namenode.machine.to_probe(now)
    }
}

impl World {
    /// Lets the turns decide something.
    fn turns<T>(&mut self, decide: impl FnOnce(&mut Turns, &mut Decider<'_>) -> T) -> T {
        let mut turns = self.namenode.turns.clone();
        let decided = decide(&mut turns, &mut Decider(self));
        self.namenode.turns = turns;
        decided
    }

    /// Does everything that waits, and what time has made necessary.
    pub(crate) fn namenode_turn(&mut self) {
        self.namenode.is_turn_set = false;
        self.namenode_looks();
        let (mut asked, mut work) = (PendingFrames::new(), Vec::new());
        for waiting in std::mem::take(&mut self.namenode.inbox) {
            work.push(match waiting {
                NamenodeWork::Ask { from, asked: frame } => {
                    let requests = frame.iter().map(|(_, request)| request.clone()).collect();
                    asked.push((from, frame));
                    Taken::Frame(requests, None)
                }
                NamenodeWork::Ordered(order, reply) => Taken::Ordered(*order, reply),
                NamenodeWork::Probed(node, outcome) => Taken::Probed(node, outcome),
            });
        }
        let now = self.namenode.clock(self.runtime.now());
        let mut turn = self.turns(|turns, decider| turns.take(now, decider, work));
        for (node, address) in std::mem::take(&mut turn.probes) {
            let Some(place) = Host::at(&address) else { continue };
            let (ask, call) = (Ask::Data(node, DataAsk::Hello), NamenodeCall::Probe(node));
            self.runtime.call(Host::Namenode, place, ask, PROBE_MILLIS, Purpose::Namenode(call));
        }
        self.namenode_work_off(turn, &asked);
        self.namenode_wake();
    }

    /// Looks at what has come, as the real shell does several times a second while not stopped.
    fn namenode_looks(&mut self) {
        let now = self.namenode.clock(self.runtime.now());
        let mut at = self.namenode.looked_until + LOOK_MICROS;
        while at < self.runtime.now() {
            if !self.namenode.frozen.contains(&at) {
                let looked = now - Millis((self.runtime.now() - at) / 1000);
                // What it would say is said again by the turn.
                let _ = self.turns(|turns, decider| turns.grant_grace(looked, decider));
            }
            at += LOOK_MICROS;
        }
        self.namenode.looked_until = self.runtime.now();
    }

    /// Writes and applies the rounds of a turn, and answers who asked.
    pub(crate) fn namenode_work_off(&mut self, mut turn: Turn, asked: &PendingFrames) {
        let now = self.namenode.clock(self.runtime.now());
        loop {
            if turn.must_prepare() {
                self.namenode.logged.clear();
                turn.prepare(now, &mut Decider(self));
            }
            if turn.commands().len() == 0 {
                break;
            }
            if !self.namenode_commit(now, &mut turn, asked) {
                return;
            }
        }
        for ((from, frame), answers) in asked.iter().zip(turn.finish()) {
            let mut replies = Vec::with_capacity(frame.len());
            for ((call, request), answer) in frame.iter().zip(answers) {
                replies.push((*call, Response::Meta(self.mistake_answer(request, answer))));
            }
            self.runtime.reply_frame(*from, replies);
        }
        if let Some((down_millis, kept_permille)) = self.namenode.disk.ends.take() {
            self.crash_namenode(down_millis, kept_permille, false);
        }
    }

    /// Writes a round to the journal, then applies it. Tells whether the process still runs.
    fn namenode_commit(&mut self, now: Instant, turn: &mut Turn, asked: &PendingFrames) -> bool {
        if self.namenode.turns.is_late(turn) {
            self.turns(|turns, decider| turns.grace_after(turn, decider));
        }
        if let Err(why) = self.namenode_write(turn) {
            self.runtime.log(16, 0, || format!("namenode: not written: {why:?}"));
            self.namenode.machine.refused();
            self.turns(|turns, _| turns.refuse(turn, now, &why));
            return true;
        }
        if let Some(down_millis) = self.namenode.dies_after_journal.take() {
            self.namenode.unapplied = turn.commands().len();
            self.kill(Host::Namenode, down_millis);
            return false;
        }
        let logged = std::mem::take(&mut self.namenode.logged);
        let orders = turn.apply(|command, origin| {
            let origin = match origin {
                Origin::Frame(place) => asked
                    .get(place)
                    .and_then(|(from, frame)| Some((*from, request_of(command, frame, &logged)?))),
                Origin::Own => None,
            };
            self.namenode_apply(command, origin)
        });
        self.namenode.machine.committed(now, now);
        orders.into_iter().for_each(|order| self.namenode_order(order));
        let records = self.namenode.journal.len() - self.namenode.snapshot.records;
        if records as u64 >= self.runtime.plan().snapshot_every && !self.runtime.has_violation() {
            self.namenode.write_snapshot();
        }
        true
    }

    fn namenode_write(&mut self, turn: &mut Turn) -> Result<(), Unwritten> {
        let is_start = self.namenode.turns.lead(turn);
        self.namenode.disk.admit(self.runtime.now())?;
        let served_millis = self.served_millis();
        let host = &mut self.namenode;
        host.journal.extend(turn.commands().cloned());
        host.disk.wrote(host.journal.len(), self.runtime.now(), served_millis);
        if is_start {
            // The disk has what says that this process began before anybody is answered.
            host.disk.settle();
            host.turns.has_begun();
        }
        Ok(())
    }

    /// Writes and applies what a start begins with.
    pub(crate) fn namenode_begin(&mut self, begun: Vec<Command>) {
        let turn = self.namenode.turns.begin(begun);
        self.namenode_work_off(turn, &Vec::new());
        self.namenode_wake();
    }

    /// Sets a timer for when time makes a turn necessary.
    fn namenode_wake(&mut self) {
        let Some(due) = self.turns(|turns, decider| turns.due(decider)) else { return };
        self.namenode_wake_at(due);
    }
}

/// Returns the request of a frame that became a command.
fn request_of<'a>(
    command: &Command,
    frame: &'a [(u64, Request)],
    logged: &'a [(Command, Request)],
) -> Option<&'a Request> {
    match frame {
        [(_, request)] => Some(request),
        _ => logged.iter().find(|(of, _)| of == command).map(|(_, request)| request),
    }
}
