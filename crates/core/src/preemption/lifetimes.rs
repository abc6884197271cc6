//! Recorded lifetimes, resampled as they are.
//!
//! # Format
//! Text of comma-separated values whose header names at least the column `lifetime_seconds`, and
//! `machine_type` and `zone` where a filter uses them; other columns and the order do not
//! matter, lines that begin with `#` are comments. A lifetime that ends in `+` (`3600+`) is
//! censored: the machine was alive at that age, and nothing is known of it afterwards. Such rows
//! count as far as they were seen (Kaplan and Meier, "Nonparametric Estimation from Incomplete
//! Observations", J. Am. Stat. Assoc. 1958); what is left beyond the last recorded end is put on
//! the longest observation. Rows without a positive finite lifetime are left out and counted.

use sanderling_protocol::Millis;

use super::{MILLIS_PER_HOUR, ModelError, RowError};

/// The ages over which the hazard of recorded lifetimes is averaged: one hour of the model.
const HAZARD_HOURS: f64 = 1.0;

/// The condition by which rows of a file of lifetimes count. The default takes all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only machines of this type.
    pub machine: Option<String>,
    /// Only machines in this zone.
    pub zone: Option<String>,
}

impl std::fmt::Display for Filter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let machine = self.machine.as_deref().unwrap_or("any machine type");
        let zone = self.zone.as_deref().unwrap_or("any zone");
        write!(formatter, "{machine} in {zone}")
    }
}

/// One machine as it was observed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Observation {
    hours: f64,
    has_ended: bool,
}

/// The distribution of recorded lifetimes, with those of machines that were still alive (the
/// product-limit estimate; Kaplan and Meier, "Nonparametric Estimation from Incomplete
/// Observations", 1958).
#[derive(Debug, Clone, PartialEq)]
pub struct Lifetimes {
    /// The recorded ends, sorted.
    ended: Vec<Millis>,
    /// Ages at which the share changes, in hours, rising.
    ages: Vec<f64>,
    /// The share that ended at that age or before; the last is 1.
    shares: Vec<f64>,
    /// The area under the share that is alive, from that age on, in hours.
    areas: Vec<f64>,
    censored_rows: usize,
    skipped_rows: usize,
}

impl Lifetimes {
    /// Returns the distribution of these lifetimes, and of machines that were still alive at those
    /// ages.
    ///
    /// # Errors
    /// [`ModelError::NoLifetimes`] when none ended: observe the machines for longer.
    pub fn new(ended: &[Millis], alive: &[Millis]) -> Result<Self, ModelError> {
        let observe = |has_ended| {
            move |age: &Millis| Observation { hours: age.0 as f64 / MILLIS_PER_HOUR, has_ended }
        };
        let ended = ended.iter().map(observe(true));
        Self::of(ended.chain(alive.iter().map(observe(false))).collect(), 0)
            .ok_or_else(|| ModelError::NoLifetimes { filter: "any machine".to_owned() })
    }

    /// Reads the rows of a text that the filter lets pass.
    ///
    /// # Errors
    /// [`ModelError::BadRow`] when the header or a row is not of the format,
    /// [`ModelError::NoLifetimes`] when no row is left: correct the file or the filter.
    pub fn parse(text: &str, filter: &Filter) -> Result<Self, ModelError> {
        let mut rows = rows(text);
        let Some((line, header)) = rows.next() else {
            return Err(ModelError::NoLifetimes { filter: filter.to_string() });
        };
        let columns = Columns::find(line, header, filter)?;
        let mut observations = Vec::new();
        let mut skipped = 0;
        for (line, row) in rows {
            let fields: Vec<&str> = row.split(',').map(str::trim).collect();
            if fields.len() != columns.count {
                let cause = RowError::FieldCount { found: fields.len(), wanted: columns.count };
                return Err(ModelError::BadRow { line, cause });
            }
            if !columns.pass(&fields, filter) {
                continue;
            }
            match observation(fields[columns.lifetime]) {
                Some(observation) => observations.push(observation),
                None => skipped += 1,
            }
        }
        Self::of(observations, skipped)
            .ok_or_else(|| ModelError::NoLifetimes { filter: filter.to_string() })
    }

