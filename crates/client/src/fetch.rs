//! Sends the requests of reads to datanodes, many ranges in a frame.

use std::collections::BTreeMap;
use std::slice::from_ref;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use futures_util::{Stream, StreamExt};
use sanderling_core::read::{self, ReadAttempt, ReadPiece, batches, only_piece};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::{IS_COMPLAINT, IS_LEAVING, RangeReply, RangeRequest, decode_body};
use sanderling_protocol::limits::RANGES_MAX;
use sanderling_protocol::local::LEASES_PER_PACKET_MAX;
use sanderling_protocol::message::Layout;
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{Header, NodeId, Op, Refusal};
use sanderling_transport::{CallError, ReplyFault, Timeouts};
use tokio::time::Instant;

use crate::changes::failure;
use crate::client::ClientInner;
use crate::metrics::count;

/// The wanted ranges while they are being filled with bytes.
pub(crate) type Filling = read::Filling<Bytes>;

/// Plans what is still missing of wanted ranges.
///
/// # Errors
/// The lost ranges among it.
pub(crate) fn plan(
    filling: &mut Filling,
    layout: &Layout,
) -> Result<Vec<ReadPiece>, Vec<ByteRange>> {
    filling.plan(layout, Bytes::copy_from_slice)
}

/// Copies the bytes of the one range that is wanted to their place.
pub(crate) fn copy_to(filling: Filling, place: &mut [u8]) {
    for (offset, bytes) in filling.into_parts().into_iter().flatten() {
        place[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }
}

/// Returns the wanted bytes; a range of one part is not copied.
pub(crate) fn finish(filling: Filling) -> Vec<Bytes> {
    filling.into_parts().into_iter().map(whole).collect()
}

fn whole(mut parts: BTreeMap<usize, Bytes>) -> Bytes {
    if parts.len() <= 1 {
        return parts.pop_first().map(|(_, bytes)| bytes).unwrap_or_default();
    }
    let mut joined = BytesMut::with_capacity(parts.values().map(Bytes::len).sum());
    for part in parts.values() {
        joined.extend_from_slice(part);
    }
    joined.freeze()
}

/// An attempt at a read that failed.
pub(crate) type FailedRead = read::FailedRead<CallError>;

/// Reads a range that is part of one block with one call, without a plan: most reads are such.
/// `None` if it is not, or if the address of its home is unknown.
pub(crate) async fn fetch_one(
    shared: &ClientInner,
    layout: &Layout,
    wanted: ByteRange,
    deadline: Instant,
) -> Option<Result<Bytes, FailedRead>> {
    let ReadPiece { range, node, .. } = only_piece(layout, wanted)?;
    let address = &layout.places.iter().find(|place| place.node == node)?.address;
    let timeouts = Timeouts { deadline, idle: Some(shared.config.attempt_deadline) };
    let read = read_one(shared, address, node, &range, timeouts).await;
    let read = read.and_then(|(read, flags)| {
        forget_leaving(shared, layout, flags);
        read.map_err(CallError::Refused)
    });
    let error = match read {
        Ok(bytes) => {
            count(&shared.counters.read_bytes, wanted.bytes);
            return Some(Ok(bytes));
        }
        Err(error) => error,
    };
    let mut attempt = ReadAttempt::default();
    attempt.failed(node, error, failure);
    attempt.end(None).map(Err)
}

/// Forgets the layout of an object on a node that leaves: the next read looks up where it went.
fn forget_leaving(shared: &ClientInner, layout: &Layout, flags: u16) {
    if flags & IS_LEAVING != 0 {
        shared.locations.forget(layout.stat.object);
    }
}

type Addresses<'a> = BTreeMap<NodeId, &'a str>;

fn addresses(layout: &Layout) -> impl Iterator<Item = (NodeId, &str)> {
    layout.places.iter().map(|place| (place.node, place.address.as_str()))
}

/// The pieces of a frame, its node and the answer.
type AnsweredFrame = (NodeId, Vec<ReadPiece>, Result<(RangeResults, u16), CallError>);

/// Requests pieces once, in frames of at most `ranges_max` ranges, and returns the answers as they
/// arrive.
fn read_frames<'a>(
    shared: &'a ClientInner,
    addresses: &'a Addresses<'a>,
    pieces: Vec<ReadPiece>,
    ranges_max: usize,
    deadline: Instant,
) -> impl Stream<Item = AnsweredFrame> + Unpin {
    let frames = batches(pieces, shared.config.read_frame_bytes_max, ranges_max);
    // Answers wait for each other on a slow link: only an idle connection ends an attempt early.
    let timeouts = Timeouts { deadline, idle: Some(shared.config.attempt_deadline) };
    let read = move |(node, batch): (NodeId, Vec<ReadPiece>)| {
        let address = addresses.get(&node).copied().unwrap_or_default();
        async move {
            let answer = read_batch(shared, address, node, &batch, timeouts).await;
            (node, batch, answer)
        }
    };
    let window = shared.config.read_window_frames.max(1);
    stream::iter(frames).map(read).buffer_unordered(window)
}

