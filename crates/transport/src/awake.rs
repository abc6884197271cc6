//! Waiting awake for what comes in a moment: to fall asleep and be woken takes longer than that.

use std::thread;
use std::time::{Duration, Instant};

/// Longest time that is waited awake: a round trip within a machine or a rack, and about what it
/// costs to sleep and be woken.
const AWAKE_MAX: Duration = Duration::from_micros(15);

/// A wait that took longer was not worth it, although something came: others had the core
/// meanwhile, and who sleeps gets it back sooner.
const WORTH_MAX: Duration = Duration::from_micros(30);

/// Waits in a row that others on the thread have to stand: then it is theirs.
const ROW_MAX: u32 = 16;

/// Waits that are slept through after one that was for nothing are doubled so many times at most:
/// where nothing comes in a moment, one wait in a thousand is awake.
const DOUBLINGS_MAX: u32 = 10;

/// Whether to wait awake, by what came of it before.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    in_a_row: u32,
    vain: u32,
    asleep: u32,
}

impl Awake {
    /// Tells whether the next wait is awake.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.asleep > 0 {
            self.asleep -= 1;
            return false;
        }
        self.in_a_row += 1;
        if self.in_a_row > ROW_MAX {
            self.in_a_row = 0;
            return false;
        }
        true
    }

    /// Looks again and again until `look` says that it is there, or fails, or time is up. Returns
    /// whether it came.
    pub(crate) fn wait<E>(&mut self, mut look: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        let began = Instant::now();
        loop {
            // Nothing comes as fast as a look. Where there is one core for both ends, the other
            // gets it now.
            thread::yield_now();
            let is_there = look()?;
            let waited = began.elapsed();
            if is_there || waited >= AWAKE_MAX {
                self.learn(is_there && waited < WORTH_MAX);
                return Ok(is_there);
            }
        }
    }

    fn learn(&mut self, was_worth_it: bool) {
        if was_worth_it {
            self.vain = 0;
            return;
        }
        self.vain = (self.vain + 1).min(DOUBLINGS_MAX);
        self.asleep = 1 << self.vain;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_in_vain_become_rare_and_one_that_was_not_makes_all_awake() {
        let mut awake = Awake::default();
        let mut vain = 0;
        for _ in 0..100_000 {
            if awake.is_due() {
                awake.learn(false);
                vain += 1;
            }
        }
        assert!((90..120).contains(&vain), "{vain} of 100000");
        while !awake.is_due() {}
        awake.learn(true);
        assert!(awake.is_due());
    }

    #[test]
    fn others_on_the_thread_get_their_turn() {
        let mut awake = Awake::default();
        let due = (0..170).filter(|_| awake.is_due()).count();
        assert_eq!(due, 160);
    }

    #[test]
    fn wait_ends_when_it_is_there_or_nothing_comes() {
        let mut awake = Awake::default();
        assert_eq!(awake.wait(|| Ok::<_, ()>(true)), Ok(true));
        assert_eq!(awake.wait(|| Ok::<_, ()>(false)), Ok(false));
        assert_eq!(awake.wait(|| Err("broken")), Err("broken"));
    }
}
