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

/// Begins a write, and returns its number, whether that is new, and the count of renewals.
fn begun(holder: &mut LockHolder, seconds: u64) -> (u64, bool, u64) {
    let write = holder.write(at(seconds)).expect("something to write");
    (write.number, write.is_new, write.record.renewals)
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
    assert_eq!(begun(&mut holder, 10), (3, false, 1));
    assert_eq!(holder.written(at(11), LockWritten::Stored), Millis(10_000));
    assert!(is_protected(&holder, 29) && !is_protected(&holder, 30));
    // Another runner may have seen the last one for the whole age.
    begun(&mut holder, 29);
    assert_eq!(holder.written(at(40), LockWritten::Stored), Millis(0));
    assert!(!is_protected(&holder, 30));
}

#[test]
fn command_runs_for_nine_tenths_of_the_age_after_a_renewal() {
    let mut holder = holder();
    assert_eq!(holder.runs_until(), at(27));
    begun(&mut holder, 10);
    assert_eq!(holder.runs_until(), at(27), "it is not confirmed yet");
    holder.written(at(12), LockWritten::Stored);
    assert_eq!(holder.runs_until(), at(37), "others may have seen it since it began");
    begun(&mut holder, 20);
    holder.written(at(21), LockWritten::Failed);
    begun(&mut holder, 22);
    holder.written(at(40), LockWritten::Stored);
    assert_eq!(holder.runs_until(), at(37), "it ended late");
}

#[test]
fn lock_that_is_not_protected_is_taken_anew_under_the_next_number() {
    let (mut holder, own) = (holder(), record("a"));
    assert_eq!(begun(&mut holder, 50), (4, true, 1));
    assert_eq!(holder.numbers(), 3..=4);
    // It is there, and whether the backend has taken it, only its answer shows.
    assert_eq!(holder.looked(at(50), 4, Some(&own)), LockLook::Held);
    assert_eq!(holder.written(at(51), LockWritten::Stored), Millis(0));
    assert_eq!(holder.write(at(51)), None, "a look comes first");
    assert_eq!(holder.looked(at(51), 4, None), LockLook::Held, "it could not be read");
    assert_eq!((holder.number(), holder.runs_until()), (3, at(27)));
    assert_eq!(holder.looked(at(52), 4, Some(&own)), LockLook::Retaken);
    assert_eq!((holder.number(), holder.runs_until()), (4, at(77)));
    assert_eq!(holder.protection(at(53)), LockProtection::Protected);
    assert_eq!(holder.pause(at(53)), Millis(10_000));
    assert_eq!(begun(&mut holder, 62), (4, false, 2));
}

#[test]
fn next_number_that_another_runner_has_written_is_its_lock() {
    let (mut holder, own, other) = (holder(), record("a"), record("b"));
    begun(&mut holder, 50);
    assert!(!holder.is_taken(4, Some(&own)) && !holder.is_taken(4, None));
    assert!(holder.is_newest(4, Some(&own)) && !holder.is_newest(4, Some(&other)));
    assert!(holder.is_taken(5, Some(&own)), "that number is none of its own");
    assert_eq!(holder.written(at(51), LockWritten::Failed), Millis(1000));
    assert_eq!(holder.looked(at(52), 4, Some(&other)), LockLook::Taken);
}

#[test]
fn next_number_whose_answer_was_lost_is_kept_and_lets_no_command_run() {
    let (mut holder, own) = (holder(), record("a"));
    begun(&mut holder, 50);
    holder.written(at(60), LockWritten::GivenUp);
    assert_eq!(holder.looked(at(60), 3, Some(&own)), LockLook::Held);
    assert_eq!(begun(&mut holder, 61), (4, true, 2), "it is written once more");
    assert_eq!(holder.written(at(62), LockWritten::Failed), Millis(1000));
    // The first one was stored after all, at some time.
    assert_eq!(holder.looked(at(63), 4, Some(&own)), LockLook::Retaken);
    assert_eq!((holder.number(), holder.runs_until()), (4, at(27)));
    assert_eq!(holder.pause(at(63)), Millis(0));
    assert_eq!(begun(&mut holder, 63), (5, true, 3));
}

#[test]
fn next_number_that_was_removed_is_written_once_more() {
    let (mut holder, own) = (holder(), record("a"));
    begun(&mut holder, 50);
    holder.written(at(51), LockWritten::Stored);
    assert_eq!(holder.looked(at(52), 0, None), LockLook::Held);
    assert_eq!(begun(&mut holder, 53), (4, true, 2));
    holder.written(at(54), LockWritten::Stored);
    assert_eq!(holder.looked(at(55), 4, Some(&own)), LockLook::Retaken);
    assert_eq!(holder.runs_until(), at(80));
}

#[test]
fn lock_with_the_last_number_is_renewed_and_lets_no_command_run() {
    let mut holder = LockHolder::new(at(0), u64::MAX, record("a"), AGE);
    assert_eq!(begun(&mut holder, 50), (u64::MAX, false, 1));
    assert!(!holder.gives_up(at(60), false, true), "there is no number to take");
    assert_eq!(holder.written(at(61), LockWritten::Stored), Millis(10_000));
    assert_eq!(holder.runs_until(), at(27));
}

#[test]
fn renewal_that_failed_protects_nothing_and_is_tried_again_soon() {
    let mut slow = holder();
    begun(&mut slow, 10);
    assert_eq!(slow.written(at(11), LockWritten::Failed), Millis(1000));
    assert_eq!(slow.protection(at(20)), LockProtection::Unclear);
    assert_eq!(begun(&mut slow, 12), (3, false, 2), "others see a change in any case");
    let mut fast = LockHolder::new(at(0), 1, record("a"), Millis(1500));
    begun(&mut fast, 1);
    assert_eq!(fast.written(at(1), LockWritten::Failed), Millis(500));
}

#[test]
fn late_write_is_given_up_if_it_waits_between_attempts() {
    let mut holder = holder();
    assert!(!holder.gives_up(at(1), true, true), "none is under way");
    begun(&mut holder, 5);
    assert!(!holder.gives_up(at(15), true, true), "it may end soon");
    assert!(!holder.gives_up(at(18), false, false), "it ends as soon as the backend is there");
    assert!(holder.gives_up(at(19), true, false));
    holder.written(at(30), LockWritten::Failed);
    assert_eq!(begun(&mut holder, 31), (4, true, 2));
    assert!(!holder.gives_up(at(41), true, true), "the next one has not been late");
    assert!(!holder.gives_up(at(51), false, true) && holder.gives_up(at(61), true, true));
}

#[test]
fn late_renewal_is_given_up_if_the_backend_answers_looks() {
    let mut holder = holder();
    begun(&mut holder, 10);
    assert!(!holder.gives_up(at(19), false, true), "the lock is protected still");
    assert!(!holder.gives_up(at(21), false, false), "the backend is away");
    assert!(holder.gives_up(at(22), false, true));
    assert_eq!(holder.written(at(22), LockWritten::GivenUp), Millis(0));
    assert_eq!(begun(&mut holder, 22), (4, true, 2), "before the command has to stop");
    assert_eq!(holder.runs_until(), at(27));
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
