//! The manager's configuration.

use std::time::Duration;

use sanderling_core::Mechanism;
use sanderling_core::background::BackgroundConfig;
use sanderling_core::relocation::RelocatorConfig;
use sanderling_protocol::Nonce;
use sanderling_protocol::ports::NAMENODE_ADDRESS;
use sanderling_transport::Credentials;

/// What a manager is started with.
#[derive(Debug, Clone)]
pub struct ManagerOptions {
    /// The namenode: `host:port`.
    pub namenode: String,
    /// Its name, for events.
    pub name: String,
    /// The holder of the leadership lease; `None` draws a new holder. A manager that lives inside
    /// the only namenode takes one that stays the same, so that it need not wait, after a restart,
    /// for its own earlier lease to end.
    pub holder: Option<Nonce>,
    /// How long it may act without renewing. A dead manager's drains wait this long for the next.
    pub lease: Duration,
    /// How often it looks at the drains while there are any.
    pub poll: Duration,
    /// How often it looks when there are none and no event came.
    pub poll_idle: Duration,
    /// Longest time of one call to the namenode, from its start to its answer; then it has failed.
    pub call_within: Duration,
    /// Most calls under way that move blocks. Further ones wait inside the decisions.
    pub calls_max: usize,
    /// What it shows to the namenode and to datanodes.
    pub credentials: Credentials,
    /// How notices are met.
    pub mechanism: Mechanism,
    /// Bounds of the relocation.
    pub relocator: RelocatorConfig,
    /// Bounds of the copies made ahead of notices, and of rebalancing.
    pub background: BackgroundConfig,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            namenode: NAMENODE_ADDRESS.to_owned(),
            name: "manager".to_owned(),
            holder: None,
            // Short against a notice of half a minute; three renewals in it.
            lease: Duration::from_secs(3),
            poll: Duration::from_millis(50),
            poll_idle: Duration::from_secs(1),
            call_within: Duration::from_secs(2),
            // Some tens of drains with all their batches.
            calls_max: 512,
            credentials: Credentials::default(),
            mechanism: Mechanism::default(),
            relocator: RelocatorConfig::default(),
            background: BackgroundConfig::default(),
        }
    }
}
