//! A runner's shell: it waits, sends requests, and hands the answers to the machines.

use sanderling_protocol::{Instant, Millis};

use super::{Answer, InjectedBug, LOOK_EVERY, LockWorld, Purpose, ROUND, Request, Timer};
use crate::checkpoint::{
    BackendAnswers, CommandLease, LockClaim, LockHolder, LockLook, LockObserver, LockProtection,
    LockRecord, LockView, LockWrite, LockWritten, SeenLock,
};

/// A runner that starts again whenever it has lost or released its lock, as in an agent.
pub(super) struct Runner {
    pub(super) machine: usize,
    pub(super) age: Millis,
    /// What the clock shows at 0.
    offset: u64,
    /// How much faster the clock runs than time, in millionths.
    rate: i64,
    pub(super) paused_until: u64,
    /// For how long it was stopped so far.
    pub(super) stopped: u64,
    /// Its requests do not reach the backend until then.
    pub(super) cut_until: u64,
    pub(super) is_running: bool,
    /// Whether its machine was taken.
    pub(super) is_gone: bool,
    /// Counts its processes.
    process: u64,
    /// Counts its attempts: what belongs to an earlier one is dropped.
    pub(super) attempt: u64,
    own: LockRecord,
    observer: LockObserver,
    answers: BackendAnswers,
    pub(super) holder: Option<LockHolder>,
    /// Whether it believes in its lock, and so has started its command.
    pub(super) is_claimed: bool,
    /// Until when its command may run.
    pub(super) lease: CommandLease,
    /// The write under way: its number, when it began, and whether it replaces a record.
    writing: Option<(u64, Instant, bool)>,
}

fn record(runner: usize, attempt: u64, machine: usize, start_time: u64) -> LockRecord {
    let (owner, machine) = (format!("{runner}-{attempt}"), format!("machine {machine}"));
    let (renewals, is_released, pid) = (0, false, runner as u32);
    LockRecord { owner, renewals, is_released, machine, pid, start_time, age: None }
}

impl Runner {
    pub(super) fn new(machine: usize, age: Millis, offset: u64, rate: i64) -> Self {
        Self {
            machine,
            age,
            offset,
            rate,
            paused_until: 0,
            stopped: 0,
            cut_until: 0,
            is_running: false,
            is_gone: false,
            process: 0,
            attempt: 0,
            own: record(0, 0, 0, 0),
            observer: LockObserver::new(Instant(0)),
            answers: BackendAnswers::from(Instant(0)),
            holder: None,
            is_claimed: false,
            lease: CommandLease::new(Instant(0)),
            writing: None,
        }
    }

    /// Returns whether an attempt is the present one of a process that runs, and until when that is
    /// stopped.
    pub(super) fn is_there(&self, attempt: u64) -> (bool, u64) {
        (self.is_running && self.attempt == attempt, self.paused_until)
    }

    /// Returns what the machine's clock shows.
    fn clock(&self, at: u64) -> Instant {
        let drift = at as i64 * self.rate / 1_000_000;
        Instant((self.offset + at).saturating_add_signed(drift))
    }

    /// Ends the process, or the attempt.
    pub(super) fn end(&mut self) {
        self.attempt += 1;
        (self.holder, self.writing) = (None, None);
        self.is_claimed = false;
        self.lease = CommandLease::new(Instant(0));
    }
}

impl LockWorld {
    /// Starts a runner's process.
    pub(super) fn start(&mut self, runner: usize) {
        let now = self.observer_clock(runner);
        let it = &mut self.runners[runner];
        if it.is_running || it.is_gone {
            return;
        }
        it.is_running = true;
        it.process += 1;
        it.answers = BackendAnswers::from(now);
        self.begin(runner, 0);
    }

    /// Begins an attempt after a pause.
    fn begin(&mut self, runner: usize, pause: u64) {
        let now = self.observer_clock(runner);
        let it = &mut self.runners[runner];
        it.end();
        it.own = record(runner, it.attempt, it.machine, it.process);
        it.observer = LockObserver::new(now);
        self.timer(runner, pause, Timer::Look);
    }

    fn observer_clock(&self, runner: usize) -> Instant {
        let now = self.runners[runner].clock(self.now);
        let is_fast = self.bug == Some(InjectedBug::HalfAge);
        if is_fast { Instant(2 * now.0) } else { now }
    }

