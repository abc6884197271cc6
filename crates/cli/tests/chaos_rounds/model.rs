//! The run's own model of the data: what each name may hold, and for how long it did.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sanderling_protocol::ObjectId;
use sanderling_protocol::refusal::ByteRange;

/// Bytes of the longest object.
pub(crate) const BYTES_MAX: usize = 2_400_000;

/// Starts of contents in the pool.
const STARTS: usize = 1 << 20;

/// How long replaced states are remembered: longer than any journal waits for its disk.
const REMEMBERED: Duration = Duration::from_secs(40);

/// Most time that the machine may take from this process before its leases may end: a job's is 7 s
/// long and is renewed every 2.3 s.
const LAG_MAX: Duration = Duration::from_secs(2);

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The promise, in one word.
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

/// What the run judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// What was acknowledged is there, or is reported lost for a cause.
    Kept,
    /// No byte that was not written there is delivered.
    RightBytes,
    /// What was deleted stays away.
    StaysDeleted,
    /// A change is made once.
    Once,
    /// A call ends at its deadline.
    Deadline,
    /// The fleet comes to rest after a fault.
    Settles,
    /// No process ends by itself.
    StaysUp,
    /// A damaged journal is refused.
    Damage,
    /// A renewed lease is kept.
    Lease,
    /// A call that fails returns why.
    Typed,
}

impl Violation {
    pub(crate) fn new(promise: Promise, what: impl Into<String>) -> Self {
        Self { promise, what: what.into() }
    }
}

/// What a name may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    Holds(Version),
}

/// Bytes of one seed: shorter ones are the beginning of longer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) seed: u64,
    /// Bytes that were acknowledged.
    pub(crate) least: usize,
    /// Bytes that were ever sent.
    pub(crate) most: usize,
}

/// One name.
#[derive(Debug, Clone, Default)]
struct Name {
    /// One state, or several while it is unknown how a change ended. Empty: absent.
    may: Vec<State>,
    /// What it held before, and until when that was so.
    past: VecDeque<(Instant, Vec<State>)>,
}

/// A loss that a reader got.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "the name is for people")]
pub(crate) struct SeenLoss {
    pub(crate) name: String,
    pub(crate) object: ObjectId,
    pub(crate) ranges: Vec<ByteRange>,
}

/// The whole model of a run.
#[derive(Debug)]
pub(crate) struct Model {
    pool: Bytes,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    names: BTreeMap<String, Name>,
    seen_lost: Vec<SeenLoss>,
    violations: Vec<Violation>,
    figures: Figures,
    last_ack: Option<Instant>,
    /// How much later than requested a timer of this process fired since the round began.
    lag: Duration,
}

/// What was done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    /// Calls by kind.
    pub(crate) calls: BTreeMap<&'static str, u64>,
    /// Errors by name.
    pub(crate) errors: BTreeMap<&'static str, u64>,
    pub(crate) written_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) longest: Duration,
    pub(crate) longest_kind: &'static str,
}

impl Version {
    pub(crate) const fn whole(seed: u64, bytes: usize) -> Self {
        Self { seed, least: bytes, most: bytes }
    }
}

impl Model {
    pub(crate) fn new() -> Self {
        let pool = crate::cluster::bytes_of(7, STARTS + 2 * BYTES_MAX);
        Self { pool, inner: Mutex::default() }
    }

    /// Returns bytes of a seed.
    pub(crate) fn content(&self, seed: u64, from: usize, bytes: usize) -> Bytes {
        let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let start = usize::try_from(start).expect("20 bits") + from;
        self.pool.slice(start..start + bytes)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread panics with it")
    }

