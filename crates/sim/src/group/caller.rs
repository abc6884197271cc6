//! Callers of a group: the machine by which clients, datanodes and managers choose the member that
//! they send a request to. Their calls are reads; a stopped process answers late, one that ended
//! breaks its connections, and a machine that was taken does not answer at all.

use std::collections::BTreeSet;

use sanderling_core::group_view::{
    CONNECT_TIMEOUT, FailedAttempt, GroupView, MEMBERS_TIMEOUT, MemberAttempts, MemberFault,
    NextMember, Repeats, SLOW_AFTER, SlowAttempt, probe_pause,
};
use sanderling_core::replica::{ReadPermission, TAKE_OVER_TIMEOUT};
use sanderling_protocol::message::Members;
use sanderling_protocol::{Instant, Millis, Refusal};

use super::host::{Host, WaitingCall};
use super::scenario::{FAULTS_END, RUN_END};
use super::world::{GroupEvent, GroupWorld, address};
use crate::InjectedBug;

/// Time for a call. A third of the product's default, so that a run of 9 s has several calls that
/// meet it.
const CALL_MICROS: u64 = 3_000_000;

/// Longest pause between two calls of a caller. Below an election, so that most outages are met.
const PAUSE_MICROS_MAX: u64 = 400_000;

/// How long before the end, in microseconds, a caller must have had an answer, and a member must
/// have led; longer by [`CONNECT_TIMEOUT`] for each member that it has an address of and that is
/// gone. Two elections of the longest time, 0.8 s each, and the calls between them.
const SERVED_MICROS_MAX: u64 = 2_000_000;

/// Microseconds between two looks of a call whether the member that was elected serves: one
/// millisecond, the unit of the product's timers.
const LOOKS_MICROS: u64 = 1000;

/// Share of calls, in thousandths, that are made over a connection that is open; the others connect
/// first, so both ways occur in each run. Chosen, not measured.
const CONNECTED_PERMILLE: u32 = 700;

/// What happens to a caller.
#[derive(Debug, Clone)]
pub(super) enum CallerEvent {
    /// It begins a call, unless one is under way.
    Begin,
    /// Its request arrived at a member's process, counted by its starts, and is looked at.
    Arrives { host: usize, start: u64, attempt: u64, since: u64 },
    /// Its attempt has an outcome.
    Ends { attempt: u64, how: AttemptEnd },
    /// Its attempt has no answer yet.
    IsSlow { attempt: u64 },
    /// The pause after all members were tried is over.
    TriesAgain { attempt: u64 },
    /// The time for a call is over.
    IsLate { call: u64 },
    /// Its request for the members arrives.
    ListRequested { host: usize, start: u64, list: u64 },
    /// The list of the members arrives, or the time for it is over.
    Listed { from: String, members: Option<Box<Members>>, list: u64 },
}

/// How an attempt at a member ends.
#[derive(Debug, Clone)]
pub(super) enum AttemptEnd {
    Answered,
    NotLeader(Option<String>),
    Unreachable,
    Broken,
    /// No connection was made in this time.
    NotConnected(Millis),
}

/// A call under way.
struct ReadCall {
    number: u64,
    deadline: u64,
    /// What was acknowledged when it began.
    must: u64,
    address: String,
    sent_at: u64,
    /// Whether the present attempt has had no answer for so long that another leader ends it.
    is_slow: bool,
    attempts: Option<MemberAttempts>,
}

pub(super) struct Caller {
    view: GroupView,
    call: Option<ReadCall>,
    calls: u64,
    attempt: u64,
    list: u64,
    /// The addresses that it was given, and those of the newest list that arrived.
    offered: (BTreeSet<String>, BTreeSet<String>),
    /// The latest term of such a list.
    term: u64,
    served_at: u64,
}

impl Caller {
    fn new(addresses: Vec<String>) -> Self {
        let offered = (addresses.iter().cloned().collect(), BTreeSet::new());
        let view = GroupView::new(addresses, Instant(0));
        let (calls, attempt, list) = (0, 0, 0);
        Self { view, call: None, calls, attempt, list, offered, term: 0, served_at: 0 }
    }
}

