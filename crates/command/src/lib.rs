//! What the commands of `sanderling` share: the options that all understand, the way to the
//! cluster, what is printed, how a command fails, and processes that it starts.
//!
//! It has no command of its own. Those of the product are in `cli` and in the crates that `cli`
//! joins; `lab` and `bench` measure it.

pub mod child;
pub mod cluster;
pub mod credentials;
pub mod drain_plan;
pub mod drain_wait;
pub mod failure;
pub mod fleet;
pub mod global;
pub mod log_filter;
mod log_thread;
pub mod logs;
pub mod near_units;
pub mod next;
pub mod notice_deadline;
pub mod otlp;
pub mod output;
pub mod pages;
pub mod policy;
pub mod printable;
pub mod process;
pub mod progress;
pub mod ready;
pub mod refused;
pub mod server;
pub mod session;
pub mod units;
