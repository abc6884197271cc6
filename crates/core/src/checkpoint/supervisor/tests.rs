//! The decisions of a run one by one. `world` has a runner to which everything happens.

use super::*;
use crate::checkpoint::{DumpRates, DumpTimes};

mod world;

const INTERVAL: Millis = Millis(10_000);

fn at(millis: u64) -> RunnerView {
    RunnerView { now: Instant(0) + Millis(millis), ..RunnerView::default() }
}

fn started(expectation: DumpExpectation) -> TaskSupervisor {
    let start = RunStart {
        interval: DumpInterval::Fixed(INTERVAL),
        expectation,
        has_generation: false,
        unsaved_since: Instant(0),
        undriven_from: Some(at(10_100).now),
    };
    TaskSupervisor::new(&at(0), start)
}

/// Returns a run whose dumps take two seconds, and one of them from their turns on.
fn measured() -> TaskSupervisor {
    let mut expectation = DumpExpectation::default();
    expectation.add(Millis(2000), Millis(1000), false);
    started(expectation)
}

/// Returns such a run whose first dump is under way since 10 s.
fn dumping() -> TaskSupervisor {
    let mut run = measured();
    assert_eq!(late(&mut run, 10_000), [work(RunnerWork::Dump)]);
    run
}

fn outputs(run: &mut TaskSupervisor) -> Vec<RunnerOutput> {
    std::iter::from_fn(|| run.poll_output()).collect()
}

fn handle(run: &mut TaskSupervisor, millis: u64, input: RunnerInput) -> Vec<RunnerOutput> {
    run.handle(&at(millis), input);
    outputs(run)
}

/// Returns what the time of the deadline brings.
fn late(run: &mut TaskSupervisor, millis: u64) -> Vec<RunnerOutput> {
    run.handle_deadline(&at(millis));
    outputs(run)
}

const fn work(work: RunnerWork) -> RunnerOutput {
    RunnerOutput::Work(work)
}

const fn note(note: RunnerNote) -> RunnerOutput {
    RunnerOutput::Note(note)
}

const fn end(end: RunnerEnd) -> RunnerOutput {
    RunnerOutput::Work(RunnerWork::End(end))
}

fn none_begun() -> RunnerOutput {
    note(RunnerNote::NoneBegun { takes: Millis(2000) })
}

fn under_way(rest: u64, goes_on: bool) -> RunnerOutput {
    note(RunnerNote::UnderWay { rest: Millis(rest), goes_on })
}

/// Returns the turn of a dump before which nothing was saved.
fn turn(deadline: u64, rest: u64) -> RunnerOutput {
    let (takes, deadline) = (Millis(1000), at(deadline).now);
    let dump = LastDump { takes, unsaved_since: Instant(0), deadline };
    RunnerOutput::Turn { dump, rest: Millis(rest) }
}

/// Returns what comes of a notice with that deadline if a dump fits.
fn taken_now(deadline: u64) -> [RunnerOutput; 3] {
    let taken = note(RunnerNote::TakenNow { takes: Millis(2000) });
    [taken, work(RunnerWork::Dump), turn(deadline, 1000)]
}

fn notice(deadline: u64) -> RunnerInput {
    let deadline = at(deadline).now;
    RunnerInput::Notice(RunnerNotice { deadline, is_sigterm: false, hands_over: false })
}

/// Returns the notice to the run of a bag.
fn bag_notice(deadline: u64) -> RunnerInput {
    let deadline = at(deadline).now;
    RunnerInput::Notice(RunnerNotice { deadline, is_sigterm: false, hands_over: true })
}

fn sigterm(deadline: u64) -> RunnerInput {
    let deadline = at(deadline).now;
    RunnerInput::Notice(RunnerNotice { deadline, is_sigterm: true, hands_over: false })
}

fn stored(worked_until: u64) -> RunnerInput {
    let (took, in_turn, worked_until) = (Millis(2000), Millis(1000), at(worked_until).now);
    RunnerInput::Dumped(DumpEnd::Stored { took, in_turn, worked_until })
}

