//! The shape of a machine that acts by itself: the manager, the relocator and the background.
//! Machines that only answer, such as the catalog, have functions of their own.

use sanderling_protocol::Instant;

/// A state machine driven from outside: inputs in, outputs out, time as an argument.
pub trait Machine {
    /// What the driver reports to the machine: an event, or the answer to one of its outputs.
    type Input;
    /// What the driver executes for the machine, such as a call to a server.
    type Output;

    /// Takes one input at `now`. What follows from it is put out by [`Machine::poll_output`].
    fn handle(&mut self, now: Instant, input: Self::Input);

    /// Returns when [`Machine::handle_deadline`] is to be called next, if nothing happens before.
    fn deadline(&self) -> Option<Instant>;

    /// Handles the time of [`Machine::deadline`]: does what is due at `now`.
    fn handle_deadline(&mut self, now: Instant);

    /// Removes and returns the next output, in the order in which they are to be executed; `None`
    /// when there is none now.
    fn poll_output(&mut self) -> Option<Self::Output>;
}
