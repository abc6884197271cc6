//! The attempts at one call to a group: whether another one may follow a failure, which member it
//! goes to, and when a member that does not answer is given up.

use sanderling_protocol::{Instant, Millis, Refusal, Reply};

use super::{GroupView, MemberFailure};
use crate::retry::doubled;

/// First pause when all members were tried and none leads: less than an election takes.
const PAUSE_MIN: Millis = Millis(10);

/// Longest such pause: callers find a new leader that much after its election at most.
const PAUSE_MAX: Millis = Millis(200);

/// The same for one call of a process, while a member answers that it does not lead. Little beside
/// the 400 to 800 ms of an election, and a small request to each member some 25 times a second.
/// Chosen, not measured.
const PROBER_PAUSE_MAX: Millis = Millis(50);

/// How long one of several members may take to accept a connection and to answer the greeting: it
/// runs, or another one is tried. Twice as long after each pause of the call, in which all of them
/// were tried, so that members that are slow to connect are reached all the same. If it is more
/// than this, it is at most half of the time that the call has left: a machine that is gone never
/// holds a call up until its deadline, and the other half is for the members that lead meanwhile.
pub const CONNECT_TIMEOUT: Millis = Millis(1000);

/// What [`CONNECT_TIMEOUT`] is doubled up to: more than the default time for a call.
const CONNECT_TIMEOUT_MAX: Millis = Millis(32_000);

/// How long a member may take to report the members: as long as one has to accept a connection. Its
/// answer needs neither the log nor another member.
pub const MEMBERS_TIMEOUT: Millis = CONNECT_TIMEOUT;

/// How long a call to one of several members waits until the others get a request for the member
/// that leads. Chosen, not measured: far more than an answer takes, and less than the 400 ms
/// without a leader after which a follower stands for election at the earliest.
pub const SLOW_AFTER: Millis = Millis(250);

/// Shortest time between two such requests of a process, however many calls wait. Chosen, not
/// measured: a follower answers within milliseconds, and the 400 to 800 ms of an election pass
/// anyway.
pub const PROBE_INTERVAL: Millis = Millis(100);

/// How long a call that still waits looks that often for another leader: longer than an election
/// takes, 0.4 to 0.8 s and as long again if no candidate gets a majority.
const PROBED_OFTEN_FOR: Millis = Millis(2000);

/// How often it looks from then on. Some calls wait long with a leader that is well, as those for
/// events, which take 30 s. Chosen, not measured.
const PROBE_SELDOM_INTERVAL: Millis = Millis(500);

/// The rule for requests that may have been done although no answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// The call fails, and its caller decides.
    Undone,
    /// They are sent to the next member: done twice they do the same as once.
    Always,
}

/// The way in which an attempt at a member failed, as the caller's connection shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberFault<'a> {
    /// The member refused the requests or the greeting.
    Refused(&'a Refusal),
    /// What answers there is of another cluster, or no namenode.
    Foreign,
    /// No connection was made.
    Unreachable,
    /// The connection broke.
    Broken,
    /// No answer came in time.
    Silent {
        /// How long was waited.
        waited: Millis,
    },
    /// The caller itself has too many calls under way.
    TooBusy,
    /// The answer is not one to these requests.
    BadReply,
}

/// An attempt at a call that brought no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAttempt<'a> {
    /// The member's address.
    pub address: &'a str,
    /// How it failed.
    pub fault: MemberFault<'a>,
    /// Whether the requests may have been sent. False if there was no connection for them.
    pub was_sent: bool,
}

/// The member of a group that a caller tries next, or how long it waits before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextMember {
    /// Send the requests there.
    Try {
        /// The member's address.
        address: String,
        /// How long it may take to accept a connection, within the deadline of the call.
        connect_within: Millis,
    },
    /// All were tried: wait, and begin anew.
    Wait {
        /// How long.
        pause: Millis,
    },
    /// All were tried, and the pause would outlast the deadline: the call has failed.
    TooLate,
}

