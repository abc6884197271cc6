//! The manager's life: wait for the leadership lease, act, lose it, wait again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sanderling_core::durable::{DurableDrain, DurableInput};
use sanderling_core::manager::{
    EventWatch, LeaderTerm, Leadership, Manager as Decisions, ViewSchedule,
};
use sanderling_core::relocation::{Input, MoveOutput};
use sanderling_core::{Machine, Mechanism};
use sanderling_protocol::{self as protocol, Millis, NodeId, Refusal};
use sanderling_transport::trace::{self, Span};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::baseline;
use crate::calls::{Completion, NamenodeClient};
use crate::options::ManagerOptions;

/// Time to give the lease back when the manager stops. A tenth of the lease by default: if the
/// namenode does not answer, the next manager waits for the lease's end.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(300);

/// Leads, or waits for the leadership lease.
#[derive(Debug)]
pub(crate) struct ManagerProcess {
    options: ManagerOptions,
    caller: NamenodeClient,
    stop: CancellationToken,
    leadership: Leadership,
    clock: LeaseClock,
    /// Set while it leads, for the metrics.
    is_leading: Arc<AtomicBool>,
}

/// Time for the decisions, by a clock that never steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseClock(Instant);

/// Begins the trace of a call that moves blocks. Those that only look for work are not recorded.
fn span_of(output: &MoveOutput) -> Option<Span> {
    let (name, blocks) = match output {
        MoveOutput::Reserve { moves, .. } => ("reserve_moves", moves.len()),
        MoveOutput::Push { moves, .. } => ("push_blocks", moves.len()),
        MoveOutput::Commit { moves, .. } => ("commit_moves", moves.len()),
        _ => return None,
    };
    let mut span = trace::begin(name)?;
    span.number("sanderling.blocks", blocks as u64);
    if let MoveOutput::Push { source, .. } = output {
        span.number("sanderling.source_node", u64::from(source.0));
    }
    Some(span)
}

impl LeaseClock {
    pub(crate) fn now(self) -> protocol::Instant {
        let passed = u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX);
        protocol::Instant(passed)
    }

    /// Returns the moment of a time.
    fn moment(self, at: protocol::Instant) -> Instant {
        self.0 + Duration::from_micros(at.0)
    }
}

impl ManagerProcess {
    pub(crate) fn new(
        options: ManagerOptions,
        caller: NamenodeClient,
        stop: CancellationToken,
        is_leading: Arc<AtomicBool>,
    ) -> Self {
        let leadership = Leadership::new(Millis::from(options.lease));
        Self { options, caller, stop, leadership, clock: LeaseClock(Instant::now()), is_leading }
    }

    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.live() => {}
        }
        if self.leadership.may_hold() {
            // Another manager need not wait then. If it does not arrive, the lease ends by itself.
            let _ = timeout(RELEASE_TIMEOUT, self.caller.clone().release()).await;
        }
    }

    async fn live(&mut self) {
        loop {
            let now = self.clock.now();
            if let Some(term) = self.leadership.term(now) {
                self.lead(term).await;
            } else if let Some(request) = self.leadership.poll_request(now) {
                let answer = self.caller.clone().manage().await;
                self.leadership.answered(self.clock.now(), request, answer);
            } else if let Some(due) = self.leadership.deadline(now) {
                sleep_until(self.clock.moment(due)).await;
            }
        }
    }

    async fn lead(&mut self, term: LeaderTerm) {
        info!(name = self.options.name, "this manager leads");
        self.is_leading.store(true, Ordering::Relaxed);
        match self.options.mechanism {
            Mechanism::Sanderling => LeaderLoop::new(self, term).run().await,
            Mechanism::Baseline => {
                baseline::act(
                    &self.caller,
                    &self.options,
                    (&mut self.leadership, term),
                    self.clock,
                )
                .await;
            }
        }
        self.is_leading.store(false, Ordering::Relaxed);
        // The calls of the term have ended with it.
        self.leadership.dropped(self.clock.now());
        warn!(name = self.options.name, "this manager has lost the leadership lease");
    }
}

