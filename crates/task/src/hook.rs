//! The hook driver: the task writes its state into a directory when it gets a signal.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::process::{LOOK_EVERY, RecordedProcess};
use sanderling_command::units;
use tokio::time::{Instant, sleep};

use crate::driver::{CheckpointDriver, DirectoryState, TaskHandle};
use crate::state::DONE;

/// The number of SIGUSR1 among the bits of `/proc/PID/status`.
const USR1_BIT: u32 = 9;

/// The task writes its state itself when it gets SIGUSR1.
pub(crate) struct Hook {
    state: PathBuf,
    within: Duration,
    /// A signal was sent, and its state is not there yet.
    is_due: AtomicBool,
}

impl Hook {
    pub(crate) fn new(state: &Path, within: Duration) -> Self {
        Self { state: state.to_owned(), within, is_due: AtomicBool::new(false) }
    }

    /// Sends the signal; returns whether it was sent.
    fn request(&self, pid: u32, done: &Path) -> Result<bool, Failure> {
        match std::fs::remove_file(done) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::file(done, error));
            }
            _ => {}
        }
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let sent = process.map(|process| kill_process(process, Signal::USR1));
        Ok(matches!(sent, Some(Ok(()))))
    }
}

impl CheckpointDriver for Hook {
    type State = DirectoryState;

    /// Requests the state of a process, and waits until it is there.
    async fn capture<P>(
        &self,
        task: &TaskHandle,
        prepare: impl Future<Output = Result<P, Failure>>,
    ) -> Result<Option<(DirectoryState, P)>, Failure> {
        let pid = task.pid;
        // The signal ends a process that does not handle it.
        if !handles_usr1(pid) {
            return Ok(None);
        }
        let done = self.state.join(DONE);
        // A task that writes longer than it may, or whose checkpoint was given up, creates `done`
        // for the signal before. A second one would let it write again while its state is read.
        let was_due = self.is_due.load(Ordering::Acquire);
        if !was_due {
            if !self.request(pid, &done)? {
                return Ok(None);
            }
            self.is_due.store(true, Ordering::Release);
        }
        let until = Instant::now() + self.within;
        let process = RecordedProcess::of(pid);
        while !done.exists() {
            if !process.is_some_and(RecordedProcess::is_running) {
                let cause = format!("the task has ended before it wrote {}", done.display());
                return Err(Failure::new(Exit::Failure, FailureKind::HookEnded, cause));
            }
            if Instant::now() >= until {
                // After twice the time the signal is taken for lost.
                self.is_due.store(!was_due, Ordering::Release);
                let within = units::duration(self.within);
                let cause = format!("the task did not write {} within {within}", done.display());
                return Err(Failure::new(Exit::Failure, FailureKind::HookTimeout, cause));
            }
            sleep(LOOK_EVERY).await;
        }
        self.is_due.store(false, Ordering::Release);
        Ok(Some((DirectoryState(self.state.clone()), prepare.await?)))
    }
}

/// Returns whether a process handles SIGUSR1, which would end it otherwise.
pub(crate) fn handles_usr1(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    caught.is_some_and(|bits| bits >> USR1_BIT & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn process_that_has_ended_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let script = "trap 'exit 0' USR1; while :; do sleep 0.01; done";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        while !handles_usr1(child.id()) {
            sleep(LOOK_EVERY).await;
        }
        let hook = Hook::new(place.path(), Duration::from_secs(3600));
        let task = TaskHandle { pid: child.id(), cell: None };
        let captured = hook.capture(&task, async { Ok(()) }).await;
        assert_eq!(captured.map(|_| ()).unwrap_err().kind, FailureKind::HookEnded);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn process_without_a_handler_is_not_signalled() {
        assert!(!handles_usr1(std::process::id()));
        assert!(!handles_usr1(0));
    }
}
