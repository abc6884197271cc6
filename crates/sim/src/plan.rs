//! What a seed stands for: the cluster, its load, and the faults that will happen to it.
//!
//! Which faults happen when is drawn by `schedule.rs`.

mod limits;
pub(crate) mod queues;

use sanderling_core::background::BackgroundConfig;
use sanderling_core::preemption::Model;
use sanderling_core::reserve::Departures;
use sanderling_protocol::Millis;
use sanderling_protocol::order::Damage;

use crate::random::Random;
use crate::schedule::{self, Scene};
use crate::wire::{CALLERS_MAX, Host, PLACES};

use limits::Limits;
use queues::QueuePlan;

/// Everything that is decided before a run begins.
#[derive(Debug, Clone)]
pub(crate) struct RunPlan {
    pub(crate) seed: u64,
    pub(crate) scene: Scene,
    pub(crate) datanodes: u8,
    pub(crate) writers: u8,
    pub(crate) readers: u8,
    pub(crate) managers: u8,
    /// Applications that share names and note what they see; in most seeds none.
    pub(crate) callers: u8,
    pub(crate) steps: u32,
    pub(crate) dram_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) lease_millis: u64,
    pub(crate) network: Rates,
    /// Longest time that the namenode gathers requests for one batch, in microseconds.
    pub(crate) gather_micros_max: u64,
    /// Longest time between a write's admission and its publication, in microseconds.
    pub(crate) copy_micros_max: u64,
    /// Bytes per second that one datanode can push.
    pub(crate) link_bytes_per_second: u64,
    /// The shortest notice that the datanodes declare; short ones make copies necessary.
    pub(crate) notice_millis_min: Option<u64>,
    /// Whether a killed machine is silent instead of refusing connections.
    pub(crate) is_dead_silent: bool,
    /// Share of namenode kills that come between the journal and the answer.
    pub(crate) snapshot_every: u64,
    /// How often, in thousandths of its polls, the manager also does something without sense.
    pub(crate) random_manager_permille: u32,
    /// Share of the clients' requests, in thousandths, that travel in a frame with others.
    pub(crate) frame_permille: u32,
    pub(crate) background: BackgroundPlan,
    /// How many nodes must be able to leave at once; often nothing is kept for them.
    pub(crate) departures: Departures,
    /// How long machines live, if the namenode has a model.
    pub(crate) preemption: Option<Model>,
    /// Bounds of what is done at once and kept.
    pub(crate) limits: Limits,
    /// Bounds of what waits in the namenode.
    pub(crate) queues: QueuePlan,
    /// Whether the directories that most is written to are jobs, which end.
    pub(crate) has_large_jobs: bool,
    pub(crate) faults: Vec<Fault>,
    /// When the faults stop, in microseconds.
    pub(crate) calm_at: u64,
    /// When the namenode's changes count as written.
    pub(crate) sync: Sync,
    /// Whether the cluster was begun by the release before.
    pub(crate) begins_old: bool,
    /// Whether requests that were sent to one process of the namenode may reach the next, as in a
    /// group, where that is another member with connections of its own.
    pub(crate) has_successors: bool,
}

/// When a change of the namenode counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Once the disk has it.
    Always,
    /// Once the kernel has it; the disk follows within so many microseconds.
    Os(u64),
}

/// What is done without a notice, and what is known for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackgroundPlan {
    pub(crate) has_copies: bool,
    pub(crate) has_rebalancing: bool,
    /// Whether datanodes declare how fast they can send.
    pub(crate) declares_egress: bool,
    /// Share of the links that it may use.
    pub(crate) share_percent: u64,
    /// How long a new node is spared.
    pub(crate) ramp: Millis,
}

impl BackgroundPlan {
    fn draw(random: &mut Random) -> Self {
        Self {
            has_copies: random.permille(800),
            has_rebalancing: random.permille(800),
            declares_egress: random.permille(700),
            share_percent: random.pick(&[20, 100]),
            ramp: Millis(random.pick(&[500, 5000, 60_000])),
        }
    }

