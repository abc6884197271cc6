//! The rate of an emulated store: all that goes through it together is as fast as that.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Time in which nothing came and that is still made use of: the timer is as coarse as that, and
/// the pauses between two requests of one writer are shorter.
const IDLE_MAX: Duration = Duration::from_millis(5);

/// Lets bytes pass at a rate.
#[derive(Debug)]
pub(crate) struct StoreRate {
    bytes_per_second: f64,
    free_at: Mutex<Instant>,
}

impl StoreRate {
    /// Returns a pace of so many bytes per second.
    pub(crate) fn new(bytes_per_second: f64) -> Self {
        Self { bytes_per_second, free_at: Mutex::new(Instant::now()) }
    }

    /// Waits until so many bytes have passed, after all that came before.
    pub(crate) async fn pass(&self, bytes: usize) {
        sleep_until(self.passed_at(bytes, Instant::now())).await;
    }

    fn passed_at(&self, bytes: usize, now: Instant) -> Instant {
        let mut free_at = self.free_at.lock().expect("no holder panics");
        let begin = now.checked_sub(IDLE_MAX).map_or(now, |earliest| earliest.max(*free_at));
        *free_at = begin + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        *free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_shares_the_rate() {
        let pace = StoreRate::new(1e6);
        let now = Instant::now() + Duration::from_secs(1);
        let first = pace.passed_at(500_000, now);
        let second = pace.passed_at(500_000, now);
        assert!(first <= now + Duration::from_millis(500));
        assert_eq!(second - first, Duration::from_millis(500));
        // A pause is no credit, but for its last milliseconds.
        let later = now + Duration::from_secs(60);
        let third = pace.passed_at(1_000_000, later);
        assert_eq!(third, later + Duration::from_secs(1) - IDLE_MAX);
    }
}
