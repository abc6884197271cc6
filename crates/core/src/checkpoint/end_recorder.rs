//! What a run of a bag's task records about the task's end, while it has the task's lock: so no
//! agent can start the task between its end and the record of it, nor after.
//!
//! The shell reads, writes and waits. It does one [`EndWork`] at a time, and reports how that has
//! ended.

use std::collections::VecDeque;

use sanderling_protocol::Millis;

use super::agent_work::TaskRunEnd;
use super::bag::{KeyEvidence, RunProgress, TaskProgress, is_task_lost, runs_again};
use super::bag_looks::BAG_ROUND;

/// Tasks of a bag whose generations are looked at, at most, to see whether a key is that of the
/// bag: each costs some requests, and one that has begun has a generation.
const KEY_LOOKS_MAX: usize = 8;

/// What a run does next to record its end. Only one work is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndWork {
    /// Read what the generations of this task show about the key.
    LookAtKey(u32),
    /// List the tasks of the bag that have begun.
    ListBegun,
    /// Look whether the bag is there.
    LookAtBag,
    /// Look whether this run has the task's lock, and at the bag once more at the same time: after
    /// the look at the bag, as the process may have been stopped for long before.
    LookAtLock,
    /// Read how far the task was before this run.
    ReadProgress,
    /// Record that the command has failed once more, and the task runs again.
    WriteProgress(TaskProgress),
    /// Record the task's end, and why it failed if it did.
    WriteEnd,
    /// Wait for so long: the backend may be there again then.
    Pause(Millis),
    /// End: what there was to record is recorded, or left to the next run.
    Done,
    /// End with the failure that another agent has taken the task.
    Taken,
    /// End with the last failure: the record is of no use.
    Useless,
}

/// How the [`EndWork`] under way has ended, and what it has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndInput {
    /// [`EndWork::LookAtKey`]: what each generation shows.
    KeySeen(Vec<KeyEvidence>),
    /// [`EndWork::ListBegun`]: the numbers of these tasks.
    BegunListed(Vec<u32>),
    /// [`EndWork::LookAtBag`]; or [`EndWork::LookAtLock`], if the bag is absent by then.
    BagSeen {
        /// Whether the bag is there. One that is absent may be in a backend that is away.
        is_there: bool,
    },
    /// [`EndWork::LookAtLock`].
    LockSeen {
        /// Whether no other runner has it.
        is_held: bool,
    },
    /// [`EndWork::ReadProgress`].
    ProgressRead(RunProgress),
    /// [`EndWork::WriteProgress`] or [`EndWork::WriteEnd`].
    Written,
    /// [`EndWork::Pause`].
    Paused,
    /// The work has failed, as while the backend is away.
    Failed,
    /// The work has failed, as the bag is gone or another runner has the task.
    Useless,
}

/// The decisions about the record of one run's end: whether its task has ended for all agents, has
/// failed once, or goes on elsewhere.
#[derive(Debug, Clone)]
pub struct EndRecorder {
    task: u32,
    end: TaskRunEnd,
    /// How often a task runs again whose command has failed.
    retries: u32,
    work: EndWork,
    /// Tasks of the bag that may show whether the key is that of the bag.
    others: VecDeque<u32>,
}

impl EndRecorder {
    /// Begins when the run of a task has ended so. `has_to_end` is whether the agent has to end:
    /// then nothing is begun any more.
    ///
    /// A task has ended when its command has, or when none of its generations can be restored and
    /// the key is the right one. What ends a run otherwise is no end of its task.
    #[must_use]
    pub fn new(task: u32, end: TaskRunEnd, retries: u32, has_to_end: bool) -> Self {
        let work = match end {
            TaskRunEnd::Ended | TaskRunEnd::CommandFailed => attempt(has_to_end),
            TaskRunEnd::NoGeneration => EndWork::LookAtKey(task),
            TaskRunEnd::Stopped
            | TaskRunEnd::Taken
            | TaskRunEnd::EndedBefore
            | TaskRunEnd::Unrestorable
            | TaskRunEnd::Failed => EndWork::Done,
        };
        Self { task, end, retries, work, others: VecDeque::new() }
    }

    /// Returns the work under way, until [`Self::handle`] takes its end.
    #[must_use]
    pub const fn work(&self) -> EndWork {
        self.work
    }

