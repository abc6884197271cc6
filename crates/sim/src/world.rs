//! The world: virtual time, a heap of events, and the processes that live in it.

use std::collections::{BTreeMap, BinaryHeap};

use sanderling_protocol::Instant;

use crate::admin::Admin;
use crate::caller::Caller;
use crate::check::Checks;
use crate::datanode::Datanode;
use crate::eager::Eager;
use crate::event::{Event, Purpose, Timed, Timer};
use crate::frames::Frames;
use crate::log::Log;
use crate::manager::Manager;
use crate::namenode::NamenodeHost;
use crate::network::Network;
use crate::plan::RunPlan;
use crate::random::Random;
use crate::reader::Reader;
use crate::wire::{Ask, Host, Message, MessageBody, PLACES, Response};
use crate::writer::Writer;
use crate::{Broken, Statistics};

/// Everything of one run.
pub(crate) struct World {
    pub(crate) plan: RunPlan,
    pub(crate) broken: Option<Broken>,
    pub(crate) now: u64,
    events: BinaryHeap<Timed>,
    next_event: u64,
    pub(crate) network: Network,
    pub(crate) frames: Frames,
    pub(crate) random: Random,
    pending: BTreeMap<u64, Pending>,
    next_call: u64,
    /// Counts the processes of each place.
    pub(crate) lives: [u32; PLACES],
    pub(crate) is_up: [bool; PLACES],
    /// What each clock is ahead, in microseconds.
    pub(crate) skews: [i64; PLACES],
    /// When each clock jumped last.
    pub(crate) skewed_at: [u64; PLACES],
    pub(crate) is_calm: bool,
    pub(crate) namenode: NamenodeHost,
    pub(crate) datanodes: Vec<Datanode>,
    pub(crate) managers: Vec<Manager>,
    /// Until when the process of each manager is stopped.
    pub(crate) paused_until: Vec<u64>,
    pub(crate) eagers: Vec<Eager>,
    pub(crate) writers: Vec<Writer>,
    pub(crate) readers: Vec<Reader>,
    pub(crate) callers: Vec<Caller>,
    pub(crate) admin: Admin,
    pub(crate) checks: Checks,
    pub(crate) log: Log,
    pub(crate) statistics: Statistics,
    pub(crate) violation: Option<(&'static str, String)>,
    pub(crate) is_over: bool,
    /// What has not come to rest, and since when it is the same.
    pub(crate) unsettled: Option<(u64, String)>,
}

struct Pending {
    place: Host,
    life: u32,
    purpose: Purpose,
    sent_at: u64,
}

/// Where every clock starts: far from zero, so that times before the start are times.
const CLOCK_START: u64 = 1_000_000_000_000;

/// Most events of one run; a run that needs more does not end.
const EVENTS_MAX: u64 = 400_000;

impl World {
    pub(crate) fn new(plan: RunPlan, broken: Option<Broken>, keep_events: bool) -> Self {
        let seed = plan.seed;
        let mut world = Self {
            now: 0,
            events: BinaryHeap::new(),
            next_event: 0,
            network: Network::new(seed, plan.network),
            frames: Frames::new(&plan),
            random: Random::new(seed, 4),
            pending: BTreeMap::new(),
            next_call: 0,
            lives: [0; PLACES],
            is_up: [false; PLACES],
            skews: [0; PLACES],
            skewed_at: [0; PLACES],
            is_calm: false,
            namenode: NamenodeHost::new(&plan),
            datanodes: (0..plan.datanodes).map(|slot| Datanode::new(&plan, slot)).collect(),
            managers: (0..plan.managers).map(|_| Manager::new(&plan, broken)).collect(),
            paused_until: vec![0; usize::from(plan.managers)],
            eagers: (0..plan.managers).map(|number| Eager::new(&plan, number)).collect(),
            writers: (0..plan.writers).map(|number| Writer::new(&plan, number)).collect(),
            readers: (0..plan.readers).map(|number| Reader::new(&plan, number)).collect(),
            callers: (0..plan.callers).map(|number| Caller::new(&plan, number)).collect(),
            admin: Admin::new(&plan),
            checks: Checks::new(&plan),
            log: Log::new(keep_events),
            statistics: Statistics::default(),
            violation: None,
            is_over: false,
            unsettled: None,
            plan,
            broken,
        };
        for datanode in &mut world.datanodes {
            datanode.is_fence_off = broken == Some(Broken::FenceOff);
        }
        world.begin();
        world
    }