impl GroupWorld {
    /// Lets three callers begin: one has the addresses of all voters, one has a single address, and
    /// one has also an address at which there is nothing.
    pub(super) fn add_callers(&mut self) {
        let of = |id: u64| address(id).address;
        let voters = self.scenario.voters;
        let all = (1..=voters).map(of).collect();
        let one = vec![of(self.calls.between(1, voters + 1))];
        let some = vec![of(99), of(self.calls.between(1, voters + 1))];
        self.callers = [all, one, some].into_iter().map(Caller::new).collect();
        for caller in 0..self.callers.len() {
            let at = self.calls.between(100_000, 400_000);
            self.caller_at(at, caller, CallerEvent::Begin);
        }
    }

    fn caller_at(&mut self, at: u64, caller: usize, event: CallerEvent) {
        self.at(at, GroupEvent::Caller { caller, event });
    }

    pub(super) fn step_caller(&mut self, caller: usize, event: CallerEvent) {
        if let CallerEvent::Arrives { host, .. } | CallerEvent::ListRequested { host, .. } = event {
            let until = self.hosts[host].paused_until;
            if until > self.now {
                return self.caller_at(until, caller, event);
            }
        }
        match event {
            CallerEvent::Begin => self.begin_call(caller),
            CallerEvent::Arrives { host, start, attempt, since } => {
                self.call_arrives(caller, (host, start), attempt, since);
            }
            CallerEvent::Ends { attempt, how } if self.is_current(caller, attempt) => {
                self.attempt_ends(caller, how);
            }
            CallerEvent::IsSlow { attempt } if self.is_current(caller, attempt) => {
                self.look_at_slow(caller);
            }
            CallerEvent::TriesAgain { attempt } if self.is_current(caller, attempt) => {
                self.try_next(caller);
            }
            CallerEvent::IsLate { call } => self.end_late(caller, call),
            CallerEvent::ListRequested { host, start, list } => {
                self.list_members(caller, host, start, list);
            }
            CallerEvent::Listed { from, members, list } if self.callers[caller].list == list => {
                self.take_list(caller, &from, members.as_deref());
            }
            _ => {}
        }
    }

    /// Returns whether an attempt is the newest of the call under way.
    fn is_current(&self, caller: usize, attempt: u64) -> bool {
        let caller = &self.callers[caller];
        caller.call.is_some() && caller.attempt == attempt
    }

    fn begin_call(&mut self, at: usize) {
        let now = self.now;
        let next = now + self.calls.between(20_000, PAUSE_MICROS_MAX);
        self.caller_at(next, at, CallerEvent::Begin);
        if !self.hosts.iter().any(|host| host.is_serving()) {
            self.unled_at = now;
        }
        let caller = &mut self.callers[at];
        if caller.call.is_some() {
            return;
        }
        caller.calls += 1;
        let (number, must) = (caller.calls, self.checks.acknowledged_to);
        let (address, deadline) = (caller.view.target(Instant(now)).to_owned(), now + CALL_MICROS);
        let (to, sent_at) = (address.clone(), now);
        let call = ReadCall {
            number,
            deadline,
            must,
            address: to,
            sent_at,
            is_slow: false,
            attempts: None,
        };
        caller.call = Some(call);
        self.caller_at(deadline, at, CallerEvent::IsLate { call: number });
        self.refresh_if_due(at);
        self.attempt(at, address, CONNECT_TIMEOUT);
    }

    /// Returns the newest machine with an address.
    fn host_of(&self, address: &str) -> Option<usize> {
        self.hosts.iter().rposition(|host| host.address == address && !host.is_gone)
    }

    /// Returns how long a message takes, and whether its connection breaks.
    fn delay(&mut self) -> (u64, bool) {
        let delay = self.calls.between(100, self.scenario.delay_micros_max);
        let breaks = self.calls.permille(self.scenario.loss_permille) && self.now < FAULTS_END;
        (delay, breaks)
    }

