//! What all parts of the server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use sanderling_core::catalog::Catalog;
use sanderling_core::namenode::Namenode;
use sanderling_protocol::{ClusterId, Instant, NodeId, Policy, Refusal, Reply, Request};
use sanderling_transport::{Revocations, Security};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::error::NamenodeFailure;
use crate::group::MemberState;
use crate::metrics::NamenodeMetrics;

/// The catalog behind its lock, and the state of the server around it.
#[derive(Debug)]
pub(crate) struct NamenodeState {
    /// Written by the writer's thread alone, and only after the journal.
    pub(crate) namenode: RwLock<Namenode>,
    pub(crate) clock: Clock,
    pub(crate) cluster: ClusterId,
    pub(crate) metrics: NamenodeMetrics,
    /// Frames that have come.
    frames: AtomicU64,
    /// The last event's sequence.
    pub(crate) event_last: watch::Sender<u64>,
    /// Why the journal refuses changes at the moment.
    pub(crate) refusal: Mutex<Option<String>>,
    /// Which tokens were taken back: set before that change is answered.
    pub(crate) revocations: Arc<Revocations>,
    /// Why the archive may lack the last changes of a server that has stopped.
    pub(crate) unarchived: Mutex<Option<String>>,
    /// What the group of this namenode is, if it is in one.
    pub(crate) group: MemberState,
    /// Why the server cannot go on.
    pub(crate) failure: watch::Sender<Option<NamenodeFailure>>,
}

impl NamenodeState {
    pub(crate) fn new(namenode: Namenode, clock: Clock) -> Self {
        let catalog = namenode.catalog();
        let (cluster, event_last) = (catalog.cluster(), catalog.event_last());
        let (revocations, version) = (Arc::<Revocations>::default(), catalog.revocations_version());
        revocations.set(version, catalog.revoked());
        Self {
            namenode: RwLock::new(namenode),
            clock,
            cluster,
            metrics: NamenodeMetrics::default(),
            frames: AtomicU64::new(0),
            event_last: watch::Sender::new(event_last),
            refusal: Mutex::new(None),
            revocations,
            unarchived: Mutex::new(None),
            group: MemberState::default(),
            failure: watch::Sender::new(None),
        }
    }

    /// Counts a frame that has come.
    pub(crate) fn count_frame(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many frames have come.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Returns how callers are let in, by the list of revoked tokens that is kept here.
    pub(crate) fn security(&self, security: &Security) -> Security {
        let revocations = Arc::clone(&self.revocations);
        Security { revocations, ..security.clone() }
    }

    /// Shows the list of revoked tokens to all sessions, if it has changed.
    pub(crate) fn show_revocations(&self, catalog: &Catalog) {
        let version = catalog.revocations_version();
        if version != self.revocations.version() {
            self.revocations.set(version, catalog.revoked());
            tracing::info!(version, "the list of revoked tokens changed");
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Answers a request that changes nothing; `None` for one that does.
    pub(crate) fn read(&self, request: &Request) -> Option<Result<Reply, Refusal>> {
        self.namenode.read().read(self.now(), request)
    }

    /// Returns a node's policy; `None` for one that the catalog does not have.
    pub(crate) fn policy(&self, node: NodeId) -> Option<Policy> {
        self.namenode.read().catalog().node_policy(node).map(|(policy, _)| policy)
    }

    /// Notes that the server cannot go on. The first reason stays, unless a later one shows that
    /// the journal lacks changes: nothing may count as complete then.
    pub(crate) fn fail(&self, failure: NamenodeFailure) {
        self.failure.send_if_modified(|kept| {
            let replaces = failure.replaces(kept.as_ref());
            if replaces {
                *kept = Some(failure);
            }
            replaces
        });
    }
}
