use super::*;
use sanderling_protocol::Term;

const HEARTBEAT: Millis = Millis(500);
const REPORT: Millis = Millis(180_000);
const REJOIN: Millis = Millis(60_000);
const START: Instant = Instant(1_000_000);

/// A member with its clock, whose steps are done by the tests.
struct Rig {
    member: NodeMembership,
    now: Instant,
}

fn refused(refusal: Refusal) -> CallFailure {
    CallFailure::Refused(refusal)
}

fn welcome(node: u32) -> Joined {
    let (cluster, policy) = (ClusterId(1), Policy::Active);
    let registered = Registered { cluster, node: NodeId(node), heartbeat: HEARTBEAT, policy };
    Joined { registered, position: at(9), is_continuation: true }
}

fn at(index: u64) -> Option<LogPosition> {
    Some(LogPosition { term: Term(1), index })
}

fn active() -> (HeartbeatReply, Option<LogPosition>) {
    (HeartbeatReply { policy: Policy::Active, deadline_in: None, home_blocks: 0 }, at(10))
}

impl Rig {
    fn new() -> Self {
        let options = MemberOptions {
            mechanism: Mechanism::Sanderling,
            attempt_every: Millis(250),
            draining_heartbeat: Millis(200),
            report_every: REPORT,
            rejoin_after_notice: REJOIN,
        };
        Self {
            member: NodeMembership::new(options, Nonce(1), StartLimit::Until(START)),
            now: Instant(0),
        }
    }

    /// Returns a node that has just joined.
    fn node() -> Self {
        let mut rig = Self::new();
        let asked = rig.registers().asked;
        let registration = rig.member.registered(rig.now, asked, Ok(&welcome(7)));
        assert_eq!(registration, Registration { outcome: RegistrationOutcome::Joined, lost: None });
        rig
    }

    /// Returns a node between two rounds.
    fn resting() -> Self {
        let mut rig = Self::node();
        rig.beats(Ok(active()));
        rig.reports(true);
        rig.repeats();
        rig
    }

    fn next(&mut self) -> MemberStep {
        self.member.next(self.now, false)
    }

    fn registers(&mut self) -> Joining {
        match self.next() {
            MemberStep::Register(joining) => joining,
            other => panic!("{other:?}"),
        }
    }

    fn joins(&mut self, answer: Result<&Joined, CallFailure>) -> RegistrationOutcome {
        let asked = self.registers().asked;
        self.member.registered(self.now, asked, answer).outcome
    }

    fn beats(
        &mut self,
        answer: Result<(HeartbeatReply, Option<LogPosition>), CallFailure>,
    ) -> HeartbeatOutcome {
        match self.next() {
            MemberStep::Beat { asked, .. } => self.member.beaten(self.now, asked, answer),
            other => panic!("{other:?}"),
        }
    }

    fn reports(&mut self, is_taken: bool) {
        assert_eq!(self.next(), MemberStep::Report(NodeId(7)));
        self.member.reported(self.now, is_taken);
    }

    fn repeats(&mut self) {
        assert_eq!(self.next(), MemberStep::Repeat);
        self.member.repeated(self.now);
    }

    fn waits(&mut self, span: Millis) {
        assert_eq!(self.next(), MemberStep::Wait(self.now + span));
        self.now = self.now + span;
    }

    fn begins_again(&mut self) -> bool {
        assert_eq!(self.next(), MemberStep::BeginAgain);
        let held = BlockTotals { blocks: 2, bytes: 3 };
        assert!(self.member.begin_again(self.now, held, Nonce(2)), "its blocks have no owner");
        assert_eq!(self.member.node(), None);
        self.member.wiped(self.now)
    }
}

#[test]
fn node_beats_reports_and_repeats_round_by_round() {
    let mut rig = Rig::resting();
    rig.waits(HEARTBEAT);
    for _ in 0..3 {
        assert_eq!(rig.beats(Ok(active())), HeartbeatOutcome::Stays);
        rig.repeats();
        rig.waits(HEARTBEAT);
    }
    rig.now = rig.now + REPORT;
    rig.beats(Ok(active()));
    rig.reports(true);
    assert_eq!(rig.next(), MemberStep::Repeat);
    assert_eq!(rig.next(), MemberStep::Pending, "it is not over");
}

#[test]
fn fenced_node_sends_heartbeats_more_often() {
    let mut rig = Rig::resting();
    rig.member.registration_mut().order(rig.now, true);
    rig.waits(HEARTBEAT);
    rig.beats(Err(CallFailure::Busy));
    rig.repeats();
    rig.waits(Millis(200));
}