const fn failed(leaves_packs: bool) -> RunnerInput {
    RunnerInput::Dumped(DumpEnd::Failed { leaves_packs })
}

#[test]
fn next_dump_is_due_an_interval_after_all_that_follows_the_last_one() {
    let mut run = measured();
    assert_eq!(run.deadline(), Some(at(10_000).now));
    assert_eq!(late(&mut run, 9_999), []);
    assert_eq!(late(&mut run, 10_000), [work(RunnerWork::Dump)]);
    assert_eq!(run.deadline(), None, "without a notice it takes as long as it takes");
    assert_eq!(handle(&mut run, 12_000, stored(10_000)), [work(RunnerWork::Collect)]);
    assert_eq!(run.unsaved_since(), at(10_000).now);
    assert_eq!(handle(&mut run, 13_000, RunnerInput::Tidied), [work(RunnerWork::Wait)]);
    assert_eq!(run.deadline(), Some(at(23_000).now));
}

#[test]
fn dump_that_failed_is_followed_by_another_one_and_packs_that_it_left_are_removed() {
    let (waits, noted) = (work(RunnerWork::Wait), note(RunnerNote::Failed));
    let mut run = dumping();
    assert_eq!(handle(&mut run, 11_000, failed(false)), [noted, waits]);
    assert_eq!(run.deadline(), Some(at(21_000).now));
    assert_eq!(late(&mut run, 21_000), [work(RunnerWork::Dump)]);
    assert_eq!(handle(&mut run, 22_000, failed(true)), [work(RunnerWork::MakeRoom)]);
    assert_eq!(handle(&mut run, 23_000, RunnerInput::Tidied), [noted, waits]);
    assert_eq!(late(&mut run, 33_000), [work(RunnerWork::Dump)]);
}

#[test]
fn task_without_a_state_is_looked_at_soon_and_noted_once() {
    let mut run = dumping();
    let not_yet = RunnerInput::Dumped(DumpEnd::NotYet);
    let (waits, noted) = (work(RunnerWork::Wait), note(RunnerNote::Undriven));
    assert_eq!(handle(&mut run, 10_050, not_yet), [waits], "it may handle the signal soon");
    for (begins, notes) in [(10_250, vec![noted, waits]), (10_450, vec![waits])] {
        assert_eq!(run.deadline(), Some(at(begins).now));
        assert_eq!(late(&mut run, begins), [work(RunnerWork::Dump)]);
        assert_eq!(handle(&mut run, begins, not_yet), notes);
    }
}

#[test]
fn dump_is_begun_for_a_notice_only_if_it_ends_in_time() {
    let mut run = measured();
    assert_eq!(handle(&mut run, 0, notice(2499)), [none_begun(), work(RunnerWork::Wait)]);
    assert_eq!(run.deadline(), Some(at(10_000).now), "the machine may not be taken");
    assert_eq!(handle(&mut run, 1000, notice(3500)), taken_now(3500));
    assert_eq!(run.deadline(), Some(at(3500).now));
    assert!(run.attended().is_some_and(|it| !it.is_sigterm));
}

#[test]
fn size_of_the_state_counts_at_a_notice_before_the_first_dump() {
    let (pack_per_second, put_per_second, request) = (400e6, 36e6, Millis(20));
    let rates = DumpRates { pack_per_second, put_per_second, request };
    let times = DumpTimes::default;
    let mut run = started(DumpExpectation::new(times(), times(), Some(rates)));
    let input = notice(30_000);
    assert!(run.needs_size(Some(&input)) && !run.needs_size(None));
    let large = RunnerView { resident_bytes: 1_000_000_000, ..at(0) };
    run.handle(&large, input);
    assert!(outputs(&mut run).contains(&work(RunnerWork::Wait)));
    run.handle(&RunnerView { resident_bytes: 1_000_000, ..at(0) }, input);
    assert!(outputs(&mut run).contains(&work(RunnerWork::Dump)));
    assert!(run.needs_size(None), "it is attended to");
    assert!(!measured().needs_size(Some(&input)));
}

