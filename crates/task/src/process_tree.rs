//! The processes of a task's command, which are stopped together and go on together.
//!
//! A process is stopped by SIGSTOP, which none can handle: parents before their children, so that
//! no parent finds its child stopped and starts another one. They go on in the reverse order, so
//! that a parent that looks at its children finds them running. What was stopped before, as by the
//! control of jobs in a shell, is left as it is.

use std::collections::VecDeque;
use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use sanderling_command::process::RecordedProcess;

/// How often the processes are looked at in one call, and the pause between two looks. A process
/// may start another one until it stands still. Chosen, not measured.
const LOOKS_MAX: usize = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The processes that were stopped, in the order in which they were.
#[derive(Debug, Default)]
pub(crate) struct StoppedProcesses(Vec<RecordedProcess>);

/// Whether a process stands still, as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessState {
    /// It runs, or would if it had what it waits for.
    Running,
    /// It is stopped, or a debugger has stopped it.
    Stopped,
    /// It has ended.
    Ended,
}

impl StoppedProcesses {
    /// Stops the processes with these ids and all below them, but for those that `is_left` names
    /// and what is below those. Returns once all stand still, or after a few milliseconds: call it
    /// again.
    pub(crate) fn stop(&mut self, roots: &[u32], is_left: impl Fn(u32) -> bool) {
        for _ in 0..LOOKS_MAX {
            if !self.stop_running(roots, &is_left) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Looks at the processes once, and stops those that run. Returns whether any did.
    fn stop_running(&mut self, roots: &[u32], is_left: impl Fn(u32) -> bool) -> bool {
        let mut is_any_running = false;
        let mut waiting: VecDeque<u32> = roots.iter().copied().collect();
        while let Some(pid) = waiting.pop_front() {
            if is_left(pid) {
                continue;
            }
            let Some((state, start_time)) = state_of(pid) else { continue };
            if state == ProcessState::Running {
                is_any_running = true;
                let process = RecordedProcess { pid, start_time };
                process.signal(Signal::STOP);
                if !self.0.contains(&process) {
                    self.0.push(process);
                }
            }
            waiting.extend(children_of(pid));
        }
        is_any_running
    }

    /// Lets those go on that were stopped.
    pub(crate) fn go_on(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Kills those that were stopped.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    fn signal(&mut self, signal: Signal) {
        for process in self.0.drain(..).rev() {
            process.signal(signal);
        }
    }
}

/// Returns the state of a process, and when it started; `None` if there is none.
fn state_of(pid: u32) -> Option<(ProcessState, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may have anything in it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = match fields.next()? {
        "T" | "t" => ProcessState::Stopped,
        "Z" | "X" => ProcessState::Ended,
        _ => ProcessState::Running,
    };
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Returns the children of all threads of a process.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let pids = children.iter().flat_map(|pids| pids.split_ascii_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns whether another process traces this one, as CRIU does while it dumps.
pub(crate) fn is_traced(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    use super::*;

    /// A shell with a child, which are killed when their test is over.
    struct Family {
        shell: Child,
        child: u32,
    }

    impl Family {
        fn start() -> Self {
            let mut command = Command::new("sh");
            command.args(["-c", "sleep 600 & wait"]).stdout(Stdio::null());
            let shell = command.spawn().expect("started");
            let mut child = None;
            until(|| {
                child = children_of(shell.id()).first().copied();
                child.is_some()
            });
            Self { shell, child: child.expect("it was seen") }
        }

        fn states(&self) -> [Option<ProcessState>; 2] {
            [self.shell.id(), self.child].map(|pid| state_of(pid).map(|(state, _)| state))
        }
    }

    impl Drop for Family {
        fn drop(&mut self) {
            if let Some(child) = RecordedProcess::of(self.child) {
                child.signal(Signal::KILL);
            }
            let _ = self.shell.kill();
            let _ = self.shell.wait();
        }
    }

    fn until(mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not hold in time");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    const RUNNING: Option<ProcessState> = Some(ProcessState::Running);
    const STOPPED: Option<ProcessState> = Some(ProcessState::Stopped);

    #[test]
    fn process_and_its_children_stop_and_go_on() {
        let family = Family::start();
        let mut stopped = StoppedProcesses::default();
        until(|| {
            stopped.stop(&[family.shell.id()], |_| false);
            family.states() == [STOPPED, STOPPED]
        });
        assert_eq!(stopped.0.len(), 2, "each once: {stopped:?}");
        assert_eq!(stopped.0[0].pid, family.shell.id(), "the parent first");
        // Something else lets one go on.
        RecordedProcess::of(family.child).expect("it is there").signal(Signal::CONT);
        until(|| family.states() == [STOPPED, RUNNING]);
        until(|| {
            stopped.stop(&[family.shell.id()], |_| false);
            family.states() == [STOPPED, STOPPED]
        });
        stopped.go_on();
        until(|| family.states() == [RUNNING, RUNNING]);
        assert!(stopped.0.is_empty());
    }

    #[test]
    fn what_was_stopped_before_or_is_left_stays_as_it_is() {
        let family = Family::start();
        RecordedProcess::of(family.child).expect("it is there").signal(Signal::STOP);
        until(|| family.states() == [RUNNING, STOPPED]);
        let mut stopped = StoppedProcesses::default();
        stopped.stop(&[family.shell.id()], |pid| pid == family.shell.id());
        assert!(stopped.0.is_empty() && family.states() == [RUNNING, STOPPED]);
        until(|| {
            stopped.stop(&[family.shell.id()], |_| false);
            family.states() == [STOPPED, STOPPED]
        });
        stopped.go_on();
        until(|| family.states() == [RUNNING, STOPPED]);
        let own = std::process::id();
        assert!(!is_traced(own) && state_of(own).is_some_and(|it| it.0 == ProcessState::Running));
    }

    #[test]
    fn processes_that_are_stopped_can_be_killed() {
        let family = Family::start();
        let mut stopped = StoppedProcesses::default();
        until(|| {
            stopped.stop(&[family.shell.id()], |_| false);
            family.states() == [STOPPED, STOPPED]
        });
        stopped.kill();
        let has_ended = |state: &Option<ProcessState>| *state != RUNNING && *state != STOPPED;
        until(|| family.states().iter().all(has_ended));
    }
}
