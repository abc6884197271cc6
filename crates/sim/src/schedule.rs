//! The schedules: which faults happen when.
//!
//! Some seeds draw single faults, each from a random subset of the kinds (swarm testing, Groce and
//! others, "Swarm Testing", ISSTA 2012). The others play one scene that single draws would hardly
//! ever make: waves of notices, take-overs in the middle of drains, fleets whose machines live by a
//! preemption model, full fleets, and clouds that contradict themselves.

use sanderling_core::preemption::{
    Bathtub, Exponential, FleetModel, Lifetimes, Model, Shape, Trace, TraceKind,
};
use sanderling_protocol::Millis;

use crate::plan::{Fault, FaultKind, RunPlan, Sync};
use crate::random::Random;
use crate::wire::PLACES_SINGLE;

/// What a seed's schedule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Single faults.
    Swarm,
    /// Nothing but notices in good time.
    Kind,
    /// Half of the fleet is noticed within a second; perhaps then those that its blocks went to.
    Wave,
    /// Managers and namenodes are killed in the middle of drains.
    TakeOver,
    /// Machines live as long as a model of preemptions has it.
    Lifetimes,
    /// Hardly any room, and new nodes that join.
    Full,
    /// Notices that come twice, are taken back, come again, or are only recommended.
    Wavering,
}

/// Draws one schedule.
struct Schedule<'a> {
    plan: &'a RunPlan,
    random: Random,
    faults: Vec<Fault>,
}

/// Lifetimes of a few machines in minutes, of which a fleet is resampled. Invented in the shape of
/// the bathtub (Kadupitiya and others, HPDC 2020): some that die early, few in the middle, and many
/// shortly before 24 hours.
const LIFETIMES_MINUTES: [u64; 12] = [4, 11, 26, 55, 130, 420, 900, 1260, 1330, 1400, 1432, 1439];

/// A recorded morning of four machines.
const TRACE: &str = "node,seconds,event,notice_seconds
slot-1,0,start,
slot-2,0,start,
slot-3,0,start,
slot-4,0,start,
slot-2,1500,recommend,
slot-2,2400,notice,120
slot-3,2460,notice,120
slot-2,2521,start,
slot-3,2490,cancel,
slot-1,4000,kill,
slot-1,4100,start,
slot-3,5200,notice,120
slot-3,5230,notice,60
slot-3,5291,start,
slot-4,6900,recommend,
slot-2,7200,kill,
slot-4,8000,end,
slot-3,8000,end,
slot-1,8000,end,
";

/// Seconds that [`TRACE`] lasts: its last line.
const TRACE_SECONDS: f64 = 8000.0;

impl Scene {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 8);
        match random.below(100) {
            0..=11 => Self::Kind,
            12..=49 => Self::Swarm,
            50..=62 => Self::Wave,
            63..=72 => Self::TakeOver,
            73..=82 => Self::Lifetimes,
            83..=89 => Self::Full,
            _ => Self::Wavering,
        }
    }
}

/// Draws what becomes of the namenode's directory and of its machine's clock; of most seeds
/// nothing.
pub(crate) fn draw_log(plan: &mut RunPlan) {
    let mut random = Random::new(plan.seed, 41);
    if plan.scene == Scene::Kind {
        return;
    }
    if random.permille(700) {
        plan.sync = Sync::Os(random.pick(&[20_000, 300_000, 2_000_000]));
    }
    let mut faults = Vec::new();
    let mut push = |at, kind| faults.push(Fault { at, kind });
    let time = |random: &mut Random| random.between(300_000, plan.calm_at - 200_000);
    if random.permille(150) {
        for _ in 0..random.between(1, 3) {
            let at = time(&mut random);
            let down_millis = random.pick(&[1, 100, 900, 2500]);
            let kept_permille = random.pick(&[0, 0, 500, 900]);
            let is_holed = random.permille(300);
            push(at, FaultKind::CrashNamenode { down_millis, kept_permille, is_holed });
        }
    }
    if random.permille(40) {
        let at = time(&mut random);
        push(at, FaultKind::CopyDirectory);
        let back = random.between(at, plan.calm_at);
        push(back, FaultKind::PutDirectoryBack { down_millis: random.between(1000, 2500) });
    }
    if random.permille(60) {
        for _ in 0..random.between(1, 2) {
            let step_millis = random.pick(&[-STEP_FAR_MILLIS, -3000, -200, 3000, STEP_FAR_MILLIS]);
            let down_millis = random.between(1, 2000);
            push(time(&mut random), FaultKind::StepClock { down_millis, step_millis });
        }
    }
    if random.permille(60) {
        for _ in 0..random.between(1, 2) {
            let (millis, down_millis) = (random.pick(&[200, 1000, 4000]), random.between(1, 2000));
            let kept_permille = random.pick(&[0, 500, 1000]);
            let kind = match random.below(3) {
                0 => FaultKind::SlowSync { millis },
                1 => FaultKind::FullDisk { millis },
                _ => FaultKind::FailSync { down_millis, kept_permille },
            };
            push(time(&mut random), kind);
        }
    }
    plan.faults.extend(faults);
}

