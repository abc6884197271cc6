//! The hook driver: the task writes its state into a directory when it gets a signal.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sanderling_cli_common::failure::{Exit, Failure};
use sanderling_cli_common::process::LOOK_EVERY;
use sanderling_cli_common::units;
use tokio::time::{Instant, sleep};

use crate::driver::{CheckpointDriver, DirectoryState, TaskHandle};
use crate::state::DONE;

/// The number of SIGUSR1 among the bits of `/proc/PID/status`.
const USR1_BIT: u32 = 9;

/// The task writes its state itself when it gets SIGUSR1.
pub(crate) struct Hook {
    pub(crate) state: PathBuf,
    pub(crate) within: Duration,
}

impl CheckpointDriver for Hook {
    type State = DirectoryState;

    /// Requests the state of a process, and waits until it is there.
    async fn capture(&self, task: &TaskHandle) -> Result<Option<DirectoryState>, Failure> {
        let pid = task.pid;
        // The signal ends a process that does not handle it.
        if !handles_usr1(pid) {
            return Ok(None);
        }
        let done = self.state.join(DONE);
        match std::fs::remove_file(&done) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::file(&done, &error));
            }
            _ => {}
        }
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let sent = process.map(|process| kill_process(process, Signal::USR1));
        if !matches!(sent, Some(Ok(()))) {
            return Ok(None);
        }
        let until = Instant::now() + self.within;
        while !done.exists() {
            if Instant::now() >= until {
                let within = units::duration(self.within);
                let cause = format!("the task did not write {} within {within}", done.display());
                return Err(Failure::new(Exit::Failure, "HookTimeout", cause));
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(Some(DirectoryState(self.state.clone())))
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
    use super::*;

    #[test]
    fn process_without_a_handler_is_not_signalled() {
        assert!(!handles_usr1(std::process::id()));
        assert!(!handles_usr1(0));
    }
}
