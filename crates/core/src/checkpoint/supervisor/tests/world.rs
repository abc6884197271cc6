//! A run of a task, drawn from a seed: its dumps are slow, hang or fail, notices and signals come,
//! another runner takes the lock, and the task ends. The decisions are those of `TaskSupervisor`;
//! the world waits and does the work. Times are microseconds.

use std::collections::{BTreeMap, VecDeque};

use sanderling_protocol::{Instant, Millis};

use crate::checkpoint::{
    DumpEnd, DumpExpectation, DumpInterval, DumpRates, DumpTimes, RunStart, RunnerInput,
    RunnerNotice, RunnerOutput, RunnerView, RunnerWork, TaskSupervisor,
};
use crate::placement::Draw;

mod checks;
mod faults;

use checks::{RunChecks, RunCounts};
use faults::DrawnFaults;

/// Until when something may happen to a run by itself.
const EVENTS_END: u64 = 60_000_000;

/// The longest time that a notice leaves, in milliseconds.
const LEFT_MAX: u64 = 60_000;

/// How long a dump hangs before it fails, in milliseconds.
const HANGS: u64 = 40_000;

/// When a run is looked at in the end: the last notice is over, and a dump that hung since.
const END: u64 = EVENTS_END + 2 * (LEFT_MAX + HANGS) * 1000;

/// What the world does wrong in place of the shell, to see that the checks find what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InjectedBug {
    /// That another runner has the lock is not handed over.
    LossHidden,
    /// Another runner's generation is taken for the loss of the lock.
    LossImagined,
    /// Every second notice is dropped.
    NoticeDropped,
    /// The state is taken for an empty one.
    SizeUnseen,
    /// After a dump that failed, the time of the next one is slept through.
    SleepsOn,
    /// The end of the task is not handed over.
    EndUnseen,
    /// Another runner's generation is taken for a store that fails.
    TakenMisread,
}

/// A signal to the runner.
#[derive(Debug, Clone, Copy)]
enum RunSignal {
    /// It is no notice.
    Interrupt,
    /// It is a notice that leaves so many milliseconds.
    Sigterm { left: u64 },
}

/// What happens at a time.
#[derive(Debug, Clone, Copy)]
enum WorldStep {
    /// A source shows a notice that leaves so many milliseconds.
    Notice {
        left: u64,
    },
    Signal(RunSignal),
    /// Another runner takes the lock.
    LockTaken,
    /// The renewal of the lock shows that.
    LossSeen,
    TaskEnd {
        is_success: bool,
    },
    /// The work with this number has ended.
    Done {
        number: u64,
        input: RunnerInput,
    },
}

/// The world of one run.
struct RunWorld {
    seed: u64,
    now: u64,
    draw: Draw,
    bug: Option<InjectedBug>,
    faults: DrawnFaults,
    /// Between two dumps, in milliseconds.
    interval: u64,
    /// How long most dumps take, in milliseconds.
    typical: u64,
    rates: Option<DumpRates>,
    state_bytes: u64,
    /// Whether the run is that of a bag.
    hands_over: bool,
    /// Whether looks at the lock and at generations hang.
    looks_hang: bool,
    machine: TaskSupervisor,
    steps: BTreeMap<(u64, u64), WorldStep>,
    sequence: u64,
    work: RunnerWork,
    /// Counts what was begun.
    number: u64,
    /// What has come of the work, if it has ended.
    done: Option<RunnerInput>,
    dump_begun: u64,
    /// For how long the dump waits for its turn, in milliseconds.
    dump_waits: u64,
    notices: VecDeque<RunnerNotice>,
    signal: Option<RunSignal>,
    /// Whether another runner has the lock, and whether the renewals have shown that.
    is_taken: bool,
    is_loss_shown: bool,
    /// Whether the task has ended, and how.
    task_end: Option<bool>,
    checks: RunChecks,
    counts: RunCounts,
    violation: Option<(&'static str, String)>,
}

impl RunWorld {
    fn new(seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut world = Self::without_faults(seed, bug);
        world.draw_faults();
        world
    }

