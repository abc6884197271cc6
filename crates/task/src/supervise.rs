//! The runner of a task that runs: its checkpoints, and how it ends. When one is taken, and what
//! follows, `TaskSupervisor` of `core::checkpoint` decides.

mod watch;

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::mem::take;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use sanderling_command::failure::{Exit, Failure};
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_core::checkpoint::{
    CheckpointManifest, DriverRecord, DumpEnd, DumpExpectation, DumpInterval, DumpRates, DumpTimes,
    GivenUpGenerations, RunStart, RunnerEnd, RunnerInput, RunnerView, RunnerWork, TaskSupervisor,
};
use sanderling_protocol::{Instant as SteadyInstant, Instant as WallInstant, Millis};
use sanderling_transport::available_bytes;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};

use crate::args::{IntervalArg, PaceArgs};
use crate::criu::CriuDriver;
use crate::driver::{Captured, CheckpointDriver, DirectoryState, TaskHandle};
use crate::dump_policy::DumpPolicy;
use crate::dump_turns::{DumpTicket, TurnQueue};
use crate::generations::{
    CheckedGeneration, DumpCost, Generations, RemovedGenerations, StoredGeneration, found,
};
use crate::hook::{Hook, handles_usr1};
use crate::lock::{TaskLock, steady_now};
use crate::machine_notices::MachineNotices;
use crate::namespaces::TaskEnd;
use crate::reserved_memory::DUMP_MEMORY;
use crate::run_log::{CheckpointLine, RunLog};
use crate::run_record::RunRecord;
use crate::running::{END_WITHIN, HURRIED_END_WITHIN, RunningTask, TAKEN_END_WITHIN};
use crate::state::left_in;
use crate::task_failure::TaskFailure;

use watch::{TaskWatch, machine_age};

pub(crate) use sanderling_core::checkpoint::MachineLives as Lives;

/// How long a removal of old generations may hold the next checkpoint up. The next one goes on with
/// what is left. Chosen, not measured.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The same of a look at all manifests before a removal, after a dump that has failed: many may
/// wait for the store of a durable directory. Chosen, not measured.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The same of the record of the work that a generation has: the next one has it, too. As long as
/// [`COLLECT_TIMEOUT`].
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);

/// When the store of a durable directory is looked at again that old generations wait for. Chosen:
/// few looks within [`COLLECT_TIMEOUT`].
const STORE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long after a signal to its task the same signal comes to the runner, at most: that of
/// `command::session`, in which two signals are one (`SAME_SIGNAL_WINDOW`).
const SIGNAL_WINDOW: Duration = Duration::from_millis(500);

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
    pub(crate) notices: MachineNotices,
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
    /// What dumps took that count from the begin on.
    pub(crate) times: DumpTimes,
    /// The same of each dump from its turn on.
    pub(crate) times_in_turn: DumpTimes,
    /// What records the work of stored generations.
    pub(crate) run_record: Option<&'a dyn RunRecord>,
    pub(crate) run: RunTimes,
    /// How machines end, if that is known better than by a mean.
    pub(crate) lives: Option<Lives>,
    pub(crate) checkpoints: u64,
    /// Numbers of generations that may be written yet from the begin on, in rising order.
    pub(crate) given_up: Vec<u64>,
    /// From when on it prints, once, that no driver can take a checkpoint.
    pub(crate) notes_undriven_at: Option<Instant>,
    /// Where what checkpoints take is recorded.
    pub(crate) log: Option<RunLog>,
    /// What it has printed that it left out of checkpoints.
    pub(crate) left_out: BTreeSet<PathBuf>,
    /// The generations of which it has printed that they cannot be removed.
    pub(crate) stuck: BTreeSet<u64>,
}

/// The begin of a run.
pub(crate) struct RunTimes {
    /// When the command started, or went on after a restore, by [`steady_now`].
    began: SteadyInstant,
    is_restored: bool,
}

