//! A bag of tasks with deadlines: which agent starts which task, when a machine on demand has to
//! take over, whether a task runs again that has failed, and how far it is.
//!
//! After HADS (Teylo, Arantes, Sens and Drummond, "A Bag-of-Tasks Scheduler Tolerant to Temporal
//! Failures in Clouds", 2018): a task runs on spot machines first, and on a machine on demand from
//! the latest start that still meets its deadline. There a scheduler plans both starts ahead; here
//! each agent decides for itself from what all of them see, so agents come and go.

use sanderling_protocol::{Instant, Millis};
use serde::{Deserialize, Serialize};

/// The market in which an agent's machine is paid: which tasks it starts depends on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Market {
    /// Cheap, and taken at any time.
    Spot,
    /// Kept until it is given back.
    OnDemand,
}

/// The offer of an agent's machine to the next task that the agent starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentOffer {
    /// How its machine is paid.
    pub market: Market,
    /// How many tasks more it may run at once.
    pub slots: u32,
    /// Memory that no task of it uses.
    pub free_bytes: u64,
    /// Time that a start needs before the task goes on, and that a late observation may cost: the
    /// age at which a runner's lock is stale belongs to it.
    pub margin: Millis,
    /// Whether it has a notice that it will be taken.
    pub is_noticed: bool,
}

impl AgentOffer {
    /// Returns whether a task more may start: none does while the machine has a notice.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.slots > 0 && !self.is_noticed
    }

    /// Returns whether a task that uses `memory_bytes` bytes of memory may start on this machine
    /// now.
    #[must_use]
    pub const fn takes(&self, memory_bytes: u64) -> bool {
        self.has_room() && memory_bytes <= self.free_bytes
    }
}

/// The state of a task of a bag: it is free, has a runner, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BagState {
    /// No runner has it.
    Free,
    /// A runner has it, or may have it.
    Running,
    /// It has ended.
    Done,
}

/// A task of a bag, as an agent sees it when it chooses the next one to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BagTask {
    /// Whether it can be started.
    pub state: BagState,
    /// What it uses.
    pub memory_bytes: u64,
    /// When it has to be done.
    pub deadline: Instant,
    /// How long it is expected to run from its newest checkpoint on.
    pub left: Millis,
}

impl BagTask {
    /// Returns the latest start that is expected to meet the deadline; the epoch if none does.
    #[must_use]
    pub const fn latest_start(&self, margin: Millis) -> Instant {
        let needed = self.left.0.saturating_add(margin.0).saturating_mul(1000);
        Instant(self.deadline.0.saturating_sub(needed))
    }

    /// Returns whether a spot machine that is taken now could make it miss its deadline.
    #[must_use]
    pub fn is_urgent(&self, now: Instant, margin: Millis) -> bool {
        now >= self.latest_start(margin)
    }
}

/// Tasks of a bag, at most: an agent keeps some bytes of each, and goes through all of them at each
/// look at a lock. Chosen, not measured.
pub const BAG_TASKS_MAX: u32 = 100_000;

/// What all tasks of a bag have in common: how many they are, what each needs, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BagTerms {
    /// How many tasks; they are numbered from 1 on.
    pub tasks: u32,
    /// How long one is expected to run without a failure, with its checkpoints.
    pub time: Millis,
    /// Memory that one uses.
    pub memory_bytes: u64,
    /// When all have to be done.
    pub deadline: Instant,
}

impl BagTerms {
    /// Returns whether a bag may have so many tasks: from 1 to [`BAG_TASKS_MAX`].
    #[must_use]
    pub fn has_fitting_count(&self) -> bool {
        (1..=BAG_TASKS_MAX).contains(&self.tasks)
    }

    /// Returns a task in this state, as far as its progress was recorded.
    #[must_use]
    pub fn task(&self, state: BagState, progress: Option<&TaskProgress>) -> BagTask {
        let worked = progress.map_or(Millis(0), |it| it.worked);
        let left = Millis(self.time.0.saturating_sub(worked.0));
        BagTask { state, memory_bytes: self.memory_bytes, deadline: self.deadline, left }
    }

    /// Returns whether a task is late that ended then, or has not ended at `now`.
    #[must_use]
    pub fn is_late(&self, ended_at: Option<Instant>, now: Instant) -> bool {
        ended_at.unwrap_or(now) > self.deadline
    }
}

/// Returns the task that an agent starts now, as an index; `None` if none may start on its machine.
///
/// A spot agent takes the free task with the earliest latest start, and urgent ones only if there
/// are no others: they belong to agents on demand. While one of these is idle, the spot agent
/// leaves them for a while ([`BagLooks::leaves_urgent`](super::BagLooks::leaves_urgent)). An agent
/// on demand takes urgent tasks alone, so it costs nothing that a spot machine could do.
#[must_use]
pub fn next_task(now: Instant, offer: &AgentOffer, tasks: &[BagTask]) -> Option<usize> {
    let urgent = |task: &BagTask| task.is_urgent(now, offer.margin);
    let fits = |task: &BagTask| task.state == BagState::Free && offer.takes(task.memory_bytes);
    let candidates = tasks.iter().enumerate().filter(|(_, task)| fits(task));
    let taken = candidates.filter(|(_, task)| offer.market == Market::Spot || urgent(task));
    taken
        .min_by_key(|(at, task)| {
            let is_last = offer.market == Market::Spot && urgent(task);
            (is_last, task.latest_start(offer.margin), *at)
        })
        .map(|(at, _)| at)
}

