//! What the parts of a running datanode share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use sanderling_core::Mechanism;
use sanderling_core::datanode::{BlockTotals, Member};
use sanderling_protocol::local::LocalEndpoint;
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::node::Load;
use sanderling_protocol::{
    self as protocol, ClusterId, NodeId, Nonce, Op, Policy, Refusal, Reply, Request,
};
use sanderling_transport::{CallError, Connection, MEMORY_MAX, Memory, Pool, Revocations};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::clock::ProcessClock;
use crate::counters::Counters;
use crate::drain_throttle::ReadThrottle;
use crate::egress::Egress;
use crate::local::Local;
use crate::member::{member_options, nonce, start};
use crate::metrics::{DatanodeMetrics, registry};
use crate::options::DatanodeOptions;
use crate::push_rate::PushRate;
use crate::scrub::Scrubbed;
use crate::service::DiskRoom;
use crate::store::BlockStore;

/// A running datanode.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) options: DatanodeOptions,
    pub(crate) store: Arc<BlockStore>,
    pub(crate) counters: Counters,
    metrics: DatanodeMetrics,
    pub(crate) pool: Pool,
    /// Pushes under way, over all orders.
    pub(crate) pushes: Semaphore,
    pub(crate) egress: Egress,
    pub(crate) disk_room: DiskRoom,
    /// Memory for long requests, of all incarnations.
    pub(crate) memory: Memory,
    pub(crate) read_throttle: ReadThrottle,
    pub(crate) push_rate: PushRate,
    pub(crate) address: String,
    pub(crate) http_address: String,
    pub(crate) local: Option<Local>,
    pub(crate) scrubbed: Scrubbed,
    /// What the process is to its cluster, by `clock`. No lock but the block table's is taken while
    /// it is held.
    pub(crate) member: RwLock<Member>,
    registration: watch::Sender<RegistrationStatus>,
    pub(crate) clock: ProcessClock,
    in_flight: AtomicU32,
    /// Connections that peers have open.
    pub(crate) connections: AtomicU32,
}

/// Who the node is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeIdentity {
    pub(crate) cluster: Option<ClusterId>,
    /// `None` until it has registered.
    pub(crate) node: Option<NodeId>,
    pub(crate) nonce: Nonce,
}

/// What the namenode said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegistrationStatus {
    pub(crate) policy: Policy,
    pub(crate) home_blocks: Option<u64>,
}

/// Counts a request as in flight for as long as it lives.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a AtomicU32);

impl Node {
    pub(crate) fn new(
        mut options: DatanodeOptions,
        store: BlockStore,
        pool: Pool,
        address: String,
        http_address: String,
    ) -> Self {
        let registration = RegistrationStatus { policy: Policy::Active, home_blocks: None };
        let revocations = Revocations::lasting(Some(options.revocations_age_max));
        options.security.revocations = Arc::new(revocations);
        let clock = ProcessClock::start();
        let start = start(&options, clock.now());
        let member = Member::new(member_options(&options), nonce(), start);
        let mut registry = registry();
        let counters = Counters::new(&mut registry);
        Self {
            pushes: Semaphore::new(options.pushes_in_flight_max),
            egress: Egress::new(options.egress_limit, clock),
            disk_room: DiskRoom::default(),
            memory: Memory::new(MEMORY_MAX),
            read_throttle: ReadThrottle::new(clock),
            push_rate: PushRate::new(clock),
            options,
            store: Arc::new(store),
            counters,
            metrics: DatanodeMetrics::new(registry),
            pool,
            address,
            http_address,
            local: None,
            scrubbed: Scrubbed::default(),
            member: RwLock::new(member),
            registration: watch::Sender::new(registration),
            clock,
            in_flight: AtomicU32::new(0),
            connections: AtomicU32::new(0),
        }
    }

    /// Returns the incarnation's id.
    pub(crate) fn id(&self) -> NodeId {
        self.member.read().node().unwrap_or_default()
    }

    pub(crate) fn registration(&self) -> watch::Receiver<RegistrationStatus> {
        self.registration.subscribe()
    }

    /// Takes the cluster that the node joins, before its peers may call it by its id.
    pub(crate) fn enter_cluster(&self, cluster: ClusterId) {
        if self.member.read().cluster() == Some(cluster) {
            return;
        }
        self.pool.set_cluster(Some(cluster));
        if let Some(objects) = self.store.tiers().objects() {
            objects.join(cluster);
        }
    }