#[test]
fn runner_ends_its_task_after_sigterm_whatever_becomes_of_the_last_dump() {
    let ends = end(RunnerEnd::EndTask);
    let mut run = measured();
    assert_eq!(handle(&mut run, 0, sigterm(2499)), [none_begun(), ends]);
    let begun = || {
        let mut run = measured();
        assert_eq!(handle(&mut run, 0, sigterm(5000)), taken_now(5000));
        run
    };
    let refused = RunnerInput::Dumped(DumpEnd::Refused { takes: Millis(2000) });
    let not_given = note(RunnerNote::LastUngiven);
    for (input, noted) in [
        (RunnerInput::Dumped(DumpEnd::NotYet), not_given),
        (failed(false), note(RunnerNote::LastFailed)),
        (refused, none_begun()),
    ] {
        assert_eq!(handle(&mut begun(), 1000, input), [noted, ends]);
    }
    let mut run = begun();
    assert_eq!(handle(&mut run, 2000, stored(0)), [work(RunnerWork::Collect)]);
    assert_eq!(handle(&mut run, 2100, RunnerInput::Tidied), [ends]);
    assert_eq!(late(&mut begun(), 4999), []);
    assert_eq!(late(&mut begun(), 5000), [note(RunnerNote::LastNotInTime), ends]);
}

#[test]
fn task_of_a_bag_is_handed_over_once_it_is_saved_at_a_notice() {
    let (hands_over, waits) = (end(RunnerEnd::EndTask), work(RunnerWork::Wait));
    let mut run = measured();
    assert_eq!(handle(&mut run, 0, bag_notice(3500)), taken_now(3500));
    assert_eq!(handle(&mut run, 2000, stored(0)), [work(RunnerWork::Collect)]);
    assert_eq!(handle(&mut run, 2100, RunnerInput::Tidied), [hands_over]);
    // The dump under way at the notice is enough if no other one fits, and so is one that was
    // stored just before.
    let mut run = dumping();
    assert_eq!(
        handle(&mut run, 11_000, bag_notice(12_250)),
        [under_way(1000, true), turn(12_250, 1000)]
    );
    assert_eq!(handle(&mut run, 12_000, stored(10_000)), [work(RunnerWork::Collect)]);
    assert_eq!(handle(&mut run, 12_100, RunnerInput::Tidied), [none_begun(), hands_over]);
    let mut run = dumping();
    assert_eq!(handle(&mut run, 12_000, stored(10_000)), [work(RunnerWork::Collect)]);
    assert_eq!(handle(&mut run, 12_100, bag_notice(13_000)), [under_way(0, true)]);
    assert_eq!(late(&mut run, 12_500), [none_begun(), hands_over]);
    // Without a dump of the notice it works on, and dumps as before.
    let mut run = measured();
    assert_eq!(handle(&mut run, 0, bag_notice(2499)), [none_begun(), waits]);
    assert_eq!(late(&mut run, 10_000), [work(RunnerWork::Dump)]);
    assert_eq!(handle(&mut run, 12_000, stored(10_000)), [work(RunnerWork::Collect)]);
    assert_eq!(handle(&mut run, 12_100, RunnerInput::Tidied), [waits]);
    let mut run = measured();
    assert_eq!(handle(&mut run, 13_000, bag_notice(20_000)), taken_now(20_000));
    let noted = note(RunnerNote::LastFailed);
    assert_eq!(handle(&mut run, 14_000, failed(false)), [noted, waits]);
}

