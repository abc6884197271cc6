//! The runner of a task that runs: when checkpoints are taken, and how it ends.

mod event;
mod under_way;

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use sanderling_command::failure::{Exit, Failure};
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_core::checkpoint::{
    AgedIntervals, CheckpointManifest, DriverRecord, DumpRates, DumpTimes, NoticeChoice,
};
use sanderling_core::preemption::Model;
use sanderling_protocol::{Instant as SteadyInstant, Instant as WallInstant, Millis};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::args::{IntervalArg, PaceArgs};
use crate::cell::TaskEnd;
use crate::criu::CriuDriver;
use crate::driver::{Captured, CheckpointDriver, DirectoryState, TaskHandle};
use crate::driver_args::DriverArg;
use crate::dump_policy::DumpPolicy;
use crate::dump_turns::{Turn, TurnQueue};
use crate::generations::{CheckedGeneration, DumpCost, Generations, found};
use crate::hook::{Hook, handles_usr1};
use crate::lock::{TaskLock, steady_now};
use crate::machine_notices::MachineNotice;
use crate::run_log::{CheckpointLine, RunLog};
use crate::run_record::RunRecord;
use crate::running::{END_WITHIN, RunningTask, TAKEN_END_WITHIN};
use crate::state::left_in;
use crate::task_failure::TaskFailure;

use event::{RunnerEvent, TakenCheckpoint};
use under_way::{DumpExpectation, UnderWay, interrupted};

/// Pause before a task that does not handle the signal yet is looked at again.
const NOT_YET: Duration = Duration::from_millis(200);

/// How long a removal of old generations may hold the next checkpoint up.
const COLLECT_WITHIN: Duration = Duration::from_secs(2);

/// The same of the record of the work that a generation has: the next one has it, too.
const RECORD_WITHIN: Duration = Duration::from_secs(2);

/// How long after a signal to its task the same signal comes to the runner, at most.
const SIGNALS_WITHIN: Duration = Duration::from_millis(500);

/// Generations that were given up and whose manifests are removed again and again: one that a store
/// writes late is there after the first time.
const GIVEN_UP_MAX: usize = 8;

/// What a runner did.
#[derive(Debug, Serialize)]
pub(crate) struct RunReport {
    pub(crate) name: String,
    pub(crate) restored: Option<u64>,
    pub(crate) checkpoints: u64,
    pub(crate) generation: Option<u64>,
}

/// The drivers of one task.
pub(crate) struct Drivers {
    pub(crate) hook: Hook,
    pub(crate) criu: Option<CriuDriver>,
    /// Whether the hook is used where the task handles its signal although there is CRIU.
    pub(crate) prefers_hook: bool,
}

/// What triggers a checkpoint beside the interval.
pub(crate) struct Triggers {
    pub(crate) notices: mpsc::Receiver<MachineNotice>,
    /// Whether SIGTERM is a notice.
    pub(crate) takes_sigterm: bool,
    /// What is expected of a dump before one was measured.
    pub(crate) rates: Option<DumpRates>,
    /// The turns of last dumps, which all runners of this process share.
    pub(crate) turns: Arc<TurnQueue>,
}

/// A task that runs, with what its checkpoints need.
pub(crate) struct Runner<'a> {
    pub(crate) session: &'a Session,
    pub(crate) generations: Generations,
    pub(crate) drivers: Drivers,
    pub(crate) triggers: Triggers,
    pub(crate) pace: &'a PaceArgs,
    pub(crate) looked: Vec<CheckedGeneration>,
    pub(crate) times: DumpTimes,
    /// The same of each dump from its turn on.
    pub(crate) times_in_turn: DumpTimes,
    /// What records the work of stored generations.
    pub(crate) run_record: Option<&'a dyn RunRecord>,
    pub(crate) run: RunTimes,
    /// How machines end, if that is known better than by a mean.
    pub(crate) lives: Option<Lives>,
    pub(crate) checkpoints: u64,
    /// Numbers of generations that this runner began and that may be written yet, in rising order.
    pub(crate) given_up: Vec<u64>,
    /// From when on it prints that no driver can take a checkpoint; `None` after it has.
    pub(crate) notes_undriven_at: Option<Instant>,
    /// Where what checkpoints take is recorded.
    pub(crate) log: Option<RunLog>,
    /// What it has printed that it left out of checkpoints.
    pub(crate) left_out: BTreeSet<PathBuf>,
}

