//! What is remembered of notices, and what is sent again.

use super::*;

fn notice(source: &str, deadline: Instant, reason: &str) -> Notice {
    Notice { source: source.to_owned(), deadline, reason: reason.to_owned() }
}

const DEADLINE: Instant = Instant(60_000_000);

#[test]
fn refused_notice_of_one_source_does_not_end_that_of_another() {
    let mut notices = Notices::default();
    let (posted, late) = (notice("webhook", at(90), "posted"), notice("file", at(900), "late"));
    assert!(notices.show(&posted) && notices.show(&late));
    let report = notices.report_of(&late);
    notices.answered(at(1), &report, NoticeReply::Refused);
    assert!(notices.must_fence(at(2)), "the posted one was not refused");
    let next = notices.next_report(at(2)).expect("it is given");
    assert_eq!((next.deadline, next.known_at), (Some(at(90)), None));
}

fn at(seconds: u64) -> Instant {
    Instant(seconds * 1_000_000)
}

fn stands(policy: Policy) -> NoticeReply {
    let deadline = (policy != Policy::Active).then_some(DEADLINE);
    NoticeReply::Stands { policy, deadline, is_at_risk: false }
}

/// Returns what is remembered of a notice that the namenode has.
fn received() -> Notices {
    let mut notices = Notices::default();
    assert!(notices.show(&notice("aws", DEADLINE, "spot")));
    let report = notices.next_report(at(1)).unwrap();
    assert_eq!((report.deadline, report.known_at), (Some(DEADLINE), None));
    notices.answered(at(1), &report, stands(Policy::Draining));
    assert_eq!(notices.next_report(at(5)), None);
    assert!(!notices.show(&notice("aws", DEADLINE + Millis(20), "spot")), "it is the same");
    notices
}

#[test]
fn unanswered_notice_is_sent_again_and_fences_meanwhile() {
    let mut notices = Notices::default();
    notices.show(&notice("webhook", DEADLINE, "spot"));
    let report = notices.next_report(at(1)).unwrap();
    notices.answered(at(1), &report, NoticeReply::Unanswered);
    notices.stands(at(1), Policy::Active, None);
    assert!(notices.must_fence(at(1)));
    assert_eq!(notices.next_report(Instant(1_999_999)), None, "not twice within a second");
    let again = NoticeReport { number: report.number + 1, ..report };
    assert_eq!(notices.next_report(at(2)), Some(again), "a statement of its own");
    assert_eq!(notices.next_report(at(60)), None, "its deadline has passed");
    assert!(!notices.must_fence(at(60)));
}

#[test]
fn deadline_is_another_notice_only_beyond_half_a_second() {
    let half = EARLIER.0 * 1000;
    let (earlier, later) = (Instant(DEADLINE.0 - half), Instant(DEADLINE.0 + half));
    let mut notices = received();
    assert!(!notices.show(&notice("aws", earlier, "spot")));
    assert!(notices.show(&notice("aws", Instant(earlier.0 - 1), "spot")));
    // A later one counts after the namenode refused the first.
    let mut refused = Notices::default();
    refused.show(&notice("aws", DEADLINE, "spot"));
    let report = refused.next_report(at(1)).unwrap();
    refused.answered(at(1), &report, NoticeReply::Refused);
    assert!(!refused.show(&notice("aws", later, "spot")));
    assert!(refused.show(&notice("aws", Instant(later.0 + 1), "spot")));
}

#[test]
fn notice_in_flight_is_repeated_after_a_second_or_a_registration() {
    let mut notices = Notices::default();
    notices.show(&notice("webhook", DEADLINE, "spot"));
    notices.sent(at(1));
    notices.stands(at(1), Policy::Active, None);
    assert_eq!(notices.next_report(Instant(1_999_999)), None, "a heartbeat overtook the call");
    assert!(notices.must_fence(at(1)));
    notices.sent(Instant(1_900_000));
    assert!(notices.next_report(at(2)).is_some(), "the call may be lost, often as it is sent");
    notices.registered();
    assert!(notices.next_report(at(3)).is_some(), "another namenode did not receive it");
}

#[test]
fn notice_that_the_namenode_forgot_is_repeated_with_the_moment_it_was_known() {
    let mut notices = received();
    notices.stands(at(9), Policy::Drained, Some(DEADLINE));
    notices.registered();
    notices.stands(at(10), Policy::Active, None);
    assert!(notices.must_fence(at(10)));
    let report = notices.next_report(at(10)).unwrap();
    assert_eq!((report.known_at, report.reason.as_str()), (Some(at(9)), "spot"));
    notices.answered(at(10), &report, stands(Policy::Draining));
    assert_eq!(notices.next_report(at(20)), None);
}

