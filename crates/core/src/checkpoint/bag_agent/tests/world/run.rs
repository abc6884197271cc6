//! A run of a task: it takes the lock, runs the command, and records its end.

use sanderling_protocol::Millis;

use super::store::RunWrite;
use super::{AgentBug, Answer, BagWorld, HEALTHY, Purpose, Request, RunCall, RunTimer, Timer};
use crate::checkpoint::{
    BagPresence, BagSight, EndInput, EndRecorder, EndWork, RunProgress, TaskRunEnd,
};

/// Pause before a renewal that has failed is tried again, at most.
const AGAIN_AFTER: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunPhase {
    /// It takes the lock, and looks whether the task has ended.
    Begins,
    /// The command runs.
    Runs,
    /// It records its end.
    Records,
    /// It gives the lock up.
    Releases,
}

pub(super) struct Run {
    task: u32,
    phase: RunPhase,
    /// When the command was started.
    began: u64,
    /// How the run ends, as far as it is decided.
    end: TaskRunEnd,
    recorder: EndRecorder,
    /// How far the task was before, if that was read.
    progress: Option<RunProgress>,
    presence: BagPresence,
    /// Whether the last look has shown that the run has the lock, if there was one.
    looked: Option<bool>,
}

impl BagWorld {
    pub(super) fn begin_run(&mut self, agent: usize, task: u32) {
        self.runs += 1;
        let (run, end) = (self.runs, TaskRunEnd::Failed);
        let begun = Run {
            task,
            phase: RunPhase::Begins,
            began: 0,
            end,
            recorder: EndRecorder::new(task, end, self.retries, false),
            progress: None,
            presence: BagPresence::default(),
            looked: None,
        };
        self.agents[agent].runs.insert(run, begun);
        self.call_run(agent, run, RunCall::Take, Request::Take { task, run });
    }

    fn call_run(&mut self, agent: usize, run: u64, call: RunCall, request: Request) {
        self.call(agent, Purpose::Run(run, call), request);
    }

    fn run_timer(&mut self, agent: usize, run: u64, pause: u64, timer: RunTimer) {
        self.timer(agent, pause, Timer::Run(run, timer));
    }

    fn run(&mut self, agent: usize, run: u64) -> Option<&mut Run> {
        self.agents[agent].runs.get_mut(&run)
    }

    pub(super) fn wake_run(&mut self, agent: usize, run: u64, timer: RunTimer) {
        let Some(it) = self.run(agent, run) else { return };
        let (task, phase) = (it.task, it.phase);
        match timer {
            RunTimer::Renew if phase != RunPhase::Releases => {
                let (timeout, purpose) = (self.renew_every(), Purpose::Run(run, RunCall::Renew));
                self.call_within(timeout, agent, purpose, Request::Renew { task, run });
            }
            RunTimer::Dump => self.dump(agent, run),
            RunTimer::CommandEnds if phase == RunPhase::Runs => self.command_ended(agent, run),
            RunTimer::Pause => self.recorded(agent, run, EndInput::Paused),
            RunTimer::Renew | RunTimer::CommandEnds => {}
        }
    }

    pub(super) fn run_answered(&mut self, agent: usize, run: u64, call: RunCall, answer: Answer) {
        let Some(it) = self.run(agent, run) else { return };
        let (task, end) = (it.task, it.end);
        match (call, answer) {
            (RunCall::Take, Answer::Done(true)) => {
                self.call_run(agent, run, RunCall::LookForEnd, Request::LookForEnd(task));
                let every = self.renew_every();
                self.run_timer(agent, run, every, RunTimer::Renew);
            }
            (RunCall::Take, Answer::Done(false)) => self.run_over(agent, run, TaskRunEnd::Taken),
            (RunCall::Take, _) => self.run_over(agent, run, TaskRunEnd::Failed),
            (RunCall::LookForEnd, Answer::Done(false)) => self.begin_command(agent, run),
            (RunCall::LookForEnd, Answer::Done(true)) => {
                self.end_run(agent, run, TaskRunEnd::EndedBefore);
            }
            (RunCall::LookForEnd, _) => self.end_run(agent, run, TaskRunEnd::Failed),
            (RunCall::Renew, answer) => self.renewed(agent, run, &answer),
            (RunCall::Dump, Answer::OwnProgress(before)) => {
                it.progress = Some(RunProgress::new(before));
                self.dump(agent, run);
            }
            (RunCall::Dump, _) => self.dump_later(agent, run),
            (RunCall::End, answer) => self.end_answered(agent, run, &answer),
            (RunCall::Release, _) => self.run_over(agent, run, end),
        }
    }

