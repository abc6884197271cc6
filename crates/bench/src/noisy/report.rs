//! The report of a run: a document, or a table.

use std::io::{self, Write};

use serde::Serialize;

use super::sample::{Operation, PhaseLatency, Sample};
use super::setting::{HogKind, Setting};
use super::stage::Tally;
use super::tenant::PAUSE;
use crate::failure::Failure;
use crate::output::{Align, Output, Table};

/// The whole run.
#[derive(Debug, Serialize)]
pub(super) struct NoisyReport {
    r#type: &'static str,
    seconds: u64,
    pause_millis: u64,
    object_bytes: u64,
    entries: u64,
    /// Whether the hogs showed a token of their own.
    is_other_tenant: bool,
    alone: Tenancy,
    hogs: Vec<Beside>,
    alone_again: Tenancy,
}

/// The tenant in one phase.
#[derive(Debug, Serialize)]
struct Tenancy {
    /// How long the phase took.
    seconds: f64,
    latency_micros: PerOperation<PhaseLatency>,
    /// How often the p99 is that of the first phase.
    p99_ratio: PerOperation<Option<f64>>,
    errors: u64,
    first_error: Option<String>,
}

/// Something for each of the tenant's operations.
#[derive(Debug, Clone, Copy, Serialize)]
struct PerOperation<T> {
    get: T,
    put: T,
    stat: T,
}

impl<T: Copy> PerOperation<T> {
    fn of(each: impl Fn(Operation) -> T) -> Self {
        let (get, put, stat) = (Operation::Get, Operation::Put, Operation::Stat);
        Self { get: each(get), put: each(put), stat: each(stat) }
    }

    const fn at(&self, of: Operation) -> T {
        match of {
            Operation::Get => self.get,
            Operation::Put => self.put,
            Operation::Stat => self.stat,
        }
    }
}

impl Tenancy {
    fn new(sample: &Sample, alone: &Sample) -> Self {
        Self {
            seconds: sample.elapsed.as_secs_f64(),
            latency_micros: PerOperation::of(|of| sample.latency(of)),
            p99_ratio: PerOperation::of(|of| sample.p99_ratio(alone, of)),
            errors: sample.errors,
            first_error: sample.first_error.clone(),
        }
    }
}

/// The tenant beside one hog.
#[derive(Debug, Serialize)]
pub(super) struct Beside {
    hog: HogKind,
    /// Why the hog did not run; then there are no figures.
    skipped: Option<String>,
    tenant: Option<Tenancy>,
    hog_operations: u64,
    hog_operations_per_second: f64,
    hog_refusals: u64,
    /// Connections that the servers closed.
    hog_broken: u64,
    notes: Vec<String>,
}

impl Beside {
    pub(super) fn skipped(hog: HogKind, why: String) -> Self {
        let none = Tally::default();
        Self { skipped: Some(why), ..Self::of(hog, None, none, Vec::new()) }
    }

    pub(super) fn new(
        hog: HogKind,
        sample: &Sample,
        alone: &Sample,
        done: Tally,
        mut notes: Vec<String>,
    ) -> Self {
        if done == Tally::default() {
            notes.push("none of its requests was answered during the phase".to_owned());
        }
        Self::of(hog, Some(Tenancy::new(sample, alone)), done, notes)
    }

    /// Adds what was seen after the phase.
    pub(super) fn remark(&mut self, remarks: Vec<String>) {
        self.notes.extend(remarks);
    }

    fn of(hog: HogKind, tenant: Option<Tenancy>, done: Tally, notes: Vec<String>) -> Self {
        let seconds = tenant.as_ref().map_or(0.0, |tenant| tenant.seconds);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let per_second = if seconds > 0.0 { done.operations as f64 / seconds } else { 0.0 };
        Self {
            hog,
            skipped: None,
            tenant,
            hog_operations: done.operations,
            hog_operations_per_second: per_second,
            hog_refusals: done.refusals,
            hog_broken: done.broken,
            notes,
        }
    }
}

