//! The hook driver: the task writes its state into a directory when it gets a signal.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::process::{POLL_INTERVAL, RecordedProcess, proc_text};
use sanderling_command::units;
use tokio::time::{Instant, sleep};

use crate::driver::{CheckpointDriver, DirectoryState, TaskHandle};
use crate::state::DONE;

/// Where the link `done` leads of a task that could not write its state. A link is there as a whole
/// at once, and takes no block of a disk, which may be full.
const FAILED: &str = "failed";

/// The number of SIGUSR1 among the bits of `/proc/PID/status` (proc(5)), counted from 0: that of
/// signal 10.
const USR1_BIT: u32 = 9;

/// The task writes its state itself when it gets SIGUSR1.
pub(crate) struct Hook {
    state: PathBuf,
    within: Duration,
    /// A signal was sent, and the task has not answered it yet.
    is_due: AtomicBool,
    /// The task was stopped meanwhile: what it answers then is old when it is requested again.
    was_stopped: AtomicBool,
}

/// What a task reports by `done`.
enum HookAnswer {
    Written,
    Failed,
}

impl Hook {
    pub(crate) fn new(state: &Path, within: Duration) -> Self {
        let [is_due, was_stopped] = [false, false].map(AtomicBool::new);
        Self { state: state.to_owned(), within, is_due, was_stopped }
    }

    /// Sends the signal, which is due from then on; returns whether it was sent.
    fn request(&self, pid: u32, done: &Path) -> Result<bool, Failure> {
        match std::fs::remove_file(done) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::file(done, error));
            }
            _ => {}
        }
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let sent = process.map(|process| kill_process(process, Signal::USR1));
        let is_sent = matches!(sent, Some(Ok(())));
        self.is_due.store(is_sent, Ordering::Release);
        Ok(is_sent)
    }
}

impl CheckpointDriver for Hook {
    type State = DirectoryState;

    /// Requests the state of a process, and waits until it is there.
    async fn capture<P>(
        &self,
        task: &TaskHandle,
        prepare: impl Future<Output = Result<P, Failure>>,
    ) -> Result<Option<(DirectoryState, P)>, Failure> {
        let pid = task.pid;
        // The signal ends a process that does not handle it.
        if !handles_usr1(pid) {
            return Ok(None);
        }
        let done = self.state.join(DONE);
        // A task that writes longer than it may, or whose checkpoint was given up, creates `done`
        // for the signal before. A second one would let it write again while its state is read.
        let mut was_due = self.is_due.load(Ordering::Acquire);
        if was_due && self.was_stopped.swap(false, Ordering::AcqRel) && answer(&done).is_some() {
            was_due = false;
        }
        if !was_due && !self.request(pid, &done)? {
            return Ok(None);
        }
        let until = Instant::now() + self.within;
        let process = RecordedProcess::of(pid);
        loop {
            match answer(&done) {
                Some(HookAnswer::Written) => break,
                // That was the signal before: what the task lacked then may be there by now.
                Some(HookAnswer::Failed) if was_due => {
                    was_due = false;
                    if !self.request(pid, &done)? {
                        return Ok(None);
                    }
                }
                Some(HookAnswer::Failed) => {
                    self.is_due.store(false, Ordering::Release);
                    return Err(failed(&done));
                }
                None => {}
            }
            if let Err(failure) = task.expect_running() {
                // It answers when it goes on: the signal stays due.
                self.was_stopped.store(true, Ordering::Release);
                return Err(failure);
            }
            if !process.is_some_and(RecordedProcess::is_running) {
                let cause = format!("the task has ended before it wrote {}", done.display());
                return Err(Failure::new(Exit::Failure, FailureKind::HookEnded, cause));
            }
            if Instant::now() >= until {
                // After twice the time the signal is taken for lost.
                self.is_due.store(!was_due, Ordering::Release);
                let within = units::duration(self.within);
                let cause = format!("the task did not write {} within {within}", done.display());
                return Err(Failure::new(Exit::Failure, FailureKind::HookTimeout, cause));
            }
            sleep(POLL_INTERVAL).await;
        }
        self.is_due.store(false, Ordering::Release);
        Ok(Some((DirectoryState(self.state.clone()), prepare.await?)))
    }
}

/// Returns what a task reports, if it has answered.
fn answer(done: &Path) -> Option<HookAnswer> {
    // The state may have a file `failed`, to which the link leads then.
    match std::fs::read_link(done) {
        Ok(to) if to == Path::new(FAILED) => Some(HookAnswer::Failed),
        Ok(_) => done.exists().then_some(HookAnswer::Written),
        // It is no link, or it was not there then.
        Err(_) => is_no_link(done).then_some(HookAnswer::Written),
    }
}

fn is_no_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| !found.is_symlink())
}

fn failed(done: &Path) -> Failure {
    let done = done.display();
    let cause = format!("the task could not write its state: {done} is a link to `{FAILED}`");
    let next = "look at what the task has printed; the next checkpoint requests its state again";
    Failure::new(Exit::Failure, FailureKind::HookTimeout, cause).next(next)
}

