//! Lifetimes without memory, as today's spot machines without a limit are often taken to be.

/// An exponential distribution of lifetimes: the share that has ended at age t is 1 - exp(-t /
/// mean). A machine's age shows nothing of what it has left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exponential {
    /// The mean lifetime in hours.
    pub mean_hours: f64,
}

impl Exponential {
    pub(super) fn cdf(&self, hours: f64) -> f64 {
        -(-hours.max(0.0) / self.mean_hours).exp_m1()
    }

    pub(super) const fn hazard(&self) -> f64 {
        1.0 / self.mean_hours
    }

    pub(super) fn survival_hours(&self, from: f64) -> f64 {
        self.mean_hours * (-from / self.mean_hours).exp()
    }

    pub(super) fn quantile(&self, share: f64) -> f64 {
        -self.mean_hours * (-share).ln_1p()
    }
}
