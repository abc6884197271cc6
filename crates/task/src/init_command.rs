//! The command of a task in its namespaces, as process 1 stops it at the end of its lease.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanderling_core::checkpoint::{CommandLease, CommandOrder};
use sanderling_protocol::Instant;

use crate::boot_clock::since_boot;
use crate::lease_watch::{LeasedCommand, first_end, watch};
use crate::process_tree::{StoppedProcesses, children_of, is_traced};

/// The command, as a thread of its own attends to it. Clones share it.
#[derive(Clone)]
pub(crate) struct InitCommand(Arc<Mutex<CommandState>>);

struct CommandState {
    lease: CommandLease,
    stopped: StoppedProcesses,
    /// CRIU, which is no part of the command.
    criu: Option<u32>,
    /// Whether CRIU makes the processes: they do not run before it has ended.
    is_restoring: bool,
}

/// What CRIU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CriuWork {
    Dump,
    Restore,
}

impl InitCommand {
    /// Begins to attend to the command of this process's namespaces, which may run until the ends
    /// that come through a pipe.
    ///
    /// # Errors
    /// The pipe has no end, or the operating system starts no thread.
    pub(crate) fn begin(ends: OwnedFd) -> io::Result<Self> {
        let end = first_end(&ends)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let state = CommandState {
            lease: CommandLease::new(end),
            stopped: StoppedProcesses::default(),
            criu: None,
            is_restoring: false,
        };
        let command = Self(Arc::new(Mutex::new(state)));
        let mut attended = command.clone();
        // The requests of the runner may take long.
        let thread = std::thread::Builder::new().name("lease".to_owned());
        thread.spawn(move || watch(&ends, &mut attended))?;
        Ok(command)
    }

    fn state(&self) -> MutexGuard<'_, CommandState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state().lease.is_stopped()
    }

    /// Stops what has just begun to run, if the lease has ended.
    pub(crate) fn has_started(&self) {
        self.state().attend();
    }

    /// Starts CRIU, and returns its process id; `None` if it is to dump a command that is stopped.
    ///
    /// # Errors
    /// The operating system does not start it.
    pub(crate) fn start_criu(
        &self,
        command: &mut Command,
        work: CriuWork,
    ) -> io::Result<Option<u32>> {
        // What stops the command has to find CRIU as soon as it runs.
        let mut state = self.state();
        if work == CriuWork::Dump && !state.lease.begin_dump(since_boot()) {
            return Ok(None);
        }
        let criu = Some(command.spawn()?.id());
        (state.criu, state.is_restoring) = (criu, work == CriuWork::Restore);
        Ok(criu)
    }

    /// Takes that CRIU has ended. Returns whether the command was not stopped while it dumped.
    pub(crate) fn criu_ended(&self) -> bool {
        let mut state = self.state();
        (state.criu, state.is_restoring) = (None, false);
        let is_whole = state.lease.end_dump();
        state.attend();
        is_whole
    }
}

impl LeasedCommand for InitCommand {
    fn attend(&mut self, end: Option<Instant>) -> Instant {
        let mut state = self.state();
        if let Some(end) = end {
            state.lease.confirm(end);
        }
        state.attend()
    }
}

impl CommandState {
    /// Does what is due. Returns when to look again.
    fn attend(&mut self) -> Instant {
        match self.lease.order(since_boot()) {
            CommandOrder::Run { until } | CommandOrder::GoOn { until } => {
                // A process that was stopped before CRIU came is stopped by it again in the end.
                if self.criu.is_none() {
                    self.stopped.go_on();
                }
                until
            }
            CommandOrder::Stop => {
                let mut took = Duration::ZERO;
                if !self.is_restoring {
                    let criu = self.criu;
                    // CRIU lets no process run that it traces, and a signal would disturb it.
                    let is_left = |pid| criu.is_some_and(|criu| pid == criu || is_traced(pid));
                    took = self.stopped.stop(&children_of(std::process::id()), is_left);
                }
                CommandLease::again_at(since_boot(), took.into())
            }
        }
    }
}
