//! How the state of a running task becomes a generation: the interface of the drivers.

use std::path::{Path, PathBuf};

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::DriverRecord;
use tokio::time::Instant;

use crate::criu::CriuDump;
use crate::lease::LeaseEnd;
use crate::namespaces::NamespacesHandle;
use crate::pack_writer::PackWriter;
use crate::state::read_chunks;

/// Gets the state of a running task.
pub(crate) trait CheckpointDriver {
    /// What it returns.
    type State: CapturedState;

    /// Gets the state of a task, or begins to; `None` if the task cannot give it yet. `prepare` is
    /// what a dump needs of the backend, which may take long to answer: it is waited for while the
    /// task does not stand still, and not at all if there is no state.
    ///
    /// # Errors
    /// There is no checkpoint this time. The task goes on.
    async fn capture<P>(
        &self,
        task: &TaskHandle,
        prepare: impl Future<Output = Result<P, Failure>>,
    ) -> Result<Option<(Self::State, P)>, Failure>;
}

/// The state of a task at one moment, as a stream.
pub(crate) trait CapturedState: Send + 'static {
    /// Writes the whole stream, on a thread that may block.
    ///
    /// # Errors
    /// The state cannot be read: there is no checkpoint.
    fn read(self, writer: &mut PackWriter) -> Result<ReadState, Failure>;
}

/// A state that was read.
pub(crate) struct ReadState {
    pub(crate) driver: DriverRecord,
    /// When the task could go on, at the latest.
    pub(crate) free_at: Instant,
}

/// A running task, as drivers reach it.
#[derive(Clone)]
pub(crate) struct TaskHandle {
    /// Its process id, as this process sees it.
    pub(crate) pid: u32,
    /// Its namespaces, if it has its own.
    pub(crate) namespaces: Option<NamespacesHandle>,
    /// Until when it may run.
    pub(crate) lease: LeaseEnd,
}

/// A state that lies in a directory and stays as it is.
pub(crate) struct DirectoryState(pub(crate) PathBuf);

/// The state of one of the drivers.
pub(crate) enum Captured {
    Directory(DirectoryState),
    Images(CriuDump),
}

impl CapturedState for DirectoryState {
    fn read(self, writer: &mut PackWriter) -> Result<ReadState, Failure> {
        read_chunks(&self.0, writer)?;
        Ok(ReadState { driver: DriverRecord::Hook, free_at: Instant::now() })
    }
}

impl CapturedState for Captured {
    fn read(self, writer: &mut PackWriter) -> Result<ReadState, Failure> {
        match self {
            Self::Directory(state) => state.read(writer),
            Self::Images(dump) => dump.read(writer),
        }
    }
}

impl TaskHandle {
    /// Refuses a dump of a task that is stopped: it answers no signal, and would be restored so.
    ///
    /// # Errors
    /// Its lock is not confirmed.
    pub(crate) fn expect_running(&self) -> Result<(), Failure> {
        if !self.lease.is_over() {
            return Ok(());
        }
        let cause = "the command is stopped: its lock is not confirmed";
        Err(Failure::new(Exit::Unavailable, FailureKind::TaskBackend, cause))
    }

    /// Returns the memory that all processes of the task have in use.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let mut total = 0;
        let mut waiting = vec![self.pid];
        while let Some(pid) = waiting.pop() {
            let process = PathBuf::from(format!("/proc/{pid}"));
            total += resident_of(&process);
            let tasks = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
            for task in tasks {
                let children =
                    std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
                let children = children.split_ascii_whitespace();
                waiting.extend(children.filter_map(|it| it.parse::<u32>().ok()));
            }
        }
        total
    }
}

fn resident_of(process: &Path) -> u64 {
    // Its name may be none in UTF-8.
    let status = std::fs::read(process.join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kibibytes.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
