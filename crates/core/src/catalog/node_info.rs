//! The rows of the nodes' table, as far as the catalog has them.

use sanderling_protocol::node::{Availability, DrainProgress, Load, NodeInfo, Policy, TierUsage};
use sanderling_protocol::{Instant, Millis, NodeId};

use super::members::NodeRecord;
use crate::exposure;

impl NodeRecord {
    /// Returns the node's row, without what only heartbeats report.
    pub(super) fn info(&self, id: NodeId, now: Instant) -> NodeInfo {
        let is_gone = self.policy == Policy::Gone;
        let tiers = self.tiers().iter().map(|state| TierUsage {
            tier: state.tier,
            capacity_bytes: state.capacity,
            used_bytes: state.used,
            copy_bytes: state.copied,
        });
        NodeInfo {
            id,
            name: self.name.clone(),
            address: self.address.clone(),
            http_address: self.http_address.clone(),
            host: self.host.clone(),
            policy: self.policy,
            availability: if is_gone { Availability::Down } else { Availability::Up },
            tiers: tiers.collect(),
            blocks: self.held().homes.len() as u64,
            home_bytes: self.held().home_bytes,
            exposure_bytes: self.exposure(),
            budget_bytes: 0,
            copy_bytes: self.tiers().iter().map(|state| state.copied).sum(),
            notice_min: self.notice_min.unwrap_or(exposure::NOTICE_MIN),
            egress_bytes_per_second: self.egress_bytes_per_second.unwrap_or(0),
            is_at_risk: self.risk.is_some(),
            expected_life: None,
            deadline_in: self.deadline.map(|at| now.until(at)),
            reason: self.reason.clone(),
            drain: self.drain_progress(now),
            load: Load::default(),
            heartbeat_age: Millis(0),
            age: now.since(self.registered_at),
        }
    }

    fn drain_progress(&self, now: Instant) -> Option<DrainProgress> {
        let drain = self.drain?;
        let elapsed = drain.ended_at.unwrap_or(now).since(drain.began_at);
        let left_bytes = if self.policy.is_draining() { self.exposure() } else { 0 };
        let finish_in = match (self.policy, drain.moved_bytes) {
            (Policy::Drained, _) => Some(Millis(0)),
            (_, 0) => None,
            (_, moved) => {
                let millis = u128::from(left_bytes) * u128::from(elapsed.0) / u128::from(moved);
                Some(Millis(u64::try_from(millis).unwrap_or(u64::MAX)))
            }
        };
        Some(DrainProgress {
            left_blocks: self.held().homes.len() as u64,
            left_bytes,
            moved_blocks: drain.moved_blocks,
            moved_bytes: drain.moved_bytes,
            lost_blocks: drain.lost_blocks,
            lost_bytes: drain.lost_bytes,
            elapsed,
            finish_in,
            is_fenced: drain.is_fenced,
            promoted_blocks: drain.promoted_blocks,
            promoted_bytes: drain.promoted_bytes,
            forecast: drain.forecast,
        })
    }
}
