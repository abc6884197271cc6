//! A large fleet without faults: the namenode's and the manager's decisions, under virtual time.
//!
//! The seeded world has a handful of nodes and looks for what goes wrong. Here there are thousands,
//! every call succeeds and takes no time, and what is looked at is whether decisions still are
//! right, and what they cost, as the fleet grows.

use sanderling_core::Machine;
use sanderling_core::background::BackgroundConfig;
use sanderling_core::manager::Manager;
use sanderling_core::namenode::{Namenode, NamenodeConfig, Prepared};
use sanderling_core::relocation::{Input, MoveOutput, RelocatorConfig};
use sanderling_core::reserve::Departures;
use sanderling_protocol::message::{
    Affinity, Attributes, BlockLength, Create, Heartbeat, MoveCandidate, Register,
};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{
    ClusterId, Epoch, Instant, Millis, NodeId, NodeInfo, NodeSelector, Nonce, Order, OrderReply,
    Policy, Refusal, Reply, Request, Tier,
};

/// Bytes of every block. The longest block.
pub const BLOCK_BYTES: u32 = 1 << 20;

/// Memory of every node. The 20,000 blocks of a node fill a third, so no placement fails for want
/// of room.
const NODE_BYTES: u64 = 64 << 30;

/// What every link carries in a second: nothing here waits for one. More than a node has in memory.
const LINK_BYTES_PER_SECOND: u64 = 100 << 30;

/// Time between two views of the manager, and of heartbeats. The product's default heartbeat.
const STEP: Millis = Millis(500);

/// The manager.
const HOLDER: Nonce = Nonce(u64::MAX);

/// One namenode, its manager, and nodes that follow orders at once.
#[derive(Debug)]
pub struct Fleet {
    namenode: Namenode,
    manager: Manager,
    now: Instant,
    nodes: Vec<(NodeId, Nonce)>,
    node_bytes: u64,
    files: u64,
}

impl Fleet {
    /// Returns a fleet of so many nodes, each on a machine of its own.
    ///
    /// # Errors
    /// The namenode's refusal of a node: a fault of the machines, since each node is new and the
    /// fleet valid. End the run with it.
    pub fn new(nodes: u32) -> Result<Self, Refusal> {
        Self::of(nodes, NODE_BYTES, Departures::Unset)
    }

