//! A process that ends a task's process when its runner has ended, also by `kill -9`.
//!
//! The kernel sends the signal of a parent's death only to a process that has kept its user: one
//! that changes it, as `setpriv` and `su` do, loses the request. This one keeps the user of the
//! runner. It has a session of its own, so that what ends the task in its terminal leaves it alone.

use std::fs::File;
use std::io::{self, PipeWriter, Read, pipe};
use std::os::fd::AsFd;
use std::process::Stdio;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::process;
use tokio::process::{Child, Command};

/// A guard of one process, which ends with this value without a signal to that process.
pub(crate) struct Guard {
    _child: Child,
    /// Nothing is written: the guard reads its end when this process has ended.
    _pipe: PipeWriter,
}

impl Guard {
    /// Guards a child of this process, which was not waited for yet.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.3, or starts no process: the signal of the parent's death
    /// alone has to do.
    pub(crate) fn start(pid: Option<u32>) -> Result<Self, Failure> {
        let failed = |error: io::Error| process_failed(&error);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        // By its number the guard could meet another process later.
        let task = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        let (end, own) = pipe().map_err(failed)?;
        let mut command = process::program()?;
        command.args(["task", "guard"]);
        command.stdin(Stdio::from(end)).stdout(Stdio::from(task)).stderr(Stdio::null());
        let child = Command::from(command).kill_on_drop(true).spawn().map_err(failed)?;
        Ok(Self { _child: child, _pipe: own })
    }
}

/// `task guard`: waits for the end of its input, and kills the process that its output names.
///
/// # Errors
/// The output is no descriptor of a process.
pub(crate) fn run() -> Result<(), Failure> {
    // It leads a group already if it was started by hand.
    let _ = setsid();
    let failed = |error: io::Error| process_failed(&error);
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(0) => break,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
            _ => {}
        }
    }
    // One that has ended already, and was waited for, is not found.
    match pidfd_send_signal(io::stdout().as_fd(), Signal::KILL) {
        Err(error) if error != rustix::io::Errno::SRCH => Err(failed(error.into())),
        _ => Ok(()),
    }
}

fn process_failed(error: &io::Error) -> Failure {
    Failure::new(
        Exit::Failure,
        FailureKind::Process,
        format_args!("the task is not guarded: {error}"),
    )
}