#[test]
fn notice_of_an_operator_is_repeated_too() {
    let mut notices = Notices::default();
    notices.stands(at(3), Policy::Draining, Some(DEADLINE));
    notices.stands(at(4), Policy::Active, None);
    let report = notices.next_report(at(4)).unwrap();
    assert_eq!((report.deadline, report.known_at), (Some(DEADLINE), Some(at(3))));
}

#[test]
fn notice_that_was_taken_back_is_not_repeated_but_an_earlier_one_is_given() {
    let mut notices = received();
    notices.unfenced();
    notices.stands(at(10), Policy::Active, None);
    assert!(!notices.must_fence(at(10)), "the order lifted the fence");
    let report = notices.next_report(at(10)).unwrap();
    notices.answered(at(10), &report, stands(Policy::Active));
    assert!(!notices.show(&notice("aws", DEADLINE, "spot")));
    assert_eq!(notices.next_report(at(30)), None);
    assert!(!notices.must_fence(at(30)));
    assert!(notices.show(&notice("aws", at(40), "sooner")));
    assert_eq!(notices.next_report(at(30)).unwrap().known_at, None);
}

#[test]
fn source_that_shows_nothing_leaves_what_another_shows() {
    let mut notices = received();
    notices.show(&notice("file", at(70), "mine"));
    let report = notices.next_report(at(6)).unwrap();
    notices.answered(at(6), &report, stands(Policy::Draining));
    assert!(notices.left_without("file").is_some(), "the cloud still shows it");
    notices.hide("file", at(6));
    assert_eq!(notices.left_without("aws"), None);
    notices.hide("aws", at(6));
    notices.stands(at(7), Policy::Active, None);
    assert_eq!(notices.next_report(at(8)), None);
}

#[test]
fn notice_that_was_not_received_keeps_its_deadline_when_another_source_withdraws_a_later_one() {
    let mut notices = received();
    notices.stands(at(6), Policy::Draining, Some(DEADLINE));
    assert!(notices.show(&notice("webhook", at(30), "posted")));
    notices.withdraw_notice("aws");
    let left = notices.left_without("aws").expect("the other one was not withdrawn");
    assert_eq!((left.source.as_str(), left.deadline), ("webhook", at(30)));
    // What it has received has the deadline that it names.
    let named = at(30) + Millis(400);
    notices.stands(at(7), Policy::Draining, Some(named));
    assert_eq!(notices.left_without("aws").expect("as before").deadline, named);
}

#[test]
fn notice_is_sent_again_after_a_registration_that_finds_the_node_draining_for_another_one() {
    let mut notices = received();
    assert!(notices.show(&notice("webhook", at(30), "posted")));
    let report = notices.report_of(&notice("webhook", at(30), "posted"));
    notices.sent(at(6));
    notices.answered(at(6), &report, NoticeReply::Unanswered);
    notices.registered();
    notices.stands(at(7), Policy::Draining, None);
    let again = notices.next_report(at(7)).expect("the namenode has the later one alone");
    assert_eq!((again.deadline, again.known_at), (Some(at(30)), None));
}

/// Returns what is remembered of an operator's notice that was overtaken by a source's.
fn overtaken(sooner: Instant) -> Notices {
    let mut notices = Notices::default();
    notices.stands(at(1), Policy::Draining, Some(DEADLINE));
    notices.show(&notice("aws", sooner, "spot"));
    let report = notices.next_report(at(2)).unwrap();
    let reply =
        NoticeReply::Stands { policy: Policy::Draining, deadline: Some(sooner), is_at_risk: false };
    notices.answered(at(2), &report, reply);
    assert_eq!(notices.next_report(at(3)), None);
    notices
}

#[test]
fn earlier_deadline_that_was_lost_is_sent_while_the_node_drains_for_a_later_one() {
    let mut notices = overtaken(at(40));
    notices.registered();
    // Late by as much as an answer takes.
    notices.stands(at(5), Policy::Draining, Some(at(40) + Millis(400)));
    assert_eq!(notices.next_report(at(5)), None);
    notices.stands(at(6), Policy::Draining, Some(DEADLINE));
    let report = notices.next_report(at(6)).unwrap();
    let deadline = at(40) + Millis(400);
    assert_eq!((report.deadline, report.reason.as_str()), (Some(deadline), "spot"));
    assert_eq!(report.known_at, Some(at(5)));
    notices.answered(at(6), &report, NoticeReply::Unanswered);
    assert_eq!(
        notices.next_report(at(7)),
        Some(report.clone()),
        "it is repeated until it is answered"
    );
    let reply =
        NoticeReply::Stands { policy: Policy::Draining, deadline: Some(at(40)), is_at_risk: false };
    notices.answered(at(7), &report, reply);
    assert_eq!(notices.next_report(at(9)), None);
    // So late a deadline may be one that the namenode has put off after an absence.
    notices.stands(at(30), Policy::Draining, Some(at(41)));
    assert_eq!(notices.next_report(at(30)), None);
}

