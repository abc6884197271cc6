//! Simulated managers: the driver around their decisions.

use sanderling_core::Machine;
use sanderling_core::background::Background;
use sanderling_core::manager::{
    LeaderTerm, Leadership, LeaseAnswer, Manager as Decisions, ViewRequest, ViewSchedule,
};
use sanderling_core::relocation::{Input, Output};
use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::{Epoch, Millis, Nonce, Order, OrderReply, Refusal, Reply, Request};

use crate::Broken;
use crate::check::first::InFlightPushes;
use crate::event::{ManagerCall, Purpose, Timer};
use crate::plan::{LEADER_LEASE, RunPlan};
use crate::wire::{Ask, DataAnswer, DataAsk, Host, Response, data, meta};
use crate::world::World;

/// One manager.
#[derive(Debug)]
pub(crate) struct Manager {
    holder: Nonce,
    leadership: Leadership,
    /// The term that the decisions are of.
    term: Option<LeaderTerm>,
    lead_at: Option<u64>,
    decisions: Decisions,
    views: ViewSchedule,
    under_way: InFlightPushes,
    wake_at: Option<u64>,
}

/// Pause between two views of the drains, and between two ticks of the adversarial manager.
const POLL: Millis = Millis(200);

/// The same in microseconds.
const POLL_MICROS: u64 = POLL.0 * 1000;

/// One tick in this many brings the manager an event, so that its view is due at once.
const EVENT_TICKS: u64 = 8;

/// Time of one call to the namenode.
const CALL_MILLIS: u64 = 1000;

impl Manager {
    pub(crate) fn new(plan: &RunPlan, broken: Option<Broken>) -> Self {
        let mut background = plan.background.config();
        background.exposure.is_on &= broken != Some(Broken::NeverCopied);
        background.rebalance.is_on &= broken != Some(Broken::NeverRebalanced);
        background.pace.yields_to_drains = broken != Some(Broken::BalanceIntoDrain);
        Self {
            holder: Nonce(0),
            leadership: Leadership::new(LEADER_LEASE),
            term: None,
            lead_at: None,
            decisions: Decisions::new(plan.limits.relocator.clone(), background),
            views: ViewSchedule::new(POLL, POLL),
            under_way: InFlightPushes::default(),
            wake_at: None,
        }
    }
}

impl World {
    pub(crate) fn manager_start(&mut self, number: u8) {
        let holder = Nonce(self.runtime.random().next());
        self.managers[usize::from(number)] =
            Manager { holder, ..Manager::new(self.runtime.plan(), self.runtime.broken()) };
        self.eagers[usize::from(number)].restart();
        let micros = self.runtime.random().below(POLL_MICROS);
        self.runtime.set_timer(Host::Manager(number), micros, Timer::Poll);
        let micros = self.runtime.random().below(POLL_MICROS);
        self.runtime.set_timer(Host::Manager(number), micros, Timer::Lead);
    }

    fn manager_ask(&mut self, number: u8, request: Request, call: ManagerCall) {
        let purpose = Purpose::Manager(number, call);
        self.runtime.call(
            Host::Manager(number),
            Host::Namenode,
            Ask::Meta(request),
            CALL_MILLIS,
            purpose,
        );
    }

    pub(crate) fn manager_timer(&mut self, number: u8, timer: Timer) {
        match timer {
            Timer::Poll => {
                if self.manager_leads(number) {
                    let holder = self.manager_holder(number);
                    if self.runtime.random().below(EVENT_TICKS) == 0 {
                        let now = self.runtime.monotonic();
                        self.managers[usize::from(number)].views.changed(now);
                    }
                    self.manager_view(number);
                    self.eager_poll(number, holder);
                }
                self.runtime.set_timer(Host::Manager(number), POLL_MICROS, Timer::Poll);
            }
            Timer::Lead => {
                self.managers[usize::from(number)].lead_at = None;
                self.manager_leads(number);
            }
            Timer::View if self.manager_leads(number) => self.manager_view(number),
            Timer::Relocate => {
                let is_leader = self.manager_leads(number);
                let now = self.runtime.clock(Host::Manager(number));
                let micros = self.runtime.now();
                let manager = &mut self.managers[usize::from(number)];
                if is_leader && manager.wake_at.is_some_and(|at| at <= micros) {
                    manager.wake_at = None;
                    manager.decisions.handle_deadline(now);
                    self.manager_act(number);
                }
            }
            Timer::Late(late) => self.eager_late(number, late),
            _ => {}
        }
    }

    /// Requests a view of the drains if one is due.
    fn manager_view(&mut self, number: u8) {
        let manager = &mut self.managers[usize::from(number)];
        if let Some(request) = manager.views.poll_request(self.runtime.monotonic()) {
            let holder = manager.holder;
            self.manager_ask(number, Request::Drains { holder }, ManagerCall::Drains(request));
        }
    }

