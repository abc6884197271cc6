//! Runners of one task, drawn from a seed: their machines pause and end, their clocks differ, and
//! the backend is slow, away, or loses answers. Each runs its command beside it, which no pause of
//! the runner stops. The decisions are those of `LockObserver`, `LockHolder` and `CommandLease`;
//! the world sleeps, reads and writes. Times are microseconds.

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis};

use crate::checkpoint::{BAG_ROUND, LockRecord};
use crate::placement::Draw;

mod checks;
mod faults;
mod runner;

use checks::{LockCounts, Take};
use faults::Fault;
use runner::Runner;

/// Pause between two looks at a lock whose runner may be dead.
const LOOK_EVERY: u64 = 200_000;

/// Pause between two looks at a lock that is renewed.
const ROUND: u64 = BAG_ROUND.0 * 1000;

/// A decision that the world breaks, to see that the checks find what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InjectedBug {
    /// A renewal that ended late protects the lock from when it began.
    LateRenewalProtects,
    /// The holder's clock stands still while its process is stopped.
    ClockStops,
    /// A runner stores generations without a look at its lock.
    StoresUnseen,
    /// An observer takes a lock after half of its age.
    HalfAge,
    /// The time until a look is answered counts as watched.
    AnswerCounts,
    /// Time in which the backend did not answer counts as watched.
    OutageCounts,
    /// A command goes on, however long its lock was not confirmed.
    LeaseIgnored,
    /// A command goes on for half of the age after the end of its lease.
    LongLease,
}

/// What a runner waits for.
#[derive(Debug, Clone, Copy)]
enum Timer {
    Look,
    Renew,
    /// The write with this number takes long.
    Writing(u64),
    Dump,
    Remove,
    Release,
}

/// What a runner sent a request for.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    /// To see whether the lock is free; it began then, by the observer's clock.
    Watch(Instant),
    Claim,
    Claimed,
    /// It began then, by the holder's clock.
    BeforeWrite(Instant),
    Write(u64),
    /// To see whether the lock is taken while the write with this number takes long. It began then.
    Meanwhile(u64, Instant),
    BeforeStore,
    Store,
    BeforeRemoval,
    Removal,
    Nothing,
}

/// A request to the backend.
#[derive(Debug)]
enum Request {
    /// Lists the locks, and then reads the newest one.
    Look,
    Read {
        highest: u64,
        listed: u64,
    },
    /// Writes a record if its number is absent.
    Put(u64, LockRecord),
    Replace(u64, LockRecord),
    Remove(u64),
    RemoveBelow(u64),
    /// Stores a generation of the lock with a number, which was looked at then.
    Store {
        number: u64,
        looked: u64,
    },
    /// Removes an old object; began then, after such a look or because renewals protect the lock.
    RemoveOld {
        number: u64,
        began: u64,
        looked: Option<u64>,
    },
}

/// The newest lock, as the backend had it.
#[derive(Debug)]
struct NewestLock {
    listed: u64,
    read: u64,
    highest: u64,
    record: Option<LockRecord>,
    /// For how long the record had not changed when it was read.
    unchanged: u64,
}

#[derive(Debug)]
enum Answer {
    Looked(NewestLock),
    Done(bool),
    Failed,
}

/// A request on its way, with the times that it takes.
#[derive(Debug, Clone, Copy)]
struct Flight {
    runner: usize,
    attempt: u64,
    purpose: Purpose,
    /// Between the list and the read of a look.
    between: u64,
    back: u64,
    /// Whether its runner does not get the answer.
    is_given_up: bool,
}

#[derive(Debug)]
enum Step {
    Timer { runner: usize, attempt: u64, timer: Timer },
    Effect { flight: Flight, request: Request },
    Answer { runner: usize, attempt: u64, purpose: Purpose, answer: Answer },
    Fault(Fault),
    Start { runner: usize },
}

#[derive(Debug)]
struct StoredLock {
    record: LockRecord,
    changed: u64,
}

/// The world of one task.
struct LockWorld {
    seed: u64,
    now: u64,
    draw: Draw,
    bug: Option<InjectedBug>,
    /// The longest age of a lock.
    age: u64,
    faults_end: u64,
    /// How long a call may take.
    timeout: u64,
    /// Whether writes wait between attempts of their own.
    repeats: bool,
    releases: bool,
    slow_permille: u64,
    lost_permille: u64,
    steps: BTreeMap<(u64, u64), Step>,
    sequence: u64,
    runners: Vec<Runner>,
    locks: BTreeMap<u64, StoredLock>,
    away_until: u64,
    /// When the backend came back from outages that every observer notices.
    returns: Vec<u64>,
    takes: Vec<Take>,
    counts: LockCounts,
    violation: Option<(&'static str, String)>,
}

impl LockWorld {
    fn new(seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut world = Self::without_faults(seed, bug);
        world.timeout = world.draw.pick(&[2, 5, 10]) * world.age / 5;
        world.repeats = world.draw.chance(500);
        world.releases = true;
        world.slow_permille = world.draw.pick(&[0, 50, 200]);
        world.lost_permille = world.draw.pick(&[0, 50, 200]);
        world.draw_faults();
        world
    }

