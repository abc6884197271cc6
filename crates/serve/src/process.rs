//! A server as a process: its files, its signals, and why it does not start.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::{refused, units};
use sanderling_transport::CallError;
use tokio::signal::unix::{SignalKind, signal};

/// What ends a server from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// SIGTERM: leave in order.
    Term,
    /// SIGINT: leave at once.
    Interrupt,
}

/// Keeps what this process makes from other users of the machine: from here on its files are for
/// its user alone. It must be called before the process has threads.
pub(super) fn keep_private() {
    let _ = umask(Mode::RWXG | Mode::RWXO);
}

/// Closes a directory with the store's bytes to other users, if it is there and open to them: an
/// older release made it, or an operator with `mkdir`. One that is neither empty nor has a file
/// whose name begins with one of `ours` is left as it is: the server will not use it. So is one of
/// another user, as a volume that is shared with a group; files in it are the server's alone.
///
/// # Errors
/// It cannot be read.
pub(super) fn close_to_others(directory: &Path, ours: &[&str]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::file(directory, error);
    let found = match std::fs::metadata(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let mode = found.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    let is_ours = |name: &String| ours.iter().any(|start| name.starts_with(start));
    if !names.is_empty() && !names.iter().any(is_ours) {
        return Ok(());
    }
    let shown = directory.display();
    if found.uid() != geteuid().as_raw() {
        tracing::info!(directory = %shown, "this directory of another user is left as it is");
        return Ok(());
    }
    let closed = std::fs::Permissions::from_mode(mode & 0o700);
    std::fs::set_permissions(directory, closed).map_err(failed)?;
    tracing::warn!(directory = %shown, "others could read this directory: its mode is 0700 now");
    Ok(())
}

/// SIGTERMs within this time are one: `timeout` of coreutils, for example, sends it to the process
/// and then to its group, and the process would end with its data. Chosen, not measured: a person
/// signals again later than that.
const SAME_TERM: Duration = Duration::from_secs(3);

/// The signals that end a server.
pub(super) struct Signals {
    term: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Failure> {
        let failed = |error| Failure::caused(Exit::Failure, FailureKind::Process, error);
        Ok(Self {
            term: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    pub(super) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.term.recv() => Stop::Term,
            _ = self.interrupt.recv() => Stop::Interrupt,
        }
    }

    /// Waits for a signal that follows a SIGTERM which has just come.
    pub(super) async fn again(&mut self) {
        let since = tokio::time::Instant::now();
        while self.next().await == Stop::Term && since.elapsed() < SAME_TERM {}
    }
}

/// Describes why a server does not start.
pub(super) fn not_started(role: &str, error: impl std::fmt::Display, next: &str) -> Failure {
    let cause = format!("the {role} does not start: {error}");
    Failure::new(Exit::Failure, FailureKind::NotStarted, cause)
        .tried("its start, which served no request")
        .next(next)
}

/// Returns the exit code of a start that a call has ended: unavailable (4) where the same start may
/// succeed later.
pub(super) fn exit_of(cause: &CallError) -> Exit {
    match refused::call(cause).exit {
        // The limit was the server's own, and no `--timeout`.
        Exit::Deadline => Exit::Unavailable,
        exit => exit,
    }
}

/// Waits until a server serves, for as long as `--timeout` allows.
///
/// # Errors
/// Deadline (124): it does not serve in time.
pub(super) async fn within<F: Future>(
    limit: Option<Duration>,
    role: &str,
    start: F,
) -> Result<F::Output, Failure> {
    let Some(limit) = limit else { return Ok(start.await) };
    tokio::time::timeout(limit, start).await.map_err(|_| {
        let cause = format!("the {role} does not serve within {}", units::duration(limit));
        Failure::new(Exit::Deadline, FailureKind::Deadline, cause)
            .tried("its start, which --timeout bounds, not what it does then")
            .next("sanderling doctor, or the same with a longer --timeout")
    })
}

/// Returns the memory of the machine, or of the control group if that has less.
pub(super) fn machine_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    let number = |path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let second = number("/sys/fs/cgroup/memory.max");
    let first = number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    let group = second.or(first).unwrap_or(u64::MAX);
    Some((kibibytes * 1024).min(group))
}

/// Returns the settings of an object store that the environment has.
pub(super) fn object_settings() -> Vec<(String, String)> {
    let is_setting = |(name, _): &(String, String)| name.starts_with("AWS_");
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).filter(is_setting).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use sanderling_protocol::Refusal;

    use super::*;

    #[test]
    fn start_without_the_other_server_may_be_tried_again() {
        let (address, waited) = ("127.0.0.1:1".to_owned(), Duration::from_secs(3));
        let refused = CallError::unreachable(&address, io::ErrorKind::ConnectionRefused.into());
        let late = CallError::TimedOut { address, waited };
        let no_leader = CallError::Refused(Refusal::NotLeader { leader: None });
        for cause in [refused, late, no_leader] {
            assert_eq!(exit_of(&cause), Exit::Unavailable, "{cause}");
        }
        let unauthenticated = Refusal::Unauthenticated { why: "a token is needed here".to_owned() };
        assert_eq!(exit_of(&CallError::Refused(unauthenticated)), Exit::Failure);
    }
}
