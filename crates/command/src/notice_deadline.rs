//! The deadline of a notice that a command gives: it counts from the start of the command.

use std::time::{Duration, Instant};

use sanderling_core::notices::{EARLIER, NOTICE_MAX};
use sanderling_protocol::Millis;

/// The least time that a notice leaves if its deadline has passed before it can be sent: the
/// machine still runs, so something can still be saved. As much as a deadline in the past leaves
/// that a cloud shows to a datanode.
const LEFT_MILLIS_MIN: i64 = 500;

/// A deadline by the clock of this process. Machines' clocks differ, so a request contains the time
/// that is left; what a command has waited for servers before is no part of it.
#[derive(Debug, Clone, Copy)]
pub struct NoticeDeadline {
    began: Instant,
    millis: i64,
}

impl NoticeDeadline {
    /// Returns the deadline that is so many milliseconds from now, or was before.
    #[must_use]
    pub fn from_now(millis: i64) -> Self {
        Self { began: Instant::now(), millis }
    }

    /// Returns the milliseconds that it was made with.
    #[must_use]
    pub const fn given_millis(self) -> i64 {
        self.millis
    }

    /// Returns the milliseconds that are left, for a request that is sent now. One that was in the
    /// past when it was made, or beyond [`NOTICE_MAX`], stays as it was given, so that the server
    /// refuses it.
    #[must_use]
    pub fn left_millis(self) -> i64 {
        left_after(self.millis, self.began.elapsed())
    }

    /// Returns when it passes; `None` if it was in the past when it was made.
    #[must_use]
    pub fn moment(self) -> Option<Instant> {
        let millis = u64::try_from(self.millis).ok()?;
        self.began.checked_add(Duration::from_millis(millis))
    }

    /// Returns whether it is so much earlier than another deadline, until which there is `left`,
    /// that it is another notice. A server that answers so has taken the request late.
    #[must_use]
    pub fn is_before(self, left: Millis) -> bool {
        let own = u64::try_from(self.left_millis()).unwrap_or(0);
        left.0 > own.saturating_add(EARLIER.0)
    }
}

fn left_after(millis: i64, passed: Duration) -> i64 {
    if u64::try_from(millis).is_ok_and(|millis| millis > NOTICE_MAX.0) {
        return millis;
    }
    let passed = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
    millis.saturating_sub(passed).max(millis.min(LEFT_MILLIS_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_has_passed_is_not_left() {
        let left = |millis, passed| left_after(millis, Duration::from_millis(passed));
        assert_eq!(left(60_000, 0), 60_000);
        assert_eq!(left(60_000, 5_000), 55_000);
        assert_eq!(left(60_000, 59_900), 500, "the machine still runs");
        assert_eq!(left(300, 7_000), 300, "it never had more");
        assert_eq!((left(0, 5_000), left(-7, 5_000)), (0, -7), "the server refuses these");
        assert_eq!(left(30 * 86_400_000, 5_000), 30 * 86_400_000, "and this one, as it was given");
    }

    #[test]
    fn request_that_was_taken_late_is_noticed() {
        let deadline = NoticeDeadline::from_now(60_000);
        assert!(!deadline.is_before(Millis(60_000)) && !deadline.is_before(Millis(20_000)));
        assert!(deadline.is_before(Millis(62_000)));
    }

    #[test]
    fn deadline_in_the_past_has_no_moment() {
        assert!(NoticeDeadline::from_now(-1).moment().is_none());
        let moment = NoticeDeadline::from_now(60_000).moment();
        assert!(moment.is_some_and(|moment| moment > Instant::now()));
    }
}
