//! Measures how fast the node pushes; what counts is decided by [`core`](sanderling_core).

use parking_lot::Mutex;
use sanderling_core::datanode::PushRate as Measured;

use crate::clock::ProcessClock;

/// The rate of the node's pushes.
#[derive(Debug)]
pub(crate) struct PushRate {
    measured: Mutex<Measured>,
    clock: ProcessClock,
}

/// One push under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct MeasuredPush<'a> {
    rate: &'a PushRate,
    bytes: u64,
}

impl PushRate {
    pub(crate) fn new(clock: ProcessClock) -> Self {
        Self { measured: Mutex::new(Measured::new(clock.now())), clock }
    }

    /// Counts a push that begins; `None` for one that is too short.
    pub(crate) fn begin(&self, length: u32) -> Option<MeasuredPush<'_>> {
        let is_counted = self.measured.lock().began(self.clock.now(), length);
        is_counted.then_some(MeasuredPush { rate: self, bytes: 0 })
    }

    /// Returns the best second lately; 0 before there was one.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        self.measured.lock().bytes_per_second(self.clock.now())
    }
}

impl MeasuredPush<'_> {
    /// Notes that so many bytes have arrived.
    pub(crate) const fn arrived(&mut self, bytes: u64) {
        self.bytes = bytes;
    }
}

impl Drop for MeasuredPush<'_> {
    fn drop(&mut self) {
        let now = self.rate.clock.now();
        self.rate.measured.lock().ended(now, self.bytes);
    }
}
