//! A process that ends a task's process when its runner has ended, also by `kill -9`, and stops it
//! while the lock of the task is not confirmed, as when its runner hangs.
//!
//! The kernel sends the signal of a parent's death only to a process that has kept its user: one
//! that changes it, as `setpriv` and `su` do, loses the request. This one keeps the user of the
//! runner. It has a session of its own, so that what ends the task in its terminal, or stops the
//! group of the runner's processes, leaves it alone.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Stdio;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::process::{self, RecordedProcess};
use sanderling_core::checkpoint::{CommandLease, CommandOrder};
use sanderling_protocol::Instant;
use tokio::process::{Child, Command};

use crate::boot_clock::since_boot;
use crate::lease::{LeaseEnd, LeasePipe};
use crate::lease_watch::{LeasedCommand, first_end, watch};
use crate::process_tree::StoppedProcesses;

/// A guard of one process. When this value is dropped, it kills the process, if that has not ended,
/// and those below it that it has stopped.
pub(crate) struct Guard {
    /// The guard ends when it is closed.
    _pipe: LeasePipe,
    /// It is waited for when it has ended.
    _child: Child,
}

impl Guard {
    /// Guards a child of this process, which was not waited for yet, and which may run until the
    /// end of a lease.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.3, or starts no process: the signal of the parent's death
    /// alone has to do, and nothing stops the process at the end of its lease.
    pub(crate) fn start(pid: Option<u32>, lease: LeaseEnd) -> Result<Self, Failure> {
        let failed = |error: io::Error| process_failed(&error);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        // By its number the guard could meet another process later.
        let task = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        let (ends, pipe) = LeasePipe::open(lease).map_err(failed)?;
        let mut command = process::program()?;
        command.args(["task", "guard"]);
        command.stdin(Stdio::from(ends)).stdout(Stdio::from(task)).stderr(Stdio::null());
        let child = Command::from(command).spawn().map_err(failed)?;
        Ok(Self { _pipe: pipe, _child: child })
    }
}

/// The command of a task without namespaces of its own.
struct GuardedCommand {
    lease: CommandLease,
    /// Its process, if that had not ended.
    process: Option<RecordedProcess>,
    stopped: StoppedProcesses,
}

impl LeasedCommand for GuardedCommand {
    fn attend(&mut self, end: Option<Instant>) -> Instant {
        if let Some(end) = end {
            self.lease.confirm(end);
        }
        match self.lease.order(since_boot()) {
            CommandOrder::Run { until } => until,
            CommandOrder::GoOn { until } => {
                self.stopped.go_on();
                until
            }
            CommandOrder::Stop { again_at } => {
                let process = self.process.filter(|process| process.is_running());
                self.stopped.stop(process.map(|it| it.pid).as_slice(), |_| false);
                again_at
            }
        }
    }
}

/// `task guard`: reads until when the process may run that its output names, stops it after that,
/// and kills it at the end of its input.
///
/// # Errors
/// The output is no descriptor of a process.
pub(crate) fn run() -> Result<(), Failure> {
    // It leads a group already if it was started by hand.
    let _ = setsid();
    let failed = |error: io::Error| process_failed(&error);
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let end = first_end(&input).ok().flatten();
    // Without an end it is watched in vain, until the pipe is closed.
    let lease = CommandLease::new(end.unwrap_or(Instant(u64::MAX)));
    let (process, stopped) = (process_of_output(), StoppedProcesses::default());
    let mut command = GuardedCommand { lease, process, stopped };
    if watch(&input, &mut command).is_err() {
        // It ends the process all the same when the runner has ended.
        let _ = io::copy(&mut input, &mut io::sink());
    }
    command.stopped.kill();
    // One that has ended already, and was waited for, is not found.
    match pidfd_send_signal(io::stdout().as_fd(), Signal::KILL) {
        Err(error) if error != rustix::io::Errno::SRCH => Err(failed(error.into())),
        _ => Ok(()),
    }
}

/// Returns the process that the output names; none if it has ended.
fn process_of_output() -> Option<RecordedProcess> {
    let about = format!("/proc/self/fdinfo/{}", io::stdout().as_raw_fd());
    let about = std::fs::read_to_string(about).unwrap_or_default();
    // Of a process that was waited for the number is -1.
    let pid = about.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    RecordedProcess::of(pid)
}

fn process_failed(error: &io::Error) -> Failure {
    Failure::new(
        Exit::Failure,
        FailureKind::Process,
        format_args!("the task is not guarded: {error}"),
    )
}
