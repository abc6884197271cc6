//! What every process of a run works with: virtual time, timers, calls over the network, clocks,
//! and the record of the run.

use sanderling_protocol::{Instant, NodeId, Request};

use crate::calls::{Calls, PendingCall};
use crate::event::{Event, EventQueue, Purpose, Timer};
use crate::frames::Frames;
use crate::log::Log;
use crate::network::Network;
use crate::plan::RunPlan;
use crate::processes::Processes;
use crate::random::Random;
use crate::wire::{FrameOrigin, Host, Message, MessageBody, RequestBody, Response};
use crate::{InjectedBug, Statistics};

/// Time of a report that a node did not answer. The library gives it one attempt, so it is as long
/// as the simulated writers' calls.
const SUSPECT_MILLIS: u64 = 1000;

/// What a checker found: its name and what it saw.
pub(crate) type CheckResult = Result<(), (&'static str, String)>;

/// The part of a run that all processes share.
#[derive(Debug)]
pub(crate) struct Runtime {
    plan: RunPlan,
    bug: Option<InjectedBug>,
    events: EventQueue,
    processes: Processes,
    network: Network,
    calls: Calls,
    frames: Frames,
    random: Random,
    is_calm: bool,
    log: Log,
    statistics: Statistics,
    violation: Option<(&'static str, String)>,
}

impl Runtime {
    pub(crate) fn new(plan: RunPlan, bug: Option<InjectedBug>, keep_events: bool) -> Self {
        Self {
            events: EventQueue::default(),
            processes: Processes::draw(Random::new(plan.seed, 5)),
            network: Network::new(plan.seed, plan.network),
            calls: Calls::default(),
            frames: Frames::new(&plan),
            random: Random::new(plan.seed, 4),
            is_calm: false,
            log: Log::new(keep_events),
            statistics: Statistics::default(),
            violation: None,
            plan,
            bug,
        }
    }

    pub(crate) const fn plan(&self) -> &RunPlan {
        &self.plan
    }

    pub(crate) const fn bug(&self) -> Option<InjectedBug> {
        self.bug
    }

    pub(crate) fn has_bug(&self, bug: InjectedBug) -> bool {
        self.bug == Some(bug)
    }

    /// Returns the stream of draws that the managers share.
    pub(crate) const fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Returns whether the faults have stopped.
    pub(crate) const fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// Ends the faults of the network and the pauses of managers.
    pub(crate) fn calm(&mut self) {
        self.is_calm = true;
        self.network.calm(self.now());
        (0..self.plan.managers).for_each(|number| self.processes.stop(Host::Manager(number), 0));
    }

    pub(crate) const fn network(&mut self) -> &mut Network {
        &mut self.network
    }
}

/// Time and events.
impl Runtime {
    /// Returns the virtual time in microseconds.
    pub(crate) const fn now(&self) -> u64 {
        self.events.now()
    }

    /// Returns the virtual time, as that of a clock that does not jump.
    pub(crate) const fn monotonic(&self) -> Instant {
        Instant(self.now())
    }

    /// Returns the time by the clock of a place's machine.
    pub(crate) const fn clock(&self, host: Host) -> Instant {
        self.processes.clock(host, self.now())
    }

    /// Returns in how many microseconds the clock of a place's machine shows a time.
    pub(crate) const fn until(&self, host: Host, at: Instant) -> u64 {
        at.0.saturating_sub(self.clock(host).0)
    }

    /// Lets the clock of a place's machine jump.
    pub(crate) const fn step_clock(&mut self, place: u8, millis: i64) {
        self.processes.step_clock(place, self.now(), millis * 1000);
    }

    /// Returns when the clock of a place's machine jumped last.
    pub(crate) const fn skewed_at(&self, host: Host) -> u64 {
        self.processes.skewed_at(host)
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.events.push(at, event);
    }

    pub(crate) fn after(&mut self, micros: u64, event: Event) {
        self.at(self.now() + micros, event);
    }

    /// Sets a timer of the process that is in a place now.
    pub(crate) fn set_timer(&mut self, place: Host, micros: u64, timer: Timer) {
        let life = self.life(place);
        self.after(micros, Event::Timer { place, life, timer });
    }

    /// Returns the next event. What is for a stopped process comes when that goes on.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        loop {
            let event = self.events.pop()?;
            match self.stopped_until(&event) {
                Some(until) => self.at(until, event),
                None => return Some(event),
            }
        }
    }

    /// Returns when the process goes on that an event is for, if it is stopped.
    fn stopped_until(&self, event: &Event) -> Option<u64> {
        let place = match event {
            Event::Deliver(message) => message.to,
            Event::Timer { place, .. } => *place,
            Event::Timeout(call) => self.calls.get(*call)?.from,
            _ => return None,
        };
        self.is_stopped(place).then(|| self.processes.stopped_until(place))
    }
}

/// Processes.
impl Runtime {
    pub(crate) const fn is_up(&self, host: Host) -> bool {
        self.processes.is_up(host)
    }

