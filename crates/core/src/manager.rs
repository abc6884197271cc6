//! The manager's decisions: one machine made of the relocator and the background.
//!
//! Both see every view. Answers go to the one that asked: the background's calls have ids from
//! [`Background::CALLS_FROM`] on, and it reads blocks by [`Output::Page`], the relocator by
//! [`Output::Fetch`].

use sanderling_protocol::Instant;

use crate::Machine;
use crate::background::{Background, BackgroundConfig, BackgroundCounts};
use crate::relocation::{Input, Output, Relocator, RelocatorConfig, RelocatorCounts};

/// Empties draining nodes, and copies and rebalances in the background.
#[derive(Debug)]
pub struct Manager {
    relocator: Relocator,
    background: Background,
}

impl Manager {
    /// Returns a manager that knows of no node.
    #[must_use]
    pub fn new(relocator: RelocatorConfig, background: BackgroundConfig) -> Self {
        Self { relocator: Relocator::new(relocator), background: Background::new(background) }
    }

    /// Returns what was relocated so far.
    #[must_use]
    pub const fn relocated(&self) -> RelocatorCounts {
        self.relocator.counts()
    }

    /// Returns what was done in the background so far.
    #[must_use]
    pub fn background(&self) -> BackgroundCounts {
        self.background.counts()
    }

    /// Tells whether nothing is under way and nothing is left to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.relocator.is_idle() && self.background.is_idle()
    }
}

impl Machine for Manager {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Instant, input: Input) {
        let call = match &input {
            Input::Drains { .. } => {
                self.relocator.handle(now, input.clone());
                return self.background.handle(now, input);
            }
            Input::Candidates { .. } => return self.relocator.handle(now, input),
            Input::Reserved { call, .. }
            | Input::Pushed { call, .. }
            | Input::Committed { call, .. }
            | Input::Abandoned { call, .. }
            | Input::Page { call, .. }
            | Input::Dropped { call, .. } => *call,
        };
        if call >= Background::CALLS_FROM {
            self.background.handle(now, input);
        } else {
            self.relocator.handle(now, input);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.relocator.deadline().into_iter().chain(self.background.deadline()).min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.relocator.handle_deadline(now);
        self.background.handle_deadline(now);
    }

    /// Returns the relocator's wishes first: they have a deadline.
    fn poll_output(&mut self) -> Option<Output> {
        self.relocator.poll_output().or_else(|| self.background.poll_output())
    }
}
