//! Processes that are known by pid and start time, so that a reused pid is never taken for ours.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::failure::{Exit, Failure, FailureKind};

/// The environment variable that names the program to run again, with its first arguments,
/// separated by the unit separator. Python sets it: there, `current_exe` is the interpreter.
pub const PROGRAM: &str = "SANDERLING_EXE";

/// The byte between the words of the program's variable: ASCII's unit separator, which no path or
/// argument of ours has.
const SEPARATOR: u8 = 0x1f;

/// What a server in the background reads from standard input before it does anything.
pub const RELEASE: &[u8] = b"\n";

/// Variables of the environment that a server in the background gets: where logs and metrics go,
/// where the user's contexts are, and the program. All others of this program's would be settings
/// that the command which starts it was not given.
const KEPT: [&str; 4] = [PROGRAM, "SANDERLING_CONFIG_HOME", "SANDERLING_LOG", "SANDERLING_OTLP"];

/// Time between two checks of a condition that is waited for, such as the end of a process.
/// Commands are late by this much at most, and a check is a system call or two. Chosen, not
/// measured.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A process that a file records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedProcess {
    /// Its id.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did: field 22 of `/proc/PID/stat`.
    pub start_time: u64,
}

impl RecordedProcess {
    /// Returns the process of that id as it runs now.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        start_time(pid).map(|start_time| Self { pid, start_time })
    }

    /// Returns whether that very process still runs: another one that got its id since does not
    /// count, because it started later. A zombie has ended.
    #[must_use]
    pub fn is_running(self) -> bool {
        start_time(self.pid) == Some(self.start_time)
    }

    /// Returns whether that very process still runs; `None` where that cannot be seen: a process
    /// with its id runs, and `/proc` does not show which one, as it hides those of other users
    /// (`hidepid`).
    #[must_use]
    pub fn runs(self) -> Option<bool> {
        if let Ok(found) = stated_start_time(self.pid) {
            return Some(found == Some(self.start_time));
        }
        // It sends no signal. A process of another user refuses it.
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        match pid.map(test_kill_process) {
            None | Some(Err(Errno::SRCH)) => Some(false),
            Some(_) => None,
        }
    }

    /// Sends a signal, if that very process still runs.
    pub fn signal(self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_running()) {
            // It may end between the look and the signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits until it has ended; returns whether it has.
    #[must_use]
    pub fn wait(self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

/// What `/proc/PID/stat` has of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// The letter of the state of its first thread, which may have ended before others:
    /// [`Self::has_ended`].
    pub state: char,
    /// The id of its parent.
    pub parent: u32,
    /// When it started, as [`RecordedProcess::start_time`].
    pub start_time: u64,
    threads: u64,
}

impl ProcessStat {
    /// Returns that of the process with this id; `None` if there is none.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&proc_text(pid, "stat").ok()?)
    }

    /// Returns what a line of this file has.
    fn parse(stat: &str) -> Option<Self> {
        // The name stands in parentheses and may hold anything: fields are counted after the last
        // one, from the third on.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let threads = fields.nth(15)?.parse().ok()?;
        let start_time = fields.nth(1)?.parse().ok()?;
        Some(Self { state, parent, start_time, threads })
    }

    /// Returns whether the process has ended, though its parent may not have waited for it. One
    /// whose first thread alone has ended goes on with the others, and shows the state of a zombie.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, 'X') || (matches!(self.state, 'Z') && self.threads <= 1)
    }
}

/// Returns what a file of a process in `/proc` has. The name of the process may be in it, which the
/// kernel cuts also inside a character: what is not UTF-8 is replaced.
///
/// # Errors
/// There is no such process, or this one may not read the file: nothing is known of it.
pub fn proc_text(pid: u32, file: &str) -> std::io::Result<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns when a process started; `None` when it has ended, even before its parent has waited for
/// it.
fn start_time(pid: u32) -> Option<u64> {
    stated_start_time(pid).ok().flatten()
}

/// The same, as far as `/proc` shows the process.
fn stated_start_time(pid: u32) -> std::io::Result<Option<u64>> {
    let stat = proc_text(pid, "stat")?;
    let running = ProcessStat::parse(&stat).filter(|it| !it.has_ended());
    Ok(running.map(|it| it.start_time))
}