    /// Returns a world of three runners, which start at once.
    fn without_faults(seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut world = Self {
            seed,
            now: 0,
            draw: Draw::new(seed),
            bug,
            age: 0,
            faults_end: 0,
            timeout: 0,
            repeats: false,
            releases: false,
            slow_permille: 0,
            lost_permille: 0,
            steps: BTreeMap::new(),
            sequence: 0,
            runners: Vec::new(),
            locks: BTreeMap::new(),
            away_until: 0,
            returns: Vec::new(),
            takes: Vec::new(),
            counts: LockCounts::default(),
            violation: None,
        };
        let age = world.draw.pick(&[1000, 3000, 6000]);
        (world.age, world.faults_end) = (age * 1000, 30 * age * 1000);
        world.timeout = world.age;
        for runner in 0..3 {
            let machine = if world.draw.chance(300) { 0 } else { runner };
            let own = if world.draw.chance(200) { age / 2 } else { age };
            let offset = world.draw.between(1 << 30, 1 << 40);
            let rate = world.draw.between(0, 20_000);
            world.runners.push(Runner::new(machine, Millis(own), offset, rate as i64 - 10_000));
            let start = world.draw.between(0, 500_000);
            world.at(start, Step::Start { runner });
        }
        world
    }

    fn at(&mut self, time: u64, step: Step) {
        self.sequence += 1;
        self.steps.insert((time, self.sequence), step);
    }

    fn timer(&mut self, runner: usize, pause: u64, timer: Timer) {
        let attempt = self.runners[runner].attempt;
        self.at(self.now + pause, Step::Timer { runner, attempt, timer });
    }

    fn violate(&mut self, checker: &'static str, what: String) {
        let what = format!("seed {}, {} us: {what}", self.seed, self.now);
        self.violation.get_or_insert((checker, what));
    }

    /// Lets everything happen until a time, or until a check has found something.
    fn play(&mut self, until: u64) {
        while let Some(((time, _), step)) = self.steps.pop_first() {
            if time > until || self.violation.is_some() {
                break;
            }
            self.now = time;
            self.step(step);
        }
    }

    fn step(&mut self, step: Step) {
        let of = match &step {
            Step::Timer { runner, attempt, .. } | Step::Answer { runner, attempt, .. } => {
                Some((*runner, *attempt))
            }
            _ => None,
        };
        if let Some((runner, attempt)) = of {
            let (is_there, paused_until) = self.runners[runner].is_there(attempt);
            if !is_there {
                return;
            }
            if paused_until > self.now {
                return self.at(paused_until, step);
            }
        }
        match step {
            Step::Timer { runner, timer, .. } => self.wake(runner, timer),
            Step::Effect { flight, request } => self.take_effect(&flight, request),
            Step::Answer { runner, purpose, answer, .. } => self.answered(runner, purpose, answer),
            Step::Fault(fault) => self.fault(&fault),
            Step::Start { runner } => self.start(runner),
        }
        self.check_commands();
    }

    fn call(&mut self, runner: usize, purpose: Purpose, request: Request) {
        self.call_within(self.timeout, runner, purpose, request);
    }

    /// Sends a request whose answer its runner waits for only so long. It may take effect later.
    fn call_within(&mut self, timeout: u64, runner: usize, purpose: Purpose, request: Request) {
        let attempt = self.runners[runner].attempt;
        let (to, between, back) = (self.latency(), self.latency(), self.latency());
        let is_lost = self.now < self.faults_end && self.draw.chance(self.lost_permille);
        let is_given_up = is_lost || to + between + back > timeout;
        if is_given_up {
            let answer = Answer::Failed;
            self.at(self.now + timeout, Step::Answer { runner, attempt, purpose, answer });
        }
        let flight = Flight { runner, attempt, purpose, between, back, is_given_up };
        self.at(self.now + to, Step::Effect { flight, request });
    }

    fn latency(&mut self) -> u64 {
        let is_slow = self.now < self.faults_end && self.draw.chance(self.slow_permille);
        let most = if is_slow { self.age * 6 / 5 } else { 20_000 };
        self.draw.between(1000, most)
    }

    fn answer(&mut self, flight: &Flight, answer: Answer) {
        let Flight { runner, attempt, purpose, back, is_given_up, .. } = *flight;
        if !is_given_up {
            self.at(self.now + back, Step::Answer { runner, attempt, purpose, answer });
        }
    }