    fn begin(&mut self) {
        let mut random = Random::new(self.plan.seed, 5);
        for skew in &mut self.skews {
            *skew = random.between(0, 2_000_000) as i64 - 1_000_000;
        }
        self.start(Host::Namenode);
        self.start(Host::Admin);
        for slot in 0..self.plan.datanodes {
            self.start(Host::Datanode(slot));
        }
        for number in 0..self.plan.managers {
            self.start(Host::Manager(number));
        }
        for number in 0..self.plan.writers {
            self.start(Host::Writer(number));
        }
        for number in 0..self.plan.readers {
            self.start(Host::Reader(number));
        }
        for number in 0..self.plan.callers {
            self.start(Host::Caller(number));
        }
        for (index, fault) in self.plan.faults.clone().iter().enumerate() {
            self.at(fault.at, Event::Fault(index));
        }
        self.at(self.plan.calm_at, Event::Calm);
    }

    /// Runs until a violation, or until everything has settled.
    pub(crate) fn run(&mut self) {
        while self.violation.is_none() && !self.is_over {
            let Some(next) = self.events.pop() else { return };
            debug_assert!(next.at >= self.now, "time goes on");
            self.now = next.at;
            self.dispatch(next.event);
            if self.statistics.events > EVENTS_MAX {
                let message = format!("still busy after {EVENTS_MAX} events");
                self.violate("convergence", message);
            }
        }
        self.statistics.virtual_millis = self.now / 1000;
        self.statistics.commands = self.namenode.commands();
        let [copied, promoted, rebalanced] = self.checks.copies.counts;
        self.statistics.copied_blocks = copied;
        self.statistics.promoted_blocks = promoted;
        self.statistics.rebalanced_blocks = rebalanced;
    }

    /// Returns when the process goes on that an event is for, if it is stopped.
    fn stopped_until(&self, event: &Event) -> Option<u64> {
        let place = match event {
            Event::Deliver(message) => message.to,
            Event::Timer { place, .. } => *place,
            Event::Timeout(call) => self.pending.get(call)?.place,
            _ => return None,
        };
        let until = match place {
            Host::Namenode => self.namenode.frozen.end,
            Host::Manager(number) => self.paused_until[usize::from(number)],
            _ => return None,
        };
        Some(until).filter(|until| *until > self.now)
    }

    fn dispatch(&mut self, event: Event) {
        if let Some(until) = self.stopped_until(&event) {
            return self.at(until, event);
        }
        match event {
            Event::Deliver(message) => self.deliver(*message),
            Event::Timeout(call) => {
                let Some(pending) = self.pending.remove(&call) else { return };
                if self.lives[pending.place.index()] == pending.life {
                    self.log.event(self.now, 2, call, || {
                        format!("{}: no answer to call {call}", pending.place)
                    });
                    self.answered(pending.purpose, None);
                }
            }
            Event::Timer { place, life, timer } => {
                if self.lives[place.index()] == life && self.is_up[place.index()] {
                    self.statistics.events += 1;
                    self.log.event(self.now, 3, place.index() as u64, String::new);
                    self.timer(place, timer);
                }
            }
            Event::Fault(index) => self.fault(index),
            Event::Start(place) => {
                if !self.is_up[place.index()] {
                    self.start(place);
                }
            }
            Event::Die { slot, life, manager } => {
                if self.lives[Host::Datanode(slot).index()] == life {
                    self.check_notice_kept(slot);
                    self.kill_datanode(slot, 300);
                    if let Some(manager) = manager {
                        self.kill(Host::Manager(manager), 2000);
                    }
                }
            }
            Event::Frame => self.send_frame(),
            Event::Calm => self.calm(),
            Event::Settle => self.settle(),
        }
    }