/// The caller's decision on an attempt at a member that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlowAttempt {
    /// Give it up: another member leads. The requests may have been done.
    GiveUp,
    /// Wait for [`probe_pause`] more, or until the requests would go to another member.
    Wait {
        /// The member from which the list of members is requested meanwhile, if one is to be.
        members_from: Option<String>,
    },
}

/// The attempts at one call: the members that it has tried, and what ends it.
#[derive(Debug, Clone)]
pub struct MemberAttempts {
    repeats: Repeats,
    deadline: Instant,
    /// The addresses that were tried since the last pause.
    tried: Vec<String>,
    /// Pauses so far.
    rounds: u32,
    /// Whether this is the call of its process that looks for a leader often.
    is_prober: bool,
    /// Whether a member answered since the last pause that it does not lead.
    has_met_follower: bool,
    /// Whether a leader that was found has ended a pause.
    was_resumed: bool,
}

impl MemberFault<'_> {
    /// Returns what the fault shows of the member; `None` if another member would answer alike.
    #[must_use]
    pub fn of_member(&self) -> Option<MemberFailure> {
        match *self {
            Self::Refused(Refusal::NotLeader { leader }) => {
                Some(MemberFailure::NotLeader { leader: leader.clone() })
            }
            Self::Refused(Refusal::Undecided { .. }) => {
                Some(MemberFailure::NotLeader { leader: None })
            }
            Self::Refused(Refusal::WrongCluster { .. } | Refusal::OtherGeneration { .. })
            | Self::Foreign => Some(MemberFailure::Foreign),
            // The caller had no more time: that is not the member's failure.
            Self::Silent { waited } if waited < SLOW_AFTER => None,
            Self::Unreachable | Self::Broken | Self::Silent { .. } => {
                Some(MemberFailure::Unreachable)
            }
            Self::Refused(_) | Self::TooBusy | Self::BadReply => None,
        }
    }

    /// Returns whether the requests belong to another member, also if no other one is known.
    const fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NotLeader { .. } | Refusal::Undecided { .. }))
    }
}

impl FailedAttempt<'_> {
    /// Returns whether the requests may have been done although no outcome came.
    #[must_use]
    pub const fn may_be_done(&self) -> bool {
        self.was_sent
            && matches!(
                self.fault,
                MemberFault::Broken
                    | MemberFault::Silent { .. }
                    | MemberFault::BadReply
                    | MemberFault::Refused(Refusal::Undecided { .. })
            )
    }
}

/// Returns how long a call goes on until it looks for another leader again, once it has waited for
/// `waited` since [`SLOW_AFTER`].
#[must_use]
pub const fn probe_pause(waited: Millis) -> Millis {
    if waited.0 < PROBED_OFTEN_FOR.0 { PROBE_INTERVAL } else { PROBE_SELDOM_INTERVAL }
}

/// Returns the refusal of a frame of which the member answers nothing because it does not lead;
/// `None` if any reply is another one. If the member could not decide some of it, another member
/// may have that, so its refusal comes before the others.
#[must_use]
pub fn refused_elsewhere(replies: &[Result<Reply, Refusal>]) -> Option<&Refusal> {
    let mut found = None;
    for reply in replies {
        match reply {
            Err(refusal @ Refusal::Undecided { .. }) => found = Some(refusal),
            Err(refusal @ Refusal::NotLeader { .. }) => {
                found.get_or_insert(refusal);
            }
            _ => return None,
        }
    }
    found
}

impl MemberAttempts {
    /// Returns the attempts of a call until `deadline`, the first of which went to `first`. The
    /// times of all calls are by the clock of the view.
    #[must_use]
    pub fn new(first: &str, repeats: Repeats, deadline: Instant) -> Self {
        Self {
            repeats,
            deadline,
            tried: vec![first.to_owned()],
            rounds: 0,
            is_prober: false,
            has_met_follower: false,
            was_resumed: false,
        }
    }