    /// Returns whether the process that a connection is of still runs.
    pub(crate) const fn is_alive(&self, origin: FrameOrigin) -> bool {
        self.life(origin.host) == origin.life && self.is_up(origin.host)
    }

    /// Returns a number that no other process of a place has.
    pub(crate) const fn life(&self, host: Host) -> u32 {
        self.processes.life(host)
    }

    /// Returns whether the process of a place is stopped, and will go on.
    pub(crate) const fn is_stopped(&self, host: Host) -> bool {
        self.processes.stopped_until(host) > self.now()
    }

    /// Returns until when the process of a place is stopped, or was.
    pub(crate) const fn stop_ends_at(&self, host: Host) -> u64 {
        self.processes.stopped_until(host)
    }

    /// Stops the process of a place for a while.
    pub(crate) const fn stop(&mut self, host: Host, millis: u64) {
        self.processes.stop(host, self.now() + millis * 1000);
    }

    /// Starts the next process of a place.
    pub(crate) fn start(&mut self, host: Host) {
        self.processes.start(host);
        self.log(6, host.index() as u64, || format!("{host}: a process starts"));
    }

    /// Ends the process of a place at once; another starts after a while.
    pub(crate) fn kill(&mut self, host: Host, down_millis: u64) {
        if self.processes.end(host) {
            self.log(7, host.index() as u64, || format!("{host}: killed"));
            self.statistics.kills += 1;
            self.after(down_millis * 1000, Event::Start(host));
        }
    }

    /// Records that a timer has fired. Returns whether its process still runs.
    pub(crate) fn is_timer_due(&mut self, host: Host, life: u32) -> bool {
        let is_due = self.life(host) == life && self.is_up(host);
        if is_due {
            self.statistics.events += 1;
            self.log(3, host.index() as u64, String::new);
        }
        is_due
    }
}

/// Calls and messages.
impl Runtime {
    /// Sends a request; the answer, or that there was none, comes to `purpose`.
    pub(crate) fn call(
        &mut self,
        from: Host,
        to: Host,
        body: RequestBody,
        millis: u64,
        purpose: Purpose,
    ) {
        let (life, sent_at) = (self.life(from), self.now());
        let call = self.calls.begin(PendingCall { from, life, purpose, sent_at });
        self.after(millis * 1000, Event::Timeout(call));
        if let Some(body) = self.frames.gather(from, call, body) {
            let body = MessageBody::Request(body);
            self.send(Message { from, to, call, body, life: None });
        } else if let Some(micros) = self.frames.begin() {
            self.after(micros, Event::Frame);
        }
    }

    /// Sends one metadata request to the namenode, as [`Self::call`] does.
    pub(crate) fn call_namenode(
        &mut self,
        from: Host,
        request: Request,
        millis: u64,
        purpose: Purpose,
    ) {
        self.call(from, Host::Namenode, RequestBody::Meta(request), millis, purpose);
    }

    /// Reports to the namenode that a node did not answer. It is sent once, and nothing waits for
    /// the answer.
    pub(crate) fn suspect(&mut self, from: Host, node: NodeId) {
        self.statistics.suspicions += 1;
        let request = Request::Suspect { node };
        self.call_namenode(from, request, SUSPECT_MILLIS, Purpose::Suspect);
    }

    /// Sends requests to the namenode in one frame, each with a call of its own.
    pub(crate) fn call_frame(
        &mut self,
        from: Host,
        requests: Vec<Request>,
        millis: u64,
        purpose: impl Fn() -> Purpose,
    ) {
        let (life, sent_at) = (self.life(from), self.now());
        let mut frame = Vec::with_capacity(requests.len());
        for request in requests {
            let call = self.calls.begin(PendingCall { from, life, purpose: purpose(), sent_at });
            self.after(millis * 1000, Event::Timeout(call));
            frame.push((call, request));
        }
        let Some(&(call, _)) = frame.first() else { return };
        let body = match frame.len() {
            1 => frame.pop().map_or(RequestBody::Frame(Vec::new()), |it| RequestBody::Meta(it.1)),
            _ => RequestBody::Frame(frame),
        };
        self.statistics.frames += u64::from(matches!(body, RequestBody::Frame(_)));
        let body = MessageBody::Request(body);
        self.send(Message { from, to: Host::Namenode, call, body, life: None });
    }

    /// Sends the requests that have gathered. Processes that have ended meanwhile send nothing.
    pub(crate) fn send_frame(&mut self) {
        let (calls, processes) = (&self.calls, &self.processes);
        let is_awaited = |call| is_awaited(calls, processes, call);
        let Some(message) = self.frames.take(is_awaited) else { return };
        let is_frame = matches!(message.body, MessageBody::Request(RequestBody::Frame(_)));
        self.statistics.frames += u64::from(is_frame);
        self.send(message);
    }

