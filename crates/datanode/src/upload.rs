//! Objects on their way to the stores of durable directories.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use sanderling_core::datanode::pieces;
use sanderling_core::durable::{
    PART_BYTES_MIN, StoreOrder, UPLOAD_ENDS_WITHIN, UPLOAD_WITHIN, confirmed, to_confirm,
    upload_ends_within,
};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::limits::{BLOCK_BYTES_MAX, STORE_CHANGES_PER_ORDER_MAX};
use sanderling_protocol::message::{DurableLoss, DurableReply, DurableRequest, LostBlock};
use sanderling_protocol::order::{StoreChange, UploadBlock, UploadOrder, UploadPart};
use sanderling_protocol::{
    ClusterId, Header, Millis, NodeId, ObjectId, Op, OrderReply, Refusal, Reply, Request, Tier,
};
use sanderling_transport::{CallError, Pool, Timeouts};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::durable::{DurableStores, JoinablePart, StoreOwner};
use crate::membership::Membership;

/// Blocks of one part that are read at once, and blocks of all parts that are read from one home.
/// All of the shortest part: more would hold blocks of a larger part in memory before they are
/// sent, and wait in front of the home's link.
const READS_AT_ONCE: usize = (PART_BYTES_MIN / BLOCK_BYTES_MAX as u64) as usize;

/// Longest time to read or store one block that nothing holds back. The default deadline of a
/// client's call: longer than a namenode needs to find that a silent node is dead.
const READ_MAX: Duration = Duration::from_secs(10);

/// Longest time to read a block while its home reports that it holds it back: readers go first
/// there. What is read at once takes 32 s where they leave uploads the least (`UPLOADS_MIN` of the
/// core's `link_queue`). The manager waits 64 s for an order.
const HELD_READ_MAX: Duration = Duration::from_secs(40);

/// Longest wait for the end of an upload whose order has failed; one that takes longer ends later.
/// The refusal of an order that was given up is to arrive while the manager waits for it, with a
/// second for its way.
const END_TIMEOUT: Millis = Millis(3_000);

const _: () = assert!(UPLOAD_ENDS_WITHIN.0 + END_TIMEOUT.0 < UPLOAD_WITHIN.0);

/// After this time no further block of an order is read back: the answer is to arrive while the
/// manager waits for it, because blocks that it does not report count nowhere. One more block may
/// take 20 s to fetch (`STORE_OPERATION_MAX`) and twice [`READ_MAX`] to store, 60 s in all; the
/// manager waits 64 s.
const RESTORE_MAX: Duration = Duration::from_secs(20);

/// When the places of blocks that are not where they were may be looked up again. Longer than a
/// move takes from its push to its commit, mostly. The manager's own pause after a failure is
/// longer and applies. Chosen, not measured.
const LOOK_UP_RETRY_INTERVAL: Millis = Millis(100);

/// Sends objects to stores, whose names and contents the manager orders.
#[derive(Debug)]
pub(crate) struct Uploader {
    stores: Arc<DurableStores>,
    membership: Arc<Membership>,
    pool: Pool,
    /// Where this node serves blocks.
    address: String,
    /// Places of reads at each home from which some are under way.
    homes: Mutex<BTreeMap<NodeId, Arc<Semaphore>>>,
}

impl Uploader {
    pub(crate) fn new(
        stores: Arc<DurableStores>,
        membership: Arc<Membership>,
        pool: Pool,
        address: String,
    ) -> Self {
        Self { stores, membership, pool, address, homes: Mutex::default() }
    }

    fn cluster(&self) -> ClusterId {
        self.membership.identity().cluster.unwrap_or_default()
    }

