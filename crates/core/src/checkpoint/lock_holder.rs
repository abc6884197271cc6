//! What a runner decides about the lock of its task while it holds it: when it renews it, how long
//! a renewal protects it, and when it is lost.
//!
//! Times are by a clock that goes on while the process is stopped and while the machine is
//! suspended. The shell sleeps, reads and writes.

use sanderling_protocol::{Instant, Millis};

use super::lock::{LockRecord, RENEWALS, renew_every};

/// Pause before a renewal that failed is tried again, at most.
const AGAIN_AFTER: Millis = Millis(1000);

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

/// A renewal that is under way.
#[derive(Debug, Clone, Copy)]
struct LockRenewal {
    began: Instant,
    /// Whether it has taken longer than the pause between two renewals.
    is_late: bool,
}

/// The lock of a task, as the runner sees it that holds it.
#[derive(Debug, Clone)]
pub struct LockHolder {
    number: u64,
    record: LockRecord,
    age: Millis,
    /// When the last renewal began that ended in time.
    renewed: Instant,
    renewal: Option<LockRenewal>,
    is_lost: bool,
}

impl LockHolder {
    /// Begins with a lock whose record is written from `now` on, if its number is absent then.
    /// Without a renewal its runner counts as dead after `age`.
    #[must_use]
    pub fn new(now: Instant, number: u64, record: LockRecord, age: Millis) -> Self {
        let record = LockRecord { age: Some(age), ..record };
        Self { number, record, age, renewed: now, renewal: None, is_lost: false }
    }

    /// Returns the lock's number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the lock's record, as it was written last.
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
    /// there is none, and the record of that number: another one has a higher number, or this one.
    /// All that was stored of a task may have been removed, and another runner have begun with the
    /// first number.
    #[must_use]
    pub fn is_taken(&self, highest: u64, record: Option<&LockRecord>) -> bool {
        highest > self.number || (highest == self.number && record.is_some_and(|it| !self.owns(it)))
    }

    /// Returns whether the newest record is this runner's. It is not where all that was stored of
    /// the task was removed, though no other runner has taken the lock.
    #[must_use]
    pub fn is_newest(&self, highest: u64, record: Option<&LockRecord>) -> bool {
        highest == self.number && record.is_some_and(|it| self.owns(it))
    }

    fn owns(&self, record: &LockRecord) -> bool {
        record.owner == self.record.owner
    }

    /// Returns the pause between two renewals. A look at the lock that takes longer does not count,
    /// and a renewal that takes longer is followed by such a look each time.
    #[must_use]
    pub fn renew_every(&self) -> Millis {
        renew_every(self.age)
    }

    /// Begins a renewal, and returns the record to write.
    pub fn renew(&mut self, now: Instant) -> LockRecord {
        assert!(self.renewal.is_none(), "one renewal ends before the next one begins");
        self.record.renewals += 1;
        self.renewal = Some(LockRenewal { began: now, is_late: false });
        self.record.clone()
    }

    /// Takes that the renewal under way has not ended for another [`LockHolder::renew_every`].
    /// Returns whether it is given up: one that waits between attempts of its own (`repeats`) is,
    /// the second time, as the backend may be there before its next attempt.
    pub const fn gives_up(&mut self, repeats: bool) -> bool {
        match &mut self.renewal {
            Some(renewal) if renewal.is_late => repeats,
            Some(renewal) => {
                renewal.is_late = true;
                false
            }
            None => false,
        }
    }

    /// Takes the end of the renewal under way, and whether it was written. Returns the pause before
    /// the next one.
    ///
    /// A renewal that ended late protects nothing, and no later one does: another runner may have
    /// seen the record before it for so long that it takes the lock at any time.
    pub fn renewed(&mut self, now: Instant, is_written: bool) -> Millis {
        if let Some(renewal) = self.renewal.take()
            && is_written
            && self.is_recent(now)
        {
            self.renewed = renewal.began;
        }
        let every = self.renew_every();
        // A backend that is away now may be there at once: others watch the lock from then on.
        if is_written { every } else { every.min(AGAIN_AFTER) }
    }

    /// Returns whether the last renewal is so recent that no other runner can take the lock for a
    /// third of its age: each has to see that renewal, and then none for the whole age.
    fn is_recent(&self, now: Instant) -> bool {
        let protected_micros = self.age.0.saturating_mul(1000) / RENEWALS * (RENEWALS - 1);
        now.0.saturating_sub(self.renewed.0) < protected_micros
    }

    /// Takes that a look has shown the lock to be taken.
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
    /// written when no renewal is under way: one that ended later would take the release back.
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