    /// Makes this the call that looks for a leader often. A process has one at a time, so that its
    /// requests to members that do not lead do not grow with its calls.
    pub const fn probe(&mut self) {
        self.is_prober = true;
    }

    /// Returns whether a leader that was found ends the pause of this call. It does once: a leader
    /// that answers other calls may refuse this one again.
    pub fn ends_pause(&mut self) -> bool {
        !std::mem::replace(&mut self.was_resumed, true)
    }

    /// Takes how an attempt failed at `now`, and notes in the view what that shows of the member.
    /// Returns whether another attempt may follow: [`Self::next`] names it. If none may, that
    /// failure is the outcome of the call: another member would answer alike, there is none, the
    /// requests may have been done and are not repeated then, or the deadline has passed.
    #[must_use]
    pub fn failed(
        &mut self,
        view: &mut GroupView,
        now: Instant,
        failed: &FailedAttempt<'_>,
    ) -> bool {
        self.has_met_follower |=
            matches!(failed.fault, MemberFault::Refused(Refusal::NotLeader { .. }));
        let Some(failure) = failed.fault.of_member() else { return false };
        view.failed(now, failed.address, failure);
        let is_alone = !view.has_several(now) && !failed.fault.is_elsewhere();
        let is_in_doubt = failed.may_be_done() && self.repeats == Repeats::Undone;
        !is_alone && !is_in_doubt && now < self.deadline
    }

    /// Returns where the call turns to next: the leader, then every other member once, then a
    /// pause if the deadline allows it. `draw` is random: callers that lost the same leader at once
    /// do not return at once.
    pub fn next(&mut self, view: &GroupView, now: Instant, draw: u64) -> NextMember {
        let leader = view.leader.as_deref().filter(|leader| !self.has_tried(leader));
        let next = leader.or_else(|| view.order(now).find(|it| !self.has_tried(it)));
        let Some(next) = next else {
            let is_probing = self.is_prober && self.has_met_follower;
            let pause_max = if is_probing { PROBER_PAUSE_MAX } else { PAUSE_MAX };
            let Millis(longest) = doubled(PAUSE_MIN, self.rounds, pause_max);
            let pause = Millis(longest / 2 + draw % (longest / 2 + 1));
            if now + pause >= self.deadline {
                return NextMember::TooLate;
            }
            self.rounds += 1;
            self.tried.clear();
            self.has_met_follower = false;
            return NextMember::Wait { pause };
        };
        let address = next.to_owned();
        self.tried.push(address.clone());
        let half = Millis(now.until(self.deadline).0 / 2);
        let grown = doubled(CONNECT_TIMEOUT, self.rounds, CONNECT_TIMEOUT_MAX);
        let connect_within = grown.min(half.max(CONNECT_TIMEOUT));
        assert!(connect_within >= CONNECT_TIMEOUT, "a member that runs has a second to accept");
        NextMember::Try { address, connect_within }
    }

