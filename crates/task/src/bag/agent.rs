//! `task agent`: takes tasks of a bag and runs them, as long as there are any. What it does next,
//! `BagAgent` of `core::checkpoint` decides.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;

use sanderling_command::failure::{Failure, FailureKind};
use sanderling_command::output::Output;
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_core::checkpoint::{
    AgentEnd, AgentInput, AgentLoad, AgentNote, AgentOutput, AgentSettings, AgentView, AgentWork,
    BackendAnswers, BagAgent, LAST_RECORD_WITHIN, TaskRunEnd,
};
use sanderling_protocol::{Instant as SteadyInstant, Instant as WallInstant};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::end_record::{EndRecord, end_of};
use super::store::{AgentRecord, BagRecord, BagStore, BagWatch, Ended, task_name};
use super::{AgentArgs, absent};
use crate::args::{RunArgs, TaskName};
use crate::backend::{TaskBackend, hex};
use crate::dump_turns::TurnQueue;
use crate::encryption::drawn;
use crate::lock::{LockWatch, steady_now};
use crate::machine_notices::MachineNotices;
use crate::run_record::MeasuredRates;
use crate::runner;
use crate::supervise::{Followed, wall_clock};
use crate::task_failure::TaskFailure;

/// An agent at work.
struct Agent<'a> {
    args: &'a AgentArgs,
    session: &'a Session,
    backend: TaskBackend,
    store: BagStore,
    bag: Arc<BagRecord>,
    id: String,
    since: WallInstant,
    machine: BagAgent,
    /// The locks of tasks that this agent does not run, and what it saw of them.
    watched: BTreeMap<u32, LockWatch>,
    /// Since when the backend answers.
    answers: BackendAnswers,
    watch: BagWatch,
    /// What its runs share: how many they are, and the turns of their last dumps.
    turns: Arc<TurnQueue>,
    /// The notices of this machine, as each run gets them: none of them is taken here.
    notices: MachineNotices,
    /// How fast this machine and the backend are, for all runs.
    rates: MeasuredRates,
    runs: JoinSet<(u32, Result<Followed, Failure>)>,
    /// Cancelled when the bag is gone, or the agent has to end: then its runs end.
    ended: CancellationToken,
    /// The record of this agent that is being written: one at most.
    writes: JoinSet<Result<(), Failure>>,
    /// The failure of what was handed over last.
    failure: Option<Failure>,
    printed: PrintedFailures,
}

/// What an agent has printed about failures, so that it prints none of them again and again.
#[derive(Debug, Default)]
struct PrintedFailures {
    /// What was printed last about each task.
    tasks: BTreeMap<u32, String>,
    /// The causes that were printed about records that cannot be read or written.
    records: BTreeSet<String>,
    /// The kinds of failures that were printed since a round has read all that it needs.
    work: Vec<FailureKind>,
}

impl PrintedFailures {
    /// Prints what became of a task, unless that was printed before.
    fn task(&mut self, output: Output, number: u32, failure: &Failure) {
        let text = format!("task {number}: {failure}");
        if self.tasks.get(&number) != Some(&text) {
            output.note(&text);
            self.tasks.insert(number, text);
        }
    }

    /// Prints why the work of a round has failed, once for each kind of failure.
    fn work(&mut self, output: Output, failure: &Failure) {
        if !self.work.contains(&failure.kind) {
            output.note(format_args!("{failure}"));
            self.work.push(failure.kind.clone());
        }
    }

    /// Prints that a round has read all that it needs.
    fn works_again(&mut self, output: Output) {
        output.note("the bag can be read again");
        self.work.clear();
    }