    fn of(mut observations: Vec<Observation>, skipped_rows: usize) -> Option<Self> {
        // An end counts before a censored row of the same age, which was alive then.
        observations.sort_by(|one, other| {
            one.hours.total_cmp(&other.hours).then(other.has_ended.cmp(&one.has_ended))
        });
        let (mut ages, mut shares): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
        let mut alive = 1.0;
        for (index, one) in observations.iter().enumerate() {
            if !one.has_ended {
                continue;
            }
            let watched = (observations.len() - index) as f64;
            alive *= (watched - 1.0) / watched;
            if ages.last() == Some(&one.hours) {
                shares.pop();
            } else {
                ages.push(one.hours);
            }
            shares.push(1.0 - alive);
        }
        let longest = observations.last()?.hours;
        if ages.last()? < &longest {
            ages.push(longest);
            shares.push(1.0);
        }
        *shares.last_mut()? = 1.0;
        let ends = observations.iter().filter(|one| one.has_ended);
        let ended: Vec<Millis> =
            ends.map(|one| Millis((one.hours * MILLIS_PER_HOUR).round() as u64)).collect();
        let censored_rows = observations.len() - ended.len();
        let areas = areas(&ages, &shares);
        Some(Self { ended, ages, shares, areas, censored_rows, skipped_rows })
    }

    /// Returns the recorded lifetimes that ended, in rising order.
    #[must_use]
    pub fn ended(&self) -> &[Millis] {
        &self.ended
    }

    /// Returns how many rows were alive when they were last seen.
    #[must_use]
    pub const fn censored_rows(&self) -> usize {
        self.censored_rows
    }

    /// Returns how many rows were left out as they had no positive finite lifetime.
    #[must_use]
    pub const fn skipped_rows(&self) -> usize {
        self.skipped_rows
    }

    /// Returns the share after that many ages.
    fn share(&self, ages: usize) -> f64 {
        if ages == 0 { 0.0 } else { self.shares[ages - 1] }
    }

    pub(super) fn cdf(&self, hours: f64) -> f64 {
        self.share(self.ages.partition_point(|age| *age <= hours))
    }

    pub(super) fn hazard(&self, hours: f64) -> f64 {
        let (now, later) = (1.0 - self.cdf(hours), 1.0 - self.cdf(hours + HAZARD_HOURS));
        if later <= 0.0 { f64::INFINITY } else { (now / later).ln() / HAZARD_HOURS }
    }

    pub(super) fn survival_hours(&self, from: f64) -> f64 {
        let next = self.ages.partition_point(|age| *age <= from);
        let Some(age) = self.ages.get(next) else { return 0.0 };
        (age - from) * (1.0 - self.share(next)) + self.areas[next]
    }

    pub(super) fn quantile(&self, share: f64) -> f64 {
        // A share of 0 belongs to the shortest lifetime, one at a step to the next longer: each of
        // n lifetimes is drawn by one n-th of the numbers.
        let index = self.shares.partition_point(|known| *known <= share);
        self.ages[index.min(self.ages.len() - 1)]
    }
}

/// Returns the area under the share that is alive, from each age to the last.
fn areas(ages: &[f64], shares: &[f64]) -> Vec<f64> {
    let mut areas = vec![0.0; ages.len()];
    for index in (1..ages.len()).rev() {
        let alive = 1.0 - shares[index - 1];
        areas[index - 1] = areas[index] + (ages[index] - ages[index - 1]) * alive;
    }
    areas
}

/// Where the columns of a file are.
struct Columns {
    count: usize,
    lifetime: usize,
    machine: Option<usize>,
    zone: Option<usize>,
}

impl Columns {
    fn find(line: usize, header: &str, filter: &Filter) -> Result<Self, ModelError> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let find = |wanted: &str| names.iter().position(|name| *name == wanted);
        let need = |column: &'static str| {
            let cause = RowError::MissingColumn { column };
            find(column).ok_or(ModelError::BadRow { line, cause })
        };
        let machine = filter.machine.is_some().then(|| need("machine_type")).transpose()?;
        let zone = filter.zone.is_some().then(|| need("zone")).transpose()?;
        Ok(Self { count: names.len(), lifetime: need("lifetime_seconds")?, machine, zone })
    }

    fn pass(&self, fields: &[&str], filter: &Filter) -> bool {
        let is = |column: Option<usize>, wanted: &Option<String>| {
            column.is_none_or(|column| wanted.as_deref() == Some(fields[column]))
        };
        is(self.machine, &filter.machine) && is(self.zone, &filter.zone)
    }
}

fn observation(field: &str) -> Option<Observation> {
    let (seconds, has_ended) = match field.strip_suffix('+') {
        Some(seconds) => (seconds, false),
        None => (field, true),
    };
    let seconds: f64 = seconds.trim().parse().ok()?;
    let is_sound = seconds.is_finite() && seconds > 0.0;
    is_sound.then_some(Observation { hours: seconds / 3600.0, has_ended })
}

/// Returns the numbered lines of a text that are neither empty nor comments.
pub(super) fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}