    pub(super) fn holder_clock(&self, runner: usize, at: u64) -> Instant {
        let it = &self.runners[runner];
        let stops = self.bug == Some(InjectedBug::ClockStops);
        Instant(it.clock(at).0 - if stops { it.stopped } else { 0 })
    }

    /// Returns whether a record's process runs, if it is one of the runner's machine.
    fn is_alive(&self, runner: usize, record: &LockRecord) -> Option<bool> {
        let is_own_machine = self.runners[runner].own.machine == record.machine;
        is_own_machine.then(|| {
            let of = &self.runners[record.pid as usize];
            of.is_running && of.process == record.start_time
        })
    }

    pub(super) fn wake(&mut self, runner: usize, timer: Timer) {
        match timer {
            Timer::Look => {
                let began = self.observer_clock(runner);
                self.call(runner, Purpose::Watch(began), Request::Look);
            }
            Timer::Renew => self.look_soon(runner, Purpose::BeforeWrite),
            Timer::Writing(number) if self.is_writing(runner, number) => {
                self.look_soon(runner, |began| Purpose::Meanwhile(number, began));
            }
            Timer::Writing(_) => {}
            Timer::Dump if self.bug == Some(InjectedBug::StoresUnseen) => {
                self.store(runner, self.now);
            }
            Timer::Dump => self.call(runner, Purpose::BeforeStore, Request::Look),
            Timer::Remove => self.remove_old(runner),
            Timer::Release => self.release(runner),
        }
    }

    pub(super) fn answered(&mut self, runner: usize, purpose: Purpose, answer: Answer) {
        match purpose {
            Purpose::Watch(began) => self.watched(runner, began, answer),
            Purpose::Claim => self.written(runner, &answer),
            Purpose::Claimed => self.claimed(runner, &answer),
            Purpose::BeforeWrite(began) => match self.looked(runner, began, &answer) {
                Some(LockLook::Taken) => self.lose(runner),
                Some(LockLook::Retaken) => self.retaken(runner),
                Some(LockLook::Held) | None => self.write(runner),
            },
            Purpose::Write(number) => {
                if self.is_writing(runner, number) {
                    let is_stored = matches!(answer, Answer::Done(true));
                    let written = if is_stored { LockWritten::Stored } else { LockWritten::Failed };
                    self.has_written(runner, written);
                }
            }
            Purpose::Meanwhile(number, began) => match self.looked(runner, began, &answer) {
                Some(LockLook::Taken) => self.lose(runner),
                look if self.is_writing(runner, number) => {
                    self.waits(runner, number, look.is_some());
                }
                _ => {}
            },
            Purpose::BeforeStore => self.store_if_own(runner, answer),
            Purpose::Store => self.dump_later(runner),
            Purpose::BeforeRemoval => match answer {
                _ if self.loses(runner, &answer) => {}
                Answer::Looked(newest) => self.send_removal(runner, Some(newest.listed)),
                _ => self.remove_later(runner),
            },
            Purpose::Removal => self.remove_later(runner),
            Purpose::Nothing => {}
        }
    }

    fn watched(&mut self, runner: usize, began: Instant, answer: Answer) {
        let (now, bug) = (self.observer_clock(runner), self.bug);
        let Answer::Looked(newest) = answer else {
            let it = &mut self.runners[runner];
            if bug == Some(InjectedBug::OutageCounts) {
                it.answers.answered(now, it.age);
            } else {
                it.answers.failed();
                it.observer.failed();
            }
            return self.timer(runner, LOOK_EVERY, Timer::Look);
        };
        let alive = newest.record.as_ref().and_then(|it| self.is_alive(runner, it));
        let began = if bug == Some(InjectedBug::AnswerCounts) { now } else { began };
        let it = &mut self.runners[runner];
        it.observer.take_over(it.answers);
        let (number, record) = (newest.highest, newest.record.clone());
        let look = SeenLock { number, record, waits: false };
        let view = it.observer.observe(began, now, it.age, look, |_| alive);
        it.answers.answered(now, it.age);
        match view {
            LockView::Held => self.timer(runner, ROUND, Timer::Look),
            LockView::Unknown => self.timer(runner, LOOK_EVERY, Timer::Look),
            LockView::Free => {
                self.check_free(runner, &newest, alive);
                self.claim(runner, number + 1);
            }
        }
    }