/// Requests pieces once and fills in the answers. Returns `None` if the read is complete.
pub(crate) async fn fetch(
    shared: &ClientInner,
    layout: &Layout,
    pieces: Vec<ReadPiece>,
    filling: &mut Filling,
    deadline: Instant,
) -> Option<FailedRead> {
    let addresses = addresses(layout).collect();
    let mut answers = read_frames(shared, &addresses, pieces, RANGES_MAX, deadline);
    let mut attempt = ReadAttempt::default();
    while let Some((node, batch, answer)) = answers.next().await {
        let (results, flags) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                attempt.failed(node, error, failure);
                continue;
            }
        };
        forget_leaving(shared, layout, flags);
        for (piece, result) in batch.iter().zip(results) {
            match result {
                Ok(bytes) => {
                    count(&shared.counters.read_bytes, bytes.len() as u64);
                    filling.fill(piece, bytes);
                }
                Err(refusal) => attempt.failed(node, refusal.into(), failure),
            }
        }
    }
    attempt.end(filling.shortfall().map(CallError::from))
}

/// Requests ranges of many objects once, as if they were one object: all ranges of a node share
/// frames. Returns the bytes of each object, or `None` if a part of them is missing: its locations
/// are forgotten, and the caller reads that object alone, with retries. Returns what failed, too.
pub(crate) async fn fetch_together(
    shared: &ClientInner,
    wanted: &[Option<(Arc<Layout>, &[ByteRange])>],
    deadline: Instant,
) -> (Vec<Option<Vec<Bytes>>>, Option<FailedRead>) {
    let mut fillings: Vec<Option<Filling>> = Vec::with_capacity(wanted.len());
    let (mut pieces, mut nodes) = (Vec::new(), Addresses::new());
    for (object, wanted) in wanted.iter().enumerate() {
        fillings.push(wanted.as_ref().and_then(|(layout, ranges)| {
            let mut filling = Filling::new(ranges);
            let planned = plan(&mut filling, layout).ok()?;
            pieces.extend(planned.into_iter().map(|piece| ReadPiece { object, ..piece }));
            nodes.extend(addresses(layout));
            Some(filling)
        }));
    }
    // More ranges than that would not fit the request to a node on this machine.
    let mut answers = read_frames(shared, &nodes, pieces, LEASES_PER_PACKET_MAX, deadline);
    let mut attempt = ReadAttempt::default();
    while let Some((node, batch, answer)) = answers.next().await {
        let (ranges, flags) = answer.unwrap_or_else(|error| {
            attempt.failed(node, error, failure);
            (Vec::new(), 0)
        });
        let mut ranges = ranges.into_iter();
        for piece in &batch {
            if let Some((layout, _)) = &wanted[piece.object] {
                forget_leaving(shared, layout, flags);
            }
            match ranges.next() {
                Some(Ok(bytes)) => {
                    count(&shared.counters.read_bytes, bytes.len() as u64);
                    if let Some(filling) = &mut fillings[piece.object] {
                        filling.fill(piece, bytes);
                    }
                    continue;
                }
                Some(Err(refusal)) => attempt.failed(node, refusal.into(), failure),
                None => {}
            }
            if fillings[piece.object].take().is_some()
                && let Some((layout, _)) = &wanted[piece.object]
            {
                shared.locations.forget(layout.stat.object);
            }
        }
    }
    let whole = |filling: Filling| filling.is_complete().then(|| finish(filling));
    let read = fillings.into_iter().map(|filling| filling.and_then(whole)).collect();
    (read, attempt.end(None))
}