impl RunTimes {
    /// Returns that of a command that has started now.
    pub(crate) fn new(is_restored: bool) -> Self {
        Self { began: steady_now(), is_restored }
    }
}

/// A process that waits, as one does whose state goes straight to a slow file system.
struct Stopped(Pid);

impl Stopped {
    /// Stops a task of the baseline whose state is stored from a directory. CRIU stops one itself.
    fn waiting(policy: DumpPolicy, state: &Captured, task: &TaskHandle) -> Option<Self> {
        let is_hook = matches!(state, Captured::Directory(_));
        let pid = Pid::from_raw(i32::try_from(task.pid).ok()?)?;
        if policy != DumpPolicy::Baseline || !is_hook {
            return None;
        }
        // Only what was stopped here goes on when this is dropped.
        kill_process(pid, Signal::STOP).ok().map(|()| Self(pid))
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
    /// The runner had to end, or has handed the task over at a notice, and has ended it: another
    /// one may go on with it.
    Stopped,
}

/// What follows from the dumps of a run.
struct RunDumps {
    /// The newest generation of the task, on top of which the next one is dumped.
    newest: Option<CheckpointManifest>,
    given_up: GivenUpGenerations,
}

impl RunDumps {
    /// Returns the number of the newest generation that is there, if it is newer than the one on
    /// top of which the next one would be dumped.
    fn newer(&self, looked: &[CheckedGeneration]) -> Option<u64> {
        let number =
            looked.iter().find_map(|(number, stored)| stored.is_ok().then_some(*number))?;
        let newest = self.newest.as_ref().map_or(0, |newest| newest.generation);
        (number > newest).then_some(number)
    }

    /// Takes note of the generations that are there: one that is whole is stored, although its dump
    /// failed or was given up. `newer` is the newest one, if it is another one than before.
    fn seen(&mut self, looked: &[CheckedGeneration], newer: Option<CheckpointManifest>) {
        for (number, _) in looked.iter().filter(|(_, stored)| stored.is_ok()) {
            self.given_up.stored(*number);
        }
        if newer.is_some() {
            self.newest = newer;
        }
    }
}

/// A generation that was just stored.
struct StoredDump {
    manifest: CheckpointManifest,
    cost: DumpCost,
    /// How long the dump took, without the wait for its turn.
    took: Duration,
    /// The same from its turn on.
    in_turn: Duration,
    /// For how long the task stood still.
    stood: Duration,
    /// Which work the generation has: that until then.
    worked_until: SteadyInstant,
}

/// What became of a checkpoint: nothing if the task cannot give its state yet. The inner error is
/// that of a store to which something was sent.
type TakenCheckpoint = Result<Option<Result<StoredDump, Failure>>, Failure>;

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
        task.expect_running()?;
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

impl<'a> Runner<'a> {
    /// Follows a task to its end.
    ///
    /// # Errors
    /// The task failed, or another runner has taken it.
    pub(crate) async fn follow(
        &mut self,
        lock: &TaskLock,
        task: RunningTask,
        restored: Option<CheckpointManifest>,
    ) -> Result<Followed, Failure> {
        let number = restored.as_ref().map(|manifest| manifest.generation);
        let mut watch = self.watch(lock, task, number);
        let given_up = GivenUpGenerations::new(take(&mut self.given_up));
        let mut dumps = RunDumps { newest: restored, given_up };
        loop {
            match watch.work {
                RunnerWork::Wait => {
                    let _: Option<()> = watch.attend(pending()).await;
                }
                RunnerWork::Dump => self.dump(&mut watch, &mut dumps).await,
                RunnerWork::Collect => self.tidy(&mut watch, &dumps).await,
                RunnerWork::MakeRoom => self.make_room(&mut watch, &mut dumps).await,
                RunnerWork::LookAtLock => {
                    if let Some(seen) = watch.attend(lock.is_held()).await {
                        let is_lost = matches!(seen, Ok(false));
                        watch.hand_over(RunnerInput::LockSeen { is_lost });
                    }
                }
                RunnerWork::LookAtGenerations => {
                    if watch.attend(self.look_again(&mut dumps)).await.is_some() {
                        watch.hand_over(RunnerInput::GenerationsSeen);
                    }
                }
                RunnerWork::AwaitStop => {
                    let stopped = timeout(SIGNAL_WINDOW, self.session.ended.cancelled()).await;
                    watch.hand_over(RunnerInput::StopAwaited { is_stopped: stopped.is_ok() });
                }
                RunnerWork::End(end) => return self.end(watch, end, number).await,
            }
        }
    }

