//! Busy-polls for what comes in a moment: to park and be woken takes longer than that.

use std::thread;
use std::time::{Duration, Instant};

/// Longest busy-poll: a round trip within a machine or a rack, and about what it
/// costs to sleep and be woken.
const SPIN_MAX: Duration = Duration::from_micros(15);

/// A wait that took longer was not worth it, although something came: others had the core
/// meanwhile, and a sleeping thread gets it back sooner. Twice [`SPIN_MAX`]: one more turn of the
/// others.
const WORTH_MAX: Duration = Duration::from_micros(30);

/// Waits in a row that others on the thread have to stand: then it is theirs. So every 17th wait
/// gives the thread to its other tasks, and a round trip in 17 pays for a sleep.
const ROW_MAX: u32 = 16;

/// Waits that are slept through after one that was for nothing are doubled so many times at most:
/// where nothing comes in a moment, one wait in a thousand polls.
const DOUBLINGS_MAX: u32 = 10;

/// Whether to busy-poll, by what came of it before.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    in_a_row: u32,
    misses: u32,
    skips: u32,
}

impl BusyPoll {
    /// Returns whether the next wait busy-polls.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.skips > 0 {
            self.skips -= 1;
            return false;
        }
        self.in_a_row += 1;
        if self.in_a_row > ROW_MAX {
            self.in_a_row = 0;
            return false;
        }
        true
    }

    /// Looks again and again until `look` finds something or fails, or time is up. Returns whether
    /// something came.
    pub(crate) fn wait<E>(&mut self, mut look: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        let began = Instant::now();
        loop {
            // Nothing comes as fast as a look. Where there is one core for both ends, the other
            // gets it now.
            thread::yield_now();
            let is_there = look()?;
            let waited = began.elapsed();
            if is_there || waited >= SPIN_MAX {
                self.learn(is_there && waited < WORTH_MAX);
                return Ok(is_there);
            }
        }
    }

    fn learn(&mut self, was_worth_it: bool) {
        if was_worth_it {
            self.misses = 0;
            return;
        }
        self.misses = (self.misses + 1).min(DOUBLINGS_MAX);
        self.skips = 1 << self.misses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_in_vain_become_rare_and_one_that_pays_makes_all_poll() {
        let mut busy_poll = BusyPoll::default();
        let mut vain = 0;
        for _ in 0..100_000 {
            if busy_poll.is_due() {
                busy_poll.learn(false);
                vain += 1;
            }
        }
        assert!((90..120).contains(&vain), "{vain} of 100000");
        while !busy_poll.is_due() {}
        busy_poll.learn(true);
        assert!(busy_poll.is_due());
    }

    #[test]
    fn others_on_the_thread_get_their_turn() {
        let mut busy_poll = BusyPoll::default();
        let due = (0..170).filter(|_| busy_poll.is_due()).count();
        assert_eq!(due, 160);
    }

    #[test]
    fn wait_ends_when_it_is_there_or_nothing_comes() {
        let mut busy_poll = BusyPoll::default();
        assert_eq!(busy_poll.wait(|| Ok::<_, ()>(true)), Ok(true));
        assert_eq!(busy_poll.wait(|| Ok::<_, ()>(false)), Ok(false));
        assert_eq!(busy_poll.wait(|| Err("broken")), Err("broken"));
    }
}
