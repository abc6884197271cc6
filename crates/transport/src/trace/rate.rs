//! How many spans a process records.

use std::time::Instant;

use parking_lot::Mutex;

/// Seconds whose spans may be recorded at once. New traces leave half of the bucket to spans of
/// traces that have begun, so that each half is what one second allows.
const BURST_SECONDS: f64 = 2.0;

/// A token bucket: one token is one span.
#[derive(Debug)]
pub(super) struct SpanRate {
    per_second: f64,
    left: Mutex<(f64, Instant)>,
}

impl SpanRate {
    pub(super) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, left: Mutex::new((per_second * BURST_SECONDS, Instant::now())) }
    }

    /// Takes a token for a span of a trace that has begun.
    pub(super) fn begin_span(&self) -> bool {
        self.take(1.0, Instant::now())
    }

    /// Takes a token for the first span of a trace: half of the bucket is left to those that follow
    /// it.
    pub(super) fn begin_trace(&self) -> bool {
        self.take((self.per_second * BURST_SECONDS / 2.0).max(1.0), Instant::now())
    }

    fn take(&self, needed: f64, now: Instant) -> bool {
        let mut left = self.left.lock();
        let (tokens, at) = *left;
        let earned = now.saturating_duration_since(at).as_secs_f64() * self.per_second;
        let tokens = (tokens + earned).min(self.per_second * BURST_SECONDS);
        let is_enough = tokens >= needed;
        *left = (if is_enough { tokens - 1.0 } else { tokens }, now);
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn traces_end_before_the_spans_of_those_that_have_begun() {
        let rate = SpanRate::new(10);
        let now = Instant::now();
        let traces = (0..100).filter(|_| rate.take(10.0, now)).count();
        let spans = (0..100).filter(|_| rate.take(1.0, now)).count();
        assert_eq!((traces, spans), (11, 9));
        assert!(!rate.take(1.0, now));
        let later = now + Duration::from_secs(3600);
        assert_eq!((0..100).filter(|_| rate.take(1.0, later)).count(), 20);
    }
}
