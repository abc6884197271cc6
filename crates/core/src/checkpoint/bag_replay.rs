//! A bag of tasks with a deadline, played on machines that are taken: which tasks are late, and for
//! how long machines are paid.
//!
//! Which agent takes which task is decided by [`next_task`], what is done at a notice by
//! [`NoticeChoice`]: the functions that agents and runners call.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sanderling_protocol::{Instant, Millis};

use super::bag::{BagAgent, BagState, BagTask, Market, next_task};
use super::forecast::NoticeChoice;
use super::replay::{IntervalPolicy, PlayedInterval};
use crate::preemption::Model;

const MILLIS_PER_HOUR: u64 = 3_600_000;

/// A bag of equal tasks, and the machines that it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayedBag {
    /// Tasks; one runs on a machine at a time.
    pub tasks: u32,
    /// How long each computes without a checkpoint and without a failure.
    pub work: Millis,
    /// When all have to be done, from the begin of the bag on.
    pub deadline: Millis,
    /// Spot machines at a time, at most. One that is taken is replaced while tasks are free.
    pub spot_machines: u32,
    /// How long a machine takes from its start until it runs a task. It is paid meanwhile.
    pub launch: Millis,
    /// How long the lock of a runner that died keeps its task from others.
    pub lock_age: Millis,
    /// The latest start of a task is by so much earlier than its expected run and dumps demand. A
    /// machine on demand is started by its launch before that.
    pub margin: Millis,
}

/// The policy by which the tasks of a bag are checkpointed on spot machines. On machines on demand
/// they run without checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BagPolicy {
    /// When a task dumps.
    pub interval: IntervalPolicy,
    /// How long a dump takes, and how long it takes to read one.
    pub dump: Millis,
    /// How long a notice is; zero if the policy makes no use of it.
    pub notice: Millis,
}

/// The time and the machines that one replayed run of a bag of tasks took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayedBagRun {
    /// Tasks that were done after the deadline.
    pub late: u32,
    /// From the begin of the bag until its last task was done.
    pub elapsed: Millis,
    /// Time for which spot machines are paid, the sum over all of them.
    pub spot: Millis,
    /// Time for which machines on demand are paid, the sum over all of them.
    pub on_demand: Millis,
    /// Time in dumps that were finished.
    pub dumped: Millis,
    /// Work, reading of dumps, and unfinished dumps that were lost with machines.
    pub lost: Millis,
    /// Spot machines that were taken from a task.
    pub taken: u32,
}

/// Plays runs of a bag with one policy under one model.
#[derive(Debug)]
pub struct BagReplay<'a> {
    model: &'a Model,
    bag: ReplayedBag,
    policy: BagPolicy,
    interval: PlayedInterval,
    /// Time of dumps for each hour of work on a new machine, in milliseconds.
    dumps_per_hour: u64,
}

impl<'a> BagReplay<'a> {
    /// Returns a player of runs of one bag, under a model of lifetimes and a policy. [`Self::run`]
    /// plays a run.
    #[must_use]
    pub fn new(model: &'a Model, bag: ReplayedBag, policy: BagPolicy) -> Self {
        let interval = PlayedInterval::of(model, policy.interval, policy.dump);
        let dumps_per_hour = policy.dump.0 * MILLIS_PER_HOUR / interval.at(Millis(0)).0;
        Self { model, bag, policy, interval, dumps_per_hour }
    }

    /// Returns how long a task of so much work is expected to run, its dumps included.
    const fn expected(&self, work: Millis) -> Millis {
        Millis(work.0 + work.0 * self.dumps_per_hour / MILLIS_PER_HOUR)
    }

