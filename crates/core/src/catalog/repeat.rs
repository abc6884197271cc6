//! Notices and recommendations that a datanode repeats, because the log lost them.

use sanderling_protocol::node::Policy;
use sanderling_protocol::{Instant, NodeId, Refusal};

use super::Catalog;
use super::claims::{NoticeClaim, NoticeOrigin};
use super::orders::Orders;
use crate::notices::EARLIER;

impl Catalog {
    /// Returns whether a repeated notice would change something.
    #[must_use]
    pub fn is_forgotten(&self, id: NodeId, deadline: Option<Instant>, known_at: Instant) -> bool {
        let Some(node) = self.nodes.get(id).filter(|node| node.policy != Policy::Gone) else {
            return false;
        };
        let is_known = match deadline {
            Some(deadline) => node.deadline.is_some_and(|known| known <= deadline + EARLIER),
            None => node.policy != Policy::Active || node.risk.is_some(),
        };
        !is_known && !self.cancelled.is_after(id, known_at)
    }

    /// Takes a notice or a recommendation again that the log does not have any more.
    pub(super) fn repeat(
        &mut self,
        id: NodeId,
        deadline: Option<Instant>,
        reason: String,
        known_at: Instant,
        orders: &mut Orders,
    ) -> Result<(), Refusal> {
        self.live_node(id)?;
        if !self.is_forgotten(id, deadline, known_at) {
            return Ok(());
        }
        match deadline {
            Some(deadline) => {
                let claim = NoticeClaim { deadline, reason };
                self.notice(id, NoticeOrigin::Sources, claim, orders)
            }
            None => self.recommend(id, reason),
        }
    }
}