#[test]
fn slow_namenode_gets_the_next_heartbeat_and_one_that_broke_off_a_registration() {
    let mut rig = Rig::resting();
    let retry = Refusal::RetryAfter { after: Millis(1), why: String::new() };
    for failure in [CallFailure::Busy, refused(retry)] {
        rig.waits(HEARTBEAT);
        assert_eq!(rig.beats(Err(failure)), HeartbeatOutcome::Unanswered { is_known: true });
        rig.repeats();
    }
    let unknown = Refusal::UnknownNode { node: "7".to_owned() };
    for failure in [CallFailure::Broken, refused(unknown)] {
        rig.waits(HEARTBEAT);
        assert_eq!(rig.beats(Err(failure)), HeartbeatOutcome::Unanswered { is_known: false });
        assert_eq!(rig.joins(Ok(&welcome(7))), RegistrationOutcome::Rejoined);
        rig.reports(true);
        rig.repeats();
    }
    // A connection that breaks between two heartbeats is seen before the next.
    rig.now = rig.now + HEARTBEAT;
    assert!(matches!(rig.member.next(rig.now, true), MemberStep::Register(_)));
}

#[test]
fn namenode_of_another_term_gets_the_earlier_position_in_the_log() {
    let mut rig = Rig::resting();
    rig.waits(HEARTBEAT);
    let other = Some(LogPosition { term: Term(2), index: 3 });
    assert_eq!(rig.beats(Ok((active().0, other))), HeartbeatOutcome::AnotherTerm);
    let joining = rig.registers();
    assert_eq!(joining.seen, at(10));
    let joined = Joined { position: other, is_continuation: false, ..welcome(7) };
    let lost = rig.member.registered(rig.now, joining.asked, Ok(&joined)).lost;
    assert_eq!(lost, Some(LostEnd { seen: at(10), position: other }));
    rig.reports(true);
}

#[test]
fn node_whose_id_the_log_has_lost_keeps_its_blocks_under_another() {
    let mut rig = Rig::resting();
    rig.waits(HEARTBEAT);
    rig.beats(Err(CallFailure::Broken));
    let joined = Joined { position: at(3), is_continuation: false, ..welcome(9) };
    assert_eq!(rig.joins(Ok(&joined)), RegistrationOutcome::Another);
    assert_eq!(rig.next(), MemberStep::BeginAgain);
    let held = BlockTotals { blocks: 2, bytes: 3 };
    assert!(!rig.member.begin_again(rig.now, held, Nonce(2)), "they may be the only copies");
    assert!(rig.member.wiped(rig.now));
    assert_eq!((rig.member.node(), rig.member.nonce()), (Some(NodeId(9)), Nonce(1)));
    assert_eq!(rig.member.log().wiped(), None, "nothing is lost");
    rig.beats(Ok(active()));
    assert_eq!(rig.next(), MemberStep::Report(NodeId(9)));
}

#[test]
fn everything_is_reported_once_more_after_each_registration() {
    let mut rig = Rig::resting();
    // Of a namenode that has lost nothing, as far as the node has seen.
    rig.waits(HEARTBEAT);
    rig.beats(Err(CallFailure::Broken));
    assert_eq!(rig.joins(Ok(&welcome(7))), RegistrationOutcome::Rejoined);
    let registered_at = rig.now;
    let mut reports = Vec::new();
    while registered_at.until(rig.now) < Millis(240_000) {
        match rig.next() {
            MemberStep::Wait(at) => rig.now = at,
            MemberStep::Beat { asked, .. } => {
                assert_eq!(
                    rig.member.beaten(rig.now, asked, Ok(active())),
                    HeartbeatOutcome::Stays
                );
            }
            MemberStep::Report(_) => {
                reports.push(registered_at.until(rig.now));
                rig.member.reported(rig.now, true);
            }
            MemberStep::Repeat => rig.member.repeated(rig.now),
            step => panic!("{step:?}"),
        }
    }
    let [at_once, once_more, later] = reports[..] else { panic!("{reports:?}") };
    assert_eq!(at_once, Millis(0));
    assert!(once_more >= UNKNOWN_AFTER && once_more.0 <= UNKNOWN_AFTER.0 + 500, "{reports:?}");
    assert!(later.0 >= once_more.0 + REPORT.0, "{reports:?}");
}

#[test]
fn node_that_cannot_register_again_tries_once_in_each_round() {
    let mut rig = Rig::resting();
    rig.waits(HEARTBEAT);
    rig.beats(Err(CallFailure::Broken));
    for _ in 0..3 {
        assert_eq!(rig.joins(Err(CallFailure::Broken)), RegistrationOutcome::NotYet);
        rig.waits(HEARTBEAT);
    }
    let late = refused(Refusal::Unauthenticated { why: String::new() });
    assert_eq!(rig.joins(Err(late)), RegistrationOutcome::NotYet, "a token may be renewed");
    rig.waits(HEARTBEAT);
    assert_eq!(rig.joins(Ok(&welcome(7))), RegistrationOutcome::Rejoined);
    rig.reports(true);
}

#[test]
fn report_that_was_not_taken_is_sent_again_soon() {
    let mut rig = Rig::node();
    rig.beats(Ok(active()));
    rig.reports(false);
    rig.repeats();
    rig.waits(HEARTBEAT);
    rig.beats(Ok(active()));
    rig.repeats();
    rig.waits(HEARTBEAT);
    rig.beats(Ok(active()));
    rig.reports(true);
    rig.repeats();
}

