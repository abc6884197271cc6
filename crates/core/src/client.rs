//! Decisions of a client: how a change takes effect once although it is sent several times, what
//! follows from a failed attempt, which requests share a frame, how an object is written, how a
//! client waits for a store, when leases are renewed, and which of them have ended.
//!
//! The client library and the simulated clients run the same machines; connections, pauses and
//! clocks are outside.

mod attempt;
mod batch;
mod durable_wait;
mod lease_renewal;
mod sequences;
mod writer;

pub use attempt::{AttemptFailure, ChangeAttempts, NextAttempt, is_of_the_log};
pub use batch::{
    BATCH_MAX, BatchQueue, OVERTAKE_AFTER, SendStep, may_follow_alone, repeats_of,
    repeats_of_frame, travels_alone,
};
pub use durable_wait::{DurableWait, DurableWaitStep};
pub use lease_renewal::{LeaseRenewals, RenewalRequest, RenewalTimer};
pub use sequences::Sequences;
pub use writer::{
    AfterFailure, BlockRequest, ClosedWriter, PIECE_BYTES_MAX, Placed, WriteGoal, WriteMachine,
    WriteStep, repeat_in_place,
};
