//! Orders to datanodes: sent at once, repeated while the node lives, and what came of them given
//! back to the writer. [`OrderQueue`] decides which order is next, and what an answer means;
//! [`OrderLeadership`] whether it still counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::Mechanism;
use sanderling_core::call_outcome::CallOutcome;
use sanderling_core::catalog::DatanodeOrder;
use sanderling_core::membership::{PROBE_TIMEOUT, Probe};
use sanderling_core::namenode::{ORDER_TIMEOUT, OrderKind, OrderLeadership, OrderQueue, OrderStep};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{NodeId, Order, OrderReply};
use sanderling_transport::{
    CallError, Connection, ConnectionOptions, Credentials, Pool, PoolOptions,
};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::state::NamenodeState;
use crate::writer::Effect;
use crate::writer_queue::{OwnWork, WorkQueue};

/// The task of a queue without orders for this long ends. It is started again with the next order,
/// which costs microseconds; of a thousand nodes only those with orders keep one. Chosen, not
/// measured.
const IDLE: Duration = Duration::from_secs(30);

/// The part of the server that speaks to datanodes.
#[derive(Debug)]
pub(crate) struct Orders {
    shared: Arc<OrderContext>,
    mechanism: Mechanism,
    queues: BTreeMap<(NodeId, OrderKind, u64), Arc<NodeOrders>>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct OrderContext {
    state: Arc<NamenodeState>,
    pool: Pool,
    work: Arc<WorkQueue>,
    stop: CancellationToken,
}

/// The orders of one kind to one node, decided in one term. A task of their own sends them, until
/// this namenode leads in another one: a leader between the two may have decided otherwise.
#[derive(Debug)]
struct NodeOrders {
    term: u64,
    /// `None` once the task has ended.
    queue: Mutex<Option<OrderQueue>>,
    pushed: Notify,
}

impl Orders {
    pub(crate) fn new(
        state: Arc<NamenodeState>,
        work: Arc<WorkQueue>,
        stop: CancellationToken,
        mechanism: Mechanism,
        credentials: Credentials,
    ) -> Self {
        let cluster = Some(state.cluster);
        let generation = state.group.known_generation().clone();
        let connection = ConnectionOptions { credentials, generation, ..Default::default() };
        let (role, options) = (Role::Namenode, PoolOptions::default());
        let pool = Pool::new(PoolOptions { role, cluster, connection, ..options });
        let shared = Arc::new(OrderContext { state, pool, work, stop });
        Self { shared, mechanism, queues: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Runs effects until the server stops.
    pub(crate) async fn run(mut self, mut effects: mpsc::Receiver<Effect>) {
        let stop = self.shared.stop.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = self.tasks.join_next() => {}
                effect = effects.recv() => match effect {
                    Some(Effect::Order { term, order }) => self.order(term, order),
                    Some(Effect::Probe { node, address }) => {
                        let shared = Arc::clone(&self.shared);
                        self.tasks.spawn(async move { shared.probe(node, address).await });
                    }
                    None => break,
                }
            }
        }
        self.tasks.shutdown().await;
    }

    fn order(&mut self, term: u64, order: DatanodeOrder) {
        if matches!(order.order, Order::FenceNode { .. }) && !self.mechanism.pushes_fences() {
            return;
        }
        let (node, now) = (order.node, self.shared.state.now());
        let key = (node, OrderKind::of(&order.order), term);
        let none = || Arc::new(NodeOrders { term, queue: Mutex::new(None), pushed: Notify::new() });
        let orders = Arc::clone(self.queues.entry(key).or_insert_with(none));
        let mut queue = orders.queue.lock();
        let is_new = queue.is_none();
        if queue.get_or_insert_default().push(now, order).is_err() {
            self.shared.state.metrics.orders_dropped.inc();
            warn!(%node, "a datanode's orders overflow");
        }
        drop(queue);
        orders.pushed.notify_one();
        if is_new {
            // Others have ended.
            self.queues.retain(|other, it| *other == key || it.queue.lock().is_some());
            let shared = Arc::clone(&self.shared);
            self.tasks.spawn(async move { shared.deliver_all(&orders).await });
        }
    }
}

impl OrderContext {
    /// Sends the orders of a queue until the node is gone, or none has come for long.
    async fn deliver_all(&self, orders: &NodeOrders) {
        loop {
            let first = orders.queue.lock().as_mut().and_then(|it| it.first(self.state.now()));
            let Some(order) = first else {
                let has_come = timeout(IDLE, orders.pushed.notified()).await.is_ok();
                let mut queue = orders.queue.lock();
                if !has_come && queue.as_ref().is_none_or(OrderQueue::is_empty) {
                    *queue = None;
                    return;
                }
                continue;
            };
            if !self.deliver(orders, order).await {
                *orders.queue.lock() = None;
                return;
            }
        }
    }

    /// Sends an order once; returns whether the node is still there, and the order counts.
    async fn deliver(&self, orders: &NodeOrders, order: DatanodeOrder) -> bool {
        let DatanodeOrder { node, address, order } = order;
        let group = &self.state.group;
        let (term, serves) = (group.term(), group.serving_state().serves());
        let leadership = OrderLeadership { term, generation: group.generation(), serves };
        if !leadership.may_send(orders.term, self.state.policy(node)) {
            return false;
        }
        let deadline = Instant::now() + Duration::from(ORDER_TIMEOUT);
        self.state.metrics.orders.inc();
        let sent = self.pool.order_in(term, node, &address, order, deadline).await;
        let answer = match sent {
            Ok(reply) => Some(Ok(reply)),
            Err(CallError::Refused(refusal)) => Some(Err(refusal)),
            Err(error) => {
                debug!(%node, %error, "an order did not reach its datanode");
                None
            }
        };
        let step = orders.queue.lock().as_mut().and_then(|queue| queue.answered(answer));
        match step {
            Some(OrderStep::Replied(order, reply)) => {
                if let OrderReply::Refused(refusal) = &reply {
                    warn!(%node, %refusal, "a datanode refused an order");
                }
                self.work.push_own(OwnWork::Ordered { order, reply: Some(reply) });
            }
            Some(OrderStep::Again(order, pause)) => {
                self.work.push_own(OwnWork::Ordered { order, reply: None });
                sleep(pause.into()).await;
            }
            Some(OrderStep::NodeEnded) => {
                self.work.push_own(OwnWork::Probed { node, outcome: Probe::Refused });
                return false;
            }
            None => {}
        }
        true
    }

    async fn probe(&self, node: NodeId, address: String) {
        let hello = Hello {
            role: Role::Namenode,
            cluster: Some(self.state.cluster),
            node: Some(node),
            token: None,
        };
        let (within, options) = (Duration::from(PROBE_TIMEOUT), self.pool.connection_options());
        let deadline = Instant::now() + within;
        let dialled = Connection::connect_with(&address, hello, deadline, options).await;
        let dialled = dialled.as_ref().map_or_else(CallError::outcome, |_| CallOutcome::Answered);
        let outcome = Probe::of(dialled);
        debug!(%node, %address, ?outcome, "datanode dialled");
        self.work.push_own(OwnWork::Probed { node, outcome });
    }
}
