//! The processes of a task's command, which are stopped together and go on together.
//!
//! A process is stopped by SIGSTOP, which none can handle: parents before their children, so that
//! no parent finds its child stopped and starts another one. They go on in the reverse order, so
//! that a parent that looks at its children finds them running. What was stopped before, as by the
//! control of jobs in a shell, is left as it is. Only a process that replaces one which was killed
//! does not distinguish that from what the other one has stopped.

use std::collections::VecDeque;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sanderling_command::process::{ProcessStat, RecordedProcess, proc_text};

/// How often the processes are looked at in one call. A process may start another one until it
/// stands still. Chosen, not measured.
const LOOKS_MAX: usize = 5;

/// The pause between two of these looks. Chosen, not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The processes that were stopped, in the order in which they were.
#[derive(Debug, Default)]
pub(crate) struct StoppedProcesses(Vec<RecordedProcess>);

/// Whether a process stands still, as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessState {
    /// It runs, or would if it had what it waits for.
    Running,
    /// It is stopped.
    Stopped,
    /// A debugger has stopped it.
    Traced,
    /// It has ended.
    Ended,
}

impl ProcessState {
    /// Returns that of the process with this id.
    fn of(pid: u32, stat: &ProcessStat) -> Self {
        match stat.state {
            'T' => Self::Stopped,
            't' => Self::Traced,
            _ if stat.has_ended() => Self::Ended,
            // Its first thread has ended before others.
            'Z' => Self::of_threads(pid),
            _ => Self::Running,
        }
    }

    /// Returns that of a process whose first thread has ended.
    fn of_threads(pid: u32) -> Self {
        let stats = threads_of(pid).into_iter().filter_map(ProcessStat::of);
        let states: Vec<char> =
            stats.map(|it| it.state).filter(|it| !matches!(it, 'Z' | 'X')).collect();
        match &states[..] {
            [] => Self::Ended,
            states if states.iter().all(|it| *it == 'T') => Self::Stopped,
            states if states.contains(&'t') => Self::Traced,
            _ => Self::Running,
        }
    }
}

impl StoppedProcesses {
    /// Returns the processes that are stopped of those with these ids and all below them.
    pub(crate) fn found(roots: &[u32]) -> Self {
        let mut found = Vec::new();
        let is_left = |_: u32| false;
        each_of(roots, is_left, |process, state| {
            if state == ProcessState::Stopped {
                found.push(process);
            }
        });
        Self(found)
    }

    /// Stops the processes with these ids and all below them, but for those that `is_left` names
    /// and what is below those. Returns once all stand still, or after a few looks: call it again.
    /// Returns how long the last look took.
    pub(crate) fn stop(&mut self, roots: &[u32], is_left: impl Fn(u32) -> bool) -> Duration {
        let mut looks = 0;
        loop {
            let began = Instant::now();
            let is_any_running = self.stop_running(roots, &is_left);
            let took = began.elapsed();
            looks += 1;
            if !is_any_running || looks == LOOKS_MAX {
                return took;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Looks at the processes once, and stops those that run. Returns whether any did.
    fn stop_running(&mut self, roots: &[u32], is_left: impl Fn(u32) -> bool) -> bool {
        let mut is_any_running = false;
        each_of(roots, is_left, |process, state| {
            if state == ProcessState::Running {
                is_any_running = true;
                process.signal(Signal::STOP);
                if !self.0.contains(&process) {
                    self.0.push(process);
                }
            }
        });
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

/// Calls a function for the processes with these ids and all below them, parents before their
/// children, but for those that `is_left` names and what is below those.
fn each_of(
    roots: &[u32],
    is_left: impl Fn(u32) -> bool,
    mut each: impl FnMut(RecordedProcess, ProcessState),
) {
    let mut waiting: VecDeque<(u32, Option<u32>)> = roots.iter().map(|pid| (*pid, None)).collect();
    while let Some((pid, parent)) = waiting.pop_front() {
        if is_left(pid) {
            continue;
        }
        let Some(stat) = ProcessStat::of(pid) else { continue };
        // Another process may have got the id of a child that has ended since the list was read.
        if parent.is_some_and(|parent| parent != stat.parent) {
            continue;
        }
        each(RecordedProcess { pid, start_time: stat.start_time }, ProcessState::of(pid, &stat));
        waiting.extend(children_of(pid).into_iter().map(|child| (child, Some(pid))));
    }
}

/// Returns the children of all threads of a process.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let children = threads_of(pid).into_iter().filter_map(|thread| {
        fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).ok()
    });
    let children: Vec<String> = children.collect();
    let pids = children.iter().flat_map(|pids| pids.split_ascii_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns the ids of the threads of a process.
fn threads_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect()
}

/// Returns whether another process traces this one, as CRIU does while it dumps.
pub(crate) fn is_traced(pid: u32) -> bool {
    let status = proc_text(pid, "status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

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
            [self.shell.id(), self.child].map(state_of)
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

    fn state_of(pid: u32) -> Option<ProcessState> {
        ProcessStat::of(pid).map(|stat| ProcessState::of(pid, &stat))
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
        assert!(!is_traced(own) && state_of(own) == RUNNING);
    }

    #[test]
    fn processes_that_another_one_has_stopped_are_found_and_go_on() {
        let family = Family::start();
        assert!(StoppedProcesses::found(&[family.shell.id()]).0.is_empty());
        until(|| {
            StoppedProcesses::default().stop(&[family.shell.id()], |_| false);
            family.states() == [STOPPED, STOPPED]
        });
        let mut stopped = StoppedProcesses::found(&[family.shell.id()]);
        assert_eq!(stopped.0.len(), 2, "{stopped:?}");
        stopped.go_on();
        until(|| family.states() == [RUNNING, RUNNING]);
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
