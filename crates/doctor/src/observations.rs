//! What the doctor has seen of a cluster, before it is judged.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use sanderling_core::access::{Claims, TokenFault};
use sanderling_namenode::GroupPage;
use sanderling_protocol::event::LossReport;
use sanderling_protocol::message::{DurableStatus, Room};
use sanderling_protocol::{NodeId, NodeInfo, Policy};
use sanderling_transport::{PeerCertificates, SecretError, Validity};
use serde_json::Value;
use thiserror::Error;

use super::metrics_page::MetricPage;

/// Why something was not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unseen {
    /// The token has not the right, which is named.
    Right(&'static str),
    /// It was not answered.
    Failed {
        why: String,
        /// Whether the time was over, though a connection was taken.
        is_silent: bool,
    },
}

impl std::fmt::Display for Unseen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Right(right) => write!(formatter, "needs the right to {right}"),
            Self::Failed { why, .. } => formatter.write_str(why),
        }
    }
}

/// Why the token that is shown cannot be read.
#[derive(Debug, Clone, Error)]
pub(super) enum UnreadToken {
    /// There is none where it should be.
    #[error("{0}")]
    Source(#[source] Arc<SecretError>),
    /// It has no claims.
    #[error("{0}")]
    Fault(#[source] TokenFault),
}

/// What a server's HTTP endpoint has shown.
#[derive(Debug, Clone)]
pub(super) struct ServerLook {
    pub(super) health: Result<Value, Unseen>,
    pub(super) figures: Result<MetricPage, Unseen>,
    /// How far its clock is ahead of this machine's, and how exactly that is known.
    pub(super) clock: Option<ClockOffset>,
}

/// A difference between two clocks, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockOffset {
    pub(super) millis: i64,
    /// Half of the time that the look took.
    pub(super) error_millis: i64,
}

impl ClockOffset {
    /// Returns the difference that there is at least.
    pub(super) fn at_least(self) -> u64 {
        self.millis.unsigned_abs().saturating_sub(self.error_millis.unsigned_abs())
    }
}

/// What was seen of one datanode.
#[derive(Debug, Clone)]
pub(super) struct DatanodeLook {
    pub(super) name: String,
    /// `None`: it serves no HTTP that can be reached from here.
    pub(super) server: Option<ServerLook>,
    /// The certificates that it shows; `None` without TLS.
    pub(super) certificates: Option<Result<CertificateLook, UnseenCertificates>>,
}

/// Why a server's certificates were not seen.
#[derive(Debug, Clone, Error)]
pub(super) enum UnseenCertificates {
    /// The connection or the handshake failed.
    #[error("{0}")]
    Handshake(#[source] Arc<io::Error>),
    /// The time was over before.
    #[error("no handshake in time")]
    Silent,
}

/// The certificates that a server shows.
#[derive(Debug, Clone)]
pub(super) struct CertificateLook {
    pub(super) validities: Vec<Validity>,
    pub(super) distrust: Option<String>,
}

impl From<PeerCertificates> for CertificateLook {
    fn from(seen: PeerCertificates) -> Self {
        Self { validities: seen.validities, distrust: seen.distrust }
    }
}

/// The losses that were declared.
#[derive(Debug, Clone, Default)]
pub(super) struct LossLook {
    pub(super) report: LossReport,
    /// Objects of the latest losses that were looked up.
    pub(super) checked: usize,
    /// Those of them that are still there without their bytes.
    pub(super) present: Vec<String>,
    /// Why they were not looked up.
    pub(super) unseen: Option<Unseen>,
}

/// What was seen of a cluster.
#[derive(Debug, Clone)]
pub(super) struct ClusterLook {
    /// The namenode's address.
    pub(super) address: String,
    pub(super) namenode: ServerLook,
    /// The namenodes of a group, as its leader shows them; `None` of a namenode alone.
    pub(super) group: Result<Option<GroupPage>, Unseen>,
    pub(super) durable: Result<Vec<DurableStatus>, Unseen>,
    /// All nodes, those that are gone included.
    pub(super) nodes: Result<Vec<NodeInfo>, Unseen>,
    pub(super) room: Result<Option<Room>, Unseen>,
    pub(super) losses: Result<LossLook, Unseen>,
    /// The number of revocations that are kept.
    pub(super) revoked: Result<usize, Unseen>,
    pub(super) datanodes: Vec<DatanodeLook>,
    /// Datanodes that were not looked at because time was over.
    pub(super) unlooked: Vec<String>,
    /// When nodes died, in seconds since 1970, as far as the events have it that are kept.
    pub(super) died: BTreeMap<NodeId, u64>,
    /// The token that was shown: its claims, or why it cannot be read.
    pub(super) token: Option<Result<Claims, UnreadToken>>,
    /// This machine's clock, in seconds since 1970.
    pub(super) now: u64,
}

impl ClusterLook {
    /// Returns the nodes that are there.
    pub(super) fn present(&self) -> impl Iterator<Item = &NodeInfo> {
        let nodes = self.nodes.iter().flatten();
        nodes.filter(|node| node.policy != Policy::Gone)
    }

    /// Returns the servers of the datanodes that were seen, with their names.
    pub(super) fn servers(&self) -> impl Iterator<Item = (&str, &ServerLook)> {
        self.datanodes.iter().filter_map(|it| Some((it.name.as_str(), it.server.as_ref()?)))
    }
}

/// Returns whether an address is none that could be connected to: `0.0.0.0` or `[::]`.
pub(super) fn is_unspecified(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}