    /// Returns a fleet of so many nodes with so much memory, with room for so many departures.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn keeping(nodes: u32, node_bytes: u64, departures: u32) -> Result<Self, Refusal> {
        Self::of(nodes, node_bytes, Departures::Fixed(departures))
    }

    fn of(nodes: u32, node_bytes: u64, departures: Departures) -> Result<Self, Refusal> {
        let config = NamenodeConfig { ramp_up: Millis(0), departures, ..NamenodeConfig::default() };
        let mut background = BackgroundConfig::default();
        background.pace.ramp = Millis(0);
        // Whatever is moved has been written just now.
        background.rebalance.idle_min = Millis(0);
        let mut fleet = Self {
            namenode: Namenode::new(config, ClusterId(1)),
            manager: Manager::new(RelocatorConfig::default(), background),
            now: Instant(1_000_000),
            nodes: Vec::new(),
            node_bytes,
            files: 0,
        };
        if let Some(configure) = fleet.namenode.configure(fleet.now) {
            fleet.namenode.apply(&configure).result?;
        }
        let (name, lease) = ("fleet".to_owned(), Millis::from_secs(7 * 24 * 3600));
        fleet.request(Request::Manage { holder: HOLDER, name, lease })?;
        fleet.add(nodes)?;
        Ok(fleet)
    }

    /// Registers `nodes` more nodes at the namenode, each on a machine of its own.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn add(&mut self, nodes: u32) -> Result<(), Refusal> {
        for _ in 0..nodes {
            let number = self.nodes.len() as u64 + 1;
            let register = Register {
                cluster: None,
                nonce: Nonce(number),
                name: String::new(),
                address: format!("node-{number}:1"),
                http_address: String::new(),
                host: format!("host-{number}"),
                tiers: vec![TierCapacity { tier: Tier::Dram, bytes: self.node_bytes }],
                notice_min: Some(Millis::from_secs(120)),
                egress_bytes_per_second: Some(LINK_BYTES_PER_SECOND),
            };
            if let Reply::Registered(registered) = self.request(Request::Register(register))? {
                self.nodes.push((registered.node, Nonce(number)));
            }
        }
        Ok(())
    }

    /// Chooses homes for so many files of one block, and writes none of them.
    pub fn place(&mut self, files: u64) {
        for file in 0..files {
            let prepared = self.namenode.prepare(self.now, create(u64::MAX - file, None));
            debug_assert!(matches!(prepared, Prepared::Log(_)), "there is room everywhere");
        }
    }

    /// Writes so many files of one block, on the machine of a node if one is given.
    ///
    /// # Errors
    /// The namenode's refusal: write fewer files if it is [`Refusal::Full`]; else end the run with
    /// it.
    pub fn write(&mut self, files: u64, on: Option<usize>) -> Result<(), Refusal> {
        let host = on.map(|node| format!("host-{}", node + 1));
        for _ in 0..files {
            self.files += 1;
            if let Reply::Grant(grant) = self.request(create(self.files, host.clone()))? {
                let length = BLOCK_BYTES;
                let blocks = grant.blocks.iter();
                let lengths = blocks.map(|it| BlockLength { block: it.block, length }).collect();
                let (object, lease, attributes) = (grant.object, grant.lease, Attributes::none());
                self.request(Request::Seal { object, lease, lengths, attributes })?;
            }
        }
        Ok(())
    }

    /// Gives the node with this index a notice of one hour.
    ///
    /// # Errors
    /// The namenode's refusal: end the run with it.
    pub fn notice(&mut self, node: usize) -> Result<(), Refusal> {
        let node = NodeSelector::from(self.nodes[node].0);
        let (deadline_millis, reason) = (3_600_000, "fleet".to_owned());
        self.request(Request::Notice { node, deadline_millis, reason }).map(drop)
    }

    /// Sends the namenode one heartbeat of every node, with an empty load.
    ///
    /// # Errors
    /// The namenode's refusal: end the run with it.
    pub fn beat(&mut self) -> Result<(), Refusal> {
        for (node, nonce) in self.nodes.clone() {
            self.request(Request::Heartbeat(Heartbeat { node, nonce, load: Load::default() }))?;
        }
        Ok(())
    }

    /// Lets half a second pass: heartbeats, what is due, and everything that the manager does.
    ///
    /// # Errors
    /// The namenode's refusal of something that it must not refuse: end the run with it.
    pub fn step(&mut self) -> Result<(), Refusal> {
        self.now = self.now + STEP;
        self.beat()?;
        if self.namenode.deadline().is_some_and(|due| due <= self.now) {
            for command in self.namenode.tick(self.now) {
                self.namenode.apply(&command);
            }
            let probes = self.namenode.to_probe(self.now);
            debug_assert!(probes.is_empty(), "every node has just sent a heartbeat");
        }
        if let Reply::Drains { drains, nodes } = self.request(Request::Drains { holder: HOLDER })? {
            self.manager.handle(self.now, Input::Drains { drains, nodes });
        }
        while let Some(output) = self.manager.poll_output() {
            if let Some(input) = self.perform(output) {
                self.manager.handle(self.now, input);
            }
        }
        Ok(())
    }

    fn perform(&mut self, output: MoveOutput) -> Option<Input> {
        let holder = HOLDER;
        Some(match output {
            MoveOutput::Fetch { node, after, limit } => {
                let asked = self.request(Request::DrainBlocks { holder, node, after, limit });
                Input::Candidates { node, page: page(asked) }
            }
            MoveOutput::Page { call, node, after, limit } => {
                let node = NodeSelector::from(node);
                let page = page(self.request(Request::NodeBlocks { node, after, limit }));
                Input::Page { call, page }
            }
            MoveOutput::Reserve { call, moves } => {
                let epochs = epochs(self.request(Request::Reserve { holder, moves }));
                Input::Reserved { call, epochs }
            }
            MoveOutput::Push { call, moves, .. } => {
                let length = BLOCK_BYTES;
                let outcomes = Some(moves.iter().map(|_| Ok(Pushed { length })).collect());
                Input::Pushed { call, outcomes }
            }
            MoveOutput::Commit { call, moves } => {
                let epochs = epochs(self.request(Request::Commit { holder, moves }));
                Input::Committed { call, epochs }
            }
            MoveOutput::Abandon { call, blocks } => {
                let is_done = self.request(Request::Abandon { holder, blocks }).is_ok();
                Input::Abandoned { call, is_done }
            }
            MoveOutput::DropCopies { call, blocks } => {
                let is_done = self.request(Request::DropCopies { holder, blocks }).is_ok();
                Input::Dropped { call, is_done }
            }
            MoveOutput::Forecast { node, forecast } => {
                // It is of no use here, and refused once the drain has ended.
                let _ = self.request(Request::Forecast { holder, node, forecast });
                return None;
            }
        })
    }

    /// Sends a request to the namenode; its orders to datanodes are done at once.
    fn request(&mut self, request: Request) -> Result<Reply, Refusal> {
        let command = match self.namenode.prepare(self.now, request) {
            Prepared::Answer(answer) => return answer,
            Prepared::Log(command) => command,
        };
        let applied = self.namenode.apply(&command);
        for order in applied.orders {
            let reply = match &order.order {
                Order::FenceBlocks { blocks } => {
                    OrderReply::Fenced(vec![BLOCK_BYTES; blocks.len()])
                }
                _ => OrderReply::Done,
            };
            for command in self.namenode.ordered(self.now, &order, Some(reply)) {
                self.namenode.apply(&command);
            }
        }
        applied.result
    }

    /// Returns the namenode's information about the node with this index; `None` if it has none.
    #[must_use]
    pub fn node(&self, node: usize) -> Option<NodeInfo> {
        self.namenode.node_info(self.nodes[node].0, self.now)
    }

    /// Returns whether a node holds nothing more and may go.
    #[must_use]
    pub fn is_drained(&self, node: usize) -> bool {
        self.node(node).is_some_and(|info| info.policy == Policy::Drained)
    }

    /// Returns the blocks whose homes the nodes that stay are: of the fullest, and on average.
    #[must_use]
    pub fn fill(&self) -> (u64, u64) {
        let nodes = (0..self.nodes.len()).filter_map(|node| self.node(node));
        let staying = nodes.filter(|info| info.policy == Policy::Active).map(|info| info.blocks);
        let (count, sum, most) = staying.fold((0, 0, 0), |(count, sum, most), blocks| {
            (count + 1, sum + blocks, blocks.max(most))
        });
        (most, sum / std::cmp::max(count, 1))
    }

    /// Returns the blocks that moved: off nodes that leave, and between those that stay.
    #[must_use]
    pub fn moved(&self) -> (u64, u64) {
        let background = self.manager.background();
        (self.manager.relocated().moved_blocks, background.rebalanced_blocks)
    }

    /// Returns what contradicts itself in the catalog, and the bytes that were ever lost.
    #[must_use]
    pub fn problems(&self) -> (Vec<String>, u64) {
        let catalog = self.namenode.catalog();
        (catalog.fsck().problems, catalog.report().bytes)
    }
}

fn create(file: u64, host: Option<String>) -> Request {
    let path = format!("/fleet/{}/{file}", file % 1000);
    Request::Create(Create {
        affinity: host.map(Affinity::Host),
        expected_bytes: Some(u64::from(BLOCK_BYTES)),
        ..Create::new(path.parse().expect("letters and digits"), Nonce(0))
    })
}

fn page(asked: Result<Reply, Refusal>) -> Option<(Vec<MoveCandidate>, bool)> {
    match asked {
        Ok(Reply::Candidates { candidates, is_more }) => Some((candidates, is_more)),
        _ => None,
    }
}

fn epochs(asked: Result<Reply, Refusal>) -> Option<Vec<Result<Epoch, Refusal>>> {
    match asked {
        Ok(Reply::Epochs(epochs)) => Some(epochs),
        _ => None,
    }
}
