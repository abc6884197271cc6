//! Which of two runners of one name may go on.
//!
//! A lock is one of numbered records, of which the highest counts. A runner that takes it writes
//! the next number, if that is absent, and renews its own by counting up. No clock is compared: a
//! record that did not change while another runner looked at it for long enough is stale. The
//! manifest, which is also written only if its number is absent, is the last barrier.

use sanderling_protocol::Millis;
use serde::{Deserialize, Serialize};

/// How often a runner renews its lock in the lock's age. It counts on the lock for all of these
/// parts of the age but the last one. An observer counts no time across a pause that is longer than
/// one part, in which the runner renews the lock once.
pub(super) const RENEWALS: u64 = 3;

/// Returns the pause between two renewals of a lock.
pub(super) fn renew_every(age: Millis) -> Millis {
    Millis((age.0 / RENEWALS).max(1))
}

/// The record that a runner writes under the number of its lock, and writes again to renew it.
/// Others find the runner alive as long as it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRecord {
    /// Drawn for each runner.
    pub owner: String,
    /// How often it was renewed.
    pub renewals: u64,
    /// Whether its runner has ended.
    pub is_released: bool,
    /// The machine's boot and the PID namespace of the runner.
    pub machine: String,
    /// The runner's process there.
    pub pid: u32,
    /// When that process started, in clock ticks since the boot.
    pub start_time: u64,
    /// After how long without a renewal its runner counts as dead. Records of earlier versions
    /// have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<Millis>,
}

impl LockRecord {
    /// Returns after how long without a renewal its runner counts as dead for one that looks with
    /// another age: the longer of both, as a runner renews its lock by its own age.
    #[must_use]
    pub fn stale_after(&self, age: Millis) -> Millis {
        self.age.map_or(age, |own| own.max(age))
    }
}

/// A view of a task's lock: whether it may be taken, as far as its records show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockView {
    /// It may be taken.
    Free,
    /// Its runner is alive.
    Held,
    /// Look again later.
    Unknown,
}

/// Judges a lock from the record that was seen first and the one that is there now.
///
/// `is_alive` is whether the process runs, where that can be seen from here; `is_old` whether the
/// look began longer ago than a record may go without being renewed. A process that runs may be
/// stopped or hang: only one that has ended decides at once.
#[must_use]
pub(super) fn judge(
    first: Option<&LockRecord>,
    now: Option<&LockRecord>,
    is_alive: Option<bool>,
    is_old: bool,
) -> LockView {
    let Some(now) = now.filter(|it| !it.is_released) else { return LockView::Free };
    if is_alive == Some(false) {
        return LockView::Free;
    }
    if first != Some(now) {
        return LockView::Held;
    }
    match is_alive {
        _ if is_old => LockView::Free,
        Some(_) => LockView::Held,
        None => LockView::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(renewals: u64) -> LockRecord {
        let (owner, machine) = ("a".to_owned(), "m".to_owned());
        let is_released = false;
        LockRecord { owner, renewals, is_released, machine, pid: 1, start_time: 2, age: None }
    }

    #[test]
    fn lock_without_renewals_becomes_free_with_time() {
        let (one, two) = (record(1), record(2));
        assert_eq!(judge(Some(&one), Some(&one), None, false), LockView::Unknown);
        assert_eq!(judge(Some(&one), Some(&one), None, true), LockView::Free);
        assert_eq!(judge(Some(&one), Some(&two), None, true), LockView::Held);
    }

    #[test]
    fn lock_of_this_machine_depends_on_the_process() {
        let one = record(1);
        assert_eq!(judge(Some(&one), Some(&one), Some(true), false), LockView::Held);
        assert_eq!(judge(Some(&one), Some(&one), Some(false), false), LockView::Free);
    }

    #[test]
    fn process_that_runs_and_renews_nothing_loses_its_lock() {
        let (one, two) = (record(1), record(2));
        assert_eq!(judge(Some(&one), Some(&one), Some(true), true), LockView::Free);
        assert_eq!(judge(Some(&one), Some(&two), Some(true), true), LockView::Held);
    }

    #[test]
    fn longer_age_decides() {
        let (old, seconds) = (record(1), |it: u64| Millis(it * 1000));
        assert_eq!(old.stale_after(seconds(3)), seconds(3));
        let new = LockRecord { age: Some(seconds(30)), ..old.clone() };
        assert_eq!(new.stale_after(seconds(3)), seconds(30));
        assert_eq!(new.stale_after(seconds(60)), seconds(60));
        let text = serde_json::to_string(&old).expect("encoded");
        assert!(!text.contains("age"), "as earlier versions wrote it: {text}");
        assert_eq!(serde_json::from_str::<LockRecord>(&text).expect("a record"), old);
    }

    #[test]
    fn released_and_absent_locks_are_free() {
        let released = LockRecord { is_released: true, ..record(3) };
        assert_eq!(judge(None, None, None, false), LockView::Free);
        assert_eq!(judge(Some(&record(3)), Some(&released), Some(true), false), LockView::Free);
    }
}
