//! The manager's life: wait for the right to act, act, lose it, wait again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sanderling_core::manager::Manager as Decisions;
use sanderling_core::relocation::Input;
use sanderling_core::{Machine, Mechanism};
use sanderling_protocol::NodeId;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::calls::{Caller, News};
use crate::options::ManagerOptions;
use crate::seed;

/// Pause between two tries to get the right to act.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Time to give the right to act back when the manager stops.
const RELEASE_WITHIN: Duration = Duration::from_millis(300);

/// Who acts, or waits to.
#[derive(Debug)]
pub(crate) struct Manager {
    options: ManagerOptions,
    caller: Caller,
    stop: CancellationToken,
    may_act: AtomicBool,
}

impl Manager {
    pub(crate) const fn new(
        options: ManagerOptions,
        caller: Caller,
        stop: CancellationToken,
    ) -> Self {
        Self { options, caller, stop, may_act: AtomicBool::new(false) }
    }

    pub(crate) async fn run(self) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.live() => {}
        }
        if self.may_act.load(Ordering::Relaxed) {
            // Another manager need not wait then. If it does not arrive, the right ends by itself.
            let _ = timeout(RELEASE_WITHIN, self.caller.clone().release()).await;
        }
    }

    async fn live(&self) {
        let mut pause = RETRY.0;
        loop {
            let asked_at = Instant::now();
            // It may be given although the answer is never read.
            self.may_act.store(true, Ordering::Relaxed);
            match self.caller.clone().manage().await {
                News::Renewed => {
                    info!(name = self.options.name, "this manager acts");
                    match self.options.mechanism {
                        Mechanism::Sanderling => Acting::new(self, asked_at).run().await,
                        Mechanism::Seed => seed::act(&self.caller, &self.options, asked_at).await,
                    }
                    warn!(name = self.options.name, "this manager acts no more");
                    pause = RETRY.0;
                }
                News::NotManager(remaining) => {
                    self.may_act.store(false, Ordering::Relaxed);
                    sleep(remaining.clamp(RETRY.0, RETRY.1)).await;
                    continue;
                }
                _ => pause = (pause * 2).min(RETRY.1),
            }
            sleep(pause).await;
        }
    }
}

/// A manager that has the right to act.
struct Acting<'a> {
    options: &'a ManagerOptions,
    caller: &'a Caller,
    decisions: Decisions,
    began: Instant,
    /// Calls under way. All of them end with this manager's right.
    calls: JoinSet<News>,
    drains: BTreeSet<NodeId>,
    lease_until: Instant,
    renew_at: Instant,
    renewed_from: Option<Instant>,
    look_at: Instant,
    is_looking: bool,
    /// Something happened while a view was under way that it may not show.
    look_again: bool,
    event_last: u64,
    /// Whether copies that no node has room for were spoken of.
    has_said_unplaced: bool,
}

impl<'a> Acting<'a> {
    fn new(manager: &'a Manager, asked_at: Instant) -> Self {
        let options = &manager.options;
        let now = Instant::now();
        let mut acting = Self {
            options,
            caller: &manager.caller,
            decisions: Decisions::new(options.relocator.clone(), options.background.clone()),
            began: now,
            calls: JoinSet::new(),
            drains: BTreeSet::new(),
            lease_until: asked_at + options.lease,
            renew_at: asked_at + options.lease / 3,
            renewed_from: None,
            look_at: now,
            is_looking: false,
            look_again: false,
            event_last: 0,
            has_said_unplaced: false,
        };
        acting.watch(Duration::ZERO);
        acting
    }

    /// Acts until the right is lost.
    async fn run(mut self) {
        loop {
            let now = Instant::now();
            if self.lease_until <= now {
                return;
            }
            self.start_due(now);
            let due = self.next_due(now);
            let ended = tokio::select! {
                Some(ended) = self.calls.join_next() => ended,
                () = sleep_until(due) => continue,
            };
            let may_act = match ended {
                Ok(news) => self.take(news),
                Err(error) => {
                    // A call's end is lost, so the machine would wait for ever: begin anew.
                    tracing::error!(%error, "a call panicked");
                    false
                }
            };
            if !may_act {
                return;
            }
        }
    }

