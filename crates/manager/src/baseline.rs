//! The baseline for experiments: a relocator after Brodmann et al., "An Elastic Ephemeral Datastore
//! using Cheap, Transient Cloud Resources", section 3.1 and figure 1.
//!
//! For each block of a noticed node, in the order of the map: read it, request a new location,
//! write it there, report it to the namenode. The bytes pass through this process, one block of a
//! node at a time. No deadline is known, nothing is planned, paced, copied ahead or evened out;
//! nodes that drain together are read from side by side.

mod relocate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sanderling_core::manager::{LeaderTerm, Leadership};
use sanderling_core::relocation::Input;
use sanderling_protocol::{Millis, NodeId, NodeInfo, Refusal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::calls::NamenodeClient;
use crate::leader::LeaseClock;
use crate::options::ManagerOptions;
use relocate::Relocation;

/// The nodes as the namenode last showed them, and when they were requested.
#[derive(Debug, Clone)]
struct NodeSnapshot {
    nodes: Arc<Vec<NodeInfo>>,
    asked_at: Instant,
}

impl NodeSnapshot {
    /// Returns whether a datanode has learned, by the answer to a heartbeat, what is true since
    /// `since`.
    fn has_learned(&self, node: NodeId, since: Instant) -> bool {
        let found = self.nodes.iter().find(|info| info.id == node);
        let age = found.map_or(Millis(u64::MAX), |info| info.heartbeat_age);
        age < Millis::from(self.asked_at.saturating_duration_since(since))
    }
}

/// What all relocations share.
#[derive(Debug, Clone)]
struct RelocationContext {
    caller: NamenodeClient,
    views: watch::Receiver<NodeSnapshot>,
    /// Counts new locations, which go round the nodes.
    round: Arc<AtomicU64>,
}

/// Relocates blocks by the mechanism of the baseline until the leadership term ends.
pub(crate) async fn act(
    caller: &NamenodeClient,
    options: &ManagerOptions,
    (leadership, term): (&mut Leadership, LeaderTerm),
    clock: LeaseClock,
) {
    let (sender, views) =
        watch::channel(NodeSnapshot { nodes: Arc::default(), asked_at: Instant::now() });
    let shared = RelocationContext { caller: caller.clone(), views, round: Arc::default() };
    let mut noticed: BTreeMap<NodeId, Instant> = BTreeMap::new();
    let mut busy = BTreeSet::new();
    let mut relocations = JoinSet::new();
    while leadership.term(clock.now()) == Some(term) {
        if let Some(request) = leadership.poll_request(clock.now()) {
            let answer = caller.clone().manage().await;
            leadership.answered(clock.now(), request, answer);
        }
        while let Some(ended) = relocations.try_join_next() {
            match ended {
                Ok(node) => _ = busy.remove(&node),
                Err(error) => {
                    warn!(%error, "a relocation panicked");
                    return leadership.resign(clock.now());
                }
            }
        }
        let now = Instant::now();
        match caller.clone().drains().await {
            Ok(Input::Drains { drains, nodes }) => {
                sender.send_replace(NodeSnapshot { nodes: Arc::new(nodes), asked_at: now });
                noticed.retain(|node, _| drains.iter().any(|work| work.node == *node));
                for work in drains {
                    let since = *noticed.entry(work.node).or_insert(now);
                    if work.left_blocks > 0 && busy.insert(work.node) {
                        info!(node = %work.node, blocks = work.left_blocks, "relocation begins");
                        let relocation = Relocation::new(shared.clone(), &work, since);
                        relocations.spawn(relocation.run());
                    }
                }
            }
            Err(Some(Refusal::NotManager { remaining })) => {
                leadership.refused(clock.now(), remaining);
            }
            _ => {}
        }
        sleep(options.poll).await;
    }
}