/// Returns the command that runs this program again.
///
/// # Errors
/// The operating system cannot name its path: set the variable that the failure names.
pub fn program() -> Result<Command, Failure> {
    if let Some(words) = std::env::var_os(PROGRAM).filter(|words| !words.is_empty()) {
        let mut words = words.as_bytes().split(|byte| *byte == SEPARATOR);
        let first = words.next().unwrap_or_default().to_vec();
        let mut command = Command::new(OsString::from_vec(first));
        command.args(words.map(|word| OsString::from_vec(word.to_vec())));
        return Ok(command);
    }
    std::env::current_exe().map(Command::new).map_err(|error| {
        let cause = format!("no path of this program: {error}");
        Failure::new(Exit::Failure, FailureKind::Process, cause)
            .with_source(error)
            .next(format_args!("the same with {PROGRAM}=/path/to/sanderling"))
    })
}

/// Starts this program in the background, with its words going to a log file. With `--detach` it
/// does nothing before it reads [`RELEASE`] from the pipe that is its standard input, and ends when
/// the pipe is closed before: with this process, or with the child's handle.
///
/// # Errors
/// When the log file cannot be made or the operating system starts no process: end the command with
/// the failure, which names the file or the program.
pub fn spawn(arguments: &[OsString], log: &Path) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| Failure::file(log, error);
    let out = std::fs::File::create(log).map_err(failed)?;
    let err = out.try_clone().map_err(failed)?;
    let mut command = program()?;
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("SANDERLING_") && !KEPT.contains(&&*name) {
            command.env_remove(&*name);
        }
    }
    let spawned = command.args(arguments).stdin(Stdio::piped()).stdout(out).stderr(err).spawn();
    spawned.map_err(|error| {
        let program = command.get_program().to_string_lossy();
        let cause = format!("cannot start {program}: {error}");
        Failure::new(Exit::Failure, FailureKind::Process, cause).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn this_process_runs_and_another_start_time_does_not() {
        let here = RecordedProcess::of(std::process::id()).unwrap();
        assert!(here.is_running() && here.runs() == Some(true));
        let other = RecordedProcess { start_time: here.start_time + 1, ..here };
        assert!(!other.is_running() && other.runs() == Some(false));
    }

    /// As Linux 6.1 writes it.
    fn stat_of(state: char, threads: u64) -> ProcessStat {
        let line = format!(
            "4711 (a (b) c) {state} 42 4711 4711 0 -1 4227084 0 0 0 0 5 6 7 8 20 0 {threads} 0 \
             123456 0 0 18446744073709551615 0 0"
        );
        ProcessStat::parse(&line).expect("a line")
    }

    /// The kernel cuts a name to 15 bytes, also inside a character.
    #[test]
    fn process_whose_name_is_cut_inside_a_character_runs() {
        let words = r#"printf 'abcdefghijklmn\303' >/proc/$$/comm; echo; read line"#;
        let mut command = Command::new("sh");
        command.args(["-c", words]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let name = std::fs::read(format!("/proc/{}/comm", child.id())).unwrap();
        assert!(String::from_utf8(name).is_err(), "the name is cut inside a character");
        assert!(RecordedProcess::of(child.id()).unwrap().is_running());
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn process_whose_first_thread_alone_has_ended_runs() {
        let stat = stat_of('Z', 3);
        assert_eq!((stat.parent, stat.start_time), (42, 123_456));
        assert!(!stat.has_ended() && stat_of('Z', 1).has_ended() && stat_of('Z', 0).has_ended());
        assert!(!stat_of('S', 1).has_ended() && stat_of('X', 1).has_ended());
        assert_eq!(ProcessStat::parse("4711 (cut) S 42 4711"), None);
    }

    #[test]
    fn process_id_that_no_process_has_does_not_run() {
        // Above the highest one that the kernel gives out.
        for pid in [0, 1 << 30, u32::MAX] {
            assert_eq!(RecordedProcess { pid, start_time: 1 }.runs(), Some(false), "{pid}");
        }
    }

    #[test]
    fn ended_child_is_not_running_even_before_it_is_reaped() {
        let mut child = Command::new("true").spawn().unwrap();
        if let Some(known) = RecordedProcess::of(child.id()) {
            assert!(known.wait(Duration::from_secs(5)));
            assert_eq!(known.runs(), Some(false));
        }
        child.wait().unwrap();
    }
}