    /// Prints what became of a record, unless its cause was printed before.
    fn record(&mut self, output: Output, failure: &Failure) {
        if self.records.insert(failure.cause.clone()) {
            output.note(format_args!("{failure}"));
        }
    }
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
    if let Err(failure) = store.make_directories().await {
        session.output.note(format_args!("{failure}"));
    }
    store.clear_unfinished(args.storage.lock_age.0);
    store.report_strange(bag.tasks, |strange| session.output.note(strange)).await?;
    let settings = AgentSettings {
        bag: bag.terms(),
        market: args.market.into(),
        memory_bytes: args.memory.0,
        at_once: args.at_once,
        margin: args.margin.millis(),
        lock_age: args.storage.lock_age.millis(),
    };
    let view = view(&session, &notices);
    let agent = Agent {
        args: &args,
        session: &session,
        backend,
        store,
        bag: Arc::new(bag),
        id: hex(&drawn::<8>()),
        since: view.wall,
        machine: BagAgent::new(&view, settings),
        watched: BTreeMap::new(),
        answers: BackendAnswers::from(view.now),
        watch: BagWatch::default(),
        turns: Arc::default(),
        notices,
        rates: Arc::default(),
        runs: JoinSet::new(),
        ended: session.ended.child_token(),
        writes: JoinSet::new(),
        failure: None,
        printed: PrintedFailures::default(),
    };
    agent.work().await
}

/// Returns what an agent reads when it hands something over.
fn view(session: &Session, notices: &MachineNotices) -> AgentView {
    AgentView {
        now: steady_now(),
        wall: wall_clock(),
        is_noticed: notices.is_shown(),
        has_to_end: session.ended.is_cancelled(),
    }
}

