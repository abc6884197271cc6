//! The state of nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::message::Forecast;
use crate::tier::Tier;
use crate::time::Millis;

/// An operator's name of a node: its id, its name or its address, in this order of preference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeSelector(pub String);

impl fmt::Display for NodeSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl From<NodeId> for NodeSelector {
    fn from(node: NodeId) -> Self {
        Self(node.to_string())
    }
}

/// The state that the operator, or the cloud, requires of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// It takes new blocks.
    Active,
    /// It got a notice: no new blocks, no writes, its blocks leave before the deadline.
    Draining,
    /// It is removed without a deadline: no new blocks, no writes, its blocks leave.
    Decommissioning,
    /// It drains or decommissions and holds nothing more: it may go.
    Drained,
    /// Declared dead, or its deadline has passed. Final for this incarnation.
    Gone,
}

impl Policy {
    /// Returns whether new blocks may be placed on the node.
    #[must_use]
    pub const fn takes_blocks(self) -> bool {
        matches!(self, Self::Active)
    }

    /// Returns its name, as the JSON, the metrics and other languages have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Decommissioning => "decommissioning",
            Self::Drained => "drained",
            Self::Gone => "gone",
        }
    }

    /// Returns whether the node's blocks are leaving.
    #[must_use]
    pub const fn is_draining(self) -> bool {
        matches!(self, Self::Draining | Self::Decommissioning)
    }
}

/// The state of a node by its heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    /// Heartbeats arrive.
    Up,
    /// A heartbeat is overdue or a peer could not reach it.
    Suspect,
    /// Gone.
    Down,
}

impl Availability {
    /// Returns its name, as the JSON, the metrics and other languages have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
        }
    }
}

/// The size of one tier of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierCapacity {
    /// The tier.
    pub tier: Tier,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The state of one tier of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierUsage {
    /// The tier.
    pub tier: Tier,
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// Bytes of blocks on it, and bytes reserved by writers and moves, by the catalog's account.
    pub used_bytes: u64,
    /// Those of them that are copies of blocks whose home is elsewhere.
    pub copy_bytes: u64,
}

/// Load figures of a datanode, carried by every heartbeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Blocks held.
    pub blocks: u64,
    /// Bytes allocated in the arena, rounded up to the allocation unit.
    pub dram_used_bytes: u64,
    /// Bytes in the disk tier.
    pub disk_used_bytes: u64,
    /// Bytes read by clients since the node started.
    pub read_bytes_total: u64,
    /// Bytes written by clients since the node started.
    pub written_bytes_total: u64,
    /// Bytes pushed to other datanodes since the node started.
    pub pushed_bytes_total: u64,
    /// Bytes stored by other datanodes' pushes since the node started.
    pub stored_bytes_total: u64,
    /// Data requests being served now.
    pub requests_in_flight: u32,
    /// Open connections.
    pub connections: u32,
    /// Bytes per second of the fastest second of pushes lately; 0 before any.
    pub pushed_bytes_per_second: u64,
}

impl Load {
    /// Returns the bytes that the node holds in a tier, with those that no writer has published. A
    /// node does not report those of the object tier.
    #[must_use]
    pub const fn used_bytes(&self, tier: Tier) -> u64 {
        match tier {
            Tier::Dram => self.dram_used_bytes,
            Tier::Disk => self.disk_used_bytes,
            Tier::Object => 0,
        }
    }
}

/// The progress of a drain, in blocks and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainProgress {
    /// Blocks whose home is still this node.
    pub left_blocks: u64,
    /// Their bytes.
    pub left_bytes: u64,
    /// Blocks moved since the drain began.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Blocks declared lost.
    pub lost_blocks: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// Time since the drain began.
    pub elapsed: Millis,
    /// Time until it should end at the rate so far; `None` before anything has moved.
    pub finish_in: Option<Millis>,
    /// Whether the datanode has acknowledged the fence.
    pub is_fenced: bool,
    /// Blocks whose copy elsewhere became their home: no byte had to move.
    pub promoted_blocks: u64,
    /// Their bytes.
    pub promoted_bytes: u64,
    /// The manager's forecast; `None` before the first one.
    pub forecast: Option<Forecast>,
}

/// One row of `sanderling node ls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The incarnation.
    pub id: NodeId,
    /// The name given by the operator, or the address.
    pub name: String,
    /// Where it serves blocks: `host:port`.
    pub address: String,
    /// Where it serves metrics: `host:port`, or empty.
    pub http_address: String,
    /// The machine, for affinity.
    pub host: String,
    /// What the operator, or the cloud, requires of it.
    pub policy: Policy,
    /// What its heartbeats report.
    pub availability: Availability,
    /// Its tiers.
    pub tiers: Vec<TierUsage>,
    /// Blocks whose home it is.
    pub blocks: u64,
    /// Their published bytes.
    pub home_bytes: u64,
    /// Bytes of those blocks that are nowhere else: they would be lost with the node.
    pub exposure_bytes: u64,
    /// Bytes that the node can send within its shortest notice: its exposure should stay below.
    pub budget_bytes: u64,
    /// Bytes of copies that it holds of other nodes' blocks.
    pub copy_bytes: u64,
    /// The shortest notice that is reckoned with.
    pub notice_min: Millis,
    /// Bytes per second that it can send, as declared or measured.
    pub egress_bytes_per_second: u64,
    /// Whether its cloud recommended to leave it.
    pub is_at_risk: bool,
    /// Expected time until its notice, by the preemption model; `None` without a model.
    pub expected_life: Option<Millis>,
    /// Time left until the notice's deadline; `None` without one. Zero once it passed.
    pub deadline_in: Option<Millis>,
    /// The notice's reason, or why the node is gone.
    pub reason: String,
    /// Present while the node drains and after.
    pub drain: Option<DrainProgress>,
    /// The last heartbeat's figures.
    pub load: Load,
    /// Time since the last heartbeat.
    pub heartbeat_age: Millis,
    /// Time since it registered.
    pub age: Millis,
}

impl NodeInfo {
    /// Returns a node that has just joined, without an address, tiers or blocks: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn joined(id: NodeId) -> Self {
        Self {
            id,
            name: id.to_string(),
            address: String::new(),
            http_address: String::new(),
            host: String::new(),
            policy: Policy::Active,
            availability: Availability::Up,
            tiers: Vec::new(),
            blocks: 0,
            home_bytes: 0,
            exposure_bytes: 0,
            budget_bytes: 0,
            copy_bytes: 0,
            notice_min: Millis(30_000),
            egress_bytes_per_second: 0,
            is_at_risk: false,
            expected_life: None,
            deadline_in: None,
            reason: String::new(),
            drain: None,
            load: Load::default(),
            heartbeat_age: Millis(0),
            age: Millis(0),
        }
    }
}
