//! Orders to datanodes: sent at once, repeated while the node lives, and what came of them given
//! back to the writer.
//!
//! Each node has two queues. A fence is urgent: its queue holds nothing but fences and their
//! taking back. The other queue holds everything else, in order, with drops joined.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sanderling_core::Mechanism;
use sanderling_core::catalog::DatanodeOrder;
use sanderling_core::membership::Probe;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Millis, NodeId, Order, OrderReply};
use sanderling_transport::{
    CallError, Connection, ConnectionOptions, Credentials, Pool, PoolOptions,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::state::NamenodeState;
use crate::work::{OwnWork, WorkQueue};
use crate::writer::Effect;

/// Orders that wait in one queue. More are given up: block reports and heartbeats repeat them.
const QUEUE_MAX: usize = 1024;

/// Time of one order.
const ORDER_WITHIN: Duration = Duration::from_secs(2);

/// Pauses between two tries: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Time of one probe, short against the silence after which a node is dead.
const PROBE_WITHIN: Duration = Duration::from_millis(500);

/// A queue without orders for this long ends.
const IDLE: Duration = Duration::from_secs(30);

/// The part of the server that speaks to datanodes.
#[derive(Debug)]
pub(crate) struct Orders {
    shared: Arc<OrderContext>,
    mechanism: Mechanism,
    queues: BTreeMap<(NodeId, OrderQueue), mpsc::Sender<PendingOrder>>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct OrderContext {
    state: Arc<NamenodeState>,
    pool: Pool,
    work: Arc<WorkQueue>,
    stop: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OrderQueue {
    Fence,
    Rest,
}

#[derive(Debug)]
struct PendingOrder {
    order: DatanodeOrder,
    since: Instant,
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
                    Some(Effect::Order(order)) => self.order(order),
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

    fn order(&mut self, order: DatanodeOrder) {
        if matches!(order.order, Order::FenceNode { .. }) && !self.mechanism.pushes_fences() {
            return;
        }
        let queue = match order.order {
            Order::FenceNode { .. } | Order::UnfenceNode => OrderQueue::Fence,
            _ => OrderQueue::Rest,
        };
        let key = (order.node, queue);
        let mut waiting = PendingOrder { order, since: Instant::now() };
        if let Some(sender) = self.queues.get(&key) {
            match sender.try_send(waiting) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(waiting)) => {
                    self.shared.state.metrics.orders_dropped.inc();
                    warn!(node = %waiting.order.node, "a datanode's orders overflow");
                    return;
                }
                // The queue has ended because it was idle.
                Err(mpsc::error::TrySendError::Closed(back)) => waiting = back,
            }
        }
        self.queues.retain(|_, sender| !sender.is_closed());
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        sender.try_send(waiting).expect("a new channel has room");
        self.queues.insert(key, sender);
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move { shared.queue(receiver).await });
    }
}

impl OrderContext {
    async fn queue(&self, mut orders: mpsc::Receiver<PendingOrder>) {
        let mut next: Option<PendingOrder> = None;
        loop {
            let waiting = match next.take() {
                Some(waiting) => waiting,
                None => match timeout(IDLE, orders.recv()).await {
                    Ok(Some(waiting)) => waiting,
                    Ok(None) | Err(_) => return,
                },
            };
            let mut waiting = waiting;
            next = join_drops(&mut waiting, &mut orders);
            if !self.deliver(waiting).await {
                return;
            }
        }
    }