    /// Makes one attempt at one member.
    fn attempt(&mut self, at: usize, address: String, connect_within: Millis) {
        let now = self.now;
        let (delay, breaks) = self.delay();
        let is_connected = self.calls.permille(CONNECTED_PERMILLE);
        let host = self.host_of(&address);
        // To a machine that was taken a connection may still seem to be open.
        let is_refused = !self.hosts.iter().any(|it| it.address == address);
        let to = address.clone();
        self.log.event(now, 4, at as u64, || format!("caller {at} turns to {to}"));
        let caller = &mut self.callers[at];
        caller.attempt += 1;
        let attempt = caller.attempt;
        let Some(call) = &mut caller.call else { return };
        (call.address, call.sent_at, call.is_slow) = (address, now, false);
        let has_several = caller.view.has_several(Instant(now));
        let left = call.deadline.saturating_sub(now);
        let within = if has_several { left.min(connect_within.0 * 1000) } else { left };
        let is_stopped = |host: usize| self.hosts[host].paused_until > now + within;
        let waits = !is_connected && host.is_none_or(is_stopped);
        let ends = |how| CallerEvent::Ends { attempt, how };
        let (time, event) = match host {
            _ if is_refused => (delay, ends(AttemptEnd::Unreachable)),
            _ if waits => (within, ends(AttemptEnd::NotConnected(Millis(within / 1000)))),
            None => (left, ends(AttemptEnd::Broken)),
            Some(host) if self.hosts[host].replica.is_some() && !breaks => {
                let (start, since) = (self.hosts[host].start, now + delay);
                (delay, CallerEvent::Arrives { host, start, attempt, since })
            }
            Some(host) if self.hosts[host].replica.is_some() => (delay, ends(AttemptEnd::Broken)),
            _ => (delay, ends(AttemptEnd::Unreachable)),
        };
        self.caller_at(now + time, at, event);
        if !waits && has_several {
            let slow = now + delay + SLOW_AFTER.0 * 1000;
            self.caller_at(slow, at, CallerEvent::IsSlow { attempt });
        }
    }

    /// Sends a caller the outcome of its attempt.
    fn reply(&mut self, caller: usize, attempt: u64, how: AttemptEnd) {
        let (delay, breaks) = self.delay();
        let how = if breaks { AttemptEnd::Broken } else { how };
        self.caller_at(self.now + delay, caller, CallerEvent::Ends { attempt, how });
    }

    /// Answers a call that arrived at the process `at`, a machine and its start, or lets it wait.
    fn call_arrives(&mut self, caller: usize, at: (usize, u64), attempt: u64, since: u64) {
        let (now, (at, start)) = (self.now, at);
        let must = self.callers[caller].call.as_ref().map_or(0, |call| call.must);
        let is_current = self.is_current(caller, attempt);
        let host = &mut self.hosts[at];
        let (id, applied, local) = (host.id, host.state.place.index, host.local(now));
        let Some(replica) = host.replica.as_mut().filter(|_| host.start == start) else {
            if !host.is_gone {
                self.reply(caller, attempt, AttemptEnd::Broken);
            }
            return;
        };
        match replica.may_read(local) {
            ReadPermission::Yes => {
                if is_current {
                    self.checks.reads(id, applied, must);
                }
                self.reply(caller, attempt, AttemptEnd::Answered);
            }
            ReadPermission::NeedsQuorum => {
                let number = replica.confirm_reads(local);
                match number {
                    Some(number) => host.calls.push(WaitingCall { number, caller, attempt }),
                    None => self.reply(caller, attempt, AttemptEnd::NotLeader(None)),
                }
                self.drain(at);
            }
            ReadPermission::TakesOver if now < since + TAKE_OVER_TIMEOUT.0 * 1000 => {
                let event = CallerEvent::Arrives { host: at, start, attempt, since };
                self.caller_at(now + LOOKS_MICROS, caller, event);
            }
            ReadPermission::TakesOver => {
                self.reply(caller, attempt, AttemptEnd::NotLeader(None));
            }
            ReadPermission::NotLeader => {
                let leader = replica.leader();
                let leader = leader.and_then(|leader| host.state.group.member(leader));
                let leader = leader.map(|leader| leader.at.address.clone());
                self.reply(caller, attempt, AttemptEnd::NotLeader(leader));
            }
        }
    }

    /// Answers the calls that waited for a majority; with `confirmed` nothing, the member does not
    /// lead any more.
    pub(super) fn answer_calls(&mut self, at: usize, confirmed: Option<u64>) {
        let host = &mut self.hosts[at];
        let (id, applied) = (host.id, host.state.place.index);
        let is_due = |call: &mut WaitingCall| confirmed.is_none_or(|to| call.number <= to);
        let due: Vec<WaitingCall> = host.calls.extract_if(.., is_due).collect();
        for WaitingCall { caller, attempt, .. } in due {
            if confirmed.is_none() {
                self.reply(caller, attempt, AttemptEnd::NotLeader(None));
                continue;
            }
            let call = self.callers[caller].call.as_ref();
            if let Some(must) =
                call.map(|call| call.must).filter(|_| self.is_current(caller, attempt))
            {
                self.checks.reads(id, applied, must);
            }
            self.reply(caller, attempt, AttemptEnd::Answered);
        }
    }

