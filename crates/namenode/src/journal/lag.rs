//! How far the disk is behind the journal when changes are acknowledged before it has them.
//!
//! A thread syncs the journal again and again while there is something to sync. How far it may fall
//! behind is bounded: beyond that, no change is taken until the disk has caught up.
//!
//! Time in which the process was stopped, or its machine paused, does not count: the disk was not
//! slow then, it had no request. A second thread looks at the clock while something waits, because
//! a pause and a sync that takes long look the same to the first.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::files::Stored;

/// Writes that are this close together count as one. Bounds the list of what waits: 400 entries for
/// the 2 s that the disk may be behind by default. Chosen, not measured.
const GRAIN: Duration = Duration::from_millis(5);

/// Time between two looks at the clock while something waits for the disk. A twentieth of the time
/// that the disk may be behind by default, and so much a pause is taken for work at most.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The most that counts between two looks: what is longer, the process was not there. Several times
/// as long as [`POLL_INTERVAL`], because a busy machine lets a thread wait.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// How far the disk may be behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How long after a change its sync begins.
    pub(crate) every: Duration,
    /// Longest time that the oldest change may wait for the disk.
    pub(crate) age_max: Duration,
    /// Most bytes that may wait for it.
    pub(crate) bytes_max: u64,
}

/// What the disk does not have yet.
#[derive(Debug)]
pub(crate) struct Lag {
    limits: Limits,
    state: Mutex<LagState>,
    /// Held during a sync: of two at once, only one would get the error.
    one: Mutex<()>,
    /// There is something to sync, or nothing more will come.
    wake: Condvar,
}

/// A clock that stands still while the process does.
#[derive(Debug, Clone, Copy)]
struct Presence {
    passed: Duration,
    looked_at: Instant,
}

impl Presence {
    const fn begin(now: Instant) -> Self {
        Self { passed: Duration::ZERO, looked_at: now }
    }

    fn look(&mut self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.looked_at);
        self.passed += since.min(LOOK_MAX);
        self.looked_at = now;
        self.passed
    }
}

/// A write that is not synced.
#[derive(Debug, Clone, Copy)]
struct UnsyncedWrite {
    /// Where it ends.
    end: u64,
    /// When its first byte was written.
    since: Instant,
    /// When its first byte was written, by the clock that stands still with the process.
    present: Duration,
}

/// Why the journal takes no change.
#[derive(Debug)]
pub(super) enum Unadmitted {
    /// The disk is too far behind, and will catch up.
    Behind { bytes: u64, age: Duration },
    /// A sync has failed.
    Failed(Arc<io::Error>),
}

#[derive(Debug)]
struct LagState {
    file: Arc<dyn Stored>,
    /// Counts the segments, so that a sync of an earlier one does not count for this one.
    segment: u64,
    written: u64,
    synced: u64,
    /// What is not synced, in the order in which it was written.
    waiting: VecDeque<UnsyncedWrite>,
    presence: Presence,
    failure: Option<Arc<io::Error>>,
    is_closed: bool,
}

impl LagState {
    fn age(&mut self) -> Duration {
        let now = self.presence.look(Instant::now());
        self.waiting.front().map_or(Duration::ZERO, |first| now.saturating_sub(first.present))
    }
}

impl Lag {
    /// Begins with a segment of which the disk has everything.
    pub(crate) fn new(limits: Limits, file: Arc<dyn Stored>, length: u64) -> Self {
        let state = LagState {
            file,
            segment: 0,
            written: length,
            synced: length,
            waiting: VecDeque::new(),
            presence: Presence::begin(Instant::now()),
            failure: None,
            is_closed: false,
        };
        Self { limits, state: Mutex::new(state), one: Mutex::new(()), wake: Condvar::new() }
    }

    /// Goes on with another segment. The disk has everything of it and of the one before.
    pub(super) fn next(&self, file: Arc<dyn Stored>, length: u64) {
        let mut state = self.state.lock();
        state.file = file;
        state.segment += 1;
        (state.written, state.synced) = (length, length);
        state.waiting.clear();
    }