    fn claim(&mut self, runner: usize, number: u64) {
        let now = self.holder_clock(runner, self.now);
        let it = &mut self.runners[runner];
        let holder = LockHolder::new(now, number, it.own.clone(), it.age);
        let record = holder.record().clone();
        it.holder = Some(holder);
        self.call(runner, Purpose::Claim, Request::Put(number, record));
    }

    fn written(&mut self, runner: usize, answer: &Answer) {
        match answer {
            Answer::Done(true) => self.call(runner, Purpose::Claimed, Request::Look),
            Answer::Done(false) => self.wake(runner, Timer::Look),
            _ => self.begin(runner, LOOK_EVERY),
        }
    }

    fn claimed(&mut self, runner: usize, answer: &Answer) {
        let is_taken = self.is_taken(runner, answer);
        let Some(holder) = &self.runners[runner].holder else { return };
        let (number, every) = (holder.number(), holder.renew_every());
        match holder.claim(is_taken) {
            LockClaim::Held => {
                self.runners[runner].is_claimed = true;
                self.confirm(runner);
                self.check_claim(runner, number);
                self.call(runner, Purpose::Nothing, Request::RemoveBelow(number));
                self.timer(runner, every.0 * 1000, Timer::Renew);
                self.dump_later(runner);
                self.remove_later(runner);
                let pause = self.draw.between(self.age, 12 * self.age);
                self.timer(runner, pause, Timer::Release);
            }
            LockClaim::Late => {
                self.call(runner, Purpose::Nothing, Request::Remove(number));
                self.wake(runner, Timer::Look);
            }
            LockClaim::Unseen(released) => {
                self.call(runner, Purpose::Nothing, Request::Replace(number, released));
                self.begin(runner, LOOK_EVERY);
            }
        }
    }

    /// Returns whether a look has shown that another runner has the lock; none if it failed.
    fn is_taken(&self, runner: usize, answer: &Answer) -> Option<bool> {
        let holder = self.runners[runner].holder.as_ref()?;
        let Answer::Looked(newest) = answer else { return None };
        Some(holder.is_taken(newest.highest, newest.record.as_ref()))
    }

    /// Ends the attempt if another runner has the lock. Returns whether it has.
    fn loses(&mut self, runner: usize, answer: &Answer) -> bool {
        let is_taken = self.is_taken(runner, answer) == Some(true);
        if is_taken {
            self.lose(runner);
        }
        is_taken
    }

    fn lose(&mut self, runner: usize) {
        self.counts.lost += 1;
        self.begin(runner, ROUND);
    }

    /// Hands over what a look has shown that began then; none if it failed.
    fn looked(&mut self, runner: usize, began: Instant, answer: &Answer) -> Option<LockLook> {
        let holder = self.runners[runner].holder.as_mut()?;
        let Answer::Looked(newest) = answer else { return None };
        Some(holder.looked(began, newest.highest, newest.record.as_ref()))
    }

    /// Looks at the lock, for as long as a renewal may take.
    fn look_soon(&mut self, runner: usize, purpose: impl FnOnce(Instant) -> Purpose) {
        let began = self.holder_clock(runner, self.now);
        let Some(holder) = &self.runners[runner].holder else { return };
        let timeout = (holder.renew_every().0 * 1000).min(self.timeout);
        self.call_within(timeout, runner, purpose(began), Request::Look);
    }

    fn is_writing(&self, runner: usize, number: u64) -> bool {
        self.runners[runner].writing.is_some_and(|(of, ..)| of == number)
    }

    fn write(&mut self, runner: usize) {
        let now = self.holder_clock(runner, self.now);
        let it = &mut self.runners[runner];
        let Some(holder) = &mut it.holder else { return };
        let (every, again) = (holder.renew_every(), holder.pause_after_failure());
        let Some(LockWrite { number: lock, record, is_new }) = holder.write(now) else {
            return self.timer(runner, again.0 * 1000, Timer::Renew);
        };
        let number = record.renewals;
        it.writing = Some((number, now, !is_new));
        let request = match is_new {
            true => Request::Put(lock, record),
            false => Request::Replace(lock, record),
        };
        self.call(runner, Purpose::Write(number), request);
        self.timer(runner, every.0 * 1000, Timer::Writing(number));
    }

