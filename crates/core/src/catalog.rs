//! The catalog: namespace, block map, membership and jobs, as one deterministic state machine over
//! a log of commands.
//!
//! Time and choices are in the commands. Applying a command never fails half-way: it either changes
//! the catalog and answers, or refuses and changes nothing but the clock.

mod apply;
mod block_map;
mod copies;
mod drain;
mod due;
mod events;
mod fsck;
mod heirs;
mod inspect;
mod jobs;
pub mod log;
mod loss;
mod members;
mod moves;
mod namespace;
mod object;
mod tree;
mod usage;
mod view;
mod writing;

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::event::LossReport;
use sanderling_protocol::{BlockId, ClusterId, Instant, JobId, Millis, Nonce, ObjectId};
use serde::{Deserialize, Serialize};

pub use apply::{Applied, DatanodeOrder};
pub use block_map::allocated_bytes;
pub use inspect::BlockFacts;
pub use log::{Action, Command, Placement};
pub use object::ROOT;

use block_map::Block;
use due::Due;
use events::Events;
use jobs::Job;
use members::Nodes;
use object::{Body, Container, Object};

/// Everything that the namenode must remember. A snapshot is this structure, serialised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    cluster: ClusterId,
    /// Commands applied since the cluster began: the place in the log.
    index: u64,
    /// The time of the last command.
    now: Instant,
    lease: Millis,
    next_object: u64,
    next_block: u64,
    next_lease: u64,
    next_job: u64,
    objects: BTreeMap<ObjectId, Object>,
    blocks: BTreeMap<BlockId, Block>,
    nodes: Nodes,
    jobs: BTreeMap<JobId, Job>,
    manager: Option<Manager>,
    /// What becomes due, by time. Entries may be early: what they name knows better.
    due: BTreeSet<(Instant, Due)>,
    events: Events,
    report: LossReport,
}

/// The manager that acts at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Manager {
    holder: Nonce,
    name: String,
    until: Instant,
}

impl Catalog {
    /// Returns the empty catalog of a new cluster, in which a writer's lease lasts `lease`.
    #[must_use]
    pub fn new(cluster: ClusterId, lease: Millis) -> Self {
        let root = Object {
            parent: ROOT,
            name: Box::from(""),
            is_bound: true,
            is_listed: true,
            created_at: Instant(0),
            modified_at: Instant(0),
            expires_at: None,
            job: None,
            body: Body::Container(Container::new(
                sanderling_protocol::message::ObjectKind::Directory,
            )),
        };
        Self {
            cluster,
            index: 0,
            now: Instant(0),
            lease,
            next_object: ROOT.0 + 1,
            next_block: 1,
            next_lease: 1,
            next_job: 1,
            objects: BTreeMap::from([(ROOT, root)]),
            blocks: BTreeMap::new(),
            nodes: Nodes { by_id: BTreeMap::new(), next_id: 1 },
            jobs: BTreeMap::new(),
            manager: None,
            due: BTreeSet::new(),
            events: Events::default(),
            report: LossReport::default(),
        }
    }

    /// Returns the cluster's id.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Returns how many commands have been applied: the place in the log.
    #[must_use]
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// Returns the time of the last command.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns when [`Action::Tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns everything that was ever declared lost.
    #[must_use]
    pub const fn report(&self) -> &LossReport {
        &self.report
    }

    /// Returns how many objects exist, the root among them, bound or not.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// Returns how many blocks exist, lost ones among them.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }
}
