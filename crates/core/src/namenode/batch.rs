//! Which frames of changes are written together.

use sanderling_protocol::limits::REQUESTS_PER_FRAME_MAX;

use crate::fair::Fair;

/// The bounds of a batch: frames whose changes are written together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBounds {
    /// A longer frame has a batch of its own.
    short_max: u64,
}

impl BatchBounds {
    /// Of a namenode that is alone: short frames do not wait for a frame of more than 64 requests.
    pub const ALONE: Self = Self { short_max: 64 };

    /// Of a member of a group: each batch waits for the quorum, which costs as much as some hundred
    /// requests, so frames of up to 128 share one.
    pub const IN_GROUP: Self = Self { short_max: 128 };

    /// Most requests of a batch of short frames, so that the first does not wait long for the last:
    /// 512 creates take about 3 ms.
    pub const REQUESTS_MAX: u64 = REQUESTS_PER_FRAME_MAX as u64;

    /// Most answers to orders and outcomes of probes that are done together with frames. As many as
    /// a batch has requests ([`Self::REQUESTS_MAX`]), because frames wait for them.
    pub const OWN_MAX: usize = 512;

    /// Takes the frames of the next batch, each with its tenant, in the order of their turns. The
    /// cost of a frame is the number of its requests.
    pub fn take<K: Ord + Clone, T>(self, queue: &mut Fair<K, T>) -> Vec<(K, T)> {
        let (mut batch, mut requests) = (Vec::new(), 0);
        while let Some(more) = queue.next_cost()
            && self.fits(requests, more)
            && let Some(frame) = queue.pop()
        {
            requests += more.max(1);
            batch.push(frame);
        }
        assert!(!batch.is_empty() || queue.is_empty(), "a batch takes a first frame of any length");
        batch
    }

    /// Returns whether a frame of `more` requests may be added to a batch that has `requests`
    /// already. A batch without any takes a frame of any length.
    const fn fits(self, requests: u64, more: u64) -> bool {
        requests == 0 || (more <= self.short_max && requests + more <= Self::REQUESTS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::{Bounds, TaskSize};

    #[test]
    fn batch_ends_before_the_frame_that_does_not_fit() {
        let mut queue = Fair::new(Bounds { pieces_max: 8, bytes_max: 8, share: 1 });
        for (tenant, cost) in (0..).zip([60, 0, 4, 65]) {
            queue.push(tenant, TaskSize { bytes: 1, cost }, cost).unwrap();
        }
        let mut take = || BatchBounds::ALONE.take(&mut queue);
        assert_eq!(take(), [(0, 60), (1, 0), (2, 4)]);
        assert_eq!(take(), [(3, 65)]);
        assert!(take().is_empty());
    }

    #[test]
    fn long_frame_begins_a_batch_and_never_joins_one() {
        for (bounds, short) in [(BatchBounds::ALONE, 64), (BatchBounds::IN_GROUP, 128)] {
            assert!(bounds.fits(0, 512));
            assert!(bounds.fits(1, short));
            assert!(!bounds.fits(1, short + 1));
        }
    }

    #[test]
    fn batch_of_short_frames_has_at_most_512_requests() {
        for bounds in [BatchBounds::ALONE, BatchBounds::IN_GROUP] {
            assert!(bounds.fits(452, 60));
            assert!(!bounds.fits(453, 60));
            assert!(!bounds.fits(512, 1), "a batch of one long frame takes no further frame");
        }
    }
}
