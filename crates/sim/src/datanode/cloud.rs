//! The notices of a simulated machine's cloud.

use std::collections::VecDeque;

use sanderling_core::datanode::{Act, Agent, SourceReading};

/// The name of the simulated source.
pub(super) const SOURCE: &str = "agent";

/// What the machine's cloud shows, and the agent that looks at it.
#[derive(Debug)]
pub(super) struct CloudSource {
    pub(super) seen: SourceReading,
    pub(super) agent: Agent,
    /// What the agent has still to send to the namenode; the first of it is under way.
    pub(super) acts: VecDeque<Act>,
    pub(super) is_look_set: bool,
    /// Whether the namenode did not take something.
    pub(super) is_undone: bool,
    /// Whether the machine ends by what is shown, so that it is not taken back.
    pub(super) is_kept: bool,
}

impl CloudSource {
    pub(super) fn new() -> Self {
        let agent = Agent::new(SOURCE.to_owned());
        let (seen, acts) = (SourceReading::default(), VecDeque::new());
        Self { seen, agent, acts, is_look_set: false, is_undone: false, is_kept: false }
    }
}
