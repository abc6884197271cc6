//! One datanode as the namenode sees it: it registers, sends heartbeats, reports its blocks and
//! takes orders as a real one does. It holds no bytes: a push is done at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::{Heartbeat, Hello, HelloReply, Register, Role};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_protocol::order::{HeldBlock, PushMove, Pushed};
use sanderling_protocol::{
    BlockId, ClusterId, Header, Millis, NodeId, Nonce, Op, Order, OrderReply, Refusal, Reply,
    Request, Tier,
};
use sanderling_transport::{CallError, Handled, ReplyFault, Response, Service};
use tokio::time::{Instant, MissedTickBehavior};

use super::fleet::FleetShared;
use super::requests::Meta;

/// Room of each node in bytes, 16 TiB: more than any run fills.
const TIER_BYTES: u64 = 1 << 44;

/// What each node reports that its link carries, 100 GiB/s, so that nothing waits for a link.
const LINK_BYTES_PER_SECOND: u64 = 100 << 30;

/// Every node's period, as `NamenodeConfig` has it.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// A datanode without bytes: it registers, sends heartbeats and answers orders.
#[derive(Debug)]
pub(super) struct DatanodeStub {
    nonce: Nonce,
    address: String,
    node: AtomicU32,
    cluster: AtomicU64,
    held: Mutex<BTreeMap<BlockId, HeldBlock>>,
    shared: Arc<FleetShared>,
}

impl DatanodeStub {
    pub(super) fn new(nonce: u64, address: String, shared: Arc<FleetShared>) -> Self {
        let (node, cluster) = (AtomicU32::new(0), AtomicU64::new(0));
        let nonce = Nonce(nonce);
        Self { nonce, address, node, cluster, held: Mutex::default(), shared }
    }

    pub(super) fn id(&self) -> NodeId {
        NodeId(self.node.load(Ordering::Relaxed))
    }