type RangeResults = Vec<Result<Bytes, Refusal>>;

/// Reads pieces of one node from its memory, if it is on this machine, and the rest over TCP.
async fn read_batch(
    shared: &ClientInner,
    address: &str,
    node: NodeId,
    batch: &[ReadPiece],
    timeouts: Timeouts,
) -> Result<(RangeResults, u16), CallError> {
    let ranges: Vec<RangeRequest> = batch.iter().map(|piece| piece.range).collect();
    let read = shared.local.read(&shared.pool, node, address, &ranges, timeouts.deadline).await;
    let Some((here, flags)) = read else {
        return read_remote(shared, address, node, batch, timeouts).await;
    };
    let bytes: usize = here.iter().flatten().flatten().map(Bytes::len).sum();
    count(&shared.counters.same_host_read_bytes, bytes as u64);
    let is_missing = |(piece, read): (&ReadPiece, &Option<_>)| read.is_none().then_some(*piece);
    let missing: Vec<ReadPiece> = batch.iter().zip(&here).filter_map(is_missing).collect();
    let (mut rest, mut all_flags) = (Vec::new().into_iter(), flags);
    if !missing.is_empty() {
        let (read, flags) = read_remote(shared, address, node, &missing, timeouts).await?;
        rest = read.into_iter();
        all_flags |= flags;
    }
    let next = |read: Option<_>| read.or_else(|| rest.next()).expect("one answer to each piece");
    Ok((here.into_iter().map(next).collect(), all_flags))
}

async fn read_remote(
    shared: &ClientInner,
    address: &str,
    node: NodeId,
    batch: &[ReadPiece],
    timeouts: Timeouts,
) -> Result<(RangeResults, u16), CallError> {
    if let [piece] = batch {
        let read = read_one_remote(shared, address, node, &piece.range, timeouts, 0).await;
        return read.map(|(bytes, flags)| (vec![bytes], flags));
    }
    let mut body = Vec::with_capacity(batch.len() * RangeRequest::BYTES);
    for piece in batch {
        piece.range.encode(&mut body);
    }
    let header = Header::new(Op::ReadMany, 0);
    let frame = shared.pool.call(address, Some(node), header, vec![body.into()], timeouts).await?;
    let bad = |refusal: Refusal| CallError::BadReply {
        address: address.to_owned(),
        fault: ReplyFault::Undecodable(Box::new(refusal)),
    };
    let replies = RangeReply::decode_all(&frame.body, batch.len()).map_err(bad)?;
    let mut rest = frame.body.slice(batch.len() * RangeReply::BYTES..);
    let mut results = Vec::with_capacity(batch.len());
    for (piece, reply) in batch.iter().zip(replies) {
        let bytes = rest.split_to(reply.length as usize);
        results.push(if reply.status == 0 {
            checked(shared, &piece.range, bytes, reply.checksum)
        } else {
            Err(decode_body::<Refusal>(&bytes).map_err(bad)?)
        });
    }
    for (piece, result) in batch.iter().zip(&mut results) {
        if matches!(result, Err(Refusal::ChecksumMismatch { .. })) {
            let again =
                read_one_remote(shared, address, node, &piece.range, timeouts, IS_COMPLAINT);
            *result = again.await?.0;
        }
    }
    Ok((results, frame.header.flags))
}

