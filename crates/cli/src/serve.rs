//! The servers as processes: logs, ready file, signals, exit codes.

mod datanode;
mod gateway;
mod manager;
mod namenode;
pub(crate) mod ready;

use std::future::Future;

use rustix::process::{
    Resource, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit, setsid,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Global;
use crate::args::serve::Process;
use crate::failure::{Exit, Failure};
use crate::logs::{self, Speaker};
use crate::session::block_on;

pub(crate) use datanode::run as datanode;
pub(crate) use gateway::run as gateway;
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
pub(crate) fn server<F>(global: &Global, process: &Process, server: F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    logs::start(global, Speaker::Server, process.log_format);
    raise_open_files();
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

/// Allows as many open files as the system lets the process have: each connection is one.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // It works with fewer, too, and `doctor` says so.
    let _ = setrlimit(Resource::Nofile, limit);
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
