//! An agent's shell: it waits, sends requests, and hands over what has come of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sanderling_protocol::{Instant, Millis};

use super::run::Run;
use super::{AgentBug, Answer, BagWorld, Process, Purpose, Request, Timer, WALL};
use crate::checkpoint::{
    AgentEnd, AgentInput, AgentLoad, AgentOutput, AgentSettings, AgentStatus, AgentView, AgentWork,
    BagAgent, BagPresence, BagSight, LockView, Market, TaskRunEnd,
};

/// How much earlier than the latest start a task is urgent.
const MARGIN: Millis = Millis(2000);

pub(super) struct Agent {
    pub(super) market: Market,
    pub(super) at_once: u32,
    /// What the steady clock shows at 0.
    offset: u64,
    /// How much faster it runs than time, in millionths.
    rate: i64,
    /// By how much the time of day is wrong.
    pub(super) wall_offset: i64,
    pub(super) paused_until: u64,
    /// Its requests do not reach the backend until then.
    pub(super) cut_until: u64,
    pub(super) noticed_until: u64,
    /// Whether it got a signal.
    pub(super) has_to_end: bool,
    /// Whether its runs have to end.
    pub(super) is_ending: bool,
    /// Counts its processes.
    pub(super) number: u64,
    /// The decisions of its process, if that runs.
    pub(super) machine: Option<BagAgent>,
    /// How its last process has ended; none if it was killed.
    pub(super) end: Option<AgentEnd>,
    /// Counts its works.
    work: u64,
    presence: BagPresence,
    /// By their numbers.
    pub(super) runs: BTreeMap<u64, Run>,
    /// Runs that have ended, and are not handed over yet.
    pub(super) ended_runs: VecDeque<(u32, TaskRunEnd)>,
    /// Whether the own record is stored, if a write has ended and that is not handed over yet.
    written: Option<bool>,
    /// The task whose lock was looked at last in this round, if no runner had it then.
    pub(super) free: Option<u32>,
    /// The tasks that had ended, as they were listed last.
    pub(super) listed: BTreeSet<u32>,
}

impl Agent {
    pub(super) fn new(market: Market, at_once: u32, offset: u64, rate: i64) -> Self {
        Self {
            market,
            at_once,
            offset,
            rate,
            wall_offset: 0,
            paused_until: 0,
            cut_until: 0,
            noticed_until: 0,
            has_to_end: false,
            is_ending: false,
            number: 0,
            machine: None,
            end: None,
            work: 0,
            presence: BagPresence::default(),
            runs: BTreeMap::new(),
            ended_runs: VecDeque::new(),
            written: None,
            free: None,
            listed: BTreeSet::new(),
        }
    }

    /// Returns whether its process with this number runs.
    pub(super) fn is_there(&self, number: u64) -> bool {
        self.machine.is_some() && self.number == number
    }

    /// Returns what its steady clock shows.
    pub(super) fn clock(&self, at: u64) -> Instant {
        let drift = at as i64 * self.rate / 1_000_000;
        Instant((self.offset + at + WALL).saturating_add_signed(drift))
    }

    fn wall(&self, at: u64) -> Instant {
        Instant((WALL + at).saturating_add_signed(self.wall_offset))
    }

    fn is_waiting(&self) -> bool {
        self.machine.as_ref().is_some_and(|it| matches!(it.work(), AgentWork::Wait { .. }))
    }

    /// Ends its process.
    pub(super) fn leave(&mut self, end: Option<AgentEnd>) {
        (self.machine, self.end) = (None, end);
        self.runs.clear();
        self.ended_runs.clear();
    }
}

impl BagWorld {
    pub(super) fn process(&self, agent: usize) -> Process {
        Process { agent, number: self.agents[agent].number }
    }

    fn view(&self, agent: usize) -> AgentView {
        let it = &self.agents[agent];
        let sees_notice = self.bug != Some(AgentBug::NoticeUnseen);
        AgentView {
            now: it.clock(self.now),
            wall: it.wall(self.now),
            is_noticed: it.noticed_until > self.now && sees_notice,
            has_to_end: self.sees_stop(agent),
        }
    }

    fn sees_stop(&self, agent: usize) -> bool {
        self.agents[agent].has_to_end && self.bug != Some(AgentBug::StopUnseen)
    }

