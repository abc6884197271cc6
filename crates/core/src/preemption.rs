//! Preemption models: how long a spot machine lives.
//!
//! A [`Model`] is a distribution of lifetimes: a fitted formula, an exponential, lifetimes that
//! were recorded, or those of a recorded [`Trace`] of notices. The simulator and the lab draw
//! lifetimes from it, placement gets from it how long a node of a given age is expected to go on.
//!
//! Everything is pure: a [`Spec`] names in one line which model is meant, [`Model::load`] takes the
//! text of the files that it names from its caller. The same number drawn gives the same lifetime.

mod bathtub;
mod error;
mod exponential;
mod lifetimes;
mod spec;
#[cfg(test)]
mod tests;
mod trace;

use std::error::Error as StdError;

use sanderling_protocol::Millis;

pub use bathtub::Bathtub;
pub use error::{ModelError, ReadCause, RowError, SpecError};
pub use exponential::Exponential;
pub use lifetimes::{Filter, Lifetimes};
pub use spec::{Distribution, Spec};
pub use trace::{FleetModel, Trace, TraceEvent, TraceKind};

/// Milliseconds of an hour: models count in hours, the product in milliseconds.
const MILLIS_PER_HOUR: f64 = 3_600_000.0;

/// The distribution of a machine's lifetime, from its start to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    shape: Shape,
    /// How many hours of the model pass in one hour here; 1 but for scaled experiments.
    speed: f64,
}

/// The formula or the data behind a [`Model`]. Times are hours.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Early deaths, a quiet middle, and a hard limit.
    Bathtub(Bathtub),
    /// No memory: the same hazard at every age.
    Exponential(Exponential),
    /// The observed lifetimes themselves, without a formula.
    Lifetimes(Lifetimes),
}

impl From<Shape> for Model {
    fn from(shape: Shape) -> Self {
        Self { shape, speed: 1.0 }
    }
}