#[test]
fn look_that_hangs_is_given_up_at_the_deadline_of_a_notice() {
    let looks = [work(RunnerWork::LookAtLock), work(RunnerWork::LookAtGenerations)];
    for look in looks {
        let begun = || {
            let mut run = dumping();
            let taken = RunnerInput::Dumped(DumpEnd::Taken);
            assert_eq!(handle(&mut run, 11_000, taken), [looks[0]]);
            if look == looks[1] {
                let seen = RunnerInput::LockSeen { is_lost: false };
                let overtaken = [note(RunnerNote::Overtaken), looks[1]];
                assert_eq!(handle(&mut run, 11_100, seen), overtaken);
            }
            run
        };
        for (input, follows) in
            [(notice(20_000), work(RunnerWork::Wait)), (sigterm(20_000), end(RunnerEnd::EndTask))]
        {
            let mut run = begun();
            assert_eq!(handle(&mut run, 12_000, input), []);
            assert_eq!(run.deadline(), Some(at(20_000).now));
            assert_eq!(late(&mut run, 20_000), [none_begun(), follows]);
        }
        // One that ends in time leads to a dump for the notice.
        let mut run = begun();
        assert_eq!(handle(&mut run, 12_000, notice(20_000)), []);
        if look == looks[0] {
            let seen = RunnerInput::LockSeen { is_lost: false };
            let overtaken = [note(RunnerNote::Overtaken), looks[1]];
            assert_eq!(handle(&mut run, 12_100, seen), overtaken);
        }
        assert_eq!(handle(&mut run, 12_200, RunnerInput::GenerationsSeen), taken_now(20_000));
    }
}

#[test]
fn dump_under_way_goes_on_at_a_notice_if_its_rest_ends_in_time() {
    let mut run = dumping();
    // A rest of 1 s, with the margin 1.25 s.
    assert_eq!(
        handle(&mut run, 11_000, notice(12_250)),
        [under_way(1000, true), turn(12_250, 1000)]
    );
    assert_eq!(handle(&mut run, 12_000, stored(10_000)), [work(RunnerWork::Collect)]);
    let ended = handle(&mut run, 12_100, RunnerInput::Tidied);
    assert_eq!(ended, [none_begun(), work(RunnerWork::Wait)], "another one does not fit");
    assert_eq!(run.deadline(), Some(at(22_100).now));
    let given_up = [under_way(1000, false), none_begun(), work(RunnerWork::Wait)];
    assert_eq!(handle(&mut dumping(), 11_000, notice(12_249)), given_up);
}

#[test]
fn time_that_a_dump_has_waited_for_its_turn_does_not_count() {
    let mut run = dumping();
    run.handle(&RunnerView { waited: Millis(3500), ..at(14_000) }, notice(30_000));
    assert_eq!(outputs(&mut run), [under_way(1500, true), turn(30_000, 1500)]);
    // 2.5 s less the half second that was spent on it.
    assert_eq!(run.deadline(), Some(at(16_000).now));
}

#[test]
fn dump_that_is_overdue_at_a_notice_makes_room_for_one_that_fits() {
    let mut run = dumping();
    assert_eq!(
        handle(&mut run, 11_000, notice(90_000)),
        [under_way(1000, true), turn(90_000, 1000)]
    );
    let again: Vec<_> = [under_way(0, false)].into_iter().chain(taken_now(90_000)).collect();
    assert_eq!(late(&mut run, 12_500), again);
    assert_eq!(handle(&mut dumping(), 12_500, notice(90_000)), again);
    // No other one fits: it may end at any moment.
    let mut run = dumping();
    assert_eq!(handle(&mut run, 13_000, notice(15_000)), [under_way(0, true), turn(15_000, 0)]);
    let given_up = [note(RunnerNote::NotInTime), none_begun(), work(RunnerWork::Wait)];
    assert_eq!(late(&mut run, 15_000), given_up);
}

#[test]
fn sigterm_shortens_the_dump_of_another_notice() {
    let mut run = measured();
    assert_eq!(handle(&mut run, 0, notice(600_000)), taken_now(600_000));
    assert_eq!(handle(&mut run, 1000, sigterm(2250)), [under_way(1000, true), turn(2250, 1000)]);
    assert!(run.attended().is_some_and(|it| it.is_sigterm));
    let ended = [note(RunnerNote::NotInTime), none_begun(), end(RunnerEnd::EndTask)];
    assert_eq!(late(&mut run, 2250), ended);
}

