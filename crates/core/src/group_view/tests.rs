//! Tests of the view of a group.

use sanderling_protocol::message::{Member, MemberRole};

use super::*;

const NOW: Instant = Instant(0);

fn view(addresses: &str) -> GroupView {
    GroupView::new(addresses.split(',').map(str::to_owned), NOW)
}

fn list(term: u64, here: u64, roles: &[(u64, &str, MemberRole)]) -> Members {
    let member = |(id, address, role): &(u64, &str, MemberRole)| {
        let (id, role) = (MemberId(*id), *role);
        Member { id, address: (*address).to_owned(), http_address: String::new(), role }
    };
    Members { term, here: MemberId(here), members: roles.iter().map(member).collect() }
}

fn three(term: u64, leader: usize) -> Members {
    let role = |at| if at == leader { MemberRole::Leader } else { MemberRole::Voter };
    list(term, 1, &[(1, "a:1", role(1)), (2, "b:2", role(2)), (3, "c:3", role(3))])
}

fn not_leader(leader: Option<&str>) -> MemberFailure {
    MemberFailure::NotLeader { leader: leader.map(str::to_owned) }
}

/// Returns the attempts of a call without a deadline whose first one went to none of the members.
fn attempts() -> MemberAttempts {
    MemberAttempts::new("", Repeats::Always, Instant(u64::MAX))
}

/// Returns the addresses that a call tries until its first pause.
fn tried(view: &GroupView, now: Instant) -> Vec<String> {
    let mut attempts = attempts();
    let mut tried = Vec::new();
    while let NextMember::Try { address, .. } = attempts.next(view, now, 0) {
        tried.push(address);
    }
    tried
}

#[test]
fn members_are_tried_in_their_order_each_once_and_the_leader_first() {
    let mut view = view("a:1,b:2,a:1,c:3");
    assert_eq!(view.addresses().collect::<Vec<_>>(), ["a:1", "b:2", "c:3"], "none twice");
    assert_eq!(tried(&view, NOW), ["a:1", "b:2", "c:3"]);
    view.answered("b:2");
    assert_eq!(
        (view.target(NOW), &tried(&view, NOW)[..]),
        ("b:2", &["b:2", "a:1", "c:3"].map(String::from)[..])
    );
    let mut attempts = attempts();
    let all: Vec<_> = (0..4).map(|_| attempts.next(&view, NOW, 0)).collect();
    let within = |next: &NextMember| match next {
        NextMember::Try { connect_within, .. } => Some(*connect_within),
        NextMember::Wait { .. } | NextMember::TooLate => None,
    };
    let soon = Some(CONNECT_TIMEOUT);
    let found: Vec<_> = all.iter().map(within).collect();
    assert_eq!(found, [soon, soon, soon, None], "the last one of them may be gone, too");
}

#[test]
fn members_that_are_slow_to_connect_have_twice_the_time_after_each_pause() {
    let view = view("a:1");
    let mut attempts = attempts();
    let mut times = Vec::new();
    while times.len() < 8 {
        if let NextMember::Try { connect_within, .. } = attempts.next(&view, NOW, 0) {
            times.push(connect_within.0);
        }
    }
    assert_eq!(times, [1000, 2000, 4000, 8000, 16_000, 32_000, 32_000, 32_000]);
}

#[test]
fn leader_that_is_named_is_next_and_is_learned() {
    let mut view = view("a:1,b:2");
    let mut attempts = attempts();
    let first = attempts.next(&view, NOW, 0);
    assert!(matches!(first, NextMember::Try { address, .. } if address == "a:1"));
    view.failed(NOW, "a:1", not_leader(Some("d:4")));
    let next = attempts.next(&view, NOW, 0);
    assert!(matches!(next, NextMember::Try { address, .. } if address == "d:4"));
    // Two members that name each other do not hold a call up: each is tried once.
    view.failed(NOW, "d:4", not_leader(Some("a:1")));
    let next = attempts.next(&view, NOW, 0);
    assert!(matches!(next, NextMember::Try { address, .. } if address == "b:2"));
    assert!(matches!(attempts.next(&view, NOW, 0), NextMember::Wait { .. }));
}

