//! `task agent`: takes tasks of a bag and runs them, as long as there are any.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sanderling_command::failure::{Exit, Failure};
use sanderling_command::output::Output;
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_core::checkpoint::{
    BAG_ROUND, BackendAnswers, BagAgent, BagLooks, BagState, BagTask, KeyEvidence, LOOKS_PER_ROUND,
    LockView, Market, RunProgress, TaskProgress, is_task_lost, next_task, runs_again,
};
use sanderling_protocol::{Instant as WallInstant, Millis};
use tokio::sync::Mutex;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::store::{AgentRecord, BagRecord, BagStore, BagWatch, Ended};
use super::{AgentArgs, MarketArg, absent, task_name};
use crate::args::{RunArgs, StorageArgs, TaskName};
use crate::backend::{TaskBackend, hex};
use crate::dump_turns::TurnQueue;
use crate::encryption::drawn;
use crate::generations::key_evidence;
use crate::lock::{LockWatch, TaskLock, steady_now};
use crate::machine_notices::MachineNotices;
use crate::run_record::{MeasuredRates, RunRecord};
use crate::runner;
use crate::supervise::{Followed, wall_clock};
use crate::task_failure::TaskFailure;

/// Pause between two rounds.
const ROUND: Duration = Duration::from_millis(BAG_ROUND.0);

/// Pause between two records of an agent that began and ended no task meanwhile, and between two
/// looks whether its bag is there.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// How long an agent that ends may take to write itself down, at most: as long as a call may.
const LAST_WRITE_WITHIN: Duration = Duration::from_secs(10);

/// How long a look at the other agents holds: about as long as that at a lock. Each costs a request
/// for each agent.
const AGENTS_HOLD: Duration = Duration::from_secs(2);

/// Tasks of a bag whose generations are looked at, at most, to see whether a key is that of the
/// bag: each costs some requests, and one that has begun has a generation.
const KEY_LOOKS_MAX: usize = 8;

/// What an agent's record shows of its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct AgentWork {
    running: Vec<u32>,
    has_room: bool,
}

/// A record that was written, and what became of it.
type WrittenRecord = (AgentWork, Result<(), Failure>);

/// An agent at work.
struct Agent<'a> {
    args: &'a AgentArgs,
    session: &'a Session,
    backend: TaskBackend,
    store: BagStore,
    bag: Arc<BagRecord>,
    id: String,
    since: WallInstant,
    started: Instant,
    /// The locks of tasks that this agent does not run, and what it saw of them.
    watched: BTreeMap<u32, LockWatch>,
    looks: BagLooks,
    running: BTreeSet<u32>,
    /// What their runs share: how many they are, and the turns of their last dumps.
    turns: Arc<TurnQueue>,
    /// The notices of this machine, as each run gets them: none of them is taken here.
    notices: MachineNotices,
    /// Whether there was one in the last round.
    is_noticed: bool,
    /// How fast this machine and the backend are, for all runs.
    rates: MeasuredRates,
    /// How far tasks are, as their runs have recorded it.
    progress: BTreeMap<u32, TaskProgress>,
    runs: JoinSet<(u32, Result<Followed, Failure>)>,
    /// Cancelled when the bag is gone, or the agent has to end: then its runs end.
    ended: CancellationToken,
    finished: u32,
    /// Since when the backend answers.
    answers: BackendAnswers,
    watch: BagWatch,
    /// When the bag was there at last.
    was_there: Option<Instant>,
    /// The record of this agent that is being written: one at most.
    writes: JoinSet<WrittenRecord>,
    /// When this agent had written itself down, and as what.
    written: Option<(Instant, AgentWork)>,
    /// Since when it tries to.
    unwritten_since: Option<Instant>,
    /// When it looked whether an agent on demand is idle, and whether one was.
    on_demand: Option<(Instant, bool)>,
    /// What was printed last about each task.
    noted: BTreeMap<u32, String>,
    /// What was printed about records that cannot be read.
    unread: BTreeSet<String>,
}