#[test]
fn later_deadline_stays_after_the_earlier_notice_was_taken_back() {
    let mut notices = overtaken(at(40));
    notices.stands(at(6), Policy::Draining, Some(DEADLINE));
    let report = notices.next_report(at(6)).unwrap();
    notices.answered(at(6), &report, stands(Policy::Draining));
    assert_eq!(notices.next_report(at(8)), None, "the namenode has the last word");
    notices.stands(at(8), Policy::Active, None);
    assert_eq!(notices.next_report(at(8)).unwrap().deadline, Some(DEADLINE), "of this one, too");
}

#[test]
fn later_deadline_holds_when_the_earlier_one_has_passed() {
    let mut notices = overtaken(at(40));
    notices.stands(at(41), Policy::Draining, Some(DEADLINE));
    assert_eq!(notices.next_report(at(41)), None);
    notices.stands(at(42), Policy::Active, None);
    assert_eq!(notices.next_report(at(42)).unwrap().deadline, Some(DEADLINE));
}

#[test]
fn new_notice_after_a_cancelled_one_is_remembered() {
    let mut notices = received();
    notices.stands(at(10), Policy::Active, None);
    let report = notices.next_report(at(10)).unwrap();
    notices.answered(at(10), &report, stands(Policy::Active));
    assert!(!notices.show(&notice("aws", DEADLINE + Millis(400), "spot")), "it is the same");
    assert!(notices.show(&notice("aws", at(90), "again")));
    assert!(notices.must_fence(at(11)));
    let report = notices.next_report(at(11)).unwrap();
    assert_eq!((report.deadline, report.known_at), (Some(at(90)), None));
    assert!(!notices.show(&notice("aws", at(99), "and again")), "the earlier one holds");
}

#[test]
fn notice_of_a_source_that_shows_nothing_more_is_no_notice_of_an_operator() {
    let mut notices = Notices::default();
    let (first, second) = (at(20), at(40));
    assert!(notices.show(&notice("file", first, "spot")));
    assert!(notices.show(&notice("webhook", second, "spot")));
    notices.stands(at(0), Policy::Draining, Some(first));
    let left = notices.left_without("file").expect("the other one still shows its notice");
    assert_eq!((left.source.as_str(), left.deadline), ("webhook", second));
    notices.hide("file", at(0));
    notices.stands(at(0), Policy::Draining, Some(first));
    assert_eq!(notices.left_without("webhook"), None, "no other source needs it to leave");
    // Another incarnation is not sent what was taken back.
    let mut next = notices.clone();
    next.begin_again(at(0));
    assert_eq!(next.next_report(at(0)).unwrap().deadline, Some(second));
    notices.hide("webhook", at(0));
    notices.stands(at(0), Policy::Active, None);
    notices.stands(at(0), Policy::Draining, Some(first));
    assert!(notices.left_without("webhook").is_some(), "given by an operator, after all was over");
}

#[test]
fn deadline_by_the_clock_of_another_namenode_is_the_same_notice() {
    let mut notices = Notices::default();
    assert!(notices.show(&notice("file", at(40), "spot")));
    notices.stands(at(0), Policy::Draining, Some(at(40)));
    notices.registered();
    notices.stands(at(0), Policy::Draining, Some(at(33)));
    notices.stands(at(0), Policy::Draining, Some(at(33) + Millis(100)));
    assert_eq!(notices.left_without("file"), None);
}

#[test]
fn source_that_shows_nothing_leaves_what_an_operator_gave() {
    let mut notices = received();
    assert_eq!(notices.left_without("aws"), None);
    // What is estimated from a slow answer is no other notice.
    notices.stands(at(6), Policy::Draining, Some(DEADLINE + Millis(3000)));
    notices.stands(at(7), Policy::Draining, Some(DEADLINE));
    assert_eq!(notices.left_without("aws"), None);
    notices.stands(at(8), Policy::Draining, Some(at(30)));
    assert!(notices.left_without("aws").is_some(), "an operator needs it sooner");
    notices.hide("aws", at(8));
    notices.stands(at(9), Policy::Active, None);
    assert_eq!(notices.next_report(at(9)).unwrap().deadline, Some(at(30)));
    // An operator's notice that a source's came after is kept in mind, too.
    assert!(overtaken(at(40)).left_without("aws").is_some());
}

