//! Progress of long work: a bar when stderr is a terminal, else a line every ten seconds.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;
use crate::units;

/// How often a line is written when stderr is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The unit of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes moved.
    Bytes,
    /// Operations, seeds, rounds.
    Steps,
}

/// The progress of one piece of work.
#[derive(Debug)]
pub struct Progress {
    unit: Unit,
    bar: Option<ProgressBar>,
    is_quiet: bool,
    label: String,
    done: u64,
    total: Option<u64>,
    started: Instant,
    printed: Instant,
}

impl Progress {
    /// Starts to count bytes; `total` is `None` when it is unknown.
    #[must_use]
    pub fn start(output: Output, label: &str, total: Option<u64>) -> Self {
        Self::of(Unit::Bytes, output, label, total)
    }

    /// Starts to count steps; `total` is `None` when it is unknown.
    #[must_use]
    pub fn steps(output: Output, label: &str, total: impl Into<Option<u64>>) -> Self {
        Self::of(Unit::Steps, output, label, total.into())
    }

    fn of(unit: Unit, output: Output, label: &str, total: Option<u64>) -> Self {
        let is_drawn = !output.is_quiet && std::io::stderr().is_terminal();
        Self {
            unit,
            bar: is_drawn.then(|| bar(unit, label, total)),
            is_quiet: output.is_quiet,
            label: label.to_owned(),
            done: 0,
            total,
            started: Instant::now(),
            printed: Instant::now(),
        }
    }

    /// Prints the current step, or what is to be expected of it.
    pub fn describe(&mut self, label: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(label.to_owned());
        }
        label.clone_into(&mut self.label);
    }

    /// Adds to what is done.
    pub fn add(&mut self, more: u64) {
        self.set(self.done + more);
    }

    /// Sets how much is done in all.
    pub fn set(&mut self, done: u64) {
        self.done = done;
        match &self.bar {
            Some(bar) => bar.set_position(done),
            None if !self.is_quiet && self.printed.elapsed() >= LINE_EVERY => {
                self.printed = Instant::now();
                let _ = writeln!(std::io::stderr(), "{}", self.line());
            }
            None => {}
        }
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Returns how long it took so far.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn line(&self) -> String {
        let shown = |count| match self.unit {
            Unit::Bytes => units::bytes(count),
            Unit::Steps => count.to_string(),
        };
        let total = self.total.map(|total| format!(" of {}", shown(total)));
        let rate = match self.unit {
            Unit::Bytes => format!(", {}", units::rate(self.done, self.elapsed())),
            Unit::Steps => String::new(),
        };
        format!(
            "{}: {}{} in {}{rate}",
            self.label,
            shown(self.done),
            total.unwrap_or_default(),
            units::duration(self.elapsed()),
        )
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn bar(unit: Unit, label: &str, total: Option<u64>) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let (bar, template) = match total {
        Some(total) if unit == Unit::Steps => (
            ProgressBar::with_draw_target(Some(total), target),
            "{msg} {bar:30} {human_pos}/{human_len} {per_sec} {eta}",
        ),
        Some(total) => (
            ProgressBar::with_draw_target(Some(total), target),
            "{msg} {bar:30} {binary_bytes}/{binary_total} {binary_bytes_per_sec} {eta}",
        ),
        None if unit == Unit::Steps => (
            ProgressBar::with_draw_target(None, target),
            "{msg} {spinner} {human_pos} {per_sec} {elapsed}",
        ),
        None => (
            ProgressBar::with_draw_target(None, target),
            "{msg} {spinner} {binary_bytes} {binary_bytes_per_sec} {elapsed}",
        ),
    };
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    bar.set_style(style);
    bar.set_message(label.to_owned());
    bar
}