/// `task agent`.
///
/// # Errors
/// There is no such bag; the backend cannot be used.
pub(crate) async fn agent(session: Session, args: AgentArgs) -> Result<(), Failure> {
    let notices = args.pace.notice.watch(session.output)?;
    let backend = TaskBackend::open(&session, &args.storage.backend).await?;
    let store = BagStore::of(&backend, &args.bag.0)?;
    let bag = store.record().await?.ok_or_else(|| absent(&args.bag.0, &backend))?;
    store.clear_unfinished(args.storage.lock_age.0);
    store.report_strange(bag.tasks, |strange| session.output.note(strange)).await?;
    if bag.memory_bytes > args.memory.0 {
        let (task, own) = (units::bytes(bag.memory_bytes), units::bytes(args.memory.0));
        let output = session.output;
        output.note(format_args!("a task uses {task}, and --memory is {own}: none starts here"));
    }
    let (id, since) = (hex(&drawn::<8>()), wall_clock());
    let mut agent = Agent {
        args: &args,
        session: &session,
        backend,
        store,
        bag: Arc::new(bag),
        id,
        since,
        started: Instant::now(),
        watched: BTreeMap::new(),
        looks: BagLooks::default(),
        running: BTreeSet::new(),
        turns: Arc::default(),
        notices,
        is_noticed: false,
        rates: Arc::default(),
        progress: BTreeMap::new(),
        runs: JoinSet::new(),
        ended: session.ended.child_token(),
        finished: 0,
        answers: BackendAnswers::from(steady_now()),
        watch: BagWatch::default(),
        was_there: None,
        writes: JoinSet::new(),
        written: None,
        unwritten_since: None,
        on_demand: None,
        noted: BTreeMap::new(),
        unread: BTreeSet::new(),
    };
    agent.work().await
}

