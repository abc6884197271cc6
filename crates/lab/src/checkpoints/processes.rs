//! The processes that a runner has started, and those that these have started.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::process::{POLL_INTERVAL, RecordedProcess};

/// How long processes may take to end after SIGKILL on a busy machine: the kernel frees gigabytes
/// of memory. Chosen, not measured.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns all descendants of a process, as they run now.
pub(crate) fn descendants(root: u32) -> Vec<RecordedProcess> {
    let (mut found, mut waiting) = (Vec::new(), vec![root]);
    while let Some(parent) = waiting.pop() {
        for pid in children(parent) {
            let process = RecordedProcess::of(pid);
            // Of another process with this id, which began a moment ago, the parent is another one.
            if let Some(process) = process.filter(|_| parent_of(pid) == Some(parent)) {
                found.push(process);
                waiting.push(pid);
            }
        }
    }
    found
}

/// Ends processes with SIGKILL. Returns whether all of them have ended in time.
pub(crate) async fn are_killed(processes: &[RecordedProcess]) -> bool {
    processes.iter().for_each(|it| it.signal(Signal::KILL));
    let limit = Instant::now() + END_TIMEOUT;
    while processes.iter().any(|it| it.is_running()) {
        if Instant::now() >= limit {
            return false;
        }
        sleep(POLL_INTERVAL).await;
    }
    true
}

/// Returns the children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let texts: Vec<String> = texts.filter_map(Result::ok).collect();
    let words = texts.iter().flat_map(|text| text.split_ascii_whitespace());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Returns the parent of a process: field 4 of `/proc/PID/stat` (proc(5)).
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn descendants_of_a_process_are_killed_and_it_is_not() {
        let mut command = Command::new("sh");
        // It ends by itself when this test has ended.
        command.args(["-c", "sh -c 'sleep 600; true' & echo begun; read line"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = piped.spawn().expect("started");
        let limit = Instant::now() + END_TIMEOUT;
        let found = loop {
            let found = descendants(shell.id());
            if found.len() >= 2 {
                break found;
            }
            assert!(Instant::now() < limit, "{found:?}");
            sleep(POLL_INTERVAL).await;
        };
        assert!(are_killed(&found).await && shell.try_wait().expect("our child").is_none());
        assert!(descendants(shell.id()).is_empty());
        drop(shell.stdin.take());
        shell.wait().expect("it has ended");
    }
}
