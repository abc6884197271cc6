//! What a runner has seen of a task's lock: since when it has not changed while the backend, where
//! it is stored, answered.

use sanderling_protocol::{Instant, Millis};

use super::bag_looks::BAG_ROUND;
use super::lock::{LockRecord, LockView, judge, renew_every};

/// How many ages a record is watched at most that no runner could renew, as it waits for the store
/// of its durable directory: a store that is away keeps no task from going on. Chosen, not
/// measured.
const WAITING_AGES: u64 = 4;

/// The time from which on a backend has answered all calls, and was called often enough to show
/// that. Only in such a time can runners renew their locks.
#[derive(Debug, Clone, Copy)]
pub struct BackendAnswers {
    since: Instant,
    /// The last answer; none after a call that failed.
    last: Option<Instant>,
}

impl BackendAnswers {
    /// Begins at `now`, as if the backend had answered then.
    #[must_use]
    pub const fn from(now: Instant) -> Self {
        Self { since: now, last: Some(now) }
    }

    /// Notes an answer. After a pause of more than a third of a lock's `age`, in which a runner
    /// renews its lock once, the time begins anew.
    pub fn answered(&mut self, now: Instant, age: Millis) {
        // An agent calls it in each of its rounds, which may be slow.
        let pause_max = renew_every(age).max(Millis(3 * BAG_ROUND.0));
        if self.last.is_none_or(|last| now.since(last) > pause_max) {
            self.since = now;
        }
        self.last = Some(now);
    }

    /// Notes that a call failed: the time begins anew with the next answer.
    pub const fn failed(&mut self) {
        self.last = None;
    }
}

/// What a look at a task's lock has shown: the newest record in the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenLock {
    /// The highest number; 0 if there is none.
    pub number: u64,
    /// Its record; `None` if it could not be read, as where it is damaged or was just removed.
    pub record: Option<LockRecord>,
    /// Whether the record waits for the store of a durable directory. It cannot be replaced then,
    /// so that its runner cannot renew it.
    pub waits: bool,
}

/// An observer of a task's lock: it keeps what it saw from one look to the next.
#[derive(Debug)]
pub struct LockObserver {
    /// The highest number and its record.
    seen: Option<(u64, Option<LockRecord>)>,
    /// When that record was seen first.
    since: Instant,
    /// When it was seen last that it waits for a store; `since` if it was not.
    waited: Instant,
    /// Whether it waited for one at the last look.
    waits: bool,
    answers: BackendAnswers,
}