#[test]
fn generation_that_is_stored_counts_although_what_follows_is_late() {
    let mut run = measured();
    assert_eq!(handle(&mut run, 0, notice(3000)), taken_now(3000));
    assert_eq!(handle(&mut run, 2900, stored(0)), [work(RunnerWork::Collect)]);
    assert_eq!(late(&mut run, 3000), [work(RunnerWork::Wait)], "it did end in time");
    assert_eq!(run.deadline(), Some(at(13_000).now));
    // A notice that comes meanwhile: the generation has a turn no more.
    let mut run = dumping();
    assert_eq!(handle(&mut run, 12_000, stored(10_000)), [work(RunnerWork::Collect)]);
    assert_eq!(handle(&mut run, 12_100, notice(13_000)), [under_way(0, true)]);
    assert_eq!(late(&mut run, 12_500), [none_begun(), work(RunnerWork::Wait)]);
    assert_eq!(run.deadline(), Some(at(22_500).now));
}

#[test]
fn runner_that_meets_anothers_generation_ends_only_if_that_one_has_the_lock() {
    let taken = RunnerInput::Dumped(DumpEnd::Taken);
    let lost = |is_lost| RunnerInput::LockSeen { is_lost };
    for is_lost in [true, false] {
        let mut run = dumping();
        assert_eq!(handle(&mut run, 11_000, taken), [work(RunnerWork::LookAtLock)]);
        assert_eq!(run.deadline(), None);
        let seen = handle(&mut run, 11_100, lost(is_lost));
        if is_lost {
            assert_eq!(seen, [end(RunnerEnd::Lost)]);
            continue;
        }
        let looks = work(RunnerWork::LookAtGenerations);
        assert_eq!(seen, [note(RunnerNote::Overtaken), looks]);
        let waits = [work(RunnerWork::Wait)];
        assert_eq!(handle(&mut run, 11_200, RunnerInput::GenerationsSeen), waits);
        assert_eq!(run.deadline(), Some(at(21_200).now));
    }
    for (is_lost, ends) in [(true, RunnerEnd::Lost), (false, RunnerEnd::EndTask)] {
        let mut run = measured();
        assert_eq!(handle(&mut run, 0, sigterm(5000)), taken_now(5000));
        let looks = [note(RunnerNote::LastFailed), work(RunnerWork::LookAtLock)];
        assert_eq!(handle(&mut run, 1000, taken), looks);
        assert_eq!(handle(&mut run, 1100, lost(is_lost)), [end(ends)]);
    }
}

#[test]
fn run_ends_with_its_task_its_lock_or_a_signal_whatever_is_under_way() {
    let success = RunnerInput::TaskEnded { is_success: true };
    let ends = [
        (success, RunnerEnd::TaskEnded),
        (RunnerInput::LockLost, RunnerEnd::Lost),
        (RunnerInput::Interrupted, RunnerEnd::EndTask),
    ];
    for run in [measured(), dumping()] {
        for (input, how) in ends {
            let mut run = run.clone();
            assert_eq!(handle(&mut run, 10_500, input), [end(how)]);
            // What comes late changes nothing.
            assert_eq!(handle(&mut run, 10_600, stored(10_000)), []);
            assert_eq!(late(&mut run, 90_000), []);
        }
        for (is_stopped, how) in [(true, RunnerEnd::Stopped), (false, RunnerEnd::TaskEnded)] {
            let mut run = run.clone();
            let failed = RunnerInput::TaskEnded { is_success: false };
            assert_eq!(handle(&mut run, 10_500, failed), [work(RunnerWork::AwaitStop)]);
            let awaited = RunnerInput::StopAwaited { is_stopped };
            assert_eq!(handle(&mut run, 10_600, awaited), [end(how)]);
        }
    }
}
