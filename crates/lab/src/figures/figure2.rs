//! Figure 2: how long spot machines live, by models and by the data that they were fitted to.
//!
//! Brodmann et al., "An Elastic Ephemeral Datastore using Cheap, Transient Cloud Resources",
//! figure 2, after Kadupitiya, Jadhao and Sharma, HPDC 2020.

use std::io::{self, Write};
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use sanderling_core::preemption::{Bathtub, Filter, Lifetimes, Model, ModelError, Shape, Spec};
use sanderling_protocol::Millis;
use serde::Serialize;

use crate::failure::Failure;
use crate::figures::{Figure, Written};
use crate::output::{Align, Table};
use crate::page::csv::{Csv, optional};
use crate::page::{self, Section};

/// The default figure: a fit, and the machines to which it was fitted.
const FITS: [(&str, &str, &str); 3] = [
    ("bathtub:n1-highcpu-16", "n1-highcpu-16", "us-east1-b"),
    ("bathtub:n1-highcpu-32", "n1-highcpu-32", "us-west1-a"),
    ("bathtub:n1-highcpu-32-us-central1-c", "n1-highcpu-32", "us-central1-c"),
];

/// Points of a curve between the start and the last age: one for about five units of the picture,
/// which is 1140 wide. Chosen, not measured.
const POINTS: u32 = 240;

/// Ages that are shown at least and at most, in hours: machines of the bathtub live for 24, and
/// longer records are cut at two days. Chosen, not measured.
const HOURS: (f64, f64) = (26.0, 48.0);

/// Milliseconds of an hour.
const MILLIS_PER_HOUR: f64 = 3_600_000.0;

/// `sanderling lab figure2`.
#[derive(Debug, Args)]
pub struct Figure2Args {
    /// Recorded lifetimes: CSV with the columns machine_type, zone and lifetime_seconds. Without it
    /// only models are shown
    #[arg(long, value_name = "FILE")]
    pub(crate) lifetimes: Option<PathBuf>,
    /// Show this model too: bathtub:NAME, bathtub:a=,tau1=,tau2=,b=, exponential:mean=12h,
    /// lifetimes:FILE or trace:FILE. May be given several times
    #[arg(long = "model", value_name = "MODEL")]
    pub(crate) models: Vec<Spec>,
    /// Where it goes.
    #[command(flatten)]
    pub(crate) written: Written,
}

/// The whole figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure2 {
    /// Age of the last point, in hours.
    pub(crate) hours: f64,
    /// One for each model, and one for the data of each that has some.
    pub(crate) curves: Vec<Curve>,
}

/// One cumulative distribution.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Curve {
    /// The model, or the machines whose lifetimes these are.
    pub(crate) name: String,
    /// Whether these are recorded lifetimes.
    pub(crate) is_data: bool,
    /// Which curves belong together: a model and its data.
    pub(crate) group: usize,
    /// Recorded lifetimes.
    pub(crate) rows: Option<usize>,
    /// Mean lifetime in hours.
    pub(crate) mean_hours: f64,
    /// Part of the machines that ends within two hours.
    pub(crate) in_two_hours: f64,
    /// Largest distance between the model's curve and its data's (Kolmogorov), 0 to 1.
    pub(crate) distance: Option<f64>,
    /// Age in hours, and the part of the machines that ended until then.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A distribution before it is drawn.
struct NamedDistribution {
    name: String,
    group: usize,
    model: Model,
    /// Recorded lifetimes, if these are data.
    rows: Option<usize>,
    distance: Option<f64>,
}

/// Reads the lifetimes, if there are any, and computes the curves.
///
/// # Errors
/// A file cannot be read or is not of its format.
pub(crate) fn compute(arguments: &Figure2Args) -> Result<Figure2, Failure> {
    let text = arguments.lifetimes.as_deref().map(read).transpose()?;
    let mut known = Vec::new();
    for (group, (spec, machine, zone)) in FITS.into_iter().enumerate() {
        let spec: Spec = spec.parse().expect("the fits are known");
        let model = load(&spec)?;
        let filter = Filter { machine: Some(machine.to_owned()), zone: Some(zone.to_owned()) };
        // A file without these machines has no data for this fit.
        let data = text.as_ref().and_then(|text| Lifetimes::parse(text, &filter).ok());
        let distance = data.as_ref().map(|data| model.distance(data.ended()));
        known.push(NamedDistribution { name: short(&spec), group, model, rows: None, distance });
        known.extend(data.map(|data| recorded(format!("{machine} in {zone}"), group, data)));
    }
    if let Some(text) = &text
        && known.iter().all(|one| one.rows.is_none())
    {
        let all = Lifetimes::parse(text, &Filter::default()).map_err(bad)?;
        known.push(recorded("all recorded lifetimes".to_owned(), FITS.len(), all));
    }
    let is_new =
        |spec: &&Spec| FITS.iter().all(|(fit, _, _)| fit.parse().ok().as_ref() != Some(*spec));
    for (at, spec) in arguments.models.iter().filter(is_new).enumerate() {
        let (name, group, model) = (spec.to_string(), FITS.len() + 1 + at, load(spec)?);
        known.push(NamedDistribution { name, group, model, rows: None, distance: None });
    }
    let longest = known.iter().map(|one| hours(one.model.sample(u64::MAX - (u64::MAX >> 6))));
    let hours = longest.fold(HOURS.0, f64::max).min(HOURS.1).ceil();
    Ok(Figure2 { hours, curves: known.into_iter().map(|one| one.curve(hours)).collect() })
}

