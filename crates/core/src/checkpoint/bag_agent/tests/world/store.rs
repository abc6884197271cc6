//! What the backend has of the bag, and what it answers.

use std::collections::{BTreeMap, BTreeSet};

use super::{BagWorld, Process};
use crate::checkpoint::{AgentStatus, TaskProgress};

/// A request to the backend. Runs are named by their numbers.
#[derive(Debug)]
pub(super) enum Request {
    LookAtBag,
    ListEnded,
    ListBegun,
    ReadProgress(Vec<u32>),
    LookAtLock(u32),
    LookAtPlace,
    ReadAgents,
    WriteAgent(AgentStatus),
    /// Takes the lock of a task, if it is free.
    Take {
        task: u32,
        run: u64,
    },
    LookForEnd(u32),
    Renew {
        task: u32,
        run: u64,
    },
    Release {
        task: u32,
        run: u64,
    },
    /// Looks whether a run has the lock.
    LookWhetherHeld {
        task: u32,
        run: u64,
    },
    ReadOwnProgress(u32),
    /// Records the work of a checkpoint, if the run has the lock.
    Dump {
        task: u32,
        run: u64,
        progress: TaskProgress,
    },
    WriteProgress(RunWrite, TaskProgress),
    WriteEnd(RunWrite),
}

/// What a run records of its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunWrite {
    pub(super) task: u32,
    pub(super) run: u64,
    /// Whether its command has failed.
    pub(super) has_failed: bool,
    /// Whether the last look before has shown that the run has the lock, if there was one.
    pub(super) looked: Option<bool>,
}

#[derive(Debug)]
pub(super) enum Answer {
    Failed,
    Done(bool),
    /// Whether the bag is there.
    Bag(bool),
    Ended(BTreeSet<u32>),
    Begun(BTreeSet<u32>),
    Progress(BTreeMap<u32, TaskProgress>),
    /// Whether no runner has the lock.
    Lock {
        is_free: bool,
    },
    Agents(Vec<AgentStatus>),
    OwnProgress(TaskProgress),
}

#[derive(Debug)]
struct StoredLock {
    run: u64,
    /// When it was taken or renewed last.
    renewed: u64,
    is_released: bool,
}

#[derive(Debug, Default)]
pub(super) struct StoredBag {
    /// Whether each task that has ended has failed.
    pub(super) ended: BTreeMap<u32, bool>,
    progress: BTreeMap<u32, TaskProgress>,
    agents: BTreeMap<Process, AgentStatus>,
    locks: BTreeMap<u32, StoredLock>,
    /// By task the runs that have recorded a failure of their commands.
    pub(super) failed_runs: BTreeMap<u32, BTreeSet<u64>>,
}

impl StoredBag {
    fn has_lock(&self, task: u32, run: u64) -> bool {
        self.locks.get(&task).is_some_and(|lock| lock.run == run)
    }
}

impl BagWorld {
    /// Returns whether a runner has the lock of a task. A time in which no request reaches the
    /// backend does not count.
    fn is_live(&self, task: u32) -> bool {
        let age = self.lock_age.0 * 1000;
        let is_recent = |renewed: u64| self.now < renewed.max(self.away_until) + age;
        let lock = self.stored.locks.get(&task);
        lock.is_some_and(|lock| !lock.is_released && is_recent(lock.renewed))
    }

    /// Carries a request of a process out.
    pub(super) fn effect(&mut self, process: Process, request: Request) -> Answer {
        if self.absent_until.is_some_and(|until| self.now < until) {
            return absent(&request);
        }
        let now = self.now;
        match request {
            Request::LookAtBag => return Answer::Bag(true),
            Request::ListEnded => {
                return Answer::Ended(self.stored.ended.keys().copied().collect());
            }
            Request::ListBegun => {
                return Answer::Begun(self.stored.progress.keys().copied().collect());
            }
            Request::ReadProgress(tasks) => {
                let read = |task: u32| Some((task, *self.stored.progress.get(&task)?));
                return Answer::Progress(tasks.into_iter().filter_map(read).collect());
            }
            Request::LookAtLock(task) => return Answer::Lock { is_free: !self.is_live(task) },
            Request::ReadAgents => {
                return Answer::Agents(self.stored.agents.values().copied().collect());
            }
            Request::ReadOwnProgress(task) => {
                let progress = self.stored.progress.get(&task).copied();
                return Answer::OwnProgress(progress.unwrap_or_default());
            }
            Request::LookAtPlace => {}
            Request::WriteAgent(status) => _ = self.stored.agents.insert(process, status),
            Request::Take { task, .. } if self.is_live(task) => return Answer::Done(false),
            Request::Take { task, run } => {
                let lock = StoredLock { run, renewed: now, is_released: false };
                self.stored.locks.insert(task, lock);
            }
            Request::LookForEnd(task) => {
                return Answer::Done(self.stored.ended.contains_key(&task));
            }
            Request::Renew { task, run } => return Answer::Done(self.renew(task, run)),
            Request::LookWhetherHeld { task, run } => {
                return Answer::Done(self.stored.has_lock(task, run));
            }
            Request::Release { task, run } => self.give_up(task, run),
            Request::Dump { task, run, progress } => {
                if self.stored.has_lock(task, run) {
                    self.stored.progress.insert(task, progress);
                }
            }
            Request::WriteProgress(write, progress) => {
                self.check_progress(&write, progress);
                self.stored.progress.insert(write.task, progress);
            }
            Request::WriteEnd(write) => {
                self.check_write_end(&write);
                self.stored.ended.entry(write.task).or_insert(write.has_failed);
            }
        }
        Answer::Done(true)
    }

    /// Renews a lock; returns whether the run has it.
    fn renew(&mut self, task: u32, run: u64) -> bool {
        let now = self.now;
        match self.stored.locks.get_mut(&task) {
            Some(lock) if lock.run == run => {
                lock.renewed = now;
                true
            }
            _ => false,
        }
    }

    fn give_up(&mut self, task: u32, run: u64) {
        if let Some(lock) = self.stored.locks.get_mut(&task)
            && lock.run == run
        {
            lock.is_released = true;
        }
    }
}

/// Returns what a mount point shows on which nothing is mounted.
fn absent(request: &Request) -> Answer {
    match request {
        Request::LookAtBag => Answer::Bag(false),
        Request::ListEnded => Answer::Ended(BTreeSet::new()),
        Request::ListBegun => Answer::Begun(BTreeSet::new()),
        Request::ReadProgress(_) => Answer::Progress(BTreeMap::new()),
        Request::LookAtLock(_) => Answer::Lock { is_free: true },
        Request::ReadAgents => Answer::Agents(Vec::new()),
        _ => Answer::Failed,
    }
}
