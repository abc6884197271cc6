//! The namenode's process, seen from outside.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::child::ChildServer;
use crate::failure::{Exit, Failure, FailureKind};
use crate::process::program;

use super::requests::failed;

/// How long the largest catalog may take to be read at a start: 0.7 to 2.3 s for each million
/// objects (docs/SCALE.md), so a hundred million have enough.
const READY_TIMEOUT: Duration = Duration::from_secs(300);

/// Ticks of a second in `/proc`: `USER_HZ` of proc(5), the same on every Linux machine.
const TICKS_PER_SECOND: u64 = 100;

/// Processor time, counted in two ways.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cpu {
    /// Of the threads that run, to the nanosecond.
    threads: Duration,
    /// Of the whole process, those that have ended included, to the hundredth of a second.
    process: Duration,
}

impl Cpu {
    /// Returns the time since an earlier look: by the threads, unless some have ended since.
    pub(super) fn since(self, before: Self) -> Duration {
        let threads = self.threads.saturating_sub(before.threads);
        let process = self.process.saturating_sub(before.process);
        let resolution = Duration::from_millis(2 * 1000 / TICKS_PER_SECOND);
        if process > threads + resolution { process } else { threads }
    }

    /// Returns the time since the process began.
    pub(super) fn whole(self) -> Duration {
        self.process.max(self.threads)
    }
}

/// A running namenode. Dropping it kills it.
pub(super) struct NamenodeProcess {
    server: ChildServer,
    directory: PathBuf,
    pub(super) address: String,
}

impl NamenodeProcess {
    /// Starts one and waits until it serves. It dies with the calling thread.
    pub(super) async fn start(directory: &Path) -> Result<Self, Failure> {
        Self::spawn(directory, "127.0.0.1:0").await
    }

    /// Kills it and starts it again where it was. Returns the time until it served.
    pub(super) async fn restart(&mut self) -> Result<Duration, Failure> {
        self.server.kill();
        let began = Instant::now();
        let address = self.address.clone();
        *self = Self::spawn(&self.directory.clone(), &address).await?;
        Ok(began.elapsed())
    }

    async fn spawn(directory: &Path, listen: &str) -> Result<Self, Failure> {
        std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
        // It may be from the process before.
        let _ = std::fs::remove_file(directory.join("namenode.ready"));
        let mut command = program()?;
        command.args(["namenode", "--http", "none", "--listen", listen, "--dir"]);
        command.arg(directory.join("catalog"));
        // What goes on besides would not be the same from run to run.
        command.args(["--no-rebalance", "--no-precopy", "--ramp-up", "0s"]);
        let mut server = ChildServer::spawn(command, directory, "namenode")?;
        let limit = Instant::now() + READY_TIMEOUT;
        while Instant::now() < limit {
            if let Some(ready) = server.ready()? {
                let (directory, address) = (directory.to_owned(), ready.address);
                return Ok(Self { server, directory, address });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err(Failure::new(
            Exit::Deadline,
            FailureKind::Deadline,
            "the namenode does not serve in time",
        ))
    }

    /// Returns the processor time that it has had.
    pub(super) fn cpu(&self) -> Result<Cpu, Failure> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.server.id()));
        let listed = std::fs::read_dir(&tasks).map_err(|error| Failure::file(&tasks, error))?;
        // A thread that ends meanwhile is passed over: the whole process is counted as well.
        let nanos = listed.flatten().filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_ascii_whitespace().next()?.parse::<u64>().ok()
        });
        Ok(Cpu { threads: Duration::from_nanos(nanos.sum()), process: self.ticks()? })
    }

    fn ticks(&self) -> Result<Duration, Failure> {
        let stat = self.proc("stat")?;
        // The name stands in parentheses and may hold anything: fields are counted after the last.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let fields = after.split_ascii_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    }

    /// Returns its memory: resident now, and the most it ever had.
    pub(super) fn memory(&self) -> Result<(u64, u64), Failure> {
        let status = self.proc("status")?;
        let kib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
            number.map(|kib: u64| kib * 1024)
        };
        let (now, most) = (kib("VmRSS:"), kib("VmHWM:"));
        now.zip(most).ok_or_else(|| failed("the kernel does not report the namenode's memory"))
    }

    /// Returns the bytes of all files of its catalog whose name begins so.
    pub(super) fn file_bytes(&self, prefix: &str) -> Result<u64, Failure> {
        let path = self.directory.join("catalog");
        let listed = std::fs::read_dir(&path).map_err(|error| Failure::file(&path, error))?;
        let named = listed.flatten().filter(|entry| {
            entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix))
        });
        Ok(named.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum())
    }

    fn proc(&self, file: &str) -> Result<String, Failure> {
        let path = PathBuf::from(format!("/proc/{}/{file}", self.server.id()));
        std::fs::read_to_string(&path).map_err(|error| Failure::file(&path, error))
    }
}
