//! A task's process: how it is started, waited for and ended.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::output::Output;
use tokio::process::Child;
use tokio::time::timeout;

use crate::driver::TaskHandle;
use crate::guard::Guard;
use crate::lease::LeaseEnd;
use crate::namespaces::{
    InitReply, InitRequest, NamespacesHandle, TaskEnd, TaskNamespaces, bytes_of,
};
use crate::own_program::own_program;

/// How long an interrupted task may take to end after its SIGTERM. Half of what Docker leaves a
/// container (`docker stop`, 10 s), so that a runner in one still gives the task's lock back.
pub(crate) const END_WITHIN: Duration = Duration::from_secs(5);

/// The same of a task that another runner has taken: both run meanwhile.
pub(crate) const TAKEN_END_WITHIN: Duration = Duration::from_millis(1500);

/// The same after a second signal. The runner then has half of the 2 s that are left for the lock.
pub(crate) const HURRIED_END_WITHIN: Duration = Duration::from_secs(1);

/// The process of a task.
pub(crate) enum RunningTask {
    /// It is a child of this process.
    Direct(Box<GuardedChild>),
    /// It has namespaces of its own.
    InNamespaces(Box<TaskNamespaces>, TaskHandle),
}

/// A child of this process, which has a guard where that can be had.
pub(crate) struct GuardedChild {
    process: Child,
    /// Until when it may run: without a guard nothing stops it.
    lease: LeaseEnd,
    _guard: Option<Guard>,
}

/// What a task learns from its environment.
pub(crate) struct TaskEnvironment<'a> {
    pub(crate) state: &'a Path,
    pub(crate) task: &'a str,
    /// Its number in its bag.
    pub(crate) number: Option<u32>,
}

impl TaskEnvironment<'_> {
    pub(crate) fn variables(&self) -> Result<Vec<(&'static str, OsString)>, Failure> {
        let state = std::path::absolute(self.state);
        let state = state.map_err(|error| Failure::file(self.state, error))?;
        let mut variables = vec![
            ("SANDERLING_TASK_STATE", state.into_os_string()),
            ("SANDERLING_TASK_NAME", self.task.into()),
        ];
        let number = self.number.map(|number| OsString::from(number.to_string()));
        variables.extend(number.map(|number| ("SANDERLING_TASK_NUMBER", number)));
        Ok(variables)
    }
}

impl RunningTask {
    /// Starts a command as a child, which may run until the end of a lease. Prints why nothing
    /// stops it after that, if it has no guard.
    ///
    /// # Errors
    /// The operating system starts no process.
    pub(crate) fn start(
        environment: &TaskEnvironment<'_>,
        words: &[OsString],
        is_restored: bool,
        lease: LeaseEnd,
        output: Output,
    ) -> Result<Self, Failure> {
        let mut command = own_program()?;
        let own = std::process::id().to_string();
        command.args(["task", "child", "--parent", &own, "--"]).args(words);
        command.envs(environment.variables()?);
        command.env_remove("SANDERLING_TASK_RESTORED");
        if is_restored {
            command.env("SANDERLING_TASK_RESTORED", "1");
        }
        let mut command = tokio::process::Command::from(command);
        let process = command.kill_on_drop(true).spawn().map_err(|error| {
            Failure::new(
                Exit::Failure,
                FailureKind::Process,
                format_args!("cannot start the task: {error}"),
            )
        })?;
        let (guard, lease) = match Guard::start(process.id(), lease.clone(), output) {
            Ok(guard) => (Some(guard), lease),
            Err(failure) => {
                let cause = &failure.cause;
                output
                    .note(format_args!("the command is not stopped if the lock is lost: {cause}"));
                (None, LeaseEnd::never())
            }
        };
        Ok(Self::Direct(Box::new(GuardedChild { process, lease, _guard: guard })))
    }

    /// Starts a command in namespaces; returns its process id in there, and its pipes.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) async fn start_in(
        namespaces: &NamespacesHandle,
        words: &[OsString],
        is_restored: bool,
    ) -> Result<(u32, [String; 2]), Failure> {
        let has_own_network = namespaces.has_own_network;
        let words = bytes_of(words);
        match namespaces.call(&InitRequest::Start { words, is_restored, has_own_network }).await? {
            InitReply::Running { root, pipes } => Ok((root, pipes)),
            _ => Err(Failure::new(Exit::Failure, FailureKind::Process, "the task was not started")),
        }
    }

    /// Returns the task that runs in namespaces with that process id.
    pub(crate) fn in_namespaces(namespaces: TaskNamespaces, root: u32) -> Self {
        let pid = namespaces.outer_pid(root).unwrap_or_default();
        let lease = namespaces.lease();
        let handle = TaskHandle { pid, namespaces: Some(namespaces.handle()), lease };
        Self::InNamespaces(Box::new(namespaces), handle)
    }

    /// Returns how drivers reach it.
    pub(crate) fn handle(&self) -> TaskHandle {
        match self {
            Self::Direct(child) => TaskHandle {
                pid: child.process.id().unwrap_or_default(),
                namespaces: None,
                lease: child.lease.clone(),
            },
            Self::InNamespaces(_, handle) => handle.clone(),
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Nothing is known about its end.
    pub(crate) async fn wait(&mut self) -> Result<TaskEnd, Failure> {
        match self {
            Self::Direct(child) => {
                let status = child.process.wait().await;
                let status = status
                    .map_err(|error| Failure::caused(Exit::Failure, FailureKind::Process, error))?;
                Ok(TaskEnd { code: status.code(), signal: status.signal() })
            }
            Self::InNamespaces(namespaces, _) => namespaces.wait().await,
        }
    }

    /// Ends it: SIGTERM, and SIGKILL if that is not enough after so long. One that is stopped, as
    /// its lock is not confirmed, handles no signal, and gets SIGKILL at once.
    pub(crate) async fn end(&mut self, within: Duration) {
        match self {
            Self::Direct(child) => {
                let within = if child.lease.is_over() { Duration::ZERO } else { within };
                let child = &mut child.process;
                let pid =
                    child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
                if let Some(pid) = pid {
                    let _ = kill_process(pid, Signal::TERM);
                }
                if timeout(within, child.wait()).await.is_err() {
                    let _ = child.kill().await;
                }
            }
            Self::InNamespaces(namespaces, handle) => {
                if let Some(handle) = &handle.namespaces {
                    let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
                    handle.call_end(millis).await;
                }
                let _ = timeout(within, namespaces.wait()).await;
                namespaces.kill().await;
            }
        }
    }
}
