//! The line that names the preemption model.

use std::fmt;
use std::str::FromStr;

use super::{Bathtub, Exponential, Filter, ModelError, SpecError};

/// The choice of a model, and how fast its time runs.
///
/// Written `bathtub:n1-highcpu-16`, `bathtub:a=0.45,tau1=1,tau2=0.8,b=24` (hours, `limit=24` at
/// will), `exponential:mean=12h`, `lifetimes:FILE,machine=TYPE,zone=ZONE`, `trace:FILE`, each with
/// `,speed=N` at will. A file's name has no comma.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Where the distribution comes from.
    pub source: Distribution,
    /// How many hours of the model pass in one hour here.
    pub speed: f64,
}

/// The source of a model's distribution.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// The bathtub formula.
    Bathtub(Bathtub),
    /// An exponential.
    Exponential(Exponential),
    /// Recorded lifetimes.
    Lifetimes {
        /// The file's name.
        file: String,
        /// Which of its rows count.
        filter: Filter,
    },
    /// The lifetimes in a recorded trace of notices.
    Trace {
        /// The file's name.
        file: String,
    },
}

impl FromStr for Spec {
    type Err = ModelError;

    /// # Errors
    /// [`ModelError::BadSpec`] when the text is none of the spellings: correct it.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        parse(text).map_err(|cause| ModelError::BadSpec { spec: text.to_owned(), cause })
    }
}

fn parse(text: &str) -> Result<Spec, SpecError> {
    let (kind, rest) = text.split_once(':').ok_or(SpecError::UnknownKind)?;
    let mut words = Words::split(rest)?;
    let source = match kind {
        "bathtub" => Distribution::Bathtub(bathtub(&mut words)?),
        "exponential" => {
            let mean = words.take("mean").ok_or(SpecError::MissingMean)?;
            Distribution::Exponential(Exponential { mean_hours: hours(&mean)? })
        }
        "lifetimes" => {
            let filter = Filter { machine: words.take("machine"), zone: words.take("zone") };
            Distribution::Lifetimes { file: words.file()?, filter }
        }
        "trace" => Distribution::Trace { file: words.file()? },
        _ => return Err(SpecError::UnknownKind),
    };
    let speed = words.positive("speed")?.unwrap_or(1.0);
    words.end()?;
    Ok(Spec { source, speed })
}

fn bathtub(words: &mut Words) -> Result<Bathtub, SpecError> {
    let mut bathtub = match words.name.take() {
        Some(name) => Bathtub::preset(&name).ok_or(SpecError::UnknownFit { name })?,
        None => {
            let mut need = |key| words.positive(key)?.ok_or(SpecError::MissingParameter { key });
            Bathtub::new(need("a")?, need("tau1")?, need("tau2")?, need("b")?)
        }
    };
    if let Some(limit) = words.positive("limit")? {
        bathtub.limit = limit;
    }
    if bathtub.a > 1.0 {
        return Err(SpecError::ShareAboveOne { a: bathtub.a });
    }
    Ok(bathtub)
}

/// A name and `key=value` pairs between commas.
struct Words {
    name: Option<String>,
    pairs: Vec<(String, String)>,
}

impl Words {
    fn split(text: &str) -> Result<Self, SpecError> {
        let mut words = Self { name: None, pairs: Vec::new() };
        for (index, word) in text.split(',').enumerate() {
            match word.split_once('=') {
                Some((key, value)) => words.pairs.push((key.to_owned(), value.to_owned())),
                None if index == 0 => {
                    words.name = Some(word.to_owned()).filter(|it| !it.is_empty())
                }
                None => return Err(SpecError::NoPair { word: word.to_owned() }),
            }
        }
        Ok(words)
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let index = self.pairs.iter().position(|(known, _)| known == key)?;
        Some(self.pairs.remove(index).1)
    }

    fn positive(&mut self, key: &str) -> Result<Option<f64>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let number = value.parse::<f64>().ok().filter(|it| it.is_finite() && *it > 0.0);
        let key = key.to_owned();
        number.map(Some).ok_or(SpecError::NoPositive { key, value })
    }

    fn file(&mut self) -> Result<String, SpecError> {
        self.name.take().ok_or(SpecError::MissingFile)
    }

    fn end(&self) -> Result<(), SpecError> {
        match (&self.name, self.pairs.first()) {
            (None, None) => Ok(()),
            (Some(name), _) => Err(SpecError::ForeignName { name: name.clone() }),
            (_, Some((key, value))) => {
                Err(SpecError::ForeignKey { key: key.clone(), value: value.clone() })
            }
        }
    }
}

/// Spellings of the units of a span, in hours.
const UNITS: [(&str, f64); 5] =
    [("ms", 1.0 / 3_600_000.0), ("s", 1.0 / 3600.0), ("m", 1.0 / 60.0), ("h", 1.0), ("d", 24.0)];

/// Reads a span in hours. humantime would make its other spellings part of this format.
fn hours(text: &str) -> Result<f64, SpecError> {
    let why = || SpecError::NoSpan { text: text.to_owned() };
    let cut = text.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(why)?;
    let (number, unit) = text.split_at(cut);
    let factor = UNITS.iter().find(|(known, _)| *known == unit).ok_or_else(why)?.1;
    let hours = number.parse::<f64>().map_err(|_| why())? * factor;
    if hours.is_finite() && hours > 0.0 { Ok(hours) } else { Err(why()) }
}

impl fmt::Display for Spec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Distribution::Bathtub(Bathtub { a, tau1, tau2, b, limit }) => {
                write!(formatter, "bathtub:a={a},tau1={tau1},tau2={tau2},b={b},limit={limit}")?;
            }
            Distribution::Exponential(Exponential { mean_hours }) => {
                write!(formatter, "exponential:mean={mean_hours}h")?;
            }
            Distribution::Lifetimes { file, filter } => {
                write!(formatter, "lifetimes:{file}")?;
                for (key, value) in [("machine", &filter.machine), ("zone", &filter.zone)] {
                    value.iter().try_for_each(|value| write!(formatter, ",{key}={value}"))?;
                }
            }
            Distribution::Trace { file } => write!(formatter, "trace:{file}")?,
        }
        if self.speed == 1.0 { Ok(()) } else { write!(formatter, ",speed={}", self.speed) }
    }
}