/// Returns whether a process handles SIGUSR1, which would end it otherwise.
pub(crate) fn handles_usr1(pid: u32) -> bool {
    let status = proc_text(pid, "status").unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    caught.is_some_and(|bits| bits >> USR1_BIT & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use sanderling_protocol::Instant as LeaseInstant;

    use super::*;
    use crate::lease::LeaseEnd;

    #[tokio::test]
    async fn process_that_has_ended_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let script = "trap 'exit 0' USR1; while :; do sleep 0.01; done";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        while !handles_usr1(child.id()) {
            sleep(POLL_INTERVAL).await;
        }
        let hook = Hook::new(place.path(), Duration::from_secs(3600));
        let task = TaskHandle { pid: child.id(), namespaces: None, lease: LeaseEnd::never() };
        let captured = hook.capture(&task, async { Ok(()) }).await;
        assert_eq!(captured.map(|_| ()).unwrap_err().kind, FailureKind::HookEnded);
        assert!(child.wait().unwrap().success());
    }

    const LIMIT: Duration = Duration::from_secs(60);

    async fn until(holds: impl Fn() -> bool) {
        let waited = async {
            while !holds() {
                sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(LIMIT, waited).await.expect("it holds in time");
    }

    /// Fails at the first signal, as soon as there is a file `go`, and succeeds then.
    const FAILS_ONCE: &str = r#"
n=0
fails() {
    while [ -d "$0" ] && [ ! -e "$0/go" ]; do sleep 0.01; done
    ln -s failed "$0/done"
}
trap 'n=$((n + 1)); if [ $n = 1 ]; then fails; else touch "$0/done"; fi' USR1
while [ -d "$0" ]; do sleep 0.01; done
"#;

    #[tokio::test]
    async fn signal_is_sent_again_at_once_after_an_earlier_one_has_failed() {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", FAILS_ONCE]).arg(place.path()).spawn().unwrap();
        until(|| handles_usr1(child.id())).await;
        let mut hook = Hook::new(place.path(), Duration::ZERO);
        let task = TaskHandle { pid: child.id(), namespaces: None, lease: LeaseEnd::never() };
        let captured = hook.capture(&task, async { Ok(()) }).await;
        assert_eq!(captured.map(|_| ()).unwrap_err().kind, FailureKind::HookTimeout);
        std::fs::write(place.path().join("go"), "").unwrap();
        until(|| place.path().join(DONE).is_symlink()).await;
        hook.within = LIMIT;
        let captured = hook.capture(&task, async { Ok(()) }).await;
        assert!(captured.unwrap().is_some());
        assert!(!hook.is_due.load(Ordering::Acquire));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Counts the signals that it answers, as soon as there is a file `go`.
    const COUNTS: &str = r#"
n=0
counts() {
    while [ -d "$0" ] && [ ! -e "$0/go" ]; do sleep 0.01; done
    n=$((n + 1)); echo $n >"$0/n"; : >"$0/done"
}
trap counts USR1
while [ -d "$0" ]; do sleep 0.01; done
"#;

    /// The task answers between the two.
    #[tokio::test]
    async fn answer_to_a_signal_before_a_stop_is_not_the_state_of_a_later_dump() {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", COUNTS]).arg(place.path()).spawn().unwrap();
        until(|| handles_usr1(child.id())).await;
        let hook = Hook::new(place.path(), LIMIT);
        let (mover, lease) = LeaseEnd::new(LeaseInstant(0));
        let task = TaskHandle { pid: child.id(), namespaces: None, lease };
        let captured = hook.capture(&task, async { Ok(()) }).await;
        assert_eq!(captured.map(|_| ()).unwrap_err().kind, FailureKind::TaskBackend);
        std::fs::write(place.path().join("go"), "").unwrap();
        until(|| place.path().join(DONE).exists()).await;
        mover.move_to(LeaseInstant(u64::MAX));
        assert!(hook.capture(&task, async { Ok(()) }).await.unwrap().is_some());
        assert_eq!(std::fs::read_to_string(place.path().join("n")).unwrap().trim(), "2");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn link_to_failed_is_no_state_also_if_there_is_such_a_file() {
        let place = tempfile::tempdir().unwrap();
        let done = place.path().join(DONE);
        assert!(answer(&done).is_none());
        std::os::unix::fs::symlink(FAILED, &done).unwrap();
        assert!(matches!(answer(&done), Some(HookAnswer::Failed)));
        std::fs::write(place.path().join(FAILED), "").unwrap();
        assert!(matches!(answer(&done), Some(HookAnswer::Failed)));
        std::fs::remove_file(&done).unwrap();
        std::os::unix::fs::symlink("state", &done).unwrap();
        assert!(answer(&done).is_none());
        std::fs::write(place.path().join("state"), "").unwrap();
        assert!(matches!(answer(&done), Some(HookAnswer::Written)));
        std::fs::remove_file(&done).unwrap();
        std::fs::write(&done, "").unwrap();
        assert!(matches!(answer(&done), Some(HookAnswer::Written)));
    }

    #[test]
    fn process_without_a_handler_is_not_signalled() {
        assert!(!handles_usr1(std::process::id()));
        assert!(!handles_usr1(0));
    }
}
