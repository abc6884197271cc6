//! A bag of tasks with a deadline, played on machines that are taken: which tasks are late, and for
//! how long machines are paid.
//!
//! Which agent takes which task, and whether its machine has room for one, is decided by
//! [`next_task`] and [`AgentOffer`], what is done at a notice by [`NoticeChoice`] and
//! [`UnderWayChoice`]: those that the machines of agents and runners use. The rounds and looks of
//! an agent ([`BagAgent`](super::BagAgent)) are left out: they take seconds, and what they see is
//! there at once in a replay.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sanderling_protocol::{Instant, Millis};

use super::bag::{AgentOffer, BagState, BagTask, Market, next_task};
use super::forecast::{NoticeChoice, UnderWayChoice};
use super::replay::{IntervalPolicy, PlayedInterval};
use crate::preemption::{Exponential, Model, Shape};

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
    /// How long a spot machine is away in the mean, in a market that hibernates machines instead of
    /// ending them: it stops where its life ends, costs nothing meanwhile, and goes on with another
    /// life. How long it is away is drawn from an exponential. `None` if machines end.
    pub hibernates_for: Option<Millis>,
}

/// How the dumps of one task are kept, which decides what is left if a machine ends during one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpCopies {
    /// A dump that is written touches no other, so the newest whole one always stays.
    Untouched,
    /// Two slots are written in turn, and a slot is deleted before it is written. A machine that
    /// ends in the middle of a dump leaves one copy fewer; after two such ends in a row there is
    /// none.
    TwoSlots,
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
    /// How the dumps are kept.
    pub copies: DumpCopies,
    /// Whether the task of a machine that hibernates waits for the machine, until its latest start
    /// elsewhere. Else it goes on elsewhere as soon as its lock is stale.
    pub waits_for_hibernated: bool,
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
    /// Work, reading of dumps, and unfinished dumps that were lost with machines, and work whose
    /// last dump was.
    pub lost: Millis,
    /// How often a spot machine was taken from a task, or hibernated with it.
    pub taken: u32,
}

/// Plays runs of a bag with one policy of checkpoints, on machines that live by one model.
#[derive(Debug)]
pub struct BagReplay<'a> {
    model: &'a Model,
    bag: ReplayedBag,
    policy: BagPolicy,
    interval: PlayedInterval,
    /// Time of dumps for each hour of work on a new machine, in milliseconds.
    dumps_per_hour: u64,
    /// How long machines are away that hibernate.
    away: Option<Model>,
}

impl<'a> BagReplay<'a> {
    /// Returns a player of runs of one bag, under a model of lifetimes and a policy. [`Self::run`]
    /// plays a run.
    #[must_use]
    pub fn new(model: &'a Model, bag: ReplayedBag, policy: BagPolicy) -> Self {
        let interval = PlayedInterval::of(model, policy.interval, policy.dump);
        let dumps_per_hour = policy.dump.0 * MILLIS_PER_HOUR / interval.at(Millis(0)).0;
        let away = bag.hibernates_for.map(|mean| {
            let mean_hours = mean.0 as f64 / MILLIS_PER_HOUR as f64;
            Model::from(Shape::Exponential(Exponential { mean_hours }))
        });
        Self { model, bag, policy, interval, dumps_per_hour, away }
    }

    /// Returns how long a task of so much work is expected to run, its dumps included.
    const fn expected(&self, work: Millis) -> Millis {
        Millis(work.0 + work.0 * self.dumps_per_hour / MILLIS_PER_HOUR)
    }

