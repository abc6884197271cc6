//! Reads and stores in the object tier, which take their time and delay no other request.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use sanderling_core::block_table::StoreRequest;
use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::{Header, Refusal};
use sanderling_transport::Handled;

use super::BlockService;
use super::data::acknowledged;
use crate::blocking::on_thread;
use crate::tier::ReadBytes;
use crate::tiers::BlockBytes;

/// Ranges of one vectored read that are fetched at once. A quarter of the tier's operations
/// (`OPERATIONS_MAX`), so that one reader does not take all. Chosen, not measured.
const RANGES_AT_ONCE: usize = 16;

impl BlockService {
    /// Reads one range from the object tier.
    pub(super) fn read_object(self: &Arc<Self>, header: Header) -> Handled {
        self.spawned(header, move |service| async move {
            let Header { block, epoch, length, .. } = header;
            let offset = u32::try_from(header.offset);
            let offset = offset.map_err(|_| Refusal::UnknownBlock { block })?;
            let range = RangeRequest { block, epoch, offset, length };
            Ok(service.read_reply(&header, service.fetch_range(range).await?))
        })
    }

    /// Reads ranges some of which are in the object tier.
    pub(super) fn read_many_objects(
        self: &Arc<Self>,
        header: Header,
        ranges: Vec<RangeRequest>,
    ) -> Handled {
        self.spawned(header, move |service| async move {
            let service_here = &service;
            let fetch = |range: RangeRequest| async move {
                (range.block, service_here.fetch_range(range).await)
            };
            let fetching = futures_util::stream::iter(ranges.into_iter().map(fetch));
            let reads: Vec<_> = fetching.buffered(RANGES_AT_ONCE).collect().await;
            Ok(service.many_answer(&header, reads))
        })
    }

    async fn fetch_range(&self, range: RangeRequest) -> Result<ReadBytes, Refusal> {
        let RangeRequest { block, offset, length, .. } = range;
        let Some(bytes) = self.store.fetched(range).await? else {
            return Ok(ReadBytes { slices: Vec::new(), checksum: 0 });
        };
        let store = Arc::clone(&self.store);
        let is_blocking = bytes.is_blocking();
        // A thousand small ranges must not hold a thousand blocks.
        let is_copied = matches!(
            &bytes,
            BlockBytes::Fetched(held) if held.bytes.len() / 4 > length as usize
        );
        let read = move || store.read(block, &bytes, offset, length);
        let mut read = if is_blocking { on_thread(read).await? } else { read()? };
        if is_copied {
            read.slices.iter_mut().for_each(|slice| *slice = Bytes::copy_from_slice(slice));
        }
        Ok(read)
    }

    /// Stores a block in the object tier.
    pub(super) fn store_object(
        self: &Arc<Self>,
        header: Header,
        request: StoreRequest,
        body: Bytes,
    ) -> Handled {
        self.spawned(header, move |service| async move {
            service.store.store_object(request, body, header.checksum).await?;
            Ok(acknowledged(&header, request.bytes))
        })
    }
}