impl Agent<'_> {
    async fn work(&mut self) -> Result<(), Failure> {
        loop {
            match self.round().await {
                Ok(true) => break,
                Ok(false) => {}
                Err(failure) if TaskFailure::BagGone.is(&failure) => {
                    self.ended.cancel();
                    while self.runs.join_next().await.is_some() {}
                    return Err(failure);
                }
                // The backend may be there again in the next round; what runs goes on.
                Err(failure) => {
                    self.answers.failed();
                    self.session.output.note(format_args!("{failure}"));
                }
            }
            tokio::select! {
                Some(ended) = self.runs.join_next() => {
                    if let Ok((number, result)) = ended {
                        self.ended(number, result);
                    }
                }
                () = self.session.ended.cancelled() => break,
                () = sleep(ROUND) => {}
            }
        }
        // Runners end their tasks when the session ends, and give their locks up.
        while let Some(ended) = self.runs.join_next().await {
            if let Ok((number, result)) = ended {
                self.ended(number, result);
            }
        }
        self.running.clear();
        let _ = timeout(LAST_WRITE_WITHIN, self.write_end()).await;
        let document = serde_json::json!({ "agent": self.id, "finished": self.finished });
        self.session.output.result(&document, |writer| {
            let count = units::counted(self.finished.into(), "task");
            writeln!(writer, "{count} of {} finished here", self.args.bag.0)
        })
    }

    /// Looks at the bag, and starts what is to be started; returns whether all have ended.
    async fn round(&mut self) -> Result<bool, Failure> {
        self.look_at_notices();
        if self.was_there.is_none_or(|at| at.elapsed() >= WRITE_EVERY) {
            if !self.watch.look(&self.store, &self.bag).await? {
                return Ok(false);
            }
            self.was_there = Some(Instant::now());
            self.answered();
        }
        self.write_down();
        let ended: BTreeSet<u32> = self.store.ended(self.bag.tasks).await?.into_iter().collect();
        self.answered();
        if ended.len() >= self.bag.tasks as usize {
            return Ok(true);
        }
        self.watched.retain(|number, _| !ended.contains(number));
        self.looks.retain(|number| !ended.contains(&number));
        let numbers: Vec<u32> = (1..=self.bag.tasks).filter(|it| !ended.contains(it)).collect();
        let (output, age) = (self.session.output, self.args.storage.lock_age.0);
        let (answers, unread) = (&mut self.answers, &mut self.unread);
        let each = |read: Result<(), &Failure>| {
            answers.answered(steady_now(), age.into());
            if let Err(failure) = read
                && unread.insert(failure.cause.clone())
            {
                output.note(format_args!("{failure}"));
            }
        };
        self.progress = self.store.all_progress(self.bag.tasks, &ended, each).await?;
        if self.may_start() {
            self.start_some(&numbers).await?;
        }
        Ok(false)
    }

    /// Prints when this machine gets a notice, and when that is withdrawn.
    fn look_at_notices(&mut self) {
        let is_noticed = self.notices.is_shown();
        let note = match (self.is_noticed, is_noticed) {
            (false, true) => "this machine has a notice: it starts no task until that is withdrawn",
            (true, false) => "the notice is withdrawn: this machine starts tasks again",
            _ => return,
        };
        self.is_noticed = is_noticed;
        self.session.output.note(note);
    }

    /// Returns whether tasks may be started. A lock is written as the record of an agent is: where
    /// that is not done in the time for which a runner is sure of its lock, none can be renewed.
    fn may_start(&self) -> bool {
        let sure = self.args.storage.lock_age.0 * 2 / 3;
        self.unwritten_since.is_none_or(|since| since.elapsed() < sure)
    }

    /// Starts tasks of those that have not ended, as far as there is room.
    async fn start_some(&mut self, numbers: &[u32]) -> Result<(), Failure> {
        let mut looks = LOOKS_PER_ROUND;
        while self.has_room() && looks > 0 {
            let tasks: Vec<BagTask> = numbers.iter().map(|number| self.seen(*number)).collect();
            let Some(at) = next_task(wall_clock(), &self.own(), &tasks) else { break };
            looks -= 1;
            let number = numbers[at];
            match self.is_free(number).await {
                Ok(is_free) => {
                    if is_free && !self.leaves(number, &tasks[at]).await {
                        self.start(number);
                    }
                }
                // The others have their turn in the next round.
                Err(failure) => return self.pass_over(number, &failure).await,
            }
        }
        Ok(())
    }

    /// Returns whether a task more may run here: none does while the machine has a notice.
    fn has_room(&self) -> bool {
        self.running.len() < self.args.at_once as usize && !self.notices.is_shown()
    }

    /// Returns whether a free task is left to an agent on demand.
    async fn leaves(&mut self, number: u32, task: &BagTask) -> bool {
        let BagAgent { market, margin, .. } = self.own();
        if market != Market::Spot || !task.is_urgent(wall_clock(), margin) {
            return false;
        }
        let now = self.age();
        self.is_on_demand_idle().await && self.looks.leaves_urgent(number, now)
    }

    /// Returns whether an agent on demand can take a task, as far as the records can be read.
    async fn is_on_demand_idle(&mut self) -> bool {
        if let Some((at, is_idle)) = self.on_demand
            && at.elapsed() < AGENTS_HOLD
        {
            return is_idle;
        }
        let agents = self.store.agents(|_| {}).await.unwrap_or_default();
        let now = wall_clock();
        let is_idle = agents.values().any(|agent| agent.is_idle_on_demand(now));
        self.on_demand = Some((Instant::now(), is_idle));
        is_idle
    }

    /// Leaves a task whose place cannot be read. If something else has its place, it has failed.
    async fn pass_over(&mut self, number: u32, failure: &Failure) -> Result<(), Failure> {
        self.leave(number, BagState::Running);
        self.note(number, failure);
        let place = self.backend.of_task(&task_name(&self.args.bag.0, number))?;
        if !place.is_blocked().await {
            return Ok(());
        }
        let failed = Some(format!("{place} is no directory, so that no agent can run the task"));
        let (at, agent, market) = (wall_clock(), self.id.clone(), self.args.market);
        self.store.put_ended(number, &Ended { at, agent, market, failed }).await
    }

    /// Prints what became of a task, unless that was printed before.
    fn note(&mut self, number: u32, failure: &Failure) {
        let text = format!("task {number}: {failure}");
        if self.noted.get(&number) != Some(&text) {
            self.session.output.note(&text);
            self.noted.insert(number, text);
        }
    }

    /// Notes that the backend has answered.
    fn answered(&mut self) {
        self.answers.answered(steady_now(), self.args.storage.lock_age.millis());
    }

    fn own(&self) -> BagAgent {
        let used = self.running.len() as u64 * self.bag.memory_bytes;
        BagAgent {
            market: self.args.market.into(),
            free_bytes: self.args.memory.0.saturating_sub(used),
            margin: self.args.margin.millis(),
        }
    }

    /// Returns a task as far as this agent has seen it. One that was not looked at may be free.
    fn seen(&self, number: u32) -> BagTask {
        let state = match self.running.contains(&number) {
            true => BagState::Running,
            false => self.looks.state(number, self.age()),
        };
        let worked = self.progress.get(&number).map_or(0, |it| it.worked.0);
        BagTask {
            state,
            memory_bytes: self.bag.memory_bytes,
            deadline: self.bag.deadline,
            left: Millis(self.bag.time.0.saturating_sub(worked)),
        }
    }

    /// Looks whether no runner has a task.
    async fn is_free(&mut self, number: u32) -> Result<bool, Failure> {
        let task = self.backend.of_task(&task_name(&self.args.bag.0, number))?;
        let watch = self.watched.entry(number).or_insert_with(LockWatch::new);
        watch.take_over(self.answers);
        let looked = watch.look(&task, self.args.storage.lock_age.0).await;
        // The next look takes over what this agent has: it must not forget the failure.
        let view = looked.inspect_err(|_| self.answers.failed())?;
        self.answered();
        let state = if view == LockView::Free { BagState::Free } else { BagState::Running };
        self.leave(number, state);
        Ok(state == BagState::Free)
    }

    /// Returns how long this agent runs.
    fn age(&self) -> Millis {
        self.started.elapsed().into()
    }

    fn start(&mut self, number: u32) {
        let name = task_name(&self.args.bag.0, number);
        let command = self.bag.command.iter().map(OsString::from).collect();
        let args = RunArgs {
            name: Some(TaskName(name)),
            storage: self.args.storage.clone(),
            pace: self.args.pace.clone(),
            state: None,
            command,
        };
        // What a task prints is its own; its runner adds nothing.
        let mut session = self.session.clone();
        session.output = Output { is_json: false, is_quiet: true };
        session.ended = self.ended.clone();
        let record = EndRecord {
            store: self.store.clone(),
            backend: self.backend.clone(),
            storage: self.args.storage.clone(),
            bag_name: self.args.bag.0.clone(),
            session: session.clone(),
            bag: Arc::clone(&self.bag),
            number,
            retries: self.args.retries,
            agent: self.id.clone(),
            market: self.args.market,
            turns: Arc::clone(&self.turns),
            notices: self.notices.clone(),
            rates: Arc::clone(&self.rates),
            progress: Mutex::default(),
        };
        self.running.insert(number);
        self.count_runs();
        // What was seen of the lock counts: the age of a dead runner's lock passes once.
        let watch = self.watched.remove(&number).unwrap_or_else(LockWatch::new);
        self.runs.spawn(async move {
            (number, runner::run_recorded(session, args, watch, Some(&record)).await)
        });
    }

    /// Notes how many tasks run: the next one that begins allows for as many locks at the end.
    fn count_runs(&self) {
        self.turns.run(self.running.len() as u32);
    }

    /// Begins to write this agent down, if its tasks are others now, or after some time. Nothing
    /// waits for that: below a durable directory a replacement takes as long as the store.
    fn write_down(&mut self) {
        while let Some(written) = self.writes.try_join_next() {
            self.written_down(written);
        }
        let has_memory = self.bag.memory_bytes <= self.own().free_bytes;
        let has_room = self.has_room() && has_memory;
        let work = AgentWork { running: self.running.iter().copied().collect(), has_room };
        let is_written =
            |(at, before): &(Instant, AgentWork)| at.elapsed() < WRITE_EVERY && *before == work;
        if !self.writes.is_empty() || self.written.as_ref().is_some_and(is_written) {
            return;
        }
        self.unwritten_since.get_or_insert_with(Instant::now);
        let (store, id, record) = (self.store.clone(), self.id.clone(), self.record(&work));
        self.writes.spawn(async move { (work, store.put_agent(&id, &record).await) });
    }

    /// Takes note of a record that was written, or could not be.
    fn written_down(&mut self, written: Result<WrittenRecord, JoinError>) {
        match written {
            Ok((work, Ok(()))) => {
                self.written = Some((Instant::now(), work));
                self.unwritten_since = None;
                self.answered();
            }
            Ok((_, Err(failure))) => {
                self.answers.failed();
                if self.unread.insert(failure.cause.clone()) {
                    self.session.output.note(format_args!("{failure}"));
                }
            }
            Err(_) => {}
        }
    }

    /// Writes that this agent ends.
    async fn write_end(&mut self) -> Result<(), Failure> {
        // One that is on its way would take this one back.
        while self.writes.join_next().await.is_some() {}
        let record = self.record(&AgentWork::default());
        self.store.put_agent(&self.id, &record).await
    }

    fn record(&self, work: &AgentWork) -> AgentRecord {
        AgentRecord {
            market: self.args.market,
            price: self.args.price,
            since: self.since,
            seen: wall_clock(),
            running: work.running.clone(),
            has_room: work.has_room,
            ran: Some(self.age()),
        }
    }

    /// Takes note of a run that ended.
    fn ended(&mut self, number: u32, result: Result<Followed, Failure>) {
        self.running.remove(&number);
        self.count_runs();
        match result {
            Ok(Followed::Ended) if !self.session.ended.is_cancelled() => self.finished += 1,
            // It was ended here, and goes on elsewhere.
            Ok(_) => {}
            // Another agent was faster.
            Err(failure) if TaskFailure::Taken.is(&failure) => {
                self.leave(number, BagState::Running)
            }
            Err(failure) if TaskFailure::Ended.is(&failure) => self.leave(number, BagState::Done),
            Err(failure)
                if TaskFailure::OtherMachine.is(&failure)
                    || TaskFailure::OtherRelease.is(&failure) =>
            {
                self.note(number, &failure);
                let now = self.age();
                self.looks.refused(number, now);
            }
            Err(failure) => {
                if TaskFailure::Failed.is(&failure) {
                    self.noted.remove(&number);
                }
                self.note(number, &failure);
                // It may be gone.
                self.was_there = None;
                self.leave(number, BagState::Running);
            }
        }
    }

    /// Takes a task for what it is now, until it is looked at again.
    fn leave(&mut self, number: u32, state: BagState) {
        let now = self.age();
        self.looks.note(number, state, now);
    }
}