    /// Returns the manager's bounds, with times as short as the runs are.
    pub(crate) fn config(self) -> BackgroundConfig {
        let mut config = BackgroundConfig::default();
        config.exposure.is_on = self.has_copies;
        config.exposure.expires_soon = Millis(1000);
        config.exposure.life_min = Millis(5000);
        config.rebalance.is_on = self.has_rebalancing;
        config.rebalance.excess_bytes_min = EXCESS_BYTES_MIN;
        config.rebalance.idle_min = Millis(500);
        config.pace.share_percent = self.share_percent;
        config.pace.over_percent = self.share_percent;
        config.pace.risk_percent = self.share_percent;
        config.pace.target_percent = 100;
        config.pace.ramp = self.ramp;
        config.scan_wait_max = Millis(1500);
        config
    }
}

/// Excess of the fullest node that is worth a move: the simulated nodes are small. It is the
/// product's default.
pub(crate) const EXCESS_BYTES_MIN: u64 = 256 << 10;

/// Adds a plan with a change.
type AddChanged<'a> = &'a mut dyn FnMut(&dyn Fn(&mut RunPlan));

/// What the network does to messages, in thousandths of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rates {
    pub(crate) loss: u32,
    pub(crate) duplicate: u32,
    pub(crate) reorder: u32,
    /// Longest delay of an ordinary message in microseconds.
    pub(crate) delay_micros_max: u64,
    /// Longest delay of a reordered one.
    pub(crate) reorder_micros_max: u64,
}

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// When, in microseconds.
    pub(crate) at: u64,
    pub(crate) kind: FaultKind,
}

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A datanode's process ends at once, without a notice; another starts in its place.
    KillDatanode {
        slot: u8,
        down_millis: u64,
    },
    /// The namenode's process ends at once and starts again. `is_after_journal`: between the write
    /// of its journal and what follows from it.
    KillNamenode {
        down_millis: u64,
        is_after_journal: bool,
    },
    /// The namenode's process is stopped and goes on later: what was sent to it waits.
    FreezeNamenode {
        millis: u64,
    },
    KillManager {
        manager: u8,
        down_millis: u64,
    },
    /// A manager's process is stopped and goes on later: what was sent to it waits.
    PauseManager {
        manager: u8,
        millis: u64,
    },
    KillWriter {
        writer: u8,
    },
    /// The machine gets a notice and dies at `dies_in_millis`, which is the deadline, or sooner;
    /// `None`: its cloud takes the notice back. A `manager` on the same machine dies with it.
    Notice {
        slot: u8,
        deadline_millis: u64,
        dies_in_millis: Option<u64>,
        is_own: bool,
        manager: Option<u8>,
    },
    /// So many of the machines that others' blocks are just moving to get a notice.
    NoticeTargets {
        count: u8,
        deadline_millis: u64,
    },
    /// The cloud recommends to leave the machine.
    Recommend {
        slot: u8,
        is_own: bool,
    },
    /// A new machine joins.
    Join,
    Decommission {
        slot: u8,
    },
    Cancel {
        slot: u8,
    },
    /// Places in one half cannot reach places in the other.
    Partition {
        half: u64,
        millis: u64,
        is_one_way: bool,
    },
    /// What goes from the places of one set to those of the other is lost; the other way it is
    /// not.
    OneWay {
        from: u32,
        to: u32,
        millis: u64,
    },
    /// What one place sends or receives waits.
    Clog {
        place: u8,
        millis: u64,
    },
    SlowDisk {
        slot: u8,
        micros: u64,
        millis: u64,
    },
    /// A process's clock jumps.
    ClockSkew {
        place: u8,
        millis: i64,
    },
    /// The bytes of one of a datanode's blocks change or go; `is_vanished`: it forgets the block.
    Rot {
        slot: u8,
        number: u64,
        damage: Damage,
        is_vanished: bool,
    },
    /// The namenode's machine crashes: of what the disk does not have, that share is kept, in
    /// thousandths. `is_holed`: later records were written, earlier ones not.
    CrashNamenode {
        down_millis: u64,
        kept_permille: u64,
        is_holed: bool,
    },
    /// The operator puts a copy of the namenode's directory aside.
    CopyDirectory,
    /// The namenode ends, and starts with the copy that was put aside.
    PutDirectoryBack {
        down_millis: u64,
    },
    /// The namenode's process ends, and the machine's clock is another when the next one starts.
    StepClock {
        down_millis: u64,
        step_millis: i64,
    },
    /// No sync of the namenode's disk ends for a while.
    SlowSync {
        millis: u64,
    },
    /// The namenode's disk is full for a while.
    FullDisk {
        millis: u64,
    },
    /// The next sync of the namenode's disk fails, which ends the process. Of what the disk does
    /// not have, that share is there afterwards, in thousandths.
    FailSync {
        down_millis: u64,
        kept_permille: u64,
    },
}