    /// Takes the end of a request for a view; the next one has a timer then.
    fn manager_viewed(&mut self, number: u8, request: ViewRequest, has_drains: Option<bool>) {
        let now = self.runtime.monotonic();
        let views = &mut self.managers[usize::from(number)].views;
        match has_drains {
            Some(has_drains) => views.answered(now, request, has_drains),
            None => views.failed(now, request),
        }
        if let Some(due) = views.deadline() {
            self.runtime.set_timer(Host::Manager(number), due.0.saturating_sub(now.0), Timer::View);
        }
    }

    pub(crate) fn manager_answered(
        &mut self,
        number: u8,
        call: ManagerCall,
        answer: Option<Response>,
    ) {
        let call = match call {
            ManagerCall::Eager(call) => return self.eager_answered(number, call, answer),
            ManagerCall::Lease(request) => {
                let answer = match meta(answer) {
                    Some(Ok(_)) => LeaseAnswer::Granted,
                    Some(Err(Refusal::NotManager { remaining })) => LeaseAnswer::Taken(remaining),
                    _ => LeaseAnswer::Unknown,
                };
                let now = self.runtime.monotonic();
                self.managers[usize::from(number)].leadership.answered(now, request, answer);
                self.manager_leads(number);
                return;
            }
            call => call,
        };
        if let Some(Response::Meta(Err(Refusal::NotManager { remaining }))) = &answer {
            let now = self.runtime.monotonic();
            self.managers[usize::from(number)].leadership.refused(now, *remaining);
        }
        if self.manager_leads(number) {
            self.manager_take(number, call, answer);
        }
    }

    /// Hands the end of a call to the decisions.
    fn manager_take(&mut self, number: u8, call: ManagerCall, answer: Option<Response>) {
        let input = match call {
            ManagerCall::Eager(_) | ManagerCall::Lease(_) => return,
            ManagerCall::Drains(request) => match meta(answer) {
                Some(Ok(Reply::Drains { drains, nodes })) => {
                    self.manager_viewed(number, request, Some(!drains.is_empty()));
                    self.eagers[usize::from(number)].see(&nodes);
                    self.managers[usize::from(number)].under_way.see(&drains, &nodes);
                    Input::Drains { drains, nodes }
                }
                _ => return self.manager_viewed(number, request, None),
            },
            ManagerCall::Forecast => return,
            ManagerCall::Fetch(node) => Input::Candidates { node, page: page(answer) },
            ManagerCall::Page(call) => Input::Page { call, page: page(answer) },
            ManagerCall::DropCopies(call) => {
                let is_done = matches!(meta(answer), Some(Ok(_)));
                Input::Dropped { call, is_done }
            }
            ManagerCall::Reserve(call) => Input::Reserved { call, epochs: epochs(answer) },
            ManagerCall::Commit(call) => {
                let epochs = epochs(answer);
                let moved = epochs.iter().flatten().filter(|epoch| epoch.is_ok()).count();
                if call < Background::CALLS_FROM {
                    self.runtime.statistics_mut().moved_blocks += moved as u64;
                }
                Input::Committed { call, epochs }
            }
            ManagerCall::Push(call) => {
                self.managers[usize::from(number)].under_way.end(call);
                let outcomes = match data(answer) {
                    Some(Ok(DataAnswer::Order(OrderReply::Pushed(outcomes)))) => Some(outcomes),
                    _ => None,
                };
                Input::Pushed { call, outcomes }
            }
            ManagerCall::Abandon(call) => {
                let is_done = matches!(meta(answer), Some(Ok(_)));
                Input::Abandoned { call, is_done }
            }
        };
        let now = self.runtime.clock(Host::Manager(number));
        self.managers[usize::from(number)].decisions.handle(now, input);
        self.manager_act(number);
    }

    pub(crate) fn manager_holder(&self, number: u8) -> Nonce {
        self.managers[usize::from(number)].holder
    }

    /// Requests the lease when that is due, and begins and ends terms. Tells whether the manager
    /// may act now.
    fn manager_leads(&mut self, number: u8) -> bool {
        // A clock that does not jump, as the one of the server.
        let now = self.runtime.monotonic();
        let asked_at = self.mistake_term_at(now);
        let manager = &mut self.managers[usize::from(number)];
        let term = manager.leadership.term(asked_at);
        let before = std::mem::replace(&mut manager.term, term);
        if before != term {
            if before.is_some() {
                self.manager_stop(number);
            }
            if term.is_some() {
                self.runtime.set_timer(Host::Manager(number), 0, Timer::View);
            }
            let code = u64::from(number) << 1 | u64::from(term.is_some());
            self.runtime.log(17, code, || format!("manager{number}: leads in {term:?}"));
        }
        let manager = &mut self.managers[usize::from(number)];
        if let Some(request) = manager.leadership.poll_request(now) {
            let (holder, name) = (manager.holder, format!("manager{number}"));
            let manage = Request::Manage { holder, name, lease: LEADER_LEASE };
            self.manager_ask(number, manage, ManagerCall::Lease(request));
        }
        let manager = &mut self.managers[usize::from(number)];
        if let Some(due) = manager.leadership.deadline(now)
            && manager.lead_at.is_none_or(|at| due.0 < at)
        {
            manager.lead_at = Some(due.0);
            self.runtime.set_timer(Host::Manager(number), due.0.saturating_sub(now.0), Timer::Lead);
        }
        term.is_some()
    }

