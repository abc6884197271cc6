//! The servers as processes: logs, ready file, signals, exit codes.

mod datanode;
mod manager;
mod namenode;
pub(crate) mod ready;

use std::future::Future;

use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Global;
use crate::args::serve::{LogFormat, Process};
use crate::failure::{Exit, Failure};
use crate::session::block_on;

pub(crate) use datanode::run as datanode;
pub(crate) use manager::run as manager;
pub(crate) use namenode::run as namenode;

/// What ends a server from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// SIGTERM: leave in order.
    Term,
    /// SIGINT: leave at once.
    Interrupt,
}

/// Prepares the process, then runs the server in it to its end.
fn run<F>(global: &Global, process: &Process, server: F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    start_logging(global, process.log_format);
    if process.detach {
        // It fails only where the process leads its group already, and then it is detached enough.
        let _ = setsid();
    }
    if process.exit_with_parent {
        die_with_parent()?;
    }
    block_on(server)
}

fn die_with_parent() -> Result<(), Failure> {
    let failed = |error| Failure::new(Exit::Failure, "Process", format_args!("prctl: {error}"));
    let before = getppid();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    // The parent may have died before the signal was asked for.
    if before.is_none() || getppid() != before {
        return Err(Failure::new(Exit::Failure, "Process", "the parent process has ended"));
    }
    Ok(())
}

/// Sends logs to stderr. `SANDERLING_LOG` takes the filters of `tracing`'s `EnvFilter`.
fn start_logging(global: &Global, format: LogFormat) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) => "info",
        (false, 1) => "debug",
        (false, _) => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SANDERLING_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    // A second start inside one process keeps the first one's logs.
    let _ = match format {
        LogFormat::Text => {
            use std::io::IsTerminal;
            let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
                || !std::io::stderr().is_terminal();
            builder.with_ansi(!is_plain).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// The signals that end a server.
struct Signals {
    term: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let failed = |error| Failure::new(Exit::Failure, "Process", error);
        Ok(Self {
            term: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.term.recv() => Stop::Term,
            _ = self.interrupt.recv() => Stop::Interrupt,
        }
    }
}

/// Says why a server does not start.
fn not_started(role: &str, error: impl std::fmt::Display, next: &str) -> Failure {
    Failure::new(Exit::Failure, "NotStarted", format_args!("the {role} does not start: {error}"))
        .next(next)
}

/// Reads `none` as nowhere.
fn somewhere(address: &str) -> Option<String> {
    (address != "none").then(|| address.to_owned())
}