    /// Takes how the work has ended. Without an answer about the key the task is not lost; what
    /// else fails is tried again, until the agent has to end.
    pub fn handle(&mut self, has_to_end: bool, input: EndInput) {
        self.work = match (self.work, input) {
            (EndWork::LookAtKey(task), EndInput::KeySeen(evidence)) if task == self.task => {
                if is_task_lost(&evidence, false) {
                    attempt(has_to_end)
                } else if is_task_lost(&evidence, true) {
                    EndWork::ListBegun
                } else {
                    EndWork::Done
                }
            }
            (EndWork::LookAtKey(task), EndInput::Failed) if task == self.task => EndWork::Done,
            (EndWork::ListBegun, EndInput::BegunListed(begun)) => {
                let others = begun.into_iter().filter(|it| *it != self.task);
                self.others = others.take(KEY_LOOKS_MAX).collect();
                self.look_at_other()
            }
            (EndWork::ListBegun, EndInput::Failed) => EndWork::Done,
            (EndWork::LookAtKey(_), EndInput::KeySeen(evidence))
                if evidence.contains(&KeyEvidence::Fits) =>
            {
                attempt(has_to_end)
            }
            (EndWork::LookAtKey(_), EndInput::KeySeen(_) | EndInput::Failed) => {
                self.look_at_other()
            }
            (EndWork::LookAtBag, EndInput::BagSeen { is_there: true }) => EndWork::LookAtLock,
            (EndWork::LookAtLock, EndInput::LockSeen { is_held: false }) => EndWork::Taken,
            (EndWork::LookAtLock, EndInput::LockSeen { is_held: true }) => match self.end {
                TaskRunEnd::Ended => EndWork::WriteEnd,
                _ => EndWork::ReadProgress,
            },
            (EndWork::ReadProgress, EndInput::ProgressRead(run)) => self.failed(run),
            (EndWork::WriteProgress(_) | EndWork::WriteEnd, EndInput::Written) => EndWork::Done,
            (EndWork::Pause(_), EndInput::Paused) => attempt(has_to_end),
            (_, EndInput::Useless) => EndWork::Useless,
            _ => EndWork::Pause(BAG_ROUND),
        };
    }

    /// Decides whether the task runs again after one more failure.
    const fn failed(&self, run: RunProgress) -> EndWork {
        let progress = run.failed();
        match runs_again(progress.failures, self.retries) {
            true => EndWork::WriteProgress(progress),
            false => EndWork::WriteEnd,
        }
    }

    /// Looks whether the key is that of another task of the bag. If it is none's, it may be the
    /// wrong one, and the task is not lost.
    fn look_at_other(&mut self) -> EndWork {
        self.others.pop_front().map_or(EndWork::Done, EndWork::LookAtKey)
    }
}