    /// Sends parts of an object.
    ///
    /// # Errors
    /// [`Refusal::TierFailed`]: the store failed. [`Refusal::RetryAfter`]: a block could not be
    /// read at the place that the order names; look its place up again.
    /// [`Refusal::DeadlinePassed`]: it takes longer than the manager waits for it.
    pub(crate) async fn upload(&self, order: UploadOrder) -> Result<OrderReply, Refusal> {
        let deadline = Instant::now() + Duration::from(upload_ends_within(&order.parts));
        let UploadOrder { directory, may_claim, store, key, upload, parts } = order;
        let owner = StoreOwner { cluster: self.cluster(), directory, may_claim };
        let (upload, begun) = match upload {
            Some(upload) => (upload, None),
            None => {
                let upload = self.stores.begin(owner, &store, &key).await?;
                let begun = self.stores.begun(owner, &store, &key, &upload);
                (upload, Some(begun))
            }
        };
        let sending = timeout_at(deadline, self.send_parts(&store, (&key, &upload), parts));
        let sent = match sending.await {
            // A process that has paused may have sent all of it after the manager's wait.
            Ok(sent) if Instant::now() < deadline => sent,
            _ => Err(Refusal::DeadlinePassed { ago: Millis(0) }),
        };
        match sent {
            Ok(parts) => {
                if let Some(begun) = begun {
                    begun.done();
                }
                Ok(OrderReply::Uploaded { upload, parts })
            }
            Err(refusal) => {
                // The manager never learns of it, so no other node can end it.
                if let Some(begun) = begun {
                    let ending = self.stores.abort(owner, &store, &key, &upload);
                    if let Ok(Ok(())) = timeout(END_TIMEOUT.into(), ending).await {
                        begun.done();
                    }
                }
                Err(refusal)
            }
        }
    }

