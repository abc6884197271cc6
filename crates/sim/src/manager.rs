//! Simulated managers: the driver around their decisions.

use sanderling_core::Machine;
use sanderling_core::background::Background;
use sanderling_core::manager::{
    EventWatch, LeaderTerm, Leadership, LeadershipAnswer, Manager as Decisions, ViewRequest,
    ViewSchedule,
};
use sanderling_core::relocation::{Input, MoveOutput};
use sanderling_protocol::limits::EVENTS_PER_REPLY_MAX;
use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::{
    Epoch, Instant, Millis, Nonce, Order, OrderReply, Refusal, Reply, Request,
};

use crate::InjectedBug;
use crate::check::first::InFlightPushes;
use crate::context::Context;
use crate::event::{ManagerCall, Purpose, Timer};
use crate::plan::{LEADER_LEASE, RunPlan};
use crate::random_manager::RandomManager;
use crate::runtime::Runtime;
use crate::wire::{DataAnswer, DataRequest, Host, RequestBody, Response, data, meta};

/// One manager.
#[derive(Debug)]
pub(crate) struct Manager {
    number: u8,
    holder: Nonce,
    leadership: Leadership,
    /// The term that the decisions are of.
    term: Option<LeaderTerm>,
    lead_at: Option<u64>,
    decisions: Decisions,
    views: ViewSchedule,
    events: EventWatch,
    under_way: InFlightPushes,
    wake_at: Option<u64>,
    /// What acts without sense by this manager's leadership lease.
    random_manager: RandomManager,
}

/// Pause between two views of the drains, and between two ticks of the random manager. The
/// product's is 50 ms; a longer one leaves faults more room between two views and takes fewer
/// events of a run.
const POLL: Millis = Millis(200);

/// The pause [`POLL`] in microseconds.
const POLL_MICROS: u64 = POLL.0 * 1000;

/// One tick in this many lets the manager request events, so that its view may be due at once. One
/// in 1.6 s, as seldom as the product's manager views idle drains (1 s), so both causes of a view
/// occur. The product's manager waits for events instead.
const EVENT_TICKS: u64 = 8;

/// Time of one call to the namenode. Half of the product's default, so that calls time out within
/// the leadership lease ([`LEADER_LEASE`]).
const CALL_MILLIS: u64 = 1000;

impl Manager {
    pub(crate) fn new(plan: &RunPlan, bug: Option<InjectedBug>, number: u8) -> Self {
        let mut background = plan.background.config();
        background.exposure.is_on &= bug != Some(InjectedBug::NeverCopied);
        background.rebalance.is_on &= bug != Some(InjectedBug::NeverRebalanced);
        background.pace.yields_to_drains = bug != Some(InjectedBug::BalanceIntoDrain);
        Self {
            number,
            holder: Nonce(0),
            leadership: Leadership::new(LEADER_LEASE),
            term: None,
            lead_at: None,
            decisions: Decisions::new(plan.limits.relocator.clone(), background),
            views: ViewSchedule::new(POLL, POLL),
            events: EventWatch::default(),
            under_way: InFlightPushes::default(),
            wake_at: None,
            random_manager: RandomManager::new(plan, number),
        }
    }
}

impl Manager {
    const fn host(&self) -> Host {
        Host::Manager(self.number)
    }

    /// Returns a manager in its first state.
    fn fresh(&self, runtime: &Runtime) -> Self {
        Self::new(runtime.plan(), runtime.bug(), self.number)
    }

    pub(crate) fn start(&mut self, context: &mut Context<'_>) {
        let holder = Nonce(context.runtime.random().next());
        let mut fresh = self.fresh(context.runtime);
        fresh.holder = holder;
        std::mem::swap(&mut fresh.random_manager, &mut self.random_manager);
        fresh.random_manager.restart(holder);
        *self = fresh;
        let micros = context.runtime.random().below(POLL_MICROS);
        context.runtime.set_timer(self.host(), micros, Timer::Poll);
        let micros = context.runtime.random().below(POLL_MICROS);
        context.runtime.set_timer(self.host(), micros, Timer::Lead);
    }

    fn request(&mut self, context: &mut Context<'_>, request: Request, call: ManagerCall) {
        let purpose = Purpose::Manager(self.number, call);
        context.runtime.call_namenode(self.host(), request, CALL_MILLIS, purpose);
    }