impl Model {
    /// Returns the model of a specification; `read` gives the text of a file by its name.
    ///
    /// # Errors
    /// [`ModelError::Unreadable`] when `read` fails, [`ModelError::BadRow`] or
    /// [`ModelError::NoLifetimes`] when the file contains no lifetime: correct the file or the
    /// filter.
    pub fn load<E: Into<Box<dyn StdError + Send + Sync>>>(
        spec: &Spec,
        mut read: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<Self, ModelError> {
        let mut text = |file: &String| {
            let unreadable =
                |error| ModelError::Unreadable { file: file.clone(), cause: ReadCause::new(error) };
            read(file).map_err(unreadable)
        };
        let shape = match &spec.source {
            Distribution::Bathtub(bathtub) => Shape::Bathtub(*bathtub),
            Distribution::Exponential(exponential) => Shape::Exponential(*exponential),
            Distribution::Lifetimes { file, filter } => {
                Shape::Lifetimes(Lifetimes::parse(&text(file)?, filter)?)
            }
            Distribution::Trace { file } => {
                Shape::Lifetimes(text(file)?.parse::<Trace>()?.lifetimes()?)
            }
        };
        Ok(Self { shape, speed: spec.speed })
    }

    /// Returns the model in which time runs `speed` times as fast: a day of it passes in a minute
    /// with a speed of 1440.
    #[must_use]
    pub fn sped_up(mut self, speed: f64) -> Self {
        assert!(speed > 0.0 && speed.is_finite(), "a speed is a positive number: {speed}");
        self.speed *= speed;
        self
    }

    /// Returns the formula or the data behind the model.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns how many hours of the model pass in one hour here.
    #[must_use]
    pub const fn speed(&self) -> f64 {
        self.speed
    }

    /// Returns the share of machines that end at this age or before.
    #[must_use]
    pub fn cdf(&self, age: Millis) -> f64 {
        self.shape.cdf(self.hours(age) + self.half_milli())
    }

    /// Returns the rate, per hour, at which machines of this age end.
    ///
    /// Recorded lifetimes have no density: it is then the mean rate over the model's next hour.
    /// Infinite where none goes on.
    #[must_use]
    pub fn hazard(&self, age: Millis) -> f64 {
        self.shape.hazard(self.hours(age)) * self.speed
    }

    /// Returns the share of the machines of this age that end within `span`: 0 to 1.
    #[must_use]
    pub fn risk(&self, age: Millis, span: Millis) -> f64 {
        let alive = 1.0 - self.cdf(age);
        if alive <= 0.0 {
            return 1.0;
        }
        ((self.cdf(Millis(age.0.saturating_add(span.0))) - self.cdf(age)) / alive).clamp(0.0, 1.0)
    }

    /// Returns how long a machine of this age goes on, on average: the mean residual life, zero
    /// at an age that none exceeds.
    #[must_use]
    pub fn expected_life(&self, age: Millis) -> Millis {
        let hours = self.hours(age);
        let alive = 1.0 - self.shape.cdf(hours);
        if alive <= 0.0 {
            return Millis(0);
        }
        self.millis(self.shape.survival_hours(hours) / alive)
    }

    /// Returns which share of the next `span` a machine of this age is expected to see: 0 to 1.
    #[must_use]
    pub fn expected_share(&self, age: Millis, span: Millis) -> f64 {
        let (from, to) = (self.hours(age), self.hours(Millis(age.0.saturating_add(span.0))));
        let alive = 1.0 - self.shape.cdf(from);
        if alive <= 0.0 || to <= from {
            return 0.0;
        }
        let seen = self.shape.survival_hours(from) - self.shape.survival_hours(to);
        (seen / alive / (to - from)).clamp(0.0, 1.0)
    }

    /// Returns a lifetime: the smallest that the share drawn does not exceed (the inverse of
    /// [`Model::cdf`]). `draw` is any number that is uniform over 64 bits.
    #[must_use]
    pub fn sample(&self, draw: u64) -> Millis {
        // The upper 53 bits are exactly a number of the unit interval.
        let share = (draw >> 11) as f64 / (1_u64 << 53) as f64;
        self.millis(self.shape.quantile(share))
    }

    /// Returns the largest difference between the model's shares and those of these lifetimes: the
    /// Kolmogorov distance, 0 to 1; 1 where there are none.
    #[must_use]
    pub fn distance(&self, lifetimes: &[Millis]) -> f64 {
        let mut sorted = lifetimes.to_vec();
        sorted.sort_unstable();
        let count = sorted.len() as f64;
        let mut distance: f64 = if sorted.is_empty() { 1.0 } else { 0.0 };
        for (index, age) in sorted.iter().enumerate() {
            let is_last_of_equals = sorted.get(index + 1) != Some(age);
            if is_last_of_equals {
                distance = distance.max((self.cdf(*age) - (index + 1) as f64 / count).abs());
            }
            if index == 0 || sorted[index - 1] != *age {
                let before = self.shape.cdf(self.hours(*age) - self.half_milli());
                distance = distance.max((before - index as f64 / count).abs());
            }
        }
        distance
    }

    fn hours(&self, age: Millis) -> f64 {
        age.0 as f64 / MILLIS_PER_HOUR * self.speed
    }

    /// Returns the half of a millisecond: ages are rounded to milliseconds, so that a share up to
    /// an age counts what is rounded to it.
    fn half_milli(&self) -> f64 {
        0.5 / MILLIS_PER_HOUR * self.speed
    }

    fn millis(&self, hours: f64) -> Millis {
        Millis((hours / self.speed * MILLIS_PER_HOUR).round() as u64)
    }
}

impl Shape {
    fn cdf(&self, hours: f64) -> f64 {
        match self {
            Self::Bathtub(bathtub) => bathtub.cdf(hours),
            Self::Exponential(exponential) => exponential.cdf(hours),
            Self::Lifetimes(lifetimes) => lifetimes.cdf(hours),
        }
    }

    fn hazard(&self, hours: f64) -> f64 {
        match self {
            Self::Bathtub(bathtub) => bathtub.hazard(hours),
            Self::Exponential(exponential) => exponential.hazard(),
            Self::Lifetimes(lifetimes) => lifetimes.hazard(hours),
        }
    }

    /// Returns the area under the share that is alive, from that age on.
    fn survival_hours(&self, from: f64) -> f64 {
        match self {
            Self::Bathtub(bathtub) => bathtub.survival_hours(from),
            Self::Exponential(exponential) => exponential.survival_hours(from),
            Self::Lifetimes(lifetimes) => lifetimes.survival_hours(from),
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        match self {
            Self::Bathtub(bathtub) => bathtub.quantile(share),
            Self::Exponential(exponential) => exponential.quantile(share),
            Self::Lifetimes(lifetimes) => lifetimes.quantile(share),
        }
    }
}