/// How long the leadership lease of the managers lasts. Half of the product's default, so that
/// pauses of a manager, some of which last longer, let it end within a run.
pub(crate) const LEADER_LEASE: Millis = Millis(1500);

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

fn draw_departures(random: &mut Random) -> Departures {
    let kept = [Departures::Default, Departures::Fixed(1), Departures::Fixed(2)];
    if random.permille(400) { random.pick(&kept) } else { Departures::Unset }
}

fn draw_callers(random: &mut Random) -> u8 {
    let callers = random.between(2, u64::from(CALLERS_MAX)) as u8;
    if random.permille(350) { callers } else { 0 }
}

impl RunPlan {
    pub(crate) fn new(seed: u64, steps: u32) -> Self {
        let mut random = Random::new(seed, 1);
        let datanodes = random.between(2, 6) as u8;
        let scene = Scene::draw(seed);
        let is_small = random.permille(250) || scene == Scene::Full;
        let dram_bytes = if is_small { random.between(2, 5) } else { random.between(8, 40) } * MIB;
        let disk_bytes = if random.permille(400) { random.between(4, 40) * MIB } else { 0 };
        let mut plan = Self {
            seed,
            scene,
            datanodes,
            writers: random.between(1, 4) as u8,
            readers: random.between(1, 2) as u8,
            managers: random.between(1, 2) as u8,
            callers: draw_callers(&mut Random::new(seed, 30)),
            steps,
            dram_bytes,
            disk_bytes,
            lease_millis: random.pick(&[700, 1500, 4000]),
            network: Rates {
                delay_micros_max: random.pick(&[200, 2000, 20_000]),
                ..Rates::default()
            },
            gather_micros_max: random.pick(&[0, 300, 5000]),
            copy_micros_max: random.pick(&[0, 500, 20_000]),
            link_bytes_per_second: random.pick(&[1, 4, 40, 400]) * MIB,
            notice_millis_min: None,
            is_dead_silent: random.permille(300),
            snapshot_every: random.pick(&[20, 200, 100_000]),
            random_manager_permille: 0,
            frame_permille: Random::new(seed, 45).pick(&[0, 0, 300, 1000]),
            background: BackgroundPlan::draw(&mut Random::new(seed, 9)),
            departures: draw_departures(&mut Random::new(seed, 12)),
            preemption: schedule::model(seed, scene),
            limits: Limits::draw(&mut Random::new(seed, 31))
                .with_slices(&mut Random::new(seed, 46)),
            queues: Self::draw_queues(seed, scene),
            has_large_jobs: Random::new(seed, 32).permille(100),
            faults: Vec::new(),
            calm_at: random.between(4, 14) * 1_000_000,
            sync: Sync::Always,
            begins_old: Random::new(seed, 42).permille(300),
            has_successors: Random::new(seed, 47).permille(500),
        };
        plan.draw_network(&mut random);
        plan.faults = schedule::draw(&plan);
        plan.draw_random_manager();
        plan.draw_notice();
        plan.draw_absence();
        plan.draw_pause();
        plan.draw_rot();
        plan.draw_one_way();
        plan.draw_stall();
        schedule::draw_log(&mut plan);
        plan
    }

    /// Draws the namenode's queues. Where no call may fail, they are as large as a server's.
    fn draw_queues(seed: u64, scene: Scene) -> QueuePlan {
        let drawn = QueuePlan::draw(&mut Random::new(seed, 48));
        if scene == Scene::Kind { QueuePlan::default() } else { drawn }
    }

