//! The namenode's group commit: the machine that the servers run, over what waits in the
//! simulation.

use sanderling_core::access::Claims;
use sanderling_core::catalog::{Catalog, Command, DatanodeOrder};
use sanderling_core::membership::PROBE_TIMEOUT;
use sanderling_core::namenode::{
    BatchBounds, CommandOrigin, CommitBatch, CommitWork as Taken, Decides, GroupCommit, Prepared,
    Probe, Unwritten,
};
use sanderling_protocol::{Instant, Millis, NodeId, OrderReply, Refusal, Request};

use super::queue::FrameCalls;
use super::serve::NamenodeContext;
use super::{NamenodeHost, NamenodeWork};
use crate::event::{NamenodeCall, Purpose};
use crate::wire::{DataRequest, Host, RequestBody};

/// The number of each frame, and its requests or those of the part that is being made.
type FrameParts = [(u64, FrameCalls)];

/// Time in microseconds between two looks at what has come: the writer waits no longer for work.
const LOOK_MICROS: u64 = GroupCommit::SLEEP_MAX.0 * 1000;

/// The namenode with the injected bugs and the checks around it.
struct Decider<'a, 'b> {
    namenode: &'a mut NamenodeHost,
    context: &'a mut NamenodeContext<'b>,
}

impl Decides for Decider<'_, '_> {
    fn catalog(&self) -> &Catalog {
        self.namenode.catalog()
    }

    fn prepare(&mut self, now: Instant, asked: Request) -> Prepared {
        let Self { namenode, context } = self;
        let micros = context.runtime.now();
        let request = namenode.bug_request(asked.clone(), micros);
        let answer = namenode.bug_beat(&request, micros);
        let prepared = match answer.or_else(|| namenode.bug_suspect(&request)) {
            Some(answer) => Prepared::Answer(answer),
            None => namenode.machine.prepare(now, request),
        };
        match namenode.bug_prepared(prepared) {
            Prepared::Answer(answer) => {
                context.checking(namenode).answered_at_once(&asked, &answer);
                Prepared::Answer(answer)
            }
            Prepared::Log(command) => {
                let command = namenode.bug_command(command);
                namenode.logged.push((command.clone(), asked));
                Prepared::Log(command)
            }
        }
    }

    fn refuses(&mut self, command: &Command) -> Option<Refusal> {
        let refusal = self.namenode.machine.refuses(command)?;
        self.context.checks.made.not_logged(command);
        Some(refusal)
    }

    fn allows(&self, claims: &Claims, request: &Request) -> Result<(), Refusal> {
        self.namenode.machine.allows(claims, request)
    }

    fn listened(&mut self, now: Instant) -> Option<Command> {
        let command = self.namenode.machine.listened(now)?;
        self.namenode.bug_absence(command)
    }

    fn ordered(
        &mut self,
        now: Instant,
        order: &DatanodeOrder,
        reply: Option<OrderReply>,
    ) -> Vec<Command> {
        self.namenode.machine.ordered(now, order, reply)
    }

    fn probed(&mut self, now: Instant, node: NodeId, outcome: Probe) -> Vec<Command> {
        self.context.checks.suspects.saw(node);
        let outcome = self.namenode.bug_probe(outcome);
        self.namenode.machine.probed(now, node, outcome)
    }

    fn deadline(&self) -> Option<Instant> {
        self.namenode.machine.deadline()
    }

    fn tick(&mut self, now: Instant) -> Vec<Command> {
        let due = self.namenode.machine.tick(now);
        self.namenode.bug_due(due)
    }

    fn to_probe(&mut self, now: Instant) -> Vec<(NodeId, String)> {
        self.namenode.machine.to_probe(now)
    }
}

impl NamenodeHost {
    /// Lets group commit decide something.
    fn decide<T>(
        &mut self,
        context: &mut NamenodeContext<'_>,
        decide: impl FnOnce(&mut GroupCommit, &mut Decider<'_, '_>) -> T,
    ) -> T {
        let mut commit = self.group_commit.clone();
        let mut decider = Decider { namenode: self, context };
        let decided = decide(&mut commit, &mut decider);
        self.group_commit = commit;
        decided
    }

    /// Does everything that waits, and what time has made necessary.
    pub(super) fn do_work(&mut self, context: &mut NamenodeContext<'_>) {
        self.is_work_due = false;
        self.looks(context);
        let (mut asked, mut work) = (Vec::new(), Vec::new());
        let own = self.inbox.len().min(BatchBounds::OWN_MAX);
        for waiting in self.inbox.drain(..own) {
            work.push(match waiting {
                NamenodeWork::Ordered(order, reply) => Taken::Ordered(*order, reply),
                NamenodeWork::Probed(node, outcome) => Taken::Probed(node, outcome),
            });
        }
        for (frame, requests) in self.take_batch(context) {
            let taken = requests.iter().map(|(_, request)| request.clone()).collect();
            work.push(Taken::Frame(taken, None));
            asked.push((frame, requests));
        }
        let now = self.clock(context.runtime.now());
        let mut batch = self.decide(context, |commit, decider| commit.take(now, decider, work));
        let dialled: Vec<NodeId> = batch.probes.iter().map(|(node, _)| *node).collect();
        context.checking(self).dialled(&dialled);
        for (node, address) in std::mem::take(&mut batch.probes) {
            let Some(place) = Host::at(&address) else { continue };
            let (body, call) =
                (RequestBody::Data(node, DataRequest::Hello), NamenodeCall::Probe(node));
            let purpose = Purpose::Namenode(call);
            context.runtime.call(Host::Namenode, place, body, PROBE_TIMEOUT.0, purpose);
        }
        self.work_off(context, batch, &asked);
        self.go_on(context);
        if !self.inbox.is_empty() || !self.queues.changes.is_empty() {
            self.work_soon(context);
        }
        self.check_idle(context);
        self.wake(context);
    }