    pub(crate) fn timer(&mut self, context: &mut Context<'_>, timer: Timer) {
        match timer {
            Timer::Poll => {
                if self.leads(context) {
                    if context.runtime.random().below(EVENT_TICKS) == 0 {
                        self.watch(context);
                    }
                    self.view(context);
                    self.random_manager.poll(context);
                }
                context.runtime.set_timer(self.host(), POLL_MICROS, Timer::Poll);
            }
            Timer::Lead => {
                self.lead_at = None;
                self.leads(context);
            }
            Timer::View if self.leads(context) => self.view(context),
            Timer::Relocate => {
                let is_leader = self.leads(context);
                let now = context.runtime.clock(self.host());
                let micros = context.runtime.now();
                if is_leader && self.wake_at.is_some_and(|at| at <= micros) {
                    self.wake_at = None;
                    self.decisions.handle_deadline(now);
                    self.act(context);
                }
            }
            Timer::Late(late) => self.random_manager.late(context, late),
            _ => {}
        }
    }

    /// Requests the events since the last ones, if the request before has ended.
    fn watch(&mut self, context: &mut Context<'_>) {
        if let Some(after) = self.events.poll_request(context.runtime.monotonic()) {
            let (limit, wait) = (EVENTS_PER_REPLY_MAX, Millis(0));
            self.request(context, Request::Events { after, limit, wait }, ManagerCall::Events);
        }
    }

    /// Takes what came of a request for events.
    fn watched(&mut self, context: &mut Context<'_>, answer: Option<Response>) {
        let now = context.runtime.monotonic();
        match meta(answer) {
            Some(Ok(Reply::Events(events))) => {
                if self.events.answered(now, &events) {
                    self.views.changed(now);
                    self.view(context);
                }
            }
            _ => self.events.failed(now),
        }
    }

    /// Requests a view of the drains if one is due.
    fn view(&mut self, context: &mut Context<'_>) {
        if let Some(request) = self.views.poll_request(context.runtime.monotonic()) {
            let holder = self.holder;
            self.request(context, Request::Drains { holder }, ManagerCall::Drains(request));
        }
    }

    /// Takes the end of a request for a view; the next one has a timer then.
    fn viewed(
        &mut self,
        context: &mut Context<'_>,
        request: ViewRequest,
        has_drains: Option<bool>,
    ) {
        let now = context.runtime.monotonic();
        let views = &mut self.views;
        match has_drains {
            Some(has_drains) => views.answered(now, request, has_drains),
            None => views.failed(now, request),
        }
        if let Some(due) = views.deadline() {
            context.runtime.set_timer(self.host(), due.0.saturating_sub(now.0), Timer::View);
        }
    }

    pub(crate) fn answered(
        &mut self,
        context: &mut Context<'_>,
        call: ManagerCall,
        answer: Option<Response>,
    ) {
        let call = match call {
            ManagerCall::Random(call) => {
                return self.random_manager.answered(context, call, answer);
            }
            ManagerCall::Lease(request) => {
                let answer = match meta(answer) {
                    Some(Ok(_)) => LeadershipAnswer::Granted,
                    Some(Err(Refusal::NotManager { remaining })) => {
                        LeadershipAnswer::Taken(remaining)
                    }
                    _ => LeadershipAnswer::Unknown,
                };
                let now = context.runtime.monotonic();
                self.leadership.answered(now, request, answer);
                self.leads(context);
                return;
            }
            call => call,
        };
        if let Some(Response::Meta(Err(Refusal::NotManager { remaining }))) = &answer {
            let now = context.runtime.monotonic();
            self.leadership.refused(now, *remaining);
        }
        if self.leads(context) {
            self.take(context, call, answer);
        }
    }

    /// Hands the end of a call to the decisions.
    fn take(&mut self, context: &mut Context<'_>, call: ManagerCall, answer: Option<Response>) {
        let input = match call {
            ManagerCall::Random(_) | ManagerCall::Lease(_) => return,
            ManagerCall::Drains(request) => match meta(answer) {
                Some(Ok(Reply::Drains { drains, nodes })) => {
                    self.viewed(context, request, Some(!drains.is_empty()));
                    self.random_manager.see(&nodes);
                    self.under_way.see(&drains, &nodes);
                    Input::Drains { drains, nodes }
                }
                _ => return self.viewed(context, request, None),
            },
            ManagerCall::Events => return self.watched(context, answer),
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
                    context.runtime.statistics_mut().moved_blocks += moved as u64;
                }
                Input::Committed { call, epochs }
            }
            ManagerCall::Push(call) => {
                self.under_way.end(call);
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
        let now = context.runtime.clock(self.host());
        self.decisions.handle(now, input);
        self.act(context);
    }