    /// Draws what becomes of bytes at rest: of most seeds nothing.
    fn draw_rot(&mut self) {
        let mut random = Random::new(self.seed, 11);
        if self.scene == Scene::Kind || !random.permille(300) {
            return;
        }
        for _ in 0..random.between(1, 4) {
            let at = random.between(300_000, self.calm_at);
            let slot = random.below(u64::from(self.datanodes)) as u8;
            let damage = random.pick(&[Damage::Checksum, Damage::Missing, Damage::Short]);
            let (number, is_vanished) = (random.next(), random.permille(250));
            let kind = FaultKind::Rot { slot, number, damage, is_vanished };
            self.faults.push(Fault { at, kind });
        }
    }

    /// Draws how much the nodes may hold that is nowhere else: often less than they do.
    fn draw_notice(&mut self) {
        let mut random = Random::new(self.seed, 9);
        if random.permille(600) {
            let budget = random.pick(&[MIB / 4, MIB, 3 * MIB]);
            // A little more than the quarter of a second that no byte flows in, and a share of the
            // link's bytes, as the core reckons.
            self.notice_millis_min = Some(250 + budget * 1430 / self.link_bytes_per_second + 1);
        }
    }

    /// Returns whether nothing but notices in good time happens to the cluster: then no byte may be
    /// lost and no call may fail.
    pub(crate) fn is_kind(&self) -> bool {
        let rates = &self.network;
        let is_harmless = |fault: &Fault| match fault.kind {
            FaultKind::Notice { deadline_millis, dies_in_millis, .. } => {
                deadline_millis >= 6000 && dies_in_millis.is_none_or(|at| at >= deadline_millis)
            }
            FaultKind::Decommission { .. } | FaultKind::Recommend { .. } | FaultKind::Join => true,
            _ => false,
        };
        let left = u64::from(self.datanodes).saturating_sub(self.faults.len() as u64);
        rates.loss == 0
            && (rates.reorder == 0 || rates.reorder_micros_max <= 50_000)
            && self.link_bytes_per_second >= 40 * MIB
            && self.dram_bytes >= 20 * MIB
            && left >= 2
            && left * self.dram_bytes >= 60 * MIB
            && self.faults.iter().all(is_harmless)
    }

    /// Returns whether every process that runs can reach every other one in good time, and no
    /// notice is taken back.
    pub(crate) fn is_reachable(&self) -> bool {
        let rates = &self.network;
        let is_in_the_way = |fault: &Fault| {
            matches!(
                fault.kind,
                FaultKind::Cancel { .. }
                    | FaultKind::Partition { .. }
                    | FaultKind::OneWay { .. }
                    | FaultKind::Clog { .. }
                    | FaultKind::ClockSkew { .. }
                    | FaultKind::SlowSync { .. }
                    | FaultKind::FullDisk { .. }
                    | FaultKind::FailSync { .. }
            )
        };
        rates.loss == 0
            && (rates.reorder == 0 || rates.reorder_micros_max <= 50_000)
            && !self.faults.iter().any(is_in_the_way)
    }