    pub(crate) fn violate(&self, promise: Promise, what: impl Into<String>) {
        self.inner().violations.push(Violation::new(promise, what));
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.inner().violations)
    }

    /// Returns what a name may hold.
    pub(crate) fn may(&self, name: &str) -> Vec<State> {
        let inner = self.inner();
        let known = inner.names.get(name).map(|name| name.may.clone());
        known.filter(|may| !may.is_empty()).unwrap_or_else(|| vec![State::Absent])
    }

    /// A change begins: from now on the name may hold this, too. Returns what it may hold until
    /// then.
    pub(crate) fn begin(&self, name: &str, state: State) -> Vec<State> {
        let before = self.may(name);
        let mut after = before.clone();
        join(&mut after, &[state]);
        self.inner().names.entry(name.to_owned()).or_default().may = after;
        before
    }

    /// A change was acknowledged: the name holds one of these and nothing else.
    pub(crate) fn acknowledged(&self, name: &str, now_may: Vec<State>) {
        let now = Instant::now();
        let mut inner = self.inner();
        inner.last_ack = Some(now);
        let known = inner.names.entry(name.to_owned()).or_default();
        // Until now a reader could find either.
        let until_now = std::mem::replace(&mut known.may, now_may);
        known.past.push_back((now, until_now));
        while known.past.front().is_some_and(|(until, _)| until.elapsed() > REMEMBERED) {
            known.past.pop_front();
        }
    }

    /// A change was refused for good: the name holds what it held.
    pub(crate) fn refused(&self, name: &str, before: Vec<State>) {
        self.inner().names.entry(name.to_owned()).or_default().may = before;
    }

    /// Returns all names below a directory.
    pub(crate) fn names(&self, below: &str) -> Vec<String> {
        let inner = self.inner();
        inner.names.keys().filter(|name| name.starts_with(below)).cloned().collect()
    }

    /// Returns what a name held at any time since a moment, and what it may hold now.
    pub(crate) fn may_since(&self, name: &str, since: Instant) -> Vec<State> {
        let mut all = self.may(name);
        let inner = self.inner();
        let past = inner.names.get(name).map(|name| &name.past);
        for (_, states) in past.into_iter().flatten().filter(|(until, _)| *until >= since) {
            join(&mut all, states);
        }
        all
    }

    /// Returns when the last change was acknowledged.
    pub(crate) fn last_ack(&self) -> Option<Instant> {
        self.inner().last_ack
    }

    /// Returns the states that a name held before, the newest first, and until when.
    pub(crate) fn past(&self, name: &str) -> Vec<(Instant, Vec<State>)> {
        let inner = self.inner();
        let past = inner.names.get(name).map(|name| name.past.iter().rev().cloned().collect());
        past.unwrap_or_default()
    }

    /// The fleet is at rest and this is what the name holds. What was deleted is forgotten:
    /// whatever comes back is seen in its directory.
    pub(crate) fn observed(&self, name: &str, state: &State) {
        let mut inner = self.inner();
        match state {
            State::Absent => {
                inner.names.remove(name);
            }
            State::Holds(_) => {
                let known = inner.names.entry(name.to_owned()).or_default();
                known.may = vec![state.clone()];
                known.past.clear();
            }
        }
    }

    pub(crate) fn seen_lost(&self, name: &str, object: ObjectId, ranges: &[ByteRange]) {
        let (name, ranges) = (name.to_owned(), ranges.to_vec());
        self.inner().seen_lost.push(SeenLoss { name, object, ranges });
    }

    pub(crate) fn take_seen_losses(&self) -> Vec<SeenLoss> {
        std::mem::take(&mut self.inner().seen_lost)
    }

    /// Returns whether bytes at an offset are those of one of the states; with `end`, whether the
    /// object may end behind them.
    pub(crate) fn find(
        &self,
        may: &[State],
        from: usize,
        bytes: &Bytes,
        end: bool,
    ) -> Option<State> {
        let to = from + bytes.len();
        let is_it = |state: &&State| match state {
            State::Absent => false,
            State::Holds(version) => {
                let ends = if end { version.least..=version.most } else { to..=version.most };
                ends.contains(&to) && *bytes == self.content(version.seed, from, bytes.len())
            }
        };
        may.iter().find(is_it).cloned()
    }

    pub(crate) fn count(&self, kind: &'static str, took: Duration, error: Option<&'static str>) {
        let mut inner = self.inner();
        let figures = &mut inner.figures;
        *figures.calls.entry(kind).or_default() += 1;
        if took > figures.longest {
            (figures.longest, figures.longest_kind) = (took, kind);
        }
        if let Some(error) = error {
            *figures.errors.entry(error).or_default() += 1;
        }
    }

    pub(crate) fn count_bytes(&self, written: usize, read: usize) {
        let mut inner = self.inner();
        inner.figures.written_bytes += written as u64;
        inner.figures.read_bytes += read as u64;
    }

    pub(crate) fn figures(&self) -> Figures {
        self.inner().figures.clone()
    }

    pub(crate) fn calls(&self) -> u64 {
        self.inner().figures.calls.values().sum()
    }

    /// Notes how late a timer fired: the machine gave this process no time.
    pub(crate) fn lagged(&self, lag: Duration) {
        let mut inner = self.inner();
        inner.lag = inner.lag.max(lag);
    }

    pub(crate) fn lag(&self) -> Duration {
        self.inner().lag
    }

    /// Another round begins.
    pub(crate) fn forget_lag(&self) {
        self.inner().lag = Duration::ZERO;
    }

    /// Returns whether this process got its time, so that it renewed in time what it held.
    pub(crate) fn renews_in_time(&self) -> bool {
        self.lag() < LAG_MAX
    }
}

/// Adds states; of one seed they become one.
pub(crate) fn join(all: &mut Vec<State>, more: &[State]) {
    for state in more {
        let State::Holds(new) = state else {
            if !all.contains(&State::Absent) {
                all.push(State::Absent);
            }
            continue;
        };
        let same = all.iter_mut().find_map(|state| match state {
            State::Holds(version) if version.seed == new.seed => Some(version),
            _ => None,
        });
        match same {
            Some(version) => {
                version.least = version.least.min(new.least);
                version.most = version.most.max(new.most);
            }
            None => all.push(state.clone()),
        }
    }
}
