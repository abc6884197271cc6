//! Several agents of one bag, drawn from a seed: they are stopped, killed, paused and cut off, get
//! notices, and lose answers of a backend that is slow, fails or is away. Their clocks differ and
//! jump. The decisions are those of `BagAgent`, `EndRecorder` and `BagPresence`; the world waits,
//! carries requests out and runs commands. A lock is simpler here than it is: it has a world of its
//! own. Times are microseconds.

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis};

use crate::checkpoint::{BagTerms, Market};
use crate::placement::Draw;

mod agent;
mod checks;
mod faults;
mod run;
mod store;

use agent::Agent;
use checks::BagCounts;
use faults::Fault;
use store::{Answer, Request, StoredBag};

/// How many agents there are.
const AGENTS: usize = 3;

/// The agent that is never paused, cut off, killed or stopped.
const HEALTHY: usize = 0;

/// How long an answer is waited for.
const TIMEOUT: u64 = 5_000_000;

/// From when on nothing fails any more.
const FAULTS_END: u64 = 20_000_000;

/// When a bag is looked at in the end. One agent has run all commands by then, one after another.
const END: u64 = FAULTS_END + 300_000_000;

/// The time of day at 0.
const WALL: u64 = 1 << 40;

/// What the world does wrong in place of a machine or its shell, to see that the checks find what
/// comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentBug {
    /// A lock that a runner has is taken for a free one.
    HeldTakenForFree,
    /// The list of the tasks that have ended is taken for an empty one.
    EndsUnlisted,
    /// That the agent has to end does not count.
    StopUnseen,
    /// A notice does not count.
    NoticeUnseen,
    /// The end of a run is not handed over.
    EndUnseen,
    /// A bag that is absent for a moment was removed.
    AbsenceEnds,
    /// A run records its end whatever its look at the lock has shown.
    LockUnseen,
    /// A write that has failed is taken for done.
    WriteMisread,
    /// How far the task was before a run is read again after each failure.
    ProgressReread,
}

/// A process of an agent, by the agent's number and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    agent: usize,
    number: u64,
}

/// What a process waits for.
#[derive(Debug, Clone, Copy)]
enum Timer {
    /// The end of the wait with this number.
    Wait(u64),
    /// A signal.
    Stop,
    /// What the run with this number waits for.
    Run(u64, RunTimer),
}

#[derive(Debug, Clone, Copy)]
enum RunTimer {
    Renew,
    Dump,
    CommandEnds,
    /// The pause before the record of an end is tried again.
    Pause,
}

/// What a process has sent a request for.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    /// The agent's work with this number.
    Work(u64),
    /// The agent's own record.
    Record,
    /// A run, by its number.
    Run(u64, RunCall),
}

#[derive(Debug, Clone, Copy)]
enum RunCall {
    Take,
    LookForEnd,
    Renew,
    Dump,
    /// The work of the record of its end.
    End,
    Release,
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
struct Flight {
    process: Process,
    purpose: Purpose,
    /// How long the answer takes back.
    back: u64,
    /// Whether the process does not get the answer.
    is_lost: bool,
}

#[derive(Debug)]
enum Step {
    Timer(Process, Timer),
    Effect(Flight, Request),
    Answer(Process, Purpose, Answer),
    Fault(Fault),
    /// A process of this agent starts.
    Start(usize),
}

/// The world of one bag.
struct BagWorld {
    seed: u64,
    now: u64,
    draw: Draw,
    bug: Option<AgentBug>,
    bag: BagTerms,
    lock_age: Millis,
    retries: u32,
    /// How many of a thousand requests are slow, fail, or lose their answers.
    slow_permille: u64,
    fail_permille: u64,
    lost_permille: u64,
    /// How many of a thousand commands fail.
    command_fails_permille: u64,
    away_until: u64,
    /// Until when the bag is absent, if it ever was.
    absent_until: Option<u64>,
    steps: BTreeMap<(u64, u64), Step>,
    sequence: u64,
    agents: Vec<Agent>,
    /// Counts the runs.
    runs: u64,
    stored: StoredBag,
    counts: BagCounts,
    violation: Option<(&'static str, String)>,
}

impl BagWorld {
    fn new(seed: u64, bug: Option<AgentBug>) -> Self {
        let mut draw = Draw::new(seed);
        let deadline = Instant(WALL + draw.pick(&[5, 15, 60, 3600]) * 1_000_000);
        let (tasks, time) = (draw.between(4, 8) as u32, Millis(6000));
        let mut world = Self {
            seed,
            now: 0,
            bug,
            bag: BagTerms { tasks, time, memory_bytes: 0, deadline },
            lock_age: Millis(draw.pick(&[3000, 6000])),
            retries: draw.below(3) as u32,
            slow_permille: draw.pick(&[0, 50, 200]),
            fail_permille: draw.pick(&[0, 20, 100]),
            lost_permille: draw.pick(&[0, 20, 100]),
            command_fails_permille: draw.pick(&[0, 300]),
            away_until: 0,
            absent_until: None,
            steps: BTreeMap::new(),
            sequence: 0,
            agents: Vec::new(),
            runs: 0,
            stored: StoredBag::default(),
            counts: BagCounts::default(),
            violation: None,
            draw,
        };
        for agent in 0..AGENTS {
            let is_on_demand = agent != HEALTHY && world.draw.chance(300);
            let market = if is_on_demand { Market::OnDemand } else { Market::Spot };
            let at_once = world.draw.between(1, 2) as u32;
            let offset = world.draw.between(0, 1 << 40);
            let rate = world.draw.between(0, 20_000) as i64 - 10_000;
            world.agents.push(Agent::new(market, at_once, offset, rate));
            let start = world.draw.between(0, 500_000);
            world.at(start, Step::Start(agent));
        }
        world.draw_faults();
        world
    }