/// Begins an attempt to write, unless the agent has to end.
const fn attempt(has_to_end: bool) -> EndWork {
    if has_to_end { EndWork::Done } else { EndWork::LookAtBag }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: u32 = 3;
    const PAUSE: EndWork = EndWork::Pause(BAG_ROUND);

    fn recorder(end: TaskRunEnd, retries: u32) -> EndRecorder {
        EndRecorder::new(TASK, end, retries, false)
    }

    /// Hands an input over while the agent goes on; returns what is done then.
    fn then(recorder: &mut EndRecorder, input: EndInput) -> EndWork {
        recorder.handle(false, input);
        recorder.work()
    }

    /// Goes on from the look at the bag to that at the lock, which this run has.
    fn after_lock(recorder: &mut EndRecorder) -> EndWork {
        assert_eq!(recorder.work(), EndWork::LookAtBag);
        let work = then(recorder, EndInput::BagSeen { is_there: true });
        assert_eq!(work, EndWork::LookAtLock);
        then(recorder, EndInput::LockSeen { is_held: true })
    }

    fn progress(failures: u32) -> TaskProgress {
        TaskProgress { worked: Millis(7000), failures }
    }

    #[test]
    fn end_of_a_task_is_written_after_looks_at_the_bag_and_the_lock() {
        let mut recorder = recorder(TaskRunEnd::Ended, 0);
        assert_eq!(after_lock(&mut recorder), EndWork::WriteEnd);
        assert_eq!(then(&mut recorder, EndInput::Written), EndWork::Done);
    }

    #[test]
    fn command_that_failed_runs_again_as_often_as_it_may() {
        let run = |failures| EndInput::ProgressRead(RunProgress::new(progress(failures)));
        let mut again = recorder(TaskRunEnd::CommandFailed, 2);
        assert_eq!(after_lock(&mut again), EndWork::ReadProgress);
        assert_eq!(then(&mut again, run(1)), EndWork::WriteProgress(progress(2)));
        assert_eq!(then(&mut again, EndInput::Written), EndWork::Done);
        let mut last = recorder(TaskRunEnd::CommandFailed, 2);
        assert_eq!(after_lock(&mut last), EndWork::ReadProgress);
        assert_eq!(then(&mut last, run(2)), EndWork::WriteEnd);
    }

    #[test]
    fn run_that_ended_otherwise_is_no_end_of_its_task() {
        use TaskRunEnd::{EndedBefore, Failed, Stopped, Taken, Unrestorable};
        for end in [EndedBefore, Failed, Stopped, Taken, Unrestorable] {
            assert_eq!(recorder(end, 0).work(), EndWork::Done, "{end:?}");
        }
    }

    #[test]
    fn what_fails_is_tried_again_from_the_look_at_the_bag_on() {
        let mut recorder = recorder(TaskRunEnd::CommandFailed, 1);
        let run = EndInput::ProgressRead(RunProgress::new(progress(0)));
        let steps = [
            EndInput::BagSeen { is_there: true },
            EndInput::LockSeen { is_held: true },
            run,
            EndInput::Written,
        ];
        for count in 0..steps.len() {
            for step in &steps[..count] {
                recorder.handle(false, step.clone());
            }
            assert_eq!(then(&mut recorder, EndInput::Failed), PAUSE, "after {count} steps");
            assert_eq!(then(&mut recorder, EndInput::Paused), EndWork::LookAtBag);
        }
        let absent = EndInput::BagSeen { is_there: false };
        assert_eq!(then(&mut recorder, absent.clone()), PAUSE, "its backend may be away");
        recorder.handle(false, EndInput::Paused);
        recorder.handle(false, EndInput::BagSeen { is_there: true });
        assert_eq!(recorder.work(), EndWork::LookAtLock);
        assert_eq!(then(&mut recorder, absent), PAUSE, "it was there a moment before");
    }

    #[test]
    fn nothing_is_begun_when_the_agent_has_to_end() {
        for end in [TaskRunEnd::Ended, TaskRunEnd::CommandFailed] {
            assert_eq!(EndRecorder::new(TASK, end, 0, true).work(), EndWork::Done);
        }
        let mut recorder = recorder(TaskRunEnd::Ended, 0);
        // What is under way goes on.
        recorder.handle(true, EndInput::BagSeen { is_there: true });
        assert_eq!(recorder.work(), EndWork::LookAtLock);
        recorder.handle(true, EndInput::Failed);
        assert_eq!(recorder.work(), PAUSE);
        recorder.handle(true, EndInput::Paused);
        assert_eq!(recorder.work(), EndWork::Done);
    }

    #[test]
    fn run_without_its_lock_or_its_bag_records_nothing() {
        let mut taken = recorder(TaskRunEnd::Ended, 0);
        taken.handle(false, EndInput::BagSeen { is_there: true });
        let lost = EndInput::LockSeen { is_held: false };
        assert_eq!(then(&mut taken, lost), EndWork::Taken);
        let mut gone = recorder(TaskRunEnd::Ended, 0);
        assert_eq!(then(&mut gone, EndInput::Useless), EndWork::Useless);
        let mut anew = recorder(TaskRunEnd::Ended, 0);
        anew.handle(false, EndInput::BagSeen { is_there: true });
        assert_eq!(then(&mut anew, EndInput::Useless), EndWork::Useless, "found with the lock");
    }

    #[test]
    fn task_without_a_good_generation_has_failed_if_its_key_is_the_right_one() {
        use KeyEvidence::{Differs, Fits, Unknown};
        let of = |evidence: &[KeyEvidence]| {
            let mut recorder = recorder(TaskRunEnd::NoGeneration, 0);
            assert_eq!(recorder.work(), EndWork::LookAtKey(TASK));
            then(&mut recorder, EndInput::KeySeen(evidence.to_vec()))
        };
        assert_eq!(of(&[Unknown, Fits]), EndWork::LookAtBag);
        assert_eq!(of(&[Unknown]), EndWork::ListBegun, "another task may show it");
        assert_eq!([of(&[Differs]), of(&[])], [EndWork::Done; 2]);
        let mut unread = recorder(TaskRunEnd::NoGeneration, 0);
        assert_eq!(then(&mut unread, EndInput::Failed), EndWork::Done);
    }

    #[test]
    fn key_is_looked_for_in_eight_other_tasks_at_most() {
        let unknown = || EndInput::KeySeen(vec![KeyEvidence::Unknown]);
        let begun = |tasks| {
            let mut recorder = recorder(TaskRunEnd::NoGeneration, 0);
            recorder.handle(false, unknown());
            recorder.handle(false, EndInput::BegunListed(tasks));
            recorder
        };
        let mut recorder = begun((1..=20).collect());
        let mut looked = Vec::new();
        while let EndWork::LookAtKey(task) = recorder.work() {
            looked.push(task);
            // One that cannot be read shows nothing.
            recorder.handle(false, if task == 2 { EndInput::Failed } else { unknown() });
        }
        assert_eq!(looked, [1, 2, 4, 5, 6, 7, 8, 9]);
        assert_eq!(recorder.work(), EndWork::Done, "the key may be the wrong one");
        let mut recorder = begun(vec![TASK, 7]);
        assert_eq!(recorder.work(), EndWork::LookAtKey(7));
        let fits = EndInput::KeySeen(vec![KeyEvidence::Fits]);
        assert_eq!(then(&mut recorder, fits), EndWork::LookAtBag);
        assert_eq!(begun(vec![TASK]).work(), EndWork::Done);
    }
}
