//! One noticed node, block by block.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::{
    DrainWork, MoveCandidate, MoveCommit, MoveProposal, MovePurpose,
};
use sanderling_protocol::node::Availability;
use sanderling_protocol::{
    BlockId, Epoch, Header, NodeId, NodeInfo, Op, Order, OrderReply, Policy, Refusal, Reply,
    Request,
};
use tokio::time::Instant;
use tracing::debug;

use super::RelocationContext;

/// The relocation of one node's blocks.
#[derive(Debug)]
pub(super) struct Relocation {
    shared: RelocationContext,
    node: NodeId,
    address: String,
    /// When its notice was known to the namenode, at the latest.
    noticed_at: Instant,
}

/// A new location.
#[derive(Debug)]
struct NewLocation {
    node: NodeId,
    address: String,
    epoch: Epoch,
}

impl Relocation {
    pub(super) fn new(shared: RelocationContext, work: &DrainWork, noticed_at: Instant) -> Self {
        Self { shared, node: work.node, address: work.address.clone(), noticed_at }
    }

    /// Moves every block of the map once and returns the node. What failed is still the node's, and
    /// is tried again by the next relocation.
    pub(super) async fn run(mut self) -> NodeId {
        let mut after = BlockId(0);
        while let Some((candidates, is_more)) = self.page(after).await {
            for candidate in &candidates {
                after = candidate.block;
                if self.relocate(candidate).await.is_none() {
                    debug!(block = %after, node = %self.node, "a block was not relocated");
                }
            }
            if !is_more {
                break;
            }
        }
        self.node
    }

    async fn page(&self, after: BlockId) -> Option<(Vec<MoveCandidate>, bool)> {
        let limit = u32::try_from(BLOCKS_PER_PAGE_MAX).unwrap_or(u32::MAX);
        let (holder, node) = (self.shared.caller.holder, self.node);
        let request = Request::DrainBlocks { holder, node, after, limit };
        match self.shared.caller.send(request).await {
            Ok(Reply::Candidates { candidates, is_more }) => Some((candidates, is_more)),
            _ => None,
        }
    }

    /// Does steps 1 to 3 of figure 1 for one block; `None` when one of them failed.
    async fn relocate(&mut self, candidate: &MoveCandidate) -> Option<()> {
        let length =
            if candidate.is_open { self.final_length(candidate).await? } else { candidate.length };
        let bytes = if length > 0 { Some(self.read(candidate, length).await?) } else { None };
        let place = self.reserve(candidate).await?;
        if let Some(bytes) = bytes {
            self.store(candidate, &place, bytes).await?;
        }
        self.commit(candidate, &place, length).await
    }

    /// Waits until the node takes no writes any more, and returns the block's length.
    async fn final_length(&mut self, candidate: &MoveCandidate) -> Option<u32> {
        let (node, since) = (self.node, self.noticed_at);
        let learned = self.shared.views.wait_for(|view| view.has_learned(node, since));
        learned.await.ok()?;
        let caller = &self.shared.caller;
        let order = Order::FenceBlocks { blocks: vec![(candidate.block, candidate.epoch)] };
        let deadline = Instant::now() + caller.within;
        match caller.pool.order(node, &self.address, order, deadline).await {
            Ok(OrderReply::Fenced(lengths)) => lengths.first().copied(),
            _ => None,
        }
    }

    /// Reads a block from its old location.
    async fn read(&self, candidate: &MoveCandidate, length: u32) -> Option<Bytes> {
        let caller = &self.shared.caller;
        let header = header(Op::Read, candidate.block, candidate.epoch, length);
        let deadline = Instant::now() + caller.within;
        let read = caller.pool.call(&self.address, Some(self.node), header, Vec::new(), deadline);
        let frame = read.await.ok()?;
        let is_whole = frame.body.len() == length as usize;
        (is_whole && crc32c(&frame.body) == frame.header.checksum).then_some(frame.body)
    }

    /// Requests a new location: the next node in the round that takes the block.
    async fn reserve(&self, candidate: &MoveCandidate) -> Option<NewLocation> {
        let nodes = Arc::clone(&self.shared.views.borrow().nodes);
        let mut targets: Vec<&NodeInfo> = nodes
            .iter()
            .filter(|info| info.policy == Policy::Active && info.availability == Availability::Up)
            .collect();
        if targets.is_empty() {
            return None;
        }
        let first = self.shared.round.fetch_add(1, Ordering::Relaxed) as usize % targets.len();
        targets.rotate_left(first);
        for target in targets {
            let proposal = MoveProposal {
                block: candidate.block,
                from_epoch: candidate.epoch,
                to: target.id,
                tier: candidate.tier,
                purpose: MovePurpose::Relocate,
            };
            let (holder, moves) = (self.shared.caller.holder, vec![proposal]);
            match self.epoch(Request::Reserve { holder, moves }).await? {
                Ok(epoch) => {
                    return Some(NewLocation {
                        node: target.id,
                        address: target.address.clone(),
                        epoch,
                    });
                }
                // This one cannot take it: the next.
                Err(Refusal::NodeFull { .. } | Refusal::WrongState { .. }) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Writes a block to its new location.
    async fn store(
        &self,
        candidate: &MoveCandidate,
        place: &NewLocation,
        bytes: Bytes,
    ) -> Option<()> {
        let caller = &self.shared.caller;
        let length = u32::try_from(bytes.len()).ok()?;
        let mut header = header(Op::Store, candidate.block, place.epoch, length);
        header.flags = candidate.tier as u16;
        header.checksum = crc32c(&bytes);
        let deadline = Instant::now() + caller.within;
        let to = Some(place.node);
        let stored = caller.pool.call(&place.address, to, header, vec![bytes], deadline);
        stored.await.ok().map(|_| ())
    }

    /// Reports the new location to the namenode.
    async fn commit(
        &self,
        candidate: &MoveCandidate,
        place: &NewLocation,
        length: u32,
    ) -> Option<()> {
        let commit = MoveCommit {
            block: candidate.block,
            from_epoch: candidate.epoch,
            to_epoch: place.epoch,
            to: place.node,
            length,
        };
        let (holder, moves) = (self.shared.caller.holder, vec![commit]);
        self.epoch(Request::Commit { holder, moves }).await?.ok().map(|_| ())
    }

    /// Requests one move's epoch; `None` without an answer.
    async fn epoch(&self, request: Request) -> Option<Result<Epoch, Refusal>> {
        match self.shared.caller.send(request).await {
            Ok(Reply::Epochs(mut epochs)) => epochs.pop(),
            _ => None,
        }
    }
}

fn header(op: Op, block: BlockId, epoch: Epoch, length: u32) -> Header {
    let mut header = Header::new(op, 0);
    header.block = block;
    header.epoch = epoch;
    header.length = length;
    header
}