    /// Begins to watch a task. `newest` is the generation that it was restored from.
    fn watch<'b>(
        &mut self,
        lock: &'b TaskLock,
        task: RunningTask,
        newest: Option<u64>,
    ) -> TaskWatch<'b>
    where
        'a: 'b,
    {
        TaskWatch {
            session: self.session,
            lock,
            handle: task.handle(),
            task,
            machine: self.supervisor(newest.is_some()),
            work: RunnerWork::Wait,
            notices: take(&mut self.triggers.notices),
            takes_sigterm: self.triggers.takes_sigterm,
            sigterm_within: self.pace.notice.notice_deadline.0,
            hands_over: self.run_record.is_some(),
            driver: self.pace.driver.driver,
            turns: Arc::clone(&self.triggers.turns),
            turn: None,
            notice: None,
            failure: None,
            newest,
            prints_stored: true,
            task_end: None,
        }
    }

    /// Returns the decisions about a run that begins.
    fn supervisor(&mut self, has_generation: bool) -> TaskSupervisor {
        let (now, machine_age) = (steady_now(), machine_age());
        let interval = match (self.pace.interval, self.lives.take()) {
            (IntervalArg::Fixed(span), _) => DumpInterval::Fixed(span.millis()),
            (IntervalArg::Auto, Some(lives)) => DumpInterval::Lives(lives),
            (IntervalArg::Auto, None) => DumpInterval::MeanLife(self.pace.mean_life.millis()),
        };
        let (times, times_in_turn) = (take(&mut self.times), take(&mut self.times_in_turn));
        let undriven_from = self.notes_undriven_at.filter(|_| self.drivers.criu.is_none());
        let start = RunStart {
            interval,
            expectation: DumpExpectation::new(times, times_in_turn, self.triggers.rates),
            has_generation,
            unsaved_since: self.run.began,
            undriven_from: undriven_from.map(|at| {
                let left = at.saturating_duration_since(Instant::now());
                now + Millis::from(left)
            }),
        };
        let view = RunnerView { now, machine_age, ..RunnerView::default() };
        TaskSupervisor::new(&view, start)
    }

    /// Takes a checkpoint, and hands over what became of it, unless it is given up.
    async fn dump(&mut self, watch: &mut TaskWatch<'_>, dumps: &mut RunDumps) {
        let (lock, task, turn) = (watch.lock, watch.handle.clone(), watch.turn());
        let taken = watch.attend(self.checkpoint(lock, &task, dumps, &turn)).await;
        let end = match taken {
            None => return,
            Some(Ok(Some(Ok(stored)))) => return self.stored(stored, watch, dumps),
            Some(Ok(Some(Err(failure)))) => watch.failed(failure, true),
            Some(Ok(None)) => DumpEnd::NotYet,
            Some(Err(failure)) => {
                // What the backend is full of may keep the lock from being confirmed. After a
                // notice the time is short.
                let makes_room = task.lease.is_over() && !turn.is_last();
                watch.failed(failure, makes_room)
            }
        };
        watch.hand_over(RunnerInput::Dumped(end));
    }

