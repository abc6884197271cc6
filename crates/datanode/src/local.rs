//! The door for clients on the same machine: a Unix socket through which they are handed the arena,
//! to read, and leases of ranges of it, so that a read copies nothing.
//!
//! The one rule of it: memory that was leased is given to nobody else before its holder has said
//! that it is done with it, or the kernel has said that the holder's process is no more. A node
//! that fences, drains, begins again or stops takes no lease back.

mod door;
mod leases;
mod options;
pub(crate) mod session;
mod stage;

pub(crate) use door::{Local, attend_door};
pub use options::LocalOptions;
