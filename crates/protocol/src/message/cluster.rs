//! Joining and staying.

use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, LogPosition, NodeId, Nonce};
use crate::node::{Load, Policy, TierCapacity};
use crate::time::Millis;
use crate::token::Token;

/// Who speaks.
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
    /// Who calls.
    pub role: Role,
    /// The cluster that the caller means; `None` if any will do.
    pub cluster: Option<ClusterId>,
    /// The incarnation that the caller means, when it calls a datanode; `None` if any will do.
    pub node: Option<NodeId>,
    /// What the caller may do, where that is asked for.
    pub token: Option<Token>,
}

/// Its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloReply {
    /// Who answers.
    pub role: Role,
    /// The cluster; `None` from a datanode that has not registered yet.
    pub cluster: Option<ClusterId>,
    /// The incarnation, when a datanode answers.
    pub node: Option<NodeId>,
}

/// A datanode introduces itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The cluster it belongs to, once it knows.
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
    /// The shortest notice that its cloud gives; `None` if its operator did not say.
    pub notice_min: Option<Millis>,
    /// Bytes per second that its network card may send; `None` to go by what is measured.
    pub egress_bytes_per_second: Option<u64>,
}

/// The namenode's welcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The cluster.
    pub cluster: ClusterId,
    /// The incarnation's id.
    pub node: NodeId,
    /// How often to send a heartbeat.
    pub heartbeat: Millis,
    /// What is wanted of the node at once.
    pub policy: Policy,
}

/// A datanode introduces itself and says what it knows of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Who it is.
    pub register: Register,
    /// The last place in the log that it was told of.
    pub seen: Option<LogPosition>,
    /// What it held when the namenode no longer knew it; `None` from a process that never was
    /// another node.
    pub wiped: Option<Wiped>,
}

/// What a datanode dropped when it ceased to be a node.
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
    /// The welcome.
    pub registered: Registered,
    /// Where the log is.
    pub position: Option<LogPosition>,
    /// Whether the log contains everything that the datanode was told of.
    pub is_continuation: bool,
}

/// A datanode lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeId,
    /// Its process.
    pub nonce: Nonce,
    /// Its load.
    pub load: Load,
}

/// What the namenode thinks of it: the second way, beside pushed orders, to learn of a drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// What is wanted of the node.
    pub policy: Policy,
    /// Time left until its deadline.
    pub deadline_in: Option<Millis>,
    /// Blocks whose home it still is.
    pub home_blocks: u64,
}

/// A notice or a recommendation that the namenode knew once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// The node that it is about.
    pub node: NodeId,
    /// Its process.
    pub nonce: Nonce,
    /// Milliseconds left, of a notice; `None` for a recommendation.
    pub deadline_millis: Option<i64>,
    /// Why.
    pub reason: String,
    /// Time since the namenode last showed that it knew.
    pub known_ago: Millis,
}
