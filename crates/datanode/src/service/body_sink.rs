//! Bodies of writes, received straight into the arena.

use std::sync::Arc;

use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::{Header, Op, Tier};
use sanderling_transport::{BodySink, Handled};

use super::BlockService;
use crate::connection_share::{ConnectionShare, CountedBody};
use crate::received::{BlockBody, Received};

/// Room in the arena for the body of one write, and the service that takes it then.
#[derive(Debug)]
struct ReceivingWrite {
    service: Arc<BlockService>,
    share: Arc<ConnectionShare>,
    received: Received,
    counted: CountedBody,
}

impl BlockService {
    /// Offers room for a body that begins a block in memory, as
    /// [`sanderling_transport::Service::body_sink`] does, within a part of what is free. A body
    /// that is appended to a block goes to the end of the block, which is not known here.
    pub(crate) fn body_sink(
        self: &Arc<Self>,
        header: &Header,
        share: &Arc<ConnectionShare>,
    ) -> Option<Box<dyn BodySink>> {
        let is_first = matches!(header.op, Op::Write | Op::Store) && header.offset == 0;
        if !is_first || header.tier() != Some(Tier::Dram) || header.body_bytes > BLOCK_BYTES_MAX {
            return None;
        }
        let counted = share.count_body(header.body_bytes);
        let may = |free| counted.has_room(free);
        let received = Received::take_if(self.store.tiers().arena(), header.body_bytes, may)?;
        let (service, share) = (Arc::clone(self), Arc::clone(share));
        Some(Box::new(ReceivingWrite { service, share, received, counted }))
    }
}

impl BodySink for ReceivingWrite {
    fn spare(&mut self) -> &mut [u8] {
        self.received.spare()
    }

    fn advance(&mut self, bytes: usize) {
        self.received.advance(u32::try_from(bytes).expect("no more than the spare memory"));
    }

    fn is_scarce(&self) -> bool {
        self.counted.is_room_scarce(self.received.free_bytes())
    }

    fn arrived(self: Box<Self>, header: Header) -> Handled {
        let Self { service, share, received, counted } = *self;
        drop(counted);
        service.take(header, BlockBody::Received(received), &share)
    }
}