    fn at(&mut self, time: u64, step: Step) {
        self.sequence += 1;
        self.steps.insert((time, self.sequence), step);
    }

    fn timer(&mut self, agent: usize, pause: u64, timer: Timer) {
        let process = self.process(agent);
        self.at(self.now + pause, Step::Timer(process, timer));
    }

    fn has_faults(&self) -> bool {
        self.now < FAULTS_END
    }

    fn violate(&mut self, checker: &'static str, what: &str) {
        let what = format!("seed {}, {} us: {what}", self.seed, self.now);
        self.violation.get_or_insert((checker, what));
    }

    /// Lets everything happen until a time, until nothing is left to happen, or until a check has
    /// found something.
    fn play(&mut self, until: u64) {
        while let Some(((time, _), step)) = self.steps.pop_first() {
            if time > until || self.violation.is_some() {
                break;
            }
            self.now = time;
            self.step(step);
        }
    }

    fn step(&mut self, step: Step) {
        let of = match &step {
            Step::Timer(process, _) | Step::Answer(process, ..) => Some(*process),
            _ => None,
        };
        if let Some(process) = of {
            let it = &self.agents[process.agent];
            if !it.is_there(process.number) {
                return;
            }
            if it.paused_until > self.now {
                let until = it.paused_until;
                return self.at(until, step);
            }
        }
        match step {
            Step::Timer(process, timer) => self.wake(process.agent, timer),
            Step::Effect(flight, request) => self.take_effect(&flight, request),
            Step::Answer(process, purpose, answer) => {
                self.answered(process.agent, purpose, answer);
            }
            Step::Fault(fault) => self.fault(&fault),
            Step::Start(agent) => self.start(agent),
        }
    }

    fn call(&mut self, agent: usize, purpose: Purpose, request: Request) {
        self.call_within(TIMEOUT, agent, purpose, request);
    }

    /// Sends a request whose answer the process waits for only so long. It may take effect later.
    fn call_within(&mut self, timeout: u64, agent: usize, purpose: Purpose, request: Request) {
        let process = self.process(agent);
        let (to, back) = (self.latency(), self.latency());
        let is_dropped = self.has_faults() && self.draw.chance(self.lost_permille);
        let is_lost = is_dropped || to + back > timeout;
        if is_lost {
            self.at(self.now + timeout, Step::Answer(process, purpose, Answer::Failed));
        }
        let flight = Flight { process, purpose, back, is_lost };
        self.at(self.now + to, Step::Effect(flight, request));
    }

    fn latency(&mut self) -> u64 {
        let is_slow = self.has_faults() && self.draw.chance(self.slow_permille);
        self.draw.between(1000, if is_slow { 1_500_000 } else { 20_000 })
    }

    fn take_effect(&mut self, flight: &Flight, request: Request) {
        let cut_until = self.agents[flight.process.agent].cut_until;
        let is_away = self.now < self.away_until.max(cut_until);
        let fails = self.has_faults() && self.draw.chance(self.fail_permille);
        let answer = match is_away || fails {
            true => Answer::Failed,
            false => self.effect(flight.process, request),
        };
        if !flight.is_lost {
            let Flight { process, purpose, back, .. } = *flight;
            self.at(self.now + back, Step::Answer(process, purpose, answer));
        }
    }
}

/// Plays a world to its end.
fn played(seed: u64, bug: Option<AgentBug>) -> BagWorld {
    let mut world = BagWorld::new(seed, bug);
    world.play(END);
    world.check_end();
    world
}

#[test]
fn each_task_is_recorded_as_ended_and_none_starts_under_a_live_lock_whatever_fails() {
    let mut all = BagCounts::default();
    for seed in 0..150 {
        let world = played(seed, None);
        assert_eq!(world.violation, None);
        all.add(&world.counts);
    }
    // The checks had something to look at.
    assert!(all.starts > 500 && all.ended > 500, "{all:?}");
    assert!(all.taken > 5 && all.stopped > 5, "{all:?}");
    assert!(all.failures > 5 && all.failed > 5, "{all:?}");
}

#[test]
fn each_injected_bug_is_found_by_its_check() {
    let all = [
        (AgentBug::HeldTakenForFree, "lock"),
        (AgentBug::EndsUnlisted, "ended"),
        (AgentBug::StopUnseen, "stop"),
        (AgentBug::NoticeUnseen, "notice"),
        (AgentBug::EndUnseen, "open"),
        (AgentBug::AbsenceEnds, "open"),
        (AgentBug::LockUnseen, "record"),
        (AgentBug::WriteMisread, "lost"),
        (AgentBug::ProgressReread, "failures"),
    ];
    for (bug, check) in all {
        let finds = |seed: u64| {
            let violation = played(seed, Some(bug)).violation;
            violation.is_some_and(|(found, _)| found == check)
        };
        assert!((0..1000).any(finds), "{bug:?} was not found");
    }
}
