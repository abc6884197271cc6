//! Reads, writes and stores.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_core::block_table::{StoreRequest, WriteRequest};
use sanderling_protocol::frame::{IS_COMPLAINT, RangeReply, RangeRequest, encode_body};
use sanderling_protocol::limits::{FRAME_BODY_BYTES_MAX, RANGES_MAX};
use sanderling_protocol::{BlockId, Header, Refusal, Tier};
use sanderling_transport::{Handled, Response};

use super::BlockService;
use crate::blocking::on_thread;
use crate::connection_share::ConnectionShare;
use crate::disk_room::roomed;
use crate::fair_room::{RoomPermit, RoomRequest};
use crate::received::BlockBody;
use crate::store::WriteOutcome;
use crate::tier::ReadBytes;
use crate::tiers::BlockBytes;
use crate::write_queue::QueuedWrite;

/// Bytes kept free in a vectored reply for each range: its header and the longest refusal. The
/// header has 16; a refusal's text is some sentences at most. 1,024 ranges keep 256 KiB of a frame
/// so.
const RANGE_OVERHEAD_BYTES: u64 = 256;

/// Longest time a write waits for the one before it to reach the disk. As long as a read waits for
/// room (`ROOM_TIMEOUT` of `fair_room`): longer than one attempt of a client (3 s), which repeats
/// the write then, and half of its call.
const DISK_TURN_MAX: Duration = Duration::from_secs(5);

/// One range of a vectored read after its admission.
type Admitted = (RangeRequest, Result<Option<BlockBytes>, Refusal>);

impl BlockService {
    pub(super) fn read(
        self: &Arc<Self>,
        header: Header,
        share: &Arc<ConnectionShare>,
    ) -> Result<Handled, Refusal> {
        let Header { block, epoch, offset, length, .. } = header;
        let bytes = match self.store.admit_read(block, epoch, offset, length) {
            Err(refusal) if !self.store.may_adopt(epoch, &refusal) => return Err(refusal),
            Ok(None) => return Ok(Handled::Now(acknowledged(&header, 0))),
            Ok(Some(bytes)) if !bytes.is_in_object_tier() => bytes,
            Ok(Some(_)) | Err(_) => return Ok(self.read_object(header, share)),
        };
        if bytes.is_blocking() {
            let room = self.disk_room.request(share, u64::from(length))?;
            let share = Arc::clone(share);
            let read = move |service: &Self| service.read_answer(&header, &bytes, &share);
            return Ok(self.later_from_disk(header, room, read));
        }
        let _in_flight = self.activity.enter();
        self.read_answer(&header, &bytes, share).map(Handled::Now)
    }

    fn read_answer(
        &self,
        header: &Header,
        bytes: &BlockBytes,
        share: &ConnectionShare,
    ) -> Result<Response, Refusal> {
        let offset = u32::try_from(header.offset).expect("admitted below a block's length");
        let looked = if header.flags & IS_COMPLAINT == 0 { Ok(()) } else { bytes.inspect(true) };
        let read = looked.and_then(|()| bytes.read(offset, header.length));
        let read = read.map_err(|error| self.store.refusal_of(header.block, bytes, error))?;
        Ok(self.read_reply(header, read, share))
    }

    pub(super) fn read_reply(
        &self,
        header: &Header,
        read: ReadBytes,
        share: &ConnectionShare,
    ) -> Response {
        let bytes = u64::from(header.length);
        if share.is_of_datanode {
            self.store.count_uploaded(bytes);
        } else {
            self.store.count_read(bytes);
        }
        let mut reply = header.reply();
        reply.offset = header.offset;
        reply.length = header.length;
        reply.checksum = read.checksum;
        reply.flags = self.read_flags(std::iter::once(header.block));
        Response { header: reply, body: read.slices }
    }