    /// The write under way has not ended for another third of the age.
    fn waits(&mut self, runner: usize, number: u64, is_answered: bool) {
        let (now, repeats) = (self.holder_clock(runner, self.now), self.repeats);
        let Some(holder) = &mut self.runners[runner].holder else { return };
        let every = holder.renew_every();
        match holder.gives_up(now, repeats, is_answered) {
            true => self.has_written(runner, LockWritten::GivenUp),
            false => self.timer(runner, every.0 * 1000, Timer::Writing(number)),
        }
    }

    fn has_written(&mut self, runner: usize, written: LockWritten) {
        let (now, bug) = (self.holder_clock(runner, self.now), self.bug);
        let it = &mut self.runners[runner];
        let (Some(holder), Some((_, began, is_renewal))) = (&mut it.holder, it.writing.take())
        else {
            return;
        };
        let pause = holder.written(now, written);
        let is_renewed = written == LockWritten::Stored && is_renewal;
        if is_renewed && bug == Some(InjectedBug::LateRenewalProtects) {
            *holder = LockHolder::new(began, holder.number(), holder.record().clone(), it.age);
        }
        self.confirm(runner);
        self.timer(runner, pause.0 * 1000, Timer::Renew);
    }

    /// The lock was taken anew: what was before counts no longer.
    fn retaken(&mut self, runner: usize) {
        let now = self.holder_clock(runner, self.now);
        let Some(holder) = &self.runners[runner].holder else { return };
        let (number, pause) = (holder.number(), holder.pause(now));
        self.counts.retaken += 1;
        self.confirm(runner);
        self.call(runner, Purpose::Nothing, Request::RemoveBelow(number));
        self.timer(runner, pause.0 * 1000, Timer::Renew);
    }

    /// Lets the command run for as long as the lock is confirmed.
    fn confirm(&mut self, runner: usize) {
        let is_long = self.bug == Some(InjectedBug::LongLease);
        let it = &mut self.runners[runner];
        let Some(holder) = &it.holder else { return };
        let longer = if is_long { it.age.0 / 2 } else { 0 };
        it.lease.confirm(holder.runs_until() + Millis(longer));
    }

    fn dump_later(&mut self, runner: usize) {
        let pause = self.draw.between(self.age / 8, self.age / 2);
        self.timer(runner, pause, Timer::Dump);
    }

    fn store_if_own(&mut self, runner: usize, answer: Answer) {
        let Answer::Looked(newest) = answer else { return self.dump_later(runner) };
        let Some(holder) = &self.runners[runner].holder else { return };
        match holder.is_newest(newest.highest, newest.record.as_ref()) {
            true => self.store(runner, newest.listed),
            false => self.begin(runner, ROUND),
        }
    }

    fn store(&mut self, runner: usize, looked: u64) {
        let Some(holder) = &self.runners[runner].holder else { return };
        let number = holder.number();
        self.call(runner, Purpose::Store, Request::Store { number, looked });
    }

    fn remove_later(&mut self, runner: usize) {
        let pause = self.draw.between(self.age / 10, self.age / 3);
        self.timer(runner, pause, Timer::Remove);
    }

    /// Removes something old, after a look if the renewals do not protect the lock.
    fn remove_old(&mut self, runner: usize) {
        let now = self.holder_clock(runner, self.now);
        let Some(holder) = &self.runners[runner].holder else { return };
        match holder.protection(now) {
            LockProtection::Protected => self.send_removal(runner, None),
            LockProtection::Unclear => self.call(runner, Purpose::BeforeRemoval, Request::Look),
            LockProtection::Lost => {}
        }
    }

    fn send_removal(&mut self, runner: usize, looked: Option<u64>) {
        let Some(holder) = &self.runners[runner].holder else { return };
        let (number, began) = (holder.number(), self.now);
        self.call(runner, Purpose::Removal, Request::RemoveOld { number, began, looked });
    }

    /// Gives the lock up, unless the faults are over: then it is to be held.
    fn release(&mut self, runner: usize) {
        if !self.releases || self.now >= self.faults_end {
            return;
        }
        let it = &self.runners[runner];
        let Some(holder) = &it.holder else { return };
        let number = holder.number();
        // What is under way would take the release back.
        if it.writing.is_some() || holder.numbers() != (number..=number) {
            return self.timer(runner, LOOK_EVERY, Timer::Release);
        }
        if let Some(record) = holder.release() {
            self.call(runner, Purpose::Nothing, Request::Replace(number, record));
        }
        let pause = self.draw.between(0, self.age);
        self.begin(runner, pause);
    }
}