impl Agent<'_> {
    /// Does what the machine decides, until it ends.
    async fn work(mut self) -> Result<(), Failure> {
        self.put_out();
        loop {
            let done = match self.machine.work() {
                AgentWork::Wait { until } => {
                    let (input, failure) = self.wait(until).await;
                    self.take_written();
                    self.hand_over(input, failure);
                    continue;
                }
                AgentWork::LookAtBag => self.look_at_bag().await,
                AgentWork::ListEnded => self.list_ended().await,
                AgentWork::ListBegun => self.list_begun().await,
                AgentWork::ReadProgress => self.read_progress().await,
                AgentWork::LookAtLock(number) => self.look_at_lock(number).await,
                AgentWork::ReadAgents => Ok(self.read_agents().await),
                AgentWork::LookAtPlace(number) => self.look_at_place(number).await,
                AgentWork::RecordBlocked(number) => self.record_blocked(number).await,
                AgentWork::End(AgentEnd::Over) => return self.end().await,
                AgentWork::End(AgentEnd::BagGone) => return Err(self.end_without_bag().await),
            };
            self.take_written();
            match done {
                Ok(input) => self.hand_over(input, None),
                Err(failure) => {
                    self.answers.failed();
                    let is_gone = TaskFailure::BagGone.is(&failure);
                    let input = if is_gone { AgentInput::BagGone } else { AgentInput::Failed };
                    self.hand_over(input, Some(failure));
                }
            }
        }
    }

    /// Waits until a run ends, the agent has to end, or the time is over.
    async fn wait(&mut self, until: SteadyInstant) -> (AgentInput, Option<Failure>) {
        tokio::select! {
            Some(ended) = self.runs.join_next() => match ended {
                Ok((number, result)) => run_ended(number, result),
                Err(_) => (AgentInput::Waited, None),
            },
            () = self.session.ended.cancelled() => (AgentInput::Stop, None),
            () = sleep(steady_now().until(until).into()) => (AgentInput::Waited, None),
        }
    }

    async fn look_at_bag(&mut self) -> Result<AgentInput, Failure> {
        let is_there = self.watch.look(&self.store, &self.bag).await?;
        if is_there {
            self.answered();
        }
        Ok(AgentInput::BagSeen { is_there })
    }

    async fn list_ended(&mut self) -> Result<AgentInput, Failure> {
        let ended: BTreeSet<u32> = self.store.ended(self.bag.tasks).await?.into_iter().collect();
        self.answered();
        self.watched.retain(|number, _| !ended.contains(number));
        Ok(AgentInput::EndedListed(ended))
    }

    async fn list_begun(&mut self) -> Result<AgentInput, Failure> {
        let begun = self.store.begun(self.bag.tasks).await?.into_iter().collect();
        self.answered();
        Ok(AgentInput::BegunListed(begun))
    }

    async fn read_progress(&mut self) -> Result<AgentInput, Failure> {
        let (output, age) = (self.session.output, self.args.storage.lock_age.millis());
        let (answers, printed) = (&mut self.answers, &mut self.printed);
        let each = |read: Result<(), &Failure>| {
            answers.answered(steady_now(), age);
            if let Err(failure) = read {
                printed.record(output, failure);
            }
        };
        let progress = self.store.progress_of(self.machine.next_reads(), each).await?;
        Ok(AgentInput::ProgressRead(progress))
    }

    /// Looks at the lock of a task. The look takes over what this agent has seen of the backend,
    /// failures included.
    async fn look_at_lock(&mut self, number: u32) -> Result<AgentInput, Failure> {
        let task = self.backend.of_task(&task_name(&self.args.bag.0, number))?;
        let watch = self.watched.entry(number).or_insert_with(LockWatch::new);
        watch.take_over(self.answers);
        let lock = watch.look(&task, self.args.storage.lock_age.0).await?;
        self.answered();
        Ok(AgentInput::LockSeen(lock))
    }

    /// Reads the records of all agents. If that fails, none is seen.
    async fn read_agents(&self) -> AgentInput {
        let agents = self.store.agents(|_| {}).await.unwrap_or_default();
        AgentInput::AgentsRead(agents.values().map(AgentRecord::status).collect())
    }

    async fn look_at_place(&self, number: u32) -> Result<AgentInput, Failure> {
        let place = self.backend.of_task(&task_name(&self.args.bag.0, number))?;
        Ok(AgentInput::PlaceSeen { is_blocked: place.is_blocked().await })
    }

    async fn record_blocked(&self, number: u32) -> Result<AgentInput, Failure> {
        let place = self.backend.of_task(&task_name(&self.args.bag.0, number))?;
        let failed = Some(format!("{place} is no directory, so that no agent can run the task"));
        let (at, agent, market) = (wall_clock(), self.id.clone(), self.args.market);
        self.store.put_ended(&self.bag, number, &Ended { at, agent, market, failed }).await?;
        Ok(AgentInput::BlockedRecorded)
    }

    /// Notes that the backend has answered.
    fn answered(&mut self) {
        self.answers.answered(steady_now(), self.args.storage.lock_age.millis());
    }

    /// Hands over what became of the record of this agent, if it is written or could not be.
    fn take_written(&mut self) {
        while let Some(written) = self.writes.try_join_next() {
            let failure = match written {
                Ok(Ok(())) => {
                    self.answered();
                    self.hand_over(AgentInput::RecordEnded { is_stored: true }, None);
                    continue;
                }
                Ok(Err(failure)) => {
                    self.answers.failed();
                    Some(failure)
                }
                Err(_) => None,
            };
            self.hand_over(AgentInput::RecordEnded { is_stored: false }, failure);
        }
    }

    /// Hands over what has happened, and does what follows. `failure` is why, if something failed.
    fn hand_over(&mut self, input: AgentInput, failure: Option<Failure>) {
        self.failure = failure;
        self.machine.handle(&view(self.session, &self.notices), input);
        self.put_out();
    }

    /// Does what the machine puts out.
    fn put_out(&mut self) {
        // The next task that begins allows for as many locks at the end.
        self.turns.run(self.machine.running());
        while let Some(output) = self.machine.poll_output() {
            match output {
                AgentOutput::Note(note) => self.print(note),
                AgentOutput::Start(number) => self.start(number),
                AgentOutput::WriteRecord(load) => self.write_record(&load),
            }
        }
    }

    fn print(&mut self, note: AgentNote) {
        let (output, printed) = (self.session.output, &mut self.printed);
        match (note, &self.failure) {
            (AgentNote::TooLarge, _) => {
                let task = units::bytes(self.bag.memory_bytes);
                let own = units::bytes(self.args.memory.0);
                output.note(format_args!(
                    "a task uses {task}, and --memory is {own}: none starts here"
                ));
            }
            (AgentNote::Noticed, _) => {
                output.note("this machine has a notice: it starts no task until that is withdrawn")
            }
            (AgentNote::Withdrawn, _) => {
                output.note("the notice is withdrawn: this machine starts tasks again");
            }
            (AgentNote::WorkFailed, Some(failure)) => printed.work(output, failure),
            (AgentNote::WorksAgain, _) => printed.works_again(output),
            (AgentNote::Unrecorded, Some(failure)) => printed.record(output, failure),
            (AgentNote::TaskFailed(number), Some(failure)) => {
                printed.task(output, number, failure);
            }
            (AgentNote::CommandFailed(number), Some(failure)) => {
                printed.tasks.remove(&number);
                printed.task(output, number, failure);
            }
            (_, None) => {}
        }
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
        let mut session = self.session.clone();
        session.output = session.output.of_task(number);
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
        // What was seen of the lock counts: the age of a dead runner's lock passes once.
        let watch = self.watched.remove(&number).unwrap_or_else(LockWatch::new);
        self.runs.spawn(async move {
            (number, runner::run_recorded(session, args, watch, Some(&record)).await)
        });
    }

    /// Begins to write the record of this agent.
    fn write_record(&mut self, load: &AgentLoad) {
        let (store, id, record) = (self.store.clone(), self.id.clone(), self.record(load));
        let bag = Arc::clone(&self.bag);
        self.writes.spawn(async move { store.put_agent(&bag, &id, &record).await });
    }

    fn record(&self, load: &AgentLoad) -> AgentRecord {
        AgentRecord {
            market: self.args.market,
            price: self.args.price,
            since: self.since,
            seen: wall_clock(),
            running: load.running.clone(),
            has_room: load.has_room,
            ran: Some(self.machine.age(steady_now())),
        }
    }

    /// Ends when all tasks have ended, or the agent has to.
    async fn end(mut self) -> Result<(), Failure> {
        // Runners end their tasks when the session ends, and give their locks up.
        while let Some(ended) = self.runs.join_next().await {
            if let Ok((number, result)) = ended {
                let (input, failure) = run_ended(number, result);
                self.hand_over(input, failure);
            }
        }
        let _ = timeout(LAST_RECORD_WITHIN.into(), self.write_last()).await;
        let finished = self.machine.finished();
        let document = serde_json::json!({ "agent": self.id, "finished": finished });
        self.session.output.result(&document, |writer| {
            let count = units::counted(finished.into(), "task");
            writeln!(writer, "{count} of {} finished here", self.args.bag.0)
        })
    }

    /// Writes that this agent ends.
    async fn write_last(&mut self) -> Result<(), Failure> {
        // One that is on its way would take this one back.
        while self.writes.join_next().await.is_some() {}
        let record = self.record(&AgentLoad::default());
        self.store.put_agent(&self.bag, &self.id, &record).await
    }

    /// Ends the runs of a bag that is gone; returns how that was found.
    async fn end_without_bag(mut self) -> Failure {
        self.ended.cancel();
        while self.runs.join_next().await.is_some() {}
        self.failure.take().unwrap_or_else(|| self.store.removed())
    }
}

/// Returns what is handed over of a run that has ended, and why it failed.
fn run_ended(task: u32, result: Result<Followed, Failure>) -> (AgentInput, Option<Failure>) {
    let end = match &result {
        Ok(Followed::Ended) => TaskRunEnd::Ended,
        Ok(Followed::Stopped) => TaskRunEnd::Stopped,
        Err(failure) => end_of(failure),
    };
    (AgentInput::RunEnded { task, end }, result.err())
}