    /// Breaks the connections of calls that waited at a process that has ended. A machine that was
    /// taken breaks none.
    pub(super) fn break_calls(&mut self) {
        for at in 0..self.hosts.len() {
            for WaitingCall { caller, attempt, .. } in std::mem::take(&mut self.hosts[at].broken) {
                if !self.hosts[at].is_gone {
                    self.reply(caller, attempt, AttemptEnd::Broken);
                }
            }
        }
    }

    fn attempt_ends(&mut self, at: usize, how: AttemptEnd) {
        let now = self.now;
        self.log.event(now, 5, at as u64, || format!("the attempt of caller {at}: {how:?}"));
        let refusal = match how {
            AttemptEnd::Answered => {
                let caller = &mut self.callers[at];
                if let Some(call) = caller.call.take() {
                    caller.view.answered(&call.address);
                    caller.served_at = self.now;
                    self.counts.calls += 1;
                }
                return;
            }
            AttemptEnd::NotLeader(leader) => {
                self.callers[at].offered.1.extend(leader.clone());
                Refusal::NotLeader { leader }
            }
            AttemptEnd::Unreachable => {
                return self.attempt_failed(at, MemberFault::Unreachable, false);
            }
            AttemptEnd::Broken => return self.attempt_failed(at, MemberFault::Broken, true),
            AttemptEnd::NotConnected(waited) => {
                return self.attempt_failed(at, MemberFault::Silent { waited }, false);
            }
        };
        self.attempt_failed(at, MemberFault::Refused(&refusal), true);
    }

    fn attempt_failed(&mut self, at: usize, fault: MemberFault<'_>, was_sent: bool) {
        let now = Instant(self.now);
        let Caller { view, call, .. } = &mut self.callers[at];
        let Some(ReadCall { deadline, address, attempts, .. }) = call else { return };
        let first = || {
            let mut first = MemberAttempts::new(address, Repeats::Always, Instant(*deadline));
            // A caller has one call at a time.
            first.probe();
            first
        };
        let attempts = attempts.get_or_insert_with(first);
        if attempts.failed(view, now, &FailedAttempt { address, fault, was_sent }) {
            self.try_next(at);
        } else {
            *call = None;
        }
    }

    fn try_next(&mut self, at: usize) {
        let (now, draw) = (self.now, self.calls.next());
        let Caller { view, call, attempt, .. } = &mut self.callers[at];
        let Some(attempts) = call.as_mut().and_then(|call| call.attempts.as_mut()) else { return };
        match attempts.next(view, Instant(now), draw) {
            NextMember::Try { address, connect_within } => {
                self.attempt(at, address, connect_within)
            }
            NextMember::Wait { pause } => {
                *attempt += 1;
                let event = CallerEvent::TriesAgain { attempt: *attempt };
                self.refresh_if_due(at);
                self.caller_at(now + pause.0 * 1000, at, event);
            }
            NextMember::TooLate => *call = None,
        }
    }

    fn end_late(&mut self, at: usize, number: u64) {
        let call = self.callers[at].call.as_ref();
        if call.is_some_and(|call| call.number == number) {
            let sent_at = self.callers[at].call.as_ref().map_or(0, |call| call.sent_at);
            let waited = Millis((self.now - sent_at) / 1000);
            self.attempt_failed(at, MemberFault::Silent { waited }, true);
            self.callers[at].call = None;
        }
    }

    fn look_at_slow(&mut self, at: usize) {
        let now = self.now;
        let Caller { view, call, attempt, .. } = &mut self.callers[at];
        let Some(call) = call else { return };
        call.is_slow = true;
        let slow = view.slow(Instant(now), &call.address);
        let waited = Millis(((now - call.sent_at) / 1000).saturating_sub(SLOW_AFTER.0));
        self.log.event(now, 6, at as u64, || format!("caller {at} has no answer: {slow:?}"));
        match slow {
            SlowAttempt::GiveUp => self.attempt_failed(at, MemberFault::Broken, true),
            SlowAttempt::Wait { members_from } => {
                let event = CallerEvent::IsSlow { attempt: *attempt };
                self.caller_at(now + probe_pause(waited).0 * 1000, at, event);
                if let Some(from) = members_from {
                    self.request_members(at, from);
                }
            }
        }
    }