/// A manager that has the leadership lease.
struct LeaderLoop<'a> {
    options: &'a ManagerOptions,
    caller: &'a NamenodeClient,
    leadership: &'a mut Leadership,
    term: LeaderTerm,
    clock: LeaseClock,
    decisions: Decisions,
    /// Copies durable directories to their stores.
    durable: DurableDrain,
    /// When their work is read next; `None` while it is being read.
    durable_view_at: Option<Instant>,
    /// Calls under way. All of them end with this manager's term.
    calls: JoinSet<Completion>,
    /// Those of them that move blocks. They have places of their own: orders to slow stores would
    /// keep a drain from its deadline.
    moves: JoinSet<Completion>,
    drains: BTreeSet<NodeId>,
    views: ViewSchedule,
    events: EventWatch,
    /// Whether copies that no node has room for were spoken of.
    has_logged_unplaced: bool,
}

impl<'a> LeaderLoop<'a> {
    fn new(manager: &'a mut ManagerProcess, term: LeaderTerm) -> Self {
        let options = &manager.options;
        Self {
            options,
            caller: &manager.caller,
            leadership: &mut manager.leadership,
            term,
            clock: manager.clock,
            decisions: Decisions::new(options.relocator.clone(), options.background.clone()),
            durable: DurableDrain::default(),
            durable_view_at: Some(Instant::now()),
            calls: JoinSet::new(),
            moves: JoinSet::new(),
            drains: BTreeSet::new(),
            views: ViewSchedule::new(options.poll.into(), options.poll_idle.into()),
            events: EventWatch::default(),
            has_logged_unplaced: false,
        }
    }

    /// Leads until the term ends.
    async fn run(mut self) {
        while self.leadership.term(self.clock.now()) == Some(self.term) {
            let now = Instant::now();
            self.start_due();
            let due = self.next_due(now);
            let ended = tokio::select! {
                Some(ended) = self.calls.join_next() => ended,
                Some(ended) = self.moves.join_next() => ended,
                () = sleep_until(due) => continue,
            };
            match ended {
                Ok(completion) => self.take(completion),
                Err(error) => {
                    // A call's end is lost, so the machine would wait for ever: begin anew.
                    tracing::error!(%error, "a call panicked");
                    self.leadership.resign(self.clock.now());
                }
            }
        }
    }

    /// Starts the calls that are due.
    fn start_due(&mut self) {
        let clock = self.clock.now();
        if let Some(request) = self.leadership.poll_request(clock) {
            let manage = self.caller.clone().manage();
            self.calls.spawn(async move { Completion::Lease(request, manage.await) });
        }
        if let Some(request) = self.views.poll_request(clock) {
            let drains = self.caller.clone().drains();
            self.calls.spawn(async move { Completion::View(request, drains.await) });
        }
        if let Some(after) = self.events.poll_request(clock) {
            self.calls.spawn(self.caller.clone().events(after));
        }
        if self.decisions.deadline().is_some_and(|due| due <= clock) {
            self.decisions.handle_deadline(clock);
        }
        self.start_durable();
        while self.moves.len() < self.options.calls_max
            && let Some(output) = self.decisions.poll_output()
        {
            let span = span_of(&output);
            self.moves.spawn(trace::run(span, self.caller.clone().perform(output)));
        }
    }

    /// Starts the calls for durable directories that are due.
    fn start_durable(&mut self) {
        let clock = self.clock.now();
        if self.durable_view_at.is_some_and(|at| at <= Instant::now()) {
            self.durable_view_at = None;
            self.calls.spawn(self.caller.clone().durable_work());
        }
        if self.durable.deadline().is_some_and(|due| due <= clock) {
            self.durable.handle_deadline(clock);
        }
        // They are few, and bounded by the machine: they do not wait behind moves.
        while let Some(output) = self.durable.poll_output() {
            self.calls.spawn(self.caller.clone().perform_durable(output));
        }
    }

