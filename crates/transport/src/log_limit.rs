//! Log lines that callers can cause as often as they like.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines of one kind: five in a period, and the number of those left out.
#[derive(Debug)]
pub struct LogLimiter {
    period: Duration,
    current: Mutex<LinePeriod>,
}

#[derive(Debug)]
struct LinePeriod {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LogLimiter {
    /// Lines of a kind in a period: enough to see what goes on. Chosen, not measured.
    const LINES: u32 = 5;

    /// Returns a limiter of five lines a second: an hour of them is 2 MB.
    #[must_use]
    pub const fn per_second() -> Self {
        Self::per(Duration::from_secs(1))
    }

    /// Returns a limiter of five lines a minute, for what may go on for days: a day of them is
    /// 1 MB.
    #[must_use]
    pub const fn per_minute() -> Self {
        Self::per(Duration::from_secs(60))
    }

    const fn per(period: Duration) -> Self {
        let current = LinePeriod { began: None, lines: 0, left_out: 0 };
        Self { period, current: Mutex::new(current) }
    }

    /// Returns how many lines were left out since the last one; `None` if no line may be written.
    #[must_use]
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut current = self.current.lock();
        let is_over = |began: Instant| now.duration_since(began) >= self.period;
        if current.began.is_none_or(is_over) {
            (current.began, current.lines) = (Some(now), 0);
        }
        if current.lines == Self::LINES {
            current.left_out += 1;
            return None;
        }
        current.lines += 1;
        Some(std::mem::take(&mut current.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lines_in_a_period_and_the_others_are_counted() {
        for limiter in [LogLimiter::per_second(), LogLimiter::per_minute()] {
            let (period, now) = (limiter.period, Instant::now());
            for _ in 0..LogLimiter::LINES {
                assert_eq!(limiter.admit(now), Some(0));
            }
            assert_eq!((limiter.admit(now), limiter.admit(now + period / 2)), (None, None));
            let later = now + period;
            assert_eq!((limiter.admit(later), limiter.admit(later)), (Some(2), Some(0)));
        }
    }
}