/// When the command of a run has worked, by [`steady_now`].
pub(crate) struct RunTimes {
    /// When it started, or went on after a restore.
    began: SteadyInstant,
    /// Since when it works without a checkpoint.
    unsaved_since: SteadyInstant,
    is_restored: bool,
}

impl RunTimes {
    /// Returns those of a command that has started now.
    pub(crate) fn new(is_restored: bool) -> Self {
        let now = steady_now();
        Self { began: now, unsaved_since: now, is_restored }
    }
}

/// How machines end, and the intervals that follow.
pub(crate) struct Lives {
    model: Model,
    computed: Option<AgedIntervals>,
}

impl Lives {
    pub(crate) const fn new(model: Model) -> Self {
        Self { model, computed: None }
    }

    /// Returns the interval for this machine, as old as it is now.
    fn interval(&mut self, dump: Millis) -> Millis {
        let held = self.computed.take().filter(|it| it.hold_for(dump));
        let intervals = held.unwrap_or_else(|| AgedIntervals::of(&self.model, dump));
        self.computed.insert(intervals).at(machine_age())
    }
}

/// A process that waits, as one does whose state goes straight to a slow file system.
struct Stopped(Pid);

impl Stopped {
    /// Stops a task of the baseline whose state is stored from a directory. CRIU stops one itself.
    fn waiting(policy: DumpPolicy, state: &Captured, task: &TaskHandle) -> Option<Self> {
        let is_hook = matches!(state, Captured::Directory(_));
        let pid = Pid::from_raw(i32::try_from(task.pid).ok()?)?;
        (policy == DumpPolicy::Baseline && is_hook && kill_process(pid, Signal::STOP).is_ok())
            .then_some(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// How a runner came to the end of a task that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Followed {
    /// The task has ended.
    Ended,
    /// The runner had to end, and has ended the task: another one may go on with it.
    Stopped,
}

/// When the backend was looked at before a dump. The task did not stand still then.
struct PackLook {
    from: Instant,
    until: Instant,
}

impl PackLook {
    /// Returns how long a task with the hook stood still, whose dump was begun then: until its
    /// state was there, or for as long as the dump took, if it waited for that.
    fn stood(&self, started: Instant, waited: Option<Duration>) -> Duration {
        match waited {
            Some(took) => took.saturating_sub(self.until - self.from),
            None => self.from - started,
        }
    }
}

impl Drivers {
    async fn capture<P>(
        &self,
        task: &TaskHandle,
        prepare: impl Future<Output = Result<P, Failure>>,
    ) -> Result<Option<(Captured, P)>, Failure> {
        match &self.criu {
            Some(criu) if !(self.prefers_hook && handles_usr1(task.pid)) => {
                let captured = criu.capture(task, prepare).await?;
                Ok(captured.map(|(dump, prepared)| (Captured::Images(dump), prepared)))
            }
            _ => {
                let captured = self.hook.capture(task, prepare).await?;
                Ok(captured.map(|(state, prepared)| (Captured::Directory(state), prepared)))
            }
        }
    }
}

impl Runner<'_> {
    /// Follows a task to its end.
    ///
    /// # Errors
    /// The task failed, or another runner has taken it.
    pub(crate) async fn follow(
        &mut self,
        lock: &TaskLock,
        mut task: RunningTask,
        restored: Option<CheckpointManifest>,
    ) -> Result<Followed, Failure> {
        let number = restored.as_ref().map(|manifest| manifest.generation);
        let handle = task.handle();
        let mut base = restored;
        let mut next = Instant::now() + self.interval();
        // The notice that a checkpoint is taken for now.
        let mut last = None;
        loop {
            match self.event(lock, &mut task, &handle, base.as_ref(), (next, last.take())).await {
                RunnerEvent::Ended(end) => {
                    let is_success = end.as_ref().is_ok_and(|end| end.code == Some(0));
                    if !is_success && self.ends_too().await {
                        return Ok(Followed::Stopped);
                    }
                    self.report(end?, number, base.map(|it| it.generation))?;
                    return Ok(Followed::Ended);
                }
                RunnerEvent::Interrupted => {
                    task.end(END_WITHIN).await;
                    return Ok(Followed::Stopped);
                }
                RunnerEvent::LockLost => return Err(self.lost(&mut task).await),
                RunnerEvent::Notice(notice, taken) => {
                    if let Some(taken) = taken {
                        let settled = self.settle(taken, lock, &mut task, &mut base).await?;
                        next = Instant::now() + settled;
                    }
                    if self.dumps_at(&notice, &handle, base.as_ref()) {
                        last = Some(notice);
                    } else if notice.is_sigterm {
                        task.end(END_WITHIN).await;
                        return Ok(Followed::Stopped);
                    }
                }
                RunnerEvent::LastCheckpoint(notice, taken) => {
                    if self.settle_last(taken, lock, &mut task, &mut base).await? {
                        next = Instant::now() + self.interval();
                    }
                    if notice.is_sigterm {
                        task.end(END_WITHIN).await;
                        return Ok(Followed::Stopped);
                    }
                }
                RunnerEvent::Refused(notice, takes) => {
                    self.note_none_begun(&notice, takes, base.as_ref());
                    next = Instant::now() + self.interval();
                    if notice.is_sigterm {
                        task.end(END_WITHIN).await;
                        return Ok(Followed::Stopped);
                    }
                }
                RunnerEvent::Checkpoint(taken) => {
                    let settled = self.settle(taken, lock, &mut task, &mut base).await?;
                    next = Instant::now() + settled;
                }
            }
        }
    }

    /// Returns whether this runner has to end, too, after its task has failed. A service manager
    /// and a terminal send their signal to all processes at once: that is no failure of the task.
    async fn ends_too(&self) -> bool {
        timeout(SIGNALS_WITHIN, self.session.ended.cancelled()).await.is_ok()
    }

    /// Takes note of what became of a checkpoint; returns when the next one is taken.
    ///
    /// # Errors
    /// Another runner has taken the task.
    async fn settle(
        &mut self,
        taken: TakenCheckpoint,
        lock: &TaskLock,
        task: &mut RunningTask,
        base: &mut Option<CheckpointManifest>,
    ) -> Result<Duration, Failure> {
        match taken {
            Ok(Some(manifest)) => *base = Some(manifest),
            Ok(None) => {
                self.note_undriven();
                return Ok(self.interval().min(NOT_YET));
            }
            Err(failure) if TaskFailure::Taken.is(&failure) => {
                if matches!(lock.is_held().await, Ok(false)) {
                    return Err(self.lost(task).await);
                }
                self.go_on_after(&failure).await;
            }
            // The task goes on, and the next checkpoint may succeed.
            Err(failure) => {
                self.session.output.note(format_args!("no checkpoint: {failure}"));
            }
        }
        Ok(self.interval())
    }

    /// Takes note of what became of the checkpoint that was begun for a notice; returns whether
    /// there is one.
    ///
    /// # Errors
    /// Another runner has taken the task.
    async fn settle_last(
        &mut self,
        taken: Option<TakenCheckpoint>,
        lock: &TaskLock,
        task: &mut RunningTask,
        base: &mut Option<CheckpointManifest>,
    ) -> Result<bool, Failure> {
        let (output, last) = (self.session.output, counting(base.as_ref()));
        match taken {
            Some(Ok(Some(manifest))) => {
                *base = Some(manifest);
                return Ok(true);
            }
            Some(Ok(None)) => output.note(format_args!("the task cannot give its state: {last}")),
            Some(Err(failure)) => {
                output.note(format_args!("no checkpoint: {failure}; {last}"));
                if TaskFailure::Taken.is(&failure) && matches!(lock.is_held().await, Ok(false)) {
                    return Err(self.lost(task).await);
                }
            }
            None => output.note(format_args!("the dump did not end in time: {last}")),
        }
        Ok(false)
    }

    /// Prints once why a task gets no checkpoints that neither handles the signal nor has CRIU.
    fn note_undriven(&mut self) {
        let is_late = self.notes_undriven_at.is_some_and(|from| Instant::now() >= from);
        if !is_late || self.drivers.criu.is_some() {
            return;
        }
        self.notes_undriven_at = None;
        let why = match self.pace.driver.driver {
            DriverArg::Hook => "",
            DriverArg::Auto | DriverArg::Criu => {
                ": CRIU cannot be used here, `sanderling doctor` prints why"
            }
        };
        let output = self.session.output;
        output.note(format_args!("checkpoints wait until the task handles SIGUSR1{why}"));
    }

    /// Waits for the next event; a checkpoint is begun at the time `next`, or now for the notice
    /// `last`.
    async fn event(
        &mut self,
        lock: &TaskLock,
        task: &mut RunningTask,
        handle: &TaskHandle,
        base: Option<&CheckpointManifest>,
        (next, last): (Instant, Option<MachineNotice>),
    ) -> RunnerEvent {
        let (session, sigterm_within) = (self.session, self.pace.notice.notice_deadline.0);
        let expected = self.expected(handle);
        // Taken apart: a checkpoint needs the rest of the runner meanwhile.
        let (_, closed) = mpsc::channel(1);
        let mut notices = std::mem::replace(&mut self.triggers.notices, closed);
        let takes_sigterm = self.triggers.takes_sigterm;
        let turn = self.triggers.turns.turn();
        let (begun, is_last) = (OnceLock::new(), last.is_some());
        let event = {
            let mut checkpoint = pin!(async {
                if !is_last {
                    sleep_until(next).await;
                }
                let _ = begun.set(Instant::now());
                self.checkpoint(lock, handle, base, &turn).await
            });
            let noticed = async {
                match notices.recv().await {
                    Some(notice) => notice,
                    None => std::future::pending().await,
                }
            };
            let sigterm = || RunnerEvent::Notice(MachineNotice::of_sigterm(sigterm_within), None);
            let event = match last {
                Some(notice) => RunnerEvent::Notice(notice, None),
                None => tokio::select! {
                    biased;
                    is_notice = interrupted(session, takes_sigterm) => match is_notice {
                        true => sigterm(),
                        false => RunnerEvent::Interrupted,
                    },
                    () = lock.lost.cancelled() => RunnerEvent::LockLost,
                    end = task.wait() => RunnerEvent::Ended(end),
                    notice = noticed => RunnerEvent::Notice(notice, None),
                    taken = &mut checkpoint => RunnerEvent::Checkpoint(taken),
                },
            };
            let begun = if is_last { Some(Instant::now()) } else { begun.get().copied() };
            match (event, begun) {
                (RunnerEvent::Notice(notice, _), Some(begun)) => {
                    let under_way = UnderWay {
                        session,
                        expected,
                        begun,
                        dump: checkpoint,
                        turn: &turn,
                        lock,
                        task,
                        takes_sigterm,
                        sigterm_within,
                    };
                    match is_last {
                        true => under_way.last(notice).await,
                        false => under_way.go_on(notice).await,
                    }
                }
                (event, _) => event,
            }
        };
        self.triggers.notices = notices;
        event
    }

    /// Returns whether a last checkpoint is taken at a notice: if it ends in time.
    fn dumps_at(
        &self,
        notice: &MachineNotice,
        handle: &TaskHandle,
        base: Option<&CheckpointManifest>,
    ) -> bool {
        let left = Millis::from(notice.left());
        let takes = self.expected(handle).takes();
        if NoticeChoice::of(takes, left) == NoticeChoice::KeepLast {
            self.note_none_begun(notice, takes, base);
            return false;
        }
        let takes = units::millis(takes);
        self.session.output.note(format_args!("{notice}, a dump takes {takes}: it is taken now"));
        true
    }

    fn note_none_begun(
        &self,
        notice: &MachineNotice,
        takes: Millis,
        base: Option<&CheckpointManifest>,
    ) {
        let (takes, last) = (units::millis(takes), counting(base));
        let output = self.session.output;
        output.note(format_args!("{notice}, a dump takes {takes}: none is begun, {last}"));
    }

    /// Returns what is known about how long the next dump takes.
    fn expected(&self, task: &TaskHandle) -> DumpExpectation {
        DumpExpectation {
            measured: self.times.slowest(),
            in_turn: self.times_in_turn.slowest(),
            unsaved_since: self.run.unsaved_since,
            rates: self.triggers.rates,
            assumed: self.times.expected(),
            task: task.clone(),
        }
    }

    /// Takes a checkpoint; returns nothing if the task cannot give one yet.
    async fn checkpoint(
        &mut self,
        lock: &TaskLock,
        task: &TaskHandle,
        base: Option<&CheckpointManifest>,
        turn: &Turn,
    ) -> TakenCheckpoint {
        let (started, worked_until) = (Instant::now(), steady_now());
        let look = async {
            let from = Instant::now();
            turn.come().await?;
            let packing = self.generations.packing(base).await?;
            Ok((packing, PackLook { from, until: Instant::now() }))
        };
        let captured = self.drivers.capture(task, look).await?;
        let Some((state, (packing, look))) = captured else { return Ok(None) };
        self.note_left_out(&state);
        let number = self.take_number()?;
        self.empty_slot(lock).await?;
        let stopped = Stopped::waiting(self.pace.policy, &state, task);
        let dumped = self.generations.dump(state, packing, (number, wall_clock()), lock).await;
        let waited = stopped.is_some();
        drop(stopped);
        if dumped.as_ref().is_err_and(|failure| !TaskFailure::Taken.is(failure)) {
            self.make_room(lock).await;
        }
        let (manifest, cost) = dumped?;
        turn.stored();
        let elapsed = started.elapsed();
        let took = elapsed.saturating_sub(turn.waited());
        let in_turn = look.from.elapsed().saturating_sub(turn.waited());
        let stood = match &manifest.driver {
            DriverRecord::Criu(_) => cost.free_at.saturating_duration_since(look.until),
            DriverRecord::Hook => look.stood(started, waited.then_some(elapsed)),
        };
        if let Err(failure) = self.record(&manifest, &cost, stood, took) {
            self.session.output.note(format_args!("not recorded: {failure}"));
        }
        self.times.add(took.into(), base.is_none());
        self.times_in_turn.add(in_turn.into(), base.is_none());
        self.run.unsaved_since = worked_until;
        self.checkpoints += 1;
        self.looked.insert(0, (number, Ok(manifest.clone())));
        self.note_taken(&manifest, took);
        self.record_work(lock).await;
        if self.pace.policy == DumpPolicy::Baseline {
            self.given_up.clear();
        } else {
            self.collect(number, lock).await;
        }
        Ok(Some(manifest))
    }

    fn note_taken(&mut self, manifest: &CheckpointManifest, took: Duration) {
        let driver = match &manifest.driver {
            DriverRecord::Hook => "the hook".to_owned(),
            DriverRecord::Criu(record) => format!("CRIU {}", record.version),
        };
        let (number, next) = (manifest.generation, self.interval());
        self.session.output.note(format_args!(
            "generation {number}: {} of state, {} new, taken by {driver} in {}, next in {}",
            units::bytes(manifest.stream_bytes),
            units::bytes(manifest.added_bytes),
            units::duration(took),
            units::duration(next),
        ));
    }

    /// Records the work that the newest generation has.
    async fn record_work(&self, lock: &TaskLock) {
        let Some(record) = self.run_record else { return };
        let work = self.run.unsaved_since.since(self.run.began);
        let recorded = record.stored(lock, self.run.is_restored, work);
        if let Ok(Err(failure)) = timeout(RECORD_WITHIN, recorded).await {
            self.session.output.note(format_args!("the work is not recorded: {failure}"));
        }
    }

    /// Removes what the store may be full of, after a dump has failed: packs without a name, and
    /// generations that stayed while the store of a durable directory had none that is newer.
    async fn make_room(&mut self, lock: &TaskLock) {
        let _ = timeout(COLLECT_WITHIN, self.generations.remove_unnamed(lock)).await;
        if self.pace.policy == DumpPolicy::Sanderling {
            self.remove_old(&[], lock).await;
        }
    }

    /// Removes what is old, only now that the new generation stands.
    async fn collect(&mut self, number: u64, lock: &TaskLock) {
        // Generations that were given up go first: nothing else names their packs.
        self.given_up.retain(|it| *it != number);
        self.given_up.drain(..self.given_up.len().saturating_sub(GIVEN_UP_MAX));
        let given_up = self.given_up.clone();
        self.remove_old(&given_up, lock).await;
    }

    async fn remove_old(&mut self, given_up: &[u64], lock: &TaskLock) {
        let (found, keep) = (found(&self.looked), self.pace.keep as usize);
        let collected = self.generations.collect(&found, keep, given_up, lock);
        match timeout(COLLECT_WITHIN, collected).await {
            Ok(Ok(plan)) => self.looked.retain(|(number, _)| !plan.generations.contains(number)),
            Ok(Err(failure)) => {
                self.session.output.note(format_args!("old generations stay: {failure}"));
            }
            // The next checkpoint is worth more. Below a durable directory removals wait for the
            // store; what was removed so far need not be removed again.
            Err(_) => self.session.output.note("old generations stay: the backend is slow"),
        }
    }

    /// Prints once what the directory of a state has that is no part of it.
    fn note_left_out(&mut self, state: &Captured) {
        let Captured::Directory(DirectoryState(directory)) = state else { return };
        // A directory that cannot be read has no checkpoint, and that is printed.
        for path in left_in(directory).unwrap_or_default() {
            let name = path.display().to_string();
            if self.left_out.insert(path) {
                let why = "a restore unpacks under such names, and removes what has one";
                self.session.output.note(format_args!("{name} is left out of checkpoints: {why}"));
            }
        }
    }

    /// Empties the slot that the baseline writes next, as the public code of HADS does before.
    async fn empty_slot(&mut self, lock: &TaskLock) -> Result<(), Failure> {
        if self.pace.policy == DumpPolicy::Baseline {
            let keep = self.pace.keep as usize - 1;
            let plan = self.generations.collect(&found(&self.looked), keep, &[], lock).await?;
            self.looked.retain(|(number, _)| !plan.generations.contains(number));
        }
        Ok(())
    }

    /// Returns the number of the next generation, which counts as given up until it is stored. The
    /// manifest of a dump that was given up, or that failed, may be written yet.
    fn take_number(&mut self) -> Result<u64, Failure> {
        let newest = self.looked.iter().map(|(number, _)| *number).max().unwrap_or(0);
        let highest = newest.max(self.given_up.last().copied().unwrap_or(0));
        let number = self.generations.backend.number_after("generations", highest)?;
        self.given_up.push(number);
        Ok(number)
    }

    /// Records a checkpoint that took so long, and for which the task stood still so long: with the
    /// hook until its state was there, with CRIU until that had read all of it.
    fn record(
        &self,
        manifest: &CheckpointManifest,
        cost: &DumpCost,
        stood: Duration,
        took: Duration,
    ) -> Result<(), Failure> {
        let Some(log) = &self.log else { return Ok(()) };
        let driver = match &manifest.driver {
            DriverRecord::Hook => "hook",
            DriverRecord::Criu(_) => "criu",
        };
        log.checkpoint(&CheckpointLine {
            task: manifest.task.clone(),
            generation: manifest.generation,
            driver,
            frozen_seconds: stood.as_secs_f64(),
            dump_seconds: took.as_secs_f64(),
            state_bytes: manifest.stream_bytes,
            stored_bytes: manifest.added_bytes,
            packing: cost.packing,
        })
    }

    fn interval(&mut self) -> Duration {
        match self.pace.interval {
            IntervalArg::Fixed(span) => span.0,
            IntervalArg::Auto => {
                let Millis(millis) = match &mut self.lives {
                    Some(lives) => lives.interval(self.times.expected()),
                    None => self.times.interval(self.pace.mean_life.millis()),
                };
                Duration::from_millis(millis)
            }
        }
    }

    /// Takes note of generations that a runner has written after it lost the lock. That one ends as
    /// soon as it finds it; this one has the lock, and goes on after their numbers.
    async fn go_on_after(&mut self, failure: &Failure) {
        self.session.output.note(format_args!("no checkpoint: {}", failure.cause));
        self.given_up.pop();
        // What cannot be read now is met again by the next checkpoint.
        if let Ok(looked) = self.generations.look().await {
            self.looked = looked;
        }
    }

    async fn lost(&self, task: &mut RunningTask) -> Failure {
        task.end(TAKEN_END_WITHIN).await;
        let name = &self.generations.task;
        let cause = format!("another runner has taken the task {name}; this one has ended it here");
        TaskFailure::Taken.failure(Exit::Failure, cause).next("sanderling task ls")
    }

    fn report(
        &self,
        end: TaskEnd,
        restored: Option<u64>,
        generation: Option<u64>,
    ) -> Result<(), Failure> {
        if end.code != Some(0) {
            let how = match (end.code, end.signal) {
                (Some(code), _) => format!("with exit code {code}"),
                (_, Some(signal)) => format!("by signal {signal}"),
                _ => "in an unknown way".to_owned(),
            };
            let task = &self.generations.task;
            let cause = format!("the task {task} ended {how}");
            let next = "the same again: it starts from the newest checkpoint";
            return Err(TaskFailure::Failed.failure(Exit::Failure, cause).next(next));
        }
        let name = self.generations.task.clone();
        let report = RunReport { name, restored, checkpoints: self.checkpoints, generation };
        self.session.output.result(&report, |_| Ok(()))
    }
}

/// Returns which generation a restart goes on from, in words.
fn counting(base: Option<&CheckpointManifest>) -> String {
    base.map_or_else(
        || "and there is no generation".to_owned(),
        |base| format!("generation {} counts", base.generation),
    )
}

/// Returns this machine's time.
pub(crate) fn wall_clock() -> WallInstant {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallInstant(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Returns how long this machine runs already.
fn machine_age() -> Millis {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime.split_whitespace().next().and_then(|it| it.parse::<f64>().ok());
    Millis((seconds.unwrap_or(0.0) * 1000.0) as u64)
}
