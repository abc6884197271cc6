//! A namenode that does what the test sets, and a caller of datanodes.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by several test programs, each of which uses some of it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_datanode::{DatanodeOptions, DatanodeServer};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::message::{
    BlockCount, DurableReply, DurableRequest, Heartbeat, HeartbeatReply, Hello, HelloReply, Joined,
    Register, Registered, Role, Wiped,
};
use sanderling_protocol::node::Load;
use sanderling_protocol::order::{DamagedBlock, HeldBlock};
use sanderling_protocol::{
    BlockId, ClusterId, Epoch, Frame, Header, LogPosition, Millis, NodeId, NodeInfo, Nonce,
    ObjectId, Op, Order, OrderReply, Policy, Refusal, Reply, Request, Tier,
};
use sanderling_transport::{
    CallError, Handled, Pool, PoolOptions, Response, ServeOptions, Service, serve,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub const CLUSTER: ClusterId = ClusterId(0xc1);
pub const HEARTBEAT: Duration = Duration::from_millis(20);

/// What the fake namenode has and must do.
#[derive(Debug, Default)]
pub struct Namenode {
    pub state: Mutex<State>,
}

#[derive(Debug, Default)]
pub struct State {
    pub cluster: Option<ClusterId>,
    pub nodes: BTreeMap<Nonce, NodeId>,
    pub registers: Vec<Register>,
    pub policies: BTreeMap<NodeId, Policy>,
    /// What heartbeats are answered with instead, as if the answers had been made before.
    pub beat_policy: Option<Policy>,
    /// How often the list of nodes was requested.
    pub listed: u64,
    pub homes: BTreeMap<NodeId, u64>,
    pub heartbeats: BTreeMap<NodeId, (u64, Load)>,
    pub reported: Vec<HeldBlock>,
    /// So many block reports are not taken.
    pub reports_to_refuse: u32,
    pub unwanted: BTreeSet<BlockId>,
    pub notices: Vec<(String, i64, String)>,
    pub damaged: Vec<(NodeId, DamagedBlock)>,
    /// What every node must hold.
    pub expected: Vec<HeldBlock>,
    /// What counts for blocks; others may have as much as any block.
    pub counts: BTreeMap<BlockId, BlockCount>,
    /// What counts for blocks in the next answer, and then no more.
    pub counts_once: BTreeMap<BlockId, BlockCount>,
    pub next_node: u32,
    /// Notices and reports of damage are not taken.
    pub is_deaf: bool,
    /// The position of the log that it reports.
    pub position: Option<LogPosition>,
    /// What the datanodes that joined sent of the log, and what they had wiped.
    pub seen: Vec<(Option<LogPosition>, Option<Wiped>)>,
    /// Reports of damage that were not taken.
    pub unacknowledged: u64,
    /// As the release before it cannot list what nodes must hold: how often that was requested.
    pub is_older: Option<u64>,
    /// The changes of durable directories that wait.
    pub waiting: BTreeSet<(ObjectId, u64)>,
    /// The directories whose stores are to be taken over.
    pub to_take: BTreeSet<ObjectId>,
    /// The stores that datanodes have reported.
    pub stores: BTreeMap<NodeId, Vec<String>>,
    /// How notices are refused, if they are, and how often they were.
    pub notice_refusal: Option<Refusal>,
    pub notices_refused: u64,
}

impl Namenode {
    fn answer(&self, request: Request) -> Result<Reply, Refusal> {
        let mut state = self.state.lock();
        match request {
            Request::Join(join) => {
                state.seen.push((join.seen, join.wiped));
                let joined = state.register(join.register)?;
                let Reply::Registered(registered) = joined else { return Ok(joined) };
                let (position, is_continuation) = (state.position, true);
                Ok(Reply::Joined(Box::new(Joined { registered, position, is_continuation })))
            }
            Request::Beat(heartbeat) => {
                let beat = state.heartbeat(&heartbeat)?;
                let Reply::Heartbeat(heartbeat) = beat else { return Ok(beat) };
                Ok(Reply::Beat { heartbeat, position: state.position })
            }
            Request::BlockReport { .. } if state.reports_to_refuse > 0 => {
                state.reports_to_refuse -= 1;
                Err(Refusal::RetryAfter { after: Millis(1), why: "busy".to_owned() })
            }
            Request::BlockReport { blocks, .. } => {
                let unwanted = |held: &HeldBlock| state.unwanted.contains(&held.block);
                let drop = blocks.iter().filter(|held| unwanted(held)).map(|held| held.block);
                let reply = Reply::Drop { blocks: drop.collect() };
                state.reported.extend(blocks);
                Ok(reply)
            }
            Request::ReportDamage { .. } if state.is_deaf => {
                state.unacknowledged += 1;
                Err(Refusal::RetryAfter { after: Millis(1), why: "busy".to_owned() })
            }
            Request::ReportDamage { node, blocks, .. } => {
                state.damaged.extend(blocks.into_iter().map(|block| (node, block)));
                Ok(Reply::Done)
            }
            Request::ExpectedBlocks { .. } if let Some(asked) = &mut state.is_older => {
                *asked += 1;
                Err(Refusal::UnknownVersion { ours: 4, theirs: 3 })
            }
            Request::ExpectedBlocks { after, .. } => {
                let is_next = |held: &&HeldBlock| held.block > after;
                let blocks = state.expected.iter().filter(is_next).copied().collect();
                Ok(Reply::Expected { blocks, is_more: false })
            }
            Request::CountedBlocks { blocks, .. } => {
                Ok(Reply::CountedBlocks(blocks.iter().map(|block| state.count(block)).collect()))
            }
            Request::SourceNotice(_) if state.is_deaf => {
                Err(Refusal::RetryAfter { after: Millis(1), why: "busy".to_owned() })
            }
            Request::SourceNotice(_) if let Some(refusal) = state.notice_refusal.clone() => {
                state.notices_refused += 1;
                Err(refusal)
            }
            Request::SourceNotice(stated) if !stated.is_withdrawn => {
                let id = stated.node;
                state.policies.insert(id, Policy::Draining);
                let deadline_millis = stated.deadline_millis.expect("a notice has one");
                state.notices.push((id.to_string(), deadline_millis, stated.reason));
                Ok(Reply::Node(Box::new(info(id, Policy::Draining))))
            }
            Request::Nodes { .. } => {
                state.listed += 1;
                Ok(Reply::Nodes(state.policies.iter().map(|(id, it)| info(*id, *it)).collect()))
            }
            Request::Durable(request) => state.durable(*request),
            other => Err(Refusal::BadRequest { why: format!("{other:?}") }),
        }
    }

    pub fn set_policy(&self, node: NodeId, policy: Policy) {
        self.state.lock().policies.insert(node, policy);
    }

    pub fn beats(&self, node: NodeId) -> u64 {
        self.state.lock().heartbeats.get(&node).map_or(0, |beat| beat.0)
    }

    /// Waits until the node has sent a heartbeat that was composed from now on.
    pub async fn next_beat(&self, node: NodeId) {
        let seen = self.beats(node);
        until("two more heartbeats", || self.beats(node) >= seen + 2).await;
    }
}

impl State {
    fn count(&mut self, block: &BlockId) -> BlockCount {
        let open = BlockCount::Open { bytes_max: 1 << 20, tier: Tier::Dram };
        let once = self.counts_once.remove(block);
        once.or_else(|| self.counts.get(block).copied()).unwrap_or(open)
    }

    fn durable(&mut self, request: DurableRequest) -> Result<Reply, Refusal> {
        match request {
            DurableRequest::Waits { .. } | DurableRequest::WaitsToTake { .. } if self.is_deaf => {
                Err(Refusal::RetryAfter { after: Millis(1), why: "busy".to_owned() })
            }
            DurableRequest::Waits { directory, number } => {
                let waits = self.waiting.contains(&(directory, number));
                Ok(Reply::Durable(Box::new(DurableReply::Waits(waits))))
            }
            DurableRequest::WaitsToTake { directory } => {
                let waits = self.to_take.contains(&directory);
                Ok(Reply::Durable(Box::new(DurableReply::Waits(waits))))
            }
            DurableRequest::ServeStores { node, stores, .. } => {
                self.stores.insert(node, stores);
                Ok(Reply::Done)
            }
            other => Err(Refusal::BadRequest { why: format!("{other:?}") }),
        }
    }

    fn register(&mut self, register: Register) -> Result<Reply, Refusal> {
        let here = self.cluster.unwrap_or(CLUSTER);
        if let Some(asked) = register.cluster.filter(|asked| *asked != here) {
            return Err(Refusal::WrongCluster { here, asked });
        }
        let next = NodeId(self.next_node + 1);
        let node = *self.nodes.entry(register.nonce).or_insert(next);
        self.next_node = self.next_node.max(node.0);
        let policy = *self.policies.entry(node).or_insert(Policy::Active);
        self.registers.push(register);
        if policy == Policy::Gone {
            return Err(Refusal::NodeGone { node });
        }
        let heartbeat = Millis::from(HEARTBEAT);
        Ok(Reply::Registered(Registered { cluster: here, node, heartbeat, policy }))
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat) -> Result<Reply, Refusal> {
        let node = heartbeat.node;
        if self.nodes.get(&heartbeat.nonce) != Some(&node) {
            return Err(Refusal::UnknownNode { node: node.to_string() });
        }
        let beat = self.heartbeats.entry(node).or_default();
        *beat = (beat.0 + 1, heartbeat.load);
        let policy = self.policies[&node];
        if policy == Policy::Gone {
            return Err(Refusal::NodeGone { node });
        }
        let policy = self.beat_policy.unwrap_or(policy);
        let home_blocks = self.homes.get(&node).copied().unwrap_or_default();
        Ok(Reply::Heartbeat(HeartbeatReply { policy, deadline_in: None, home_blocks }))
    }
}

impl Service for Namenode {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let here = self.state.lock().cluster.unwrap_or(CLUSTER);
        match hello.cluster {
            Some(asked) if asked != here => Err(Refusal::WrongCluster { here, asked }),
            _ => Ok(HelloReply { role: Role::Namenode, cluster: Some(here), node: None }),
        }
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        let requests: Vec<Request> = decode_body(&body).unwrap();
        let replies: Vec<Result<Reply, Refusal>> =
            requests.into_iter().map(|request| self.answer(request)).collect();
        Handled::Now(Response::message(&header, &replies))
    }
}

