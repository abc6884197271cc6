//! Tasks whose state survives their machines.

#[path = "../cluster/mod.rs"]
mod cluster;

mod bag;
mod bag_faults;
mod clocks;
mod full;
mod hasty;
mod killed;
mod left;
mod notices;
mod paused;
mod removals;
mod runs;
mod shared_state;
mod sparse;
mod state;
mod two_runners;