    /// Takes a checkpoint.
    async fn checkpoint(
        &mut self,
        lock: &TaskLock,
        task: &TaskHandle,
        dumps: &mut RunDumps,
        turn: &DumpTicket,
    ) -> TakenCheckpoint {
        let newest = dumps.newest.as_ref();
        let state_bytes =
            newest.map_or_else(|| task.resident_bytes(), |newest| newest.stream_bytes);
        let bytes = self.generations.pack_bytes(state_bytes);
        let reserve = move || DUMP_MEMORY.reserve(available_bytes, bytes);
        // Before the state is requested: it would be old when it is stored.
        turn.wait_for_memory(reserve).await;
        if turn.is_last() {
            // No other dump follows it: the command may go on before the deadline.
            task.lease.until(false).await;
        }
        let held_up = turn.waited();
        let waited_since = || turn.waited().saturating_sub(held_up);
        let (started, worked_until) = (Instant::now(), steady_now());
        let look = async {
            let from = Instant::now();
            turn.come(reserve).await?;
            let packing = self.generations.packing(dumps.newest.as_ref()).await?;
            Ok((packing, PackLook { from, until: Instant::now() }))
        };
        let captured = self.drivers.capture(task, look).await?;
        let Some((state, (packing, look))) = captured else { return Ok(None) };
        self.note_left_out(&state);
        let number = self.take_number(dumps)?;
        self.empty_slot(lock).await?;
        let stopped = Stopped::waiting(self.pace.policy, &state, task);
        // One that is alone begins however little there is.
        let memory = turn.take_memory().unwrap_or_else(|| DUMP_MEMORY.take(bytes));
        let head = (number, wall_clock());
        let dumped = self.generations.dump(state, packing, head, lock, memory).await;
        let waited = stopped.is_some();
        drop(stopped);
        let (manifest, cost) = match dumped {
            Ok(dumped) => dumped,
            Err(failure) => return Ok(Some(Err(failure))),
        };
        turn.stored();
        let elapsed = started.elapsed();
        let took = elapsed.saturating_sub(waited_since());
        let in_turn = look.from.elapsed().saturating_sub(waited_since());
        let stood = match &manifest.driver {
            DriverRecord::Criu(_) => cost.free_at.saturating_duration_since(look.until),
            DriverRecord::Hook => look.stood(started, waited.then_some(elapsed)),
        };
        Ok(Some(Ok(StoredDump { manifest, cost, took, in_turn, stood, worked_until })))
    }

    /// Takes note of a generation that is stored, and hands that over.
    fn stored(&mut self, stored: StoredDump, watch: &mut TaskWatch<'_>, dumps: &mut RunDumps) {
        let StoredDump { manifest, cost, took, in_turn, stood, worked_until } = stored;
        if let Err(failure) = self.record(&manifest, &cost, stood, took) {
            self.session.output.note(format_args!("not recorded: {failure}"));
        }
        let number = manifest.generation;
        self.checkpoints += 1;
        self.looked.insert(0, (number, Ok(StoredGeneration::of(&manifest))));
        match self.pace.policy {
            DumpPolicy::Sanderling => dumps.given_up.stored(number),
            DumpPolicy::Baseline => dumps.given_up.clear(),
        }
        watch.newest = Some(number);
        // The log of an agent has those of all its tasks.
        let prints = std::mem::replace(&mut watch.prints_stored, self.run_record.is_none());
        let (took_millis, in_turn) = (Millis::from(took), Millis::from(in_turn));
        let end = DumpEnd::Stored { took: took_millis, in_turn, worked_until };
        watch.hand_over(RunnerInput::Dumped(end));
        if prints {
            self.note_taken(&manifest, took, watch.interval());
        }
        dumps.newest = Some(manifest);
    }

