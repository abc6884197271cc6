//! Decisions of a client: how a change takes effect once although it is sent several times, what
//! follows from a failed attempt, and how an object is written.
//!
//! The client library and the simulated clients run the same machines; connections, pauses and
//! clocks are outside.

mod attempt;
mod sequences;
mod writer;

pub use attempt::{AttemptFailure, ChangeAttempts, NextAttempt};
pub use sequences::Sequences;
pub use writer::{
    AfterFailure, BlockRequest, ClosedWriter, PIECE_BYTES_MAX, Placed, WriteGoal, WriteMachine,
    WriteStep, repeat_in_place,
};
