//! What the simulated namenode does with its timers, the answers to its calls, and the requests
//! that it receives.

use sanderling_core::catalog::{Action, Applied, Catalog, Command, DatanodeOrder};
use sanderling_core::group_generation::GroupGeneration;
use sanderling_core::membership::Probe;
use sanderling_core::namenode::{
    GroupCommit, Namenode, ORDER_TIMEOUT, OrderKind, OrderLeadership, OrderStep, start_time,
};
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::{Instant, NodeId, Request, Term};

use super::{NamenodeHost, NamenodeWork};
use crate::InjectedBug;
use crate::check::{Checking, Checks};
use crate::client::key;
use crate::datanode::Datanode;
use crate::event::{NamenodeCall, Purpose, Timer};
use crate::runtime::Runtime;
use crate::wire::{DataAnswer, DataRequest, Host, RequestBody, Response, call_outcome};

/// The namenode that gives simulated datanodes their orders is no member of a group.
const ALONE: OrderLeadership =
    OrderLeadership { term: 0, generation: GroupGeneration(0), serves: true };

/// What is around the namenode.
pub(crate) struct NamenodeContext<'a> {
    pub(crate) runtime: &'a mut Runtime,
    pub(crate) checks: &'a mut Checks,
    /// What the checkers compare the catalog with.
    pub(crate) datanodes: &'a [Datanode],
}

impl NamenodeContext<'_> {
    /// Lets the checkers look at the namenode.
    pub(super) const fn checking<'a>(&'a mut self, namenode: &'a NamenodeHost) -> Checking<'a> {
        let Self { runtime, checks, datanodes } = self;
        Checking { checks, runtime, namenode, datanodes }
    }
}

impl NamenodeHost {
    pub(crate) fn start(&mut self, context: &mut NamenodeContext<'_>) {
        self.clock_base = self.clock(context.runtime.now());
        self.started_at = context.runtime.now();
        self.frozen = 0..0;
        self.looked_until = context.runtime.now();
        self.served_micros.1 = context.runtime.now();
        if context.runtime.has_bug(InjectedBug::OldFormatMisread) {
            self.format = Catalog::FORMAT_MIN;
        }
        if context.runtime.life(Host::Namenode) == 1 {
            // A new cluster, or one of the release before.
            self.machine = self.replay();
        } else {
            context.runtime.statistics_mut().namenode_restarts += 1;
            self.bug_forget();
            self.read(context);
        }
        let now = self.clock_starts(context);
        self.inbox.clear();
        self.queues.restart(context.runtime.plan());
        context.checks.restart_frames();
        context.checks.suspects.restart();
        self.is_work_due = false;
        self.wake_at = None;
        self.order_queues.clear();
        self.dies_after_journal = None;
        let (commands, term) = (self.commands(), Term(self.random.next()));
        let mut begun = self.machine.begin(now, term, commands, 0);
        if commands == 0 {
            // The operator, the writers and the callers, in the order of their numbers.
            let others = context.runtime.plan().writers + context.runtime.plan().callers;
            let numbers = 1..=1 + u64::from(others);
            let open = |number| Action::OpenClient { key: key(number) };
            begun.extend(numbers.map(|number| Command { at: now, action: open(number) }));
        }
        if context.runtime.has_bug(InjectedBug::ReserveIgnored) {
            begun.retain(|command| !matches!(command.action, Action::Departures { .. }));
        }
        let begun = self.bug_begun(begun);
        self.group_commit = GroupCommit::new(now);
        self.begin(context, begun);
    }

    /// Reads what an earlier process left.
    fn read(&mut self, context: &mut NamenodeContext<'_>) {
        if let Some(lost) = self.disk.lost.take() {
            self.unapplied = 0;
            self.lose_end(context, lost);
        }
        let machine = self.replay();
        self.check_replay(context, &machine);
        self.machine = machine;
        context.checking(self).started();
        // What was read is on the disk before anything is written behind it.
        self.disk.settle();
    }

