//! What the tenant saw in one phase.

use std::time::Duration;

use hdrhistogram::Histogram;
use sanderling_client::ClientError;
use serde::Serialize;
use thiserror::Error;

/// The tenant's operations, in the order of their turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// A whole object by its name.
    Get,
    /// A whole object in place of an older one.
    Put,
    /// An object's metadata.
    Stat,
}

impl Operation {
    pub(super) const ALL: [Self; 3] = [Self::Get, Self::Put, Self::Stat];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Stat => "stat",
        }
    }
}

/// Why an operation of the tenant failed.
#[derive(Debug, Error)]
pub(super) enum OperationError {
    /// The cluster did not do it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What was got is not what was put.
    #[error("{bytes} other bytes than were put")]
    OtherBytes {
        /// Bytes that were got.
        bytes: usize,
    },
}

/// What the tenant saw in one phase.
#[derive(Debug)]
pub(super) struct Sample {
    /// Nanoseconds, by operation.
    latency: [Histogram<u64>; 3],
    /// Time of the whole phase: no operation is cut off.
    pub(super) elapsed: Duration,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
}

/// One kind of operation in one phase, in microseconds; `None` without operations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct PhaseLatency {
    pub(super) operations: u64,
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) max: Option<f64>,
}

impl Sample {
    pub(super) fn new() -> Self {
        let latency = Operation::ALL.map(|_| Histogram::new(3).expect("three digits are allowed"));
        Self { latency, elapsed: Duration::ZERO, errors: 0, first_error: None }
    }

    /// Adds one operation. One that failed took its time as well.
    pub(super) fn add(&mut self, of: Operation, spent: Duration, error: Option<&OperationError>) {
        let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.latency[of as usize].record(nanos).expect("the histogram resizes itself");
        if let Some(error) = error {
            self.errors += 1;
            self.first_error.get_or_insert_with(|| format!("{}: {error}", of.name()));
        }
    }

    /// Returns whether every operation was done once at least.
    pub(super) fn is_whole(&self) -> bool {
        self.latency.iter().all(|of| !of.is_empty())
    }

    pub(super) fn latency(&self, of: Operation) -> PhaseLatency {
        let of = &self.latency[of as usize];
        #[expect(clippy::cast_precision_loss, reason = "durations are far below 2^52 ns")]
        let micros = |nanos: u64| (!of.is_empty()).then_some(nanos as f64 / 1e3);
        PhaseLatency {
            operations: of.len(),
            p50: micros(of.value_at_quantile(0.5)),
            p99: micros(of.value_at_quantile(0.99)),
            max: micros(of.max()),
        }
    }

    /// Returns an operation's p99 over that of the phase in which the tenant was alone; `None` if
    /// one of them has no operation.
    pub(super) fn p99_ratio(&self, alone: &Self, of: Operation) -> Option<f64> {
        let (own, alone) = (self.latency(of).p99?, alone.latency(of).p99?);
        (alone > 0.0).then(|| own / alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_compares_the_same_operation_and_errors_keep_their_time() {
        let (mut alone, mut beside) = (Sample::new(), Sample::new());
        alone.add(Operation::Get, Duration::from_micros(100), None);
        let error = OperationError::OtherBytes { bytes: 3 };
        beside.add(Operation::Get, Duration::from_micros(1000), Some(&error));
        let ratio = beside.p99_ratio(&alone, Operation::Get).expect("both have one");
        assert!((ratio - 10.0).abs() < 0.1, "{ratio}");
        assert_eq!(beside.p99_ratio(&alone, Operation::Put), None);
        let text = "get: 3 other bytes than were put";
        assert_eq!((beside.errors, beside.first_error.as_deref()), (1, Some(text)));
        assert_eq!(beside.latency(Operation::Get).operations, 1);
        assert_eq!(beside.latency(Operation::Put).p50, None);
        assert!(!beside.is_whole());
    }
}