    /// Starts a process of an agent, unless one runs.
    pub(super) fn start(&mut self, agent: usize) {
        let it = &mut self.agents[agent];
        if it.machine.is_some() {
            return;
        }
        it.number += 1;
        it.paused_until = 0;
        (it.has_to_end, it.is_ending) = (false, false);
        (it.written, it.free) = (None, None);
        it.presence = BagPresence::default();
        it.listed.clear();
        let settings = AgentSettings {
            bag: self.bag,
            market: it.market,
            memory_bytes: 0,
            at_once: it.at_once,
            margin: MARGIN,
            lock_age: self.lock_age,
        };
        let machine = BagAgent::new(&self.view(agent), settings);
        self.agents[agent].machine = Some(machine);
        self.put_out(agent);
        self.begin_work(agent);
    }

    pub(super) fn wake(&mut self, agent: usize, timer: Timer) {
        match timer {
            Timer::Wait(number) if number == self.agents[agent].work => {
                let input = self.ready(agent).unwrap_or(AgentInput::Waited);
                self.done(agent, input);
            }
            Timer::Wait(_) => {}
            Timer::Stop => {
                let it = &mut self.agents[agent];
                (it.has_to_end, it.is_ending) = (true, true);
                self.stop_runs(agent);
                self.look_up(agent);
            }
            Timer::Run(run, timer) => self.wake_run(agent, run, timer),
        }
    }

    pub(super) fn answered(&mut self, agent: usize, purpose: Purpose, answer: Answer) {
        match purpose {
            Purpose::Work(number) => {
                assert_eq!(number, self.agents[agent].work, "one work is under way");
                let input = self.input(agent, answer);
                self.done(agent, input);
            }
            Purpose::Record => {
                self.agents[agent].written = Some(!matches!(answer, Answer::Failed));
            }
            Purpose::Run(run, call) => self.run_answered(agent, run, call, answer),
        }
    }

    /// Returns what comes of the work under way.
    fn input(&mut self, agent: usize, answer: Answer) -> AgentInput {
        let (now, bug) = (self.now, self.bug);
        let it = &mut self.agents[agent];
        let (work, clock) = (it.machine.as_ref().map(BagAgent::work), it.clock(now));
        match (work, answer) {
            (Some(AgentWork::LookAtPlace(_)), _) => AgentInput::PlaceSeen { is_blocked: false },
            (_, Answer::Agents(agents)) => AgentInput::AgentsRead(agents),
            (Some(AgentWork::ReadAgents), _) => AgentInput::AgentsRead(Vec::new()),
            (_, Answer::Failed) => AgentInput::Failed,
            (_, Answer::Bag(is_there)) => match it.presence.seen(clock, is_there) {
                BagSight::There => AgentInput::BagSeen { is_there: true },
                BagSight::Absent if bug == Some(AgentBug::AbsenceEnds) => AgentInput::BagGone,
                BagSight::Absent => AgentInput::BagSeen { is_there: false },
                BagSight::Removed => AgentInput::BagGone,
            },
            (_, Answer::Ended(ended)) => {
                it.listed.clone_from(&ended);
                let is_seen = bug != Some(AgentBug::EndsUnlisted);
                AgentInput::EndedListed(if is_seen { ended } else { BTreeSet::new() })
            }
            (_, Answer::Begun(begun)) => AgentInput::BegunListed(begun),
            (_, Answer::Progress(progress)) => AgentInput::ProgressRead(progress),
            (Some(AgentWork::LookAtLock(task)), Answer::Lock { is_free }) => {
                it.free = is_free.then_some(task);
                let is_taken_for_free = bug == Some(AgentBug::HeldTakenForFree);
                let is_held = !is_free && !is_taken_for_free;
                AgentInput::LockSeen(if is_held { LockView::Held } else { LockView::Free })
            }
            (work, answer) => panic!("{answer:?} is no answer to {work:?}"),
        }
    }

    /// Hands over how the work under way has ended, and begins what follows.
    fn done(&mut self, agent: usize, input: AgentInput) {
        self.hand_over(agent, input);
        self.begin_work(agent);
    }

