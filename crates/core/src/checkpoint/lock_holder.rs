//! What a runner decides about the lock of its task while it holds it: when it renews it, how long
//! a renewal protects it and lets the task's command run, and when it is lost.
//!
//! A renewal counts only if it ended while the one before it still protected the lock. After a
//! later one another runner may take the lock at any time, as it may have seen the record before
//! for the whole age. So the holder takes its own lock anew then, under the next number, which it
//! writes if that is absent: of two runners that take a lock one gets it.
//!
//! Times are by a clock that goes on while the process is stopped and while the machine is
//! suspended. The shell sleeps, reads and writes.

use std::ops::RangeInclusive;

use sanderling_protocol::{Instant, Millis};

use super::lock::{LockRecord, RENEWALS, renew_every};

/// Pause before a write that failed is tried again, at most.
const AGAIN_AFTER: Millis = Millis(1000);

/// For how many tenths of the lock's age its holder lets the command run after a renewal. In the
/// last one the processes of the command are stopped, and the clocks of two machines may differ in
/// their rates. Chosen, not measured.
const RUN_TENTHS: u64 = 9;

/// What became of the record with which a runner has taken a lock that was free, by a look behind
/// that write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockClaim {
    /// The lock is this runner's.
    Held,
    /// Another runner has a later one: remove the record. That happens where the machine paused
    /// before the write for so long that locks with this number came and went.
    Late,
    /// The backend did not answer: write this record, which gives the lock up.
    Unseen(LockRecord),
}

/// Whether another runner can have a lock, as far as its holder finds without the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockProtection {
    /// No other runner can take it for a third of its age.
    Protected,
    /// A renewal was late, or none was made for long: only a look at the backend shows that.
    Unclear,
    /// Another runner has it.
    Lost,
}

/// What a look at a lock has shown to its holder, as [`LockHolder::looked`] judges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockLook {
    /// Another runner has it.
    Taken,
    /// No other runner has it.
    Held,
    /// No other runner has it, and the holder has taken it anew: the numbers before count no
    /// longer.
    Retaken,
}

/// A record that the holder is to write to the backend. [`LockHolder::written`] takes the outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWrite {
    /// Its number.
    pub number: u64,
    /// The record.
    pub record: LockRecord,
    /// Whether it is written only if its number is absent, as the lock is taken anew. Otherwise it
    /// replaces the record before it.
    pub is_new: bool,
}

/// The outcome of a write of a lock's record, as the backend has answered it or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWritten {
    /// The backend has it.
    Stored,
    /// The backend refused it or did not answer, or its number was not absent.
    Failed,
    /// It was given up. It may be written yet.
    GivenUp,
}

/// A write that is under way.
#[derive(Debug, Clone, Copy)]
struct WriteUnderWay {
    began: Instant,
    is_new: bool,
    /// Whether it has taken longer than the pause between two renewals.
    is_late: bool,
}

/// The number after that of the lock, under which the holder takes it anew.
#[derive(Debug, Clone, Copy)]
struct LockRetake {
    number: u64,
    began: Instant,
    /// When the write ended, if the backend has it.
    stored: Option<Instant>,
}

/// The lock of a task, as the runner sees it that holds it: whether others can have it now, and
/// what to write next to keep it.
#[derive(Debug, Clone)]
pub struct LockHolder {
    number: u64,
    record: LockRecord,
    age: Millis,
    /// When the last renewal began that ended in time, or the write that took the lock.
    renewed: Instant,
    writing: Option<WriteUnderWay>,
    /// What may have been written of the next number.
    retake: Option<LockRetake>,
    is_lost: bool,
}

impl LockHolder {
    /// Begins with a lock whose record is written from `now` on, if its number is absent then.
    /// Without a renewal its runner counts as dead after `age`.
    #[must_use]
    pub fn new(now: Instant, number: u64, record: LockRecord, age: Millis) -> Self {
        let record = LockRecord { age: Some(age), ..record };
        Self { number, record, age, renewed: now, writing: None, retake: None, is_lost: false }
    }