#[test]
fn dead_leader_is_not_returned_to_because_another_member_still_names_it() {
    let mut view = view("a:1,b:2");
    view.answered("a:1");
    view.failed(NOW, "a:1", MemberFailure::Unreachable);
    assert_eq!(view.target(NOW), "b:2");
    view.failed(NOW, "b:2", not_leader(Some("a:1")));
    assert_eq!(tried(&view, NOW), ["b:2", "a:1"], "it is still tried last");
    let later = NOW + FAILED_FOR;
    view.failed(later, "b:2", not_leader(Some("a:1")));
    assert_eq!(view.target(later), "a:1");
}

#[test]
fn pauses_grow_to_their_bound_and_differ() {
    let view = view("a:1");
    let pauses = |draw: u64| {
        let mut attempts = attempts();
        let mut pauses = Vec::new();
        while pauses.len() < 8 {
            if let NextMember::Wait { pause } = attempts.next(&view, NOW, draw) {
                pauses.push(pause.0);
            }
        }
        pauses
    };
    assert_eq!(pauses(0), [5, 10, 20, 40, 80, 100, 100, 100]);
    let spread: Vec<u64> = (0..1000).map(|draw| pauses(draw)[7]).collect();
    assert!(spread.iter().all(|pause| (100..=200).contains(pause)));
    assert!(spread.iter().min() < Some(&110) && spread.iter().max() > Some(&190));
}

#[test]
fn group_is_learned_from_one_address_and_outlives_it() {
    let mut view = view("a:1");
    assert!(!view.has_several(NOW));
    view.learned(NOW, "a:1", &three(4, 1));
    assert_eq!((view.target(NOW), view.has_several(NOW)), ("a:1", true));
    view.failed(NOW, "a:1", MemberFailure::Unreachable);
    assert_eq!(tried(&view, NOW), ["b:2", "c:3", "a:1"]);
    // The configured address stays when the group has left it; reported ones go.
    let (leader, voter) = (MemberRole::Leader, MemberRole::Voter);
    view.learned(NOW, "b:2", &list(5, 2, &[(2, "b:2", leader), (7, "d:4", voter)]));
    assert_eq!(view.addresses().collect::<Vec<_>>(), ["a:1", "b:2", "d:4"]);
    assert_eq!(view.target(NOW), "b:2");
}

#[test]
fn list_of_an_earlier_term_changes_nothing_until_the_leader_of_the_later_one_fails() {
    let mut view = view("a:1");
    view.learned(NOW, "a:1", &three(u64::MAX, 3));
    assert_eq!(view.target(NOW), "c:3");
    view.learned(NOW, "b:2", &three(6, 2));
    assert_eq!(view.target(NOW), "c:3", "an earlier term");
    // What a member claims about its term does not outlast the leader that it named.
    view.failed(NOW, "c:3", not_leader(None));
    view.learned(NOW, "b:2", &three(6, 2));
    assert_eq!(view.target(NOW), "b:2");
}

#[test]
fn member_that_was_reached_by_another_address_is_not_known_twice() {
    let mut view = view("alias:1");
    view.answered("alias:1");
    view.learned(NOW, "alias:1", &three(2, 1));
    assert_eq!(view.addresses().collect::<Vec<_>>(), ["alias:1", "b:2", "c:3"]);
    assert_eq!(view.target(NOW), "alias:1", "the leader, by the address that works here");
    // One that is alone teaches no address: the operator's is the one that works.
    let mut alone = self::view("alias:1");
    alone.learned(NOW, "alias:1", &list(0, 1, &[(1, "127.0.0.1:1", MemberRole::Leader)]));
    assert_eq!(alone.addresses().collect::<Vec<_>>(), ["alias:1"]);
}