    /// Sends one order until it is answered; returns whether the node is still there.
    async fn deliver(&self, waiting: PendingOrder) -> bool {
        let mut pause = RETRY.0;
        loop {
            let DatanodeOrder { node, address, .. } = &waiting.order;
            if !self.state.is_present(*node) || !self.state.group.standing().serves() {
                return false;
            }
            let order = aged(&waiting);
            let deadline = Instant::now() + ORDER_WITHIN;
            self.state.metrics.orders.inc();
            let term = self.state.group.term();
            match self.pool.order_in(term, *node, address, order, deadline).await {
                Ok(reply) => {
                    self.work
                        .push_own(OwnWork::Ordered { order: waiting.order, reply: Some(reply) });
                    return true;
                }
                Err(CallError::Refused(refusal))
                    if Probe::refused_by(&refusal) == Some(Probe::Refused) =>
                {
                    // Another incarnation answers there: this one has ended.
                    let node = waiting.order.node;
                    self.work.push_own(OwnWork::Probed { node, outcome: Probe::Refused });
                    return false;
                }
                Err(CallError::Refused(refusal)) if Probe::refused_by(&refusal).is_none() => {
                    warn!(%node, %refusal, "a datanode refused an order");
                    let reply = Some(OrderReply::Refused(refusal));
                    self.work.push_own(OwnWork::Ordered { order: waiting.order, reply });
                    return true;
                }
                Err(error) => {
                    debug!(%node, %error, "an order did not reach its datanode");
                    let order = waiting.order.clone();
                    self.work.push_own(OwnWork::Ordered { order, reply: None });
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
        }
    }

    async fn probe(&self, node: NodeId, address: String) {
        let hello = Hello {
            role: Role::Namenode,
            cluster: Some(self.state.cluster),
            node: Some(node),
            token: None,
        };
        let (deadline, options) = (Instant::now() + PROBE_WITHIN, self.pool.connection_options());
        let dialled = Connection::connect_with(&address, hello, deadline, options).await;
        let outcome = match dialled {
            Ok(_) => Probe::Alive,
            Err(CallError::Refused(refusal)) => {
                Probe::refused_by(&refusal).unwrap_or(Probe::Timeout)
            }
            Err(error) if error.is_connection_refused() => Probe::Refused,
            Err(_) => Probe::Timeout,
        };
        debug!(%node, %address, ?outcome, "datanode dialled");
        self.work.push_own(OwnWork::Probed { node, outcome });
    }
}

/// Returns the order as it is now: a deadline has come nearer while the order waited.
fn aged(waiting: &PendingOrder) -> Order {
    match &waiting.order.order {
        Order::FenceNode { deadline_in: Some(left) } => {
            let passed = Millis::from(waiting.since.elapsed());
            Order::FenceNode { deadline_in: Some(Millis(left.0.saturating_sub(passed.0))) }
        }
        order => order.clone(),
    }
}

/// Joins the drops that wait behind a drop; returns the first order that is none.
fn join_drops(
    first: &mut PendingOrder,
    orders: &mut mpsc::Receiver<PendingOrder>,
) -> Option<PendingOrder> {
    let Order::Drop { blocks } = &mut first.order.order else { return None };
    while blocks.len() < BLOCKS_PER_PAGE_MAX {
        let waiting = orders.try_recv().ok()?;
        match &waiting.order.order {
            Order::Drop { blocks: more } => blocks.extend(more),
            _ => return Some(waiting),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{BlockId, Epoch};

    use super::*;

    fn waiting(order: Order) -> PendingOrder {
        let order = DatanodeOrder { node: NodeId(1), address: "a:1".to_owned(), order };
        PendingOrder { order, since: Instant::now() }
    }

    fn drop_of(block: u64) -> Order {
        Order::Drop { blocks: vec![(BlockId(block), Epoch(1))] }
    }

    #[tokio::test]
    async fn drops_are_joined_up_to_the_next_other_order() {
        let (sender, mut orders) = mpsc::channel(8);
        for order in [drop_of(2), drop_of(3), Order::UnfenceNode, drop_of(4)] {
            sender.try_send(waiting(order)).unwrap();
        }
        let mut first = waiting(drop_of(1));
        let next = join_drops(&mut first, &mut orders).unwrap();
        let all = [1, 2, 3].map(|block| (BlockId(block), Epoch(1))).to_vec();
        assert_eq!(first.order.order, Order::Drop { blocks: all });
        assert_eq!(next.order.order, Order::UnfenceNode);
        assert_eq!(orders.len(), 1);
    }

    #[test]
    fn deadline_of_a_fence_comes_nearer_while_it_waits() {
        let mut fence = waiting(Order::FenceNode { deadline_in: Some(Millis(3000)) });
        fence.since = fence.since.checked_sub(Duration::from_secs(1)).unwrap();
        let Order::FenceNode { deadline_in: Some(left) } = aged(&fence) else { panic!() };
        assert!(left <= Millis(2000) && left > Millis(1000), "{left}");
    }
}