/// Reads a range from its node's memory, if the node is on this machine, else over TCP.
async fn read_one(
    shared: &ClientInner,
    address: &str,
    node: NodeId,
    range: &RangeRequest,
    timeouts: Timeouts,
) -> Result<(Result<Bytes, Refusal>, u16), CallError> {
    let local = &shared.local;
    let read = local.read(&shared.pool, node, address, from_ref(range), timeouts.deadline).await;
    let here = read.and_then(|(mut read, flags)| Some((read.pop()??, flags)));
    if let Some((read, flags)) = here {
        let bytes = read.as_ref().map_or(0, Bytes::len);
        count(&shared.counters.same_host_read_bytes, bytes as u64);
        return Ok((read, flags));
    }
    read_one_remote(shared, address, node, range, timeouts, 0).await
}

/// Reads a range over TCP. If the bytes do not match their checksum, the node is sent a complaint
/// and verifies its own copy. All in one future: a nested one would be polled through its parents
/// for each page that is read.
async fn read_one_remote(
    shared: &ClientInner,
    address: &str,
    node: NodeId,
    range: &RangeRequest,
    timeouts: Timeouts,
    mut flags: u16,
) -> Result<(Result<Bytes, Refusal>, u16), CallError> {
    loop {
        let mut header = Header::new(Op::Read, 0);
        header.block = range.block;
        header.epoch = range.epoch;
        header.offset = u64::from(range.offset);
        header.length = range.length;
        header.flags = flags;
        let frame = match shared.pool.call(address, Some(node), header, vec![], timeouts).await {
            Ok(frame) => frame,
            Err(CallError::Refused(refusal)) => return Ok((Err(refusal), 0)),
            Err(error) => return Err(error),
        };
        let read = checked(shared, range, frame.body, frame.header.checksum);
        if flags == IS_COMPLAINT || !matches!(read, Err(Refusal::ChecksumMismatch { .. })) {
            return Ok((read, frame.header.flags));
        }
        flags = IS_COMPLAINT;
    }
}

fn checked(
    shared: &ClientInner,
    range: &RangeRequest,
    bytes: Bytes,
    expected: u32,
) -> Result<Bytes, Refusal> {
    let RangeRequest { block, length, .. } = *range;
    if bytes.len() != length as usize {
        let why = format!("{} bytes of block {block} where {length} were requested", bytes.len());
        return Err(Refusal::BadFrame { why });
    }
    if shared.config.verify_checksums {
        let computed = crc32c(&bytes);
        if computed != expected {
            return Err(Refusal::ChecksumMismatch { block, expected, computed });
        }
    }
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use sanderling_protocol::message::{BlockLocation, ObjectKind, ObjectStat};
    use sanderling_protocol::{BlockId, Epoch, Instant, ObjectId, Path, StorageClass, Tier};

    use super::*;

    /// A layout of blocks of those lengths; `None` at the home of a lost one.
    pub(crate) fn layout(blocks: &[(u32, Option<u32>)]) -> Layout {
        let mut offset = 0;
        let locate = |(index, (length, home)): (usize, &(u32, Option<u32>))| {
            let start = offset;
            offset += u64::from(*length);
            BlockLocation {
                block: BlockId(index as u64 + 1),
                epoch: Epoch(1),
                offset: start,
                length: *length,
                home: home.map(NodeId),
                tier: Tier::Dram,
            }
        };
        let blocks: Vec<BlockLocation> = blocks.iter().enumerate().map(locate).collect();
        let stat = ObjectStat {
            attributes: sanderling_protocol::message::Attributes::none(),
            path: Path::root(),
            object: ObjectId(1),
            kind: ObjectKind::File,
            bytes: offset,
            lost_bytes: 0,
            is_sealed: true,
            is_listed: true,
            delete_after_read: false,
            class: StorageClass::default(),
            created_at: Instant(0),
            modified_at: Instant(0),
            expires_in: None,
            blocks: 0,
            entries: 0,
            job: None,
        };
        Layout { stat, inline: None, blocks, places: Vec::new(), next_offset: None }
    }
}