    fn refresh_if_due(&mut self, at: usize) {
        let now = Instant(self.now);
        if let Some(from) = self.callers[at].view.refresh(now, None) {
            self.request_members(at, from);
        }
    }

    fn request_members(&mut self, at: usize, from: String) {
        let now = self.now;
        let (delay, breaks) = self.delay();
        self.callers[at].list += 1;
        let list = self.callers[at].list;
        let is_gone =
            self.hosts.iter().any(|it| it.address == from) && self.host_of(&from).is_none();
        let host = self.host_of(&from).filter(|host| self.hosts[*host].replica.is_some());
        // A machine that was taken refuses nothing.
        let is_refused = host.is_none() && !is_gone;
        let within = if is_refused { delay } else { MEMBERS_TIMEOUT.0 * 1000 };
        let (within, members) = (now + within, None);
        self.caller_at(within, at, CallerEvent::Listed { from, members, list });
        if let Some(host) = host.filter(|_| !breaks) {
            let start = self.hosts[host].start;
            self.caller_at(now + delay, at, CallerEvent::ListRequested { host, start, list });
        }
    }

    fn list_members(&mut self, caller: usize, at: usize, start: u64, list: u64) {
        let (delay, _) = self.delay();
        let host = &self.hosts[at];
        let Some(replica) = host.replica.as_ref().filter(|_| host.start == start) else { return };
        let members = replica.group().list(host.id, replica.term(), replica.leader());
        let (from, members) = (host.address.clone(), Some(Box::new(members)));
        let event = CallerEvent::Listed { from, members, list };
        self.caller_at(self.now + delay, caller, event);
    }

    fn take_list(&mut self, at: usize, from: &str, members: Option<&Members>) {
        let (now, draw) = (Instant(self.now), self.calls.next());
        let is_ignored = self.bug == Some(InjectedBug::ListIgnored);
        let listed = members.map(|it| (it.term, it.leader().map(|leader| leader.address.clone())));
        self.log.event(self.now, 7, at as u64, || format!("{from} lists for {at}: {listed:?}"));
        let caller = &mut self.callers[at];
        let before = caller.view.target(now).to_owned();
        if let Some(members) = members {
            if members.term >= caller.term {
                caller.term = members.term;
                caller.offered.1 = members.members.iter().map(|it| it.address.clone()).collect();
            }
            if !is_ignored {
                caller.view.learned(now, from, members);
            }
        }
        caller.view.refreshed(now, draw);
        // The next one does not answer this request again.
        caller.list += 1;
        let (target, is_slow) = (caller.view.target(now), |call: &ReadCall| {
            call.is_slow && call.address != caller.view.target(now)
        });
        if target != before && caller.call.as_ref().is_some_and(is_slow) {
            self.attempt_failed(at, MemberFault::Broken, true);
        }
    }

    /// Checks that each caller was served in the end, if any address that it was given or that the
    /// newest list had is that of a member.
    pub(super) fn check_callers(&mut self) {
        let end = self.scenario.run_end;
        if self.unled_at + SERVED_MICROS_MAX > end {
            return;
        }
        let group = &self.checks.newest_group.1;
        let is_member = |address: &String| {
            let host = self.host_of(address).map(|host| &self.hosts[host]);
            host.is_some_and(|host| host.replica.is_some() && group.member(host.id).is_some())
        };
        let is_gone = |address: &&str| {
            let is_there = |host: &Host| host.address == **address && !host.is_gone;
            !self.hosts.iter().any(is_there)
        };
        let late = self.callers.iter().find(|caller| {
            let (given, listed) = &caller.offered;
            let gone = caller.view.addresses().filter(is_gone).count() as u64;
            let within = SERVED_MICROS_MAX + gone * CONNECT_TIMEOUT.0 * 1000;
            let is_late = caller.served_at.max(FAULTS_END) + within < end;
            is_late && given.iter().chain(listed).any(is_member)
        });
        if let Some(caller) = late {
            let known: Vec<&str> = caller.view.addresses().collect();
            let served = (caller.served_at, known);
            let message =
                format!("a caller was last served at {} us and turns to {:?}", served.0, served.1);
            self.checks.violate("group-callers", message);
        }
    }
}

const _: () = assert!(FAULTS_END + SERVED_MICROS_MAX < RUN_END);
