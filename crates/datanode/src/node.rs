//! What the parts of a running datanode share.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};
use sanderling_core::Mechanism;
use sanderling_protocol::local::Door;
use sanderling_protocol::message::{HeartbeatReply, Hello, HelloReply, Registered, Role};
use sanderling_protocol::node::Load;
use sanderling_protocol::{
    ClusterId, Millis, NodeId, NodeSelector, Nonce, Op, Policy, Refusal, Reply, Request,
};
use sanderling_transport::{CallError, Connection, Pool};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::egress::Egress;
use crate::leaving::Leaving;
use crate::local::Local;
use crate::metrics::Metrics;
use crate::options::DatanodeOptions;
use crate::push_rate::PushRate;
use crate::service::DiskRoom;
use crate::store::BlockStore;

/// When to try a write again that waits for the end of a relocation.
const RELOCATION_RETRY: Millis = Millis(20);

/// A running datanode.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) options: DatanodeOptions,
    pub(crate) store: BlockStore,
    pub(crate) metrics: Metrics,
    pub(crate) pool: Pool,
    /// Pushes under way, over all orders.
    pub(crate) pushes: Semaphore,
    pub(crate) egress: Egress,
    pub(crate) disk_room: DiskRoom,
    pub(crate) leaving: Leaving,
    pub(crate) push_rate: PushRate,
    pub(crate) address: String,
    pub(crate) http_address: String,
    pub(crate) local: Option<Local>,
    identity: RwLock<Identity>,
    standing: watch::Sender<Standing>,
    fence_orders: Mutex<FenceOrders>,
    /// Blocks were fenced one by one since the namenode last said how the node stands.
    has_fenced_unheard: AtomicBool,
    in_flight: AtomicU32,
    /// Connections that peers have open.
    pub(crate) connections: AtomicU32,
}

/// Who the node is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: Option<ClusterId>,
    /// `None` until it has registered.
    pub(crate) node: Option<NodeId>,
    pub(crate) nonce: Nonce,
}

/// What the namenode said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) policy: Policy,
    pub(crate) home_blocks: Option<u64>,
}

/// What was said of the fence other than by answers to heartbeats.
#[derive(Debug, Default)]
struct FenceOrders {
    /// Orders so far: tells an answer to a heartbeat that an order overtook it.
    count: u64,
    /// The node got a notice that the namenode has not heard of: its answers must not lift the
    /// fence.
    is_leaving: bool,
}

/// Counts a request as in flight for as long as it lives.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a AtomicU32);