    fn deliver(&mut self, message: Message) {
        let Message { from, to, call, body } = message;
        self.statistics.events += 1;
        let is_up = self.is_up[to.index()];
        match body {
            MessageBody::Ask(ask) => {
                let code = (from.index() * PLACES + to.index()) as u64;
                self.log.event(self.now, 4, code ^ call << 10, || {
                    format!("{from} -> {to} #{call}: {}", show(&ask))
                });
                if is_up {
                    self.ask(from, to, call, ask);
                } else if !self.plan.is_dead_silent {
                    self.reply(to, from, call, refused(&ask));
                }
            }
            MessageBody::Answer(Response::Frame(answers)) if is_up => {
                for (call, answer) in answers {
                    self.deliver_answer(from, call, answer);
                }
            }
            MessageBody::Answer(answer) if is_up => self.deliver_answer(from, call, answer),
            MessageBody::Answer(_) => {}
        }
    }

    fn deliver_answer(&mut self, from: Host, call: u64, answer: Response) {
        if !self.is_awaited(call) {
            return;
        }
        let pending = self.pending.remove(&call).expect("it was there just now");
        self.log.event(self.now, 5, call, || {
            format!("{} <- {from} #{call}: {}", pending.place, show(&answer))
        });
        self.checks.bytes.answer_to(pending.sent_at);
        self.answered(pending.purpose, Some(answer));
    }

    /// Tells whether the process still runs that waits for the answer of a call.
    pub(crate) fn is_awaited(&self, call: u64) -> bool {
        let is_there = |place: Host, life| self.lives[place.index()] == life;
        let pending = self.pending.get(&call);
        pending.is_some_and(|pending| {
            is_there(pending.place, pending.life) && self.is_up[pending.place.index()]
        })
    }

    fn ask(&mut self, from: Host, to: Host, call: u64, ask: Ask) {
        match (to, ask) {
            (Host::Namenode, Ask::Meta(request)) => self.namenode_ask(from, vec![(call, request)]),
            (Host::Namenode, Ask::Frame(requests)) => self.namenode_ask(from, requests),
            (Host::Datanode(slot), Ask::Data(node, ask)) => {
                self.datanode_ask(slot, from, call, node, ask);
            }
            (to, ask) => unreachable!("{to} is not asked {ask:?}"),
        }
    }

    fn answered(&mut self, purpose: Purpose, answer: Option<Response>) {
        match purpose {
            Purpose::Datanode(slot, call) => self.datanode_answered(slot, call, answer),
            Purpose::Namenode(call) => self.namenode_answered(call, answer),
            Purpose::Manager(number, call) => self.manager_answered(number, call, answer),
            Purpose::Writer(number, call) => self.writer_answered(number, call, answer),
            Purpose::Reader(number, call) => self.reader_answered(number, call, answer),
            Purpose::Caller(number, call) => self.caller_answered(number, call, answer),
            Purpose::Admin(call) => self.admin_answered(call, answer),
        }
    }

    fn timer(&mut self, place: Host, timer: Timer) {
        match place {
            Host::Namenode => self.namenode_timer(timer),
            Host::Datanode(slot) => self.datanode_timer(slot, timer),
            Host::Manager(number) => self.manager_timer(number, timer),
            Host::Writer(number) => self.writer_timer(number, timer),
            Host::Reader(number) => self.reader_timer(number, timer),
            Host::Caller(number) => self.caller_timer(number, timer),
            Host::Admin => self.admin_timer(timer),
        }
    }

    /// Starts the next process of a place.
    pub(crate) fn start(&mut self, place: Host) {
        self.lives[place.index()] += 1;
        self.is_up[place.index()] = true;
        self.log.event(self.now, 6, place.index() as u64, || format!("{place}: a process starts"));
        match place {
            Host::Namenode => self.namenode_start(),
            Host::Datanode(slot) => self.datanode_start(slot),
            Host::Manager(number) => self.manager_start(number),
            Host::Writer(number) => self.writer_start(number),
            Host::Reader(number) => self.reader_start(number),
            Host::Caller(number) => self.caller_start(number),
            Host::Admin => self.admin_start(),
        }
    }

    /// Ends the process of a place at once, and starts another after a while.
    pub(crate) fn kill(&mut self, place: Host, down_millis: u64) {
        if !std::mem::take(&mut self.is_up[place.index()]) {
            return;
        }
        self.lives[place.index()] += 1;
        if place == Host::Namenode {
            self.served_millis();
            self.namenode.frozen = 0..0;
        }
        if let Host::Manager(number) = place {
            self.paused_until[usize::from(number)] = 0;
        }
        self.log.event(self.now, 7, place.index() as u64, || format!("{place}: killed"));
        self.statistics.kills += 1;
        self.after(down_millis * 1000, Event::Start(place));
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.next_event += 1;
        self.events.push(Timed { at: at.max(self.now), number: self.next_event, event });
    }

