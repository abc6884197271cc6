//! A manager, a namenode over TCP, and datanodes that only pretend to hold bytes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sanderling_manager::{ManagerOptions, ManagerServer};
use sanderling_namenode::{NamenodeOptions, NamenodeServer};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{
    Attributes, BlockLength, Create, DurableRequest, GrantedBlock, Heartbeat, Hello, HelloReply,
    MakeDurable, Register, Role,
};
use sanderling_protocol::node::{Load, Policy, TierCapacity};
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{
    BlockId, Event, EventKind, Header, Millis, NodeId, NodeInfo, Nonce, Op, Order, OrderReply,
    Refusal, Reply, Request, Tier,
};
use sanderling_transport::{Handled, Pool, PoolOptions, Response, ServeOptions, Service};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const WITHIN: Duration = Duration::from_secs(60);

/// Lengths of blocks by node and block, for all datanodes of a test.
type Disks = Arc<Mutex<BTreeMap<(NodeId, BlockId), u32>>>;

/// A datanode that holds lengths instead of bytes.
struct Fake {
    node: NodeId,
    disks: Disks,
    /// Pushes to these nodes are refused.
    refusing: Arc<Mutex<Vec<NodeId>>>,
    /// Orders to a store, which does not answer.
    uploads: Arc<AtomicUsize>,
    push_time: Duration,
}

impl Fake {
    fn push(&self, one: &PushMove) -> Result<Pushed, Refusal> {
        if self.refusing.lock().unwrap().contains(&one.to) {
            return Err(Refusal::NodeFull { tier: "dram".to_owned(), bytes: 1 });
        }
        let mut disks = self.disks.lock().unwrap();
        let length = disks.get(&(self.node, one.block)).copied().unwrap_or(0);
        disks.insert((one.to, one.block), length);
        Ok(Pushed { length })
    }
}

impl Service for Fake {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        match hello.node {
            Some(asked) if asked != self.node => Err(Refusal::WrongNode { here: self.node, asked }),
            _ => Ok(HelloReply { role: Role::Datanode, cluster: None, node: Some(self.node) }),
        }
    }

    fn handle(self: &Arc<Self>, header: Header, body: bytes::Bytes) -> Handled {
        assert_eq!(header.op, Op::Order);
        let this = Arc::clone(self);
        Handled::Later(Box::pin(async move {
            let reply = match decode_body::<Order>(&body).unwrap() {
                Order::Push { moves } => {
                    tokio::time::sleep(this.push_time).await;
                    OrderReply::Pushed(moves.iter().map(|one| this.push(one)).collect())
                }
                Order::Upload(_) => {
                    this.uploads.fetch_add(1, Ordering::Relaxed);
                    std::future::pending().await
                }
                _ => OrderReply::Done,
            };
            Response { header: header.reply(), body: vec![encode_body(&reply).into()] }
        }))
    }
}

struct Cluster {
    namenode: NamenodeServer,
    address: String,
    pool: Pool,
    disks: Disks,
    refusing: Arc<Mutex<Vec<NodeId>>>,
    uploads: Arc<AtomicUsize>,
    stop: CancellationToken,
}

