//! What an agent of a bag does next: when it looks at the bag, at the locks of tasks and at other
//! agents, which tasks it starts, when it writes its own record, and when it ends.
//!
//! The shell reads, writes, starts runs and waits. It does one [`AgentWork`] at a time, and reports
//! how that has ended. A round of a large bag is long: between two works the agent's own record is
//! written and the bag looked at whenever it is time. What a run records about the end of its task
//! is up to [`super::EndRecorder`], and how it hands the task over at a notice to
//! [`super::TaskSupervisor`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sanderling_protocol::{Instant, Millis};

use super::agent_work::{
    AgentEnd, AgentInput, AgentLoad, AgentNote, AgentOutput, AgentStatus, AgentView, AgentWork,
    TaskRunEnd,
};
use super::bag::{AgentOffer, BagState, BagTask, BagTerms, Market, TaskProgress, next_task};
use super::bag_looks::{BAG_ROUND, BagLooks, LOOKS_PER_ROUND};
use super::lock::LockView;
use super::own_record::{OwnRecord, RECORD_EVERY};

/// How long an agent that ends may take to write its last record: as long as a call may.
pub const LAST_RECORD_WITHIN: Millis = Millis(10_000);

/// Records of a bag that are read at once, at most: at 10 ms for a request of a bucket, 1,000 of
/// them take a third of a second. An agent reads the progress of so many tasks before it looks what
/// is due by its own time. Chosen, not measured.
pub const READS_AT_ONCE: usize = 32;

/// How long a look at the other agents holds: about as long as that at a lock. Each costs a request
/// for each agent.
const AGENTS_HOLD: Millis = Millis(2000);

/// What an agent begins with: the terms of its bag, and what its machine offers to tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentSettings {
    /// The bag whose tasks it runs.
    pub bag: BagTerms,
    /// How its machine is paid.
    pub market: Market,
    /// Memory of its machine for tasks.
    pub memory_bytes: u64,
    /// How many tasks it runs at once, at most.
    pub at_once: u32,
    /// How much earlier than the latest start a task is urgent ([`AgentOffer::margin`]).
    pub margin: Millis,
    /// After how long without a renewal the lock of a task may be taken.
    pub lock_age: Millis,
}

/// What comes next in a round, after what is due by its own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoundStep {
    ListEnded,
    ListBegun,
    ReadProgress,
    LookAtLocks,
}

/// The decisions of one agent. The shell does [`Self::work`], hands over its end and what happens
/// meanwhile ([`Self::handle`]), and carries out the outputs ([`Self::poll_output`]).
#[derive(Debug, Clone)]
pub struct BagAgent {
    settings: AgentSettings,
    began: Instant,
    work: AgentWork,
    step: RoundStep,
    /// Tasks whose progress is read in this round yet, the next ones at the end.
    unread: Vec<u32>,
    /// Locks that may be looked at in this round yet.
    looks_left: usize,
    looks: BagLooks,
    /// The urgent task that was found free, and when, while the other agents are read.
    found: Option<(u32, Millis)>,
    running: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    /// How far tasks are that have not ended, as their runs have recorded it.
    progress: BTreeMap<u32, TaskProgress>,
    /// How many tasks have ended here.
    finished: u32,
    /// Whether the work of a round has failed since one has read all that it needs.
    has_failed: bool,
    /// Whether the machine had a notice in the last round.
    was_noticed: bool,
    /// When the bag was there at last; none if it is looked at in the next round.
    was_there: Option<Instant>,
    own_record: OwnRecord,
    /// When the other agents were read, and whether one on demand was idle.
    on_demand: Option<(Instant, bool)>,
    outputs: VecDeque<AgentOutput>,
}

impl BagAgent {
    /// Begins with the first round at `view.now`. Notes that the machine is too small if a task
    /// uses more memory than it has for tasks.
    #[must_use]
    pub fn new(view: &AgentView, settings: AgentSettings) -> Self {
        let mut agent = Self {
            settings,
            began: view.now,
            work: AgentWork::LookAtBag,
            step: RoundStep::ListEnded,
            unread: Vec::new(),
            looks_left: 0,
            looks: BagLooks::default(),
            found: None,
            running: BTreeSet::new(),
            ended: BTreeSet::new(),
            progress: BTreeMap::new(),
            finished: 0,
            has_failed: false,
            was_noticed: false,
            was_there: None,
            own_record: OwnRecord::default(),
            on_demand: None,
            outputs: VecDeque::new(),
        };
        if settings.bag.memory_bytes > settings.memory_bytes {
            agent.note(AgentNote::TooLarge);
        }
        agent.begin_round(view);
        agent
    }