/// A clock that is wrong by five years. Far beyond the 30 days by which a start steps at most.
const STEP_FAR_MILLIS: i64 = 5 * 365 * 24 * 3600 * 1000;

/// Returns the model that the machines of a seed live by: a day of it passes in a few seconds.
/// `None` when they live by none, or by the recorded trace.
pub(crate) fn model(seed: u64, scene: Scene) -> Option<Model> {
    if scene != Scene::Lifetimes {
        return None;
    }
    let mut random = Random::new(seed, 10);
    let shape = match random.below(4) {
        0 => Shape::Bathtub(Bathtub::preset("typical").expect("a known fit")),
        1 => Shape::Exponential(Exponential { mean_hours: 8.0 }),
        2 => {
            let minutes = |minutes: u64| Millis::from_secs(minutes * 60);
            let ended: Vec<Millis> = LIFETIMES_MINUTES.map(minutes).to_vec();
            Shape::Lifetimes(Lifetimes::new(&ended, &[]).expect("they are lifetimes"))
        }
        _ => return None,
    };
    let day_seconds = random.pick(&[3.0, 6.0, 12.0]);
    Some(Model::from(shape).sped_up(86_400.0 / day_seconds))
}

/// Draws the faults of a plan.
pub(crate) fn draw(plan: &RunPlan) -> Vec<Fault> {
    let random = Random::new(plan.seed, 2);
    let mut schedule = Schedule { plan, random, faults: Vec::new() };
    match plan.scene {
        Scene::Kind => schedule.kind(),
        Scene::Swarm => {
            // Now and then a very bad day.
            let is_bad = schedule.random.permille(150);
            let count = if is_bad { 20 } else { schedule.random.between(1, 9) };
            schedule.swarm(count);
        }
        Scene::Wave => schedule.wave(),
        Scene::TakeOver => schedule.take_over(),
        Scene::Lifetimes => schedule.lifetimes(),
        Scene::Full => schedule.full(),
        Scene::Wavering => schedule.wavering(),
    }
    if !matches!(plan.scene, Scene::Kind | Scene::Swarm) && schedule.random.permille(500) {
        let count = schedule.random.between(1, 4);
        schedule.swarm(count);
    }
    schedule.random = Random::new(plan.seed, 13);
    if plan.scene != Scene::Kind && schedule.random.permille(60) {
        schedule.unreceived_notice();
    }
    let mut faults = schedule.faults;
    faults.retain(|fault| fault.at < plan.calm_at - 50_000);
    faults.sort_by_key(|fault| fault.at);
    faults
}