    /// Starts the calls that are due.
    fn start_due(&mut self, now: Instant) {
        if self.renew_at <= now && self.renewed_from.is_none() {
            self.renewed_from = Some(now);
            self.calls.spawn(self.caller.clone().manage());
        }
        if self.look_at <= now && !self.is_looking {
            self.is_looking = true;
            self.calls.spawn(self.caller.clone().drains());
        }
        let clock = self.now();
        if self.decisions.deadline().is_some_and(|due| due <= clock) {
            self.decisions.handle_deadline(clock);
        }
        while self.calls.len() < self.options.calls_max
            && let Some(output) = self.decisions.poll_output()
        {
            self.calls.spawn(self.caller.clone().perform(output));
        }
    }

    fn next_due(&self, now: Instant) -> Instant {
        let mut due = self.lease_until;
        if self.renewed_from.is_none() {
            due = due.min(self.renew_at);
        }
        if !self.is_looking {
            due = due.min(self.look_at);
        }
        if let Some(deadline) = self.decisions.deadline() {
            // A millisecond at least: what is overdue and waits for a call's end must not spin.
            let left = Duration::from(self.now().until(deadline));
            due = due.min(now + left.max(Duration::from_millis(1)));
        }
        due
    }

    /// Takes what a call brought; tells whether this manager still may act.
    fn take(&mut self, news: News) -> bool {
        match news {
            News::Input(input) => self.input(input),
            News::NoView => {
                self.is_looking = false;
                self.look_at = Instant::now() + self.options.poll.max(RETRY.0);
            }
            News::Renewed => {
                let from = self.renewed_from.take().unwrap_or_else(Instant::now);
                self.lease_until = from + self.options.lease;
                self.renew_at = from + self.options.lease / 3;
            }
            News::NotRenewed => {
                self.renewed_from = None;
                self.renew_at = Instant::now() + RETRY.0;
            }
            News::NotManager(_) => return false,
            News::Event(Some((last, is_news))) => {
                self.event_last = last;
                if is_news {
                    self.look_now();
                }
                self.watch(Duration::ZERO);
            }
            News::Event(None) => self.watch(RETRY.1),
            News::Told => {}
        }
        true
    }

    fn input(&mut self, input: Input) {
        if let Input::Drains { drains, .. } = &input {
            self.is_looking = false;
            let pause = if drains.is_empty() { self.options.poll_idle } else { self.options.poll };
            self.look_at = Instant::now() + pause;
            if std::mem::take(&mut self.look_again) {
                self.look_at = Instant::now();
            }
            let draining = drains.iter().map(|work| work.node).collect();
            self.say(&draining);
            self.say_unplaced();
            self.drains = draining;
        }
        let now = self.now();
        self.decisions.handle(now, input);
    }

    /// Returns the time for the decisions, by a clock that never steps.
    fn now(&self) -> sanderling_protocol::Instant {
        let passed = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        sanderling_protocol::Instant(passed)
    }

    fn look_now(&mut self) {
        self.look_at = Instant::now();
        self.look_again = self.is_looking;
    }

    fn watch(&mut self, pause: Duration) {
        let (caller, after) = (self.caller.clone(), self.event_last);
        self.calls.spawn(async move {
            sleep(pause).await;
            caller.event(after).await
        });
    }

    fn say(&self, draining: &BTreeSet<NodeId>) {
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

    /// Says once that nodes hold more than their notice allows and nobody has room for copies.
    fn say_unplaced(&mut self) {
        let bytes = self.decisions.background().unplaced_bytes;
        if bytes > 0 && !self.has_said_unplaced {
            warn!(bytes, "no room for copies: a notice now could not be met for so many bytes");
        }
        if bytes == 0 && self.has_said_unplaced {
            info!("there is room for every copy again");
        }
        self.has_said_unplaced = bytes > 0;
    }
}
