//! The endpoint for clients on the same machine: a Unix socket through which they are handed the
//! arena, to read, and leases of ranges of it, so that a read copies nothing.
//!
//! The one rule of it: memory that was leased is given to nobody else before its holder has said
//! that it is done with it, or the kernel has said that the holder's process is no more. A node
//! that fences, drains, begins again or stops takes no lease back.

mod leases;
mod listener;
mod options;
pub(crate) mod session;
mod stage;

pub(crate) use listener::{Local, serve_listener};
pub use options::LocalOptions;