    pub(super) fn read_many(
        self: &Arc<Self>,
        header: Header,
        body: &[u8],
        share: &Arc<ConnectionShare>,
    ) -> Result<Handled, Refusal> {
        let ranges = RangeRequest::decode_all(body).and_then(check_ranges)?;
        let admit = |range: &RangeRequest| {
            let RangeRequest { block, epoch, offset, length } = *range;
            (*range, self.store.admit_read(block, epoch, u64::from(offset), length))
        };
        let admitted: Vec<Admitted> = ranges.iter().map(admit).collect();
        let is_in_object_tier = |(range, admitted): &Admitted| match admitted {
            Ok(bytes) => bytes.as_ref().is_some_and(BlockBytes::is_in_object_tier),
            Err(refusal) => self.store.may_adopt(range.epoch, refusal),
        };
        if admitted.iter().any(is_in_object_tier) {
            return Ok(self.read_many_objects(header, ranges, share));
        }
        if admitted.iter().any(is_on_disk) {
            let on_disk = admitted.iter().filter(|range| is_on_disk(range));
            let bytes = on_disk.map(|(range, _)| u64::from(range.length)).sum();
            let room = self.disk_room.request(share, bytes)?;
            let read = move |service: &Self| {
                let reads = admitted.iter().map(|range| service.read_range(range));
                Ok(service.many_answer(&header, reads))
            };
            return Ok(self.later_from_disk(header, room, read));
        }
        let _in_flight = self.activity.enter();
        let reads = admitted.iter().map(|range| self.read_range(range));
        Ok(Handled::Now(self.many_answer(&header, reads)))
    }

    fn read_range(&self, (range, admitted): &Admitted) -> (BlockId, Result<ReadBytes, Refusal>) {
        let read = match admitted {
            Ok(Some(bytes)) => self.store.read(range.block, bytes, range.offset, range.length),
            Ok(None) => Ok(ReadBytes { slices: Vec::new(), checksum: 0 }),
            Err(refusal) => Err(refusal.clone()),
        };
        (range.block, read)
    }

    pub(super) fn many_answer<I>(&self, header: &Header, reads: I) -> Response
    where
        I: IntoIterator<Item = (BlockId, Result<ReadBytes, Refusal>)>,
    {
        let mut heads = Vec::new();
        let mut blocks = Vec::new();
        let mut slices = vec![Bytes::new()];
        let mut total = 0;
        for (block, read) in reads {
            blocks.push(block);
            let head = match read {
                Ok(read) => {
                    let length = read.slices.iter().map(Bytes::len).sum::<usize>() as u32;
                    total += u64::from(length);
                    slices.extend(read.slices);
                    RangeReply { status: 0, length, checksum: read.checksum }
                }
                Err(refusal) => {
                    self.counters.count_refusal(&refusal);
                    let bytes = encode_body(&refusal);
                    let length = bytes.len() as u32;
                    slices.push(Bytes::from(bytes));
                    RangeReply { status: refusal.code(), length, checksum: 0 }
                }
            };
            head.encode(&mut heads);
        }
        self.store.count_read(total);
        slices[0] = Bytes::from(heads);
        let mut reply = header.reply();
        reply.flags = self.read_flags(blocks.into_iter());
        Response { header: reply, body: slices }
    }

    pub(super) fn write(
        self: &Arc<Self>,
        header: Header,
        body: BlockBody,
    ) -> Result<Handled, Refusal> {
        let tier = write_tier(&header)?;
        let Header { block, epoch, offset, .. } = header;
        let request = WriteRequest { block, epoch, tier, offset, bytes: body.len() };
        if let Some(refusal) = self.membership.withheld() {
            return Err(refusal);
        }
        if self.store.is_early(&request) {
            return Ok(self.write_in_order(header, request, body));
        }
        let _in_flight = self.activity.enter();
        Ok(match self.store.write(request, body, header.checksum)? {
            WriteOutcome::Done(length) => Handled::Now(acknowledged(&header, length)),
            step @ WriteOutcome::Blocking(_) => self.later(header, move |service| {
                let length = service.store.finish(step)?;
                Ok(acknowledged(&header, length))
            }),
        })
    }

    /// Queues a write behind those before it, which came over the same connection and are only
    /// slow.
    fn write_in_order(
        self: &Arc<Self>,
        header: Header,
        request: WriteRequest,
        body: BlockBody,
    ) -> Handled {
        let turn = self.store.write_queue().queue(request.block, request.offset);
        self.spawned(header, move |service| async move {
            let done = service.wait_and_write(&turn, header.checksum, request, body).await;
            drop(turn);
            Ok(acknowledged(&header, done?))
        })
    }

    async fn wait_and_write(
        &self,
        turn: &QueuedWrite,
        checksum: u32,
        request: WriteRequest,
        body: BlockBody,
    ) -> Result<u32, Refusal> {
        let give_up = tokio::time::Instant::now() + DISK_TURN_MAX;
        while self.store.is_early(&request) {
            if tokio::time::timeout_at(give_up, turn.woken()).await.is_err() {
                return Err(self.store.not_at_end(&request));
            }
        }
        let step = self.store.write(request, body, checksum)?;
        let store = Arc::clone(&self.store);
        on_thread(move || store.finish(step)).await
    }