#[test]
fn member_of_another_cluster_is_left_out_and_a_reported_one_is_forgotten() {
    let mut view = view("a:1,b:2");
    view.failed(NOW, "a:1", not_leader(Some("evil:9")));
    assert_eq!(view.target(NOW), "evil:9");
    view.failed(NOW, "evil:9", MemberFailure::Foreign);
    view.failed(NOW, "b:2", MemberFailure::Foreign);
    assert_eq!(view.addresses().collect::<Vec<_>>(), ["a:1", "b:2"]);
    assert_eq!(tried(&view, NOW), ["a:1"]);
    assert!(!view.has_several(NOW));
}

#[test]
fn what_a_lying_member_reports_is_bounded_and_never_drives_configured_addresses_out() {
    let mut view = view("a:1,b:2");
    for number in 0..1000 {
        view.failed(NOW, "a:1", not_leader(Some(&format!("x{number}:1"))));
    }
    assert_eq!(view.addresses().count(), KNOWN_MAX);
    assert_eq!(view.addresses().take(2).collect::<Vec<_>>(), ["a:1", "b:2"]);
    for text in ["", "x", "x:", ":1", "x:0", "x y:1", "x:1,y:2", "x/y:1", &"x".repeat(2000)] {
        let before = view.addresses().last().map(str::to_owned);
        view.failed(NOW, "a:1", not_leader(Some(text)));
        assert_eq!(view.addresses().last().map(str::to_owned), before, "{text:?}");
    }
    let many = (0..100_u64).map(|at| (at, "y:1", MemberRole::Voter));
    view.learned(NOW, "a:1", &list(9, 0, &many.collect::<Vec<_>>()));
    assert!(view.addresses().all(|it| it != "y:1"), "no group is so large");
}

#[test]
fn members_are_requested_one_request_at_a_time_and_from_others_than_the_silent_one() {
    let mut view = view("a:1,b:2,c:3");
    assert_eq!(view.refresh(NOW, None), None, "a process that ends at once needs no list");
    let now = NOW + FIRST_AFTER;
    assert_eq!(view.refresh(now, None).as_deref(), Some("a:1"));
    assert_eq!(view.refresh(now, None), None, "one is under way");
    view.refreshed(now, 7);
    assert!(view.refresh_at() > now + Millis(20_000));
    let mut asked = Vec::new();
    let mut now = now;
    for _ in 0..4 {
        view.refresh_soon(now);
        now = now + REFRESH_SOON;
        asked.extend(view.refresh(now, Some("a:1")));
        view.refreshed(now, 0);
    }
    assert!(asked.iter().all(|it| it != "a:1"), "{asked:?}");
    assert!(asked.contains(&"b:2".to_owned()) && asked.contains(&"c:3".to_owned()));
    let mut alone = self::view("a:1");
    assert_eq!(alone.refresh(now, Some("a:1")), None);
}

#[test]
fn member_of_an_older_generation_is_left_out_as_one_of_another_cluster() {
    let mut view = view("a:1,b:2");
    let first = GroupGeneration::first(1_800_000_000);
    view.learned(NOW, "a:1", &three(first.first_term(), 0));
    let anew = list(first.next(5).first_term(), 1, &[(1, "b:2", MemberRole::Leader)]);
    view.learned(NOW, "b:2", &anew);
    view.answered("b:2");
    // The older members have a majority again, and elect.
    view.answered("a:1");
    view.learned(NOW, "a:1", &three(first.first_term() + 1000, 1));
    assert_eq!(view.target(NOW), "b:2");
    let mut attempts = attempts();
    for _ in 0..8 {
        if let NextMember::Try { address, .. } = attempts.next(&view, NOW, 0) {
            assert_ne!(address, "a:1");
        }
    }
    // One without a generation is a namenode that was restored: an operator put it there.
    view.learned(NOW, "b:2", &list(0, 1, &[(1, "b:2", MemberRole::Leader)]));
    assert_eq!(view.target(NOW), "b:2");
}