/// What a run of a bag's task sees and records while it has the lock: so no agent can start the
/// task between its end and the record of it, nor after.
struct EndRecord {
    store: BagStore,
    /// That of all tasks.
    backend: TaskBackend,
    storage: StorageArgs,
    bag_name: String,
    session: Session,
    bag: Arc<BagRecord>,
    number: u32,
    retries: u32,
    agent: String,
    market: MarketArg,
    turns: Arc<TurnQueue>,
    notices: MachineNotices,
    rates: MeasuredRates,
    /// How far the task was before this run, and is now; nothing before that was read.
    progress: Mutex<Option<RunProgress>>,
}

impl RunRecord for EndRecord {
    fn number(&self) -> u32 {
        self.number
    }

    fn turns(&self) -> Arc<TurnQueue> {
        Arc::clone(&self.turns)
    }

    fn notices(&self) -> MachineNotices {
        self.notices.clone()
    }

    fn rates(&self) -> MeasuredRates {
        Arc::clone(&self.rates)
    }

    fn has_ended(&self) -> BoxFuture<'_, Result<bool, Failure>> {
        Box::pin(async move {
            if !self.store.has(&self.bag).await? {
                return Err(self.store.removed());
            }
            self.store.has_ended(self.number).await
        })
    }

    fn stored<'a>(
        &'a self,
        lock: &'a TaskLock,
        is_restored: bool,
        work: Millis,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let mut held = self.progress.lock().await;
            let progress = self.run_progress(&mut held).await?.stored(is_restored, work);
            // Another bag may have the name by now. The lock is looked at last of all, as this
            // process may have been stopped for long before.
            if self.store.has(&self.bag).await? && lock.may_remove().await? {
                self.store.put_progress(self.number, progress).await?;
            }
            Ok(())
        })
    }

    fn record<'a>(
        &'a self,
        lock: &'a TaskLock,
        failure: Option<Failure>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let is_end = match &failure {
                Some(failure) if TaskFailure::NoGeneration.is(failure) => self.is_lost().await,
                Some(failure) => TaskFailure::Failed.is(failure),
                None => true,
            };
            let mut watch = BagWatch::default();
            // While the backend is away it tries again.
            while is_end && !self.session.ended.is_cancelled() {
                match self.write(lock, &mut watch, failure.as_ref()).await {
                    Ok(true) => break,
                    Err(failure)
                        if TaskFailure::Taken.is(&failure) || TaskFailure::BagGone.is(&failure) =>
                    {
                        return Err(failure);
                    }
                    Ok(false) | Err(_) => sleep(ROUND).await,
                }
            }
            Ok(())
        })
    }
}