    pub(crate) fn after(&mut self, micros: u64, event: Event) {
        self.at(self.now + micros, event);
    }

    /// Sets a timer of the process that is in a place now.
    pub(crate) fn set_timer(&mut self, place: Host, micros: u64, timer: Timer) {
        let life = self.lives[place.index()];
        self.after(micros, Event::Timer { place, life, timer });
    }

    /// Asks somebody; the answer, or that there was none, comes to `purpose`.
    pub(crate) fn call(&mut self, from: Host, to: Host, ask: Ask, millis: u64, purpose: Purpose) {
        self.next_call += 1;
        let call = self.next_call;
        let life = self.lives[from.index()];
        let sent_at = self.now;
        self.pending.insert(call, Pending { place: from, life, purpose, sent_at });
        self.after(millis * 1000, Event::Timeout(call));
        if let Some(ask) = self.gather(from, call, ask) {
            self.send(Message { from, to, call, body: MessageBody::Ask(ask) });
        }
    }

    /// Forgets calls: their answers come to nobody.
    pub(crate) fn forget_calls(&mut self, is_forgotten: impl Fn(&Purpose) -> bool) {
        self.pending.retain(|_, pending| !is_forgotten(&pending.purpose));
    }

    /// Answers a call that was never sent.
    pub(crate) fn call_back(&mut self, purpose: Purpose, answer: Response) {
        self.answered(purpose, Some(answer));
    }

    pub(crate) fn reply(&mut self, from: Host, to: Host, call: u64, answer: Response) {
        self.send(Message { from, to, call, body: MessageBody::Answer(answer) });
    }

    pub(crate) fn send(&mut self, message: Message) {
        let bytes = message.payload_bytes();
        let [first, second] = self.network.send(self.now, message.from, message.to, bytes).0;
        if let Some(at) = second {
            self.at(at, Event::Deliver(Box::new(message.clone())));
        }
        match first {
            Some(at) => self.at(at, Event::Deliver(Box::new(message))),
            None => self.log.event(self.now, 8, message.call, || {
                format!("{} -> {} #{}: lost on the way", message.from, message.to, message.call)
            }),
        }
    }

    /// Returns the time by the clock of a place.
    pub(crate) fn clock(&self, place: Host) -> Instant {
        match place {
            Host::Namenode => self.namenode.clock(self.now),
            place => self.wall(place),
        }
    }

    /// Returns the time by the clock of a place's machine.
    pub(crate) fn wall(&self, place: Host) -> Instant {
        let skew = self.skews[place.index()];
        Instant((CLOCK_START + self.now).saturating_add_signed(skew))
    }

    /// Returns in how many microseconds a clock shows a time.
    pub(crate) fn until(&self, place: Host, at: Instant) -> u64 {
        at.0.saturating_sub(self.clock(place).0)
    }

    /// Notes the first broken promise; the run ends with it.
    pub(crate) fn violate(&mut self, checker: &'static str, message: String) {
        if self.violation.is_none() {
            self.log.event(self.now, 9, 0, || format!("VIOLATION {checker}: {message}"));
            self.violation = Some((checker, message));
        }
    }

    /// Notes what a checker found, if anything.
    pub(crate) fn expect(&mut self, found: Result<(), (&'static str, String)>) {
        self.statistics.checks += 1;
        if let Err((checker, message)) = found {
            self.violate(checker, message);
        }
    }
}

/// Returns that no process listens, to each request of a message.
fn refused(ask: &Ask) -> Response {
    match ask {
        Ask::Frame(requests) => {
            Response::Frame(requests.iter().map(|(call, _)| (*call, Response::Refused)).collect())
        }
        _ => Response::Refused,
    }
}

/// Returns a message as one short line.
fn show(message: &impl std::fmt::Debug) -> String {
    let mut text = format!("{message:?}");
    if text.len() > 300 {
        let cut = (0..=300).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
        text.push_str("...");
    }
    text
}