    /// Plays one run; `draw` gives a number that is uniform over 64 bits for each spot machine, in
    /// the order of their starts.
    pub fn run(&self, mut draw: impl FnMut() -> u64) -> ReplayedBagRun {
        let mut play = Play::new(self);
        play.staff(&mut || self.model.sample(draw()));
        while let Some(Reverse((now, _, event))) = play.events.pop() {
            play.now = now;
            play.happen(event);
            if play.open == 0 {
                break;
            }
            play.staff(&mut || self.model.sample(draw()));
        }
        play.end()
    }
}

/// What happens at a time, to the machine or the task of this index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A machine runs tasks from now on.
    Ready(usize),
    /// A machine gets a notice.
    Noticed(usize),
    /// A machine's work and dump are over, if it is still the part of this number.
    PartOver(usize, u32),
    /// A machine is taken.
    Taken(usize),
    /// The lock of a task is stale.
    LockStale(usize),
    /// A task has to start on demand.
    Due,
}

/// Work up to a dump or to the task's end.
#[derive(Debug, Clone, Copy)]
struct Part {
    task: usize,
    /// Before it, a dump may be read from here on.
    since: Millis,
    /// When the work begins.
    begins: Millis,
    work: Millis,
    dump: Millis,
}

#[derive(Debug)]
struct SpotMachine {
    market: Market,
    since: Millis,
    is_ready: bool,
    is_noticed: bool,
    is_over: bool,
    part: Option<Part>,
    parts: u32,
    ends: Millis,
}

#[derive(Debug, Clone, Copy)]
struct Played {
    state: BagState,
    left: Millis,
    has_dump: bool,
}

/// A run under way.
struct Play<'a> {
    of: &'a BagReplay<'a>,
    now: Millis,
    events: BinaryHeap<Reverse<(Millis, u64, Happening)>>,
    scheduled: u64,
    machines: Vec<SpotMachine>,
    tasks: Vec<Played>,
    /// Tasks that are not done.
    open: usize,
    run: ReplayedBagRun,
}

impl<'a> Play<'a> {
    fn new(of: &'a BagReplay<'a>) -> Self {
        let fresh = Played { state: BagState::Free, left: of.bag.work, has_dump: false };
        let tasks = vec![fresh; of.bag.tasks as usize];
        let mut play = Self {
            of,
            now: Millis(0),
            events: BinaryHeap::new(),
            scheduled: 0,
            machines: Vec::new(),
            open: tasks.len(),
            tasks,
            run: ReplayedBagRun::default(),
        };
        play.due(of.bag.work);
        play
    }

    fn at(&mut self, time: Millis, event: Happening) {
        self.scheduled += 1;
        self.events.push(Reverse((time, self.scheduled, event)));
    }

    /// Schedules what is done when a task of so much work has to start on demand.
    fn due(&mut self, left: Millis) {
        let bag = self.of.bag;
        let needed = self.of.expected(left).0 + bag.margin.0;
        for before in [needed + bag.launch.0, needed] {
            let due = Millis(bag.deadline.0.saturating_sub(before)).max(self.now);
            self.at(due, Happening::Due);
        }
    }

    fn happen(&mut self, event: Happening) {
        match event {
            Happening::Ready(at) => self.machines[at].is_ready = !self.machines[at].is_over,
            Happening::Noticed(at) => self.noticed(at),
            Happening::PartOver(at, part) if self.machines[at].parts == part => self.part_over(at),
            Happening::Taken(at) => self.taken(at),
            Happening::LockStale(task) => self.free(task),
            Happening::PartOver(..) | Happening::Due => {}
        }
    }

    fn free(&mut self, task: usize) {
        self.tasks[task].state = BagState::Free;
        self.due(self.tasks[task].left);
    }

    /// Starts the next part of a task on a machine, after a dump was read if it begins there.
    fn begin(&mut self, at: usize, task: usize, is_start: bool) {
        let played = self.tasks[task];
        let machine = &self.machines[at];
        let is_spot = machine.market == Market::Spot;
        let reading = if is_start && played.has_dump { self.of.policy.dump } else { Millis(0) };
        let begins = Millis(self.now.0 + reading.0);
        let whole = played.left;
        let interval = self.of.interval.at(Millis(begins.0 - machine.since.0));
        let work = if is_spot { interval.min(whole) } else { whole };
        // The end of a task needs no dump.
        let dump = if work == whole { Millis(0) } else { self.of.policy.dump };
        self.tasks[task].state = BagState::Running;
        self.set_part(at, Part { task, since: self.now, begins, work, dump });
    }