#[test]
fn node_that_was_given_up_begins_again_as_another_process_and_reports_what_it_dropped() {
    for is_by_policy in [false, true] {
        let mut rig = Rig::resting();
        rig.waits(HEARTBEAT);
        let mut gone = Err(refused(Refusal::NodeGone { node: NodeId(7) }));
        if is_by_policy {
            let (reply, position) = active();
            gone = Ok((HeartbeatReply { policy: Policy::Gone, ..reply }, position));
        }
        assert_eq!(rig.beats(gone), HeartbeatOutcome::Gone { is_expected: false });
        assert!(!rig.begins_again());
        let joining = rig.registers();
        let wiped = Some(Wiped { node: NodeId(7), blocks: 2, bytes: 3 });
        assert_eq!((joining.nonce, joining.seen, joining.wiped), (Nonce(2), at(10), wiped));
        assert_eq!(joining.cluster, Some(ClusterId(1)));
        rig.member.registered(rig.now, joining.asked, Err(CallFailure::Busy));
        rig.waits(Millis(250));
        assert_eq!(rig.joins(Ok(&welcome(8))), RegistrationOutcome::Joined);
        assert_eq!(rig.member.node(), Some(NodeId(8)));
        assert_eq!(rig.member.log().wiped(), None, "it is reported once");
    }
}

#[test]
fn node_that_expected_its_end_waits_before_it_begins_again() {
    let mut rig = Rig::resting();
    rig.member.registration_mut().order(rig.now, true);
    rig.waits(HEARTBEAT);
    let gone = refused(Refusal::NodeGone { node: NodeId(7) });
    assert_eq!(rig.beats(Err(gone)), HeartbeatOutcome::Gone { is_expected: true });
    assert_eq!(rig.member.node(), Some(NodeId(7)), "its old copies are served");
    rig.waits(REJOIN);
    assert!(!rig.begins_again());
}

#[test]
fn process_that_is_known_by_another_id_drops_everything_and_is_that_node() {
    let mut rig = Rig::resting();
    rig.waits(HEARTBEAT);
    rig.beats(Err(CallFailure::Broken));
    assert_eq!(rig.joins(Ok(&welcome(8))), RegistrationOutcome::Another);
    assert_eq!(rig.member.node(), Some(NodeId(7)), "until everything is dropped");
    assert!(rig.begins_again());
    assert_eq!((rig.member.node(), rig.member.nonce()), (Some(NodeId(8)), Nonce(1)));
    rig.beats(Ok(active()));
    assert_eq!(rig.next(), MemberStep::Report(NodeId(8)));
}

#[test]
fn process_that_was_given_up_before_its_welcome_came_goes_on_as_another() {
    let mut rig = Rig::new();
    let gone = refused(Refusal::NodeGone { node: NodeId(7) });
    assert_eq!(rig.joins(Err(gone)), RegistrationOutcome::Gone { is_expected: false });
    rig.waits(Millis(250));
    assert!(!rig.begins_again());
    let joining = rig.registers();
    assert_eq!((joining.nonce, joining.wiped), (Nonce(2), None));
}

#[test]
fn start_ends_with_its_time_or_when_the_process_is_not_let_in() {
    for (failure, now) in [
        (refused(Refusal::Unauthenticated { why: String::new() }), Instant(0)),
        (refused(Refusal::BadRequest { why: String::new() }), Instant(0)),
        (CallFailure::Broken, START),
        (refused(Refusal::NodeGone { node: NodeId(7) }), START),
    ] {
        let mut rig = Rig::new();
        assert_eq!(rig.joins(Err(CallFailure::Busy)), RegistrationOutcome::NotYet);
        rig.waits(Millis(250));
        rig.now = rig.now.max(now);
        assert_eq!(rig.joins(Err(failure.clone())), RegistrationOutcome::Never);
        assert_eq!(rig.next(), MemberStep::Stop(failure));
    }
}

#[test]
fn node_stops_when_the_namenode_will_never_take_it() {
    let mut rig = Rig::resting();
    rig.waits(HEARTBEAT);
    rig.beats(Err(CallFailure::Broken));
    let wrong = Refusal::WrongCluster { here: ClusterId(2), asked: ClusterId(1) };
    assert_eq!(rig.joins(Err(refused(wrong.clone()))), RegistrationOutcome::Never);
    assert_eq!(rig.next(), MemberStep::Stop(refused(wrong)));
}

#[test]
fn log_that_has_lost_its_end_is_noticed() {
    let mut rig = Rig::resting();
    rig.waits(HEARTBEAT);
    rig.beats(Err(CallFailure::Broken));
    let joining = rig.registers();
    assert_eq!(joining.seen, at(10));
    let joined = Joined { position: at(4), is_continuation: false, ..welcome(7) };
    let registration = rig.member.registered(rig.now, joining.asked, Ok(&joined));
    assert_eq!(registration.lost, Some(LostEnd { seen: at(10), position: at(4) }));
}