#[test]
fn cancelled_notice_of_an_operator_is_not_left_when_a_source_withdraws_a_later_one() {
    for is_cancelled in [false, true] {
        let mut notices = Notices::default();
        notices.stands(at(1), Policy::Draining, Some(DEADLINE));
        if is_cancelled {
            notices.unfenced();
        }
        // The source shows one before a repetition was answered.
        assert!(notices.show(&notice("file", at(20), "spot")));
        notices.stands(at(2), Policy::Draining, Some(at(20)));
        notices.withdraw_notice("file");
        assert_eq!(notices.left_without("file").is_none(), is_cancelled);
    }
}

#[test]
fn cancelled_notice_of_a_source_is_not_left_when_another_one_withdraws_an_earlier_one() {
    for is_answered in [false, true] {
        let mut notices = received();
        notices.unfenced();
        notices.stands(at(10), Policy::Active, None);
        if is_answered {
            let report = notices.next_report(at(10)).unwrap();
            notices.answered(at(10), &report, stands(Policy::Active));
        }
        assert!(notices.show(&notice("file", at(30), "rack")));
        notices.stands(at(11), Policy::Draining, Some(at(30)));
        notices.withdraw_notice("file");
        assert_eq!(notices.left_without("file"), None, "an operator has cancelled the other one");
    }
}

#[test]
fn cancelled_notice_of_a_process_that_ends_is_given_again() {
    let mut notices = Notices::default();
    assert!(notices.show(&notice(SIGTERM, DEADLINE, "it ends")));
    notices.stands(at(1), Policy::Draining, Some(DEADLINE));
    assert_eq!(notices.next_report(at(1)), None);
    notices.unfenced();
    assert!(notices.must_fence(at(2)), "it takes no writes");
    let again = notices.next_report(at(2)).expect("its process ends all the same");
    assert_eq!((again.deadline, again.known_at), (Some(DEADLINE), None), "another statement");
    // Without an order, the answer to a repetition shows it.
    notices.stands(at(3), Policy::Draining, Some(DEADLINE));
    notices.stands(at(4), Policy::Active, None);
    let report = notices.next_report(at(4)).unwrap();
    assert!(report.known_at.is_some());
    notices.answered(at(4), &report, stands(Policy::Active));
    let again = notices.next_report(at(6)).unwrap();
    assert_eq!((again.deadline, again.known_at), (Some(DEADLINE), None));
}

#[test]
fn recommendation_is_repeated_seldom_and_at_once_after_a_registration() {
    let mut notices = Notices::default();
    notices.recommend("aws", "rebalance", Some(at(1)));
    assert_eq!(notices.next_report(at(5)), None);
    notices.registered();
    let report = notices.next_report(at(5)).unwrap();
    assert_eq!((report.deadline, report.known_at), (None, Some(at(1))));
    let at_risk = NoticeReply::Stands { policy: Policy::Active, deadline: None, is_at_risk: true };
    notices.answered(at(5), &report, at_risk);
    let report = notices.next_report(at(15)).unwrap();
    assert_eq!(report.known_at, Some(at(5)));
    notices.answered(at(15), &report, stands(Policy::Active));
    notices.registered();
    assert_eq!(notices.next_report(at(99)), None, "an operator took it back");
}

#[test]
fn recommendation_that_its_source_has_withdrawn_is_not_repeated() {
    let mut notices = Notices::default();
    notices.recommend("aws", "rebalance", Some(at(1)));
    notices.recommend("gcp", "maintenance", Some(at(2)));
    notices.registered();
    notices.withdraw("aws");
    assert_eq!(notices.next_report(at(5)).unwrap().known_at, Some(at(2)));
    notices.withdraw("gcp");
    assert_eq!(notices.next_report(at(5)), None);
}

#[test]
fn refused_notice_is_not_sent_for_ever() {
    let mut notices = Notices::default();
    notices.show(&notice("webhook", DEADLINE, "spot"));
    let report = notices.next_report(at(1)).unwrap();
    notices.answered(at(1), &report, NoticeReply::Refused);
    assert_eq!(notices.next_report(at(9)), None);
    assert!(!notices.must_fence(at(9)));
}
