//! Bodies of writes, received straight into the arena.

use std::sync::Arc;

use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::{Header, Op, Tier};
use sanderling_transport::{BodySink, Handled};

use crate::node::Node;
use crate::received::{BlockBody, Received};

/// Room in the arena for the body of one write, and the node that takes it then.
#[derive(Debug)]
struct ReceivingWrite {
    node: Arc<Node>,
    received: Received,
}

/// Offers room for a body that begins a block in memory. What is added to a block goes where the
/// block ends, which only the block knows.
pub(super) fn body_sink(node: &Arc<Node>, header: &Header) -> Option<Box<dyn BodySink>> {
    let is_first = matches!(header.op, Op::Write | Op::Store) && header.offset == 0;
    if !is_first || header.tier() != Some(Tier::Dram) || header.body_bytes > BLOCK_BYTES_MAX {
        return None;
    }
    let received = Received::take(node.store.tiers().arena(), header.body_bytes)?;
    Some(Box::new(ReceivingWrite { node: Arc::clone(node), received }))
}

impl BodySink for ReceivingWrite {
    fn spare(&mut self) -> &mut [u8] {
        self.received.spare()
    }

    fn advance(&mut self, bytes: usize) {
        self.received.advance(u32::try_from(bytes).expect("no more than the spare memory"));
    }

    fn arrived(self: Box<Self>, header: Header) -> Handled {
        let Self { node, received } = *self;
        node.take(header, BlockBody::Received(received))
    }
}
