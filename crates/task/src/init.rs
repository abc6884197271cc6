//! `sanderling task init`: process 1 of a task's namespaces.
//!
//! It starts the task and CRIU, copies the task's output, reaps what is left behind, and ends with
//! the task, which ends everything else in there.

use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, setsid, wait,
};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::descriptors::problems;
use crate::inherited::{keep_from_children, receive_descriptor};
use crate::init_command::{CriuWork, InitCommand};
use crate::namespaces::{InitReply, InitRequest, TaskEnd, words_of};
use crate::own_program::{self, own_program};

/// Process ids below it are left to this process and to CRIU, so that those of the task are free
/// when it is restored. The kernel leaves as many out when it begins again from the lowest.
const TASK_PIDS_FROM: u32 = 300;

/// Where the kernel has the process id that it gave out last.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// Words of the command that becomes the task's.
const STARTING: &[u8] = b"\0task\0child\0--session\0";

/// Why a request of the runner was not carried out.
#[derive(Debug, Error)]
enum InitError {
    /// It is not of the runner's release.
    #[error("a request cannot be read: {0}")]
    Unreadable(#[source] serde_json::Error),
    /// The loopback interface cannot be used.
    #[error("`ip link set lo up` ended with {status}")]
    NoLoopback {
        /// How the command ended.
        status: ExitStatus,
    },
    /// The command for that cannot be started.
    #[error("a network needs the command ip: {0}")]
    NoIp(#[source] io::Error),
    /// A dump of it would be restored so.
    #[error("the command is stopped: its lock is not confirmed")]
    Stopped,
    /// The dump is of no use.
    #[error("the command was stopped meanwhile: its lock was not confirmed")]
    StoppedMeanwhile,
    /// This program does not find itself.
    #[error("{}", .0.cause)]
    NoProgram(#[source] Box<Failure>),
    /// The operating system has refused a call.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What runs in the namespaces.
struct Init {
    writer: tokio::net::unix::OwnedWriteHalf,
    command: InitCommand,
    root: Option<u32>,
    criu: Option<u32>,
    /// The task that CRIU restores, until that has succeeded.
    restoring: Option<RestoringTask>,
    kill_at: Option<Instant>,
    copies: Vec<JoinHandle<()>>,
    has_own_network: bool,
}

/// A task while CRIU restores it.
struct RestoringTask {
    /// Its process, which has the id of before.
    root: u32,
    pipes: [String; 2],
    /// How it has ended, if it did so at once, as by a signal that was pending at its dump: before
    /// CRIU has ended, or before that was seen.
    ended: Option<WaitStatus>,
}

/// Runs process 1 to the end of its task.
///
/// # Errors
/// It was not started by `task run`.
pub(crate) fn run() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::caused(Exit::Failure, FailureKind::Process, error);
    if std::process::id() != 1 {
        let cause = "task init is process 1 of namespaces that `sanderling task run` makes";
        return Err(Failure::usage(cause));
    }
    // Its program, too, by which it was started: it is open here, and in no process of the task.
    keep_from_children().map_err(failed)?;
    // Else it would have the name of that.
    let _ = std::fs::write("/proc/self/comm", own_program::NAME);
    // A signal that stops the group of the runner's processes would stop this one, too, and leave
    // the command, which has a session of its own.
    let _ = setsid();
    let control = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let control = std::os::unix::net::UnixStream::from(control);
    let ends = receive_descriptor(&control).map_err(failed)?;
    let command = InitCommand::begin(ends).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(failed)?.block_on(async {
        control.set_nonblocking(true).map_err(failed)?;
        let (reader, writer) = UnixStream::from_std(control).map_err(failed)?.into_split();
        let mut lines = BufReader::new(reader).lines();
        let mut children = signal(SignalKind::child()).map_err(failed)?;
        let mut init = Init {
            writer,
            command,
            root: None,
            criu: None,
            restoring: None,
            kill_at: None,
            copies: Vec::new(),
            has_own_network: false,
        };
        loop {
            let kill_at = init.kill_at;
            let killing = async {
                match kill_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = lines.next_line() => match line.ok().flatten() {
                    Some(line) => init.request(&line).await,
                    // The runner is gone.
                    None => return Ok(()),
                },
                _ = children.recv() => {
                    if init.reap().await {
                        return Ok(());
                    }
                }
                () = killing => {
                    init.kill_at = None;
                    init.signal(Signal::KILL);
                }
            }
        }
    })
}

impl Init {
    async fn request(&mut self, line: &str) {
        let result = match serde_json::from_str(line) {
            Ok(InitRequest::Start { words, is_restored, has_own_network }) => {
                self.has_own_network = has_own_network;
                self.start(words_of(&words).into(), is_restored).map(Some)
            }
            Ok(InitRequest::Restore { criu, arguments, root, pipes, has_own_network }) => {
                self.has_own_network = has_own_network;
                self.restore(&criu, &arguments, root, pipes).map(|()| None)
            }
            Ok(InitRequest::Check { root, allows_locks, has_own_network }) => {
                let problems = problems(root, allows_locks, has_own_network);
                Ok(Some(InitReply::Checked { is_starting: is_starting(root), problems }))
            }
            Ok(InitRequest::Dump { criu, arguments }) => {
                self.criu(&criu, &arguments, CriuWork::Dump).map(|()| None)
            }
            Ok(InitRequest::End { within_millis }) => {
                // One that is stopped handles no signal.
                let is_stopped = self.command.is_stopped();
                self.signal(if is_stopped { Signal::KILL } else { Signal::TERM });
                self.kill_at = Some(Instant::now() + Duration::from_millis(within_millis));
                Ok(None)
            }
            Err(error) => Err(InitError::Unreadable(error)),
        };
        match result {
            Ok(None) => {}
            Ok(Some(reply)) => self.reply(&reply).await,
            Err(error) => self.reply(&InitReply::Refused { why: error.to_string() }).await,
        }
    }

    async fn reply(&mut self, reply: &InitReply) {
        let line = serde_json::to_string(reply).expect("a reply can be encoded") + "\n";
        // Without a runner this process ends when it reads the next request.
        let _ = self.writer.write_all(line.as_bytes()).await;
    }

    fn start(&mut self, words: Vec<OsString>, is_restored: bool) -> Result<InitReply, InitError> {
        self.prepare_network()?;
        std::fs::write(LAST_PID, (TASK_PIDS_FROM - 1).to_string())?;
        let [out, err] = self.pipes()?;
        let pipes = [name_of(&out)?, name_of(&err)?];
        let program = own_program();
        let mut command = program.map_err(|failure| InitError::NoProgram(Box::new(failure)))?;
        command.args(["task", "child", "--session", "--"]).args(words);
        if is_restored {
            command.env("SANDERLING_TASK_RESTORED", "1");
        }
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn()?;
        self.root = Some(child.id());
        self.command.has_started();
        Ok(InitReply::Running { root: child.id(), pipes })
    }

    fn restore(
        &mut self,
        criu: &Path,
        arguments: &[String],
        root: u32,
        was: [String; 2],
    ) -> Result<(), InitError> {
        self.prepare_network()?;
        let [out, err] = self.pipes()?;
        let mut arguments = arguments.to_vec();
        for (pipe, was) in [(&out, &was[0]), (&err, &was[1])] {
            // CRIU gets it under the same number.
            fcntl_setfd(pipe, FdFlags::empty()).map_err(io::Error::from)?;
            arguments.extend(["--inherit-fd".into(), format!("fd[{}]:{was}", pipe.as_raw_fd())]);
        }
        let pipes = [name_of(&out)?, name_of(&err)?];
        self.restoring = Some(RestoringTask { root, pipes, ended: None });
        self.criu(criu, &arguments, CriuWork::Restore)
    }

    fn criu(&mut self, criu: &Path, arguments: &[String], work: CriuWork) -> Result<(), InitError> {
        let mut command = Command::new(criu);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = self.command.start_criu(&mut command, work)?;
        self.criu = Some(started.ok_or(InitError::Stopped)?);
        Ok(())
    }

    /// Makes the pipes for the task's output, and copies what comes from them.
    fn pipes(&mut self) -> io::Result<[PipeWriter; 2]> {
        let (out_reader, out) = io::pipe()?;
        let (err_reader, err) = io::pipe()?;
        self.copies.push(std::thread::spawn(|| copy(out_reader, io::stdout())));
        self.copies.push(std::thread::spawn(|| copy(err_reader, io::stderr())));
        Ok([out, err])
    }

    fn prepare_network(&self) -> Result<(), InitError> {
        if !self.has_own_network {
            return Ok(());
        }
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        match up {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(InitError::NoLoopback { status }),
            Err(error) => Err(InitError::NoIp(error)),
        }
    }

    fn signal(&self, signal: Signal) {
        let root = self.root.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(root) = root {
            // It may end just now.
            let _ = kill_process(root, signal);
        }
    }

    /// Reaps all children that have ended; returns whether the task is one of them.
    async fn reap(&mut self) -> bool {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            let mut ended = (Some(pid) == self.root).then_some(status);
            if Some(pid) == self.criu {
                self.criu = None;
                ended = self.criu_ended(status).await;
            } else if let Some(restoring) = self.restoring.as_mut().filter(|it| it.root == pid) {
                restoring.ended = Some(status);
            }
            if let Some(status) = ended {
                self.drain().await;
                let (code, signal) = (status.exit_status(), status.terminating_signal());
                self.reply(&InitReply::Ended(TaskEnd { code, signal })).await;
                return true;
            }
        }
        false
    }

    /// Takes the end of CRIU. Returns how a task has ended that was restored, if it has already.
    async fn criu_ended(&mut self, status: WaitStatus) -> Option<WaitStatus> {
        let code = status.exit_status().unwrap_or(-1);
        let is_whole = self.command.criu_ended();
        let Some(RestoringTask { root, pipes, ended }) = self.restoring.take() else {
            let why = InitError::StoppedMeanwhile.to_string();
            let is_refused = code == 0 && !is_whole;
            let dumped = InitReply::Criu { code };
            self.reply(&if is_refused { InitReply::Refused { why } } else { dumped }).await;
            return None;
        };
        let is_restored = ended.is_some() || pids().contains(&root);
        if code != 0 || !is_restored {
            self.reply(&InitReply::Criu { code: if code == 0 { -1 } else { code } }).await;
            return None;
        }
        self.root = Some(root);
        // New processes of the task get ids that CRIU does not take at the next restore.
        let last = pids().into_iter().max().unwrap_or(0).max(TASK_PIDS_FROM - 1);
        let _ = std::fs::write(LAST_PID, last.to_string());
        self.reply(&InitReply::Running { root, pipes }).await;
        ended
    }

    /// Ends what the task left behind, and waits until all of its output is copied.
    async fn drain(&mut self) {
        // All other processes of the namespace at once: `kill(-1, SIGKILL)`. One that is begun
        // meanwhile gets the signal too, or is not begun.
        let _ = kill_process_group(Pid::INIT, Signal::KILL);
        let copies = std::mem::take(&mut self.copies);
        let joined = tokio::task::spawn_blocking(|| {
            copies.into_iter().for_each(|copy| drop(copy.join()));
        });
        // Nothing holds the other ends any more. A slow reader of the task's output gets all of it.
        let _ = joined.await;
    }
}

/// Returns whether a process is still the program that becomes the task's command.
fn is_starting(root: u32) -> bool {
    let words = std::fs::read(format!("/proc/{root}/cmdline")).unwrap_or_default();
    words.windows(STARTING.len()).any(|part| part == STARTING)
}

fn copy(mut from: PipeReader, mut to: impl Write) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(bytes) = from.read(&mut buffer) {
        // A reader of this output that has gone does not end the task.
        if bytes == 0 {
            return;
        }
        let _ = to.write_all(&buffer[..bytes]).and_then(|()| to.flush());
    }
}

/// Returns the name of a pipe, as `/proc` and CRIU have it.
fn name_of(pipe: &PipeWriter) -> io::Result<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", pipe.as_raw_fd()))?;
    Ok(link.to_string_lossy().into_owned())
}

/// Returns the ids of all processes in here.
pub(crate) fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn refused_request_keeps_its_cause() {
        let fault = serde_json::from_str::<InitRequest>("{").unwrap_err();
        let text = format!("a request cannot be read: {fault}");
        let error = InitError::Unreadable(fault);
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_some_and(|cause| cause.is::<serde_json::Error>()));
    }
}