    /// Plays one run; `draw` gives a number that is uniform over 64 bits for each spot machine, in
    /// the order of their starts, and where machines hibernate for each time that one is away and
    /// for its next life.
    pub fn run(&self, mut draw: impl FnMut() -> u64) -> ReplayedBagRun {
        let mut play = Play::new(self);
        play.staff(&mut draw);
        while let Some(Reverse((now, _, event))) = play.events.pop() {
            play.now = now;
            play.happen(event, &mut draw);
            if play.open == 0 {
                break;
            }
            play.staff(&mut draw);
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
    /// A machine is taken, or hibernates.
    Taken(usize),
    /// A machine that hibernates goes on.
    Resumed(usize),
    /// The task of a machine goes on elsewhere, if the machine still hibernates with the part of
    /// this number.
    GivenUp(usize, u32),
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
    /// When it was started, or went on.
    since: Millis,
    is_ready: bool,
    /// It takes no task any more.
    is_noticed: bool,
    /// Its task goes on elsewhere after the part that is under way.
    hands_over: bool,
    is_over: bool,
    /// Since when it hibernates.
    stopped_at: Option<Millis>,
    part: Option<Part>,
    parts: u32,
    ends: Millis,
}

impl SpotMachine {
    /// Returns the offer of its agent to the next task.
    fn offer(&self, margin: Millis) -> AgentOffer {
        let slots = u32::from(self.part.is_none());
        AgentOffer { slots, is_noticed: self.is_noticed, ..idle(self.market, margin) }
    }

    /// Returns whether it has no task, and may take one when it is ready.
    fn is_waiting(&self) -> bool {
        !self.is_over && self.stopped_at.is_none() && self.offer(Millis(0)).has_room()
    }
}

/// Returns the offer of an agent that runs no task.
const fn idle(market: Market, margin: Millis) -> AgentOffer {
    AgentOffer { market, slots: 1, free_bytes: 0, margin, is_noticed: false }
}

impl Part {
    /// Returns whether its task is handed over at a notice that comes now, and leaves so much time:
    /// a last dump would be stored in time, or the one under way will be.
    fn hands_over(&self, takes: Millis, now: Millis, left: Millis) -> bool {
        let elapsed = now.0.checked_sub(self.begins.0 + self.work.0);
        match elapsed.filter(|_| self.dump > Millis(0)) {
            None => NoticeChoice::of(takes, left) == NoticeChoice::Dump,
            Some(elapsed) => {
                let choice = UnderWayChoice::of(takes, Millis(elapsed), left);
                matches!(choice, UnderWayChoice::GoOn { .. })
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Played {
    state: BagState,
    /// Work after the newest dump that is whole.
    left: Millis,
    has_dump: bool,
    slots: DumpSlots,
}

/// Two slots for dumps, each with the work that is left after its dump.
#[derive(Debug, Clone, Copy, Default)]
struct DumpSlots {
    left: [Option<Millis>; 2],
    /// The slot that is written next.
    next: usize,
}

impl DumpSlots {
    /// Ends the writing of the next slot, with the work that is left then; `None` if it was cut
    /// off.
    fn write(&mut self, left: Option<Millis>) {
        self.left[self.next] = left;
        self.next = 1 - self.next;
    }

    /// Returns the work that is left after the newest dump.
    fn newest(&self) -> Option<Millis> {
        self.left.into_iter().flatten().min()
    }
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
        let (state, slots) = (BagState::Free, DumpSlots::default());
        let fresh = Played { state, left: of.bag.work, has_dump: false, slots };
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

    fn happen(&mut self, event: Happening, draw: &mut dyn FnMut() -> u64) {
        match event {
            Happening::Ready(at) => {
                let machine = &mut self.machines[at];
                machine.is_ready = !machine.is_over && machine.stopped_at.is_none();
            }
            Happening::Noticed(at) => self.noticed(at),
            Happening::PartOver(at, part) if self.machines[at].parts == part => self.part_over(at),
            Happening::Taken(at) if self.machines[at].is_over => {}
            Happening::Taken(at) => match &self.of.away {
                Some(away) => self.hibernate(at, away.sample(draw())),
                None => self.taken(at),
            },
            Happening::Resumed(at) if self.machines[at].is_over => {}
            Happening::Resumed(at) => self.resume(at, self.of.model.sample(draw())),
            Happening::GivenUp(at, part) if self.machines[at].parts == part => self.give_up(at),
            Happening::LockStale(task) => self.free(task),
            Happening::PartOver(..) | Happening::GivenUp(..) | Happening::Due => {}
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
        let (is_noticed, hands_over) = (machine.is_noticed, machine.hands_over);
        let Some(part) = machine.part.take() else { return };
        let task = &mut self.tasks[part.task];
        task.left.0 -= part.work.0;
        if part.dump > Millis(0) {
            task.has_dump = true;
            task.slots.write(Some(task.left));
        }
        self.run.dumped.0 += part.dump.0;
        if task.left == Millis(0) {
            task.state = BagState::Done;
            self.open -= 1;
            self.run.late += u32::from(self.now > self.of.bag.deadline);
        } else if hands_over {
            self.free(part.task);
        } else {
            return self.begin(at, part.task, false);
        }
        if is_noticed {
            self.retire(at);
        }
    }

    /// A notice: a last dump is taken if it ends in time, or the one under way goes on if that
    /// does. Then the task is given up. Without one it goes on here as before. No other one is
    /// begun.
    fn noticed(&mut self, at: usize) {
        let (policy, now) = (self.of.policy, self.now);
        let machine = &mut self.machines[at];
        machine.is_noticed = true;
        let left = Millis(machine.ends.0 - now.0);
        let is_saved = |part: &Part| part.hands_over(policy.dump, now, left);
        let Some(part) = machine.part.filter(is_saved) else { return };
        machine.hands_over = true;
        let worked = Millis(self.now.0.saturating_sub(part.begins.0));
        if worked < part.work {
            // What reads a dump has nothing to store.
            let dump = if worked == Millis(0) { Millis(0) } else { policy.dump };
            let begins = Millis(self.now.0 - worked.0);
            self.set_part(at, Part { begins, work: worked, dump, ..part });
        }
    }

    fn taken(&mut self, at: usize) {
        if let Some(part) = self.machines[at].part.take() {
            self.lose(part, self.now);
            self.run.taken += 1;
            let stale = Millis(self.now.0 + self.of.bag.lock_age.0);
            self.at(stale, Happening::LockStale(part.task));
        }
        self.retire(at);
    }

    /// Counts what is lost of a part that was cut off at a time.
    fn lose(&mut self, part: Part, cut_at: Millis) {
        self.run.lost.0 += cut_at.0 - part.since.0;
        let is_in_dump = part.dump > Millis(0) && cut_at.0 > part.begins.0 + part.work.0;
        if !is_in_dump || self.of.policy.copies == DumpCopies::Untouched {
            return;
        }
        let task = &mut self.tasks[part.task];
        task.slots.write(None);
        let newest = task.slots.newest();
        let left = newest.unwrap_or(self.of.bag.work);
        self.run.lost.0 += left.0 - task.left.0;
        (task.left, task.has_dump) = (left, newest.is_some());
    }

    /// Stops a machine where its life ends. Its task waits for it, or goes on elsewhere.
    fn hibernate(&mut self, at: usize, away: Millis) {
        let (now, policy, bag) = (self.now, self.of.policy, self.of.bag);
        let machine = &mut self.machines[at];
        machine.stopped_at = Some(now);
        // The part does not end now, if it was to.
        machine.parts += 1;
        let (part, number) = (machine.part, machine.parts);
        self.run.spot.0 += now.0 - machine.since.0;
        self.at(Millis(now.0 + away.0), Happening::Resumed(at));
        let Some(part) = part else { return };
        self.run.taken += 1;
        let needed = self.of.expected(self.tasks[part.task].left).0 + bag.margin.0 + bag.launch.0;
        let given_up = match policy.waits_for_hibernated {
            true => Millis(bag.deadline.0.saturating_sub(needed)).max(now),
            false => Millis(now.0 + bag.lock_age.0),
        };
        self.at(given_up, Happening::GivenUp(at, number));
    }

    /// Lets the task of a machine that hibernates go on elsewhere.
    fn give_up(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let Some((part, stopped_at)) = machine.part.take().zip(machine.stopped_at) else { return };
        self.lose(part, stopped_at);
        self.free(part.task);
    }

    /// Lets a machine that hibernates go on, for so long. Without a task it ends if others have
    /// its place.
    fn resume(&mut self, at: usize, life: Millis) {
        let (now, bag) = (self.now, self.of.bag);
        let is_needed = self.live(Market::Spot).0 < bag.spot_machines as usize;
        let machine = &mut self.machines[at];
        let Some(stopped_at) = machine.stopped_at.take() else { return };
        let ends = Millis(now.0 + life.0);
        (machine.since, machine.ends) = (now, ends);
        (machine.is_noticed, machine.hands_over) = (false, false);
        let (part, is_ready) = (machine.part.take(), machine.is_ready);
        self.announce(at, now, ends);
        if !is_ready {
            self.at(Millis(now.0 + bag.launch.0), Happening::Ready(at));
        }
        match part {
            Some(part) => {
                let later = |time: Millis| Millis(time.0 + (now.0 - stopped_at.0));
                let (since, begins) = (later(part.since), later(part.begins));
                self.set_part(at, Part { since, begins, ..part });
            }
            None if !is_needed => self.retire(at),
            None => {}
        }
    }

    fn retire(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if std::mem::replace(&mut machine.is_over, true) || machine.stopped_at.is_some() {
            return;
        }
        let paid = self.now.0.min(machine.ends.0) - machine.since.0;
        match machine.market {
            Market::Spot => self.run.spot.0 += paid,
            Market::OnDemand => self.run.on_demand.0 += paid,
        }
    }

    /// Lets agents take tasks, ends machines that are not needed, and starts those that are. So no
    /// agent on demand is ever idle, to which spot machines would leave urgent tasks
    /// ([`BagLooks::leaves_urgent`](super::BagLooks::leaves_urgent)).
    fn staff(&mut self, draw: &mut dyn FnMut() -> u64) {
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            if !machine.is_ready || !machine.is_waiting() {
                continue;
            }
            let offer = machine.offer(self.of.bag.margin);
            match next_task(self.wall(), &offer, &self.seen()) {
                Some(task) => self.begin(at, task, true),
                None => self.retire(at),
            }
        }
        let free = self.tasks.iter().filter(|task| task.state == BagState::Free).count();
        let (live, waiting) = self.live(Market::Spot);
        let room = (self.of.bag.spot_machines as usize).saturating_sub(live);
        for _ in 0..free.saturating_sub(waiting).min(room) {
            let life = self.of.model.sample(draw());
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
        let offer = idle(Market::OnDemand, Millis(self.of.bag.margin.0 + launch));
        let mut seen = self.seen();
        let mut count = 0;
        while let Some(task) = next_task(self.wall(), &offer, &seen) {
            seen[task].state = BagState::Running;
            count += 1;
        }
        count
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

    /// Returns how many machines there are, but for those that hibernate without a task, and how
    /// many of these wait for a task.
    fn live(&self, market: Market) -> (usize, usize) {
        let is_live = |it: &&SpotMachine| {
            let is_away = it.stopped_at.is_some() && it.part.is_none();
            it.market == market && !it.is_over && !is_away
        };
        let machines = || self.machines.iter().filter(is_live);
        (machines().count(), machines().filter(|it| it.is_waiting()).count())
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
            hands_over: false,
            is_over: false,
            stopped_at: None,
            part: None,
            parts: 0,
            ends,
        });
        self.at(Millis(since.0 + bag.launch.0), Happening::Ready(at));
        if market == Market::Spot {
            self.announce(at, since, ends);
        }
    }

    /// Schedules the end of a spot machine's life, and the notice before it.
    fn announce(&mut self, at: usize, since: Millis, ends: Millis) {
        let notice = self.of.policy.notice;
        if notice > Millis(0) {
            let noticed = Millis(ends.0.saturating_sub(notice.0)).max(since);
            self.at(noticed, Happening::Noticed(at));
        }
        self.at(ends, Happening::Taken(at));
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
mod tests;