    /// Refuses while the disk is too far behind, for good when a sync has failed. Returns up to
    /// where the disk has the segment.
    pub(super) fn admit(&self) -> Result<u64, Unadmitted> {
        let mut state = self.state.lock();
        if let Some(cause) = &state.failure {
            return Err(Unadmitted::Failed(Arc::clone(cause)));
        }
        let (age, bytes) = (state.age(), state.written - state.synced);
        if age > self.limits.age_max || bytes > self.limits.bytes_max {
            return Err(Unadmitted::Behind { bytes, age });
        }
        Ok(state.synced)
    }

    /// Notes that the segment was written up to here.
    pub(super) fn wrote(&self, written: u64) {
        let mut state = self.state.lock();
        state.written = written;
        let was_idle = state.waiting.is_empty();
        let since = Instant::now();
        let present = state.presence.look(since);
        match state.waiting.back_mut() {
            // Not the first: a sync that is under way ends with it.
            Some(last) if present - last.present < GRAIN => last.end = written,
            _ => state.waiting.push_back(UnsyncedWrite { end: written, since, present }),
        }
        if was_idle {
            self.wake.notify_all();
        }
    }

    /// Returns the bytes that wait for the disk, and how long the oldest does.
    pub(crate) fn waiting(&self) -> (u64, Duration) {
        let mut state = self.state.lock();
        (state.written - state.synced, state.age())
    }

    /// Returns why a sync failed, if one did.
    pub(crate) fn failure(&self) -> Option<Arc<io::Error>> {
        self.state.lock().failure.clone()
    }

    /// Syncs what was written. A failure is final: the kernel forgets what it could not write.
    pub(crate) fn sync(&self) {
        let _one = self.one.lock();
        let (file, segment, target) = {
            let state = self.state.lock();
            (Arc::clone(&state.file), state.segment, state.written)
        };
        let synced = file.sync();
        let mut state = self.state.lock();
        match synced {
            Ok(()) if state.segment == segment => {
                state.synced = state.synced.max(target);
                while state.waiting.front().is_some_and(|first| first.end <= target) {
                    state.waiting.pop_front();
                }
            }
            Ok(()) => {}
            Err(error) => {
                state.failure.get_or_insert(Arc::new(error));
                self.wake.notify_all();
            }
        }
    }

    /// Starts the thread that syncs, and within it the one that looks. It ends with [`Lag::close`]
    /// or the first failure.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<thread::JoinHandle<()>> {
        let lag = Arc::clone(self);
        let thread = thread::Builder::new().name("journal-sync".to_owned());
        thread.spawn(move || {
            thread::scope(|scope| {
                let looks = thread::Builder::new().name("journal-clock".to_owned());
                let looks = looks.spawn_scoped(scope, || lag.look());
                if let Err(error) = looks {
                    // Then looks are as rare as changes, and the age is too low.
                    tracing::warn!(%error, "no thread looks how long the disk takes");
                }
                while lag.wait() {
                    lag.sync();
                }
            });
        })
    }

    /// Looks at the clock while something waits for the disk, until the end.
    fn look(&self) {
        let mut state = self.state.lock();
        while !state.is_closed && state.failure.is_none() {
            if state.waiting.is_empty() {
                self.wake.wait(&mut state);
            } else {
                self.wake.wait_for(&mut state, POLL_INTERVAL);
                state.presence.look(Instant::now());
            }
        }
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.wake.notify_all();
    }

    /// Waits until a sync is due. Returns whether one will ever be.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.is_closed || state.failure.is_some() {
                return false;
            }
            let Some(first) = state.waiting.front() else {
                self.wake.wait(&mut state);
                continue;
            };
            let due = first.since + self.limits.every;
            if due <= Instant::now() {
                return true;
            }
            self.wake.wait_until(&mut state, due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        let began = Instant::now();
        let mut presence = Presence::begin(began);
        let at = |millis| began + Duration::from_millis(millis);
        for millis in (100..=3000).step_by(100) {
            assert_eq!(presence.look(at(millis)), Duration::from_millis(millis));
        }
        let after = presence.look(at(15_000));
        assert_eq!(after, Duration::from_secs(3) + LOOK_MAX, "of twelve seconds, half of one");
        assert_eq!(presence.look(at(14_000)), after, "and no look goes back");
    }
}
