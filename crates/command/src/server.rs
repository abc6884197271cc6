//! A server as a process: its flags, its logs, and the process with which it ends.

use std::convert::Infallible;
use std::future::Future;
use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit, setsid,
};
use sanderling_transport::{Expiries, LogControl, time_slice};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Exit, Failure, FailureKind};
use crate::global::Global;
use crate::log_filter;
use crate::logs::{self, LogFormat, LogSource};
use crate::otlp;
use crate::process::RELEASE;
use crate::session::block_on;

/// The options of every server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Process options")]
pub struct ProcessArgs {
    /// Write a JSON object with addresses and process id here when the server serves
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// End when the process that started this one ends
    #[arg(long)]
    pub exit_with_parent: bool,
    /// How log lines are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Wait for a byte on standard input, end if there is none, and leave the terminal's session
    #[arg(long, hide = true)]
    pub detach: bool,
}

/// Prepares the process, then runs the server in it to its end, and watches its certificates.
///
/// # Errors
/// The server's failure, or that its parent process has ended: end the process with it.
pub fn run<F>(
    global: &Global,
    process: &ProcessArgs,
    expiries: Expiries,
    server: F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    if process.detach {
        wait_for_release()?;
    }
    logs::start(global, LogSource::Server, process.log_format)?;
    raise_open_files();
    if process.detach {
        // It fails only where the process leads its group already, and then it is detached enough.
        let _ = setsid();
    }
    if process.exit_with_parent {
        die_with_parent()?;
    }
    let _export = otlp::start(global)?;
    // For all threads that it starts, but those that set another one.
    time_slice::set(time_slice::ANSWERS);
    let result = block_on(async {
        tokio::select! {
            result = server => result,
            never = expiries.watch() => match never {},
            never = follow_log_signals() => match never {},
        }
    });
    logs::flush();
    result
}

/// Waits until the process that started this one has it on record, so that a server that serves can
/// always be found, and ended.
fn wait_for_release() -> Result<(), Failure> {
    let mut byte = [0; RELEASE.len()];
    std::io::stdin().read_exact(&mut byte).map_err(|_| {
        let cause = "the process that started this one has ended before it was on record";
        Failure::new(Exit::Failure, FailureKind::Process, cause)
    })
}

/// Makes the log more verbose by one level with each SIGUSR1, and as it was at the start with
/// SIGUSR2.
async fn follow_log_signals() -> Infallible {
    let signals = (signal(SignalKind::user_defined1()), signal(SignalKind::user_defined2()));
    let ((Ok(mut louder), Ok(mut first)), Ok(log)) = (signals, LogControl::of_process()) else {
        return std::future::pending().await;
    };
    loop {
        let filter = tokio::select! {
            _ = louder.recv() => log_filter::louder(&log.current()).to_owned(),
            _ = first.recv() => log.first().to_owned(),
        };
        if let Err(error) = log.set(&filter) {
            tracing::error!(%error, filter, "the log's filter stays");
        }
    }
}

/// Requests that this process is killed when the thread that started it ends.
///
/// # Errors
/// The parent has ended already, or the system refuses: end the process, which nothing would end
/// later.
pub fn die_with_parent() -> Result<(), Failure> {
    die_with(getppid())
}

/// As [`die_with_parent`], with the id that the parent gave: it may have died before this process
/// could look.
///
/// # Errors
/// As [`die_with_parent`].
pub fn die_with(before: Option<Pid>) -> Result<(), Failure> {
    let failed = |error: Errno| {
        let cause = format!("prctl: {error}");
        Failure::new(Exit::Failure, FailureKind::Process, cause).with_source(error)
    };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    // The parent may have died before the signal was requested.
    if before.is_none() || getppid() != before {
        let cause = "the parent process has ended";
        return Err(Failure::new(Exit::Failure, FailureKind::Process, cause));
    }
    Ok(())
}

/// Allows as many open files as the system lets the process have: each connection is one.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // It works with fewer, too; `doctor` reports it.
    let _ = setrlimit(Resource::Nofile, limit);
}
