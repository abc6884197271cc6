//! What a member reports to the leader about its own machine, and when: its notice, and how long it
//! is expected to go on.

use sanderling_protocol::{Instant, MemberId, Millis};

use super::machine::Replica;
use super::notices::MachineLife;
use super::output::ReplicaRole;
use super::planner::{GroupPlanner, NOTICE_INTERVAL};

/// How long after a notice was taken back the leader may still act on it. A leader forgets a notice
/// that is not repeated for 3 s (`NOTICE_KEPT` of `planner`), and an order to lead or leave has
/// some seconds of its own. Chosen, not measured.
const TAKEN_BACK_WINDOW: Millis = Millis(10_000);

/// Pause between two reports of how long a machine goes on. The leadership moves for a longer life
/// only after 30 s (`leads_at_least` of `planner`), so a new leader has several reports by then.
const LIFE_INTERVAL: Millis = Millis(5000);

/// The report that a member sends to the leader about its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnNoticeReport {
    /// The leader, which may be this member.
    pub to: MemberId,
    /// For how long the machine goes on; `None` if the notice was taken back. A duration, because
    /// the clocks of two machines show different times.
    pub left: Option<Millis>,
}

/// The notice of this member's own machine, and when it is reported.
#[derive(Debug, Clone, Default)]
pub struct OwnNotice {
    deadline: Option<Instant>,
    /// Whether a notice was taken back and that is not reported.
    is_withdrawn: bool,
    /// The leader to which the notice was reported last, and when.
    reported: Option<(MemberId, Instant)>,
    /// When the last notice was taken back.
    ended: Option<Instant>,
}

impl OwnNotice {
    /// Returns the state of a member that starts, with the notice that its machine has already.
    #[must_use]
    pub const fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, is_withdrawn: false, reported: None, ended: None }
    }

    /// Takes the `deadline` at which the machine will be taken; `None` if its notice has ended.
    pub fn set(&mut self, now: Instant, deadline: Option<Instant>) {
        if self.deadline.is_some() && deadline.is_none() {
            self.ended = Some(now);
        }
        (self.deadline, self.reported, self.is_withdrawn) = (deadline, None, deadline.is_none());
    }

    /// Returns when the machine will be taken, if it has a notice.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns what to send to `leader` now. A notice is repeated every [`NOTICE_INTERVAL`] and is
    /// due at once when another member leads, which has received none. That one was taken back is
    /// sent once: a leader that does not receive it forgets what is not repeated.
    pub fn due(&mut self, now: Instant, leader: Option<MemberId>) -> Option<OwnNoticeReport> {
        let to = leader?;
        let is_recent =
            self.reported.is_some_and(|(last, at)| last == to && at.until(now) < NOTICE_INTERVAL);
        let is_due = match self.deadline {
            Some(_) => !is_recent,
            None => std::mem::take(&mut self.is_withdrawn),
        };
        is_due.then(|| {
            self.reported = Some((to, now));
            OwnNoticeReport { to, left: self.deadline.map(|deadline| now.until(deadline)) }
        })
    }

    /// Returns whether the removal of this member follows from a notice: its machine has one, or
    /// had one until 10 s ago, and the leader decided before that reached it.
    #[must_use]
    pub fn explains_removal(&self, now: Instant) -> bool {
        self.deadline.is_some() || self.ended.is_some_and(|at| at.until(now) < TAKEN_BACK_WINDOW)
    }
}

/// When a member reports to the leader how long its own machine goes on.
#[derive(Debug, Clone, Copy)]
pub struct OwnLife {
    every: Millis,
    /// The leader to which it was reported last, and when.
    reported: Option<(MemberId, Instant)>,
}

impl Default for OwnLife {
    fn default() -> Self {
        Self::repeated(LIFE_INTERVAL)
    }
}

impl OwnLife {
    /// Returns the state of a member that starts, with the pause between its reports.
    #[must_use]
    pub const fn repeated(every: Millis) -> Self {
        Self { every, reported: None }
    }

