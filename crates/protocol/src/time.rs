//! Time as the machines see it: given from outside, never read from a clock.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

use crate::amount;

/// A span of time in milliseconds, in requests, in the log and in all machines of `core`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A point in time: microseconds since 1970-01-01 UTC by the clock of the process that gives it.
///
/// Instants of two processes are not comparable; what crosses the wire is a [`Millis`] that
/// remains.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Instant(pub u64);

impl Millis {
    /// Returns the span of `seconds` whole seconds, or the longest one if that exceeds it.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }
}

impl Instant {
    /// Returns the time left until `later`, zero when it has passed.
    #[must_use]
    pub const fn until(self, later: Self) -> Millis {
        Millis(later.0.saturating_sub(self.0).div_ceil(1000))
    }

    /// Returns the time passed since `earlier`, zero when that lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0) / 1000)
    }
}

impl Add<Millis> for Instant {
    type Output = Self;

    fn add(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0.saturating_mul(1000)))
    }
}

impl Sub<Millis> for Instant {
    type Output = Self;

    fn sub(self, span: Millis) -> Self {
        Self(self.0.saturating_sub(span.0.saturating_mul(1000)))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => formatter.write_str("0 s"),
            _ => formatter.write_str(&amount::duration((*self).into())),
        }
    }
}

impl From<std::time::Duration> for Millis {
    fn from(span: std::time::Duration) -> Self {
        Self(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Millis> for std::time::Duration {
    fn from(span: Millis) -> Self {
        Self::from_millis(span.0)
    }
}
