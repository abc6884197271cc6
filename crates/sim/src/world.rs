//! The world: the processes of one run and what judges them.

mod fault;
mod settle;

use crate::check::{Checking, Checks};
use crate::clients::ClientShells;
use crate::context::Context;
use crate::datanode::Datanode;
use crate::event::{Event, Purpose, Timer};
use crate::log::Log;
use crate::manager::Manager;
use crate::namenode::NamenodeHost;
use crate::namenode::serve::NamenodeContext;
use crate::plan::RunPlan;
use crate::runtime::Runtime;
use crate::wire::{Host, Message, MessageBody, RequestBody, Response};
use crate::{InjectedBug, Statistics};

/// Everything of one run.
pub(crate) struct World {
    runtime: Runtime,
    namenode: NamenodeHost,
    datanodes: Vec<Datanode>,
    managers: Vec<Manager>,
    clients: ClientShells,
    checks: Checks,
    is_over: bool,
    /// What has not come to rest, and since when it is the same.
    unsettled: Option<(u64, String)>,
    /// Bytes for which the background has not had the time yet, once it has begun with them.
    bytes_to_copy: Option<u64>,
}

/// Most events of one run; a run that needs more does not end. Chosen, not measured: it bounds the
/// time of a run that does not come to rest.
const EVENTS_MAX: u64 = 400_000;

impl World {
    pub(crate) fn new(plan: RunPlan, bug: Option<InjectedBug>, keep_events: bool) -> Self {
        let mut world = Self {
            namenode: NamenodeHost::new(&plan, bug),
            datanodes: (0..plan.datanodes).map(|slot| Datanode::new(&plan, bug, slot)).collect(),
            managers: (0..plan.managers).map(|number| Manager::new(&plan, bug, number)).collect(),
            clients: ClientShells::new(&plan),
            checks: Checks::new(&plan),
            is_over: false,
            unsettled: None,
            bytes_to_copy: None,
            runtime: Runtime::new(plan, bug, keep_events),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let plan = self.runtime.plan().clone();
        self.start(Host::Namenode);
        self.start(Host::Admin);
        (0..plan.datanodes).for_each(|slot| self.start(Host::Datanode(slot)));
        (0..plan.managers).for_each(|number| self.start(Host::Manager(number)));
        (0..plan.writers).for_each(|number| self.start(Host::Writer(number)));
        (0..plan.readers).for_each(|number| self.start(Host::Reader(number)));
        (0..plan.callers).for_each(|number| self.start(Host::Caller(number)));
        for (index, fault) in plan.faults.iter().enumerate() {
            self.runtime.at(fault.at, Event::Fault(index));
        }
        self.runtime.at(plan.calm_at, Event::Calm);
    }

    /// Runs until a violation, or until everything has settled. Returns the violation, the counts
    /// and the event log.
    pub(crate) fn run(mut self) -> (Option<(&'static str, String)>, Statistics, Log) {
        while !self.runtime.has_violation() && !self.is_over {
            let Some(event) = self.runtime.next_event() else { break };
            self.dispatch(event);
            if self.runtime.statistics().events > EVENTS_MAX {
                let message = format!("still busy after {EVENTS_MAX} events");
                self.runtime.violate("convergence", message);
            }
        }
        let virtual_millis = self.runtime.now() / 1000;
        let statistics = self.runtime.statistics_mut();
        statistics.virtual_millis = virtual_millis;
        statistics.commands = self.namenode.commands();
        let [copied, promoted, rebalanced] = self.checks.copy_counts();
        statistics.lost_blocks = self.namenode.catalog().report().blocks;
        statistics.copied_blocks = copied;
        statistics.promoted_blocks = promoted;
        statistics.rebalanced_blocks = rebalanced;
        self.runtime.finish()
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Deliver(message) => self.deliver(*message),
            Event::Timeout(call) => {
                if let Some(purpose) = self.runtime.take_unanswered(call) {
                    self.answered(purpose, None);
                }
            }
            Event::Timer { place, life, timer } => {
                if self.runtime.is_timer_due(place, life) {
                    self.timer(place, timer);
                }
            }
            Event::Fault(index) => self.fault(index),
            Event::Start(place) => {
                if !self.runtime.is_up(place) {
                    self.start(place);
                }
            }
            Event::Die { slot, life, manager } => {
                if self.runtime.life(Host::Datanode(slot)) == life {
                    self.checking().dies(slot);
                    self.kill(Host::Datanode(slot), 300);
                    if let Some(manager) = manager {
                        self.kill(Host::Manager(manager), 2000);
                    }
                }
            }
            Event::Frame => self.runtime.send_frame(),
            Event::Calm => self.calm(),
            Event::Settle => self.settle(),
        }
    }

    fn deliver(&mut self, message: Message) {
        let Message { from, to, call, body, life } = message;
        if life.is_some_and(|life| life != self.runtime.life(to)) {
            // Its connection ended with the process that it was sent to.
            return;
        }
        self.runtime.statistics_mut().events += 1;
        match body {
            MessageBody::Request(body) => {
                if self.runtime.receive(from, to, call, &body) {
                    self.request(from, to, call, body);
                }
            }
            MessageBody::Response(_) if !self.runtime.is_up(to) => {}
            MessageBody::Response(Response::Frame(answers)) => {
                for (call, answer) in answers {
                    self.deliver_answer(from, call, answer);
                }
            }
            MessageBody::Response(answer) => self.deliver_answer(from, call, answer),
        }
    }

    fn deliver_answer(&mut self, from: Host, call: u64, answer: Response) {
        if let Some((purpose, sent_at)) = self.runtime.take_answered(from, call, &answer) {
            self.checks.bytes.answer_to(sent_at);
            self.answered(purpose, Some(answer));
        }
    }

    fn request(&mut self, from: Host, to: Host, call: u64, body: RequestBody) {
        match (to, body) {
            (Host::Namenode, RequestBody::Meta(request)) => {
                self.namenode(|it, context| it.receive(context, from, vec![(call, request)]))
            }
            (Host::Namenode, RequestBody::Frame(requests)) => {
                self.namenode(|it, context| it.receive(context, from, requests))
            }
            (Host::Datanode(slot), RequestBody::Data(node, body)) => {
                self.datanode(slot, |it, context| it.receive(context, from, call, node, body))
            }
            (to, body) => unreachable!("{to} takes no {body:?}"),
        }
    }

    fn answered(&mut self, purpose: Purpose, answer: Option<Response>) {
        match purpose {
            Purpose::Datanode(slot, call) => {
                self.datanode(slot, |it, context| it.answered(context, call, answer))
            }
            Purpose::Namenode(call) => {
                self.namenode(|it, context| it.answered(context, call, answer))
            }
            Purpose::Manager(number, call) => {
                self.manager(number, |it, context| it.answered(context, call, answer))
            }
            purpose => self.clients(|it, context| it.answered(context, purpose, answer)),
        }
    }

    fn checking(&mut self) -> Checking<'_> {
        let Self { runtime, checks, namenode, datanodes, .. } = self;
        Checking { checks, runtime, namenode, datanodes }
    }