    /// Returns the member to send a report to now: the leader, at once when another one leads,
    /// which has received none.
    pub fn due(&mut self, now: Instant, leader: Option<MemberId>) -> Option<MemberId> {
        let to = leader?;
        let is_recent =
            self.reported.is_some_and(|(last, at)| last == to && at.until(now) < self.every);
        (!is_recent).then(|| {
            self.reported = Some((to, now));
            to
        })
    }
}

impl GroupPlanner {
    /// Takes a member's report of how long its machine goes on, which may be late or forged: it
    /// counts only at a leader, and only for a member of its group.
    pub fn take_life(&mut self, replica: &Replica, member: MemberId, life: MachineLife) {
        if replica.role() == ReplicaRole::Leader && replica.group().member(member).is_some() {
            self.set_expected_life(member, life);
        }
    }

    /// Takes a member's [`OwnNoticeReport`], which may be late or forged: it counts only at a
    /// leader, and only for a member of its group. Returns whether that changes what is to be done,
    /// so that the next plan need not wait.
    pub fn take_report(
        &mut self,
        now: Instant,
        replica: &Replica,
        member: MemberId,
        left: Option<Millis>,
    ) -> bool {
        if replica.role() != ReplicaRole::Leader || replica.group().member(member).is_none() {
            return false;
        }
        let is_new = self.deadline(member).is_some() != left.is_some();
        self.notice(now, member, left.map(|left| now + left));
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(1_000_000);
    const LEADER: Option<MemberId> = Some(MemberId(1));

    fn report(to: u64, left: Option<u64>) -> Option<OwnNoticeReport> {
        Some(OwnNoticeReport { to: MemberId(to), left: left.map(Millis) })
    }

    #[test]
    fn notice_is_repeated_and_reaches_a_new_leader_at_once() {
        let mut own = OwnNotice::new(Some(START + Millis(30_000)));
        assert_eq!(own.due(START, None), None, "no member leads");
        assert_eq!(own.due(START, LEADER), report(1, Some(30_000)));
        assert_eq!(own.due(START + Millis(499), LEADER), None);
        assert_eq!(own.due(START + Millis(500), LEADER), report(1, Some(29_500)));
        let next = Some(MemberId(2));
        assert_eq!(own.due(START + Millis(501), next), report(2, Some(29_499)));
        assert_eq!(own.due(START + Millis(40_000), next), report(2, Some(0)));
    }

    #[test]
    fn notice_that_is_taken_back_is_reported_once_to_the_leader_that_there_is() {
        let mut own = OwnNotice::new(Some(START));
        own.set(START, None);
        assert_eq!(own.due(START, None), None);
        assert_eq!(own.due(START + Millis(1), LEADER), report(1, None));
        assert_eq!(own.due(START + Millis(1000), LEADER), None);
        own.set(START + Millis(1001), Some(START + Millis(2001)));
        assert_eq!(own.due(START + Millis(1001), LEADER), report(1, Some(1000)));
    }

    #[test]
    fn life_is_repeated_and_reaches_a_new_leader_at_once() {
        let mut own = OwnLife::default();
        assert_eq!(own.due(START, None), None, "no member leads");
        assert_eq!(own.due(START, LEADER), LEADER);
        assert_eq!(own.due(START + Millis(4999), LEADER), None);
        assert_eq!(own.due(START + Millis(5000), LEADER), LEADER);
        let next = Some(MemberId(2));
        assert_eq!(own.due(START + Millis(5001), next), next);
        assert_eq!(own.due(START + Millis(5002), None), None);
        assert_eq!(own.due(START + Millis(5003), next), None, "that leader has it");
    }

    #[test]
    fn removal_is_explained_by_a_notice_until_shortly_after_it_was_taken_back() {
        let mut own = OwnNotice::default();
        own.set(START, None);
        assert!(!own.explains_removal(START), "there was none");
        own.set(START, Some(START + Millis(5)));
        assert!(own.explains_removal(START + Millis(60_000)));
        own.set(START, None);
        own.set(START + Millis(1000), None);
        assert!(own.explains_removal(START + Millis(9999)));
        assert!(!own.explains_removal(START + Millis(10_000)));
    }
}
