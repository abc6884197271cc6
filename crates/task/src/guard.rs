//! A process that ends a task's process when its runner has ended, also by `kill -9`, and stops it
//! while the lock of the task is not confirmed, as when its runner hangs.
//!
//! The kernel sends the signal of a parent's death only to a process that has kept its user: one
//! that changes it, as `setpriv` and `su` do, loses the request. This one keeps the user of the
//! runner. It has a session of its own, so that what ends the task in its terminal, or stops the
//! group of the runner's processes, leaves it alone. It ignores the signals by which a supervisor
//! ends all processes of a service: without it a command that is stopped would go on by the SIGCONT
//! after them. If it is killed all the same, the runner starts another one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::output::Output;
use sanderling_command::process::RecordedProcess;
use sanderling_command::units;
use sanderling_core::checkpoint::{CommandLease, CommandOrder};
use sanderling_protocol::Instant;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::boot_clock::since_boot;
use crate::ignored_signals::ignore_ends;
use crate::lease::{LeaseEnd, LeasePipe};
use crate::lease_watch::{LeasedCommand, first_end, watch};
use crate::own_program::{self, own_program};
use crate::process_tree::StoppedProcesses;

/// Pause before a guard that has ended is replaced, or is tried to be. Chosen, not measured.
const REPLACED_AFTER: Duration = Duration::from_millis(100);

/// The flag of a guard before which there was another one. A command that has just been started may
/// have stopped processes of its own, which are not the first guard's.
pub(crate) const REPLACES: &str = "--replaces";

/// A guard of one process. When this value is dropped, it kills the process, if that has not ended,
/// and those below it that it has stopped.
pub(crate) struct Guard(JoinHandle<()>);

/// A process that guards another one.
struct GuardProcess {
    /// It ends when this is closed.
    _pipe: LeasePipe,
    child: Child,
}

impl Guard {
    /// Guards a child of this process, which was not waited for yet, and which may run until the
    /// end of a lease. Prints when it has no guard, also at first, and when it has one again.
    ///
    /// # Errors
    /// The kernel names no process by a descriptor, as before Linux 5.3: the signal of the parent's
    /// death alone has to do, and nothing stops the process at the end of its lease.
    pub(crate) fn start(
        pid: Option<u32>,
        lease: LeaseEnd,
        output: Output,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| process_failed(&error);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        // By its number the guard could meet another process later.
        let task = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        let first = GuardProcess::start(&task, lease.clone(), None);
        Ok(Self(tokio::spawn(replaced(first, task, lease, output))))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The pipe is closed.
        self.0.abort();
    }
}

impl GuardProcess {
    /// Starts one, with the flag of one that replaces another.
    fn start(task: &OwnedFd, lease: LeaseEnd, flag: Option<&str>) -> Result<Self, Failure> {
        let failed = |error: io::Error| process_failed(&error);
        let task = task.try_clone().map_err(failed)?;
        let (ends, pipe) = LeasePipe::open(lease).map_err(failed)?;
        let mut command = own_program()?;
        command.args(["task", "guard"]).args(flag);
        command.stdin(Stdio::from(ends)).stdout(Stdio::from(task)).stderr(Stdio::null());
        let child = Command::from(command).spawn().map_err(failed)?;
        Ok(Self { _pipe: pipe, child })
    }
}

/// Starts another guard each time one has ended although its pipe is open, as by `kill -9`, and
/// where none could be started, the first one included. Prints once that none can be, until one is.
async fn replaced(
    mut next: Result<GuardProcess, Failure>,
    task: OwnedFd,
    lease: LeaseEnd,
    output: Output,
) {
    let (mut is_missing, mut flag) = (false, None);
    loop {
        match next {
            Ok(mut guard) => {
                if is_missing {
                    output.note("the command is stopped again if the lock is lost");
                }
                // Only now there was one that may have stopped processes.
                (is_missing, flag) = (false, Some(REPLACES));
                let _ = guard.child.wait().await;
            }
            Err(failure) => {
                if !is_missing {
                    let (cause, pause) = (&failure.cause, units::duration(REPLACED_AFTER));
                    output.note(format_args!(
                        "the command is not stopped if the lock is lost: {cause}. Another guard is \
                         tried every {pause}. If none starts, make room for processes, or end this \
                         runner and start it again"
                    ));
                }
                is_missing = true;
            }
        }
        sleep(REPLACED_AFTER).await;
        next = GuardProcess::start(&task, lease.clone(), flag);
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
            // Also at the first look: a guard before this one may have stopped it.
            CommandOrder::Run { until } | CommandOrder::GoOn { until } => {
                self.stopped.go_on();
                until
            }
            CommandOrder::Stop => {
                let process = self.process.filter(|process| process.is_running());
                let took = self.stopped.stop(process.map(|it| it.pid).as_slice(), |_| false);
                CommandLease::again_at(since_boot(), took.into())
            }
        }
    }
}

/// `task guard`: reads until when the process may run that its output names, stops it after that,
/// and kills it at the end of its input. One that `replaces` another lets go on what that has
/// stopped.
///
/// # Errors
/// The output is no descriptor of a process.
pub(crate) fn run(replaces: bool) -> Result<(), Failure> {
    ignore_ends();
    // Else it would have the name of the link by which it was started.
    let _ = std::fs::write("/proc/self/comm", own_program::NAME);
    // It leads a group already if it was started by hand.
    let _ = setsid();
    let failed = |error: io::Error| process_failed(&error);
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let end = first_end(&input).ok().flatten();
    // Without an end it is watched in vain, until the pipe is closed.
    let lease = CommandLease::new(end.unwrap_or(Instant(u64::MAX)));
    let process = process_of_output();
    let stopped = match replaces {
        true => StoppedProcesses::found(process.map(|it| it.pid).as_slice()),
        false => StoppedProcesses::default(),
    };
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
