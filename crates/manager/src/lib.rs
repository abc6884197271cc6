//! The manager: turns notices into relocation, and keeps the fleet ready for them.
//!
//! The decisions are those of [`sanderling_core::manager`], also when this manager may act at all.
//! This crate requests from the namenode what drains, and makes the calls. It keeps no state:
//! another manager can continue in the middle of a drain.

mod baseline;
mod calls;
mod leader;
mod options;
mod server;

pub use options::ManagerOptions;
pub use server::ManagerServer;
