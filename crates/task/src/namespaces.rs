//! A task in namespaces of its own, whose process ids no other process has: after a restore they
//! are the ones of before.
//!
//! `unshare` makes the namespaces, and process 1 in there is `sanderling task init`. It starts the
//! task and CRIU, and reaps zombies. It has a socket to the runner; both are of one release.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::process;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::sync::{Mutex, mpsc};

use crate::inherited::send_descriptor;
use crate::lease::{LeaseEnd, LeasePipe};
use crate::own_program::own_program;

/// What the runner requests of the init process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitRequest {
    /// Start a command; its words are bytes.
    Start { words: Vec<Vec<u8>>, is_restored: bool, has_own_network: bool },
    /// Restore the task from images that are served in a directory. Its process is to have the id
    /// `root`.
    Restore {
        criu: PathBuf,
        arguments: Vec<String>,
        root: u32,
        pipes: [String; 2],
        has_own_network: bool,
    },
    /// Look for what CRIU cannot dump.
    Check { root: u32, allows_locks: bool, has_own_network: bool },
    /// Run CRIU.
    Dump { criu: PathBuf, arguments: Vec<String> },
    /// End the task.
    End { within_millis: u64 },
}

/// What the init process answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum InitReply {
    /// The task runs.
    Running { root: u32, pipes: [String; 2] },
    /// A request cannot be fulfilled.
    Refused { why: String },
    /// CRIU has ended.
    Criu { code: i32 },
    /// What CRIU cannot dump.
    Checked { is_starting: bool, problems: Vec<String> },
    /// The task has ended.
    Ended(TaskEnd),
}

/// How a task has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskEnd {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// The namespaces of a task, with their process 1.
pub(crate) struct TaskNamespaces {
    child: Child,
    handle: NamespacesHandle,
    ended: mpsc::Receiver<TaskEnd>,
    /// Until when the command may run.
    lease: LeaseEnd,
    _pipe: LeasePipe,
}

/// Requests to process 1 of namespaces.
#[derive(Clone)]
pub(crate) struct NamespacesHandle {
    /// Held for a line: the end of the task is requested while a reply is waited for.
    writer: Arc<Mutex<OwnedWriteHalf>>,
    /// Held from a request until its reply.
    replies: Arc<Mutex<mpsc::Receiver<InitReply>>>,
    /// Whether the task has a network of its own.
    pub(crate) has_own_network: bool,
}

impl TaskNamespaces {
    /// Makes the namespaces, whose command may run until the end of a lease. `environment` is added
    /// to what the task gets.
    ///
    /// # Errors
    /// They cannot be made: this process lacks the rights, or `unshare` is absent.
    pub(crate) fn open(
        environment: &[(&str, OsString)],
        has_own_network: bool,
        lease: LeaseEnd,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                Exit::Failure,
                FailureKind::Process,
                format_args!("no namespaces: {error}"),
            )
        };
        let (own, other) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        let (ends, pipe) = LeasePipe::open(lease.clone()).map_err(failed)?;
        send_descriptor(&own, ends.as_fd()).map_err(failed)?;
        // The command that dies with this process becomes `unshare`, which kills process 1.
        let mut command = own_program()?;
        let parent = std::process::id().to_string();
        command.args(["task", "child", "--parent", &parent, "--init", "--"]);
        command.args(["unshare", "--fork", "--pid", "--mount-proc"]);
        command.arg("--kill-child=KILL");
        if has_own_network {
            command.arg("--net");
        }
        // The words of process 1 follow.
        command.arg("--");
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.env_remove("SANDERLING_TASK_RESTORED");
        command.stdin(Stdio::from(OwnedFd::from(other)));
        let mut command = tokio::process::Command::from(command);
        let child = command.kill_on_drop(true).spawn().map_err(failed)?;
        own.set_nonblocking(true).map_err(failed)?;
        let (reader, writer) = UnixStream::from_std(own).map_err(failed)?.into_split();
        let (reply, replies) = mpsc::channel(8);
        let (end, ended) = mpsc::channel(1);
        tokio::spawn(read_replies(BufReader::new(reader).lines(), reply, end));
        let handle = NamespacesHandle::new(writer, replies, has_own_network);
        Ok(Self { child, handle, ended, lease, _pipe: pipe })
    }

    /// Returns what sends requests.
    pub(crate) fn handle(&self) -> NamespacesHandle {
        self.handle.clone()
    }

    /// Returns until when the command may run.
    pub(crate) fn lease(&self) -> LeaseEnd {
        self.lease.clone()
    }

    /// Returns the process id that this process sees, of the one that the namespaces have.
    pub(crate) fn outer_pid(&self, inner: u32) -> Option<u32> {
        let unshare = self.child.id()?;
        let namespace = std::fs::read_link(format!("/proc/{unshare}/ns/pid_for_children")).ok()?;
        let processes = std::fs::read_dir("/proc").ok()?.flatten();
        let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        pids.find(|pid| {
            let is_inside = std::fs::read_link(format!("/proc/{pid}/ns/pid"))
                .is_ok_and(|found| found == namespace);
            is_inside && inner_pid(*pid) == Some(inner)
        })
    }

    /// Waits until the task has ended.
    ///
    /// # Errors
    /// Process 1 of the namespaces has ended without a report, so nothing is known about the task.
    pub(crate) async fn wait(&mut self) -> Result<TaskEnd, Failure> {
        match self.ended.recv().await {
            Some(end) => Ok(end),
            None => Err(gone()),
        }
    }

    /// Ends whatever is left.
    pub(crate) async fn kill(&mut self) {
        let _ = self.child.kill().await;
    }
}

