//! Whether what one source of notices shows is another notice than before.

use sanderling_protocol::{Instant, Millis, Refusal};

use super::{EARLIER, NOTICE_MAX};

/// The notice of one source that counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShownNotice {
    deadline: Option<Instant>,
    /// Whether a notice was shown last whose deadline is too far ahead.
    is_far: bool,
}

/// The change of what a source shows, compared with what counted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeChange {
    /// The same as before.
    Unchanged,
    /// A notice whose deadline is too far ahead, which was none before: it is given when
    /// [`NOTICE_MAX`] is left.
    Far,
    /// Another notice, with this deadline.
    Given(Instant),
    /// The notice before is not shown any more.
    Withdrawn,
}

impl ShownNotice {
    /// Takes the deadline that the source shows at `now`, by the same clock; `None` if it shows no
    /// notice. The deadline that was given counts until it is withdrawn or another one is given:
    /// small steps add up to another notice.
    pub fn look(&mut self, now: Instant, deadline: Option<Instant>) -> NoticeChange {
        let was_far = self.is_far;
        self.is_far = deadline.is_some_and(|deadline| is_far(now, deadline));
        match (deadline, self.deadline) {
            (None, None) => NoticeChange::Unchanged,
            (None, Some(_)) => {
                self.deadline = None;
                NoticeChange::Withdrawn
            }
            (Some(_), _) if self.is_far && was_far => NoticeChange::Unchanged,
            (Some(_), _) if self.is_far => NoticeChange::Far,
            (Some(deadline), Some(given)) if is_same(deadline, given) => NoticeChange::Unchanged,
            (Some(deadline), _) => {
                self.deadline = Some(deadline);
                NoticeChange::Given(deadline)
            }
        }
    }
}

/// Returns whether a deadline is more than [`NOTICE_MAX`] ahead of `now`: the namenode refuses a
/// notice with it, which is therefore given when that much is left.
#[must_use]
pub fn is_far(now: Instant, deadline: Instant) -> bool {
    deadline > now + NOTICE_MAX
}

/// Refuses a notice that leaves more time than any may: a mistake or a decommission.
///
/// # Errors
/// [`Refusal::TooLarge`] with the longest notice: give a shorter one, or decommission the node.
pub fn check_left(left: Millis) -> Result<(), Refusal> {
    if left > NOTICE_MAX {
        let (what, value) = (Refusal::NOTICE_DEADLINE.to_owned(), left.0);
        return Err(Refusal::TooLarge { what, value, limit: NOTICE_MAX.0 });
    }
    Ok(())
}

/// Returns whether two deadlines of one source are the same notice: they differ by what a call to
/// the source takes, and by the steps in which clouds name moments.
const fn is_same(one: Instant, other: Instant) -> bool {
    one.0.abs_diff(other.0) < EARLIER.0 * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000_000);

    #[test]
    fn deadline_that_is_read_again_is_the_same_notice() {
        let mut shown = ShownNotice::default();
        let first = NOW + Millis(30_000);
        assert_eq!(shown.look(NOW, None), NoticeChange::Unchanged);
        assert_eq!(shown.look(NOW, Some(first)), NoticeChange::Given(first));
        let again = first + Millis(499);
        assert_eq!(shown.look(NOW, Some(again)), NoticeChange::Unchanged);
        // Two steps that are small each are another notice together.
        let later = first + Millis(500);
        assert_eq!(shown.look(NOW, Some(later)), NoticeChange::Given(later));
        assert_eq!(shown.look(NOW, None), NoticeChange::Withdrawn);
        assert_eq!(shown.look(NOW, Some(later)), NoticeChange::Given(later));
    }

    #[test]
    fn notice_far_ahead_is_given_when_it_is_not_any_more() {
        let mut shown = ShownNotice::default();
        let deadline = NOW + NOTICE_MAX + Millis(10);
        for _ in 0..2 {
            assert_eq!(shown.look(NOW, Some(deadline)), NoticeChange::Far);
            assert_eq!(shown.look(NOW, Some(deadline)), NoticeChange::Unchanged, "once");
            assert_eq!(shown.look(NOW, None), NoticeChange::Unchanged, "it was not given");
        }
        assert_eq!(shown.look(NOW, Some(deadline)), NoticeChange::Far);
        assert_eq!(shown.look(NOW + Millis(10), Some(deadline)), NoticeChange::Given(deadline));
        assert!(check_left(NOTICE_MAX).is_ok());
        assert!(matches!(check_left(Millis(NOTICE_MAX.0 + 1)), Err(Refusal::TooLarge { .. })));
    }
}
