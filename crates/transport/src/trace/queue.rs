//! The spans that wait for their export.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::span::FinishedSpan;

/// Spans that wait at most: eight seconds of the default rate in about 4 MiB. A further one is
/// dropped: no request waits for a collector.
const QUEUE_MAX: usize = 8192;

/// Spans that are exported together at most, as in OpenTelemetry's exporters.
pub const SPANS_PER_BATCH_MAX: usize = 512;

/// A reason why a span was not exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// There were too many in that second.
    Rate,
    /// Too many waited.
    Queue,
    /// The collector did not take it.
    Collector,
}

/// The counts of a process's spans, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// The collector has them.
    pub exported: u64,
    /// They were not recorded: too many in a second.
    pub dropped_rate: u64,
    /// They were not kept: too many waited.
    pub dropped_queue: u64,
    /// The collector did not take them.
    pub dropped_collector: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    spans: Mutex<VecDeque<FinishedSpan>>,
    exported: AtomicU64,
    dropped: [AtomicU64; 3],
}

impl Queue {
    /// Adds a span if there is room for it; returns how many wait.
    pub(super) fn push(&self, span: FinishedSpan) -> usize {
        let mut spans = self.spans.lock();
        if spans.len() >= QUEUE_MAX {
            drop(spans);
            self.count_dropped(Dropped::Queue, 1);
            return QUEUE_MAX;
        }
        spans.push_back(span);
        spans.len()
    }

    pub(super) fn take_batch(&self) -> Vec<FinishedSpan> {
        let mut spans = self.spans.lock();
        let count = spans.len().min(SPANS_PER_BATCH_MAX);
        spans.drain(..count).collect()
    }

    pub(super) fn count_exported(&self, spans: u64) {
        self.exported.fetch_add(spans, Ordering::Relaxed);
    }

    pub(super) fn count_dropped(&self, why: Dropped, spans: u64) {
        self.dropped[why as usize].fetch_add(spans, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> TraceCounts {
        let dropped = |why: Dropped| self.dropped[why as usize].load(Ordering::Relaxed);
        TraceCounts {
            exported: self.exported.load(Ordering::Relaxed),
            dropped_rate: dropped(Dropped::Rate),
            dropped_queue: dropped(Dropped::Queue),
            dropped_collector: dropped(Dropped::Collector),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::SpanKind;

    fn span(number: u64) -> FinishedSpan {
        FinishedSpan {
            name: "test",
            kind: SpanKind::Internal,
            trace: 1,
            span: number,
            parent: None,
            began_nanos: 0,
            ended_nanos: 1,
            attributes: Vec::new(),
            error: None,
        }
    }

    #[test]
    fn full_queue_drops_and_counts_what_comes_last() {
        let queue = Queue::default();
        for number in 0..QUEUE_MAX as u64 + 5 {
            assert!(queue.push(span(number)) <= QUEUE_MAX);
        }
        assert_eq!(queue.counts().dropped_queue, 5);
        let batch = queue.take_batch();
        assert_eq!((batch.len(), batch[0].span), (SPANS_PER_BATCH_MAX, 0));
    }
}