impl Node {
    pub(crate) fn new(
        options: DatanodeOptions,
        store: BlockStore,
        pool: Pool,
        address: String,
        http_address: String,
    ) -> Self {
        let standing = Standing { policy: Policy::Active, home_blocks: None };
        let identity = Identity { cluster: None, node: None, nonce: nonce() };
        Self {
            pushes: Semaphore::new(options.pushes_in_flight_max),
            egress: Egress::new(options.egress_limit),
            disk_room: DiskRoom::default(),
            leaving: Leaving::new(),
            push_rate: PushRate::new(Instant::now()),
            options,
            store,
            metrics: Metrics::new(),
            pool,
            address,
            http_address,
            local: None,
            identity: RwLock::new(identity),
            standing: watch::Sender::new(standing),
            fence_orders: Mutex::default(),
            has_fenced_unheard: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            connections: AtomicU32::new(0),
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        *self.identity.read()
    }

    /// Returns the incarnation's id.
    pub(crate) fn id(&self) -> NodeId {
        self.identity().node.unwrap_or_default()
    }

    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Takes the namenode's welcome.
    pub(crate) fn joined(&self, registered: &Registered) {
        {
            let mut identity = self.identity.write();
            identity.cluster = Some(registered.cluster);
            identity.node = Some(registered.node);
        }
        self.pool.set_cluster(Some(registered.cluster));
        if let Some(objects) = &self.store.objects {
            objects.join(registered.cluster);
        }
        self.metrics.registrations.inc();
        self.take_policy(registered.policy, None, self.fence_orders());
    }

    /// Takes the welcome to the same incarnation, under the same condition as [`Self::answered`].
    pub(crate) fn rejoined(&self, registered: &Registered, fence_orders: u64) {
        self.metrics.registrations.inc();
        let home_blocks = self.standing.borrow().home_blocks;
        self.take_policy(registered.policy, home_blocks, fence_orders);
    }

    /// Takes the news that the namenode gave this incarnation up; returns whether there was a
    /// notice.
    pub(crate) fn gone(&self) -> bool {
        let was_noticed = self.store.is_fenced();
        self.store.set_fence(true);
        self.standing.send_modify(|standing| standing.policy = Policy::Gone);
        was_noticed
    }

    /// Takes a heartbeat's answer. `fence_orders` is [`Self::fence_orders`] from before it was
    /// sent: if an order came since, the answer may be older than the order and says nothing.
    pub(crate) fn answered(&self, reply: &HeartbeatReply, fence_orders: u64) {
        self.take_policy(reply.policy, Some(reply.home_blocks), fence_orders);
    }

    fn take_policy(&self, policy: Policy, home_blocks: Option<u64>, fence_orders: u64) {
        let orders = self.fence_orders.lock();
        if orders.count != fence_orders {
            return;
        }
        let is_leaving = orders.is_leaving && self.options.mechanism.pushes_fences();
        let is_fenced = is_leaving || !policy.takes_blocks();
        // Before the fence: a write that meets the fence must find out why it is there.
        self.standing.send_replace(Standing { policy, home_blocks });
        if self.store.set_fence(is_fenced) {
            tracing::info!(node = %self.id(), ?policy, is_fenced, "fence changed by policy");
        }
        self.has_fenced_unheard.store(false, Ordering::SeqCst);
    }

    pub(crate) fn fence_orders(&self) -> u64 {
        self.fence_orders.lock().count
    }

    /// Sets or lifts the fence by an order.
    pub(crate) fn order_fence(&self, is_fenced: bool) {
        let mut orders = self.fence_orders.lock();
        orders.count += 1;
        orders.is_leaving = false;
        if self.store.set_fence(is_fenced) {
            tracing::info!(node = %self.id(), is_fenced, "fence changed by an order");
        }
    }

    /// Takes note that blocks are about to be fenced by an order, before they are.
    pub(crate) fn fences_blocks(&self) {
        self.has_fenced_unheard.store(true, Ordering::SeqCst);
    }

    /// Returns why no write is taken now under [`Mechanism::Seed`]: the node's relocation has begun
    /// and not ended. Brodmann et al., section 3.2, reject all writes to a node meanwhile.
    pub(crate) fn withheld(&self) -> Option<Refusal> {
        if self.options.mechanism != Mechanism::Seed || !self.store.is_fenced() {
            return None;
        }
        let is_leaving = self.standing.borrow().policy.is_draining();
        is_leaving.then(|| self.relocation_retry())
    }

    /// Returns what is answered instead of a refusal. Under [`Mechanism::Seed`] a writer that meets
    /// a fence is sent elsewhere only when the relocation has ended: the fence may have come while
    /// the write was under way, and a block's fence before the answer to the heartbeat that tells
    /// of the relocation.
    pub(crate) fn answered_refusal(&self, op: Op, refusal: Refusal) -> Refusal {
        let is_write = op == Op::Write && matches!(refusal, Refusal::Moved { .. });
        if !is_write || self.options.mechanism != Mechanism::Seed {
            return refusal;
        }
        if self.has_fenced_unheard.load(Ordering::SeqCst) {
            return self.relocation_retry();
        }
        self.withheld().unwrap_or(refusal)
    }

    fn relocation_retry(&self) -> Refusal {
        let why = format!("node {} is being relocated", self.id());
        Refusal::RetryAfter { after: RELOCATION_RETRY, why }
    }

    /// Fences the node for its own notice, until [`Self::left`] says that the namenode has heard.
    pub(crate) fn leave(&self) {
        let mut orders = self.fence_orders.lock();
        orders.count += 1;
        orders.is_leaving = true;
        if self.options.mechanism.pushes_fences() {
            self.store.set_fence(true);
        }
    }

    /// Takes the namenode's word again from now on.
    pub(crate) fn left(&self) {
        let mut orders = self.fence_orders.lock();
        orders.count += 1;
        orders.is_leaving = false;
    }

    /// Forgets everything and is nobody until it has registered, as another process unless the
    /// namenode gave this one a new id already.
    pub(crate) fn begin_again(&self, as_another: bool) {
        {
            let mut identity = self.identity.write();
            identity.node = None;
            if as_another {
                identity.nonce = nonce();
            }
        }
        self.left();
        self.store.wipe();
        self.leaving.forget();
        self.standing.send_replace(Standing { policy: Policy::Active, home_blocks: None });
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

    pub(crate) fn metrics_text(&self) -> String {
        let home_blocks = self.standing.borrow().home_blocks.unwrap_or_default();
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

    /// Returns the error of an answer to something else.
    pub(crate) fn bad_reply(&self, reply: &Reply) -> CallError {
        let why = format!("{reply:?}").chars().take(100).collect();
        CallError::BadReply { address: self.options.namenode.clone(), why }
    }

    /// Gives a notice about this node to the namenode.
    pub(crate) async fn notice(&self, left: Millis, reason: &str) -> Result<Reply, CallError> {
        let deadline_millis = i64::try_from(left.0).unwrap_or(i64::MAX);
        let node = NodeSelector::from(self.id());
        self.ask(Request::Notice { node, deadline_millis, reason: reason.to_owned() }).await
    }

    /// Returns where clients of the same machine find the node; `None` when they do not.
    pub(crate) fn door(&self) -> Option<Door> {
        self.local.as_ref().map(|local| local.door.clone())
    }

    /// Answers the greeting of a connection.
    pub(crate) fn greet(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let Identity { cluster, node, .. } = self.identity();
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

fn nonce() -> Nonce {
    Nonce(rand::random())
}
