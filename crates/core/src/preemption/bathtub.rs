//! The bathtub: many machines end soon, few in the middle, the rest at a limit.
//!
//! Kadupitiya, Jadhao and Sharma, "Modeling The Temporally Constrained Preemptions of Transient
//! Cloud VMs", HPDC 2020, section 3: `F(t) = A (1 - e^(-t/tau1) + e^((t-b)/tau2))`. What of the
//! mass is left at the limit ends there.

/// Halvings of the limit until a quantile is exact to the millisecond: 24 h / 2^48 is 0.3 ns.
const HALVINGS: u32 = 48;

/// The parameters of the bathtub formula, times in hours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bathtub {
    /// The share that ends early, `A`: above 0, at most 1.
    pub a: f64,
    /// How fast the early ones end.
    pub tau1: f64,
    /// How fast the late ones end.
    pub tau2: f64,
    /// When the late ones end.
    pub b: f64,
    /// The age that no machine exceeds; 24 h for the machines of the paper.
    pub limit: f64,
}

/// Fits by name: the authors' typical values and simulator, and fits to their data set. From 16
/// virtual processors up the formula fits poorly; resampling the lifetimes is then better.
const PRESETS: [(&str, Bathtub); 5] = [
    ("typical", Bathtub::new(0.45, 1.0, 0.8, 24.0)),
    ("simulator", Bathtub::new(0.4137, 0.9, 0.76, 24.0)),
    ("n1-highcpu-16", Bathtub::new(0.433, 0.35, 0.80, 24.5)),
    ("n1-highcpu-32", Bathtub::new(0.844, 2.86, 1.25, 26.0)),
    ("n1-highcpu-32-us-central1-c", Bathtub::new(0.756, 0.36, 1.60, 26.0)),
];

impl Bathtub {
    /// Returns the formula with these parameters, times in hours, and a limit of a day.
    #[must_use]
    pub const fn new(a: f64, tau1: f64, tau2: f64, b: f64) -> Self {
        Self { a, tau1, tau2, b, limit: 24.0 }
    }

    /// Returns the fit of that name: `typical`, `simulator` (both from the paper), `n1-highcpu-16`
    /// (us-east1-b), `n1-highcpu-32` (us-west1-a), `n1-highcpu-32-us-central1-c`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, bathtub)| *bathtub)
    }

    /// Returns the names that [`Bathtub::preset`] accepts.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// Returns the formula's value at an age in hours; it may exceed 1 before the limit.
    #[must_use]
    pub fn formula(&self, hours: f64) -> f64 {
        let early = -(-hours / self.tau1).exp_m1();
        self.a * (early + ((hours - self.b) / self.tau2).exp())
    }

    pub(super) fn cdf(&self, hours: f64) -> f64 {
        if hours >= self.limit { 1.0 } else { self.formula(hours).clamp(0.0, 1.0) }
    }

    pub(super) fn hazard(&self, hours: f64) -> f64 {
        let alive = 1.0 - self.cdf(hours);
        if alive <= 0.0 {
            return f64::INFINITY;
        }
        let early = (-hours / self.tau1).exp() / self.tau1;
        let late = ((hours - self.b) / self.tau2).exp() / self.tau2;
        self.a * (early + late) / alive
    }

    pub(super) fn survival_hours(&self, from: f64) -> f64 {
        let end = self.end();
        if from >= end {
            return 0.0;
        }
        (end - from) - (self.area(end) - self.area(from))
    }

    pub(super) fn quantile(&self, share: f64) -> f64 {
        if share >= self.formula(self.limit) {
            return self.limit;
        }
        let (mut low, mut high) = (0.0, self.limit);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if self.formula(middle) < share {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// Returns the age at which none is left.
    fn end(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Returns the integral of the formula, up to a constant.
    fn area(&self, hours: f64) -> f64 {
        let early = hours + self.tau1 * (-hours / self.tau1).exp();
        self.a * (early + self.tau2 * ((hours - self.b) / self.tau2).exp())
    }
}
