//! Paces what the node sends, where the network itself does not. `core` decides, this waits.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::datanode::Egress as Queue;
use sanderling_transport::{Handled, Response};
use tokio::time::sleep_until;

use crate::clock::ProcessClock;
use crate::node::Node;

/// The queue in front of the node's link.
#[derive(Debug)]
pub(crate) struct Egress {
    is_limited: bool,
    queue: Mutex<Queue>,
    clock: ProcessClock,
}

impl Egress {
    /// Makes a pacer; `None` does not pace.
    pub(crate) fn new(bytes_per_second: Option<u64>, clock: ProcessClock) -> Self {
        let queue = Queue::new(bytes_per_second);
        Self { is_limited: queue.is_limited(), queue: Mutex::new(queue), clock }
    }

    /// Waits until so many bytes have left.
    pub(crate) async fn leave(&self, bytes: u64) {
        if !self.is_limited {
            return;
        }
        let left_at = self.queue.lock().queue(self.clock.now(), bytes);
        if let Some(at) = left_at {
            sleep_until(self.clock.moment(at)).await;
        }
    }
}

/// Holds an answer back until its bytes would have left, and, on a node that is leaving, until the
/// blocks that leave have had their part of the link.
pub(crate) fn paced(node: &Arc<Node>, handled: Handled) -> Handled {
    let is_leaving = node.read_throttle.is_busy() && node.store.is_fenced();
    if !node.egress.is_limited && !is_leaving {
        return handled;
    }
    if matches!(&handled, Handled::Now(response) if body_bytes(response) == 0) {
        return handled;
    }
    let node = Arc::clone(node);
    Handled::Later(Box::pin(async move {
        let response = match handled {
            Handled::Now(response) => response,
            Handled::Later(answer) => answer.await,
        };
        let bytes = body_bytes(&response);
        if is_leaving {
            node.read_throttle.read_turn(bytes).await;
        }
        node.egress.leave(bytes).await;
        response
    }))
}

fn body_bytes(response: &Response) -> u64 {
    response.body.iter().map(Bytes::len).sum::<usize>() as u64
}
