//! Decisions of a client: how a change takes effect once although it is sent several times, and
//! what follows from a failed attempt.
//!
//! The client library and the simulated clients run the same machines; connections, pauses and
//! clocks are outside.

mod attempt;
mod sequences;

pub use attempt::{AttemptFailure, ChangeAttempts, NextAttempt};
pub use sequences::Sequences;
