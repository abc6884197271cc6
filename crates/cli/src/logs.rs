//! Logs: to stderr, as much as asked for.

use std::io::IsTerminal;

use crate::args::Global;
use crate::args::serve::LogFormat;

/// What is logged without `-v`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// A server logs its life.
    Server,
    /// A tool logs what is wrong.
    Tool,
}

/// Sends logs to stderr. `SANDERLING_LOG` takes the filters of `tracing`'s `EnvFilter`.
pub(crate) fn start(global: &Global, speaker: Speaker, format: LogFormat) {
    let level = match (global.quiet, global.verbose, speaker) {
        (true, _, _) => "error",
        (false, 0, Speaker::Tool) => "warn",
        (false, 0, Speaker::Server) => "info",
        (false, 1, _) => "debug",
        (false, _, _) => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SANDERLING_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(format!("{level},s3s=off")));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || !std::io::stderr().is_terminal();
    // A second start inside one process keeps the first one's logs.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(!is_plain).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
