//! Progress of long work: a bar when stderr is a terminal, else a line every ten seconds.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;
use crate::units;

/// How often a line is written when stderr is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The progress of one piece of work, counted in bytes.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    is_quiet: bool,
    label: String,
    done_bytes: u64,
    total_bytes: Option<u64>,
    started: Instant,
    said: Instant,
}

impl Progress {
    /// Starts; `total_bytes` is `None` when nobody knows.
    #[must_use]
    pub(crate) fn start(output: Output, label: &str, total_bytes: Option<u64>) -> Self {
        let is_drawn = !output.is_quiet && std::io::stderr().is_terminal();
        Self {
            bar: is_drawn.then(|| bar(label, total_bytes)),
            is_quiet: output.is_quiet,
            label: label.to_owned(),
            done_bytes: 0,
            total_bytes,
            started: Instant::now(),
            said: Instant::now(),
        }
    }

    /// Says that this many more bytes are done.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.set(self.done_bytes + bytes);
    }

    /// Says how many bytes are done in all.
    pub(crate) fn set(&mut self, bytes: u64) {
        self.done_bytes = bytes;
        match &self.bar {
            Some(bar) => bar.set_position(bytes),
            None if !self.is_quiet && self.said.elapsed() >= LINE_EVERY => {
                self.said = Instant::now();
                let _ = writeln!(std::io::stderr(), "{}", self.line());
            }
            None => {}
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Returns how long it took so far.
    #[must_use]
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn line(&self) -> String {
        let total = self.total_bytes.map(|total| format!(" of {}", units::bytes(total)));
        format!(
            "{}: {}{} in {}, {}",
            self.label,
            units::bytes(self.done_bytes),
            total.unwrap_or_default(),
            units::duration(self.elapsed()),
            units::rate(self.done_bytes, self.elapsed())
        )
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn bar(label: &str, total_bytes: Option<u64>) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let (bar, template) = match total_bytes {
        Some(total) => (
            ProgressBar::with_draw_target(Some(total), target),
            "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
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