    /// Requests the lease when it is due, and begins and ends terms. Returns whether the manager
    /// may act now.
    fn leads(&mut self, context: &mut Context<'_>) -> bool {
        // A clock that does not jump, as the one of the server.
        let now = context.runtime.monotonic();
        let is_outlived = context.runtime.has_bug(InjectedBug::LeaseOutlived);
        let asked_at = if is_outlived { Instant(0) } else { now };
        let term = self.leadership.term(asked_at);
        let before = std::mem::replace(&mut self.term, term);
        if before != term {
            if before.is_some() {
                self.stop(context);
            }
            if term.is_some() {
                context.runtime.set_timer(self.host(), 0, Timer::View);
            }
            let host = self.host();
            let code = u64::from(self.number) << 1 | u64::from(term.is_some());
            context.runtime.log(17, code, || format!("{host}: leads in {term:?}"));
        }
        if let Some(request) = self.leadership.poll_request(now) {
            let (holder, name) = (self.holder, self.host().to_string());
            let manage = Request::Manage { holder, name, lease: LEADER_LEASE };
            self.request(context, manage, ManagerCall::Lease(request));
        }
        if let Some(due) = self.leadership.deadline(now)
            && self.lead_at.is_none_or(|at| due.0 < at)
        {
            self.lead_at = Some(due.0);
            context.runtime.set_timer(self.host(), due.0.saturating_sub(now.0), Timer::Lead);
        }
        term.is_some()
    }

    /// Another manager may act: the state of this one is void. As in the server, the
    /// calls of a term end with it: the next decisions count theirs from the beginning again, and
    /// would take the answers for their own.
    fn stop(&mut self, context: &mut Context<'_>) {
        let now = context.runtime.monotonic();
        let fresh = self.fresh(context.runtime);
        self.leadership.dropped(now);
        self.decisions = fresh.decisions;
        self.views = fresh.views;
        self.events = fresh.events;
        self.under_way = fresh.under_way;
        self.wake_at = None;
        let number = self.number;
        context.runtime.forget_calls(|purpose| match purpose {
            Purpose::Manager(_, ManagerCall::Random(_)) => false,
            Purpose::Manager(of, _) => *of == number,
            _ => false,
        });
    }

    /// Does what the decisions want done.
    fn act(&mut self, context: &mut Context<'_>) {
        let holder = self.holder;
        while let Some(output) = self.decisions.poll_output() {
            self.under_way.begin(&output);
            let found = self.under_way.check_keeps_off(&output, context.namenode.catalog());
            if let Err((checker, text)) = found {
                context.runtime.violate(checker, text);
            }
            let now = context.runtime.now();
            let found = context.checks.leader.check_acts(now, self.number, holder);
            context.runtime.expect(found);
            match output {
                MoveOutput::Fetch { node, after, limit } => {
                    let request = Request::DrainBlocks { holder, node, after, limit };
                    self.request(context, request, ManagerCall::Fetch(node));
                }
                MoveOutput::Page { call, node, after, limit } => {
                    let request = Request::DrainBlocks { holder, node, after, limit };
                    self.request(context, request, ManagerCall::Page(call));
                }
                MoveOutput::DropCopies { call, blocks } => {
                    let request = Request::DropCopies { holder, blocks };
                    self.request(context, request, ManagerCall::DropCopies(call));
                }
                MoveOutput::Reserve { call, moves } => {
                    let request = Request::Reserve { holder, moves };
                    self.request(context, request, ManagerCall::Reserve(call));
                }
                MoveOutput::Commit { call, moves } => {
                    let request = Request::Commit { holder, moves };
                    self.request(context, request, ManagerCall::Commit(call));
                }
                MoveOutput::Abandon { call, blocks } => {
                    let request = Request::Abandon { holder, blocks };
                    self.request(context, request, ManagerCall::Abandon(call));
                }
                MoveOutput::Forecast { node, forecast } => {
                    let request = Request::Forecast { holder, node, forecast };
                    self.request(context, request, ManagerCall::Forecast);
                }
                MoveOutput::Push { call, source, address, mut moves, within } => {
                    let Some(place) = Host::at(&address) else { continue };
                    let is_of_drain = call < Background::CALLS_FROM;
                    if is_of_drain
                        && context.checks.is_kind()
                        && context.runtime.has_bug(InjectedBug::PushesEmptied)
                    {
                        moves.clear();
                    }
                    let body = RequestBody::Data(source, DataRequest::Order(Order::Push { moves }));
                    let purpose = Purpose::Manager(self.number, ManagerCall::Push(call));
                    context.runtime.call(self.host(), place, body, within.0, purpose);
                }
            }
        }
        self.wake(context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let place = self.host();
        let Some(due) = self.decisions.deadline() else { return };
        let at = context.runtime.now() + context.runtime.until(place, due).max(1000);
        if self.wake_at.is_none_or(|before| at < before) {
            self.wake_at = Some(at);
            context.runtime.set_timer(place, at - context.runtime.now(), Timer::Relocate);
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