    fn has_tried(&self, address: &str) -> bool {
        self.tried.iter().any(|tried| tried == address)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::ClusterId;

    use super::*;

    const NOW: Instant = Instant(5_000_000);
    const LATER: Instant = Instant(9_000_000);

    fn view(addresses: &str) -> GroupView {
        GroupView::new(addresses.split(',').map(str::to_owned), Instant(0))
    }

    fn attempts(repeats: Repeats, deadline: Instant) -> MemberAttempts {
        MemberAttempts::new("a:1", repeats, deadline)
    }

    /// Returns whether a call of several members goes on after a first attempt that failed so.
    fn goes_on(fault: MemberFault<'_>, was_sent: bool, repeats: Repeats) -> bool {
        let failed = FailedAttempt { address: "a:1", fault, was_sent };
        attempts(repeats, LATER).failed(&mut view("a:1,b:2,c:3"), NOW, &failed)
    }

    #[test]
    fn call_goes_on_unless_another_member_would_answer_alike_or_it_may_be_done() {
        let elsewhere = Refusal::NotLeader { leader: None };
        let undecided = Refusal::Undecided { why: String::new() };
        let foreign = Refusal::WrongCluster { here: ClusterId(1), asked: ClusterId(2) };
        let wrong = Refusal::BadRequest { why: String::new() };
        let slow = MemberFault::Silent { waited: SLOW_AFTER };
        let hurried = MemberFault::Silent { waited: Millis(SLOW_AFTER.0 - 1) };
        // Whether it goes on if the requests were not sent; if they were; if they are repeated.
        let rows = [
            (MemberFault::Refused(&elsewhere), [true, true, true]),
            (MemberFault::Refused(&undecided), [true, false, true]),
            (MemberFault::Refused(&foreign), [true, true, true]),
            (MemberFault::Refused(&wrong), [false, false, false]),
            (MemberFault::Foreign, [true, true, true]),
            (MemberFault::Unreachable, [true, true, true]),
            (MemberFault::Broken, [true, false, true]),
            (slow, [true, false, true]),
            (hurried, [false, false, false]),
            (MemberFault::TooBusy, [false, false, false]),
            (MemberFault::BadReply, [false, false, false]),
        ];
        for (fault, wanted) in rows {
            let found =
                [(false, Repeats::Undone), (true, Repeats::Undone), (true, Repeats::Always)]
                    .map(|(was_sent, repeats)| goes_on(fault, was_sent, repeats));
            assert_eq!(found, wanted, "{fault:?}");
        }
    }

    #[test]
    fn member_without_others_is_tried_again_only_if_it_names_another_leader() {
        let elsewhere = Refusal::NotLeader { leader: None };
        let rows = [(MemberFault::Unreachable, false), (MemberFault::Refused(&elsewhere), true)];
        for (fault, wanted) in rows {
            let failed = FailedAttempt { address: "a:1", fault, was_sent: false };
            let found = attempts(Repeats::Always, LATER).failed(&mut view("a:1"), NOW, &failed);
            assert_eq!(found, wanted, "{fault:?}");
        }
    }

    #[test]
    fn deadline_ends_a_call_after_an_attempt_and_before_a_pause() {
        let mut view = view("a:1,b:2");
        let failed =
            FailedAttempt { address: "a:1", fault: MemberFault::Unreachable, was_sent: false };
        assert!(!attempts(Repeats::Always, NOW).failed(&mut view, NOW, &failed));
        let mut attempts = attempts(Repeats::Always, NOW + Millis(5));
        assert!(attempts.failed(&mut view, NOW, &failed));
        let connect_within = CONNECT_TIMEOUT;
        let last = NextMember::Try { address: "b:2".to_owned(), connect_within };
        assert_eq!(attempts.next(&view, NOW, 0), last, "the first one was tried before");
        assert_eq!(attempts.next(&view, NOW, 0), NextMember::TooLate, "the pause is 5 ms");
        let before = Instant(NOW.0 - 1);
        assert_eq!(attempts.next(&view, before, 0), NextMember::Wait { pause: Millis(5) });
    }

    #[test]
    fn member_that_is_gone_leaves_half_of_the_time_of_a_call_to_the_others() {
        let view = view("a:1");
        let deadline = NOW + Millis(10_000);
        let mut attempts = attempts(Repeats::Always, deadline);
        // The caller makes the first attempt.
        let (mut now, mut times) = (NOW + CONNECT_TIMEOUT, vec![CONNECT_TIMEOUT.0]);
        loop {
            match attempts.next(&view, now, 0) {
                NextMember::Try { connect_within, .. } => {
                    times.push(connect_within.0);
                    now = deadline.min(now + connect_within);
                }
                NextMember::Wait { pause } => now = now + pause,
                NextMember::TooLate => break,
            }
        }
        assert_eq!(times, [1000, 2000, 3492, 1736, 1000, 1000]);
    }

    #[test]
    fn slow_leader_is_given_up_only_for_another_one_of_which_the_others_are_requested() {
        let mut view = view("a:1,b:2");
        view.answered("a:1");
        let wait = |from: Option<&str>| SlowAttempt::Wait { members_from: from.map(str::to_owned) };
        assert_eq!(view.slow(NOW, "a:1"), wait(Some("b:2")));
        assert_eq!(view.slow(NOW, "a:1"), wait(None), "that request is under way");
        view.refreshed(NOW, 0);
        let later = NOW + PROBE_INTERVAL;
        let sooner = Instant(later.0 - 1);
        assert_eq!(view.slow(sooner, "a:1"), wait(None), "another call has just sent one");
        assert_eq!(view.slow(later, "a:1"), wait(Some("b:2")), "long before it is due");
        view.answered("b:2");
        assert_eq!(view.slow(later, "a:1"), SlowAttempt::GiveUp);
    }

    #[test]
    fn call_that_waits_long_looks_for_another_leader_less_often() {
        assert_eq!(probe_pause(Millis(0)), PROBE_INTERVAL);
        assert_eq!(probe_pause(Millis(PROBED_OFTEN_FOR.0 - 1)), PROBE_INTERVAL);
        assert_eq!(probe_pause(PROBED_OFTEN_FOR), PROBE_SELDOM_INTERVAL);
    }

    #[test]
    fn only_the_prober_pauses_shortly_and_only_while_a_member_answers_that_it_does_not_lead() {
        let elsewhere = Refusal::NotLeader { leader: None };
        let undecided = Refusal::Undecided { why: String::new() };
        let of = |fault| FailedAttempt { address: "a:1", fault, was_sent: true };
        let rows = [
            (true, MemberFault::Refused(&elsewhere), 25),
            (true, MemberFault::Refused(&undecided), 100),
            (true, MemberFault::Unreachable, 100),
            (false, MemberFault::Refused(&elsewhere), 100),
        ];
        for (is_prober, fault, wanted) in rows {
            let (mut view, mut attempts) = (view("a:1,b:2"), attempts(Repeats::Always, LATER));
            if is_prober {
                attempts.probe();
            }
            let mut pauses = Vec::new();
            while pauses.len() < 8 {
                assert!(attempts.failed(&mut view, NOW, &of(fault)));
                if let NextMember::Wait { pause } = attempts.next(&view, NOW, 0) {
                    pauses.push(pause.0);
                }
            }
            assert_eq!(pauses.last(), Some(&wanted), "{is_prober} {fault:?}");
        }
    }

    #[test]
    fn leader_that_is_found_ends_one_pause_of_a_call() {
        let mut attempts = attempts(Repeats::Always, LATER);
        assert!(attempts.ends_pause());
        assert!(!attempts.ends_pause(), "it may refuse this call, and answer others");
    }

    #[test]
    fn frame_is_sent_elsewhere_only_if_nothing_of_it_is_answered() {
        let elsewhere = || Err(Refusal::NotLeader { leader: Some("b:2".to_owned()) });
        let unnamed = || Err(Refusal::NotLeader { leader: None });
        let undecided = || Err(Refusal::Undecided { why: "full".to_owned() });
        let rows = [
            (Vec::<Result<Reply, Refusal>>::new(), None),
            (vec![elsewhere(), unnamed()], Some(0)),
            (vec![elsewhere(), undecided(), unnamed()], Some(1)),
            (vec![elsewhere(), Ok(Reply::Done)], None),
            (vec![undecided(), Err(Refusal::NoHello)], None),
        ];
        for (replies, place) in rows {
            let wanted = place.and_then(|place| replies[place].as_ref().err());
            assert_eq!(refused_elsewhere(&replies), wanted, "{replies:?}");
        }
    }
}
