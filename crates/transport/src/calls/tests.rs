use std::iter;

use sanderling_protocol::{Header, Op};

use super::*;

/// A moment, `millis` after the first.
fn at(first: Instant, millis: u64) -> Instant {
    first + Duration::from_millis(millis)
}

fn patient(first: Instant, deadline_millis: u64, idle_millis: u64) -> Timeouts {
    let idle = Some(Duration::from_millis(idle_millis));
    Timeouts { deadline: at(first, deadline_millis), idle }
}

fn frame(request: u64) -> Frame<Bytes> {
    Frame { header: Header::new(Op::Read, request), body: Bytes::new() }
}

fn poll(calls: &Calls, request: u64) -> Poll<Result<Frame<Bytes>, CallEnd>> {
    calls.poll(request, Waker::noop())
}

fn begin(calls: &Calls, now: Instant) -> u64 {
    calls.begin(patient(now, 1000, 100), now).unwrap().request
}

fn is_late(calls: &Calls, request: u64) -> bool {
    matches!(poll(calls, request), Poll::Ready(Err(CallEnd::Late(_))))
}

#[test]
fn late_answer_to_a_forgotten_call_is_nobodys() {
    let (calls, now) = (Calls::default(), Instant::now());
    let first = begin(&calls, now);
    calls.forget(first);
    let second = begin(&calls, now);
    assert_eq!(index(first), index(second), "the slot is used again");
    calls.answer(frame(first));
    assert!(poll(&calls, second).is_pending());
    calls.answer(frame(second));
    assert!(matches!(poll(&calls, second), Poll::Ready(Ok(_))));
    calls.forget(second);
    calls.forget(second);
    assert_eq!(calls.state.lock().under_way, 0);
}

#[test]
fn failure_reaches_all_calls_and_those_to_come() {
    let (calls, now) = (Calls::default(), Instant::now());
    let requests = [begin(&calls, now), begin(&calls, now)];
    let error = CallError::TooBusy { address: "here".to_owned() };
    calls.fail(&error);
    for request in requests {
        assert!(matches!(poll(&calls, request), Poll::Ready(Err(CallEnd::Broken(_)))));
    }
    assert_eq!(calls.begin(patient(now, 1000, 100), now).err(), Some(error));
}

#[test]
fn call_waits_for_as_long_as_bytes_come_and_no_longer_than_its_deadline() {
    let (calls, first) = (Calls::default(), Instant::now());
    let request = begin(&calls, first);
    for step in 1..=12 {
        let now = at(first, 80 * step);
        calls.received(now);
        assert!(calls.end_late(now).is_some());
        assert!(poll(&calls, request).is_pending());
    }
    calls.received(at(first, 1000));
    assert_eq!(calls.end_late(at(first, 1000)), None);
    assert!(is_late(&calls, request));
}

#[test]
fn idle_timeout_ends_a_call() {
    let (calls, first) = (Calls::default(), Instant::now());
    let request = begin(&calls, first);
    calls.received(at(first, 60));
    assert_eq!(calls.end_late(at(first, 120)), Some(at(first, 160)));
    assert!(poll(&calls, request).is_pending(), "silent for less than allowed");
    assert_eq!(calls.end_late(at(first, 160)), None);
    assert!(is_late(&calls, request));
}

#[test]
fn call_that_was_overtaken_does_not_wait_for_others_bytes() {
    let (calls, first) = (Calls::default(), Instant::now());
    let stuck = begin(&calls, first);
    let soon_after = begin(&calls, at(first, 90));
    calls.answer(frame(soon_after));
    calls.received(at(first, 110));
    calls.end_late(at(first, 110));
    assert!(poll(&calls, stuck).is_pending(), "answers may change places");
    let much_later = begin(&calls, at(first, 110));
    calls.answer(frame(much_later));
    calls.received(at(first, 120));
    calls.end_late(at(first, 120));
    assert!(is_late(&calls, stuck));
}

#[test]
fn call_whose_answer_is_held_back_waits_to_its_deadline() {
    let (calls, first) = (Calls::default(), Instant::now());
    let held = begin(&calls, first);
    for step in 1..=12 {
        let now = at(first, 80 * step);
        let later = begin(&calls, now);
        calls.answer(frame(later));
        calls.held(iter::once(held), now);
        calls.end_late(now);
        assert!(poll(&calls, held).is_pending(), "after {step} reports");
    }
    calls.end_late(at(first, 1000));
    assert!(is_late(&calls, held));
}

#[test]
fn reports_are_no_sign_of_life_to_other_calls() {
    let (calls, first) = (Calls::default(), Instant::now());
    let [held, stuck] = [begin(&calls, first), begin(&calls, first)];
    for step in 1..=3 {
        calls.received(at(first, 40 * step));
        calls.held(iter::once(held), at(first, 40 * step));
        calls.end_late(at(first, 40 * step));
    }
    assert!(poll(&calls, held).is_pending());
    assert!(is_late(&calls, stuck), "nothing came for it");
    let other = begin(&calls, at(first, 120));
    calls.sent(at(first, 200));
    calls.received(at(first, 210));
    calls.held(iter::once(held), at(first, 210));
    calls.end_late(at(first, 250));
    assert!(poll(&calls, other).is_pending(), "the peer took bytes before the report");
}

#[test]
fn silence_after_a_report_ends_a_call() {
    let (calls, first) = (Calls::default(), Instant::now());
    let held = begin(&calls, first);
    calls.held(iter::once(held), at(first, 90));
    calls.end_late(at(first, 150));
    assert!(poll(&calls, held).is_pending(), "silent for less than allowed");
    calls.end_late(at(first, 190));
    assert!(is_late(&calls, held));
}

#[test]
fn timer_is_set_anew_only_for_an_earlier_end() {
    let (calls, now) = (Calls::default(), Instant::now());
    let is_earliest =
        |timeouts, now| calls.begin(timeouts, now).map(|begun| begun.is_earliest).unwrap();
    assert!(is_earliest(patient(now, 1000, 500), now));
    assert!(!is_earliest(patient(now, 1000, 500), at(now, 1)));
    assert!(is_earliest(patient(now, 10, 500), at(now, 1)));
}
