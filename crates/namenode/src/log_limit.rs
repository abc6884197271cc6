//! Log lines that callers can cause as often as they like.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines of one kind: a few in a second, and the number of those left out.
#[derive(Debug)]
pub(crate) struct LogLimiter(Mutex<Second>);

#[derive(Debug)]
struct Second {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LogLimiter {
    /// Enough to see what goes on; an hour of them is 2 MB.
    const LINES_PER_SECOND: u32 = 5;

    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Second { began: None, lines: 0, left_out: 0 }))
    }

    /// Returns how many lines were left out since the last one; `None` if no line may be written.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        let mut second = self.0.lock();
        let is_over = |began: Instant| now.duration_since(began) >= Duration::from_secs(1);
        if second.began.is_none_or(is_over) {
            (second.began, second.lines) = (Some(now), 0);
        }
        if second.lines == Self::LINES_PER_SECOND {
            second.left_out += 1;
            return None;
        }
        second.lines += 1;
        Some(std::mem::take(&mut second.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lines_a_second_and_the_others_are_counted() {
        let (lines, now) = (LogLimiter::new(), Instant::now());
        for _ in 0..LogLimiter::LINES_PER_SECOND {
            assert_eq!(lines.admit(now), Some(0));
        }
        assert_eq!((lines.admit(now), lines.admit(now)), (None, None));
        let later = now + Duration::from_secs(1);
        assert_eq!((lines.admit(later), lines.admit(later)), (Some(2), Some(0)));
    }
}