    fn hand_over(&mut self, agent: usize, input: AgentInput) {
        if let Some(is_stored) = self.agents[agent].written.take() {
            self.handle(agent, AgentInput::RecordEnded { is_stored });
        }
        self.handle(agent, input);
    }

    fn handle(&mut self, agent: usize, input: AgentInput) {
        let view = self.view(agent);
        if let Some(machine) = &mut self.agents[agent].machine {
            machine.handle(&view, input);
        }
        self.put_out(agent);
    }

    fn put_out(&mut self, agent: usize) {
        let next = |it: &mut Agent| it.machine.as_mut().and_then(BagAgent::poll_output);
        while let Some(output) = next(&mut self.agents[agent]) {
            match output {
                AgentOutput::Note(_) => {}
                AgentOutput::Start(task) => {
                    self.check_start(agent, task);
                    self.begin_run(agent, task);
                }
                AgentOutput::WriteRecord(load) => self.write_record(agent, &load),
            }
        }
    }

    fn write_record(&mut self, agent: usize, load: &AgentLoad) {
        let it = &self.agents[agent];
        let (market, seen) = (it.market, it.wall(self.now));
        let status = AgentStatus { market, has_room: load.has_room, seen };
        self.call(agent, Purpose::Record, Request::WriteAgent(status));
    }

    /// Begins the work that the machine has decided.
    fn begin_work(&mut self, agent: usize) {
        loop {
            self.agents[agent].work += 1;
            let Some(machine) = &self.agents[agent].machine else { return };
            let request = match machine.work() {
                AgentWork::Wait { until } => match self.ready(agent) {
                    Some(input) => {
                        self.hand_over(agent, input);
                        continue;
                    }
                    None => return self.wait(agent, until),
                },
                AgentWork::LookAtBag => Request::LookAtBag,
                AgentWork::ListEnded => Request::ListEnded,
                AgentWork::ListBegun => Request::ListBegun,
                AgentWork::ReadProgress => Request::ReadProgress(machine.next_reads().to_vec()),
                AgentWork::LookAtLock(task) => Request::LookAtLock(task),
                AgentWork::ReadAgents => Request::ReadAgents,
                AgentWork::LookAtPlace(_) => Request::LookAtPlace,
                AgentWork::RecordBlocked(task) => unreachable!("the place of {task} is blocked"),
                AgentWork::End(end) => return self.end(agent, end),
            };
            let work = self.agents[agent].work;
            return self.call(agent, Purpose::Work(work), request);
        }
    }

    fn wait(&mut self, agent: usize, until: Instant) {
        let it = &mut self.agents[agent];
        it.free = None;
        let left = until.0.saturating_sub(it.clock(self.now).0);
        let timer = Timer::Wait(it.work);
        self.timer(agent, left, timer);
    }

    /// Returns what the wait of an agent ends with now. If there are a signal and the end of a run,
    /// it is either.
    fn ready(&mut self, agent: usize) -> Option<AgentInput> {
        let has_to_end = self.sees_stop(agent);
        let has_run = !self.agents[agent].ended_runs.is_empty();
        if has_run && (!has_to_end || self.draw.chance(500)) {
            let (task, end) = self.agents[agent].ended_runs.pop_front()?;
            return Some(AgentInput::RunEnded { task, end });
        }
        has_to_end.then_some(AgentInput::Stop)
    }

    /// Ends the wait of an agent if there is something to hand over; goes on with the end of one.
    pub(super) fn look_up(&mut self, agent: usize) {
        if self.agents[agent].is_waiting() {
            if let Some(input) = self.ready(agent) {
                self.done(agent, input);
            }
        } else if let Some(AgentWork::End(end)) =
            self.agents[agent].machine.as_ref().map(BagAgent::work)
        {
            self.end(agent, end);
        }
    }

    /// Ends an agent when its runs have ended.
    fn end(&mut self, agent: usize, end: AgentEnd) {
        if end == AgentEnd::BagGone && !self.agents[agent].is_ending {
            self.agents[agent].is_ending = true;
            self.stop_runs(agent);
        }
        while let Some((task, end)) = self.agents[agent].ended_runs.pop_front() {
            self.hand_over(agent, AgentInput::RunEnded { task, end });
        }
        if self.agents[agent].runs.is_empty() {
            self.agents[agent].leave(Some(end));
        }
    }
}
