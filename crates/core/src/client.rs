//! What a client decides: how a change is made once, and what follows from an attempt that failed.
//!
//! The client library and the simulated clients run the same machines. Connections, pauses and
//! clocks are theirs.

mod attempt;
mod sequences;

pub use attempt::{ChangeAttempts, Failure, Next};
pub use sequences::Sequences;