    /// Sends parts that follow each other. They are fewer in the store where several go as one. If
    /// several that went as one fail, each goes alone, under the same numbers from the first on.
    async fn send_parts(
        &self,
        store: &str,
        names: (&str, &str),
        parts: Vec<UploadPart>,
    ) -> Result<Vec<String>, Refusal> {
        let mut number = parts.first().map_or(0, |part| part.number);
        let _order = self.stores.order(parts.iter().map(length_of).sum());
        let (mut rest, mut sent) = (VecDeque::from(parts), Vec::new());
        // How many of the rest go alone, because they failed as one.
        let mut alone = 0_usize;
        while !rest.is_empty() {
            let mut lengths = joinable(&rest);
            if alone > 0 {
                lengths.truncate(1);
            }
            let joined = self.stores.joined(store, &lengths);
            let Some(part) = join(rest.range(..joined.count).cloned()) else { break };
            let is_alone = joined.count == 1 && !self.stores.takes_pieces(store);
            let length = lengths.first().copied().filter(|_| is_alone);
            let _memory = self.stores.long_part(length.unwrap_or_default()).await;
            match self.send_part(store, names, number, part).await? {
                Ok(taken) => {
                    sent.push(taken);
                    rest.drain(..joined.count);
                    alone = alone.saturating_sub(1);
                    number += 1;
                }
                // A store may take no body above some length: that fails no upload.
                Err(refusal) if joined.count > 1 => {
                    tracing::debug!(store, parts = joined.count, %refusal, "sent one by one");
                    alone = joined.count;
                }
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(sent)
    }

    /// Reads a part and sends it: piece by piece to a store that takes pieces. Returns what the
    /// store answered.
    ///
    /// # Errors
    /// The refusal of a block that could not be read.
    async fn send_part(
        &self,
        store: &str,
        names: (&str, &str),
        number: u32,
        part: UploadPart,
    ) -> Result<Result<String, Refusal>, Refusal> {
        let parts = if self.stores.takes_pieces(store) { cut(part) } else { vec![part] };
        let mut sent = Ok(String::new());
        for piece in parts {
            let place = (number, piece.offset);
            let bytes = self.read_part(piece).await?;
            sent = self.stores.send(store, names, place, bytes).await;
            if sent.is_err() {
                break;
            }
        }
        Ok(sent)
    }

    async fn read_part(&self, part: UploadPart) -> Result<Vec<Bytes>, Refusal> {
        let UploadPart { inline, blocks, .. } = part;
        let reads = blocks.into_iter().map(|block| self.read_block(block));
        let read = futures_util::stream::iter(reads).buffered(READS_AT_ONCE);
        let mut bytes: Vec<Bytes> = read.try_collect().await?;
        if !inline.is_empty() {
            bytes.insert(0, Bytes::from(inline));
        }
        Ok(bytes)
    }

    /// Returns the places of reads from a node.
    fn places_at(&self, node: NodeId) -> Arc<Semaphore> {
        let mut homes = self.homes.lock();
        // No read has or waits for one of the others.
        homes.retain(|_, places| Arc::strong_count(places) > 1);
        let new = || Arc::new(Semaphore::new(READS_AT_ONCE));
        Arc::clone(homes.entry(node).or_insert_with(new))
    }

    /// Reads a block at its home, which may be this node, and verifies it.
    async fn read_block(&self, block: UploadBlock) -> Result<Bytes, Refusal> {
        let UploadBlock { block, epoch, length, node, address } = block;
        let mut header = Header::new(Op::Read, 0);
        (header.block, header.epoch, header.length) = (block, epoch, length);
        let places = self.places_at(node);
        let _place = places.acquire().await.expect("the semaphore is never closed");
        let (deadline, idle) = (Instant::now() + HELD_READ_MAX, Some(READ_MAX));
        let timeouts = Timeouts { deadline, idle };
        let failed = |why: String| Refusal::RetryAfter { after: LOOK_UP_RETRY_INTERVAL, why };
        let frame = match self.pool.call(&address, Some(node), header, vec![], timeouts).await {
            Ok(frame) => frame,
            Err(CallError::Refused(refusal)) => {
                return Err(failed(format!("block {block} at node {node}: {refusal}")));
            }
            Err(error) => return Err(failed(format!("node {node} at {address}: {error}"))),
        };
        if frame.body.len() != length as usize {
            let why = format!("node {node} gave {} of {length} bytes", frame.body.len());
            return Err(failed(format!("block {block}: {why}")));
        }
        let (expected, computed) = (frame.header.checksum, crc32c(&frame.body));
        if computed != expected {
            return Err(Refusal::ChecksumMismatch { block, expected, computed });
        }
        Ok(frame.body)
    }

    /// Makes changes of a store visible, one after the other, until one fails.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`]: nothing was changed.
    pub(crate) async fn change(
        &self,
        directory: ObjectId,
        store: &str,
        changes: &[StoreChange],
        received: Instant,
    ) -> Result<OrderReply, Refusal> {
        if changes.len() > STORE_CHANGES_PER_ORDER_MAX {
            let (value, limit) = (changes.len() as u64, STORE_CHANGES_PER_ORDER_MAX as u64);
            return Err(Refusal::TooLarge { what: "changes of a store".to_owned(), value, limit });
        }
        let (mut done, clock) = (0, self.membership.clock());
        let order = StoreOrder::new(clock.at(received));
        for change in changes {
            let owner = StoreOwner { cluster: self.cluster(), directory, may_claim: false };
            let may_begin = match order.may_begin(clock.now()) {
                Ok(()) => self.may_change(directory, change).await,
                Err(refusal) => Err(refusal),
            };
            let made = match may_begin {
                Ok(()) => self.stores.change(owner, store, change).await,
                Err(refusal) => Err(refusal),
            };
            if let Err(failure) = made {
                return Ok(OrderReply::StoreChanged { done, failure: Some(failure) });
            }
            done += 1;
        }
        Ok(OrderReply::StoreChanged { done, failure: None })
    }

    /// Refuses a removal that does not wait any more: the order is late, another node has done it,
    /// and the name may have another object by now.
    async fn may_change(&self, directory: ObjectId, change: &StoreChange) -> Result<(), Refusal> {
        let Some(number) = to_confirm(change) else { return Ok(()) };
        let request = DurableRequest::Waits { directory, number };
        self.still_waits(request, "the removal still waits").await
    }

    /// Refuses what the namenode does not confirm in time.
    async fn still_waits(&self, request: DurableRequest, what: &str) -> Result<(), Refusal> {
        let began = Instant::now();
        let answer = self.membership.namenode().call(Request::Durable(Box::new(request))).await;
        let waits = match answer {
            Ok(Reply::Durable(reply)) => matches!(*reply, DurableReply::Waits(true)),
            _ => false,
        };
        confirmed(waits, began.elapsed().into(), what)
    }

    /// Reads lost blocks back from a store, and holds them. If one fails, or time is short, the
    /// answer has those before it, if any: the namenode counts them, and the next order begins
    /// with the one that failed.
    ///
    /// # Errors
    /// [`Refusal::BlockDamaged`]: the store does not have the object as it was.
    /// [`Refusal::Moved`]: this node is to leave.
    /// [`Refusal::TierFailed`], [`Refusal::NodeFull`], [`Refusal::RetryAfter`]: try another node.
    pub(crate) async fn restore(&self, loss: DurableLoss) -> Result<OrderReply, Refusal> {
        let DurableLoss { directory, store, key, bytes, blocks, .. } = loss;
        let owner = StoreOwner { cluster: self.cluster(), directory, may_claim: false };
        let began = Instant::now();
        let mut tiers = Vec::with_capacity(blocks.len());
        for lost in blocks {
            if !tiers.is_empty() && began.elapsed() > RESTORE_MAX {
                break;
            }
            match self.restore_block(owner, &store, (&key, bytes), lost).await {
                Ok(tier) => tiers.push(tier),
                Err(refusal) if tiers.is_empty() => return Err(refusal),
                Err(refusal) => {
                    let (block, held) = (lost.block, tiers.len());
                    tracing::debug!(store, key, %block, held, %refusal, "not all was read back");
                    break;
                }
            }
        }
        Ok(OrderReply::Restored(tiers))
    }

    async fn restore_block(
        &self,
        owner: StoreOwner,
        store: &str,
        object: (&str, u64),
        lost: LostBlock,
    ) -> Result<Tier, Refusal> {
        let found = self.stores.fetch(owner, store, object, (lost.offset, lost.length)).await?;
        let found = found.ok_or(Refusal::BlockDamaged { block: lost.block })?;
        self.hold(lost, found).await
    }

    /// Stores a block on this node as a push of another one would, in memory or else on disk.
    async fn hold(&self, lost: LostBlock, bytes: Bytes) -> Result<Tier, Refusal> {
        let mut refused = Refusal::NodeFull { tier: Tier::Dram.to_string(), bytes: 0 };
        for tier in [Tier::Dram, Tier::Disk] {
            let mut header = Header::new(Op::Store, 0);
            (header.block, header.epoch, header.length) = (lost.block, lost.epoch, lost.length);
            header.flags = tier as u16;
            header.checksum = crc32c(&bytes);
            let (node, deadline) = (self.membership.id(), Instant::now() + READ_MAX);
            let body = vec![bytes.clone()];
            match self.pool.call(&self.address, Some(node), header, body, deadline).await {
                Ok(_) => return Ok(tier),
                Err(CallError::Refused(refusal)) => refused = refusal,
                Err(error) => {
                    let why = format!("the node cannot store block {}: {error}", lost.block);
                    return Err(Refusal::RetryAfter { after: LOOK_UP_RETRY_INTERVAL, why });
                }
            }
        }
        Err(refused)
    }

    /// Makes a store a directory's own, from whichever it belonged to. An order that is late does
    /// nothing: the store may have been adopted by another cluster since.
    ///
    /// # Errors
    /// [`Refusal::TierFailed`]: the store failed, or has nothing to adopt.
    /// [`Refusal::RetryAfter`]: the namenode does not confirm the order.
    pub(crate) async fn take(
        &self,
        directory: ObjectId,
        store: &str,
        received: Instant,
    ) -> Result<OrderReply, Refusal> {
        let (request, clock) = (DurableRequest::WaitsToTake { directory }, self.membership.clock());
        self.still_waits(request, "the store is still to be taken over").await?;
        StoreOrder::new(clock.at(received)).may_begin(clock.now())?;
        let owner = StoreOwner { cluster: self.cluster(), directory, may_claim: false };
        Ok(OrderReply::StoreTaken { settles_in: self.stores.take(owner, store).await? })
    }

    /// Lists a part of what a store has.
    ///
    /// # Errors
    /// [`Refusal::TierFailed`]: the store failed, or is another directory's.
    pub(crate) async fn list(
        &self,
        directory: ObjectId,
        store: &str,
        after: &str,
    ) -> Result<OrderReply, Refusal> {
        let owner = StoreOwner { cluster: self.cluster(), directory, may_claim: false };
        Ok(OrderReply::StoreListed(self.stores.list(owner, store, after).await?))
    }

    /// Ends uploads, so that they can never be completed.
    ///
    /// # Errors
    /// [`Refusal::TierFailed`]: the store failed.
    pub(crate) async fn abort(
        &self,
        directory: ObjectId,
        store: &str,
        uploads: &[(String, String)],
    ) -> Result<OrderReply, Refusal> {
        for (key, upload) in uploads {
            let owner = StoreOwner { cluster: self.cluster(), directory, may_claim: false };
            self.stores.abort(owner, store, key, upload).await?;
        }
        Ok(OrderReply::Done)
    }
}

/// Returns the first parts, as many as can be joined: the bytes that live in the catalog are before
/// the blocks of a part.
fn joinable(parts: &VecDeque<UploadPart>) -> Vec<JoinablePart> {
    let joinable = |part: &UploadPart| {
        let inline = part.inline.len() as u64;
        let mut joinable = JoinablePart { bytes: inline, memory: inline };
        for length in part.blocks.iter().map(|block| block.length) {
            joinable.bytes += u64::from(length);
            joinable.memory += sanderling_transport::body_memory(length as usize) as u64;
        }
        joinable
    };
    let later = parts.iter().skip(1).take_while(|part| part.inline.is_empty());
    parts.iter().take(1).chain(later).map(joinable).collect()
}

/// Returns the bytes of a part.
fn length_of(part: &UploadPart) -> u64 {
    let blocks = part.blocks.iter().map(|block| u64::from(block.length));
    part.inline.len() as u64 + blocks.sum::<u64>()
}

/// Cuts a part into the pieces in which a store in a directory gets it.
fn cut(part: UploadPart) -> Vec<UploadPart> {
    let UploadPart { number, mut offset, mut inline, blocks } = part;
    let lengths: Vec<u32> = blocks.iter().map(|block| block.length).collect();
    let mut rest = blocks.into_iter();
    let piece = |count: usize| {
        let (inline, at) = (std::mem::take(&mut inline), offset);
        let blocks: Vec<UploadBlock> = rest.by_ref().take(count).collect();
        let bytes: u64 = blocks.iter().map(|block| u64::from(block.length)).sum();
        offset += inline.len() as u64 + bytes;
        UploadPart { number, offset: at, inline, blocks }
    };
    pieces(&lengths).into_iter().map(piece).collect()
}

/// Joins parts that follow each other; `None` if there is none.
fn join(mut parts: impl Iterator<Item = UploadPart>) -> Option<UploadPart> {
    let mut joined = parts.next()?;
    for part in parts {
        joined.blocks.extend(part.blocks);
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{BlockId, Epoch};

    use super::*;

    #[test]
    fn pieces_of_a_part_follow_each_other_and_have_its_number() {
        let block = |id| UploadBlock {
            block: BlockId(id),
            epoch: Epoch(1),
            length: BLOCK_BYTES_MAX,
            node: NodeId(1),
            address: String::new(),
        };
        let blocks: Vec<UploadBlock> = (0..20).map(block).collect();
        let part = UploadPart { number: 3, offset: 70, inline: vec![7; 5], blocks: blocks.clone() };
        let cut = cut(part);
        assert_eq!(cut.iter().map(|piece| piece.number).collect::<Vec<_>>(), [3, 3, 3]);
        let mut at = 70;
        for piece in &cut {
            assert_eq!(piece.offset, at);
            let bytes = piece.blocks.len() as u64 * u64::from(BLOCK_BYTES_MAX);
            at += piece.inline.len() as u64 + bytes;
        }
        assert_eq!(at, 75 + 20 * u64::from(BLOCK_BYTES_MAX));
        let all: Vec<UploadBlock> = cut.into_iter().flat_map(|piece| piece.blocks).collect();
        assert_eq!(all, blocks);
    }
}
