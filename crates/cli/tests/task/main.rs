//! Tasks whose state survives their machines.

#[path = "../cluster/mod.rs"]
mod cluster;

mod backends;
mod bag;
mod bag_faults;
mod bag_large;
mod bag_log;
mod bag_notices;
mod bag_work;
mod clocks;
mod full;
mod hasty;
mod keys;
mod killed;
mod leases;
mod left;
mod notices;
mod other_release;
mod paused;
mod removals;
mod runs;
mod shared_state;
mod sparse;
mod state;
mod stored_lengths;
mod two_runners;
mod unreadable;