    /// Starts the process's clock: by the machine's and by the log.
    fn clock_starts(&mut self, context: &mut NamenodeContext<'_>) -> Instant {
        let wall = context.runtime.clock(Host::Namenode);
        let floor = self.catalog().now();
        self.clock_base = self.bug_clock(wall).unwrap_or(start_time(floor, wall));
        self.clock_base
    }

    fn check_replay(&mut self, context: &mut NamenodeContext<'_>, machine: &Namenode) {
        let served = self.served_millis(context.runtime.now());
        // The process died after it had written these and before it had applied them.
        let unapplied = std::mem::take(&mut self.unapplied);
        let first = self.journal.len() - unapplied.min(self.journal.len());
        for index in first..self.journal.len() {
            let command = self.journal[index].clone();
            context.checking(self).before(&command);
            let arriving = context.checking(self).arriving(&command, None);
            let applied = self.machine.apply(&command);
            if !context.checking(self).made(arriving, &applied.result) {
                context.checking(self).applied(&command, &applied, served);
            }
        }
        if context.runtime.has_bug(InjectedBug::EpochReused) {
            return;
        }
        let is_same = encode_body(self.catalog()) == encode_body(machine.catalog());
        let (live, again) = (self.catalog().index(), machine.catalog().index());
        let text = || format!("replay gives another catalog: {again} commands against {live}");
        context.runtime.expect(if is_same { Ok(()) } else { Err(("replay", text())) });
    }

    pub(super) fn work_soon(&mut self, context: &mut NamenodeContext<'_>) {
        if std::mem::replace(&mut self.is_work_due, true) {
            return;
        }
        let micros = self.random.below(context.runtime.plan().gather_micros_max + 1);
        context.runtime.set_timer(Host::Namenode, micros, Timer::Commit);
    }

    pub(crate) fn timer(&mut self, context: &mut NamenodeContext<'_>, timer: Timer) {
        match timer {
            Timer::Commit => self.do_work(context),
            Timer::Slice => self.slice(context),
            Timer::Wake if self.wake_at.is_some_and(|at| at <= context.runtime.now()) => {
                self.wake_at = None;
                self.do_work(context);
            }
            Timer::OrderQueue(node, kind) => {
                if let Some(orders) = self.order_queues.get_mut(&(node, kind)) {
                    orders.is_busy = false;
                }
                self.send_order(context, (node, kind));
            }
            _ => {}
        }
    }

    /// Stops the process for a while.
    pub(super) fn freeze(&mut self, context: &mut NamenodeContext<'_>, millis: u64) {
        if !context.runtime.is_up(Host::Namenode) || context.runtime.is_stopped(Host::Namenode) {
            return;
        }
        self.count_served(context.runtime.now());
        let until = context.runtime.now() + millis * 1000;
        self.frozen = context.runtime.now()..until;
        context.runtime.stop(Host::Namenode, millis);
        self.served_micros.1 = until;
        context.runtime.set_timer(Host::Namenode, millis * 1000, Timer::Commit);
    }

    /// Ends the process at once; another starts after a while.
    pub(crate) fn kill(&mut self, context: &mut NamenodeContext<'_>, down_millis: u64) {
        if context.runtime.is_up(Host::Namenode) {
            self.count_served(context.runtime.now());
            self.frozen = 0..0;
            context.runtime.kill(Host::Namenode, down_millis);
        }
    }

    pub(crate) fn apply(
        &mut self,
        context: &mut NamenodeContext<'_>,
        command: &Command,
        asked: Option<&Request>,
    ) -> Applied {
        let index = self.catalog().index();
        context.runtime.log(10, index, || format!("namenode: [{index}] {:?}", command.action));
        context.checking(self).before(command);
        let arriving = context.checking(self).arriving(command, asked);
        let applied = self.bug_around(command);
        if !applied.orders.is_empty() || applied.result.is_err() {
            context.runtime.log(11, applied.orders.len() as u64, || {
                format!("namenode: [{index}] gives {:?} {:?}", applied.result, applied.orders)
            });
        }
        let now = context.runtime.now();
        let mut applied = self.bug_applied(command, applied, now);
        for (order, reply) in self.bug_fences(&mut applied) {
            self.inbox.push(NamenodeWork::Ordered(Box::new(order), Some(reply)));
            self.work_soon(context);
        }
        if context.checking(self).made(arriving, &applied.result) {
            return applied;
        }
        if !context.runtime.has_violation() {
            let served = self.served_millis(now);
            context.checking(self).applied(command, &applied, served);
        }
        if let Some(request) = asked {
            context.checking(self).answered(request, &applied.result);
        }
        applied
    }