    /// Takes the frames of the next batch.
    fn take_batch(&mut self, context: &mut NamenodeContext<'_>) -> Vec<(u64, FrameCalls)> {
        let mut batch = Vec::new();
        for (tenant, part) in self.queues.take_changes() {
            let cost = self.queues.cost(part.requests.len());
            let found = context.checks.change_turns.took(tenant, part.frame, cost);
            context.runtime.expect(found);
            context.checks.change_turns.ended(tenant, part.frame);
            batch.push((part.frame, part.requests));
        }
        let is_full = !self.queues.changes.is_empty();
        context.runtime.statistics_mut().full_batches += u64::from(is_full);
        batch
    }

    /// Looks at what has come, as the real shell does several times a second while not stopped.
    pub(super) fn looks(&mut self, context: &mut NamenodeContext<'_>) {
        let now = self.clock(context.runtime.now());
        let mut at = self.looked_until + LOOK_MICROS;
        while at < context.runtime.now() {
            if !self.frozen.contains(&at) {
                let looked = now - Millis((context.runtime.now() - at) / 1000);
                // What it would decide is decided again by the batch.
                let _ = self.decide(context, |commit, decider| commit.grant_grace(looked, decider));
            }
            at += LOOK_MICROS;
        }
        self.looked_until = context.runtime.now();
    }

    /// Writes and applies the rounds of a batch, and sends the answers.
    pub(super) fn work_off(
        &mut self,
        context: &mut NamenodeContext<'_>,
        mut batch: CommitBatch,
        asked: &FrameParts,
    ) {
        let now = self.clock(context.runtime.now());
        loop {
            if batch.must_prepare() {
                self.logged.clear();
                batch.prepare(now, &mut Decider { namenode: self, context });
            }
            if batch.commands().len() == 0 {
                break;
            }
            if !self.commit(context, now, &mut batch, asked) {
                return;
            }
        }
        for ((frame, requests), answers) in asked.iter().zip(batch.finish()) {
            self.changed(context, *frame, requests, answers);
        }
        if let Some((down_millis, kept_permille)) = self.disk.ends.take() {
            self.crash(context, down_millis, kept_permille, false);
        }
    }

    /// Writes a round to the journal, then applies it. Returns whether the process still runs.
    fn commit(
        &mut self,
        context: &mut NamenodeContext<'_>,
        now: Instant,
        batch: &mut CommitBatch,
        asked: &FrameParts,
    ) -> bool {
        if self.group_commit.is_late(batch) {
            self.decide(context, |commit, decider| commit.grace_after(batch, decider));
        }
        if let Err(why) = self.write(context, batch) {
            context.runtime.log(16, 0, || format!("namenode: not written: {why:?}"));
            self.machine.refused();
            self.decide(context, |commit, _| commit.refuse(batch, now, &why));
            return true;
        }
        if let Some(down_millis) = self.dies_after_journal.take() {
            self.unapplied = batch.commands().len();
            self.kill(context, down_millis);
            return false;
        }
        let logged = std::mem::take(&mut self.logged);
        let orders = batch.apply(|command, origin| {
            let request = match origin {
                CommandOrigin::Frame(place) => {
                    asked.get(place).and_then(|(_, frame)| request_of(command, frame, &logged))
                }
                CommandOrigin::Own => None,
            };
            self.apply(context, command, request)
        });
        self.machine.committed(now, now);
        orders.into_iter().for_each(|order| self.order(context, order));
        let records = self.journal.len() - self.snapshot.records;
        if self.schedule.is_due(now, records as u64) && !context.runtime.has_violation() {
            self.write_snapshot();
        }
        true
    }

    fn write(
        &mut self,
        context: &mut NamenodeContext<'_>,
        batch: &mut CommitBatch,
    ) -> Result<(), Unwritten<&'static str>> {
        let is_start = self.group_commit.lead(batch);
        self.disk.admit(context.runtime.now())?;
        let now = context.runtime.now();
        let served_millis = self.served_millis(now);
        self.journal.extend(batch.commands().cloned());
        self.disk.wrote(self.journal.len(), now, served_millis);
        if is_start {
            // The disk has the beginning of this process before any answer is sent.
            self.disk.settle();
            self.group_commit.has_begun();
        }
        Ok(())
    }

    /// Writes and applies what a start begins with.
    pub(super) fn begin(&mut self, context: &mut NamenodeContext<'_>, begun: Vec<Command>) {
        let batch = self.group_commit.begin(begun);
        self.work_off(context, batch, &[]);
        self.wake(context);
    }

    /// Sets a timer for when time makes a batch necessary.
    pub(super) fn wake(&mut self, context: &mut NamenodeContext<'_>) {
        let Some(due) = self.decide(context, |commit, decider| commit.due(decider)) else { return };
        self.wake_by(context, due);
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