    fn note_taken(&self, manifest: &CheckpointManifest, took: Duration, next: Duration) {
        let driver = match &manifest.driver {
            DriverRecord::Hook => "the hook".to_owned(),
            DriverRecord::Criu(record) => format!("CRIU {}", record.version),
        };
        let number = manifest.generation;
        self.session.output.note(format_args!(
            "generation {number}: {} of state, {} new, taken by {driver} in {}, next in {}",
            units::bytes(manifest.stream_bytes),
            units::bytes(manifest.added_bytes),
            units::duration(took),
            units::duration(next),
        ));
    }

    /// Does what follows a generation that is stored, and hands over that it has ended.
    async fn tidy(&mut self, watch: &mut TaskWatch<'_>, dumps: &RunDumps) {
        let (lock, work) = (watch.lock, watch.machine.unsaved_since().since(self.run.began));
        let tidied = async {
            self.record_work(lock, work).await;
            // The baseline has emptied a slot before the dump.
            if self.pace.policy == DumpPolicy::Sanderling {
                self.collect(dumps.given_up.numbers(), lock).await;
            }
        };
        if watch.attend(tidied).await.is_some() {
            watch.hand_over(RunnerInput::Tidied);
        }
    }

    /// Records the work that the newest generation has.
    async fn record_work(&self, lock: &TaskLock, work: Millis) {
        let Some(record) = self.run_record else { return };
        let recorded = record.stored(lock, self.run.is_restored, work);
        if let Ok(Err(failure)) = timeout(RECORD_TIMEOUT, recorded).await {
            self.session.output.note(format_args!("the work is not recorded: {failure}"));
        }
    }

    /// Makes room after a dump that has failed, and hands over that it has ended.
    async fn make_room(&mut self, watch: &mut TaskWatch<'_>, dumps: &mut RunDumps) {
        let lock = watch.lock;
        let made = watch.attend(self.remove_unneeded(lock, dumps)).await;
        watch.newest = dumps.newest.as_ref().map(|manifest| manifest.generation);
        if made.is_some() {
            watch.hand_over(RunnerInput::Tidied);
        }
    }

    /// Removes what the store may be full of, after a dump has failed, or could not begin because
    /// the lock is not confirmed: packs without a name, and generations that stayed while the store
    /// of a durable directory had none that is newer. Nothing is removed if the backend cannot be
    /// looked at: the manifest of the dump may have been written all the same.
    async fn remove_unneeded(&mut self, lock: &TaskLock, dumps: &mut RunDumps) {
        let look = async {
            let looked = self.generations.look().await?;
            let newer = match dumps.newer(&looked) {
                Some(number) => Some(self.generations.manifest(number).await?),
                None => None,
            };
            Ok::<_, Failure>((looked, newer))
        };
        let Ok(Ok((looked, newer))) = timeout(LOOK_TIMEOUT, look).await else { return };
        // As of a directory whose file system is not mounted now: it may be back in a moment.
        if looked.is_empty() && dumps.newest.is_some() {
            return;
        }
        self.looked = looked;
        dumps.seen(&self.looked, newer);
        let found = found(&self.looked);
        let _ = timeout(COLLECT_TIMEOUT, self.generations.remove_unnamed(&found, lock)).await;
        if self.pace.policy == DumpPolicy::Sanderling {
            self.collect(&[], lock).await;
        }
    }