impl NamedDistribution {
    fn curve(self, last: f64) -> Curve {
        let share = |hours: f64| self.model.cdf(millis(hours));
        let point = |at: u32| {
            let hours = last * f64::from(at) / f64::from(POINTS);
            (hours, share(hours))
        };
        Curve {
            is_data: self.rows.is_some(),
            group: self.group,
            rows: self.rows,
            mean_hours: hours(self.model.expected_life(Millis(0))),
            in_two_hours: share(2.0),
            distance: self.distance,
            points: (0..=POINTS).map(point).collect(),
            name: self.name,
        }
    }
}

impl Figure for Figure2 {
    const NAME: &'static str = "figure2";

    fn write(&self, writer: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new(&[
            ("distribution", Align::Left),
            ("lifetimes", Align::Right),
            ("mean", Align::Right),
            ("ends in 2 h", Align::Right),
            ("in 24 h", Align::Right),
            ("distance to data", Align::Right),
        ]);
        for curve in &self.curves {
            let percent = |value: f64| format!("{:.0} %", value * 100.0);
            table.row([
                curve.name.clone(),
                curve.rows.map_or_else(|| "model".to_owned(), |rows| rows.to_string()),
                format!("{:.1} h", curve.mean_hours),
                percent(curve.in_two_hours),
                percent(curve.at(24.0)),
                curve.distance.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}")),
            ]);
        }
        table.write(writer)
    }

    fn csv(&self) -> Csv {
        let mut csv = Csv::new(&["distribution", "is_data", "rows", "hours", "share"]);
        for curve in &self.curves {
            for (hours, share) in &curve.points {
                csv.row([
                    curve.name.clone(),
                    curve.is_data.to_string(),
                    optional(curve.rows),
                    format!("{hours:.4}"),
                    format!("{share:.5}"),
                ]);
            }
        }
        csv
    }

    fn section(&self) -> Section {
        page::lifetimes::section(self)
    }
}

impl Curve {
    /// Returns the part that ended at the last point before this age.
    fn at(&self, hours: f64) -> f64 {
        let before = self.points.iter().take_while(|(age, _)| *age <= hours + 1e-9);
        before.last().map_or(0.0, |(_, share)| *share)
    }
}

fn recorded(name: String, group: usize, data: Lifetimes) -> NamedDistribution {
    let rows = Some(data.ended().len() + data.censored_rows());
    NamedDistribution {
        name,
        group,
        model: Model::from(Shape::Lifetimes(data)),
        rows,
        distance: None,
    }
}

/// Returns a fit's name; its parameters are in the docs.
pub(crate) fn short(spec: &Spec) -> String {
    let named = |name| format!("bathtub:{name}");
    let is_it = |text: &String| text.parse::<Spec>().ok().as_ref() == Some(spec);
    let known = Bathtub::preset_names().map(named).find(is_it);
    known.unwrap_or_else(|| spec.to_string())
}

/// Returns whether a model can be had: the files that it names are there.
pub(crate) fn can_load(spec: &Spec) -> bool {
    load(spec).is_ok()
}

pub(crate) fn load(spec: &Spec) -> Result<Model, Failure> {
    Model::load(spec, |file| std::fs::read_to_string(file)).map_err(bad)
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::file(path, error))
}

fn bad(error: ModelError) -> Failure {
    Failure::usage(error).next("sanderling lab figure2 --help")
}

fn hours(span: Millis) -> f64 {
    span.0 as f64 / MILLIS_PER_HOUR
}

fn millis(hours: f64) -> Millis {
    Millis((hours * MILLIS_PER_HOUR) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::defaults;

    fn figure(lifetimes: Option<&Path>) -> Figure2 {
        let lifetimes = lifetimes.map(Path::to_owned);
        let models = vec!["exponential:mean=12h".parse().unwrap()];
        compute(&Figure2Args { lifetimes, models, ..defaults() }).unwrap()
    }

    #[test]
    fn models_alone_are_curves_that_rise_to_one() {
        let figure = figure(None);
        assert_eq!(figure.curves.len(), 4);
        for curve in &figure.curves {
            assert!(!curve.is_data && curve.points[0].1 < 0.01, "{}", curve.name);
            assert!(curve.points.is_sorted_by(|one, next| one.1 <= next.1), "{}", curve.name);
        }
        let bathtub = &figure.curves[0];
        assert!((bathtub.in_two_hours - 0.43).abs() < 0.02, "{}", bathtub.in_two_hours);
        assert!((bathtub.at(25.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn data_stands_beside_the_fit_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lifetimes.csv");
        let mut rows = Csv::new(&["machine_type", "zone", "lifetime_seconds"]);
        for at in 1..=100_u32 {
            let fields = ["n1-highcpu-16".to_owned(), "us-east1-b".to_owned()];
            rows.row(fields.into_iter().chain([(at * 864).to_string()]));
        }
        std::fs::write(&file, rows.to_string()).unwrap();
        let figure = figure(Some(&file));
        let data = figure.curves.iter().find(|curve| curve.is_data).unwrap();
        assert_eq!((data.rows, data.group), (Some(100), 0));
        assert!((data.at(12.0) - 0.5).abs() < 0.02, "{}", data.at(12.0));
        assert!(figure.curves[0].distance.is_some_and(|it| it > 0.2 && it < 0.6));
        let mut text = Vec::new();
        figure.write(&mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("n1-highcpu-16 in us-east1-b"));
    }
}
