//! What decisions cost as a fleet grows.
//!
//! `cargo run --release -p sanderling-sim --example fleet [NODES...]` prints a table: microseconds
//! of one decision, for each size of the fleet, and how much the largest fleet's cost is of the
//! smallest one's. The namenode's and the manager's machines decide; nothing is sent or written.

#![allow(clippy::print_stdout, reason = "it prints what it measures")]

use std::time::{Duration, Instant};

use sanderling_protocol::Refusal;
use sanderling_sim::fleet::Fleet;

/// Sizes of the fleet when none are given.
const NODES: [u32; 6] = [4, 16, 64, 256, 1024, 4096];

/// Blocks that are placed, drained, and moved for balance.
const BLOCKS: u64 = 20_000;

/// Nodes that join a fleet that is there.
const JOINING: u32 = 200;

/// Half-seconds in which the manager looks at a fleet that is in order.
const LOOKS: u32 = 5;

/// Half-seconds that a drain may take when no link holds it up.
const STEPS_MAX: u32 = 2000;

/// What is timed, in the order of [`measure`].
const DECISIONS: [&str; 6] = [
    "a node joins",
    "a home for a new block",
    "a heartbeat",
    "the manager's look, for each node",
    "a block drained",
    "a block moved for balance",
];

fn main() -> Result<(), Refusal> {
    let asked: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let sizes = if asked.is_empty() { NODES.to_vec() } else { asked };
    let mut columns = Vec::new();
    for nodes in &sizes {
        columns.push(measure((*nodes).max(2))?);
    }
    let heads: Vec<String> = sizes.iter().map(|nodes| format!("{nodes:>9}")).collect();
    println!("{:36}{} {:>9}", "us of one, among so many nodes", heads.concat(), "growth");
    for (row, name) in DECISIONS.iter().enumerate() {
        let cells: Vec<f64> = columns.iter().map(|column| column[row]).collect();
        let text: String = cells.iter().map(|micros| format!("{micros:>9.2}")).collect();
        let growth = cells.last().zip(cells.first()).map_or(1.0, |(last, first)| last / first);
        println!("{name:36}{text} {growth:>8.1}x");
    }
    Ok(())
}

/// Times every decision in a fleet of so many nodes.
fn measure(nodes: u32) -> Result<[f64; DECISIONS.len()], Refusal> {
    let mut growing = Fleet::new(nodes)?;
    let joined = fastest(|| growing.add(JOINING))?;
    let mut fleet = Fleet::new(nodes)?;
    let placed = fastest(|| {
        fleet.place(BLOCKS);
        Ok(())
    })?;
    let beats = (10_000 / nodes).max(1);
    let beaten = fastest(|| (0..beats).try_for_each(|_| fleet.beat()))?;
    let beat = micros(beaten, u64::from(beats) * u64::from(nodes));
    fleet.step()?;
    let looked = fastest(|| (0..LOOKS).try_for_each(|_| fleet.step()))?;
    let look = micros(looked, u64::from(LOOKS) * u64::from(nodes)) - beat;

    // One node holds what all others lack, then gets its notice.
    fleet.write(BLOCKS, Some(0))?;
    let (done, balanced) = timed(|| steps(&mut fleet, |fleet| fleet.moved().1 >= BLOCKS / 10));
    let took = done?;
    let rebalanced = fleet.moved().1;
    let own = balanced.saturating_sub(cost(took, nodes, look + beat));
    fleet.notice(0)?;
    let (done, left) = timed(|| steps(&mut fleet, |fleet| fleet.is_drained(0)));
    let drained_in = done?;
    let drained = left.saturating_sub(cost(drained_in, nodes, look + beat));
    let moved = fleet.moved().0.max(1);
    Ok([
        micros(joined, u64::from(JOINING)),
        micros(placed, BLOCKS),
        beat,
        look.max(0.0),
        micros(drained, moved),
        micros(own, rebalanced.max(1)),
    ])
}

/// Lets time pass until something has come about; returns how many steps it took.
fn steps(fleet: &mut Fleet, is_done: impl Fn(&Fleet) -> bool) -> Result<u32, Refusal> {
    for step in 0..STEPS_MAX {
        if is_done(fleet) {
            return Ok(step);
        }
        fleet.step()?;
    }
    Ok(STEPS_MAX)
}

/// Returns what the steps themselves cost, whatever is decided in them.
fn cost(steps: u32, nodes: u32, micros_each: f64) -> Duration {
    Duration::from_secs_f64(f64::from(steps) * f64::from(nodes) * micros_each.max(0.0) / 1e6)
}

/// Returns how long something takes when nothing else is in its way: the shortest of five times.
fn fastest(mut work: impl FnMut() -> Result<(), Refusal>) -> Result<Duration, Refusal> {
    let mut least = Duration::MAX;
    for _ in 0..5 {
        let (done, took) = timed(&mut work);
        done?;
        least = least.min(took);
    }
    Ok(least)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}

#[expect(clippy::cast_precision_loss, reason = "counts of thousands")]
fn micros(span: Duration, count: u64) -> f64 {
    span.as_secs_f64() * 1e6 / count as f64
}
