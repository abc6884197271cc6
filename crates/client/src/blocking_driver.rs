//! What drives the calls of a language without async: the thread that calls.
//!
//! A call that waits for another thread to read its answer from the socket pays two wake-ups of a
//! sleeping thread, which cost more than the call itself. So there is one runtime without threads
//! of its own: a calling thread runs it while it waits, and everything that its call needs happens
//! on that thread. When several threads call at once, one of them runs it for all, and hands it on
//! when its own call has ended. While no thread calls, a background thread runs it, so that leases
//! are renewed and given back. The background thread never calls back into the language.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// Time without a call after which the background thread steps in: short beside every lease, long
/// beside the pause between two calls of a loop, of which the first after the background thread
/// costs a wake-up.
const KEEP_AFTER: Duration = Duration::from_millis(5);

/// A runtime and the threads that run it. The bindings of other languages have one per process.
#[derive(Debug)]
pub struct Driver {
    runtime: Runtime,
    /// Calls under way.
    calling: AtomicUsize,
    /// Calls ended so far.
    ended: AtomicU64,
    /// Whether the background thread runs the runtime.
    is_kept: AtomicBool,
    /// Makes the background thread leave it.
    leave: Notify,
}

/// A call under way.
struct Calling<'a>(&'a Driver);

impl Driver {
    /// Starts a driver with its background thread. Both live until the process exits.
    ///
    /// # Errors
    /// The kernel has no descriptor or thread left: free some, then start again.
    pub fn start() -> io::Result<&'static Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let driver: &'static Self = Box::leak(Box::new(Self {
            runtime,
            calling: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
            leave: Notify::new(),
        }));
        thread::Builder::new().name("sanderling".to_owned()).spawn(|| driver.keep())?;
        Ok(driver)
    }

    /// Waits for a call, and runs everything meanwhile.
    pub fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        let _calling = self.call();
        self.runtime.block_on(call)
    }

    /// Returns the runtime, for calls without a waiter and for drops that need its context.
    #[must_use]
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Runs the runtime whenever no thread calls.
    fn keep(&self) -> ! {
        let mut seen = u64::MAX;
        loop {
            thread::sleep(KEEP_AFTER);
            let ended = self.ended.load(Ordering::SeqCst);
            if std::mem::replace(&mut seen, ended) != ended {
                continue;
            }
            self.is_kept.store(true, Ordering::SeqCst);
            // A call that begins after this check makes the background thread leave.
            if self.calling.load(Ordering::SeqCst) == 0 {
                self.runtime.block_on(self.leave.notified());
            }
            self.is_kept.store(false, Ordering::SeqCst);
        }
    }

    fn call(&self) -> Calling<'_> {
        self.calling.fetch_add(1, Ordering::SeqCst);
        if self.is_kept.load(Ordering::SeqCst) {
            self.leave.notify_one();
        }
        Calling(self)
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
        self.0.calling.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::mpsc::{self, RecvTimeoutError};

    use tokio::sync::oneshot;
    use tokio::time;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn background_thread_runs_what_is_under_way_while_no_thread_calls_and_leaves_when_one_does() {
        let driver = Driver::start().unwrap();
        for _ in 0..20 {
            let (done, is_done) = mpsc::channel();
            let (sender, receiver) = oneshot::channel();
            driver.runtime().spawn(async move {
                // Long beside the time after which the background thread steps in.
                time::sleep(4 * KEEP_AFTER).await;
                done.send(()).unwrap();
                let _ = sender.send(());
            });
            is_done.recv_timeout(SOON).unwrap();
            driver.wait(receiver).unwrap();
        }
    }

    #[test]
    fn threads_that_call_at_once_wait_for_each_other_and_all_are_answered() {
        let driver = Driver::start().unwrap();
        let (answered, answers) = mpsc::channel();
        let mut before: Option<oneshot::Receiver<usize>> = None;
        // Each but the first needs the answer of another thread's call.
        for number in 0..8 {
            let (sender, receiver) = oneshot::channel();
            let (before, answered) = (before.replace(receiver), answered.clone());
            thread::spawn(move || {
                let sum = driver.wait(async {
                    let so_far = match before {
                        Some(before) => before.await.unwrap(),
                        None => 0,
                    };
                    time::sleep(Duration::from_millis(1)).await;
                    sender.send(so_far + number).unwrap_or_default();
                    so_far + number
                });
                answered.send(sum).unwrap();
            });
        }
        drop((before, answered));
        let mut sums: Vec<usize> = Vec::new();
        loop {
            match answers.recv_timeout(SOON) {
                Ok(sum) => sums.push(sum),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("only {sums:?} were answered"),
            }
        }
        sums.sort_unstable();
        assert_eq!(sums, [0, 1, 3, 6, 10, 15, 21, 28]);
    }

    #[test]
    fn call_that_panics_leaves_the_runtime_to_the_others() {
        let driver = Driver::start().unwrap();
        let call = thread::spawn(|| driver.wait(async { panic!("on purpose") }));
        assert!(call.join().is_err());
        assert_eq!(driver.wait(async { 1 }), 1);
        let (done, is_done) = mpsc::channel();
        driver.runtime().spawn(async move { done.send(()).unwrap() });
        is_done.recv_timeout(SOON).unwrap();
    }
}
