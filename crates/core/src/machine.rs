//! The shape of a machine that acts by itself: the manager, the relocator and the background.
//! Machines that only answer, such as the catalog, have functions of their own.

use sanderling_protocol::Instant;

/// A state machine driven from outside: inputs in, outputs out, time as an argument.
pub trait Machine {
    /// What happens to the machine.
    type Input;
    /// The output to execute.
    type Output;

    /// Takes one input at `now`.
    fn handle(&mut self, now: Instant, input: Self::Input);

    /// Returns when [`Machine::handle_deadline`] is to be called next, if nothing happens before.
    fn deadline(&self) -> Option<Instant>;

    /// Does what is due at `now`.
    fn handle_deadline(&mut self, now: Instant);

    /// Returns the next thing to do, in order; `None` when there is nothing more for now.
    fn poll_output(&mut self) -> Option<Self::Output>;
}
