//! Bodies of writes, received straight into the arena.

use std::sync::Arc;

use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::{Header, Op, Tier};
use sanderling_transport::{Handled, Landing};

use crate::node::Node;
use crate::received::{Body, Received};

/// Room in the arena for the body of one write, and the node that takes it then.
#[derive(Debug)]
struct Arriving {
    node: Arc<Node>,
    received: Received,
}

/// Offers room for a body that begins a block in memory. What is added to a block goes where the
/// block ends, which only the block knows.
pub(super) fn land(node: &Arc<Node>, header: &Header) -> Option<Box<dyn Landing>> {
    let is_first = matches!(header.op, Op::Write | Op::Store) && header.offset == 0;
    if !is_first || header.tier() != Some(Tier::Dram) || header.body_bytes > BLOCK_BYTES_MAX {
        return None;
    }
    let received = Received::take(node.store.arena(), header.body_bytes)?;
    Some(Box::new(Arriving { node: Arc::clone(node), received }))
}

impl Landing for Arriving {
    fn spare(&mut self) -> &mut [u8] {
        self.received.spare()
    }

    fn advance(&mut self, bytes: usize) {
        self.received.advance(u32::try_from(bytes).expect("no more than the spare memory"));
    }

    fn arrived(self: Box<Self>, header: Header) -> Handled {
        let Self { node, received } = *self;
        node.take(header, Body::Received(received))
    }
}