impl NamespacesHandle {
    fn new(
        writer: OwnedWriteHalf,
        replies: mpsc::Receiver<InitReply>,
        has_own_network: bool,
    ) -> Self {
        let (writer, replies) = (Arc::new(Mutex::new(writer)), Arc::new(Mutex::new(replies)));
        Self { writer, replies, has_own_network }
    }

    /// Sends a request and waits for its reply. Requests come one after the other. One whose caller
    /// is gone gets its reply too, so that the next one does not.
    ///
    /// # Errors
    /// Process 1 has ended, or refuses.
    pub(crate) async fn call(&self, request: &InitRequest) -> Result<InitReply, Failure> {
        let line = line_of(request);
        let mut replies = Arc::clone(&self.replies).lock_owned().await;
        let writer = Arc::clone(&self.writer);
        let called = tokio::spawn(async move {
            writer.lock().await.write_all(line.as_bytes()).await.ok()?;
            replies.recv().await
        });
        match called.await.ok().flatten() {
            Some(InitReply::Refused { why }) => Err(Failure::new(
                Exit::Failure,
                FailureKind::Process,
                format_args!("the task's init: {why}"),
            )),
            Some(reply) => Ok(reply),
            None => Err(gone()),
        }
    }

    /// Requests the end of the task, without waiting for other requests to be answered first, such
    /// as a dump. It has no reply of its own.
    pub(crate) async fn call_end(&self, within_millis: u64) {
        let line = line_of(&InitRequest::End { within_millis });
        // Where process 1 has ended, so has the task.
        let _ = self.writer.lock().await.write_all(line.as_bytes()).await;
    }
}

/// Returns the line of a request.
fn line_of(request: &InitRequest) -> String {
    serde_json::to_string(request).expect("a request can be encoded") + "\n"
}

/// Returns the words of a command as bytes, which JSON has no strings for.
pub(crate) fn bytes_of(words: &[OsString]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns the words from their bytes.
pub(crate) fn words_of(bytes: &[Vec<u8>]) -> VecDeque<OsString> {
    bytes.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

async fn read_replies(
    mut lines: Lines<BufReader<OwnedReadHalf>>,
    reply: mpsc::Sender<InitReply>,
    end: mpsc::Sender<TaskEnd>,
) {
    while let Ok(Some(line)) = lines.next_line().await {
        let sent = match serde_json::from_str(&line) {
            Ok(InitReply::Ended(task)) => end.send(task).await.is_ok(),
            Ok(other) => reply.send(other).await.is_ok(),
            Err(_) => false,
        };
        if !sent {
            return;
        }
    }
}

/// Returns the id of a process in the innermost of its namespaces.
fn inner_pid(pid: u32) -> Option<u32> {
    let status = process::proc_text(pid, "status");
    let ids = status.ok()?.lines().find_map(|line| line.strip_prefix("NSpid:").map(str::to_owned));
    ids?.split_ascii_whitespace().last()?.parse().ok()
}

fn gone() -> Failure {
    let cause = "process 1 of the task's namespaces has ended";
    Failure::new(Exit::Failure, FailureKind::Process, cause)
        .next("the same as root, or with --driver hook")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn call_that_is_given_up_leaves_its_reply_to_no_other() {
        let (own, _other) = UnixStream::pair().expect("a pair");
        let (_, writer) = own.into_split();
        let (sender, replies) = mpsc::channel(8);
        let namespaces = NamespacesHandle::new(writer, replies, false);
        let request = InitRequest::Check { root: 1, allows_locks: false, has_own_network: false };
        let given_up =
            tokio::time::timeout(Duration::from_millis(10), namespaces.call(&request)).await;
        assert!(given_up.is_err());
        let next = tokio::spawn({
            let namespaces = namespaces.clone();
            async move { namespaces.call(&InitRequest::End { within_millis: 1 }).await }
        });
        let problems = vec!["a terminal".to_owned()];
        sender.send(InitReply::Checked { is_starting: false, problems }).await.expect("taken");
        sender.send(InitReply::Criu { code: 7 }).await.expect("taken");
        let reply = next.await.expect("it ends").expect("a reply");
        assert!(matches!(reply, InitReply::Criu { code: 7 }), "{reply:?}");
    }

    #[tokio::test]
    async fn end_of_a_task_is_requested_while_a_dump_is_under_way() {
        let (own, other) = UnixStream::pair().expect("a pair");
        let (_, writer) = own.into_split();
        let (_sender, replies) = mpsc::channel(8);
        let namespaces = NamespacesHandle::new(writer, replies, false);
        let dump = InitRequest::Dump { criu: PathBuf::from("criu"), arguments: Vec::new() };
        let mut lines = BufReader::new(other).lines();
        let mut under_way = Box::pin(namespaces.call(&dump));
        let given_up = tokio::time::timeout(Duration::from_millis(10), &mut under_way).await;
        assert!(given_up.is_err());
        namespaces.call_end(5).await;
        for expected in ["Dump", "End"] {
            let line = lines.next_line().await.expect("read").expect("a request");
            assert!(line.contains(expected), "{line}");
        }
    }
}