impl EndRecord {
    /// Returns how far the task is. What was recorded before this run is read once: what the run
    /// writes itself would count twice. A record that is damaged counts as none.
    ///
    /// # Errors
    /// The backend cannot be read.
    async fn run_progress<'a>(
        &self,
        held: &'a mut Option<RunProgress>,
    ) -> Result<&'a mut RunProgress, Failure> {
        let progress = match *held {
            Some(progress) => progress,
            None => match self.store.progress(self.number).await {
                Err(failure) if TaskFailure::BagDamaged.is(&failure) => {
                    RunProgress::new(TaskProgress::default())
                }
                before => RunProgress::new(before?),
            },
        };
        Ok(held.insert(progress))
    }

    /// Returns whether the task has failed, as none of its generations can be restored. While the
    /// key may be the wrong one, or nothing can be read, it has not.
    async fn is_lost(&self) -> bool {
        let Ok(evidence) = self.evidence(self.number).await else { return false };
        is_task_lost(&evidence, false) || is_task_lost(&evidence, true) && self.fits_another().await
    }

    /// Returns whether the key is that of another task of the bag.
    async fn fits_another(&self) -> bool {
        let begun = self.store.begun(self.bag.tasks).await.unwrap_or_default();
        for number in begun.into_iter().filter(|it| *it != self.number).take(KEY_LOOKS_MAX) {
            let shown = self.evidence(number).await.unwrap_or_default();
            if shown.contains(&KeyEvidence::Fits) {
                return true;
            }
        }
        false
    }

    /// Returns what the generations of a task show about the key.
    async fn evidence(&self, number: u32) -> Result<Vec<KeyEvidence>, Failure> {
        let name = task_name(&self.bag_name, number);
        let backend = self.backend.of_task(&name)?;
        let generations = runner::opened(&backend, &name, &self.storage, false).await?;
        Ok(key_evidence(&generations.look().await?))
    }

    /// Writes the end of the task, or one more failure if it is to be tried again; returns false
    /// if the bag is not there for now.
    ///
    /// # Errors
    /// Another runner has the lock, the bag was removed, another one has its name, or the backend
    /// cannot be used.
    async fn write(
        &self,
        lock: &TaskLock,
        watch: &mut BagWatch,
        failure: Option<&Failure>,
    ) -> Result<bool, Failure> {
        if !watch.look(&self.store, &self.bag).await? {
            return Ok(false);
        }
        // Last of all, as this process may have been stopped for long before.
        if !lock.is_held().await? {
            let cause = format!("another agent has taken task {}", self.number);
            return Err(TaskFailure::Taken.failure(Exit::Failure, cause));
        }
        if failure.is_some() {
            let mut held = self.progress.lock().await;
            let progress = self.run_progress(&mut held).await?.failed();
            if runs_again(progress.failures, self.retries) {
                return self.store.put_progress(self.number, progress).await.map(|()| true);
            }
        }
        let failed = failure.map(|failure| failure.cause.clone());
        let (agent, market) = (self.agent.clone(), self.market);
        let ended = Ended { at: wall_clock(), agent, market, failed };
        self.store.put_ended(self.number, &ended).await.map(|()| true)
    }
}