    const fn renew_every(&self) -> u64 {
        self.lock_age.0 * 1000 / 3
    }

    fn renewed(&mut self, agent: usize, run: u64, answer: &Answer) {
        let Some(it) = self.run(agent, run) else { return };
        if it.phase == RunPhase::Runs && matches!(answer, Answer::Done(false)) {
            return self.end_run(agent, run, TaskRunEnd::Taken);
        }
        let every = self.renew_every();
        let pause = if matches!(answer, Answer::Failed) { every.min(AGAIN_AFTER) } else { every };
        self.run_timer(agent, run, pause, RunTimer::Renew);
    }

    fn begin_command(&mut self, agent: usize, run: u64) {
        if self.agents[agent].is_ending {
            return self.end_run(agent, run, TaskRunEnd::Stopped);
        }
        if agent != HEALTHY && self.has_faults() && self.draw.chance(100) {
            return self.end_run(agent, run, TaskRunEnd::Unrestorable);
        }
        let fails = self.draw.chance(self.command_fails_permille);
        let takes = self.draw.between(1_000_000, 6_000_000);
        let now = self.now;
        let Some(it) = self.run(agent, run) else { return };
        (it.phase, it.began) = (RunPhase::Runs, now);
        it.end = if fails { TaskRunEnd::CommandFailed } else { TaskRunEnd::Ended };
        self.run_timer(agent, run, takes, RunTimer::CommandEnds);
        self.dump_later(agent, run);
    }

    fn dump_later(&mut self, agent: usize, run: u64) {
        let pause = self.draw.between(300_000, 1_500_000);
        self.run_timer(agent, run, pause, RunTimer::Dump);
    }

    /// Records the work of a checkpoint, as long as the command runs.
    fn dump(&mut self, agent: usize, run: u64) {
        let now = self.now;
        let Some(it) = self.run(agent, run).filter(|it| it.phase == RunPhase::Runs) else { return };
        let task = it.task;
        let work = Millis((now - it.began) / 1000);
        let request = match &mut it.progress {
            None => Request::ReadOwnProgress(task),
            Some(progress) => Request::Dump { task, run, progress: progress.stored(true, work) },
        };
        self.call_run(agent, run, RunCall::Dump, request);
    }

    fn command_ended(&mut self, agent: usize, run: u64) {
        let (retries, is_ending) = (self.retries, self.agents[agent].is_ending);
        let Some(it) = self.run(agent, run) else { return };
        it.phase = RunPhase::Records;
        it.recorder = EndRecorder::new(it.task, it.end, retries, is_ending);
        self.record(agent, run);
    }

