//! Contact with the namenode: when a datanode reports that its namenode is gone, that the namenode
//! is back, and that it refuses to register the node. An absence is reported once, however many
//! calls fail during it.

use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Instant, Millis, Refusal};

use super::CallFailure;

/// Silence after which a failed call is reported. A namenode that is started again at once, or a
/// connection that broke, is not worth a warning. Two heartbeats by default.
pub const GONE_AFTER: Millis = Millis(1000);

/// Time between two reports of refused registrations. A node registers four times a second, and
/// waits 30 s at its start by default: an operator gets three lines of a start that fails.
pub const REFUSAL_REPORT_INTERVAL: Millis = Millis(10_000);

/// A record of whether the namenode answers the calls of one datanode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamenodeContact {
    /// The last answer, or the start of the process.
    answered_at: Instant,
    failed_calls: u64,
    is_gone: bool,
}

/// The change that the outcome of a call brings; the shell logs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContactChange {
    /// The namenode has not answered for a while.
    Gone {
        /// Time since its last answer.
        silent: Millis,
    },
    /// It answers again.
    Back {
        /// Time between the last answer before the absence and this one.
        silent: Millis,
        /// Calls that failed in that time.
        failed_calls: u64,
    },
}

impl NamenodeContact {
    /// Returns the contact of a process that has called nothing yet.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { answered_at: now, failed_calls: 0, is_gone: false }
    }

    /// Returns whether the namenode is reported as gone and has not answered since.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Returns the number of calls that failed since the last answer.
    #[must_use]
    pub const fn failed_calls(&self) -> u64 {
        self.failed_calls
    }

    /// Returns how many milliseconds before `now` the namenode last answered a call, or the process
    /// started if it has answered none.
    #[must_use]
    pub fn silent(&self, now: Instant) -> Millis {
        now.since(self.answered_at)
    }

    /// Handles the outcome of a call; returns what is to be reported, which is nothing for as long
    /// as the outcomes stay alike.
    pub fn called(
        &mut self,
        now: Instant,
        outcome: Result<(), &CallFailure>,
    ) -> Option<ContactChange> {
        let silent = self.silent(now);
        if outcome.map_or_else(is_answer, |()| true) {
            let before = std::mem::replace(self, Self::new(now));
            let failed_calls = before.failed_calls;
            return before.is_gone.then_some(ContactChange::Back { silent, failed_calls });
        }
        self.failed_calls = self.failed_calls.saturating_add(1);
        if self.is_gone || silent < GONE_AFTER {
            return None;
        }
        self.is_gone = true;
        Some(ContactChange::Gone { silent })
    }
}

/// A record of when a datanode last reported that the namenode refuses to register it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RefusedRegistrations {
    reported_at: Option<Instant>,
}

impl RefusedRegistrations {
    /// Handles a registration that failed and is tried again; returns whether it is to be
    /// reported: the first one, and then one in [`REFUSAL_REPORT_INTERVAL`].
    ///
    /// A refusal that passes by itself is not reported, nor a failure for which
    /// [`NamenodeContact`] reports that the namenode is gone.
    pub fn failed(&mut self, now: Instant, failure: &CallFailure) -> bool {
        let CallFailure::Refused(refusal) = failure else { return false };
        let is_lasting = matches!(refusal.recovery(), Recovery::Fix | Recovery::Report);
        let is_due = self.reported_at.is_none_or(|at| now.since(at) >= REFUSAL_REPORT_INTERVAL);
        let is_reported = is_lasting && is_answer(failure) && is_due;
        if is_reported {
            self.reported_at = Some(now);
        }
        is_reported
    }
}

/// Returns whether a failure shows that the namenode serves this node. A namenode that does not
/// admit the node is as good as gone until an operator acts.
const fn is_answer(failure: &CallFailure) -> bool {
    match failure {
        CallFailure::Refused(refusal) => {
            !matches!(refusal, Refusal::Unauthenticated { .. } | Refusal::Forbidden { .. })
        }
        CallFailure::Busy | CallFailure::Broken => false,
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::NodeId;

    use super::*;

    const START: Instant = Instant(5_000_000);

    fn after(millis: u64) -> Instant {
        START + Millis(millis)
    }

    #[test]
    fn absence_and_return_are_reported_once_each() {
        let mut contact = NamenodeContact::new(START);
        assert_eq!(contact.called(after(0), Ok(())), None);
        for millis in [100, 500, 999] {
            assert_eq!(contact.called(after(millis), Err(&CallFailure::Broken)), None);
        }
        let gone = ContactChange::Gone { silent: Millis(1200) };
        assert_eq!(contact.called(after(1200), Err(&CallFailure::Busy)), Some(gone));
        for millis in 1201..1300 {
            assert_eq!(contact.called(after(millis), Err(&CallFailure::Broken)), None);
        }
        assert!(contact.is_gone());
        let back = ContactChange::Back { silent: Millis(2000), failed_calls: 103 };
        assert_eq!(contact.called(after(2000), Ok(())), Some(back));
        assert_eq!(contact.called(after(2100), Ok(())), None);
        assert_eq!((contact.is_gone(), contact.failed_calls()), (false, 0));
    }

    #[test]
    fn short_absence_is_not_reported() {
        let mut contact = NamenodeContact::new(START);
        assert_eq!(contact.called(after(900), Err(&CallFailure::Broken)), None);
        assert_eq!(contact.called(after(950), Ok(())), None);
        assert_eq!(contact.called(after(1800), Err(&CallFailure::Broken)), None);
    }

    #[test]
    fn refusal_is_an_answer_unless_the_node_is_not_admitted() {
        let mut contact = NamenodeContact::new(START);
        let why = || "test".to_owned();
        let busy = CallFailure::Refused(Refusal::RetryAfter { after: Millis(1), why: why() });
        assert_eq!(contact.called(after(5000), Err(&busy)), None);
        let barred = CallFailure::Refused(Refusal::Unauthenticated { why: why() });
        let gone = ContactChange::Gone { silent: Millis(2000) };
        assert_eq!(contact.called(after(7000), Err(&barred)), Some(gone));
    }

    #[test]
    fn refused_registration_is_reported_at_once_and_then_once_in_a_while() {
        let (name, node) = ("a".to_owned(), NodeId(3));
        let taken = CallFailure::Refused(Refusal::NameInUse { name, node });
        let mut refused = RefusedRegistrations::default();
        let reported = (0..100_u64).filter(|at| refused.failed(after(at * 250), &taken));
        assert_eq!(reported.collect::<Vec<_>>(), [0, 40, 80]);
    }

    #[test]
    fn registration_that_is_refused_for_a_while_or_without_a_right_is_no_refusal_of_the_node() {
        let why = || "test".to_owned();
        let mut refused = RefusedRegistrations::default();
        for failure in [
            CallFailure::Refused(Refusal::RetryAfter { after: Millis(1), why: why() }),
            CallFailure::Refused(Refusal::Unauthenticated { why: why() }),
            CallFailure::Refused(Refusal::NotLeader { leader: None }),
            CallFailure::Broken,
            CallFailure::Busy,
        ] {
            assert!(!refused.failed(after(0), &failure), "{failure:?}");
        }
    }
}
