//! How far the adoption of one store is.

use sanderling_protocol::message::AdoptionStep;
use sanderling_protocol::{Instant, NodeId};

/// The adoption of one store.
#[derive(Debug)]
pub(super) struct AdoptionTask {
    pub(super) step: AdoptionStep,
    /// An order is under way, or what came of it is not reported.
    pub(super) is_busy: bool,
    /// The store was taken, and its former owner may change it until then.
    pub(super) settles_at: Option<Instant>,
    pub(super) tries: u32,
    pub(super) retry_at: Option<Instant>,
    pub(super) avoid: Option<NodeId>,
}

impl AdoptionTask {
    pub(super) fn new(step: AdoptionStep) -> Self {
        Self { step, is_busy: false, settles_at: None, tries: 0, retry_at: None, avoid: None }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.is_busy { None } else { self.settles_at.or(self.retry_at) }
    }

    pub(super) fn wake(&mut self, now: Instant) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
    }
}

/// Takes what a view shows. One that is older than what was done since shows an earlier step: that
/// is made again and changes nothing.
pub(super) fn see(task: &mut Option<AdoptionTask>, step: Option<AdoptionStep>) {
    match (task.as_mut(), step) {
        (_, None) => *task = None,
        (None, Some(step)) => *task = Some(AdoptionTask::new(step)),
        (Some(known), Some(step)) => {
            if !known.is_busy && known.step != step {
                *known = AdoptionTask::new(step);
            }
        }
    }
}