/// Returns when a machine on demand is needed for the tasks that are not done; `None` if for none.
///
/// A task that runs needs one if its runner dies, so it counts like a free one.
#[must_use]
pub fn on_demand_from(margin: Millis, tasks: &[BagTask]) -> Option<Instant> {
    let open = tasks.iter().filter(|task| task.state != BagState::Done);
    open.map(|task| task.latest_start(margin)).min()
}

/// Returns whether a task runs again whose command has just failed, so often in all. `retries` is
/// how often the operator lets it run again. What ends a run otherwise, as a preemption does, is no
/// failure of the command and does not count.
#[must_use]
pub const fn runs_again(failures: u32, retries: u32) -> bool {
    failures <= retries
}

/// The record of how far a task is. The runner that has the task's lock writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskProgress {
    /// Work that the newest checkpoint has.
    pub worked: Millis,
    /// How often the command failed.
    pub failures: u32,
}

/// The progress of a task during one run, which has the task's lock.
///
/// What was recorded before the run is read once. So a record that is written again, because the
/// answer to a write was lost, is the same, and nothing counts twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunProgress {
    before: TaskProgress,
    worked: Millis,
}

impl RunProgress {
    /// Begins with what was recorded before the run, which counts until a checkpoint of this run is
    /// stored.
    #[must_use]
    pub const fn new(before: TaskProgress) -> Self {
        Self { before, worked: before.worked }
    }

    /// Returns the record after a checkpoint that has so much work of this run: from the start of
    /// the command on, without the time of a restore. The work before that is in the checkpoint
    /// only if the run began with a restored one.
    #[must_use]
    pub fn stored(&mut self, is_restored: bool, work: Millis) -> TaskProgress {
        let before = if is_restored { self.before.worked.0 } else { 0 };
        self.worked = Millis(before.saturating_add(work.0));
        TaskProgress { worked: self.worked, ..self.before }
    }

    /// Returns the record after the command has failed in this run: one failure more than before
    /// it.
    #[must_use]
    pub const fn failed(&self) -> TaskProgress {
        let failures = self.before.failures.saturating_add(1);
        TaskProgress { worked: self.worked, failures }
    }
}

/// The evidence of a generation about the key that an agent has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEvidence {
    /// It was made with that key.
    Fits,
    /// It names another key.
    Differs,
    /// It shows nothing: it is gone, cut or cannot be read.
    Unknown,
}