    pub(super) fn held(&self) -> MutexGuard<'_, BTreeMap<BlockId, HeldBlock>> {
        self.held.lock().expect("no holder of the lock panics")
    }

    /// Introduces the node, or introduces it again.
    pub(super) async fn register(&self, meta: &Meta) -> Result<(), CallError> {
        let register = Register {
            cluster: None,
            nonce: self.nonce,
            name: format!("scale-{}", self.nonce.0),
            address: self.address.clone(),
            http_address: String::new(),
            host: format!("host-{}", self.nonce.0),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: TIER_BYTES }],
            notice_min: Some(Millis::from_secs(120)),
            egress_bytes_per_second: Some(LINK_BYTES_PER_SECOND),
        };
        match meta.one(Request::Register(register)).await? {
            Reply::Registered(registered) => {
                self.node.store(registered.node.0, Ordering::Relaxed);
                self.cluster.store(registered.cluster.0, Ordering::Relaxed);
                Ok(())
            }
            other => Err(bad(other)),
        }
    }

    /// Sends heartbeats for ever; after the connection broke it registers again and reports its
    /// blocks, as a datanode does.
    pub(super) async fn live(&self, first: Meta, offset: Duration) {
        let mut ticks = tokio::time::interval_at(Instant::now() + offset, HEARTBEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut meta = Some(first);
        loop {
            ticks.tick().await;
            if meta.as_ref().is_none_or(Meta::is_broken) {
                meta = self.come_back().await.ok();
            }
            if let Some(meta) = &meta {
                let began = Instant::now();
                if self.beat(meta).await.is_ok() {
                    self.shared.beaten(began.elapsed());
                }
            }
        }
    }

    async fn come_back(&self) -> Result<Meta, CallError> {
        let meta = Meta::connect(&self.shared.namenode, Role::Datanode).await?;
        self.register(&meta).await?;
        self.shared.came_back();
        self.report(&meta).await?;
        Ok(meta)
    }

    async fn beat(&self, meta: &Meta) -> Result<(), CallError> {
        let load = Load { blocks: self.held().len() as u64, ..Load::default() };
        let heartbeat = Heartbeat { node: self.id(), nonce: self.nonce, load };
        match meta.one(Request::Heartbeat(heartbeat)).await? {
            Reply::Heartbeat(_) => Ok(()),
            other => Err(bad(other)),
        }
    }

    /// Reports the blocks that the node holds, page by page. Returns how many it reported, and how
    /// many of them the namenode ordered it to drop.
    pub(super) async fn report(&self, meta: &Meta) -> Result<(u64, u64), CallError> {
        let (mut after, mut reported, mut unwanted) = (BlockId(0), 0, 0);
        loop {
            let blocks: Vec<HeldBlock> = {
                let held = self.held();
                let later = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
                held.range(later).take(BLOCKS_PER_PAGE_MAX).map(|(_, block)| *block).collect()
            };
            let Some(last) = blocks.last() else { return Ok((reported, unwanted)) };
            after = last.block;
            reported += blocks.len() as u64;
            match meta.one(Request::BlockReport { node: self.id(), blocks }).await? {
                Reply::Drop { blocks } => unwanted += blocks.len() as u64,
                other => return Err(bad(other)),
            }
        }
    }

    fn order(&self, order: Order) -> OrderReply {
        match order {
            Order::Drop { blocks } => {
                let mut held = self.held();
                for (block, last) in blocks {
                    if held.get(&block).is_some_and(|held| held.epoch <= last) {
                        held.remove(&block);
                    }
                }
                OrderReply::Done
            }
            Order::FenceBlocks { blocks } => {
                let held = self.held();
                let length = |block| held.get(block).map_or(0, |held: &HeldBlock| held.length);
                OrderReply::Fenced(blocks.iter().map(|(block, _)| length(block)).collect())
            }
            Order::Push { moves } => {
                OrderReply::Pushed(moves.into_iter().map(|one| self.push(&one)).collect())
            }
            Order::ListBlocks { .. } => OrderReply::Blocks(self.held().values().copied().collect()),
            Order::Upload(_)
            | Order::ChangeStore { .. }
            | Order::AbortUploads { .. }
            | Order::Restore(_)
            | Order::TakeStore { .. }
            | Order::ListStore { .. } => {
                let why = "it reaches no store".to_owned();
                OrderReply::Refused(Refusal::BadRequest { why })
            }
            // It has no bytes to look at.
            Order::Verify { .. } => OrderReply::Verified(Vec::new()),
            Order::FenceNode { .. } | Order::UnfenceNode | Order::Adopt { .. } => OrderReply::Done,
        }
    }

    fn push(&self, one: &PushMove) -> Result<Pushed, Refusal> {
        let unknown = Refusal::UnknownBlock { block: one.block };
        let block = *self.held().get(&one.block).ok_or(unknown)?;
        let (epoch, tier) = (one.to_epoch, one.tier);
        if let Some(target) = self.shared.stub(one.to) {
            target.held().insert(one.block, HeldBlock { epoch, tier, ..block });
        }
        Ok(Pushed { length: block.length })
    }
}

impl Service for DatanodeStub {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let here = self.id();
        if let Some(asked) = hello.node.filter(|asked| *asked != here) {
            return Err(Refusal::WrongNode { here, asked });
        }
        let cluster = Some(ClusterId(self.cluster.load(Ordering::Relaxed)));
        Ok(HelloReply { role: Role::Datanode, cluster, node: Some(here) })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        let order = decode_body::<Order>(&body).map(|order| self.order(order));
        Handled::Now(match order {
            Ok(reply) if header.op == Op::Order => Response::message(&header, &reply),
            Ok(_) => Response::refused(&header, &Refusal::UnknownOp { op: header.op as u8 }),
            Err(refusal) => Response::refused(&header, &refusal),
        })
    }
}

fn bad(reply: Reply) -> CallError {
    let fault = ReplyFault::Unexpected(Box::new(reply));
    CallError::BadReply { address: String::new(), fault }
}
