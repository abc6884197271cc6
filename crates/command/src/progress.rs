//! Progress of long work: a bar when stderr is a terminal, else a line every ten seconds.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;
use crate::units;

/// Time between two lines when stderr is no terminal: six a minute show that a command goes on, and
/// fill no log. Chosen, not measured.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

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

    /// Adds to what is done, in bytes or steps. It draws the bar, or writes a line every ten
    /// seconds where stderr is no terminal.
    pub fn add(&mut self, more: u64) {
        self.set(self.done + more);
    }

    /// Sets how much is done in all, in bytes or steps; it may also go back. It shows it as
    /// [`Self::add`] does.
    pub fn set(&mut self, done: u64) {
        self.done = done;
        match &self.bar {
            Some(bar) => bar.set_position(done),
            None if !self.is_quiet && self.printed.elapsed() >= LINE_INTERVAL => {
                self.printed = Instant::now();
                let _ = writeln!(std::io::stderr(), "{}", self.line());
            }
            None => {}
        }
    }

    /// Removes the bar from the terminal; lines that were written stay. Call it before the result
    /// is printed.
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
    let bar = ProgressBar::with_draw_target(total, target);
    let template = template(unit, total.is_some());
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    bar.set_style(style);
    bar.set_message(label.to_owned());
    bar
}

/// Returns what a bar shows. The library shows nothing for a key that it does not have.
const fn template(unit: Unit, has_total: bool) -> &'static str {
    match (unit, has_total) {
        (Unit::Steps, true) => "{msg} {bar:30} {human_pos}/{human_len} {per_sec} {eta}",
        (Unit::Bytes, true) => {
            "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}"
        }
        (Unit::Steps, false) => "{msg} {spinner} {human_pos} {per_sec} {elapsed}",
        (Unit::Bytes, false) => "{msg} {spinner} {binary_bytes} {binary_bytes_per_sec} {elapsed}",
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps what is written.
    #[derive(Debug, Clone, Default)]
    struct Written(Arc<Mutex<String>>);

    impl TermLike for Written {
        fn width(&self) -> u16 {
            120
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("no test panics with it").push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns what a bar shows of so much done.
    fn shown(unit: Unit, total: Option<u64>, done: u64) -> String {
        let written = Written::default();
        let bar = bar(unit, "copying", total);
        bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(written.clone())));
        bar.set_position(done);
        bar.force_draw();
        written.0.lock().expect("no test panics with it").clone()
    }

    #[test]
    fn bar_shows_what_is_done_and_the_total() {
        let bytes = shown(Unit::Bytes, Some(3 << 20), 1 << 20);
        assert!(bytes.contains("copying") && bytes.contains("1.00 MiB/3.00 MiB "), "{bytes}");
        let steps = shown(Unit::Steps, Some(7), 2);
        assert!(steps.contains(" 2/7 "), "{steps}");
    }

    #[test]
    fn bar_without_a_total_shows_what_is_done() {
        let bytes = shown(Unit::Bytes, None, 1 << 20);
        assert!(bytes.contains("copying") && bytes.contains(" 1.00 MiB "), "{bytes}");
        assert!(shown(Unit::Steps, None, 2).contains(" 2 "));
    }
}