/// Returns whether a task has failed for good when none of its generations can be restored:
/// `evidence` is what they show, and `fits_another` whether the key is that of another task of the
/// bag. With a key that may be the wrong one the agent of another machine may be able to go on.
#[must_use]
pub fn is_task_lost(evidence: &[KeyEvidence], fits_another: bool) -> bool {
    if evidence.contains(&KeyEvidence::Fits) {
        return true;
    }
    // Without any generation the task begins anew.
    fits_another && !evidence.is_empty() && !evidence.contains(&KeyEvidence::Differs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn task(deadline: u64, left: u64) -> BagTask {
        BagTask {
            state: BagState::Free,
            memory_bytes: 10,
            deadline: Instant(deadline * SECOND),
            left: Millis(left * 1000),
        }
    }

    fn agent(market: Market) -> AgentOffer {
        let (slots, margin) = (1, Millis(5000));
        AgentOffer { market, slots, free_bytes: 100, margin, is_noticed: false }
    }

    #[test]
    fn spot_machine_takes_what_has_to_start_first() {
        let tasks = [task(1000, 10), task(900, 500), task(800, 10)];
        assert_eq!(next_task(Instant(0), &agent(Market::Spot), &tasks), Some(1));
        let mut taken = tasks;
        taken[1].state = BagState::Running;
        assert_eq!(next_task(Instant(0), &agent(Market::Spot), &taken), Some(2));
    }

    #[test]
    fn machine_on_demand_takes_urgent_tasks_alone() {
        let tasks = [task(1000, 10), task(900, 500)];
        let on_demand = agent(Market::OnDemand);
        // 900 - 500 - 5 is the latest start.
        assert_eq!(next_task(Instant(394 * SECOND), &on_demand, &tasks), None);
        assert_eq!(next_task(Instant(395 * SECOND), &on_demand, &tasks), Some(1));
        assert_eq!(on_demand_from(Millis(5000), &tasks), Some(Instant(395 * SECOND)));
    }

    #[test]
    fn spot_machine_leaves_urgent_tasks_until_there_are_no_others() {
        let tasks = [task(100, 99), task(1000, 10)];
        let spot = agent(Market::Spot);
        assert_eq!(next_task(Instant(0), &spot, &tasks), Some(1));
        assert_eq!(next_task(Instant(0), &spot, &tasks[..1]), Some(0));
    }

    #[test]
    fn what_does_not_fit_or_is_not_free_is_left() {
        let spot = AgentOffer { free_bytes: 9, ..agent(Market::Spot) };
        assert_eq!(next_task(Instant(0), &spot, &[task(100, 1)]), None);
        let done = BagTask { state: BagState::Done, ..task(100, 1) };
        assert_eq!(next_task(Instant(0), &agent(Market::Spot), &[done]), None);
        assert_eq!(on_demand_from(Millis(0), &[done]), None);
    }

    #[test]
    fn machine_with_a_notice_or_without_a_slot_starts_no_task() {
        for market in [Market::Spot, Market::OnDemand] {
            // It is urgent.
            let (offer, tasks) = (agent(market), [task(0, 1)]);
            assert!(offer.has_room() && offer.takes(100) && !offer.takes(101));
            assert_eq!(next_task(Instant(0), &offer, &tasks), Some(0));
            let noticed = AgentOffer { is_noticed: true, ..offer };
            let full = AgentOffer { slots: 0, ..offer };
            for offer in [noticed, full] {
                assert!(!offer.has_room() && !offer.takes(0));
                assert_eq!(next_task(Instant(0), &offer, &tasks), None);
            }
        }
    }

    #[test]
    fn progress_of_a_task_leaves_less_to_run() {
        let (time, deadline) = (Millis(10_000), Instant(100 * SECOND));
        let bag = BagTerms { tasks: 1, time, memory_bytes: 10, deadline };
        assert_eq!(bag.task(BagState::Free, None), task(100, 10));
        let worked = |worked| Some(TaskProgress { worked: Millis(worked), failures: 0 });
        let left =
            |progress: Option<TaskProgress>| bag.task(BagState::Free, progress.as_ref()).left;
        assert_eq!([left(worked(4000)), left(worked(11_000))], [Millis(6000), Millis(0)]);
        assert!(!bag.is_late(None, deadline) && bag.is_late(None, deadline + Millis(1)));
        assert!(!bag.is_late(Some(deadline), deadline + Millis(1)), "it ended in time");
    }

    #[test]
    fn bag_has_one_to_a_hundred_thousand_tasks() {
        let (time, deadline) = (Millis(10_000), Instant(0));
        let fits = |tasks| BagTerms { tasks, time, memory_bytes: 0, deadline }.has_fitting_count();
        assert!(fits(1) && fits(100_000));
        assert!(!fits(0) && !fits(100_001) && !fits(u32::MAX));
    }

    #[test]
    fn command_that_fails_runs_as_often_again_as_it_may() {
        let again = |retries| (1..).take_while(|failures| runs_again(*failures, retries)).count();
        assert_eq!([0, 1, 3].map(again), [0, 1, 3]);
        assert!(!runs_again(u32::MAX, 0));
    }

    #[test]
    fn record_of_a_run_that_is_written_again_counts_nothing_twice() {
        let before = TaskProgress { worked: Millis(5000), failures: 1 };
        let mut run = RunProgress::new(before);
        let recorded = |worked, failures| TaskProgress { worked: Millis(worked), failures };
        assert_eq!(run.failed(), recorded(5000, 2));
        assert_eq!(run.stored(true, Millis(3000)), recorded(8000, 1));
        assert_eq!(run.stored(true, Millis(4000)), recorded(9000, 1));
        assert_eq!([run.failed(), run.failed()], [recorded(9000, 2); 2]);
        // It began anew: what was recorded before is in no checkpoint of it.
        assert_eq!(RunProgress::new(before).stored(false, Millis(10)), recorded(10, 1));
        let most = TaskProgress { worked: Millis(u64::MAX), failures: u32::MAX };
        assert_eq!(RunProgress::new(most).failed(), most);
        assert_eq!(RunProgress::new(most).stored(true, Millis(1)), most);
    }

    #[test]
    fn task_without_a_good_generation_is_lost_if_the_key_is_the_right_one() {
        use KeyEvidence::{Differs, Fits, Unknown};
        assert!(is_task_lost(&[Unknown, Fits], false));
        assert!(is_task_lost(&[Differs, Fits], false));
        assert!(is_task_lost(&[Unknown, Unknown], true));
        assert!(!is_task_lost(&[Unknown, Unknown], false));
        // All of them name another key: that one may be on another machine.
        assert!(!is_task_lost(&[Differs, Unknown], true));
        assert!(!is_task_lost(&[], true));
    }

    #[test]
    fn numbers_at_the_ends_are_no_reason_to_fail() {
        let task = BagTask { deadline: Instant(0), left: Millis(u64::MAX), ..task(0, 0) };
        assert_eq!(task.latest_start(Millis(u64::MAX)), Instant(0));
        assert!(task.is_urgent(Instant(0), Millis(0)));
    }
}