    pub(crate) fn wake_by(&mut self, context: &mut NamenodeContext<'_>, due: Instant) {
        // The writer sleeps no shorter.
        let sleep_min = GroupCommit::SLEEP_MIN.0 * 1000;
        let now = context.runtime.now();
        let at = now + due.0.saturating_sub(self.clock(now).0).max(sleep_min);
        if self.wake_at.is_none_or(|before| at < before) {
            self.wake_at = Some(at);
            context.runtime.set_timer(Host::Namenode, at - now, Timer::Wake);
        }
    }

    pub(crate) fn order(&mut self, context: &mut NamenodeContext<'_>, order: DatanodeOrder) {
        let key = (order.node, OrderKind::of(&order.order));
        let now = self.clock(context.runtime.now());
        // One too many is given up, as by the server.
        let _ = self.order_queues.entry(key).or_default().queue.push(now, order);
        self.send_order(context, key);
    }

    fn send_order(&mut self, context: &mut NamenodeContext<'_>, key: (NodeId, OrderKind)) {
        let now = self.clock(context.runtime.now());
        let policy = self.catalog().node_policy(key.0).map(|(policy, _)| policy);
        if !ALONE.may_send(ALONE.term, policy) {
            self.order_queues.remove(&key);
            return;
        }
        let Some(orders) = self.order_queues.get_mut(&key).filter(|it| !it.is_busy) else { return };
        let Some(DatanodeOrder { node, address, order }) = orders.queue.first(now) else { return };
        let Some(place) = Host::at(&address) else { return };
        orders.is_busy = true;
        let body = RequestBody::Data(node, DataRequest::Order(order));
        let purpose = Purpose::Namenode(NamenodeCall::Order(node, key.1));
        context.runtime.call(Host::Namenode, place, body, ORDER_TIMEOUT.0, purpose);
    }

    pub(crate) fn answered(
        &mut self,
        context: &mut NamenodeContext<'_>,
        call: NamenodeCall,
        answer: Option<Response>,
    ) {
        match call {
            NamenodeCall::Order(node, kind) => {
                let key = (node, kind);
                let answer = match answer {
                    Some(Response::Data(Ok(DataAnswer::Order(reply)))) => Some(Ok(reply)),
                    Some(Response::Data(Err(refusal))) => Some(Err(refusal)),
                    _ => None,
                };
                let Some(orders) = self.order_queues.get_mut(&key) else { return };
                let (work, pause) = match orders.queue.answered(answer) {
                    Some(OrderStep::Replied(order, reply)) => {
                        (NamenodeWork::Ordered(Box::new(order), Some(reply)), None)
                    }
                    Some(OrderStep::Again(order, pause)) => {
                        (NamenodeWork::Ordered(Box::new(order), None), Some(pause))
                    }
                    Some(OrderStep::NodeEnded) => {
                        (NamenodeWork::Probed(node, Probe::Refused), None)
                    }
                    None => return,
                };
                orders.is_busy = pause.is_some();
                self.inbox.push(work);
                self.work_soon(context);
                match pause {
                    Some(pause) => {
                        let timer = Timer::OrderQueue(node, kind);
                        context.runtime.set_timer(Host::Namenode, pause.0 * 1000, timer);
                    }
                    None => self.send_order(context, key),
                }
            }
            NamenodeCall::Probe(node) => {
                let outcome = Probe::of(call_outcome(answer.as_ref()));
                if outcome == Probe::Alive {
                    context.checks.probed(node, context.runtime.now());
                }
                self.inbox.push(NamenodeWork::Probed(node, outcome));
                self.work_soon(context);
            }
        }
    }
}