    /// Returns the number under which the runner holds the lock: the last one that it has taken.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the numbers whose records may be this runner's: that of the lock, and the next one
    /// while it takes the lock anew. A look has to read the newest record if it is one of them.
    #[must_use]
    pub fn numbers(&self) -> RangeInclusive<u64> {
        self.number..=self.retake.map_or(self.number, |retake| retake.number)
    }

    /// Returns the lock's record as it was last handed over to be written.
    #[must_use]
    pub const fn record(&self) -> &LockRecord {
        &self.record
    }

    /// Decides on the record that was just written, by whether a look behind that write has shown
    /// that the lock is taken ([`LockHolder::is_taken`]); `None` if the backend did not answer.
    #[must_use]
    pub fn claim(&self, is_taken: Option<bool>) -> LockClaim {
        match is_taken {
            Some(false) => LockClaim::Held,
            Some(true) => LockClaim::Late,
            None => LockClaim::Unseen(self.released_record()),
        }
    }

    /// Returns whether another runner has the lock, by the highest number in the backend, 0 if
    /// there is none, and the record of that number: another one has a higher number than this
    /// runner has written, or one of those. All that was stored of a task may have been removed,
    /// and another runner have begun with the first number.
    #[must_use]
    pub fn is_taken(&self, highest: u64, record: Option<&LockRecord>) -> bool {
        let is_other = record.is_some_and(|it| !self.owns(it));
        highest > *self.numbers().end() || (highest >= self.number && is_other)
    }

    /// Returns whether the newest record is this runner's, by the highest number in the backend, 0
    /// if there is none, and the record of that number. It is not where all that was stored of the
    /// task was removed, though no other runner has taken the lock.
    #[must_use]
    pub fn is_newest(&self, highest: u64, record: Option<&LockRecord>) -> bool {
        highest <= *self.numbers().end() && record.is_some_and(|it| self.owns(it))
    }

    fn owns(&self, record: &LockRecord) -> bool {
        record.owner == self.record.owner
    }

    /// Takes what a look has shown that began then: the highest number, 0 if there is none, and its
    /// record. A lock that was taken anew is this runner's as soon as a look behind the write shows
    /// no other one's.
    pub fn looked(
        &mut self,
        began: Instant,
        highest: u64,
        record: Option<&LockRecord>,
    ) -> LockLook {
        if self.is_taken(highest, record) {
            return LockLook::Taken;
        }
        let Some(retake) = &mut self.retake else { return LockLook::Held };
        let is_behind = retake.stored.is_some_and(|ended| ended <= began);
        if highest < retake.number && is_behind {
            // It was removed, with all that was stored of the task: it is written once more.
            retake.stored = None;
        }
        let LockRetake { number, began: retaken, stored } = *retake;
        let is_own = highest == number && record.is_some_and(|it| self.owns(it));
        if is_own && is_behind {
            self.renewed = retaken;
        } else if !is_own || stored.is_some() || self.writing.is_some() {
            return LockLook::Held;
        }
        // If its answer was lost, it is not known when it was written: the lock is taken anew once
        // more.
        (self.number, self.retake) = (number, None);
        LockLook::Retaken
    }

    /// Returns the pause between two renewals. A look at the lock that takes longer does not count,
    /// and a write that takes longer is followed by such a look each time.
    #[must_use]
    pub fn renew_every(&self) -> Millis {
        renew_every(self.age)
    }

    /// Returns the pause before the next look and write, after one that succeeded.
    #[must_use]
    pub fn pause(&self, now: Instant) -> Millis {
        match self.next_number(now) {
            // Until it is taken anew, another runner may take it.
            Some(_) => Millis(0),
            None => self.renew_every(),
        }
    }

    /// Returns the pause before the next look and write, after one that failed. A backend that is
    /// away now may be there at once: others watch the lock from then on.
    #[must_use]
    pub fn pause_after_failure(&self) -> Millis {
        self.renew_every().min(AGAIN_AFTER)
    }

    /// Returns the number under which the lock is taken anew; none while renewals protect it.
    fn next_number(&self, now: Instant) -> Option<u64> {
        if self.is_recent(now) { None } else { self.number.checked_add(1) }
    }