/// The fake namenode on a real socket.
pub struct Served {
    pub namenode: Arc<Namenode>,
    pub address: String,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Served {
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0", Arc::default()).await
    }

    pub async fn start_at(address: &str, namenode: Arc<Namenode>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        let service = Arc::clone(&namenode);
        let task = tokio::spawn(serve(listener, service, ServeOptions::default(), stop.clone()));
        Self { namenode, address, stop, task }
    }

    pub async fn stop(self) -> (String, Arc<Namenode>) {
        self.stop.cancel();
        self.task.await.unwrap();
        (self.address, self.namenode)
    }

    pub fn options(&self) -> DatanodeOptions {
        DatanodeOptions {
            namenode: self.address.clone(),
            dram_bytes: 8 << 20,
            start_time_max: Duration::from_secs(30),
            draining_heartbeat: HEARTBEAT,
            // Damage is to be found by what a test does.
            scrub_bytes_per_second: None,
            rejoin_after_notice: Duration::from_millis(50),
            ..DatanodeOptions::default()
        }
    }

    pub async fn datanode(&self) -> DatanodeServer {
        DatanodeServer::start(self.options()).await.unwrap()
    }
}

/// Calls one incarnation of a datanode.
#[derive(Debug, Clone)]
pub struct Caller {
    pub pool: Pool,
    pub address: String,
    pub node: NodeId,
}

