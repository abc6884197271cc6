//! Reads and stores in the object tier, which take their time and delay no other request.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use sanderling_core::block_table::StoreRequest;
use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::{Header, Refusal};
use sanderling_transport::{Handled, Response};

use super::BlockService;
use super::data::acknowledged;
use crate::connection_share::ConnectionShare;
use crate::object::caller::OperationCaller;
use crate::tier::ReadBytes;
use crate::tiers::BlockBytes;

/// Ranges of one vectored read that are fetched at once. A quarter of the tier's operations
/// (`OPERATIONS_MAX`), so that one reader does not take all. Chosen, not measured.
const RANGES_AT_ONCE: usize = 16;

/// A range of a block, once no store has to be waited for.
enum FetchedRange {
    Read(ReadBytes),
    /// Its block is on the disk: it is read from there once there is room.
    OnDisk(BlockBytes),
}

impl BlockService {
    /// Reads one range from the object tier.
    pub(super) fn read_object(
        self: &Arc<Self>,
        header: Header,
        share: &Arc<ConnectionShare>,
    ) -> Handled {
        let share = Arc::clone(share);
        self.spawned(header, move |service| async move {
            let Header { block, epoch, length, .. } = header;
            let offset = u32::try_from(header.offset);
            let offset = offset.map_err(|_| Refusal::UnknownBlock { block })?;
            let range = RangeRequest { block, epoch, offset, length };
            let found = service.fetch_range(range, &share).await?;
            let room = found.disk_bytes(&range);
            let reader = Arc::clone(&share);
            let answer = move |service: &Self| {
                let read = service.read_fetched(range, found)?;
                Ok(service.read_reply(&header, read, &reader))
            };
            service.with_disk_room(room, &share, answer).await
        })
    }

    /// Reads ranges some of which are in the object tier.
    pub(super) fn read_many_objects(
        self: &Arc<Self>,
        header: Header,
        ranges: Vec<RangeRequest>,
        share: &Arc<ConnectionShare>,
    ) -> Handled {
        let share = Arc::clone(share);
        self.spawned(header, move |service| async move {
            let (service_here, share_here) = (&service, &share);
            let fetch = |range: RangeRequest| async move {
                (range, service_here.fetch_range(range, share_here).await)
            };
            let fetching = futures_util::stream::iter(ranges.into_iter().map(fetch));
            let fetched: Vec<_> = fetching.buffered(RANGES_AT_ONCE).collect().await;
            // For all at once: requests that have room for some of theirs and wait for more would
            // wait for each other.
            let on_disk = |(range, found): &(RangeRequest, Result<FetchedRange, Refusal>)| {
                found.as_ref().map_or(0, |found| found.disk_bytes(range))
            };
            let room: u64 = fetched.iter().map(on_disk).sum();
            let answer = move |service: &Self| {
                let reads = fetched.into_iter().map(|(range, found)| {
                    (range.block, found.and_then(|found| service.read_fetched(range, found)))
                });
                Ok(service.many_answer(&header, reads))
            };
            service.with_disk_room(room, &share, answer).await
        })
    }

    /// Makes an answer for which up to `disk_bytes` bytes are read from the disk: if there are any,
    /// on another thread and once there is room.
    async fn with_disk_room<W>(
        self: &Arc<Self>,
        disk_bytes: u64,
        share: &Arc<ConnectionShare>,
        answer: W,
    ) -> Result<Response, Refusal>
    where
        W: FnOnce(&Self) -> Result<Response, Refusal> + Send + 'static,
    {
        if disk_bytes == 0 {
            return answer(self);
        }
        self.read_once_roomed(self.disk_room.request(share, disk_bytes)?, answer).await
    }

    /// Finds a range, and reads it unless it is on the disk.
    async fn fetch_range(
        &self,
        range: RangeRequest,
        share: &ConnectionShare,
    ) -> Result<FetchedRange, Refusal> {
        let RangeRequest { block, offset, length, .. } = range;
        let fetched = self.store.fetched(range, &self.operation_caller(share)).await?;
        let Some(bytes) = fetched else {
            return Ok(FetchedRange::Read(ReadBytes { slices: Vec::new(), checksum: 0 }));
        };
        if bytes.is_blocking() {
            return Ok(FetchedRange::OnDisk(bytes));
        }
        // A thousand small ranges must not hold a thousand blocks.
        let is_copied = matches!(
            &bytes,
            BlockBytes::Fetched(held) if held.bytes.len() / 4 > length as usize
        );
        let mut read = self.store.read(block, &bytes, offset, length)?;
        if is_copied {
            read.slices.iter_mut().for_each(|slice| *slice = Bytes::copy_from_slice(slice));
        }
        Ok(FetchedRange::Read(read))
    }

    fn read_fetched(&self, range: RangeRequest, found: FetchedRange) -> Result<ReadBytes, Refusal> {
        match found {
            FetchedRange::Read(read) => Ok(read),
            FetchedRange::OnDisk(bytes) => {
                self.store.read(range.block, &bytes, range.offset, range.length)
            }
        }
    }

    /// Stores a block in the object tier.
    pub(super) fn store_object(
        self: &Arc<Self>,
        header: Header,
        request: StoreRequest,
        body: Bytes,
        share: &Arc<ConnectionShare>,
    ) -> Handled {
        let share = Arc::clone(share);
        self.spawned(header, move |service| async move {
            let caller = service.operation_caller(&share);
            service.store.store_object(request, body, header.checksum, &caller).await?;
            Ok(acknowledged(&header, request.bytes))
        })
    }

    /// Returns a connection as the object tier sees it.
    fn operation_caller(&self, share: &ConnectionShare) -> OperationCaller {
        let (places, user) = (self.object_operations.clone(), Arc::clone(&share.objects));
        OperationCaller::Tenant { places, user }
    }
}

impl FetchedRange {
    /// Returns how many bytes of the range are read from the disk.
    fn disk_bytes(&self, range: &RangeRequest) -> u64 {
        match self {
            Self::Read(_) => 0,
            Self::OnDisk(_) => u64::from(range.length),
        }
    }
}
