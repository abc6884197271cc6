//! The outcomes of calls, as far as decisions depend on them.

use sanderling_protocol::Refusal;

/// The outcome of a call to another process. The shell reduces the errors of its transport to this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome<'a> {
    /// The process has done what the call requested.
    Answered,
    /// The process has refused the call or the connection.
    Refused(&'a Refusal),
    /// The machine has refused the connection: no process listens at the address.
    NoProcess,
    /// The time of the call was over before an answer came.
    TimedOut,
    /// No connection was made for another reason, it broke, or the answer was not one to the call.
    Broken,
}