    fn without_faults(seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut draw = Draw::new(seed);
        let interval = draw.pick(&[500, 2000, 10_000]);
        let typical = draw.pick(&[50, 400, 3000]);
        let state_bytes = draw.pick(&[1_000_000, 200_000_000, 2_000_000_000]);
        let (pack_per_second, put_per_second, request) = (100e6, 50e6, Millis(20));
        let rates = DumpRates { pack_per_second, put_per_second, request };
        let rates = (draw.below(2) == 0).then_some(rates);
        let (times, times_in_turn) = (DumpTimes::default(), DumpTimes::default());
        let start = RunStart {
            interval: DumpInterval::Fixed(Millis(interval)),
            expectation: DumpExpectation::new(times, times_in_turn, rates),
            has_generation: false,
            unsaved_since: Instant(0),
            undriven_from: Some(Instant(1_000_000)),
        };
        Self {
            seed,
            now: 0,
            draw,
            bug,
            faults: DrawnFaults::default(),
            interval,
            typical,
            rates,
            state_bytes,
            hands_over: false,
            looks_hang: false,
            machine: TaskSupervisor::new(&RunnerView::default(), start),
            steps: BTreeMap::new(),
            sequence: 0,
            work: RunnerWork::Wait,
            number: 0,
            done: None,
            dump_begun: 0,
            dump_waits: 0,
            notices: VecDeque::new(),
            signal: None,
            is_taken: false,
            is_loss_shown: false,
            task_end: None,
            checks: RunChecks::default(),
            counts: RunCounts::default(),
            violation: None,
        }
    }

    fn at(&mut self, time: u64, step: WorldStep) {
        self.sequence += 1;
        self.steps.insert((time, self.sequence), step);
    }

    fn violate(&mut self, checker: &'static str, what: &str) {
        let what = format!("seed {}, {} us, {:?}: {what}", self.seed, self.now, self.work);
        self.violation.get_or_insert((checker, what));
    }

    fn is_over(&self) -> bool {
        matches!(self.work, RunnerWork::End(_))
    }

    /// Returns whether a dump is under way, or what follows it.
    fn is_dumping(&self) -> bool {
        matches!(self.work, RunnerWork::Dump | RunnerWork::Collect | RunnerWork::MakeRoom)
    }

    /// Returns whether what happens is handed over during the work that is under way.
    fn is_attended(&self) -> bool {
        !matches!(self.work, RunnerWork::AwaitStop | RunnerWork::End(_))
    }

    /// Returns the notice that is handed over now.
    const fn notice(&self, deadline: Instant, is_sigterm: bool) -> RunnerNotice {
        RunnerNotice { deadline, is_sigterm, hands_over: self.hands_over }
    }

    /// Lets everything happen until a time, until the run is over, or until a check has found
    /// something.
    fn play(&mut self, until: u64) {
        while self.violation.is_none() && !self.is_over() {
            if let Some(input) = self.first_input() {
                self.hand_over(input);
                continue;
            }
            let step = self.steps.first_key_value().map(|((at, _), _)| *at);
            let deadline = self.deadline();
            // What happens at the same time is there before the deadline is handled.
            let is_step = step.is_some_and(|at| deadline.is_none_or(|deadline| at <= deadline));
            let next = if is_step { step } else { deadline };
            let Some(next) = next.filter(|at| *at <= until) else { return self.pass(until) };
            self.pass(next);
            if !is_step {
                let view = self.view(None);
                self.machine.handle_deadline(&view);
                self.put_out();
            } else if let Some((_, step)) = self.steps.pop_first() {
                self.step(step);
            }
        }
    }

    /// Lets time pass until a step or a deadline, which may be over.
    fn pass(&mut self, until: u64) {
        if until > self.now {
            self.check_passing(until);
            self.now = until;
        }
    }

    fn deadline(&self) -> Option<u64> {
        let sleeps_on = self.bug == Some(InjectedBug::SleepsOn)
            && self.work == RunnerWork::Wait
            && self.checks.failed_at.is_some();
        self.machine.deadline().filter(|_| !sleeps_on).map(|at| at.0)
    }

    fn step(&mut self, step: WorldStep) {
        match step {
            WorldStep::Notice { left } => {
                self.checks.arrived += 1;
                let deadline = Instant(self.now) + Millis(left);
                if self.bug != Some(InjectedBug::NoticeDropped) || self.draw.chance(500) {
                    let notice = self.notice(deadline, false);
                    self.notices.push_back(notice);
                }
            }
            WorldStep::Signal(signal) => {
                self.signal.get_or_insert(signal);
            }
            WorldStep::LockTaken => self.is_taken = true,
            WorldStep::LossSeen => {
                self.checks.is_loss_seen = true;
                self.is_loss_shown = self.bug != Some(InjectedBug::LossHidden);
            }
            WorldStep::TaskEnd { is_success } => {
                self.task_end.get_or_insert(is_success);
            }
            WorldStep::Done { number, input } if number == self.number => {
                self.done = Some(self.as_it_ends(input));
            }
            // It was given up.
            WorldStep::Done { .. } => {}
        }
    }

