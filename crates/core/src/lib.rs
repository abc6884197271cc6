//! The decisions of Sanderling, as state machines without input or output.
//!
//! A machine takes inputs and the time, and gives outputs. It never reads a clock, draws a random
//! number, starts a thread or touches a socket, so the servers and the simulator run the very same
//! decisions. `clippy.toml` of this crate keeps it so.

pub mod access;
pub mod archive;
pub mod background;
pub mod block_table;
pub mod call_outcome;
pub mod catalog;
pub mod checkpoint;
pub mod client;
pub mod console;
pub mod datanode;
pub mod durable;
pub mod exposure;
pub mod fair;
pub mod group_generation;
pub mod group_view;
pub mod location_cache;
pub mod machine;
pub mod manager;
pub mod mechanism;
pub mod membership;
mod moves;
pub mod namenode;
pub mod notices;
pub mod placement;
pub mod preemption;
pub mod read;
pub mod rebalance;
pub mod relocation;
#[cfg(feature = "replica")]
pub mod replica;
pub mod reserve;
pub mod retry;
pub mod shared_room;

pub use machine::Machine;
pub use mechanism::Mechanism;
