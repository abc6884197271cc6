//! Whether a member may answer reads from what it has applied. Servers and the simulator have this
//! one rule: a server's threads apply it to what the writer last showed, the simulator to the
//! machine itself.

use sanderling_protocol::{Instant, Millis};

use crate::group_view::SLOW_AFTER;

/// How long a read waits at a member that was elected and does not serve yet. Its first entry takes
/// one round with the quorum, milliseconds. Less than the 250 ms after which callers look for
/// another leader ([`SLOW_AFTER`]).
pub const TAKE_OVER_TIMEOUT: Millis = Millis(200);

const _: () = assert!(TAKE_OVER_TIMEOUT.0 < SLOW_AFTER.0);

/// How long the writer of a leader without a lease looks at nothing before it counts as hung: its
/// disk does not answer, most likely. Five times as long as the others wait for its messages before
/// they elect another one (400 ms).
pub const HUNG_AFTER: Millis = Millis(2000);

/// How far a member leads. Only one that serves may answer reads, and needs a lease or a quorum for
/// it ([`ReadPermission`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeadState {
    /// Another member leads, or none.
    Follows,
    /// It was elected, and has not yet applied all that earlier leaders agreed.
    Elected,
    /// It leads, and has applied that.
    Serves,
}

/// What the permission of a member follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseView {
    /// How far it leads.
    pub lead: LeadState,
    /// Until when its lease lasts; a moment that has passed without one.
    pub lease_until: Instant,
    /// When it last looked at what had come.
    pub seen_at: Instant,
}

impl LeaseView {
    /// Returns whether it has no lease at `now`, and has looked at nothing for so long that the
    /// others follow another leader.
    #[must_use]
    pub fn hangs(&self, now: Instant) -> bool {
        !self.has_lease(now) && now > self.seen_at + HUNG_AFTER
    }

    /// Returns whether its lease lasts at `now`.
    #[must_use]
    pub fn has_lease(&self, now: Instant) -> bool {
        now < self.lease_until
    }
}

/// The permission of a member to answer reads from what it has applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPermission {
    /// Yes, at this moment.
    Yes,
    /// Only after a majority has confirmed: [`super::Replica::confirm_reads`].
    NeedsQuorum,
    /// It was elected and does not serve yet: a read waits for that, for [`TAKE_OVER_TIMEOUT`] at
    /// most, and is refused then. A leader that is cut off after its election never serves, and
    /// callers must find the next one.
    TakesOver,
    /// It does not lead, or does not go on as the leader.
    NotLeader,
}

impl ReadPermission {
    /// Returns the permission at `now` of a member that shows this.
    #[must_use]
    pub fn of(view: &LeaseView, now: Instant) -> Self {
        match view.lead {
            LeadState::Follows => Self::NotLeader,
            LeadState::Elected => Self::TakesOver,
            LeadState::Serves if view.has_lease(now) => Self::Yes,
            LeadState::Serves if view.hangs(now) => Self::NotLeader,
            LeadState::Serves => Self::NeedsQuorum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN_AT: Instant = Instant(10_000_000);

    fn permission(lead: LeadState, lease_until: Instant, now: Instant) -> ReadPermission {
        ReadPermission::of(&LeaseView { lead, lease_until, seen_at: SEEN_AT }, now)
    }

    #[test]
    fn lease_counts_at_a_member_that_serves_alone() {
        let until = SEEN_AT + Millis(380);
        let at = |lead| permission(lead, until, SEEN_AT);
        assert_eq!(at(LeadState::Serves), ReadPermission::Yes);
        assert_eq!(at(LeadState::Elected), ReadPermission::TakesOver);
        assert_eq!(at(LeadState::Follows), ReadPermission::NotLeader);
    }

    #[test]
    fn leader_confirms_reads_from_the_end_of_its_lease_until_it_counts_as_hung() {
        let until = SEEN_AT + Millis(380);
        let at = |now| permission(LeadState::Serves, until, now);
        assert_eq!(at(Instant(until.0 - 1)), ReadPermission::Yes);
        assert_eq!(at(until), ReadPermission::NeedsQuorum);
        let hung_at = SEEN_AT + HUNG_AFTER;
        assert_eq!(at(hung_at), ReadPermission::NeedsQuorum);
        assert_eq!(at(Instant(hung_at.0 + 1)), ReadPermission::NotLeader);
    }

    #[test]
    fn leader_that_looks_at_nothing_answers_while_its_lease_lasts() {
        let now = SEEN_AT + Millis(3_600_000);
        let at = |until| permission(LeadState::Serves, until, now);
        assert_eq!(at(Instant(u64::MAX)), ReadPermission::Yes);
        assert_eq!(at(Instant(0)), ReadPermission::NotLeader);
    }
}