    /// Returns what comes of work that ends now.
    fn as_it_ends(&self, input: RunnerInput) -> RunnerInput {
        match input {
            RunnerInput::Dumped(DumpEnd::Stored { .. }) if self.is_taken => {
                RunnerInput::Dumped(DumpEnd::Taken)
            }
            // Only last dumps wait for a turn.
            RunnerInput::Dumped(DumpEnd::Refused { .. }) if self.machine.attended().is_none() => {
                RunnerInput::Dumped(DumpEnd::Failed { leaves_packs: false })
            }
            RunnerInput::StopAwaited { .. } => {
                RunnerInput::StopAwaited { is_stopped: self.signal.is_some() }
            }
            input => input,
        }
    }

    /// Returns what the shell hands over first, as long as there is something.
    fn first_input(&mut self) -> Option<RunnerInput> {
        if !self.is_attended() {
            return self.done.take();
        }
        let lost = self.is_loss_shown.then_some(RunnerInput::LockLost);
        match self.machine.attended() {
            Some(notice) => {
                let signal = self.signalled().filter(|_| !notice.is_sigterm);
                self.task_ended().or_else(|| self.done.take()).or(signal).or(lost)
            }
            None => {
                let first = self.signalled().or(lost).or(self.task_ended());
                first.or_else(|| self.noticed()).or_else(|| self.done.take())
            }
        }
    }

    fn task_ended(&self) -> Option<RunnerInput> {
        let is_seen = self.bug != Some(InjectedBug::EndUnseen);
        self.task_end.filter(|_| is_seen).map(|is_success| RunnerInput::TaskEnded { is_success })
    }

    fn noticed(&mut self) -> Option<RunnerInput> {
        self.notices.pop_front().map(RunnerInput::Notice)
    }

    fn signalled(&self) -> Option<RunnerInput> {
        Some(match self.signal? {
            RunSignal::Interrupt => RunnerInput::Interrupted,
            RunSignal::Sigterm { left } => {
                let deadline = Instant(self.now) + Millis(left);
                RunnerInput::Notice(self.notice(deadline, true))
            }
        })
    }

    fn view(&self, input: Option<&RunnerInput>) -> RunnerView {
        let sees_size = self.bug != Some(InjectedBug::SizeUnseen);
        let needs_size = self.machine.needs_size(input) && sees_size;
        let waited = ((self.now - self.dump_begun) / 1000).min(self.dump_waits);
        RunnerView {
            now: Instant(self.now),
            machine_age: Millis(0),
            resident_bytes: if needs_size { self.state_bytes } else { 0 },
            waited: Millis(if self.is_dumping() { waited } else { 0 }),
        }
    }

    fn hand_over(&mut self, input: RunnerInput) {
        let before = self.number;
        self.check_input(&input);
        let input = match (self.bug, input) {
            (Some(InjectedBug::TakenMisread), RunnerInput::Dumped(DumpEnd::Taken)) => {
                RunnerInput::Dumped(DumpEnd::Failed { leaves_packs: true })
            }
            (Some(InjectedBug::LossHidden), RunnerInput::LockSeen { .. }) => {
                RunnerInput::LockSeen { is_lost: false }
            }
            (Some(InjectedBug::LossImagined), RunnerInput::LockSeen { .. }) => {
                RunnerInput::LockSeen { is_lost: true }
            }
            (_, input) => input,
        };
        let view = self.view(Some(&input));
        self.machine.handle(&view, input);
        self.put_out();
        let goes_on = matches!(input, RunnerInput::Notice(_));
        assert!(goes_on || self.number > before, "seed {}: {input:?} leads to nothing", self.seed);
    }

