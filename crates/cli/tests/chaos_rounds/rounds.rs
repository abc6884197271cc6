//! One round after the other: load, a fault, rest, judgement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::faults::{ALL, Kind};
use crate::judge::{judge, settle};
use crate::lots::Lots;
use crate::model::{Figures, Violation};
use crate::world::World;

/// Rounds that one fleet lives through.
const ROUNDS_PER_FLEET: u64 = 25;

/// What is to be run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) first: u64,
    pub(crate) rounds: u64,
    pub(crate) sync: String,
    /// Kinds to draw from.
    pub(crate) kinds: Vec<Kind>,
    /// Whether they come in turn instead.
    pub(crate) in_turn: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    judged: u64,
    rounds: BTreeMap<Kind, u64>,
    figures: Vec<Figures>,
    lost_bytes: u64,
    losses: usize,
    slowest: Duration,
    slowest_round: String,
}

/// A violation, with what led to it.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) violation: Violation,
    pub(crate) round: u64,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) directory: String,
}

impl Plan {
    /// Draws among all kinds.
    pub(crate) fn new(seed: u64, rounds: u64, sync: &str) -> Self {
        Self { seed, first: 0, rounds, sync: sync.to_owned(), kinds: ALL.to_vec(), in_turn: false }
    }

    /// Draws a round's faults: one, or two of which the second meets the work of the first.
    fn draw(&self, round: u64, lots: &mut Lots) -> Vec<Kind> {
        if self.in_turn {
            let turn = usize::try_from(round).expect("rounds") % self.kinds.len();
            return vec![self.kinds[turn]];
        }
        (0..=lots.below(3) / 2).map(|_| *lots.pick(&self.kinds)).collect()
    }

    /// Runs all rounds, or as many as keep every promise.
    pub(crate) async fn run(&self) -> Result<Summary, Box<Failed>> {
        let mut summary = Summary::default();
        let mut round = self.first;
        let end = self.first + self.rounds;
        while round < end {
            // A round is the same whichever was the first.
            let last = (round / ROUNDS_PER_FLEET + 1) * ROUNDS_PER_FLEET;
            let fleet_began = round;
            let mut world = World::start(self.seed, fleet_began, &self.sync).await;
            while round < last.min(end) && !world.is_void {
                let mut lots = Lots::new(self.seed, (round << 8) + 0x80);
                let kinds = self.draw(round, &mut lots);
                let ran = one(&mut world, round, &kinds, &mut lots, &mut summary).await;
                if let Err(violation) = ran {
                    let directory = world.keep();
                    return Err(Box::new(Failed { violation, round, kinds, directory }));
                }
                round += 1;
            }
            world.stop().await;
            summary.figures.push(world.shared.model.figures());
            summary.lost_bytes += world.lost_bytes;
            summary.losses += world.known_losses.len();
        }
        Ok(summary)
    }
}

async fn one(
    world: &mut World,
    round: u64,
    kinds: &[Kind],
    lots: &mut Lots,
    summary: &mut Summary,
) -> Result<(), Violation> {
    let began = Instant::now();
    if round.is_multiple_of(ROUNDS_PER_FLEET) || world.ids.is_empty() {
        settle(world).await?;
    }
    world.works().await?;
    crate::faults::pause(lots.below(200)).await;
    let mut happened = Vec::new();
    for kind in kinds {
        if !happened.is_empty() {
            world.is_registered().await;
        }
        let done = kind.happens(world, lots).await;
        let what = done.map_err(|violation| first(world, violation))?;
        happened.push(format!("{kind:?}: {what}"));
        *summary.rounds.entry(*kind).or_default() += 1;
    }
    let happened = happened.join("; then ");
    let over = Instant::now();
    let shared = Arc::clone(&world.shared);
    shared.is_pausing.store(true, Ordering::Relaxed);
    let peace = shared.gate.write().await;
    rest_and_judge(world).await?;
    drop(peace);
    shared.is_pausing.store(false, Ordering::Relaxed);
    world.forgive_nothing();
    let recovery = over.elapsed();
    summary.judged += u64::from(!world.is_void);
    eprintln!(
        "round {round}: {happened}; at rest and judged after {:.1} s, {:.1} s in all",
        recovery.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    if recovery > summary.slowest {
        summary.slowest = recovery;
        summary.slowest_round = format!("round {round}, {kinds:?}");
    }
    Ok(())
}

/// What a worker has seen comes before what follows from it.
fn first(world: &World, violation: Violation) -> Violation {
    world.shared.model.violations().into_iter().next().unwrap_or(violation)
}

/// Waits for rest and judges. No client works meanwhile.
pub(crate) async fn rest_and_judge(world: &mut World) -> Result<(), Violation> {
    settle(world).await.map_err(|violation| first(world, violation))?;
    judge(world).await
}

impl Summary {
    /// Prints what was done.
    pub(crate) fn print(&self) {
        eprintln!("{} rounds judged; faults: {:?}", self.judged, self.rounds);
        let (mut calls, mut errors) = (BTreeMap::new(), BTreeMap::new());
        let (mut written, mut read) = (0, 0);
        for figures in &self.figures {
            for (kind, count) in &figures.calls {
                *calls.entry(*kind).or_insert(0) += count;
            }
            for (name, count) in &figures.errors {
                *errors.entry(*name).or_insert(0) += count;
            }
            written += figures.written_bytes;
            read += figures.read_bytes;
        }
        let all: u64 = calls.values().sum();
        eprintln!("{all} calls: {calls:?}");
        eprintln!("failed with a reason: {errors:?}");
        eprintln!("{} MiB acknowledged, {} MiB read and right", written >> 20, read >> 20);
        eprintln!("{} losses declared, {} B", self.losses, self.lost_bytes);
        if let Some(longest) = self.figures.iter().max_by_key(|figures| figures.longest) {
            eprintln!("longest call: {} {:?}", longest.longest_kind, longest.longest);
        }
        eprintln!("slowest recovery: {:?}, {}", self.slowest, self.slowest_round);
    }
}