    pub(super) fn store_block(
        self: &Arc<Self>,
        header: Header,
        body: BlockBody,
        share: &Arc<ConnectionShare>,
    ) -> Result<Handled, Refusal> {
        let request = store_request(&header, &body)?;
        if request.tier == Tier::Object {
            return Ok(self.store_object(header, request, body.into_bytes(), share));
        }
        let store = move |service: &Self| {
            service.store.store(&request, body, header.checksum)?;
            Ok(acknowledged(&header, request.bytes))
        };
        if request.tier == Tier::Disk {
            return Ok(self.later(header, store));
        }
        let _in_flight = self.activity.enter();
        store(self).map(Handled::Now)
    }

    /// Reads from the disk on another thread, at once if there is room.
    fn later_from_disk<W>(self: &Arc<Self>, header: Header, room: RoomRequest, read: W) -> Handled
    where
        W: FnOnce(&Self) -> Result<Response, Refusal> + Send + 'static,
    {
        let begun = match room {
            // The disk works while the connection sends what was read before.
            RoomRequest::Granted(room) => Ok(Arc::clone(self).read_roomed(room, read)),
            waiting @ RoomRequest::Waits(..) => Err((waiting, read)),
        };
        let service = Arc::clone(self);
        Handled::Later(Box::pin(async move {
            let read = match begun {
                Ok(reading) => reading.await,
                Err((room, read)) => service.read_once_roomed(room, read).await,
            };
            read.unwrap_or_else(|refusal| service.refused(&header, &refusal))
        }))
    }

    /// Reads from the disk on another thread, once there is room.
    pub(super) async fn read_once_roomed<W>(
        self: &Arc<Self>,
        room: RoomRequest,
        read: W,
    ) -> Result<Response, Refusal>
    where
        W: FnOnce(&Self) -> Result<Response, Refusal> + Send + 'static,
    {
        let room = room.granted().await?;
        Arc::clone(self).read_roomed(room, read).await
    }

    /// Reads from the disk on another thread, and counts it as in flight until the end, also when
    /// the connection ends before.
    fn read_roomed<W>(
        self: Arc<Self>,
        room: RoomPermit,
        read: W,
    ) -> impl Future<Output = Result<Response, Refusal>> + Send
    where
        W: FnOnce(&Self) -> Result<Response, Refusal> + Send + 'static,
    {
        on_thread(move || {
            let _in_flight = self.activity.enter();
            read(&self).map(|answer| roomed(answer, room))
        })
    }
}

fn is_on_disk((_, admitted): &Admitted) -> bool {
    matches!(admitted, Ok(Some(bytes)) if bytes.is_blocking())
}

pub(super) fn acknowledged(header: &Header, length: u32) -> Response {
    let mut reply = header.reply();
    reply.length = length;
    Response { header: reply, body: Vec::new() }
}

fn tier(header: &Header) -> Result<Tier, Refusal> {
    if header.block == BlockId(0) {
        return Err(Refusal::BadFrame { why: "block 0 does not exist".to_owned() });
    }
    header.tier().ok_or_else(|| Refusal::BadFrame { why: format!("no tier {}", header.flags) })
}

pub(crate) fn write_tier(header: &Header) -> Result<Tier, Refusal> {
    let tier = tier(header)?;
    if tier == Tier::Object {
        let why = "blocks come to the object tier whole, from other nodes".to_owned();
        return Err(Refusal::BadRequest { why });
    }
    Ok(tier)
}

fn store_request(header: &Header, body: &BlockBody) -> Result<StoreRequest, Refusal> {
    let tier = tier(header)?;
    if header.offset != 0 {
        return Err(Refusal::BadFrame { why: "a block is stored from its start".to_owned() });
    }
    Ok(StoreRequest { block: header.block, epoch: header.epoch, tier, bytes: body.len() })
}

fn check_ranges(ranges: Vec<RangeRequest>) -> Result<Vec<RangeRequest>, Refusal> {
    let too_large =
        |what: &str, value, limit| Err(Refusal::TooLarge { what: what.to_owned(), value, limit });
    if ranges.len() > RANGES_MAX {
        return too_large("number of ranges", ranges.len() as u64, RANGES_MAX as u64);
    }
    let bytes: u64 = ranges.iter().map(|range| u64::from(range.length)).sum();
    let overhead = ranges.len() as u64 * RANGE_OVERHEAD_BYTES;
    let limit = u64::from(FRAME_BODY_BYTES_MAX).saturating_sub(overhead);
    if bytes > limit {
        return too_large("vectored read", bytes, limit);
    }
    Ok(ranges)
}
