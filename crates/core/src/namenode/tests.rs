//! Behaviour of the whole machine. After every step the catalog must agree with itself, and at the
//! end the replayed log must give the same catalog.

mod absence;
mod adoption;
mod appends;
mod attributes;
mod claims;
mod cluster;
mod concat;
mod copies;
mod damage;
mod events;
mod jobs;
mod leaving;
mod lookups;
mod names;
mod once;
mod reaping;
mod refused;
mod room_waits;
mod runs;
mod slices;
mod writing;

use sanderling_protocol::message::{
    Attributes, BlockLength, Create, Grant, Layout, ObjectStat, Register,
};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::{
    BlockId, ClusterId, Instant, Millis, NodeId, Nonce, OrderReply, Path, Refusal, Reply, Request,
    Tier,
};

use super::{Namenode, NamenodeConfig, Prepared};
use crate::catalog::{Catalog, Command, DatanodeOrder};

const MIB: u32 = 1 << 20;

/// A namenode with a clock, a log and the orders that were not taken yet.
struct Rig {
    namenode: Namenode,
    now: Instant,
    log: Vec<Command>,
    orders: Vec<DatanodeOrder>,
    next_nonce: u64,
    /// The last epoch reserved for each block.
    reserved: std::collections::BTreeMap<BlockId, sanderling_protocol::Epoch>,
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn length(block: BlockId, length: u32) -> BlockLength {
    BlockLength { block, length }
}

impl Rig {
    fn new() -> Self {
        let namenode = Namenode::new(NamenodeConfig::default(), ClusterId(7));
        let now = Instant(1_000_000);
        let reserved = std::collections::BTreeMap::new();
        Self { namenode, now, log: Vec::new(), orders: Vec::new(), next_nonce: 1, reserved }
    }

    /// A rig with that many datanodes of 64 MiB of memory each.
    fn with_nodes(count: u32) -> Self {
        let mut rig = Self::new();
        for number in 1..=count {
            rig.register(&format!("node-{number}")).unwrap();
        }
        rig
    }

    fn nonce(&mut self) -> Nonce {
        self.next_nonce += 1;
        Nonce(self.next_nonce)
    }

    fn register(&mut self, name: &str) -> Result<NodeId, Refusal> {
        let nonce = self.nonce();
        self.register_as(name, &format!("{name}:1"), nonce)
    }

    fn register_as(&mut self, name: &str, address: &str, nonce: Nonce) -> Result<NodeId, Refusal> {
        let request = Register {
            cluster: None,
            nonce,
            name: name.to_owned(),
            address: address.to_owned(),
            http_address: String::new(),
            host: name.to_owned(),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 64 << 20 }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        match self.call(Request::Register(request))? {
            Reply::Registered(registered) => Ok(registered.node),
            other => panic!("{other:?}"),
        }
    }

    fn call(&mut self, request: Request) -> Result<Reply, Refusal> {
        match self.namenode.prepare(self.now, request) {
            Prepared::Answer(answer) => answer,
            Prepared::Log(command) => match self.namenode.refuses(&command) {
                Some(refusal) => Err(refusal),
                None => self.log_and_apply(command),
            },
        }
    }

    fn log_and_apply(&mut self, command: Command) -> Result<Reply, Refusal> {
        let applied = self.namenode.apply(&command);
        self.log.push(command);
        self.orders.extend(applied.orders);
        let problems = self.namenode.catalog().fsck().problems;
        assert_eq!(problems, Vec::<String>::new(), "after {:?}", self.log.last());
        applied.result
    }

    fn pass(&mut self, span: Millis) {
        self.now = self.now + span;
        // The nodes live: only what the log has becomes due.
        self.namenode.resume(self.now);
        for command in self.namenode.tick(self.now) {
            self.log_and_apply(command).unwrap();
        }
    }

    /// Answers every order as a datanode would that holds `length` bytes of every block.
    fn answer_orders(&mut self, length: u32) {
        for order in std::mem::take(&mut self.orders) {
            let reply = match &order.order {
                sanderling_protocol::Order::FenceBlocks { blocks } => {
                    OrderReply::Fenced(vec![length; blocks.len()])
                }
                _ => OrderReply::Done,
            };
            for command in self.namenode.ordered(self.now, &order, Some(reply)) {
                self.log_and_apply(command).unwrap();
            }
        }
    }

    fn create_with(&mut self, request: Create) -> Result<Grant, Refusal> {
        match self.call(Request::Create(request))? {
            Reply::Grant(grant) => Ok(grant),
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, name: &str) -> Result<Grant, Refusal> {
        let request = self.file(name);
        self.create_with(request)
    }

    fn file(&mut self, name: &str) -> Create {
        Create::new(path(name), self.nonce())
    }

    fn seal(&mut self, grant: &Grant, lengths: &[u32]) -> Result<ObjectStat, Refusal> {
        let blocks = grant.blocks.iter().zip(lengths);
        let lengths = blocks.map(|(granted, bytes)| length(granted.block, *bytes)).collect();
        let (object, lease, attributes) = (grant.object, grant.lease, Attributes::none());
        match self.call(Request::Seal { object, lease, lengths, attributes })? {
            Reply::Stat(stat) => Ok(stat),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a sealed file of one block.
    fn put(&mut self, name: &str, bytes: u32) -> Layout {
        let grant = self.create(name).unwrap();
        self.seal(&grant, &[bytes]).unwrap();
        self.layout(name).unwrap()
    }

    fn layout(&mut self, name: &str) -> Result<Layout, Refusal> {
        match self.call(Request::Lookup { path: path(name), offset: 0, bytes: u64::MAX })? {
            Reply::Layout(layout) => Ok(layout),
            other => panic!("{other:?}"),
        }
    }

    fn stat(&mut self, name: &str) -> Result<ObjectStat, Refusal> {
        match self.call(Request::Stat { path: path(name) })? {
            Reply::Stat(stat) => Ok(stat),
            other => panic!("{other:?}"),
        }
    }

    fn names(&mut self, directory: &str) -> Vec<String> {
        let request = Request::List {
            path: path(directory),
            after: String::new(),
            limit: 1000,
            with_attributes: false,
        };
        match self.call(request).unwrap() {
            Reply::Entries { entries, .. } => entries.into_iter().map(|entry| entry.name).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn used_bytes(&self) -> u64 {
        let catalog = self.namenode.catalog();
        let nodes = catalog.node_ids(false).into_iter();
        nodes
            .map(|node| {
                let (free, size) = catalog.node_room(node, Tier::Dram);
                size - free
            })
            .sum()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let config = NamenodeConfig::default();
        let mut replayed = Catalog::new(ClusterId(7), config.lease);
        for command in &self.log {
            let _ = replayed.apply(command, config.heartbeat);
        }
        assert!(replayed == *self.namenode.catalog(), "the replayed log gives another catalog");
    }
}