    /// Changes the member, and brings up to date what depends on it: the fence, and those who wait
    /// for the policy.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Member, protocol::Instant) -> T) -> T {
        let mut member = self.member.write();
        let changed = change(&mut member, self.clock.now());
        self.publish(&member);
        let is_fenced = member.registration().is_fenced();
        if is_fenced != self.store.is_fenced() {
            self.store.set_fence(is_fenced);
            let (node, policy) =
                (member.node().unwrap_or_default(), member.registration().policy());
            tracing::info!(%node, ?policy, is_fenced, "fence changed");
        }
        changed
    }

    fn publish(&self, member: &Member) {
        let (policy, home_blocks) =
            (member.registration().policy(), member.registration().home_blocks());
        let registration = RegistrationStatus { policy, home_blocks };
        self.registration
            .send_if_modified(|before| std::mem::replace(before, registration) != registration);
    }

    /// Makes the process nobody and forgets what it held.
    pub(crate) fn wipe(&self, held: BlockTotals, next: Nonce) {
        let mut member = self.member.write();
        member.begin_again(self.clock.now(), held, next);
        // The fence goes with the blocks. Their files are deleted when nobody waits for the member.
        let bytes = self.store.wipe();
        self.read_throttle.forget();
        self.publish(&member);
        drop(member);
        drop(bytes);
    }

    /// Sets or lifts the fence by an order.
    pub(crate) fn order_fence(&self, is_fenced: bool) {
        self.change(|member, now| member.registration_mut().order(now, is_fenced));
    }

    /// Takes note that blocks are about to be fenced by an order, before they are.
    pub(crate) fn fences_blocks(&self) {
        self.change(|member, _| member.registration_mut().fences_blocks());
    }

    /// Returns why no write is taken now, as
    /// [`sanderling_core::datanode::RegistrationStatus::withheld`].
    pub(crate) fn withheld(&self) -> Option<Refusal> {
        if self.options.mechanism != Mechanism::Baseline {
            return None;
        }
        let member = self.member.read();
        member.registration().withheld(member.node().unwrap_or_default())
    }

    /// Returns what is answered instead of a refusal.
    pub(crate) fn answered_refusal(&self, op: Op, refusal: Refusal) -> Refusal {
        let is_write = op == Op::Write && matches!(refusal, Refusal::Moved { .. });
        if !is_write || self.options.mechanism != Mechanism::Baseline {
            return refusal;
        }
        let member = self.member.read();
        let instead = member.registration().instead_of_moved(member.node().unwrap_or_default());
        instead.unwrap_or(refusal)
    }

    pub(crate) fn load(&self) -> Load {
        let requests_in_flight = self.in_flight.load(Ordering::Relaxed);
        let pushed_bytes_per_second = self.push_rate.bytes_per_second();
        let connections = self.connections.load(Ordering::Relaxed);
        let store = self.store.load();
        Load { requests_in_flight, connections, pushed_bytes_per_second, ..store }
    }

    pub(crate) fn enter(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(&self.in_flight)
    }

    /// Tells whether any request is being served.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn metrics_text(&self) -> String {
        let home_blocks = self.registration.borrow().home_blocks.unwrap_or_default();
        self.metrics.set_certificates(&self.options.security.expiries().timestamps());
        self.metrics.set_scrubbed(&self.scrubbed, self.store.damages());
        self.metrics.set_memory(&self.store, &self.memory);
        self.metrics.text(&self.store, &self.load(), home_blocks, self.local.as_ref())
    }

    /// Returns the pool's connection to the namenode, to see when it breaks; `None` when there is
    /// none.
    pub(crate) async fn namenode_connection(&self) -> Option<Connection> {
        let deadline = Instant::now() + self.options.call_time_max;
        self.pool.connection(&self.options.namenode, None, deadline).await.ok()
    }

    /// Says one thing to the namenode.
    pub(crate) async fn ask(&self, request: Request) -> Result<Reply, CallError> {
        let deadline = Instant::now() + self.options.call_time_max;
        let mut replies = self.pool.meta(&self.options.namenode, vec![request], deadline).await?;
        Ok(replies.pop().expect("the pool returns one reply to each request")?)
    }

    /// Says one thing to the namenode, and asks in the same frame which tokens were taken back.
    pub(crate) async fn ask_also_for_revocations(
        &self,
        request: Request,
    ) -> Result<Reply, CallError> {
        let security = &self.options.security;
        if security.secret.is_none() {
            return self.ask(request).await;
        }
        let asked = std::time::Instant::now();
        let deadline = Instant::now() + self.options.call_time_max;
        let known = security.revocations.version();
        let requests = vec![request, Request::Revocations { known }];
        self.pool.learn_cluster(&self.options.namenode, deadline).await?;
        let mut replies = self.pool.meta(&self.options.namenode, requests, deadline).await?;
        match replies.pop() {
            Some(Ok(Reply::Revocations { version, list })) => {
                if let Some(list) = &list {
                    tracing::info!(tokens = list.len(), "the list of revoked tokens changed");
                }
                security.revocations.update(asked, version, list);
            }
            // At a namenode of the release before no token can be taken back.
            Some(Err(Refusal::UnknownVersion { .. })) => {
                security.revocations.confirm(asked);
            }
            other => tracing::debug!(?other, "the namenode does not say which tokens hold"),
        }
        Ok(replies.pop().expect("the pool returns one reply to each request")?)
    }

    /// Returns the error of an answer to something else.
    pub(crate) fn bad_reply(&self, reply: &Reply) -> CallError {
        let why = format!("{reply:?}").chars().take(100).collect();
        CallError::BadReply { address: self.options.namenode.clone(), why }
    }

    /// Returns where clients of the same machine find the node; `None` when they do not.
    pub(crate) fn local_endpoint(&self) -> Option<LocalEndpoint> {
        self.local.as_ref().map(|local| local.endpoint.clone())
    }

    /// Answers the greeting of a connection.
    pub(crate) fn greet(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let NodeIdentity { cluster, node, .. } = self.identity();
        if let (Some(here), Some(asked)) = (cluster, hello.cluster)
            && here != asked
        {
            return Err(Refusal::WrongCluster { here, asked });
        }
        if let Some(asked) = hello.node
            && node != Some(asked)
        {
            return Err(Refusal::WrongNode { here: node.unwrap_or_default(), asked });
        }
        Ok(HelloReply { role: Role::Datanode, cluster, node })
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
