//! The endpoint for clients on the same machine: a Unix socket through which they are handed the
//! arena, to read, and leases of ranges of it, so that a read copies nothing.
//!
//! The one rule of it: memory that was leased is not used again before its holder has returned the
//! lease, or the kernel has closed the connection of a holder that is no more. A node
//! that fences, drains, begins again or stops takes no lease back.

mod leases;
mod listener;
mod options;
pub(crate) mod session;
mod stage;

pub(crate) use listener::{Local, serve_listener};
pub use options::LocalOptions;
