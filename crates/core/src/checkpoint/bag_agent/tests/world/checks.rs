//! What must hold in the world of a bag.

use super::store::RunWrite;
use super::{BagWorld, HEALTHY};
use crate::checkpoint::{AgentEnd, TaskProgress, TaskRunEnd};

/// What the checks have looked at.
#[derive(Debug, Default)]
pub(super) struct BagCounts {
    pub(super) starts: u64,
    /// Tasks that have ended, and those among them that have failed.
    pub(super) ended: u64,
    pub(super) failed: u64,
    /// Failures of commands that were recorded, and whose tasks run again.
    pub(super) failures: u64,
    /// Runs whose tasks other agents have taken, and those that were ended.
    pub(super) taken: u64,
    pub(super) stopped: u64,
}

impl BagCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.starts += other.starts;
        self.ended += other.ended;
        self.failed += other.failed;
        self.failures += other.failures;
        self.taken += other.taken;
        self.stopped += other.stopped;
    }

    pub(super) fn count(&mut self, end: TaskRunEnd) {
        match end {
            TaskRunEnd::Taken => self.taken += 1,
            TaskRunEnd::Stopped => self.stopped += 1,
            _ => {}
        }
    }
}

impl BagWorld {
    /// Checks a task that an agent starts: no runner has had its lock at the last look, it is none
    /// that has ended, and the agent may start one.
    pub(super) fn check_start(&mut self, agent: usize, task: u32) {
        self.counts.starts += 1;
        let it = &mut self.agents[agent];
        let has_room = it.runs.len() + it.ended_runs.len() < it.at_once as usize;
        let checks = [
            ("lock", it.free.take() == Some(task)),
            ("ended", !it.listed.contains(&task)),
            ("stop", !it.has_to_end),
            ("notice", it.noticed_until <= self.now),
            ("room", has_room),
        ];
        for (checker, _) in checks.into_iter().filter(|(_, holds)| !holds) {
            self.violate(checker, &format!("agent {agent} starts task {task}"));
        }
    }

    /// Checks that what a run records follows a look that has shown it to have the lock.
    fn check_write(&mut self, write: &RunWrite) {
        if write.looked != Some(true) {
            self.violate("record", &format!("{write:?}"));
        }
    }

    /// Checks a failure that is recorded: each run counts once.
    pub(super) fn check_progress(&mut self, write: &RunWrite, progress: TaskProgress) {
        self.check_write(write);
        let runs = self.stored.failed_runs.entry(write.task).or_default();
        self.counts.failures += u64::from(runs.insert(write.run));
        let count = runs.len();
        if progress.failures as usize > count {
            self.violate("failures", &format!("{progress:?} of {count} runs of {write:?}"));
        }
    }

    /// Checks an end that is recorded: a task that has failed was tried as often as it may be.
    pub(super) fn check_write_end(&mut self, write: &RunWrite) {
        self.check_write(write);
        let failed = self.stored.failed_runs.get(&write.task);
        let others = failed.map_or(0, |runs| runs.iter().filter(|run| **run != write.run).count());
        if write.has_failed && others < self.retries as usize {
            self.violate("failures", &format!("{write:?} after those of {others} runs"));
        }
        if !self.stored.ended.contains_key(&write.task) {
            self.counts.ended += 1;
            self.counts.failed += u64::from(write.has_failed);
        }
    }

    /// Checks a run whose record of its end is done: it is there, unless the agent has to end.
    pub(super) fn check_done(&mut self, agent: usize, write: &RunWrite) {
        let runs = self.stored.failed_runs.get(&write.task);
        let has_counted = write.has_failed && runs.is_some_and(|runs| runs.contains(&write.run));
        let is_recorded = self.stored.ended.contains_key(&write.task) || has_counted;
        if !self.agents[agent].is_ending && !is_recorded {
            self.violate("lost", &format!("the end of {write:?} is not recorded"));
        }
    }

    /// Checks the end: all tasks have ended, and so have the agents.
    pub(super) fn check_end(&mut self) {
        if self.violation.is_some() {
            return;
        }
        let ended = self.stored.ended.len();
        if ended != self.bag.tasks as usize {
            self.violate("open", &format!("{ended} of {} tasks have ended", self.bag.tasks));
        }
        let end = self.agents[HEALTHY].end;
        if end != Some(AgentEnd::Over) {
            self.violate("open", &format!("the healthy agent has ended by {end:?}"));
        }
        if self.agents.iter().any(|it| it.machine.is_some()) {
            self.violate("open", "an agent has not ended");
        }
    }
}
