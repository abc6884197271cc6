//! What the mock shows, and how it fails.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::sync::watch;

/// The name of the machine that the mock speaks for.
pub(super) const MACHINE: &str = "vm_1";

/// How requests fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failing {
    /// With this status.
    Status(u16),
    /// They are answered late.
    Slow(Duration),
    /// They are answered with something else than documented.
    Garbage,
    /// They are not answered.
    Hang,
}

/// What the mock shows.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct MockState {
    /// The machine will be taken then.
    #[serde(skip)]
    pub(super) preempted_at: Option<SystemTime>,
    /// Whether it will be taken at all.
    pub(super) is_preempted: bool,
    /// When the cloud recommended to leave.
    #[serde(skip)]
    pub(super) rebalance_at: Option<SystemTime>,
    /// Counts the notices shown, for the names of events.
    pub(super) notices: u32,
    /// Events that were acknowledged.
    pub(super) acknowledged: Vec<String>,
    /// Tokens given out.
    pub(super) tokens: u32,
    /// Requests to the clouds' pages.
    pub(super) requests: u64,
    /// Requests that were failed.
    pub(super) failed: u64,
    #[serde(skip)]
    valid_tokens: BTreeSet<String>,
    #[serde(skip)]
    failing: Option<(Failing, Option<u32>)>,
}

/// The state of the mock.
#[derive(Debug)]
pub(super) struct Mock {
    shown: Mutex<MockState>,
    /// Counts changes, for requests that wait for one.
    version: watch::Sender<u64>,
}

impl Mock {
    pub(super) fn new() -> Self {
        Self { shown: Mutex::default(), version: watch::Sender::new(1) }
    }

    pub(super) fn shown(&self) -> MutexGuard<'_, MockState> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Shows that the machine will be taken in `left`.
    pub(super) fn preempt(&self, left: Duration) {
        let mut shown = self.shown();
        shown.preempted_at = Some(SystemTime::now() + left);
        shown.is_preempted = true;
        shown.notices += 1;
        self.version.send_modify(|version| *version += 1);
    }

    pub(super) fn recommend(&self) {
        self.shown().rebalance_at = Some(SystemTime::now());
    }

    /// Shows nothing any more.
    pub(super) fn cancel(&self) {
        let mut shown = self.shown();
        shown.preempted_at = None;
        shown.is_preempted = false;
        shown.rebalance_at = None;
        self.version.send_modify(|version| *version += 1);
    }

    /// Fails the next `count` requests, or all until the next order.
    pub(super) fn fail(&self, failing: Option<Failing>, count: Option<u32>) {
        self.shown().failing = failing.map(|failing| (failing, count));
        // Waiting requests are answered; their clients come again and fail.
        self.version.send_modify(|version| *version += 1);
    }

    /// Counts a request; returns how it is to fail.
    pub(super) fn take_failure(&self) -> Option<Failing> {
        let mut shown = self.shown();
        shown.requests += 1;
        let (failing, left) = shown.failing?;
        let left = match left {
            None => None,
            Some(0 | 1) => {
                shown.failing = None;
                shown.failed += 1;
                return Some(failing);
            }
            Some(left) => Some(left - 1),
        };
        shown.failing = Some((failing, left));
        shown.failed += 1;
        Some(failing)
    }

    pub(super) fn new_token(&self) -> String {
        let mut shown = self.shown();
        shown.tokens += 1;
        let token = format!("AQAEAMock{:08}==", shown.tokens);
        shown.valid_tokens.insert(token.clone());
        token
    }

    pub(super) fn is_valid(&self, token: &str) -> bool {
        self.shown().valid_tokens.contains(token)
    }

    /// Ends every token before its time.
    pub(super) fn expire_tokens(&self) {
        self.shown().valid_tokens.clear();
    }
}
