//! The seeded world in which the decisions of `core` are proved.
//!
//! One namenode, datanodes, clients and managers run the very machines that the servers run, under
//! virtual time, over a network and on machines that fail as a seed decides. See
//! `docs/SIMULATION.md`.

mod admin;
mod caller;
mod calls;
mod check;
mod client;
mod clients;
mod content;
mod context;
mod datanode;
mod event;
pub mod fleet;
mod frames;
mod group;
mod injected_bug;
mod lister;
mod log;
mod manager;
mod namenode;
mod network;
mod options;
mod plan;
mod processes;
mod random;
mod random_manager;
mod reader;
mod run;
mod runtime;
mod schedule;
mod wire;
mod world;
mod writer;

pub use group::{GroupPreemption, GroupTrace, GroupTraceOutcome, run_group, run_group_trace};
pub use injected_bug::{InjectedBug, UnknownInjectedBug};
pub use options::{Options, RunOutcome, Statistics, Violation};
pub use run::{run, run_many};