    /// Does what the record of an end decides.
    fn record(&mut self, agent: usize, run: u64) {
        let rereads = self.bug == Some(AgentBug::ProgressReread);
        let Some(it) = self.run(agent, run) else { return };
        let (task, end, looked) = (it.task, it.end, it.looked);
        let has_failed = end == TaskRunEnd::CommandFailed;
        let write = RunWrite { task, run, has_failed, looked };
        let request = match it.recorder.work() {
            EndWork::LookAtBag => Request::LookAtBag,
            EndWork::LookAtLock => Request::LookWhetherHeld { task, run },
            EndWork::ReadProgress => match it.progress.filter(|_| !rereads) {
                Some(progress) => {
                    return self.recorded(agent, run, EndInput::ProgressRead(progress));
                }
                None => Request::ReadOwnProgress(task),
            },
            EndWork::WriteProgress(progress) => Request::WriteProgress(write, progress),
            EndWork::WriteEnd => Request::WriteEnd(write),
            EndWork::Pause(pause) => {
                it.looked = None;
                return self.run_timer(agent, run, pause.0 * 1000, RunTimer::Pause);
            }
            EndWork::Done => {
                self.check_done(agent, &write);
                return self.end_run(agent, run, end);
            }
            EndWork::Taken => return self.end_run(agent, run, TaskRunEnd::Taken),
            EndWork::Useless => return self.end_run(agent, run, TaskRunEnd::Failed),
            EndWork::LookAtKey(_) | EndWork::ListBegun => unreachable!("{task} has generations"),
        };
        self.call_run(agent, run, RunCall::End, request);
    }

    fn end_answered(&mut self, agent: usize, run: u64, answer: &Answer) {
        let (bug, clock) = (self.bug, self.agents[agent].clock(self.now));
        let Some(it) = self.run(agent, run) else { return };
        let work = it.recorder.work();
        let is_write = matches!(work, EndWork::WriteProgress(_) | EndWork::WriteEnd);
        let input = match *answer {
            Answer::Failed if is_write && bug == Some(AgentBug::WriteMisread) => EndInput::Written,
            Answer::Failed => EndInput::Failed,
            Answer::Bag(is_there) => match it.presence.seen(clock, is_there) {
                BagSight::There => EndInput::BagSeen { is_there: true },
                BagSight::Absent => EndInput::BagSeen { is_there: false },
                BagSight::Removed => EndInput::Useless,
            },
            Answer::OwnProgress(before) => {
                let progress = RunProgress::new(before);
                it.progress = Some(progress);
                EndInput::ProgressRead(progress)
            }
            Answer::Done(is_held) if work == EndWork::LookAtLock => {
                it.looked = Some(is_held);
                let is_blind = bug == Some(AgentBug::LockUnseen);
                EndInput::LockSeen { is_held: is_held || is_blind }
            }
            _ => EndInput::Written,
        };
        self.recorded(agent, run, input);
    }

    /// Hands over how the work of the record has ended, and does what follows.
    fn recorded(&mut self, agent: usize, run: u64, input: EndInput) {
        let is_ending = self.agents[agent].is_ending;
        let Some(it) = self.run(agent, run) else { return };
        it.recorder.handle(is_ending, input);
        self.record(agent, run);
    }

    /// Ends the commands that run.
    pub(super) fn stop_runs(&mut self, agent: usize) {
        let runs = self.agents[agent].runs.iter();
        let running = runs.filter(|(_, it)| it.phase == RunPhase::Runs);
        let running: Vec<u64> = running.map(|(run, _)| *run).collect();
        for run in running {
            self.end_run(agent, run, TaskRunEnd::Stopped);
        }
    }

    /// Gives the lock of a run up, which ends so.
    fn end_run(&mut self, agent: usize, run: u64, end: TaskRunEnd) {
        let Some(it) = self.run(agent, run) else { return };
        (it.phase, it.end) = (RunPhase::Releases, end);
        let request = Request::Release { task: it.task, run };
        self.call_run(agent, run, RunCall::Release, request);
    }

    fn run_over(&mut self, agent: usize, run: u64, end: TaskRunEnd) {
        let Some(over) = self.agents[agent].runs.remove(&run) else { return };
        self.counts.count(end);
        if self.bug != Some(AgentBug::EndUnseen) {
            self.agents[agent].ended_runs.push_back((over.task, end));
        }
        self.look_up(agent);
    }
}
