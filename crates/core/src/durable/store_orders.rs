//! Which orders to change a store a datanode still executes.
//!
//! An order may be late: its datanode has paused, or the network has held it up. Another datanode
//! has executed it then, and the name may have another object by now. A completion needs no check:
//! its upload was ended before another one was begun for the same change. A removal, and the
//! adoption of a store, must be confirmed by the namenode just before they begin.

use sanderling_protocol::order::StoreChange;
use sanderling_protocol::{Instant, Millis, Refusal};

use super::store_times::CHANGE_BEGINS_WITHIN;

/// An order at its datanode.
#[derive(Debug, Clone, Copy)]
pub struct StoreOrder {
    received: Instant,
}

impl StoreOrder {
    /// Returns an order that was received at that time.
    #[must_use]
    pub const fn new(received: Instant) -> Self {
        Self { received }
    }

    /// Checks that something of the order may begin `now`. The manager waits after an order without
    /// an answer, until what has begun has ended.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: the order is too old, and what is left of it changes nothing.
    pub fn may_begin(&self, now: Instant) -> Result<(), Refusal> {
        if self.received.until(now) <= CHANGE_BEGINS_WITHIN {
            return Ok(());
        }
        Err(refused("the order is too old to go on with"))
    }
}

/// Returns the number of a change if the namenode must confirm that it still waits.
#[must_use]
pub const fn to_confirm(change: &StoreChange) -> Option<u64> {
    match change {
        StoreChange::Complete { .. } => None,
        StoreChange::Remove { number, .. } | StoreChange::RemoveTree { number, .. } => {
            Some(*number)
        }
    }
}

/// Checks the answer of the namenode whether something still waits, which came after that time.
/// Without an answer nothing waits.
///
/// # Errors
/// [`Refusal::RetryAfter`]: it does not, or the answer may be that of long ago.
pub fn confirmed(waits: bool, took: Millis, what: &str) -> Result<(), Refusal> {
    if waits && took < CHANGE_BEGINS_WITHIN {
        return Ok(());
    }
    Err(refused(&format!("it is not known whether {what}")))
}

/// Returns the refusal of a change that was not begun: it takes no effect later, and the manager
/// does not wait for that.
#[must_use]
pub fn not_begun(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::TierFailed { why, .. } => Refusal::RetryAfter { after: Millis(0), why },
        refusal => refusal,
    }
}

fn refused(why: &str) -> Refusal {
    Refusal::RetryAfter { after: Millis(0), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_begins_soon_after_its_order_or_never() {
        let received = Instant(7_000_000);
        let order = StoreOrder::new(received);
        assert_eq!(order.may_begin(received), Ok(()));
        assert_eq!(order.may_begin(received + CHANGE_BEGINS_WITHIN), Ok(()));
        let late = order.may_begin(received + Millis(CHANGE_BEGINS_WITHIN.0 + 1));
        assert!(matches!(late, Err(Refusal::RetryAfter { .. })), "{late:?}");
    }

    #[test]
    fn removal_is_confirmed_by_an_answer_in_time_alone() {
        let key = || "k".to_owned();
        let complete =
            StoreChange::Complete { key: key(), upload: key(), parts: Vec::new(), bytes: 0 };
        assert_eq!(to_confirm(&complete), None);
        assert_eq!(to_confirm(&StoreChange::Remove { number: 7, key: key() }), Some(7));
        assert_eq!(to_confirm(&StoreChange::RemoveTree { number: 8, key: key() }), Some(8));
        assert_eq!(confirmed(true, Millis(10), "it waits"), Ok(()));
        for (waits, took) in [(false, Millis(10)), (true, CHANGE_BEGINS_WITHIN)] {
            let refused = confirmed(waits, took, "it waits").unwrap_err();
            assert!(refused.to_string().contains("not known whether it waits"), "{refused}");
        }
    }

    #[test]
    fn change_that_was_not_begun_is_not_waited_for() {
        let failed = Refusal::TierFailed { tier: "durable".to_owned(), why: "x".to_owned() };
        let waits = Refusal::RetryAfter { after: Millis(0), why: "x".to_owned() };
        assert_eq!(not_begun(failed), waits);
        let full = Refusal::NodeFull { tier: "durable".to_owned(), bytes: 1 };
        assert_eq!(not_begun(full.clone()), full);
    }
}