impl NoisyReport {
    pub(super) fn new(
        setting: &Setting,
        object_bytes: usize,
        alone: &Sample,
        hogs: Vec<Beside>,
        alone_again: &Sample,
    ) -> Self {
        Self {
            r#type: "noisy",
            seconds: setting.seconds.as_secs(),
            pause_millis: PAUSE.as_millis() as u64,
            object_bytes: object_bytes as u64,
            entries: setting.entries,
            is_other_tenant: setting.is_other_tenant,
            alone: Tenancy::new(alone, alone),
            hogs,
            alone_again: Tenancy::new(alone_again, alone),
        }
    }

    /// Returns how many errors the tenant got.
    pub(super) fn errors(&self) -> u64 {
        self.phases().map(|(_, tenant, _)| tenant.errors).sum()
    }

    pub(super) fn print(&self, output: Output) -> Result<(), Failure> {
        output.result(self, |writer| self.table(writer))
    }

    /// Returns the phases that were measured, in their order.
    fn phases(&self) -> impl Iterator<Item = (String, &Tenancy, Option<&Beside>)> {
        let first = std::iter::once(("alone".to_owned(), &self.alone, None));
        let beside = self
            .hogs
            .iter()
            .filter_map(|beside| Some((beside.hog.name(), beside.tenant.as_ref()?, Some(beside))));
        let last = std::iter::once(("alone again".to_owned(), &self.alone_again, None));
        first.chain(beside).chain(last)
    }

    fn table(&self, writer: &mut dyn Write) -> io::Result<()> {
        let right = Align::Right;
        let mut table = Table::new(&[
            ("beside", Align::Left),
            ("operation", Align::Left),
            ("p50 ms", right),
            ("p99 ms", right),
            ("max ms", right),
            ("p99 / alone", right),
            ("errors", right),
            ("hog /s", right),
            ("refused", right),
            ("broken", right),
        ]);
        for (name, tenant, hog) in self.phases() {
            for of in Operation::ALL {
                let is_first = of == Operation::Get;
                let name = if is_first { name.as_str() } else { "" };
                let rest = if is_first { whole(tenant, hog) } else { Default::default() };
                table.row(figures(name, tenant, of).into_iter().chain(rest));
            }
        }
        table.write(writer)?;
        self.remarks(writer)
    }

    fn remarks(&self, writer: &mut dyn Write) -> io::Result<()> {
        for beside in &self.hogs {
            if let Some(why) = &beside.skipped {
                writeln!(writer, "{}: not run: {why}", beside.hog.name())?;
            }
            for note in &beside.notes {
                writeln!(writer, "{}: {note}", beside.hog.name())?;
            }
        }
        for (name, tenant, _) in self.phases() {
            if let Some(error) = &tenant.first_error {
                writeln!(writer, "{name}: the tenant's first error: {error}")?;
            }
        }
        Ok(())
    }
}

fn figures(name: &str, tenant: &Tenancy, of: Operation) -> [String; 6] {
    let latency = tenant.latency_micros.at(of);
    let cell = |of: Option<f64>, divisor: f64, digits: usize| {
        of.map_or_else(|| "-".to_owned(), |of| format!("{:.digits$}", of / divisor))
    };
    let millis = |micros: Option<f64>| cell(micros, 1e3, 3);
    let ratio = cell(tenant.p99_ratio.at(of), 1.0, 1);
    let (p50, p99, max) = (millis(latency.p50), millis(latency.p99), millis(latency.max));
    [name.to_owned(), of.name().to_owned(), p50, p99, max, ratio]
}

/// Returns the cells of a phase that are not about one operation.
fn whole(tenant: &Tenancy, hog: Option<&Beside>) -> [String; 4] {
    let errors = tenant.errors.to_string();
    let Some(hog) = hog else { return [errors, String::new(), String::new(), String::new()] };
    let each_second = hog.hog_operations_per_second;
    let digits = if each_second < 10.0 { 1 } else { 0 };
    let each_second = format!("{each_second:.digits$}");
    [errors, each_second, hog.hog_refusals.to_string(), hog.hog_broken.to_string()]
}