    /// Returns plans in which a little less happens.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            plans.push(plan);
        };
        for index in 0..self.faults.len() {
            with(&|plan| {
                plan.faults.remove(index);
            });
        }
        self.with_less_disorder(&mut with);
        if self.random_manager_permille > 0 {
            with(&|plan| plan.random_manager_permille = 0);
        }
        if self.frame_permille > 0 {
            with(&|plan| plan.frame_permille = 0);
        }
        if self.background.has_copies {
            with(&|plan| plan.background.has_copies = false);
        }
        if self.background.has_rebalancing {
            with(&|plan| plan.background.has_rebalancing = false);
        }
        if self.readers > 1 {
            with(&|plan| plan.readers -= 1);
        }
        if self.callers > 0 {
            with(&|plan| plan.callers = 0);
            with(&|plan| plan.callers -= 1);
        }
        if self.managers > 1 {
            with(&|plan| plan.managers -= 1);
        }
        if self.writers > 1 {
            with(&|plan| plan.writers -= 1);
        }
        if self.steps > 3 {
            with(&|plan| plan.steps /= 2);
        }
        if self.calm_at > 2_000_000 {
            with(&|plan| {
                plan.calm_at -= 1_000_000;
                plan.faults.retain(|fault| fault.at < plan.calm_at);
            });
        }
        if self.gather_micros_max > 0 {
            with(&|plan| plan.gather_micros_max = 0);
        }
        if self.limits.is_small {
            with(&|plan| plan.limits = Limits::default());
        }
        if self.queues.is_small {
            with(&|plan| plan.queues = QueuePlan::default());
        }
        if self.copy_micros_max > 0 {
            with(&|plan| plan.copy_micros_max = 0);
        }
        if self.has_large_jobs {
            with(&|plan| plan.has_large_jobs = false);
        }
        plans
    }

    fn with_less_disorder(&self, with: AddChanged<'_>) {
        if self.network.loss > 0 {
            with(&|plan| plan.network.loss = 0);
        }
        if self.network.duplicate > 0 {
            with(&|plan| plan.network.duplicate = 0);
        }
        if self.network.reorder > 0 {
            with(&|plan| plan.network.reorder = 0);
        }
        if self.has_successors {
            with(&|plan| plan.has_successors = false);
        }
    }

    fn draw_network(&mut self, random: &mut Random) {
        let rates = &mut self.network;
        if self.scene != Scene::Kind && random.permille(300) {
            rates.loss = random.between(2, 60) as u32;
        }
        if random.permille(300) {
            rates.duplicate = random.between(2, 100) as u32;
        }
        if random.permille(400) {
            rates.reorder = random.between(5, 200) as u32;
            rates.reorder_micros_max = random.pick(&[2_000, 50_000, 1_500_000]);
        }
    }

    /// Draws times in which the namenode is stopped, some of them longer than every lease.
    fn draw_absence(&mut self) {
        let mut random = Random::new(self.seed, 21);
        if self.scene == Scene::Kind || !random.permille(250) {
            return;
        }
        for _ in 0..random.between(1, 2) {
            let at = random.between(200_000, self.calm_at);
            let millis = random.pick(&[100, 700, 2500, 8000]);
            self.faults.push(Fault { at, kind: FaultKind::FreezeNamenode { millis } });
        }
    }

    /// Draws times in which a manager is stopped, most of them longer than its lease.
    fn draw_pause(&mut self) {
        let mut random = Random::new(self.seed, 43);
        if self.scene == Scene::Kind || !random.permille(250) {
            return;
        }
        for _ in 0..random.between(1, 3) {
            let at = random.between(200_000, self.calm_at);
            let manager = random.below(u64::from(self.managers)) as u8;
            let millis = random.pick(&[300, 1400, 1600, 5000]);
            self.faults.push(Fault { at, kind: FaultKind::PauseManager { manager, millis } });
        }
    }

    /// Draws times in which one process receives from another and does not reach it, or receives
    /// from all and reaches none.
    fn draw_one_way(&mut self) {
        let mut random = Random::new(self.seed, 33);
        if self.scene == Scene::Kind || !random.permille(150) {
            return;
        }
        let namenode = 1 << Host::Namenode.index();
        for _ in 0..random.between(1, 3) {
            let slot = random.below(u64::from(self.datanodes)) as u8;
            let one = 1 << Host::Datanode(slot).index();
            let other = 1 << random.below(PLACES as u64);
            let pairs = [(one, namenode), (namenode, one), (one, other), (other, one)];
            let all = [(one, !one), (!one, one), (other, !other), (!other, other)];
            let (from, to) =
                if random.permille(600) { random.pick(&pairs) } else { random.pick(&all) };
            let at = random.between(200_000, self.calm_at);
            let millis = random.pick(&[200, 900, 2500, 7000]);
            self.faults.push(Fault { at, kind: FaultKind::OneWay { from, to, millis } });
        }
    }

    /// Draws times in which a datanode's writes hang for seconds: longer than calls, leases and
    /// pushes wait.
    fn draw_stall(&mut self) {
        let mut random = Random::new(self.seed, 34);
        if self.scene == Scene::Kind || !random.permille(80) {
            return;
        }
        for _ in 0..random.between(1, 2) {
            let slot = random.below(u64::from(self.datanodes)) as u8;
            let at = random.between(200_000, self.calm_at);
            let (micros, millis) = (random.between(1, 6) * 1_000_000, random.between(200, 3000));
            self.faults.push(Fault { at, kind: FaultKind::SlowDisk { slot, micros, millis } });
        }
    }

    fn draw_random_manager(&mut self) {
        let mut random = Random::new(self.seed, 7);
        self.random_manager_permille = random.pick(&[0, 0, 100, 500, 900]);
    }
}