impl Caller {
    pub fn new(server: &DatanodeServer) -> Self {
        let pool = Pool::new(PoolOptions::default());
        Self { pool, address: server.address().to_string(), node: server.node() }
    }

    pub async fn call(&self, header: Header, body: &[u8]) -> Result<Frame<Bytes>, CallError> {
        let body = vec![Bytes::copy_from_slice(body)];
        self.pool.call(&self.address, Some(self.node), header, body, soon()).await
    }

    pub async fn write(&self, block: u64, offset: u64, bytes: &[u8]) -> Result<u32, Refusal> {
        self.write_with(write_header(Op::Write, block, 1, offset, bytes), bytes).await
    }

    pub async fn write_with(&self, header: Header, bytes: &[u8]) -> Result<u32, Refusal> {
        refusal(self.call(header, bytes).await).map(|frame| frame.header.length)
    }

    /// Writes, whatever comes of it.
    pub async fn write_with_any(&self, header: Header, bytes: &[u8]) {
        let _ = self.call(header, bytes).await;
    }

    pub async fn read(
        &self,
        block: u64,
        epoch: u32,
        offset: u64,
        length: u32,
    ) -> Result<Bytes, Refusal> {
        let mut header = Header::new(Op::Read, 0);
        (header.block, header.epoch) = (BlockId(block), Epoch(epoch));
        (header.offset, header.length) = (offset, length);
        let frame = refusal(self.call(header, &[]).await)?;
        assert_eq!(frame.header.length, length);
        assert_eq!(frame.header.checksum, crc32c(&frame.body), "the reader sees damaged bytes");
        Ok(frame.body)
    }

    pub async fn order(&self, order: Order) -> OrderReply {
        self.order_in(0, order).await.unwrap()
    }

    /// Gives an order as the leader of a group of namenodes in that term.
    pub async fn order_in(&self, term: u64, order: Order) -> Result<OrderReply, CallError> {
        self.pool.order_in(term, self.node, &self.address, order, soon()).await
    }

    pub async fn held(&self) -> Vec<HeldBlock> {
        match self.order(Order::ListBlocks { after: BlockId(0), limit: 100 }).await {
            OrderReply::Blocks(blocks) => blocks,
            other => panic!("{other:?}"),
        }
    }
}

pub fn write_header(op: Op, block: u64, epoch: u32, offset: u64, bytes: &[u8]) -> Header {
    let mut header = Header::new(op, 0);
    (header.block, header.epoch, header.offset) = (BlockId(block), Epoch(epoch), offset);
    header.length = bytes.len() as u32;
    header.checksum = crc32c(bytes);
    header.flags = Tier::Dram as u16;
    header
}

pub fn refusal<T>(answer: Result<T, CallError>) -> Result<T, Refusal> {
    answer.map_err(|error| match error {
        CallError::Refused(refusal) => refusal,
        other => panic!("no answer: {other}"),
    })
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Waits for a condition, and fails loudly when it does not come true.
pub async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let give_up = soon();
    while !is_true() {
        assert!(Instant::now() < give_up, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The same for a condition that has to be requested.
pub async fn until_answer<F>(what: &str, mut is_true: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let give_up = soon();
    while !is_true().await {
        assert!(Instant::now() < give_up, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(31) >> 3) as u8 ^ seed).collect()
}

fn info(id: NodeId, policy: Policy) -> NodeInfo {
    NodeInfo { policy, ..NodeInfo::joined(id) }
}