    fn set_part(&mut self, at: usize, part: Part) {
        let machine = &mut self.machines[at];
        machine.parts += 1;
        machine.part = Some(part);
        let number = machine.parts;
        let over = Millis(part.begins.0 + part.work.0 + part.dump.0);
        if over <= machine.ends {
            self.at(over, Happening::PartOver(at, number));
        }
    }

    fn part_over(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let is_noticed = machine.is_noticed;
        let Some(part) = machine.part.take() else { return };
        let task = &mut self.tasks[part.task];
        task.left.0 -= part.work.0;
        task.has_dump |= part.dump > Millis(0);
        self.run.dumped.0 += part.dump.0;
        if task.left == Millis(0) {
            task.state = BagState::Done;
            self.open -= 1;
            self.run.late += u32::from(self.now > self.of.bag.deadline);
        } else if is_noticed {
            self.free(part.task);
        } else {
            self.begin(at, part.task, false);
        }
        if is_noticed {
            self.retire(at);
        }
    }

    /// A notice: a last dump is taken if it ends in time, and the task is given up.
    fn noticed(&mut self, at: usize) {
        let policy = self.of.policy;
        let machine = &mut self.machines[at];
        let choice = NoticeChoice::of(policy.dump, Millis(machine.ends.0 - self.now.0));
        let Some(part) = machine.part.filter(|_| choice == NoticeChoice::Dump) else {
            machine.is_noticed |= machine.part.is_none();
            return;
        };
        machine.is_noticed = true;
        let worked = Millis(self.now.0.saturating_sub(part.begins.0));
        if worked < part.work {
            // What reads a dump has nothing to store.
            let dump = if worked == Millis(0) { Millis(0) } else { policy.dump };
            let begins = Millis(self.now.0 - worked.0);
            self.set_part(at, Part { begins, work: worked, dump, ..part });
        }
    }

    fn taken(&mut self, at: usize) {
        if self.machines[at].is_over {
            return;
        }
        if let Some(part) = self.machines[at].part.take() {
            self.run.lost.0 += self.now.0 - part.since.0.max(self.machines[at].since.0);
            self.run.taken += 1;
            let stale = Millis(self.now.0 + self.of.bag.lock_age.0);
            self.at(stale, Happening::LockStale(part.task));
        }
        self.retire(at);
    }

    fn retire(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if std::mem::replace(&mut machine.is_over, true) {
            return;
        }
        let paid = self.now.0.min(machine.ends.0) - machine.since.0;
        match machine.market {
            Market::Spot => self.run.spot.0 += paid,
            Market::OnDemand => self.run.on_demand.0 += paid,
        }
    }