    fn next_due(&self, now: Instant) -> Instant {
        let clock = self.clock.now();
        // Without a deadline the term is over, which the next round finds.
        let mut due = self.leadership.deadline(clock).map_or(now, |due| self.clock.moment(due));
        for deadline in [self.views.deadline(), self.events.deadline()].into_iter().flatten() {
            due = due.min(self.clock.moment(deadline));
        }
        if let Some(at) = self.durable_view_at {
            due = due.min(at);
        }
        let durable = self.durable.deadline();
        if let Some(deadline) = self.decisions.deadline().into_iter().chain(durable).min() {
            // A millisecond at least: what is overdue and waits for a call's end must not spin.
            let left = Duration::from(clock.until(deadline));
            due = due.min(now + left.max(Duration::from_millis(1)));
        }
        due
    }

    /// Takes the result of a call.
    fn take(&mut self, completion: Completion) {
        match completion {
            Completion::Input(input) => self.input(input),
            Completion::View(request, Ok(view)) => {
                let has_drains =
                    matches!(&view, Input::Drains { drains, .. } if !drains.is_empty());
                self.views.answered(self.clock.now(), request, has_drains);
                self.input(view);
            }
            Completion::View(request, Err(refusal)) => {
                self.views.failed(self.clock.now(), request);
                if let Some(Refusal::NotManager { remaining }) = refusal {
                    self.leadership.refused(self.clock.now(), remaining);
                }
            }
            Completion::Lease(request, answer) => {
                self.leadership.answered(self.clock.now(), request, answer);
            }
            Completion::NotManager(remaining) => {
                self.leadership.refused(self.clock.now(), remaining)
            }
            Completion::Events(Some(events)) => {
                let now = self.clock.now();
                if self.events.answered(now, &events) {
                    self.views.changed(now);
                }
            }
            Completion::Events(None) => self.events.failed(self.clock.now()),
            Completion::Durable(input) => self.durable.handle(self.clock.now(), input),
            Completion::DurableView(view) => {
                match view {
                    Ok(view) => self.durable.handle(self.clock.now(), view),
                    Err(Some(Refusal::NotManager { remaining })) => {
                        self.leadership.refused(self.clock.now(), remaining);
                    }
                    Err(_) => {}
                }
                let pause = Duration::from(self.durable.view_pause());
                self.durable_view_at = Some(Instant::now() + pause);
            }
            Completion::Reported => {}
        }
    }

    fn input(&mut self, input: Input) {
        let now = self.clock.now();
        if let Input::Drains { drains, nodes } = &input {
            let draining = drains.iter().map(|work| work.node).collect();
            self.log_draining(&draining);
            self.log_unplaced();
            self.drains = draining;
            self.durable.handle(now, DurableInput::noticed(nodes));
        }
        self.decisions.handle(now, input);
    }

    fn log_draining(&self, draining: &BTreeSet<NodeId>) {
        let counts = self.decisions.relocated();
        for node in draining.difference(&self.drains) {
            info!(%node, "drain begins");
        }
        for node in self.drains.difference(draining) {
            let (blocks, bytes) = (counts.moved_blocks, counts.moved_bytes);
            let failed = counts.failed_moves;
            info!(%node, blocks, bytes, failed, "drain ends; moved so far");
        }
    }

    /// Logs once that nodes hold more than their notice allows and no node has room for copies.
    fn log_unplaced(&mut self) {
        let bytes = self.decisions.background().unplaced_bytes;
        if bytes > 0 && !self.has_logged_unplaced {
            warn!(bytes, "no room for copies: a notice now could not be met for so many bytes");
        }
        if bytes == 0 && self.has_logged_unplaced {
            info!("there is room for every copy again");
        }
        self.has_logged_unplaced = bytes > 0;
    }
}