    pub(crate) fn reply(&mut self, from: Host, to: Host, call: u64, answer: Response) {
        self.send(Message { from, to, call, body: MessageBody::Response(answer), life: None });
    }

    /// Answers the requests of one frame.
    pub(crate) fn reply_frame(&mut self, to: Host, mut answers: Vec<(u64, Response)>) {
        let Some(&(call, _)) = answers.first() else { return };
        let answer = if answers.len() == 1 {
            answers.pop().expect("there is one").1
        } else {
            Response::Frame(answers)
        };
        self.reply(Host::Namenode, to, call, answer);
    }

    fn send(&mut self, mut message: Message) {
        if message.to == Host::Namenode && !self.plan.has_successors && self.is_up(message.to) {
            message.life = Some(self.life(message.to));
        }
        let (now, bytes) = (self.now(), message.payload_bytes());
        let [first, second] = self.network.send(now, message.from, message.to, bytes).0;
        if let Some(at) = second {
            self.at(at, Event::Deliver(Box::new(message.clone())));
        }
        match first {
            Some(at) => self.at(at, Event::Deliver(Box::new(message))),
            None => self.log(8, message.call, || {
                format!("{} -> {} #{}: lost on the way", message.from, message.to, message.call)
            }),
        }
    }

    /// Takes a request from the network. Returns whether there is a process to receive it; if
    /// not, its machine refuses it, unless it is dead and silent.
    pub(crate) fn receive(&mut self, from: Host, to: Host, call: u64, body: &RequestBody) -> bool {
        let code = (from.index() * crate::wire::PLACES + to.index()) as u64;
        self.log(4, code ^ call << 10, || format!("{from} -> {to} #{call}: {}", show(body)));
        let is_up = self.is_up(to);
        if !is_up && !self.plan.is_dead_silent {
            self.reply(to, from, call, refused(body));
        }
        is_up
    }

    /// Takes the call that an answer is for, if its process still waits: what it is for, and when
    /// it was sent.
    pub(crate) fn take_answered(
        &mut self,
        from: Host,
        call: u64,
        answer: &Response,
    ) -> Option<(Purpose, u64)> {
        if !is_awaited(&self.calls, &self.processes, call) {
            return None;
        }
        let PendingCall { from: place, purpose, sent_at, .. } = self.calls.take(call)?;
        self.log(5, call, || format!("{place} <- {from} #{call}: {}", show(answer)));
        Some((purpose, sent_at))
    }

    /// Returns what a call is for, if it is not answered yet.
    pub(crate) fn purpose(&self, call: u64) -> Option<&Purpose> {
        self.calls.get(call).map(|it| &it.purpose)
    }

    /// Takes a call that was not answered in time, if its process still waits.
    pub(crate) fn take_unanswered(&mut self, call: u64) -> Option<Purpose> {
        let PendingCall { from, life, purpose, .. } = self.calls.take(call)?;
        if self.life(from) != life {
            return None;
        }
        self.log(2, call, || format!("{from}: no answer to call {call}"));
        Some(purpose)
    }

    /// Forgets calls: their answers are dropped.
    pub(crate) fn forget_calls(&mut self, is_forgotten: impl Fn(&Purpose) -> bool) {
        self.calls.forget(is_forgotten);
    }
}

/// The record of the run.
impl Runtime {
    /// Notes an event of a kind, with a number for its content and its text.
    pub(crate) fn log(&mut self, kind: u64, code: u64, text: impl FnOnce() -> String) {
        self.log.event(self.events.now(), kind, code, text);
    }

    pub(crate) const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    pub(crate) const fn statistics_mut(&mut self) -> &mut Statistics {
        &mut self.statistics
    }

    /// Returns whether a checker has found something.
    pub(crate) const fn has_violation(&self) -> bool {
        self.violation.is_some()
    }

    /// Notes the first violation; the run ends with it.
    pub(crate) fn violate(&mut self, checker: &'static str, message: String) {
        if self.violation.is_none() {
            self.log(9, 0, || format!("VIOLATION {checker}: {message}"));
            self.violation = Some((checker, message));
        }
    }

    /// Notes the result of a check.
    pub(crate) fn expect(&mut self, found: CheckResult) {
        self.statistics.checks += 1;
        if let Err((checker, message)) = found {
            self.violate(checker, message);
        }
    }

    /// Ends the run: returns what a checker found, the counts and the event log.
    pub(crate) fn finish(self) -> (Option<(&'static str, String)>, Statistics, Log) {
        (self.violation, self.statistics, self.log)
    }
}

/// Returns whether the process that waits for the answer of a call still runs.
fn is_awaited(calls: &Calls, processes: &Processes, call: u64) -> bool {
    calls.get(call).is_some_and(|it| processes.life(it.from) == it.life && processes.is_up(it.from))
}

/// Returns the refusal of a machine on which no process listens, to each request of a message.
fn refused(body: &RequestBody) -> Response {
    match body {
        RequestBody::Frame(requests) => {
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