async fn namenode(directory: &FilePath, listen: &str) -> NamenodeServer {
    let options = NamenodeOptions {
        listen: listen.to_owned(),
        http_listen: None,
        directory: directory.to_owned(),
        ..NamenodeOptions::default()
    };
    let deadline = Instant::now() + WITHIN;
    loop {
        match NamenodeServer::start(options.clone()).await {
            Ok(server) => return server,
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

impl Cluster {
    async fn start(directory: &FilePath) -> Self {
        let namenode = namenode(directory, "127.0.0.1:0").await;
        Self {
            address: namenode.address().to_string(),
            namenode,
            pool: Pool::new(PoolOptions::default()),
            disks: Disks::default(),
            refusing: Arc::default(),
            uploads: Arc::default(),
            stop: CancellationToken::new(),
        }
    }

    async fn call(&self, request: Request) -> Result<Reply, Refusal> {
        let deadline = Instant::now() + WITHIN;
        loop {
            let asked = self.pool.meta(&self.address, vec![request.clone()], deadline).await;
            match asked {
                Ok(mut answers) => return answers.pop().unwrap(),
                Err(error) if Instant::now() > deadline => panic!("{error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn datanode(&self, nonce: u64, push_time: Duration) -> NodeId {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let register = Register {
            cluster: None,
            nonce: Nonce(nonce),
            name: format!("node-{nonce}"),
            address: listener.local_addr().unwrap().to_string(),
            http_address: String::new(),
            host: String::new(),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 30 }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        let reply = self.call(Request::Register(register)).await.unwrap();
        let Reply::Registered(registered) = reply else { panic!("{reply:?}") };
        let node = registered.node;
        let (disks, refusing) = (Arc::clone(&self.disks), Arc::clone(&self.refusing));
        let uploads = Arc::clone(&self.uploads);
        let service = Arc::new(Fake { node, disks, refusing, uploads, push_time });
        let stop = self.stop.clone();
        tokio::spawn(sanderling_transport::serve(
            listener,
            service,
            ServeOptions::default(),
            stop.clone(),
        ));
        let (pool, address) = (self.pool.clone(), self.address.clone());
        tokio::spawn(async move {
            while !stop.is_cancelled() {
                let (nonce, load) = (Nonce(nonce), Load::default());
                let beat = Request::Heartbeat(Heartbeat { node, nonce, load });
                let _ = pool.meta(&address, vec![beat], Instant::now() + WITHIN).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        node
    }

    /// Writes files of `blocks` blocks and a thousand bytes each.
    async fn files(&self, names: std::ops::Range<u32>, blocks: u32) {
        for name in names {
            self.file(&format!("/f{name}"), blocks).await;
        }
    }

    async fn file(&self, path: &str, blocks: u32) {
        let expected_bytes = Some(u64::from(blocks) << 20);
        let create = Create { expected_bytes, ..Create::new(path.parse().unwrap(), Nonce(7)) };
        let reply = self.call(Request::Create(create)).await.unwrap();
        let Reply::Grant(grant) = reply else { panic!("{reply:?}") };
        let write = |granted: &GrantedBlock| {
            let mut disks = self.disks.lock().unwrap();
            disks.insert((granted.node, granted.block), 1000);
            BlockLength { block: granted.block, length: 1000 }
        };
        let lengths = grant.blocks.iter().map(write).collect();
        let (object, lease) = (grant.object, grant.lease);
        let attributes = Attributes::none();
        self.call(Request::Seal { object, lease, lengths, attributes }).await.unwrap();
    }

    /// Makes a directory durable, whose store one node reaches.
    async fn durable(&self, path: &str, node: NodeId, nonce: Nonce) {
        let (path, store) = (path.parse().unwrap(), "store".to_owned());
        let stores = vec![store.clone()];
        let serve = DurableRequest::ServeStores { node, nonce, stores };
        self.call(Request::Durable(Box::new(serve))).await.unwrap();
        let backlog_bytes_max = 1 << 30;
        let make = MakeDurable { path, store, parents: false, backlog_bytes_max, adopt: false };
        self.call(Request::Durable(Box::new(DurableRequest::Make(make)))).await.unwrap();
    }

    async fn notice(&self, node: NodeId, deadline_millis: i64) {
        let request =
            Request::Notice { node: node.into(), deadline_millis, reason: "test".to_owned() };
        self.call(request).await.unwrap();
    }

    async fn node(&self, node: NodeId) -> NodeInfo {
        let Reply::Nodes(nodes) = self.call(Request::Nodes { all: true }).await.unwrap() else {
            panic!()
        };
        nodes.into_iter().find(|info| info.id == node).unwrap()
    }

    async fn wait_for(&self, node: NodeId, policy: Policy) -> NodeInfo {
        let deadline = Instant::now() + WITHIN;
        loop {
            let info = self.node(node).await;
            if info.policy == policy {
                return info;
            }
            assert!(Instant::now() < deadline, "still {info:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Every block of the files is where the catalog has it, whole.
    async fn check(&self, names: std::ops::Range<u32>) {
        for name in names {
            let path = format!("/f{name}").parse().unwrap();
            let request = Request::Lookup { path, offset: 0, bytes: u64::MAX };
            let Reply::Layout(layout) = self.call(request).await.unwrap() else { panic!() };
            let disks = self.disks.lock().unwrap();
            for block in layout.blocks {
                let home = block.home.expect("nothing is lost");
                assert_eq!(disks.get(&(home, block.block)), Some(&block.length));
            }
        }
    }

    fn manager(&self, name: &str) -> ManagerServer {
        self.manager_for(name, Duration::from_millis(600))
    }

    fn manager_for(&self, name: &str, lease: Duration) -> ManagerServer {
        ManagerServer::start(self.options(name, lease))
    }

    fn options(&self, name: &str, lease: Duration) -> ManagerOptions {
        ManagerOptions {
            namenode: self.address.clone(),
            name: name.to_owned(),
            lease,
            ..ManagerOptions::default()
        }
    }

    /// Waits until a manager of that name leads.
    async fn wait_for_manager(&self, wanted: &str) {
        let deadline = Instant::now() + WITHIN;
        loop {
            let request = Request::Events { after: 0, limit: 1000, wait: Millis(0) };
            let Reply::Events(events) = self.call(request).await.unwrap() else { panic!() };
            let is_it = |event: &Event| match &event.kind {
                EventKind::ManagerChanged { name } => name == wanted,
                _ => false,
            };
            if events.iter().any(is_it) {
                return;
            }
            assert!(Instant::now() < deadline, "{wanted} does not act");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

const QUICK: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread")]
async fn noticed_node_is_drained_and_nothing_is_lost() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path()).await;
    let first = cluster.datanode(1, QUICK).await;
    cluster.files(0..40, 8).await;
    cluster.datanode(2, QUICK).await;
    cluster.datanode(3, QUICK).await;
    let manager = cluster.manager("one");
    cluster.notice(first, 200_000).await;
    let info = cluster.wait_for(first, Policy::Drained).await;
    let drain = info.drain.unwrap();
    assert_eq!((drain.moved_blocks, drain.lost_blocks), (320, 0));
    cluster.check(0..40).await;
    manager.stop().await;
    cluster.namenode.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusing_target_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path()).await;
    let first = cluster.datanode(1, QUICK).await;
    cluster.files(0..10, 4).await;
    let second = cluster.datanode(2, QUICK).await;
    let third = cluster.datanode(3, QUICK).await;
    cluster.refusing.lock().unwrap().push(second);
    let _manager = cluster.manager("one");
    cluster.notice(first, 200_000).await;
    cluster.wait_for(first, Policy::Drained).await;
    cluster.check(0..10).await;
    assert_eq!(cluster.node(third).await.blocks, 40);
    cluster.namenode.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_manager_goes_on_when_the_first_one_dies() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path()).await;
    let first = cluster.datanode(1, Duration::from_millis(100)).await;
    cluster.files(0..100, 16).await;
    cluster.datanode(2, QUICK).await;
    let manager = cluster.manager("one");
    let standby = cluster.manager("two");
    cluster.notice(first, 200_000).await;
    let deadline = Instant::now() + WITHIN;
    while cluster.node(first).await.drain.unwrap().moved_blocks == 0 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(manager);
    let info = cluster.wait_for(first, Policy::Drained).await;
    assert_eq!(info.drain.unwrap().moved_blocks, 1600);
    cluster.check(0..100).await;
    standby.stop().await;
    cluster.namenode.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_that_stops_gives_its_right_back() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path()).await;
    // This test could not wait for a right that ends by itself.
    let first = cluster.manager_for("one", Duration::from_secs(600));
    cluster.wait_for_manager("one").await;
    let second = cluster.manager("two");
    first.stop().await;
    cluster.wait_for_manager("two").await;
    second.stop().await;
    cluster.namenode.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_goes_on_when_the_namenode_restarts() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path()).await;
    let first = cluster.datanode(1, Duration::from_millis(50)).await;
    cluster.files(0..60, 16).await;
    cluster.datanode(2, QUICK).await;
    let manager = cluster.manager("one");
    cluster.notice(first, 200_000).await;
    let deadline = Instant::now() + WITHIN;
    while cluster.node(first).await.drain.unwrap().moved_blocks == 0 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.namenode.stop().await;
    cluster.namenode = namenode(place.path(), &cluster.address).await;
    let info = cluster.wait_for(first, Policy::Drained).await;
    assert_eq!(info.drain.unwrap().moved_blocks, 960);
    cluster.check(0..60).await;
    manager.stop().await;
    cluster.namenode.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_nowhere_to_go_is_declared_lost_at_the_deadline_and_not_before() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path()).await;
    let first = cluster.datanode(1, QUICK).await;
    cluster.files(0..2, 4).await;
    let manager = cluster.manager("one");
    let noticed = Instant::now();
    cluster.notice(first, 700).await;
    let info = cluster.wait_for(first, Policy::Gone).await;
    assert!(noticed.elapsed() >= Duration::from_millis(690));
    assert_eq!(info.drain.unwrap().lost_blocks, 8);
    manager.stop().await;
    cluster.namenode.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decommission_is_the_same_without_a_deadline() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path()).await;
    let first = cluster.datanode(1, QUICK).await;
    cluster.files(0..10, 4).await;
    cluster.datanode(2, QUICK).await;
    let _manager = cluster.manager("one");
    let reason = "smaller fleet".to_owned();
    cluster.call(Request::Decommission { node: first.into(), reason }).await.unwrap();
    let info = cluster.wait_for(first, Policy::Drained).await;
    assert_eq!(info.deadline_in, None::<Millis>);
    cluster.check(0..10).await;
    cluster.namenode.stop().await;
}

/// A store that does not answer keeps each order for it under way for a minute.
#[tokio::test(flavor = "multi_thread")]
async fn orders_to_a_store_that_hangs_take_no_place_from_a_drain() {
    const ORDERS: usize = 4;
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path()).await;
    let first = cluster.datanode(1, QUICK).await;
    cluster.files(0..10, 4).await;
    let second = cluster.datanode(2, QUICK).await;
    cluster.durable("/durable", second, Nonce(2)).await;
    for name in 0..ORDERS {
        cluster.file(&format!("/durable/{name}"), 1).await;
    }
    let options = cluster.options("one", Duration::from_millis(600));
    let manager = ManagerServer::start(ManagerOptions { calls_max: ORDERS, ..options });
    let deadline = Instant::now() + WITHIN;
    while cluster.uploads.load(Ordering::Relaxed) < ORDERS {
        assert!(Instant::now() < deadline, "the store gets too few orders");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.notice(first, 200_000).await;
    cluster.wait_for(first, Policy::Drained).await;
    cluster.check(0..10).await;
    assert_eq!(cluster.uploads.load(Ordering::Relaxed), ORDERS, "all of them are under way");
    manager.stop().await;
    cluster.namenode.stop().await;
}
