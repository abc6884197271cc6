//! Forecasts of a drain while it runs.

use sanderling_protocol::message::{Forecast, MoveCandidate};
use sanderling_protocol::{Instant, Millis};

use super::super::*;
use super::world::World;
use super::{blocks, node};

#[test]
fn forecast_is_given_at_the_start_and_not_too_often() {
    let mut world = World::new(blocks(500, 1 << 20), vec![node(1, 1 << 30)]);
    world.run(30_000);
    let (at, first) = world.forecasts[0];
    assert_eq!((at, first.left_bytes, first.targets), (Instant(1_000_000), 500 << 20, 1));
    assert_eq!((first.late_bytes, first.unplaced_bytes), (0, 0));
    for pair in world.forecasts.windows(2) {
        assert!(pair[0].0 + Millis(250) <= pair[1].0, "{pair:?}");
    }
}

#[test]
fn forecast_counts_bytes_without_room_and_bytes_that_expire() {
    let mut all: Vec<MoveCandidate> = blocks(10, 1000).collect();
    all[0].expires_in = Some(Millis(5_000));
    let mut world = World::new(all, vec![node(1, 4_000)]);
    world.run(2_000);
    let (_, last) = world.forecasts.last().unwrap();
    assert_eq!((last.left_bytes, last.unplaced_bytes, last.skipped_bytes), (5_000, 5_000, 1_000));
}

/// After a start the namenode takes no moves before the nodes have reported what they hold, and
/// takes forecasts all the same.
#[test]
fn nothing_is_late_while_the_namenode_takes_no_moves() {
    let mut world = World::new(blocks(500, 1 << 20), vec![node(1, 1 << 30)]);
    world.view();
    while world.now < Instant(1_000_000) + Millis(6_000) {
        while let Some(output) = world.poll() {
            let answer = match output {
                MoveOutput::Reserve { call, .. } => Input::Reserved { call, epochs: None },
                MoveOutput::Abandon { call, .. } => Input::Abandoned { call, is_done: false },
                other => world.answer(other),
            };
            world.relocator.handle(world.now, answer);
        }
        world.now = world.now + Millis(50);
        world.view();
    }
    assert!(!world.forecasts.is_empty() && world.moved.is_empty());
    let is_late = |(_, forecast): &(Instant, Forecast)| forecast.late_bytes > 0;
    assert!(!world.forecasts.iter().any(is_late), "{:?}", world.forecasts);
}
