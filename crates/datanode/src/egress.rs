//! Paces what the node sends, where the network itself does not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_transport::{Handled, Response};
use tokio::time::{Instant, sleep_until};

use crate::node::Node;

/// What may be sent at once after a pause: a token bucket's depth in time. Timers of tokio fire at
/// whole milliseconds; a depth of a few of them keeps the rate whole.
const BURST: Duration = Duration::from_millis(4);

/// Smaller answers, such as refusals, are not worth waiting for.
const READ_BYTES_MIN: usize = 1 << 10;

/// A token bucket over the bytes of blocks that the node sends: reads and pushes, first come first
/// served, as one queue in front of one link.
#[derive(Debug)]
pub(crate) struct Egress {
    bytes_per_second: Option<u64>,
    /// When the last byte that was promised has left.
    free_at: Mutex<Instant>,
}

impl Egress {
    /// Makes a pacer; `None` does not pace.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, free_at: Mutex::new(Instant::now()) }
    }

    /// Queues so many bytes; returns when they have left, or `None` when that is now.
    fn queue(&self, now: Instant, bytes: usize) -> Option<Instant> {
        let rate = self.bytes_per_second.filter(|_| bytes > 0)?.max(1);
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a frame fit")]
        let takes = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let mut free_at = self.free_at.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        *free_at = (*free_at).max(earliest) + takes;
        Some(*free_at).filter(|at| *at > now)
    }

    /// Waits until so many bytes have left.
    pub(crate) async fn leave(&self, bytes: usize) {
        if let Some(at) = self.queue(Instant::now(), bytes) {
            sleep_until(at).await;
        }
    }
}

/// Holds an answer back until its bytes would have left, and, on a node that is leaving, until the
/// blocks that leave have had their part of the link.
pub(crate) fn paced(node: &Arc<Node>, handled: Handled) -> Handled {
    let is_leaving = node.leaving.is_busy() && node.store.is_fenced();
    if node.egress.bytes_per_second.is_none() && !is_leaving {
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
        if is_leaving && bytes >= READ_BYTES_MIN {
            node.leaving.read_turn(bytes).await;
        }
        node.egress.leave(bytes).await;
        response
    }))
}

fn body_bytes(response: &Response) -> usize {
    response.body.iter().map(Bytes::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_at_the_rate_and_in_their_order() {
        let egress = Egress::new(Some(1_000_000));
        let now = Instant::now() + Duration::from_secs(1);
        let left = |at: Option<Instant>| at.map(|at| at - now);
        assert_eq!(left(egress.queue(now, 1_000_000)), Some(Duration::from_secs(1) - BURST));
        assert_eq!(left(egress.queue(now, 500_000)), Some(Duration::from_millis(1500) - BURST));
        let later = now + Duration::from_secs(9);
        assert_eq!(egress.queue(later, 1000), None, "what was saved goes at once");
        assert!(egress.queue(later, 1_000_000).is_some(), "a pause saves no more than the burst");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        assert_eq!(Egress::new(None).queue(Instant::now(), usize::MAX), None);
    }
}