    /// Another manager may act: nothing that this one knew holds any more. As in the server, the
    /// calls of a term end with it: the next decisions count theirs from the beginning again, and
    /// would take the answers for their own.
    fn manager_stop(&mut self, number: u8) {
        let now = self.runtime.monotonic();
        let fresh = Manager::new(self.runtime.plan(), self.runtime.broken());
        let manager = &mut self.managers[usize::from(number)];
        manager.leadership.dropped(now);
        manager.decisions = fresh.decisions;
        manager.views = fresh.views;
        manager.under_way = fresh.under_way;
        manager.wake_at = None;
        self.runtime.forget_calls(|purpose| match purpose {
            Purpose::Manager(_, ManagerCall::Eager(_)) => false,
            Purpose::Manager(of, _) => *of == number,
            _ => false,
        });
    }

    /// Does what the decisions want done.
    fn manager_act(&mut self, number: u8) {
        let holder = self.managers[usize::from(number)].holder;
        while let Some(output) = self.managers[usize::from(number)].decisions.poll_output() {
            let mut under_way = std::mem::take(&mut self.managers[usize::from(number)].under_way);
            under_way.begin(&output);
            self.check_keeps_off(&under_way, &output);
            self.check_leads(number);
            self.managers[usize::from(number)].under_way = under_way;
            match output {
                Output::Fetch { node, after, limit } => {
                    let request = Request::DrainBlocks { holder, node, after, limit };
                    self.manager_ask(number, request, ManagerCall::Fetch(node));
                }
                Output::Page { call, node, after, limit } => {
                    let request = Request::DrainBlocks { holder, node, after, limit };
                    self.manager_ask(number, request, ManagerCall::Page(call));
                }
                Output::DropCopies { call, blocks } => {
                    let request = Request::DropCopies { holder, blocks };
                    self.manager_ask(number, request, ManagerCall::DropCopies(call));
                }
                Output::Reserve { call, moves } => {
                    let request = Request::Reserve { holder, moves };
                    self.manager_ask(number, request, ManagerCall::Reserve(call));
                }
                Output::Commit { call, moves } => {
                    let request = Request::Commit { holder, moves };
                    self.manager_ask(number, request, ManagerCall::Commit(call));
                }
                Output::Abandon { call, blocks } => {
                    let request = Request::Abandon { holder, blocks };
                    self.manager_ask(number, request, ManagerCall::Abandon(call));
                }
                Output::Forecast { node, forecast } => {
                    let request = Request::Forecast { holder, node, forecast };
                    self.manager_ask(number, request, ManagerCall::Forecast);
                }
                Output::Push { call, source, address, moves, within } => {
                    let Some(place) = Host::at(&address) else { continue };
                    let ask = Ask::Data(source, DataAsk::Order(Order::Push { moves }));
                    let purpose = Purpose::Manager(number, ManagerCall::Push(call));
                    self.runtime.call(Host::Manager(number), place, ask, within.0, purpose);
                }
            }
        }
        self.manager_wake(number);
    }

    fn manager_wake(&mut self, number: u8) {
        let place = Host::Manager(number);
        let Some(due) = self.managers[usize::from(number)].decisions.deadline() else { return };
        let at = self.runtime.now() + self.runtime.until(place, due).max(1000);
        let manager = &mut self.managers[usize::from(number)];
        if manager.wake_at.is_none_or(|before| at < before) {
            manager.wake_at = Some(at);
            self.runtime.set_timer(place, at - self.runtime.now(), Timer::Relocate);
        }
    }
}

fn epochs(answer: Option<Response>) -> Option<Vec<Result<Epoch, Refusal>>> {
    match meta(answer) {
        Some(Ok(Reply::Epochs(epochs))) => Some(epochs),
        _ => None,
    }
}

fn page(answer: Option<Response>) -> Option<(Vec<MoveCandidate>, bool)> {
    match meta(answer) {
        Some(Ok(Reply::Candidates { candidates, is_more })) => Some((candidates, is_more)),
        _ => None,
    }
}
