//! A fleet under load, and what happened to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sanderling_client::{Client, JobHandle};
use sanderling_protocol::message::{JobHints, RegisterJob};
use sanderling_protocol::{Instant as FleetInstant, Millis, NodeId, ObjectId, Policy};
use tokio::task::JoinSet;

use crate::cluster::{SOON, path};
use crate::fleet::Fleet;
use crate::judge;
use crate::load::{self, Shared, Worker};
use crate::lots::Lots;
use crate::model::{Promise, Violation};
use crate::proxy::Proxy;

/// Workers; the first one's replies can be swallowed.
const WORKERS: u64 = 5;

/// How long a job lives without a renewal: less than a namenode is stopped at times.
const JOB_LEASE: Millis = Millis(7000);

/// Longest time that a second fault waits for the datanodes to be back after the first.
const REGISTERED_MAX: Duration = Duration::from_secs(20);

/// Pieces of work that are done before each fault at least.
const CALLS_BEFORE: u64 = 25;

/// Everything that one fleet is judged by.
pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) shared: Arc<Shared>,
    pub(crate) admin: Client,
    pub(crate) proxy: Proxy,
    pub(crate) job: Option<JobHandle>,
    pub(crate) directories: Vec<String>,
    /// Incarnations when the fleet was last at rest.
    pub(crate) ids: BTreeMap<String, NodeId>,
    /// Incarnations to which something happened that may cost what they hold.
    pub(crate) blamed: BTreeSet<NodeId>,
    /// Those of them for which that is so until they end.
    pub(crate) damaged: BTreeSet<NodeId>,
    /// Whether losses need no cause in this round.
    pub(crate) any_loss: bool,
    /// Whether the end of the journal was cut in this round.
    pub(crate) tail_cut: Option<u64>,
    pub(crate) known_losses: BTreeSet<(ObjectId, NodeId, FleetInstant)>,
    pub(crate) lost_bytes: u64,
    pub(crate) counter: u64,
    /// Longest time in which the fleet must come to rest.
    pub(crate) rest_max: Duration,
    /// Whether it cannot be judged any more, and another must be started.
    pub(crate) is_void: bool,
    workers: JoinSet<()>,
}

impl World {
    /// Starts a fleet and its load.
    pub(crate) async fn start(seed: u64, round: u64, sync: &str) -> Self {
        let mut lots = Lots::new(seed, round << 8);
        let (datanodes, has_manager) = (4 + lots.below(2), lots.below(3) == 0);
        let fleet = Fleet::start(usize::try_from(datanodes).expect("few"), sync, has_manager);
        let proxy = Proxy::start("127.0.0.1:0", &fleet.address);
        let admin = fleet.client(&fleet.address, true).await;
        let shared = Arc::new(Shared::new());
        let mut world = Self {
            fleet,
            shared,
            admin,
            proxy,
            job: None,
            directories: Vec::new(),
            ids: BTreeMap::new(),
            blamed: BTreeSet::new(),
            damaged: BTreeSet::new(),
            any_loss: false,
            tail_cut: None,
            known_losses: BTreeSet::new(),
            lost_bytes: 0,
            counter: 0,
            rest_max: SOON,
            is_void: false,
            workers: JoinSet::new(),
        };
        world.start_load(seed, round).await;
        world
    }

    async fn start_load(&mut self, seed: u64, round: u64) {
        let (lease, hints) = (JOB_LEASE, JobHints::default());
        let request = RegisterJob { path: path("/w1"), lease, quota_bytes: None, hints };
        self.job = Some(self.admin.run_job(request).await.expect("a job"));
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            let address = if number == 0 { &self.proxy.address } else { &self.fleet.address };
            let client = self.fleet.client(address, number % 2 == 1).await;
            let (shared, kept, counter) = (Arc::clone(&self.shared), VecDeque::new(), 0);
            let directory = format!("/w{number}");
            self.directories.push(directory.clone());
            let lots = Lots::new(seed, (round << 8) + 1 + number);
            workers.push(Worker { client, shared, directory, lots, kept, counter });
        }
        self.directories.push("/cli".to_owned());
        self.workers = load::start(&self.shared, workers);
    }

    /// Waits until the load has done something.
    pub(crate) async fn works(&mut self) -> Result<(), Violation> {
        let calls = self.shared.model.calls() + CALLS_BEFORE;
        let limit = Instant::now() + SOON;
        while self.shared.model.calls() < calls {
            if let Some(ended) = self.workers.try_join_next() {
                panic!("a worker ended: {ended:?}");
            }
            if Instant::now() > limit {
                return Err(Violation::new(Promise::Settles, "the load does not go on"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Waits until every datanode that runs is known by the incarnation that it is, for a while.
    /// The fleet need not be at rest.
    pub(crate) async fn is_registered(&mut self) {
        let limit = Instant::now() + REGISTERED_MAX;
        while Instant::now() < limit {
            let nodes = self.admin.nodes(false).await.unwrap_or_default();
            let active = nodes.iter().filter(|node| node.policy == Policy::Active);
            self.ids.extend(active.clone().map(|node| (node.name.clone(), node.id)));
            if active.count() == self.fleet.nodes.len() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Something happens to a node that may cost what it holds.
    pub(crate) fn blame(&mut self, name: &str) {
        self.blamed.extend(judge::incarnation(self, name));
    }

    /// Ends a round: what happened in it is no excuse for what comes.
    pub(crate) fn forgive_nothing(&mut self) {
        let living: BTreeSet<NodeId> = self.ids.values().copied().collect();
        self.blamed.retain(|node| !living.contains(node) || self.damaged.contains(node));
        self.shared.model.forget_lag();
        self.any_loss = false;
        self.tail_cut = None;
    }

    /// Ends the load.
    pub(crate) async fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("no worker panics");
        }
    }

    /// Ends the load without waiting for it: the fleet is broken for good.
    pub(crate) fn abandon(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.workers.abort_all();
    }

    /// Keeps what is on the disk, for people.
    pub(crate) fn keep(&mut self) -> String {
        self.fleet.directory.disable_cleanup(true);
        self.fleet.directory.path().display().to_string()
    }
}
