//! The task that a thread of the runtime keeps for itself: the one that was woken last on it runs
//! next there, and no other thread takes it. So it stands still while the thread waits for a disk.

use tokio::runtime::Handle;

/// Lets other threads take the task that this one would run next: a task without work takes its
/// place. For a thread that may wait for a disk; nothing on threads of no runtime. Costs less than
/// `block_in_place`, which gives all tasks of the thread to another one.
pub(crate) fn release_next_task() {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async {});
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn task_that_was_woken_before_its_thread_blocks_runs_on_another_one() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).build().unwrap();
        let blocked = runtime.spawn(async {
            let (run, has_run) = mpsc::channel();
            tokio::spawn(async move { run.send(()).unwrap() });
            release_next_task();
            has_run.recv_timeout(Duration::from_secs(60))
        });
        assert_eq!(runtime.block_on(blocked).unwrap(), Ok(()));
    }
}