    /// Returns the work under way, until [`Self::handle`] takes its end.
    #[must_use]
    pub const fn work(&self) -> AgentWork {
        self.work
    }

    /// Returns the tasks whose progress [`AgentWork::ReadProgress`] reads.
    #[must_use]
    pub fn next_reads(&self) -> &[u32] {
        &self.unread[self.unread.len().saturating_sub(READS_AT_ONCE)..]
    }

    /// Returns how many tasks run on this agent's machine now.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running.len() as u32
    }

    /// Returns how many tasks have ended on this machine since the agent began.
    #[must_use]
    pub const fn finished(&self) -> u32 {
        self.finished
    }

    /// Returns how many milliseconds have passed at `now` since the agent began.
    #[must_use]
    pub const fn age(&self, now: Instant) -> Millis {
        now.since(self.began)
    }

    /// Removes and returns the next output; `None` when all are carried out.
    pub fn poll_output(&mut self) -> Option<AgentOutput> {
        self.outputs.pop_front()
    }

    /// Takes what has happened. [`Self::work`] may be another one then.
    pub fn handle(&mut self, view: &AgentView, input: AgentInput) {
        match (self.work, input) {
            (_, AgentInput::RecordEnded { is_stored }) => self.record_ended(view, is_stored),
            (work, AgentInput::RunEnded { task, end }) => {
                self.run_ended(view, task, end);
                if matches!(work, AgentWork::Wait { .. }) {
                    self.begin_round(view);
                }
            }
            (_, AgentInput::BagGone) => self.end(AgentEnd::BagGone),
            (AgentWork::End(_), _) => {}
            (AgentWork::Wait { .. }, AgentInput::Stop) => self.end(AgentEnd::Over),
            // Nothing is begun any more, whatever the work has shown.
            _ if view.has_to_end => self.end(AgentEnd::Over),
            (AgentWork::Wait { .. }, AgentInput::Waited) => self.begin_round(view),
            (AgentWork::LookAtBag, AgentInput::BagSeen { is_there: true }) => {
                self.was_there = Some(view.now);
                self.go_on(view);
            }
            (AgentWork::LookAtBag, AgentInput::BagSeen { is_there: false }) => self.wait(view),
            (AgentWork::ListEnded, AgentInput::EndedListed(ended)) => self.listed(view, ended),
            (AgentWork::ListBegun, AgentInput::BegunListed(begun)) => self.begun(view, &begun),
            (AgentWork::ReadProgress, AgentInput::ProgressRead(progress)) => {
                self.progress_read(view, &progress);
            }
            (AgentWork::LookAtLock(task), AgentInput::LockSeen(lock)) => {
                self.lock_seen(view, task, lock);
            }
            (AgentWork::LookAtPlace(_), AgentInput::PlaceSeen { is_blocked: false })
            | (AgentWork::RecordBlocked(_), AgentInput::BlockedRecorded) => self.wait(view),
            (AgentWork::LookAtPlace(task), AgentInput::PlaceSeen { is_blocked: true }) => {
                self.work = AgentWork::RecordBlocked(task);
            }
            (AgentWork::ReadAgents, AgentInput::AgentsRead(agents)) => {
                self.agents_read(view, &agents);
            }
            (_, AgentInput::Failed) => self.failed(view),
            _ => {}
        }
    }

    /// Takes that the work under way has failed.
    fn failed(&mut self, view: &AgentView) {
        match self.work {
            AgentWork::Wait { .. } | AgentWork::End(_) => {}
            // The others have their turn in the next round.
            AgentWork::LookAtLock(task) => {
                self.leave(view, task, BagState::Running);
                self.note(AgentNote::TaskFailed(task));
                self.work = AgentWork::LookAtPlace(task);
            }
            AgentWork::RecordBlocked(_) => {
                self.note(AgentNote::Unrecorded);
                self.wait(view);
            }
            // The backend may be there again in the next round; what runs goes on.
            _ => {
                self.has_failed = true;
                self.note(AgentNote::WorkFailed);
                self.wait(view);
            }
        }
    }

    fn begin_round(&mut self, view: &AgentView) {
        if view.has_to_end {
            return self.end(AgentEnd::Over);
        }
        match (self.was_noticed, view.is_noticed) {
            (false, true) => self.note(AgentNote::Noticed),
            (true, false) => self.note(AgentNote::Withdrawn),
            _ => {}
        }
        self.was_noticed = view.is_noticed;
        self.step = RoundStep::ListEnded;
        self.go_on(view);
    }

    /// Goes on with the round. A look at the bag that is due comes before, and the own record is
    /// written beside it.
    fn go_on(&mut self, view: &AgentView) {
        if self.was_there.is_none_or(|at| view.now.since(at) >= RECORD_EVERY) {
            self.work = AgentWork::LookAtBag;
            return;
        }
        self.write_record(view);
        match self.step {
            RoundStep::ListEnded => self.work = AgentWork::ListEnded,
            RoundStep::ListBegun => self.work = AgentWork::ListBegun,
            RoundStep::ReadProgress if self.unread.is_empty() => self.start_tasks(view),
            RoundStep::ReadProgress => self.work = AgentWork::ReadProgress,
            RoundStep::LookAtLocks => self.look_at_next(view),
        }
    }

    /// Writes the own record if it is time. What has changed since the last one is written at the
    /// begin of a round.
    fn write_record(&mut self, view: &AgentView) {
        let running = self.running.iter().copied().collect();
        let load = AgentLoad { running, has_room: self.has_room(view) };
        let begins = match self.step {
            RoundStep::ListEnded => self.own_record.begin(view.now, &load),
            _ => self.own_record.renew(view.now, &load),
        };
        if begins {
            self.outputs.push_back(AgentOutput::WriteRecord(load));
        }
    }

    fn listed(&mut self, view: &AgentView, ended: BTreeSet<u32>) {
        if ended.len() >= self.settings.bag.tasks as usize {
            return self.end(AgentEnd::Over);
        }
        self.looks.retain(|task| !ended.contains(&task));
        self.ended = ended;
        // How far tasks are decides which one starts, and nothing else.
        if !self.has_room(view) {
            self.has_read();
            return self.wait(view);
        }
        self.step = RoundStep::ListBegun;
        self.go_on(view);
    }

    fn begun(&mut self, view: &AgentView, begun: &BTreeSet<u32>) {
        let ended = &self.ended;
        self.progress.retain(|task, _| begun.contains(task) && !ended.contains(task));
        self.unread = begun.iter().rev().copied().filter(|task| !ended.contains(task)).collect();
        self.step = RoundStep::ReadProgress;
        self.go_on(view);
    }

    fn progress_read(&mut self, view: &AgentView, progress: &BTreeMap<u32, TaskProgress>) {
        let left = self.unread.len() - self.next_reads().len();
        for task in self.unread.drain(left..) {
            match progress.get(&task) {
                Some(read) => self.progress.insert(task, *read),
                // A record that cannot be read counts as none.
                None => self.progress.remove(&task),
            };
        }
        self.go_on(view);
    }

    /// Takes note that a round has read all that it needs.
    fn has_read(&mut self) {
        if std::mem::take(&mut self.has_failed) {
            self.note(AgentNote::WorksAgain);
        }
    }

    /// Begins to start tasks, unless a lock that is taken now could not be renewed.
    fn start_tasks(&mut self, view: &AgentView) {
        self.has_read();
        self.step = RoundStep::LookAtLocks;
        let is_overdue = self.own_record.is_overdue(view.now, self.settings.lock_age);
        self.looks_left = if is_overdue { 0 } else { LOOKS_PER_ROUND };
        self.look_at_next(view);
    }

    /// Looks at the lock of the next task that may start here, or waits if there is none.
    fn look_at_next(&mut self, view: &AgentView) {
        let offer = self.offer(view);
        if self.looks_left == 0 || !offer.has_room() {
            return self.wait(view);
        }
        let numbers = 1..=self.settings.bag.tasks;
        let open: Vec<u32> = numbers.filter(|task| !self.ended.contains(task)).collect();
        let tasks: Vec<BagTask> = open.iter().map(|task| self.seen(view, *task)).collect();
        match next_task(view.wall, &offer, &tasks) {
            Some(at) => {
                self.looks_left -= 1;
                self.work = AgentWork::LookAtLock(open[at]);
            }
            None => self.wait(view),
        }
    }

    /// Takes what the lock of a task has shown. One that is free starts, unless it is left to an
    /// agent on demand: a spot agent leaves an urgent one for a while if such an agent is idle.
    fn lock_seen(&mut self, view: &AgentView, task: u32, lock: LockView) {
        if lock != LockView::Free {
            self.leave(view, task, BagState::Running);
            return self.go_on(view);
        }
        self.leave(view, task, BagState::Free);
        let AgentSettings { market, margin, .. } = self.settings;
        if market != Market::Spot || !self.seen(view, task).is_urgent(view.wall, margin) {
            return self.start(view, task);
        }
        let found = self.age(view.now);
        match self.on_demand {
            Some((at, is_idle)) if view.now.since(at) < AGENTS_HOLD => {
                self.start_or_leave(view, (task, found), is_idle);
            }
            _ => {
                self.found = Some((task, found));
                self.work = AgentWork::ReadAgents;
            }
        }
    }

    fn agents_read(&mut self, view: &AgentView, agents: &[AgentStatus]) {
        let is_idle = agents.iter().any(|agent| agent.is_idle_on_demand(view.wall));
        self.on_demand = Some((view.now, is_idle));
        let found = self.found.take().expect("agents are read for a task that was found");
        self.start_or_leave(view, found, is_idle);
    }

    /// Starts an urgent task that was found free then, or leaves it to an agent on demand, of which
    /// one may be idle.
    fn start_or_leave(&mut self, view: &AgentView, (task, found): (u32, Millis), is_idle: bool) {
        if is_idle && self.looks.leaves_urgent(task, found) {
            self.go_on(view);
        } else {
            self.start(view, task);
        }
    }

    fn start(&mut self, view: &AgentView, task: u32) {
        // A notice may have come while its lock or the other agents were looked at.
        if !self.has_room(view) {
            return self.wait(view);
        }
        assert!(self.running.insert(task), "a task that runs here is not free");
        self.outputs.push_back(AgentOutput::Start(task));
        self.go_on(view);
    }

    /// Takes note of a run that ended.
    fn run_ended(&mut self, view: &AgentView, task: u32, end: TaskRunEnd) {
        assert!(self.running.remove(&task), "a run that ends has begun");
        match end {
            // Its end may not be recorded.
            TaskRunEnd::Ended if view.has_to_end => {}
            TaskRunEnd::Ended => self.finished += 1,
            TaskRunEnd::Stopped => {}
            TaskRunEnd::Taken => self.leave(view, task, BagState::Running),
            TaskRunEnd::EndedBefore => self.leave(view, task, BagState::Done),
            TaskRunEnd::Unrestorable => {
                self.note(AgentNote::TaskFailed(task));
                let now = self.age(view.now);
                self.looks.refused(task, now);
            }
            TaskRunEnd::CommandFailed => {
                self.note(AgentNote::CommandFailed(task));
                self.run_failed(view, task);
            }
            TaskRunEnd::NoGeneration | TaskRunEnd::Failed => {
                self.note(AgentNote::TaskFailed(task));
                self.run_failed(view, task);
            }
        }
    }

    /// Leaves the task of a run that failed for a while, and looks at the bag: it may be gone.
    fn run_failed(&mut self, view: &AgentView, task: u32) {
        self.was_there = None;
        self.leave(view, task, BagState::Running);
    }

    fn record_ended(&mut self, view: &AgentView, is_stored: bool) {
        self.own_record.ended(view.now, is_stored);
        if !is_stored {
            self.note(AgentNote::Unrecorded);
        }
    }

    /// Returns whether a task more may start here.
    fn has_room(&self, view: &AgentView) -> bool {
        self.offer(view).takes(self.settings.bag.memory_bytes)
    }

    /// Returns what the machine offers to the next task.
    fn offer(&self, view: &AgentView) -> AgentOffer {
        let AgentSettings { bag, market, memory_bytes, at_once, margin, .. } = self.settings;
        let running = self.running();
        let used = u64::from(running).saturating_mul(bag.memory_bytes);
        AgentOffer {
            market,
            slots: at_once.saturating_sub(running),
            free_bytes: memory_bytes.saturating_sub(used),
            margin,
            is_noticed: view.is_noticed,
        }
    }

    /// Returns a task as far as this agent has seen it. One that was not looked at may be free.
    fn seen(&self, view: &AgentView, task: u32) -> BagTask {
        let state = match self.running.contains(&task) {
            true => BagState::Running,
            false => self.looks.state(task, self.age(view.now)),
        };
        self.settings.bag.task(state, self.progress.get(&task))
    }

    /// Takes a task for what it is now, until it is looked at again.
    fn leave(&mut self, view: &AgentView, task: u32, state: BagState) {
        let now = self.age(view.now);
        self.looks.note(task, state, now);
    }

    fn wait(&mut self, view: &AgentView) {
        self.work = AgentWork::Wait { until: view.now + BAG_ROUND };
    }

    const fn end(&mut self, end: AgentEnd) {
        self.work = AgentWork::End(end);
    }

    fn note(&mut self, note: AgentNote) {
        self.outputs.push_back(AgentOutput::Note(note));
    }
}

#[cfg(test)]
mod tests;
