//! One node's row.

use sanderling_protocol::message::Forecast;
use sanderling_protocol::node::{Availability, DrainProgress, TierUsage};
use sanderling_protocol::{Instant, Millis, NodeId, NodeInfo, Policy};
use serde::Serialize;

use super::history::NodeRates;

/// One node as the console shows it. Instants take the place of spans, so that the row of a node
/// at which nothing happens stays the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeRow {
    /// The incarnation.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where it serves blocks.
    pub address: String,
    /// Where it serves HTTP, or empty.
    pub http_address: String,
    /// The machine.
    pub host: String,
    /// What is required of it.
    pub policy: Policy,
    /// What its heartbeats report.
    pub availability: Availability,
    /// Its tiers.
    pub tiers: Vec<TierUsage>,
    /// Blocks whose home it is.
    pub blocks: u64,
    /// Their bytes.
    pub home_bytes: u64,
    /// Bytes whose only copy it has.
    pub exposure_bytes: u64,
    /// Bytes that it can send within its shortest notice.
    pub budget_bytes: u64,
    /// Bytes of copies.
    pub copy_bytes: u64,
    /// Bytes per second that it can send.
    pub egress_bytes_per_second: u64,
    /// The shortest notice that is reckoned with.
    pub notice_min: Millis,
    /// Whether its operator declared how short a notice its cloud gives: it may be preempted.
    pub is_spot: bool,
    /// Whether its cloud recommended to leave it.
    pub is_at_risk: bool,
    /// Expected minutes until its notice; `None` without a model.
    pub expected_life_minutes: Option<u64>,
    /// When the notice's deadline passes, to 100 ms.
    pub deadline_at: Option<Instant>,
    /// The notice's reason.
    pub reason: String,
    /// Present while it drains and after.
    pub drain: Option<DrainRow>,
    /// Bytes per second over the last interval of the history.
    pub rates: NodeRates,
    /// When it registered, to the second.
    pub registered_at: Instant,
}

/// The progress of a drain, as the console shows it. Bytes and times are as of the last update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrainRow {
    /// Bytes that are still there alone.
    pub left_bytes: u64,
    /// Blocks whose home it still is.
    pub left_blocks: u64,
    /// Bytes moved since it began.
    pub moved_bytes: u64,
    /// Bytes whose copy became the home.
    pub promoted_bytes: u64,
    /// Bytes declared lost.
    pub lost_bytes: u64,
    /// Time since it began, or what it took.
    pub elapsed: Millis,
    /// Whether the datanode has acknowledged the fence.
    pub is_fenced: bool,
    /// The manager's forecast; `None` before the first one.
    pub forecast: Option<Forecast>,
}

const fn rounded(at: Instant, micros: u64) -> Instant {
    Instant((at.0.saturating_add(micros / 2) / micros).saturating_mul(micros))
}

impl NodeRow {
    /// Returns the row of a node. `is_spot` and the rates are not in its information.
    #[must_use]
    pub fn new(now: Instant, node: NodeInfo, is_spot: bool, rates: NodeRates) -> Self {
        Self {
            id: node.id,
            name: node.name,
            address: node.address,
            http_address: node.http_address,
            host: node.host,
            policy: node.policy,
            availability: node.availability,
            tiers: node.tiers,
            blocks: node.blocks,
            home_bytes: node.home_bytes,
            exposure_bytes: node.exposure_bytes,
            budget_bytes: node.budget_bytes,
            copy_bytes: node.copy_bytes,
            egress_bytes_per_second: node.egress_bytes_per_second,
            notice_min: node.notice_min,
            is_spot,
            is_at_risk: node.is_at_risk,
            expected_life_minutes: node.expected_life.map(|life| life.0 / 60_000),
            deadline_at: node.deadline_in.map(|left| rounded(now + left, 100_000)),
            reason: node.reason,
            drain: node.drain.map(DrainRow::from),
            rates,
            registered_at: rounded(now - node.age, 1_000_000),
        }
    }
}

impl From<DrainProgress> for DrainRow {
    fn from(drain: DrainProgress) -> Self {
        Self {
            left_bytes: drain.left_bytes,
            left_blocks: drain.left_blocks,
            moved_bytes: drain.moved_bytes,
            promoted_bytes: drain.promoted_bytes,
            lost_bytes: drain.lost_bytes,
            elapsed: drain.elapsed,
            is_fenced: drain.is_fenced,
            forecast: drain.forecast,
        }
    }
}
