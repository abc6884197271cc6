//! What must hold in a world of runners.

use sanderling_protocol::Millis;

use super::{Flight, InjectedBug, LockWorld, NewestLock};
use crate::checkpoint::{CommandOrder, LockProtection};

/// A lock that a runner has written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Take {
    pub(super) at: u64,
    number: u64,
    /// The runner, and which of its attempts.
    owner: (usize, u64),
}

/// What the checks have looked at.
#[derive(Debug, Default)]
pub(super) struct LockCounts {
    /// Locks that were taken from a runner that went on.
    pub(super) taken_from_live: u64,
    /// Runners that found that.
    pub(super) lost: u64,
    /// Locks that their runners have taken anew.
    pub(super) retaken: u64,
    pub(super) stored: u64,
    /// Removals without a look, and after one.
    pub(super) removed_sure: u64,
    pub(super) removed_looked: u64,
}

impl LockCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.taken_from_live += other.taken_from_live;
        self.lost += other.lost;
        self.retaken += other.retaken;
        self.stored += other.stored;
        self.removed_sure += other.removed_sure;
        self.removed_looked += other.removed_looked;
    }
}

/// Nine tenths of a third of an age: what is left of the third where clocks run apart by 2 %.
const fn third(age: Millis) -> u64 {
    age.0 * 1000 / 3 * 9 / 10
}

impl LockWorld {
    /// Returns whether a runner is sure of the lock with a number, or of one that it has taken in
    /// its place, by what it has of it now.
    fn is_sure(&self, runner: usize, number: u64, at: u64) -> bool {
        let it = &self.runners[runner];
        let holder = it.holder.as_ref().filter(|of| it.is_claimed && of.number() >= number);
        let now = self.holder_clock(runner, at);
        holder.is_some_and(|of| of.protection(now) == LockProtection::Protected)
    }

    /// Returns the first lock behind one with a number that another runner has written.
    fn taken_after(&self, owner: (usize, u64), number: u64) -> Option<Take> {
        self.takes.iter().find(|it| it.number > number && it.owner != owner).copied()
    }

    /// Checks a lock that a runner writes: no other runner was sure of its lock in the last third
    /// of the age.
    pub(super) fn check_take(&mut self, flight: &Flight, number: u64) {
        let runner = flight.runner;
        if number <= self.highest() {
            // Its runner paused before it: the look behind the write finds that.
            return;
        }
        for other in (0..self.runners.len()).filter(|it| *it != runner) {
            let it = &self.runners[other];
            let Some(held) = it.holder.as_ref().filter(|_| it.is_claimed) else { continue };
            let (held, before) = (held.number(), self.now.saturating_sub(third(it.age)));
            self.counts.taken_from_live += 1;
            if self.is_sure(other, held, before) {
                let what = format!("runner {runner} takes lock {number}, {other} has {held}");
                self.violate("protected", what);
            }
        }
        let owner = (runner, flight.attempt);
        self.takes.push(Take { at: self.now, number, owner });
    }

    /// Returns whether the command of a runner runs.
    fn runs(&self, runner: usize) -> bool {
        let now = self.holder_clock(runner, self.now);
        let mut lease = self.runners[runner].lease;
        self.runners[runner].is_claimed
            && (self.bug == Some(InjectedBug::LeaseIgnored)
                || matches!(lease.order(now), CommandOrder::Run { .. }))
    }

    /// Checks that the commands of no two runners run at the same time.
    pub(super) fn check_commands(&mut self) {
        let running: Vec<usize> = (0..self.runners.len()).filter(|it| self.runs(*it)).collect();
        if running.len() > 1 {
            self.violate("command", format!("those of {running:?} run"));
        }
    }

    /// Checks the begin of a runner's belief in its lock.
    pub(super) fn check_claim(&mut self, runner: usize, number: u64) {
        let owner = (runner, self.runners[runner].attempt);
        if self.taken_after(owner, number).is_some() && self.is_sure(runner, number, self.now) {
            self.violate("protected", format!("runner {runner} believes in {number} too late"));
        }
    }

    /// Checks that a lock which an observer finds free has not changed for its age, and that the
    /// backend was there for that long. `alive` is whether its process runs, where that is seen.
    pub(super) fn check_free(&mut self, runner: usize, newest: &NewestLock, alive: Option<bool>) {
        let Some(record) = &newest.record else { return };
        if record.is_released || alive == Some(false) {
            return;
        }
        let age = record.stale_after(self.runners[runner].age).0 * 1000;
        // Clocks run by 1 % faster than time at most.
        let least = age * 97 / 100;
        if newest.unchanged < least {
            let what = format!("runner {runner} finds {} free", newest.highest);
            self.violate("age", format!("{what}: {} us of {age} us", newest.unchanged));
        }
        let back = self.returns.iter().rev().find(|at| **at <= newest.read);
        if let Some(back) = back.filter(|at| newest.read - **at < least).copied() {
            let what = format!("runner {runner} finds {} free", newest.highest);
            self.violate("outage", format!("{what}: the backend is back since {back} us"));
        }
    }

    /// Checks a generation that is stored: its runner had the lock when it looked, and is not sure
    /// of the lock when another one has it.
    pub(super) fn check_store(&mut self, flight: &Flight, number: u64, looked: u64) {
        self.counts.stored += 1;
        let (runner, owner) = (flight.runner, (flight.runner, flight.attempt));
        let Some(take) = self.taken_after(owner, number) else { return };
        // One that has begun again may have taken that lock itself.
        let is_present = self.runners[runner].attempt == flight.attempt;
        if take.at < looked || is_present && self.is_sure(runner, number, self.now) {
            let what = format!("runner {runner} stores with lock {number}");
            self.violate("generation", format!("{what}, which was taken at {} us", take.at));
        }
    }

    /// Checks a removal: another runner has not taken the lock before the look that allowed it, nor
    /// for a third of the age after it began if the renewals alone did. A runner that has ended
    /// since may have left it under way.
    pub(super) fn check_removal(
        &mut self,
        flight: &Flight,
        number: u64,
        began: u64,
        looked: Option<u64>,
    ) {
        match looked {
            Some(_) => self.counts.removed_looked += 1,
            None => self.counts.removed_sure += 1,
        }
        let (runner, owner) = (flight.runner, (flight.runner, flight.attempt));
        let Some(take) = self.taken_after(owner, number) else { return };
        let it = &self.runners[runner];
        let is_soon = self.now - began <= third(it.age) && it.attempt == flight.attempt;
        let is_wrong = match looked {
            Some(looked) => take.at < looked,
            None => take.at < began || is_soon,
        };
        if is_wrong {
            let what = format!("runner {runner} removes with lock {number}");
            self.violate("removal", format!("{what}, which was taken at {} us", take.at));
        }
    }

    /// Checks the end: the faults are over for long, so one runner has the newest lock, and it is
    /// the only one that believes in its own.
    pub(super) fn check_end(&mut self) {
        let believing = self.runners.iter().filter_map(|it| {
            let holder = it.holder.as_ref().filter(|_| it.is_claimed)?;
            Some(holder.number())
        });
        let (believing, highest): (Vec<u64>, u64) = (believing.collect(), self.highest());
        if believing != [highest] {
            let what = format!("the newest lock is {highest}, and runners have {believing:?}");
            self.violate("end", what);
        }
    }
}
