//! The holder's decisions one by one. `world` has runners, machines and a backend that fail.

use super::*;

mod world;

const AGE: Millis = Millis(30_000);

const fn at(seconds: u64) -> Instant {
    Instant(1_000_000 * (100 + seconds))
}

fn record(owner: &str) -> LockRecord {
    let (owner, machine) = (owner.to_owned(), "m".to_owned());
    let (renewals, is_released) = (0, false);
    LockRecord { owner, renewals, is_released, machine, pid: 1, start_time: 2, age: None }
}

fn holder() -> LockHolder {
    LockHolder::new(at(0), 3, record("a"), AGE)
}

#[test]
fn renewal_protects_for_two_thirds_of_the_age() {
    let mut holder = holder();
    let is_protected = |holder: &LockHolder, second| {
        let protection = holder.protection(at(second));
        assert_ne!(protection, LockProtection::Lost);
        protection == LockProtection::Protected
    };
    assert!(is_protected(&holder, 19) && !is_protected(&holder, 20));
    assert_eq!(holder.renew(at(10)).renewals, 1);
    assert_eq!(holder.renewed(at(11), true), Millis(10_000));
    assert!(is_protected(&holder, 29) && !is_protected(&holder, 30));
    // Another runner may have seen the last one for the whole age.
    holder.renew(at(29));
    holder.renewed(at(40), true);
    assert!(!is_protected(&holder, 30));
    holder.renew(at(41));
    holder.renewed(at(42), true);
    assert!(!is_protected(&holder, 43), "no later one protects");
}

#[test]
fn renewal_that_failed_protects_nothing_and_is_tried_again_soon() {
    let mut slow = holder();
    slow.renew(at(10));
    assert_eq!(slow.renewed(at(11), false), Millis(1000));
    assert_eq!(slow.protection(at(20)), LockProtection::Unclear);
    assert_eq!(slow.renew(at(12)).renewals, 2, "others see a change in any case");
    let mut fast = LockHolder::new(at(0), 1, record("a"), Millis(1500));
    fast.renew(at(1));
    assert_eq!(fast.renewed(at(1), false), Millis(500));
}

#[test]
fn late_renewal_is_given_up_if_it_waits_between_attempts() {
    let mut holder = holder();
    assert!(!holder.gives_up(true), "none is under way");
    holder.renew(at(10));
    assert!(!holder.gives_up(true), "it may end soon");
    assert!(!holder.gives_up(false), "it ends as soon as the backend is there");
    assert!(holder.gives_up(true));
    holder.renewed(at(30), false);
    holder.renew(at(31));
    assert!(!holder.gives_up(true), "the next one has not been late");
}

#[test]
fn lock_is_taken_by_a_higher_number_or_another_owner() {
    let (holder, own, other) = (holder(), record("a"), record("b"));
    assert!(holder.is_taken(4, None) && holder.is_taken(4, Some(&other)));
    assert!(holder.is_taken(3, Some(&other)) && !holder.is_taken(3, Some(&own)));
    // All that was stored of the task was removed, or the record cannot be read.
    assert!(!holder.is_taken(0, None) && !holder.is_taken(3, None));
    assert!(!holder.is_newest(0, None) && !holder.is_newest(3, None));
    assert!(holder.is_newest(3, Some(&own)));
    assert!(!holder.is_newest(3, Some(&other)) && !holder.is_newest(4, Some(&own)));
}

#[test]
fn claim_holds_only_if_a_look_has_shown_no_later_lock() {
    let holder = holder();
    assert_eq!(holder.record().age, Some(AGE), "others have to wait for it");
    assert_eq!(holder.claim(Some(false)), LockClaim::Held);
    assert_eq!(holder.claim(Some(true)), LockClaim::Late);
    let released = LockRecord { is_released: true, ..holder.record().clone() };
    assert_eq!(holder.claim(None), LockClaim::Unseen(released));
}

#[test]
fn lost_lock_is_not_released_and_protects_nothing() {
    let mut holder = holder();
    assert!(holder.release().is_some_and(|it| it.is_released && it.owner == "a"));
    holder.lose();
    assert_eq!(holder.protection(at(1)), LockProtection::Lost);
    assert_eq!(holder.release(), None);
}