    /// Lets agents take tasks, ends machines that are not needed, and starts those that are.
    fn staff(&mut self, life: &mut dyn FnMut() -> Millis) {
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            if !machine.is_ready || machine.is_over || machine.is_noticed || machine.part.is_some()
            {
                continue;
            }
            let agent = self.agent(machine.market, self.of.bag.margin);
            match next_task(self.wall(), &agent, &self.seen()) {
                Some(task) => self.begin(at, task, true),
                None => self.retire(at),
            }
        }
        let free = self.tasks.iter().filter(|task| task.state == BagState::Free).count();
        let (live, waiting) = self.live(Market::Spot);
        let room = (self.of.bag.spot_machines as usize).saturating_sub(live);
        for _ in 0..free.saturating_sub(waiting).min(room) {
            let life = life();
            self.launch(Market::Spot, life);
        }
        let (_, waiting) = self.live(Market::OnDemand);
        for _ in 0..self.urgent().saturating_sub(waiting) {
            self.launch(Market::OnDemand, Millis(u64::MAX / 2));
        }
    }

    /// Returns how many tasks need a machine on demand that is started now.
    fn urgent(&self) -> usize {
        let Millis(launch) = self.of.bag.launch;
        let agent = self.agent(Market::OnDemand, Millis(self.of.bag.margin.0 + launch));
        let mut seen = self.seen();
        let mut count = 0;
        while let Some(task) = next_task(self.wall(), &agent, &seen) {
            seen[task].state = BagState::Running;
            count += 1;
        }
        count
    }

    fn agent(&self, market: Market, margin: Millis) -> BagAgent {
        BagAgent { market, free_bytes: 0, margin }
    }

    const fn wall(&self) -> Instant {
        Instant(self.now.0 * 1000)
    }

    fn seen(&self) -> Vec<BagTask> {
        let deadline = Instant(self.of.bag.deadline.0 * 1000);
        let seen = |task: &Played| BagTask {
            state: task.state,
            memory_bytes: 0,
            deadline,
            left: self.of.expected(task.left),
        };
        self.tasks.iter().map(seen).collect()
    }

    /// Returns how many machines there are, and how many of these wait for a task.
    fn live(&self, market: Market) -> (usize, usize) {
        let machines = || self.machines.iter().filter(|it| it.market == market && !it.is_over);
        (machines().count(), machines().filter(|it| it.part.is_none() && !it.is_noticed).count())
    }

    fn launch(&mut self, market: Market, life: Millis) {
        let at = self.machines.len();
        let (since, bag) = (self.now, self.of.bag);
        let ends = Millis(since.0 + life.0);
        self.machines.push(SpotMachine {
            market,
            since,
            is_ready: false,
            is_noticed: false,
            is_over: false,
            part: None,
            parts: 0,
            ends,
        });
        self.at(Millis(since.0 + bag.launch.0), Happening::Ready(at));
        if market == Market::Spot {
            let notice = self.of.policy.notice;
            if notice > Millis(0) {
                let noticed = Millis(ends.0.saturating_sub(notice.0)).max(since);
                self.at(noticed, Happening::Noticed(at));
            }
            self.at(ends, Happening::Taken(at));
        }
    }

    fn end(mut self) -> ReplayedBagRun {
        for at in 0..self.machines.len() {
            self.retire(at);
        }
        self.run.elapsed = self.now;
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::hads_interval;
    use crate::placement::Draw;

    const HOUR: u64 = 3_600_000;

    const BAG: ReplayedBag = ReplayedBag {
        tasks: 4,
        work: Millis(2 * HOUR),
        deadline: Millis(10 * HOUR),
        spot_machines: 2,
        launch: Millis(120_000),
        lock_age: Millis(30_000),
        margin: Millis(HOUR / 2),
    };

    const HOURLY: BagPolicy = BagPolicy {
        interval: IntervalPolicy::Fixed(Millis(HOUR)),
        dump: Millis(60_000),
        notice: Millis(0),
    };

    fn model(spec: &str) -> Model {
        Model::load(&spec.parse().expect("a model"), |_| Err("no file")).expect("needs no file")
    }

    fn steady() -> Model {
        model("exponential:mean=1000000h")
    }

    #[test]
    fn steady_spot_machines_do_all_of_it() {
        let model = steady();
        let run = BagReplay::new(&model, BAG, HOURLY).run(|| u64::MAX);
        // Two machines with two tasks each; a task of two hours has one dump.
        assert_eq!(run.elapsed.0, 120_000 + 2 * (2 * HOUR + 60_000));
        assert_eq!(run.spot.0, 2 * run.elapsed.0);
        assert_eq!((run.on_demand, run.lost, run.late, run.taken), (Millis(0), Millis(0), 0, 0));
        assert_eq!(run.dumped.0, 4 * 60_000);
    }

    #[test]
    fn without_spot_machines_each_task_runs_on_demand_from_its_latest_start() {
        let model = steady();
        let bag = ReplayedBag { spot_machines: 0, ..BAG };
        let run = BagReplay::new(&model, bag, HOURLY).run(|| u64::MAX);
        // Two dumps are expected, and none is taken on demand.
        assert_eq!(run.on_demand.0, 4 * (2 * HOUR + 120_000));
        assert_eq!(run.elapsed.0, 10 * HOUR - HOUR / 2 - 2 * 60_000);
        assert_eq!((run.spot, run.dumped, run.late), (Millis(0), Millis(0), 0));
    }

    #[test]
    fn task_goes_on_elsewhere_after_its_machine_was_taken() {
        let model = model("exponential:mean=2h");
        let bag = ReplayedBag { tasks: 1, ..BAG };
        // The first machine lives for about 1.39 h, the second for ever.
        let life = model.sample(1 << 63).0;
        assert!((HOUR + 200_000..2 * HOUR).contains(&life), "{life}");
        let mut draws = [1 << 63, u64::MAX].into_iter();
        let run = BagReplay::new(&model, bag, HOURLY).run(|| draws.next().expect("two"));
        // Launch, an hour and a dump are kept; the rest is lost.
        assert_eq!(run.lost.0, life - 120_000 - HOUR - 60_000);
        // Lock, launch, reading, and the second hour.
        assert_eq!(run.elapsed.0, life + 30_000 + 120_000 + 60_000 + HOUR);
        assert_eq!((run.taken, run.late, run.on_demand), (1, 0, Millis(0)));
        assert_eq!(run.spot.0, life + run.elapsed.0 - life - 30_000);
    }

    #[test]
    fn notice_that_is_long_enough_loses_nothing() {
        let model = model("exponential:mean=2h");
        let bag = ReplayedBag { tasks: 1, ..BAG };
        let policy = BagPolicy { notice: Millis(120_000), ..HOURLY };
        let mut draws = [1 << 63, u64::MAX].into_iter();
        let run = BagReplay::new(&model, bag, policy).run(|| draws.next().expect("two"));
        assert_eq!((run.lost, run.taken), (Millis(0), 0));
        // One dump after an hour, one at the notice.
        assert_eq!(run.dumped.0, 2 * 60_000);
        let short = BagPolicy { notice: Millis(60_000), ..HOURLY };
        let mut draws = [1 << 63, u64::MAX].into_iter();
        let run = BagReplay::new(&model, bag, short).run(|| draws.next().expect("two"));
        assert!(run.lost > Millis(0) && run.taken == 1);
    }

    #[test]
    fn every_run_ends_and_pays_for_all_its_work() {
        for spec in ["exponential:mean=3h", "bathtub:typical", "bathtub:n1-highcpu-16"] {
            let model = model(spec);
            let fixed = IntervalPolicy::Fixed(hads_interval(BAG.work, HOURLY.dump));
            for policy in [
                HOURLY,
                BagPolicy { interval: fixed, ..HOURLY },
                BagPolicy { interval: IntervalPolicy::Optimum, notice: Millis(120_000), ..HOURLY },
            ] {
                for seed in 0..40 {
                    let mut draw = Draw::new(seed);
                    let bag = ReplayedBag { tasks: 1 + seed as u32 % 9, ..BAG };
                    let run = BagReplay::new(&model, bag, policy).run(|| draw.next());
                    let paid = run.spot.0 + run.on_demand.0;
                    let used = u64::from(bag.tasks) * bag.work.0 + run.dumped.0 + run.lost.0;
                    assert!(paid >= used, "{spec} {policy:?} {seed}: {run:?}");
                    assert!(run.elapsed.0 <= bag.deadline.0 || run.late > 0, "{run:?}");
                }
            }
        }
    }
}
