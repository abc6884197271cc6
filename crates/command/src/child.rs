//! A server of this program that a command starts, and kills.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::failure::{Exit, Failure, FailureKind};
use crate::process::POLL_INTERVAL;
use crate::ready::Ready;

/// How long a server may take to serve on a busy machine; an idle one takes well under a second.
/// After it the command fails with the end of the server's log. Chosen, not measured.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A process of this program. Dropping it kills it.
#[derive(Debug)]
pub struct ChildServer {
    name: String,
    child: Child,
    ready_file: PathBuf,
    log: PathBuf,
}

impl ChildServer {
    /// Spawns a server. It dies with the thread that spawned it, whatever becomes of that.
    ///
    /// # Errors
    /// When the log file cannot be made or the operating system starts no process: end the command
    /// with the failure, which names the file or the program.
    pub fn spawn(mut command: Command, directory: &Path, name: &str) -> Result<Self, Failure> {
        let ready_file = directory.join(format!("{name}.ready"));
        let log = directory.join(format!("{name}.log"));
        let file = std::fs::File::create(&log).map_err(|error| Failure::file(&log, error))?;
        command.args(["--exit-with-parent", "--ready-file"]).arg(&ready_file);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
        let child = child.map_err(|error| {
            let program = command.get_program().to_string_lossy();
            let cause = format!("cannot start {program}: {error}");
            Failure::new(Exit::Failure, FailureKind::Process, cause).with_source(error)
        })?;
        Ok(Self { name: name.to_owned(), child, ready_file, log })
    }

    /// Returns the name that [`Self::spawn`] was given: that of its log and ready file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its process's id. The process may have ended meanwhile.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns what it reported when it began to serve; `None` before.
    ///
    /// # Errors
    /// Failure (1) with the end of its log when it has ended: correct what the log names, then
    /// start it again.
    pub fn ready(&mut self) -> Result<Option<Ready>, Failure> {
        if let Some(ready) = Ready::read(&self.ready_file) {
            return Ok(Some(ready));
        }
        match self.child.try_wait() {
            Ok(Some(status)) => {
                let cause = format!("{} ended ({status}): {}", self.name, self.last_words());
                Err(Failure::new(Exit::Failure, FailureKind::NotStarted, cause))
            }
            _ => Ok(None),
        }
    }

    /// Waits until it serves.
    ///
    /// # Errors
    /// As [`Self::ready`]; deadline (124) when that takes too long.
    pub async fn serves(&mut self) -> Result<Ready, Failure> {
        let limit = Instant::now() + READY_TIMEOUT;
        while Instant::now() < limit {
            if let Some(ready) = self.ready()? {
                return Ok(ready);
            }
            sleep(POLL_INTERVAL).await;
        }
        let cause = format!("{} does not serve in time: {}", self.name, self.last_words());
        Err(Failure::new(Exit::Deadline, FailureKind::Deadline, cause))
    }

    /// Kills it with SIGKILL, as the cloud does.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        self.kill();
    }
}