impl Schedule<'_> {
    fn push(&mut self, at: u64, kind: FaultKind) {
        self.faults.push(Fault { at, kind });
    }

    /// Returns a time that leaves room for what follows.
    fn time(&mut self) -> u64 {
        self.random.between(200_000, self.plan.calm_at - 200_000)
    }

    fn slot(&mut self) -> u8 {
        self.random.below(u64::from(self.plan.datanodes)) as u8
    }

    fn manager(&mut self) -> u8 {
        self.random.below(u64::from(self.plan.managers)) as u8
    }

    /// A notice after which the machine goes at its deadline.
    fn notice(&mut self, at: u64, slot: u8, deadline_millis: u64) {
        let is_own = self.random.permille(300);
        let dies_in_millis = Some(deadline_millis);
        let kind =
            FaultKind::Notice { slot, deadline_millis, dies_in_millis, is_own, manager: None };
        self.push(at, kind);
    }

    /// Returns so many of the slots, each once.
    fn slots(&mut self, count: u8) -> Vec<u8> {
        let mut slots: Vec<u8> = (0..self.plan.datanodes).collect();
        for index in (1..slots.len()).rev() {
            let other = self.random.below(index as u64 + 1) as usize;
            slots.swap(index, other);
        }
        slots.truncate(usize::from(count));
        slots
    }

    /// A machine sees its own notice while the namenode is down.
    fn unreceived_notice(&mut self) {
        let (at, slot) = (self.time(), self.slot());
        self.push(at, FaultKind::KillNamenode { down_millis: 1500, is_after_journal: false });
        let (deadline_millis, dies_in_millis) = (8000, Some(8000));
        let kind = FaultKind::Notice {
            slot,
            deadline_millis,
            dies_in_millis,
            is_own: true,
            manager: None,
        };
        self.push(at + 1000, kind);
    }

    fn kind(&mut self) {
        let half = self.plan.datanodes / 2;
        let count = if self.random.permille(400) { half } else { half.min(2) };
        let is_wave = self.random.permille(400);
        let first = self.random.between(200_000, self.plan.calm_at - 1_300_000);
        for slot in self.slots(count) {
            let at = if is_wave { first + self.random.below(1_000_000) } else { self.time() };
            self.notice(at, slot, 8000);
        }
    }

    fn swarm(&mut self, count: u64) {
        let allowed = self.random.next();
        let is_allowed = |number: u64| allowed >> number & 1 == 1;
        let (mut drawn, mut tries) = (0, 0);
        while drawn < count && tries < count * 4 {
            tries += 1;
            let number = self.random.below(14);
            // Notices are what the store is for: two seeds of three have them.
            if number != 4 && !is_allowed(number) {
                continue;
            }
            let at = self.time();
            let kind = self.one(number);
            self.push(at, kind);
            drawn += 1;
        }
    }

    fn one(&mut self, number: u64) -> FaultKind {
        let (slot, manager) = (self.slot(), self.manager());
        let random = &mut self.random;
        let place = random.below(PLACES_SINGLE as u64) as u8;
        let millis = random.pick(&[20, 200, 900, 2500, 7000]);
        match number {
            0 => FaultKind::KillDatanode { slot, down_millis: random.between(1, 3000) },
            1 => kill_namenode(random),
            2 => FaultKind::KillManager { manager, down_millis: random.between(1, 3000) },
            3 => FaultKind::KillWriter { writer: random.below(u64::from(self.plan.writers)) as u8 },
            4 | 5 => {
                let deadline_millis = random.pick(&[30, 300, 1000, 2500, 8000]);
                let is_late = random.permille(250);
                let dies_in_millis =
                    Some(if is_late { random.below(deadline_millis) } else { deadline_millis });
                let is_own = random.permille(300);
                let manager = random.permille(100).then_some(manager);
                FaultKind::Notice { slot, deadline_millis, dies_in_millis, is_own, manager }
            }
            6 => FaultKind::Decommission { slot },
            7 => FaultKind::Cancel { slot },
            8 => {
                let is_one_way = random.permille(300);
                FaultKind::Partition { half: random.next(), millis, is_one_way }
            }
            9 => FaultKind::Clog { place, millis },
            10 => FaultKind::SlowDisk { slot, micros: random.pick(&[5_000, 300_000]), millis },
            11 => {
                let skew = random.pick(&[-3000, -200, 200, 1000]);
                FaultKind::ClockSkew { place, millis: skew }
            }
            12 => FaultKind::Recommend { slot, is_own: random.permille(500) },
            _ => FaultKind::Join,
        }
    }

    fn wave(&mut self) {
        let half = self.plan.datanodes.div_ceil(2);
        let first = self.random.between(300_000, self.plan.calm_at / 2);
        let deadline_millis = self.random.pick(&[300, 1000, 2500, 8000]);
        let last = self.random.pick(&[10_000, 300_000, 1_000_000]);
        for slot in self.slots(half) {
            let at = first + self.random.below(last);
            self.notice(at, slot, deadline_millis);
        }
        if self.random.permille(600) {
            let at = first + self.random.between(100_000, 2_000_000);
            let deadline_millis = self.random.pick(&[300, 1000, 2500]);
            let count = self.random.between(1, 3) as u8;
            self.push(at, FaultKind::NoticeTargets { count, deadline_millis });
        }
        if self.random.permille(300) {
            let at = first + self.random.below(3_000_000);
            self.push(at, FaultKind::Join);
        }
    }

    fn take_over(&mut self) {
        for _ in 0..self.random.between(2, 4) {
            let at = self.time();
            let (slot, manager) = (self.slot(), self.manager());
            let deadline_millis = self.random.pick(&[1000, 2500, 8000]);
            let is_own_host = self.random.permille(250);
            if is_own_host {
                let dies_in_millis =
                    Some(self.random.between(deadline_millis / 2, deadline_millis));
                let manager = Some(manager);
                let is_own = true;
                let kind =
                    FaultKind::Notice { slot, deadline_millis, dies_in_millis, is_own, manager };
                self.push(at, kind);
            } else {
                self.notice(at, slot, deadline_millis);
            }
            for _ in 0..self.random.between(1, 3) {
                let at = at + self.random.between(1_000, 1_500_000);
                let kind = if self.random.permille(500) {
                    let down_millis = self.random.between(1, 2000);
                    FaultKind::KillManager { manager: self.manager(), down_millis }
                } else {
                    kill_namenode(&mut self.random)
                };
                self.push(at, kind);
            }
        }
    }

    /// Takes the fleet's course from a trace, drawn from a model or recorded.
    fn lifetimes(&mut self) {
        let horizon = Millis(self.plan.calm_at / 1000);
        let Some(model) = model(self.plan.seed, self.plan.scene) else {
            let trace: Trace = TRACE.parse().expect("a recorded trace");
            return self.follow(&trace, horizon.0 as f64 / 1000.0 / TRACE_SECONDS);
        };
        let fleet = FleetModel {
            slots: u32::from(self.plan.datanodes),
            horizon,
            notice: Millis(self.random.pick(&[0, 300, 1000, 2500, 8000])),
            back_after: Millis(self.random.between(100, 3000)),
        };
        let trace = Trace::draw(&model, &fleet, self.random.next());
        self.follow(&trace, 1.0);
    }

    fn follow(&mut self, trace: &Trace, scale: f64) {
        let scaled = |millis: Millis| (millis.0 as f64 * scale) as u64;
        for event in trace.events() {
            let number: u8 =
                event.node.trim_start_matches("slot-").parse().expect("slots have numbers");
            let slot = (number - 1) % self.plan.datanodes;
            let at = scaled(event.at) * 1000 + 100_000;
            match event.kind {
                TraceKind::Recommend => {
                    self.push(at, FaultKind::Recommend { slot, is_own: true });
                }
                TraceKind::Notice(left) => {
                    if self.random.permille(200) {
                        let before = at.saturating_sub(self.random.below(1_500_000));
                        self.push(before, FaultKind::Recommend { slot, is_own: true });
                    }
                    let deadline_millis = scaled(left).max(1);
                    self.notice(at, slot, deadline_millis);
                }
                TraceKind::Cancel => self.push(at, FaultKind::Cancel { slot }),
                TraceKind::Kill => {
                    let down_millis = self.random.between(100, 3000);
                    self.push(at, FaultKind::KillDatanode { slot, down_millis });
                }
                TraceKind::Start | TraceKind::End => {}
            }
        }
    }

    fn full(&mut self) {
        for _ in 0..self.random.between(1, 2) {
            let at = self.time();
            self.push(at, FaultKind::Join);
        }
        for _ in 0..self.random.below(4) {
            let (at, slot) = (self.time(), self.slot());
            let deadline_millis = self.random.pick(&[300, 1000, 2500, 8000]);
            self.notice(at, slot, deadline_millis);
        }
        if self.random.permille(300) {
            let (at, slot) = (self.time(), self.slot());
            self.push(at, FaultKind::Decommission { slot });
        }
    }

    fn wavering(&mut self) {
        for slot in 0..self.plan.datanodes {
            if self.random.permille(350) {
                continue;
            }
            let at = self.time();
            let after = at + self.random.between(1_000, 2_000_000);
            let deadline_millis = self.random.pick(&[300, 1000, 2500, 8000]);
            match self.random.below(6) {
                0 => {
                    // Twice: the machine goes at the earlier deadline.
                    self.notice(at, slot, deadline_millis);
                    let second = self.random.pick(&[100, 1000, 2500, 8000]);
                    self.notice(after, slot, second);
                }
                1 | 2 => {
                    // Taken back in the middle, and given again.
                    self.taken_back(at, slot, deadline_millis);
                    let cancel = at + self.random.below(deadline_millis * 1000);
                    self.push(cancel, FaultKind::Cancel { slot });
                    let again = cancel + self.random.below(1_500_000);
                    let deadline_millis = self.random.pick(&[300, 1000, 2500]);
                    self.notice(again, slot, deadline_millis);
                }
                3 => {
                    // Nearly over when it comes.
                    let deadline_millis = self.random.between(1, 120);
                    self.notice(at, slot, deadline_millis);
                }
                4 => {
                    self.push(at, FaultKind::Recommend { slot, is_own: true });
                    match self.random.below(3) {
                        0 => self.notice(after, slot, deadline_millis),
                        1 => self.push(after, FaultKind::Cancel { slot }),
                        _ => {}
                    }
                }
                _ => {
                    self.push(at, FaultKind::Decommission { slot });
                    self.notice(after, slot, deadline_millis);
                    if self.random.permille(300) {
                        let at = after + self.random.below(500_000);
                        self.push(at, FaultKind::Cancel { slot });
                    }
                }
            }
        }
    }

    /// A notice that its cloud takes back: the machine stays.
    fn taken_back(&mut self, at: u64, slot: u8, deadline_millis: u64) {
        let is_own = self.random.permille(300);
        let (dies_in_millis, manager) = (None, None);
        let kind = FaultKind::Notice { slot, deadline_millis, dies_in_millis, is_own, manager };
        self.push(at, kind);
    }
}

fn kill_namenode(random: &mut Random) -> FaultKind {
    FaultKind::KillNamenode {
        down_millis: random.between(1, 2000),
        is_after_journal: random.permille(500),
    }
}