    /// Removes what is old, only now that the new generation stands. Generations that were given up
    /// go first: nothing else names their packs.
    async fn collect(&mut self, given_up: &[u64], lock: &TaskLock) {
        let keep = self.pace.keep as usize;
        let collected = async {
            loop {
                let found = found(&self.looked);
                let removed = self.generations.collect(&found, keep, given_up, lock).await?;
                self.removed(&removed);
                if !removed.plan.is_held_back {
                    return Ok(());
                }
                sleep(STORE_POLL_INTERVAL).await;
            }
        };
        let collected: Result<Result<(), Failure>, _> = timeout(COLLECT_TIMEOUT, collected).await;
        match collected {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                self.session.output.note(format_args!("old generations stay: {failure}"));
            }
            // The next checkpoint is worth more.
            Err(_) => self.session.output.note("old generations stay: the backend is slow"),
        }
    }

    /// Takes note of what was removed, and prints once for each generation that cannot be.
    fn removed(&mut self, removed: &RemovedGenerations) {
        self.looked.retain(|(number, _)| !removed.plan.generations.contains(number));
        for (number, failure) in &removed.stuck {
            if self.stuck.insert(*number) {
                let output = self.session.output;
                output.note(format_args!("generation {number} cannot be removed: {failure}"));
            }
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
            let found = found(&self.looked);
            let removed = self.generations.collect(&found, keep, &[], lock).await?;
            self.removed(&removed);
        }
        Ok(())
    }

    /// Returns the number of the next generation, which counts as given up until it is stored. The
    /// manifest of a dump that was given up, or that failed, may be written yet.
    fn take_number(&self, dumps: &mut RunDumps) -> Result<u64, Failure> {
        let highest = dumps.given_up.highest(self.looked.iter().map(|(number, _)| *number));
        let number = self.generations.backend.number_after("generations", highest)?;
        dumps.given_up.begin(number);
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

    /// Takes note of generations that a runner has written after it lost the lock.
    async fn look_again(&mut self, dumps: &mut RunDumps) {
        dumps.given_up.overtaken();
        // What cannot be read now is met again by the next checkpoint.
        if let Ok(looked) = self.generations.look().await {
            self.looked = looked;
        }
    }

    /// Ends a run that began with a generation.
    ///
    /// # Errors
    /// The task failed, or another runner has taken it.
    async fn end(
        &self,
        mut watch: TaskWatch<'_>,
        end: RunnerEnd,
        restored: Option<u64>,
    ) -> Result<Followed, Failure> {
        match end {
            RunnerEnd::TaskEnded => {
                let ended = watch.task_end.take().expect("the end of the task was handed over");
                self.report(ended?, restored, watch.newest)?;
                Ok(Followed::Ended)
            }
            RunnerEnd::Stopped => Ok(Followed::Stopped),
            RunnerEnd::EndTask => {
                self.end_task(&mut watch.task).await;
                Ok(Followed::Stopped)
            }
            RunnerEnd::Lost => Err(self.lost(&mut watch.task).await),
        }
    }

    /// Ends the task, and sooner after a second signal.
    async fn end_task(&self, task: &mut RunningTask) {
        let has_ended = {
            let ended = task.end(END_WITHIN);
            tokio::select! {
                biased;
                () = self.session.hurried.cancelled() => false,
                () = ended => true,
            }
        };
        if !has_ended {
            task.end(HURRIED_END_WITHIN).await;
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

/// Returns this machine's time.
pub(crate) fn wall_clock() -> WallInstant {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallInstant(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_that_is_seen_whole_counts_although_its_dump_failed() {
        let manifest = |generation| CheckpointManifest {
            task: "count".to_owned(),
            generation,
            taken_at: WallInstant(0),
            driver: DriverRecord::Hook,
            stream_bytes: 0,
            added_bytes: 0,
            packs: Vec::new(),
            chunks: Vec::new(),
            lock: 1,
        };
        let stored = |number| (number, Ok(StoredGeneration::of(&manifest(number))));
        let damaged = TaskFailure::DamagedGeneration.failure(Exit::Failure, "cut".to_owned());
        let given_up = GivenUpGenerations::new(vec![2, 3]);
        let mut dumps = RunDumps { newest: Some(manifest(1)), given_up };
        let looked = [(3, Err(damaged)), stored(2), stored(1)];
        assert_eq!(dumps.newer(&looked), Some(2));
        dumps.seen(&looked, Some(manifest(2)));
        assert_eq!(dumps.newer(&looked), None);
        assert_eq!(dumps.newest.map(|newest| newest.generation), Some(2));
        assert_eq!(dumps.given_up.numbers(), [3]);
    }
}