    fn put_out(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                RunnerOutput::Note(note) => self.check_note(note),
                RunnerOutput::Work(work) => self.begin(work),
                RunnerOutput::Turn { dump, .. } => self.check_turn(&dump),
            }
        }
    }

    fn begin(&mut self, work: RunnerWork) {
        self.check_begin(work);
        (self.work, self.done) = (work, None);
        self.number += 1;
        match work {
            RunnerWork::Wait | RunnerWork::End(_) => {}
            RunnerWork::Dump => self.begin_dump(),
            RunnerWork::Collect | RunnerWork::MakeRoom => {
                let takes = self.draw.between(0, 2000);
                self.done_in(takes, RunnerInput::Tidied);
            }
            RunnerWork::LookAtLock => {
                // The look may fail.
                let is_lost = self.is_taken && self.draw.chance(800);
                let takes = self.drawn_look();
                self.done_in(takes, RunnerInput::LockSeen { is_lost });
            }
            RunnerWork::LookAtGenerations => {
                let takes = self.drawn_look();
                self.done_in(takes, RunnerInput::GenerationsSeen);
            }
            RunnerWork::AwaitStop => {
                let takes = if self.signal.is_some() { 0 } else { 500 };
                self.done_in(takes, RunnerInput::StopAwaited { is_stopped: false });
            }
        }
    }

    /// Draws how long a look takes, in milliseconds.
    fn drawn_look(&mut self) -> u64 {
        let takes = self.draw.between(5, 500);
        if self.looks_hang { HANGS } else { takes }
    }

    fn done_in(&mut self, takes: u64, input: RunnerInput) {
        let number = self.number;
        self.at(self.now + takes * 1000, WorldStep::Done { number, input });
    }
}

/// Plays a world to its end, a while after the last event.
fn played(seed: u64, bug: Option<InjectedBug>) -> RunWorld {
    let mut world = RunWorld::new(seed, bug);
    world.play(END);
    world.check_end();
    world
}

#[test]
fn runner_dumps_heeds_notices_and_ends_whatever_happens() {
    let mut all = RunCounts::default();
    for seed in 0..300 {
        let world = played(seed, None);
        assert_eq!(world.violation, None);
        all.add(&world.counts);
    }
    // The checks had something to look at.
    assert!(all.stored > 1000 && all.failed > 300, "{all:?}");
    assert!(all.taken_now > 30 && all.none_begun > 30 && all.went_on > 10, "{all:?}");
    assert!(all.refused > 0 && all.overtaken > 10, "{all:?}");
    assert!(all.lost > 10 && all.ended > 10 && all.stopped > 10, "{all:?}");
}

/// Plays worlds that were changed before, and counts what happened in all of them.
fn counted(change: impl Fn(&mut RunWorld)) -> RunCounts {
    let mut all = RunCounts::default();
    for seed in 0..300 {
        let mut world = RunWorld::new(seed, None);
        change(&mut world);
        world.play(END);
        world.check_end();
        assert_eq!(world.violation, None);
        all.add(&world.counts);
    }
    all
}

#[test]
fn run_of_a_bag_goes_on_after_a_notice_only_if_nothing_was_stored_for_it() {
    let all = counted(|world| world.hands_over = true);
    assert!(all.handed_over > 10 && all.none_begun > 10, "{all:?}");
}

#[test]
fn looks_that_hang_hold_neither_a_signal_nor_the_end_of_the_task_up() {
    let all = counted(|world| world.looks_hang = true);
    assert!(all.overtaken > 0 && all.stopped > 10 && all.ended > 10, "{all:?}");
}

#[test]
fn dumps_follow_each_other_where_nothing_fails() {
    for seed in 0..60 {
        let mut world = RunWorld::without_faults(seed, None);
        world.play(EVENTS_END);
        assert_eq!(world.violation, None);
        let round = (world.interval + world.typical * 3 / 2 + 2000) * 1000;
        assert!(world.counts.stored >= EVENTS_END / round - 1, "seed {seed}: {:?}", world.counts);
        assert_eq!(world.counts.failed, 0, "seed {seed}");
    }
}

#[test]
fn each_injected_bug_is_found_by_its_check() {
    let all = [
        (InjectedBug::LossHidden, "lock"),
        (InjectedBug::LossImagined, "outcome"),
        (InjectedBug::NoticeDropped, "notice"),
        (InjectedBug::SizeUnseen, "forecast"),
        (InjectedBug::SleepsOn, "next"),
        (InjectedBug::EndUnseen, "end"),
        (InjectedBug::TakenMisread, "removal"),
    ];
    for (bug, check) in all {
        let finds = |seed: u64| {
            let violation = played(seed, Some(bug)).violation;
            violation.is_some_and(|(found, _)| found == check)
        };
        assert!((0..3000).any(finds), "{bug:?} was not found");
    }
}