    fn namenode(&mut self, act: impl FnOnce(&mut NamenodeHost, &mut NamenodeContext<'_>)) {
        let Self { runtime, checks, namenode, datanodes, .. } = self;
        act(namenode, &mut NamenodeContext { runtime, checks, datanodes });
    }

    fn datanode<R>(
        &mut self,
        slot: u8,
        act: impl FnOnce(&mut Datanode, &mut Context<'_>) -> R,
    ) -> R {
        let Self { runtime, checks, namenode, datanodes, .. } = self;
        act(&mut datanodes[usize::from(slot)], &mut Context { runtime, checks, namenode })
    }

    fn manager(&mut self, number: u8, act: impl FnOnce(&mut Manager, &mut Context<'_>)) {
        let Self { runtime, checks, namenode, managers, .. } = self;
        act(&mut managers[usize::from(number)], &mut Context { runtime, checks, namenode });
    }

    fn clients(&mut self, act: impl FnOnce(&mut ClientShells, &mut Context<'_>)) {
        let Self { runtime, checks, namenode, clients, .. } = self;
        act(clients, &mut Context { runtime, checks, namenode });
    }

    fn timer(&mut self, place: Host, timer: Timer) {
        match place {
            Host::Namenode => self.namenode(|it, context| it.timer(context, timer)),
            Host::Datanode(slot) => self.datanode(slot, |it, context| it.timer(context, timer)),
            Host::Manager(number) => self.manager(number, |it, context| it.timer(context, timer)),
            host => self.clients(|it, context| it.timer(context, host, timer)),
        }
    }

    /// Starts the next process of a place.
    fn start(&mut self, place: Host) {
        self.runtime.start(place);
        match place {
            Host::Namenode => self.namenode(|it, context| it.start(context)),
            Host::Datanode(slot) => self.datanode(slot, |it, context| it.start(context)),
            Host::Manager(number) => self.manager(number, |it, context| it.start(context)),
            host => self.clients(|it, context| it.start(context, host)),
        }
    }

    /// Ends the process of a place at once, and starts another after a while.
    fn kill(&mut self, place: Host, down_millis: u64) {
        if place == Host::Namenode {
            return self.namenode(|it, context| it.kill(context, down_millis));
        }
        self.runtime.kill(place, down_millis);
    }
}
