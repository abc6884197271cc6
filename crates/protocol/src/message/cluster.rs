//! Joining and staying.

use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, LogPosition, NodeId, Nonce};
use crate::node::{Load, Policy, TierCapacity};
use crate::time::Millis;
use crate::token::Token;

/// The role of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// An application.
    Client,
    /// The namenode.
    Namenode,
    /// A datanode.
    Datanode,
    /// A manager.
    Manager,
}

/// First message of every connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The caller's role.
    pub role: Role,
    /// The cluster that the caller expects; `None` for any.
    pub cluster: Option<ClusterId>,
    /// The incarnation that the caller expects, when it calls a datanode; `None` for any.
    pub node: Option<NodeId>,
    /// The caller's token, where the server requires one.
    pub token: Option<Token>,
}

/// The server's answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloReply {
    /// The server's role.
    pub role: Role,
    /// The cluster; `None` from a datanode that has not registered yet.
    pub cluster: Option<ClusterId>,
    /// The incarnation, when a datanode answers.
    pub node: Option<NodeId>,
}

/// Registers a datanode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The cluster it belongs to, once that is known.
    pub cluster: Option<ClusterId>,
    /// Drawn when its process started: the same process that registers again gets the same id.
    pub nonce: Nonce,
    /// The name given by its operator; empty for its address.
    pub name: String,
    /// Where it serves blocks: `host:port`.
    pub address: String,
    /// Where it serves metrics: `host:port`, or empty.
    pub http_address: String,
    /// Its machine, for affinity.
    pub host: String,
    /// Its tiers.
    pub tiers: Vec<TierCapacity>,
    /// The shortest notice that its cloud gives; `None` if its operator did not set it.
    pub notice_min: Option<Millis>,
    /// Bytes per second that its network card may send; `None` to use the measured rate.
    pub egress_bytes_per_second: Option<u64>,
}

/// The namenode's answer to a registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The cluster.
    pub cluster: ClusterId,
    /// The incarnation's id.
    pub node: NodeId,
    /// The time between two heartbeats.
    pub heartbeat: Millis,
    /// What the node must do at once.
    pub policy: Policy,
}

/// A datanode introduces itself and reports how far it has followed the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The node.
    pub register: Register,
    /// The last place in the log that it received.
    pub seen: Option<LogPosition>,
    /// What it held when the namenode had no record of it; `None` from a process that never was
    /// another node.
    pub wiped: Option<Wiped>,
}

/// A report of what a datanode dropped when it ceased to be a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wiped {
    /// The node that it was.
    pub node: NodeId,
    /// Blocks that it held.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The namenode's welcome to a datanode that joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The answer to the registration.
    pub registered: Registered,
    /// The position of the namenode's log.
    pub position: Option<LogPosition>,
    /// Whether the log contains the place that the datanode sent in [`Join::seen`]. If not, the
    /// namenode has lost the end of its log.
    pub is_continuation: bool,
}

/// A datanode's periodic report that it is alive, with its load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeId,
    /// Its process.
    pub nonce: Nonce,
    /// Its load.
    pub load: Load,
}

/// The answer to a heartbeat, from which a datanode learns of a drain when the pushed order was
/// lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// What the operator, or the cloud, requires of the node.
    pub policy: Policy,
    /// Time left until its deadline.
    pub deadline_in: Option<Millis>,
    /// Blocks whose home it still is.
    pub home_blocks: u64,
}

/// A statement of a datanode's agent about what its sources of notices show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceNotice {
    /// The node that it concerns.
    pub node: NodeId,
    /// Its process.
    pub nonce: Nonce,
    /// Counts the process's statements from 1. A statement that was overtaken changes nothing.
    pub number: u64,
    /// Milliseconds left. `None` only with `is_withdrawn`: no source shows a notice any more.
    pub deadline_millis: Option<i64>,
    /// The reason that was given.
    pub reason: String,
    /// Whether a source has withdrawn its notice, so that a later deadline may hold instead.
    /// Otherwise the earlier deadline holds.
    pub is_withdrawn: bool,
}

/// A notice or a recommendation that the namenode once had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// The node that it concerns.
    pub node: NodeId,
    /// Its process.
    pub nonce: Nonce,
    /// Milliseconds left, of a notice; `None` for a recommendation.
    pub deadline_millis: Option<i64>,
    /// The reason that was given.
    pub reason: String,
    /// Time since the namenode last showed that it had it.
    pub known_ago: Millis,
}