    fn highest(&self) -> u64 {
        self.locks.keys().next_back().copied().unwrap_or(0)
    }

    fn take_effect(&mut self, flight: &Flight, request: Request) {
        let runner = flight.runner;
        if self.now < self.away_until.max(self.runners[runner].cut_until) {
            return self.answer(flight, Answer::Failed);
        }
        let mut is_done = true;
        match request {
            Request::Look => {
                let request = Request::Read { highest: self.highest(), listed: self.now };
                let step = Step::Effect { flight: *flight, request };
                return self.at(self.now + flight.between, step);
            }
            Request::Read { highest, listed } => {
                let found = self.locks.get(&highest);
                let unchanged = found.map_or(0, |it| self.now - it.changed);
                let (read, record) = (self.now, found.map(|it| it.record.clone()));
                let newest = NewestLock { listed, read, highest, record, unchanged };
                return self.answer(flight, Answer::Looked(newest));
            }
            Request::Put(number, record) => {
                is_done = !self.locks.contains_key(&number);
                if is_done {
                    self.check_take(flight, number);
                    self.locks.insert(number, StoredLock { record, changed: self.now });
                }
            }
            Request::Replace(number, record) => {
                self.locks.insert(number, StoredLock { record, changed: self.now });
            }
            Request::Remove(number) => drop(self.locks.remove(&number)),
            Request::RemoveBelow(number) => self.locks.retain(|it, _| *it >= number),
            Request::Store { number, looked } => self.check_store(flight, number, looked),
            Request::RemoveOld { number, began, looked } => {
                self.check_removal(flight, number, began, looked);
            }
        }
        self.answer(flight, Answer::Done(is_done));
    }

    /// Returns the runner that believes in its lock, if one does.
    fn believing(&self) -> Option<usize> {
        self.runners.iter().position(|it| it.is_claimed)
    }
}

/// Plays a world to its end, a while after the faults.
fn played(seed: u64, bug: Option<InjectedBug>) -> LockWorld {
    let mut world = LockWorld::new(seed, bug);
    // The last requests have taken effect after two and a half ages, and a lock that one of them
    // has left is taken after one more.
    let end = world.faults_end + 4 * world.age + 5_000_000;
    world.play(end);
    world.now = end;
    world.check_end();
    world
}

#[test]
fn runners_exclude_each_other_whatever_fails() {
    let mut all = LockCounts::default();
    for seed in 0..300 {
        let world = played(seed, None);
        assert_eq!(world.violation, None);
        all.add(&world.counts);
    }
    // The checks had something to look at.
    assert!(all.taken_from_live > 30 && all.lost > 30, "{all:?}");
    assert!(all.retaken > 30, "{all:?}");
    assert!(all.stored > 300 && all.removed_sure > 300 && all.removed_looked > 30, "{all:?}");
}

#[test]
fn lock_of_a_dead_runner_is_taken_within_its_age() {
    for seed in 0..60 {
        for is_own_machine in [false, true] {
            let mut world = LockWorld::without_faults(seed, None);
            let died = 10 * world.age;
            world.kill_holder_at(died, is_own_machine);
            world.play(30 * world.age);
            assert_eq!(world.violation, None);
            let taken = world.takes.iter().map(|it| it.at).find(|at| *at > died);
            let took = taken.expect("others wait for the lock") - died;
            // Of a process of the same machine it is known at once that it has ended. A look, the
            // pause before it and the clocks' difference add to the age.
            let age = if is_own_machine { 0 } else { world.age + world.age / 50 };
            assert!(took <= age + 1_500_000, "seed {seed}: {took} us of {} us", world.age);
        }
    }
}

#[test]
fn each_injected_bug_is_found_by_its_check() {
    let all: [(InjectedBug, &[&str]); 8] = [
        // A runner that has lost its lock removes or stores something without a look, or another
        // one takes the lock of a runner that is sure of it, or starts the command beside it.
        (InjectedBug::LateRenewalProtects, &["removal", "generation", "protected", "command"]),
        (InjectedBug::ClockStops, &["protected"]),
        (InjectedBug::StoresUnseen, &["generation"]),
        (InjectedBug::HalfAge, &["age"]),
        (InjectedBug::AnswerCounts, &["age"]),
        (InjectedBug::OutageCounts, &["outage"]),
        (InjectedBug::LeaseIgnored, &["command"]),
        (InjectedBug::LongLease, &["command"]),
    ];
    for (bug, checks) in all {
        let finds = |seed: u64| {
            let violation = played(seed, Some(bug)).violation;
            violation.is_some_and(|(check, _)| checks.contains(&check))
        };
        assert!((0..3000).any(finds), "{bug:?} was not found");
    }
}
