//! Logs: to stderr, at the requested level.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use sanderling_transport::{LogControl, LogFilterError};
use tracing_subscriber::{EnvFilter, reload};

use crate::failure::Failure;
use crate::global::Global;
use crate::log_filter;
use crate::log_thread::LogThread;
use crate::printable::{printable, printable_json_text};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// The kind of program that logs, which decides the default level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    /// A server: it logs the steps of its life, from level INFO.
    Server,
    /// A tool: it logs problems only, from level WARN.
    Tool,
}

/// Longest line of a text log, in bytes. The longest that servers write themselves have a few
/// hundred; a request that is refused may name a path of 32 KiB. Chosen, not measured.
const LINE_BYTES_MAX: usize = 2048;

/// What is kept of it for the end of a line that was cut: its words, a number, the escape that ends
/// a colour, and the end of the line.
const CUT_BYTES_MAX: usize = 48;

/// How long a server that ends waits for the lines of its log that have not left. Where stderr
/// takes nothing for a second, its reader is gone or stands still. Chosen, not measured.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// What writes the lines of a server's log. A tool writes its own.
static THREAD: OnceLock<LogThread> = OnceLock::new();

/// The process's stderr: of a server by way of [`THREAD`], which never blocks.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match THREAD.get() {
            Some(thread) => thread.line(bytes),
            None => io::stderr().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until what was logged has left, and for a second at most.
pub(crate) fn flush() {
    if let Some(thread) = THREAD.get() {
        thread.flush(FLUSH_TIMEOUT);
    }
}

/// Starts the thread that writes a server's log. Where the system starts none, the server writes
/// its lines itself.
fn start_thread() {
    let report =
        |lines: u64| tracing::warn!(lines, "lines of this log were dropped: stderr took none");
    if let Ok(thread) = LogThread::start(io::stderr(), report) {
        // A second start inside one process keeps the first one's.
        let _ = THREAD.set(thread);
    }
}

/// Writes an event, which comes with one call, on one line: what others chose, as names, must not
/// look like another event. JSON has no line ends in texts by itself.
struct LineWriter<W> {
    out: W,
    is_text: bool,
    is_coloured: bool,
}

impl<W: Write> Write for LineWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A log that cannot be written is no failure of what is logged.
        let Ok(text) = std::str::from_utf8(bytes) else {
            let _ = self.out.write_all(bytes);
            return Ok(bytes.len());
        };
        if !self.is_text {
            let _ = self.out.write_all(printable_json_text(text).as_bytes());
            return Ok(bytes.len());
        }
        let event = text.strip_suffix('\n').unwrap_or(text);
        // On a terminal escapes are the formatter's colours: it makes those in texts printable.
        let mut line = match self.is_coloured {
            true => event.split('\u{1b}').map(printable).collect::<Vec<_>>().join("\u{1b}"),
            false => printable(event).into_owned(),
        };
        if line.len() > LINE_BYTES_MAX {
            let kept = line.floor_char_boundary(LINE_BYTES_MAX - CUT_BYTES_MAX);
            let left = line.len() - kept;
            line.truncate(kept);
            let end = if self.is_coloured { "\u{1b}[0m" } else { "" };
            line.push_str(&format!("{end} ... ({left} bytes more)"));
        }
        line.push('\n');
        let _ = self.out.write_all(line.as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns the filter that the flags, else the environment, else the kind of program requires.
fn wanted(global: &Global, source: LogSource) -> String {
    let level = match (global.quiet, global.verbose, source) {
        (true, _, _) => "error",
        (false, 1, _) => "debug",
        (false, 2.., _) => "trace",
        (false, 0, source) => {
            let set = std::env::var_os(log_filter::VARIABLE).filter(|value| !value.is_empty());
            match (set, source) {
                (Some(value), _) => return value.to_string_lossy().into_owned(),
                (None, LogSource::Tool) => "warn",
                (None, LogSource::Server) => "info",
            }
        }
    };
    level.to_owned()
}

/// Sends logs to stderr, filtered by `-q` and `-v`, else by `SANDERLING_LOG`. A server's filter can
/// be changed while it runs, and a thread of its own writes its lines.
///
/// # Errors
/// `SANDERLING_LOG` is no filter: correct it. The failure shows an example.
pub fn start(global: &Global, source: LogSource, format: LogFormat) -> Result<(), Failure> {
    let text = wanted(global, source);
    let filter = log_filter::read(&text).map_err(|error| {
        let cause = format!("{}={text}: {error}", log_filter::VARIABLE);
        Failure::usage(cause).next(format_args!("export {}=debug", log_filter::VARIABLE))
    })?;
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || !io::stderr().is_terminal();
    let is_text = format == LogFormat::Text;
    if source == LogSource::Server {
        start_thread();
    }
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || LineWriter { out: Stderr, is_text, is_coloured: !is_plain })
        // It would write them to stderr, and panic where that fails.
        .log_internal_errors(false)
        .with_target(false);
    // A second start inside one process keeps the first one's logs, and its control.
    let reload = |filter: &str, set: &dyn Fn(EnvFilter) -> Result<(), reload::Error>| {
        let filter = log_filter::read(filter).map_err(LogFilterError::new)?;
        set(filter).map_err(LogFilterError::new)
    };
    match format {
        LogFormat::Text => {
            let builder = builder.with_ansi(!is_plain).with_filter_reloading();
            let handle = builder.reload_handle();
            if builder.try_init().is_ok() {
                LogControl::install(&text, move |it| reload(it, &|filter| handle.reload(filter)));
            }
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            if builder.try_init().is_ok() {
                LogControl::install(&text, move |it| reload(it, &|filter| handle.reload(filter)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_one_line_whatever_names_are_in_it() {
        let mut line = LineWriter { out: Vec::new(), is_text: true, is_coloured: false };
        line.write_all("INFO refused: /a\nINFO stopped \u{1b}[2J\n".as_bytes()).unwrap();
        line.write_all(format!("{}\n", "ä".repeat(LINE_BYTES_MAX)).as_bytes()).unwrap();
        let text = String::from_utf8(line.out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "INFO refused: /a\\nINFO stopped \\u{1b}[2J");
        assert!(lines[1].ends_with("ä ... (2096 bytes more)"), "{}", lines[1]);
        assert!(lines[1].len() < LINE_BYTES_MAX, "{} bytes", lines[1].len());
        assert_eq!(lines.len(), 2);
        let mut line = LineWriter { out: Vec::new(), is_text: true, is_coloured: true };
        line.write_all("\u{1b}[2mINFO\u{1b}[0m refused: /a\rINFO\nstopped\n".as_bytes()).unwrap();
        let text = String::from_utf8(line.out).unwrap();
        assert_eq!(text, "\u{1b}[2mINFO\u{1b}[0m refused: /a\\rINFO\\nstopped\n");
    }
}