impl LockObserver {
    /// Begins at `now`, before the first look. Nothing counts as seen before.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        let answers = BackendAnswers::from(now);
        Self { seen: None, since: now, waited: now, waits: false, answers }
    }

    /// Takes over since when the backend answers, from one that has called it meanwhile.
    pub const fn take_over(&mut self, answers: BackendAnswers) {
        self.answers = answers;
    }

    /// Notes that the backend did not answer: no time counts until its next answer.
    pub const fn failed(&mut self) {
        self.answers.failed();
    }

    /// Takes what the backend has given to a look from `began` to `now`, and judges the lock: one
    /// whose record did not change for `age`, or for the longer age of its runner, while the
    /// backend answered is free. `is_alive` is whether the record's process runs, where that can be
    /// seen from here.
    ///
    /// What the backend read may be as old as the look: a record counts as seen from the end of the
    /// first look at it to the begin of the last one. Time in which it could not be renewed does
    /// not count, up to four ages. A record that cannot be read is watched for the age
    /// as well: its runner may write it anew.
    pub fn observe(
        &mut self,
        began: Instant,
        now: Instant,
        age: Millis,
        look: SeenLock,
        is_alive: impl FnOnce(&LockRecord) -> Option<bool>,
    ) -> LockView {
        self.answers.answered(now, age);
        let SeenLock { number, record, waits } = look;
        let before = self.seen.replace((number, record));
        if before != self.seen {
            (self.since, self.waited) = (now, now);
        }
        self.waits = waits;
        if waits {
            self.waited = now;
        }
        let watched = |since: Instant| began.since(since.max(self.answers.since));
        let stale = |age: Millis| {
            let longest = Millis(age.0.saturating_mul(WAITING_AGES));
            watched(self.waited) >= age || watched(self.since) >= longest
        };
        let Some(newest) = self.newest() else {
            return if number == 0 || stale(age) { LockView::Free } else { LockView::Unknown };
        };
        let first = match &before {
            Some((seen, record)) if *seen == number => record.as_ref(),
            // Its runner has written it since.
            Some(_) => None,
            None => Some(newest),
        };
        judge(first, Some(newest), is_alive(newest), stale(newest.stale_after(age)))
    }

    /// Returns the highest number of the lock that was seen; 0 if none was. A runner that takes the
    /// lock writes the next one.
    #[must_use]
    pub fn highest_number(&self) -> u64 {
        self.seen.as_ref().map_or(0, |(number, _)| *number)
    }

    /// Returns after how long the lock is free at the latest, if its record changes no more and the
    /// backend answers: after `age`, or the longer age of its runner, or four of them if the record
    /// waits for a store.
    #[must_use]
    pub fn free_within(&self, age: Millis) -> Millis {
        let age = self.newest().map_or(age, |record| record.stale_after(age));
        let ages = if self.waits { WAITING_AGES } else { 1 };
        Millis(age.0.saturating_mul(ages))
    }

    /// Returns the record of the highest number, if it could be read.
    #[must_use]
    pub fn newest(&self) -> Option<&LockRecord> {
        self.seen.as_ref().and_then(|(_, record)| record.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant(1_000_000 * (100 + seconds))
    }

    fn record(renewals: u64, age: Option<Millis>) -> LockRecord {
        let (owner, machine) = ("a".to_owned(), "elsewhere".to_owned());
        let is_released = false;
        LockRecord { owner, renewals, is_released, machine, pid: 1, start_time: 2, age }
    }

    fn seen(record: Option<LockRecord>) -> SeenLock {
        SeenLock { number: 1, record, waits: false }
    }

    /// Looks each second from one time to another; returns when the lock was free.
    fn free_at(
        observer: &mut LockObserver,
        seconds: std::ops::Range<u64>,
        age: Millis,
        record: &LockRecord,
    ) -> Option<u64> {
        let mut views = seconds.map(|second| {
            let now = at(second);
            (second, observer.observe(now, now, age, seen(Some(record.clone())), |_| None))
        });
        views.find(|(_, view)| *view == LockView::Free).map(|(second, _)| second)
    }

    #[test]
    fn failures_and_long_pauses_begin_anew() {
        let age = Millis(30_000);
        let mut answers = BackendAnswers::from(at(0));
        for seconds in [5, 15, 24] {
            answers.answered(at(seconds), age);
        }
        assert_eq!(answers.since, at(0));
        answers.answered(at(35), age);
        assert_eq!(answers.since, at(35));
        answers.answered(at(40), age);
        answers.failed();
        answers.answered(at(42), age);
        assert_eq!(answers.since, at(42));
        // A round may take longer than a third of a short age.
        answers.answered(at(43), Millis(1000));
        assert_eq!(answers.since, at(42));
    }

    #[test]
    fn lock_is_free_after_its_age_without_a_renewal() {
        let mut observer = LockObserver::new(at(0));
        let age = Millis(10_000);
        assert_eq!(free_at(&mut observer, 1..6, age, &record(1, None)), None);
        // The runner renews it.
        assert_eq!(free_at(&mut observer, 6..60, age, &record(2, None)), Some(16));
        assert_eq!(observer.highest_number(), 1);
    }

    #[test]
    fn lock_is_not_old_before_the_age_of_its_runner() {
        let mut observer = LockObserver::new(at(0));
        let record = record(1, Some(Millis(40_000)));
        assert_eq!(free_at(&mut observer, 1..90, Millis(10_000), &record), Some(41));
        assert_eq!(observer.free_within(Millis(10_000)), Millis(40_000));
    }

    #[test]
    fn outage_of_the_backend_does_not_make_a_lock_old() {
        let mut observer = LockObserver::new(at(0));
        let (age, record) = (Millis(10_000), record(1, None));
        assert_eq!(free_at(&mut observer, 1..5, age, &record), None);
        observer.failed();
        assert_eq!(free_at(&mut observer, 50..90, age, &record), Some(60));
    }

    #[test]
    fn time_until_a_look_is_answered_is_not_watched() {
        let (mut observer, age) = (LockObserver::new(at(0)), Millis(1000));
        let mut view = |began: u64, now: u64| {
            let (began, now) = (at(0) + Millis(began), at(0) + Millis(now));
            observer.observe(began, now, age, seen(Some(record(1, None))), |_| None)
        };
        assert_eq!(view(0, 0), LockView::Unknown);
        // What it shows may be from its begin: the runner may have renewed the lock since.
        assert_eq!(view(200, 1000), LockView::Unknown);
        assert_eq!(view(1000, 1000), LockView::Free);
    }

    #[test]
    fn lock_with_another_number_than_before_is_held() {
        let (mut observer, age) = (LockObserver::new(at(0)), Millis(10_000));
        let mut view = |second: u64, number: u64, is_released: bool| {
            let record = LockRecord { is_released, ..record(1, None) };
            let look = SeenLock { number, ..seen(Some(record)) };
            observer.observe(at(second), at(second), age, look, |_| None)
        };
        assert_eq!(view(1, 1, false), LockView::Unknown);
        assert_eq!(view(2, 2, false), LockView::Held);
        assert!((3..12).all(|second| view(second, 2, false) == LockView::Unknown));
        assert_eq!(view(12, 2, false), LockView::Free, "it is watched from then on");
        assert_eq!(view(13, 3, true), LockView::Free);
    }

    #[test]
    fn lock_without_a_record_is_free() {
        let mut observer = LockObserver::new(at(0));
        let (now, age) = (at(1), Millis(1));
        let none = SeenLock { number: 0, ..seen(None) };
        assert_eq!(observer.observe(now, now, age, none, |_| None), LockView::Free);
    }

    #[test]
    fn record_that_cannot_be_read_is_watched_for_the_age() {
        let (mut observer, age) = (LockObserver::new(at(0)), Millis(10_000));
        let mut view = |second: u64, record: Option<LockRecord>| {
            observer.observe(at(second), at(second), age, seen(record), |_| None)
        };
        assert!((1..11).all(|second| view(second, None) == LockView::Unknown));
        // Its runner renews it.
        assert_eq!(view(11, Some(record(5, None))), LockView::Held);
        assert!((12..22).all(|second| view(second, None) == LockView::Unknown));
        assert_eq!(view(22, None), LockView::Free);
    }

    #[test]
    fn time_in_which_a_record_waits_for_its_store_does_not_count_for_four_ages() {
        let (age, waiting) =
            (Millis(10_000), |waits: bool| SeenLock { waits, ..seen(Some(record(1, None))) });
        let mut observer = LockObserver::new(at(0));
        assert_eq!(observer.free_within(age), age);
        observer.observe(at(0), at(0), age, waiting(true), |_| None);
        assert_eq!(observer.free_within(age), Millis(40_000));
        let mut view = |second: u64, waits: bool| {
            observer.observe(at(second), at(second), age, waiting(waits), |_| None)
        };
        assert!((1..25).all(|second| view(second, true) == LockView::Unknown));
        // The store has it: from now on its runner can renew it.
        assert!((25..34).all(|second| view(second, false) == LockView::Unknown));
        assert_eq!(view(34, false), LockView::Free);
        let mut observer = LockObserver::new(at(0));
        let mut away =
            |second: u64| observer.observe(at(second), at(second), age, waiting(true), |_| None);
        assert!((1..41).all(|second| away(second) == LockView::Unknown));
        assert_eq!(away(41), LockView::Free, "the store is away");
    }
}