    /// Begins a write, and returns what to write: a renewal as long as the one before protects the
    /// lock, and the next number after that; nothing while a look has yet to show whether the lock
    /// that was taken anew is this runner's.
    pub fn write(&mut self, now: Instant) -> Option<LockWrite> {
        assert!(self.writing.is_none(), "one write ends before the next one begins");
        if self.retake.is_some_and(|retake| retake.stored.is_some()) {
            return None;
        }
        // Others see a change, and no two records are equal.
        self.record.renewals += 1;
        let next = self.next_number(now);
        if let Some(number) = next {
            self.retake = Some(LockRetake { number, began: now, stored: None });
        }
        let is_new = next.is_some();
        self.writing = Some(WriteUnderWay { began: now, is_new, is_late: false });
        let number = next.unwrap_or(self.number);
        Some(LockWrite { number, record: self.record.clone(), is_new })
    }

    /// Takes that the write under way has not ended for another [`LockHolder::renew_every`], and
    /// whether a look was answered meanwhile. Returns whether it is given up:
    ///
    /// - A renewal that the backend holds up although it answers, as below a durable directory
    ///   whose store is away: the lock is taken anew, which replaces nothing.
    /// - A write that waits between attempts of its own (`repeats`), the second time: the backend
    ///   may be there before its next attempt.
    pub fn gives_up(&mut self, now: Instant, repeats: bool, is_answered: bool) -> bool {
        let can_retake = self.next_number(now).is_some();
        let Some(write) = &mut self.writing else { return false };
        let was_late = std::mem::replace(&mut write.is_late, true);
        (is_answered && !write.is_new && can_retake) || (repeats && was_late)
    }

    /// Takes the end of the write under way. Returns the pause before the next look and write.
    ///
    /// A renewal that ended late protects nothing: another runner may have seen the record before
    /// it for so long that it takes the lock at any time.
    pub fn written(&mut self, now: Instant, written: LockWritten) -> Millis {
        let Some(write) = self.writing.take() else { return self.pause(now) };
        match written {
            LockWritten::Failed => return self.pause_after_failure(),
            LockWritten::Stored if !write.is_new && self.is_recent(now) => {
                self.renewed = write.began;
            }
            LockWritten::Stored if write.is_new => {
                let retake = self.retake.as_mut().expect("it is kept until a look has shown it");
                retake.stored = Some(now);
            }
            LockWritten::Stored | LockWritten::GivenUp => {}
        }
        self.pause(now)
    }

    /// Returns until when the command may run without another confirmation of the lock: others
    /// have to see the last one, and then none for the whole age.
    #[must_use]
    pub fn runs_until(&self) -> Instant {
        Instant(self.renewed.0.saturating_add(self.age.0.saturating_mul(1000) / 10 * RUN_TENTHS))
    }

    /// Returns whether the last renewal is so recent that no other runner can take the lock for a
    /// third of its age: each has to see that renewal, and then none for the whole age.
    fn is_recent(&self, now: Instant) -> bool {
        let protected_micros = self.age.0.saturating_mul(1000) / RENEWALS * (RENEWALS - 1);
        now.0.saturating_sub(self.renewed.0) < protected_micros
    }

    /// Notes that another runner has the lock: from now on [`Self::protection`] is
    /// [`LockProtection::Lost`].
    pub const fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Returns whether another runner can have the lock now, or take it while something is removed
    /// that the runner begins to remove now.
    #[must_use]
    pub fn protection(&self, now: Instant) -> LockProtection {
        match self.is_recent(now) {
            _ if self.is_lost => LockProtection::Lost,
            true => LockProtection::Protected,
            false => LockProtection::Unclear,
        }
    }

    /// Returns the record that gives the lock up; none if another runner has the lock. It is
    /// written when no write is under way: one that ended later would take the release back.
    #[must_use]
    pub fn release(&self) -> Option<LockRecord> {
        (!self.is_lost).then(|| self.released_record())
    }

    fn released_record(&self) -> LockRecord {
        LockRecord { is_released: true, ..self.record.clone() }
    }
}

#[cfg(test)]
mod tests;
