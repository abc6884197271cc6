//! What drives the calls: the thread that calls.
//!
//! A call that waits for another thread to read its answer from the socket pays two wake-ups of a
//! sleeping thread, which cost more than the call itself. So there is one runtime without threads
//! of its own: a calling thread runs it while it waits, and everything that its call needs happens
//! on that thread. When several threads call at once, one of them runs it for all, and hands it on
//! when its own call has ended. While nobody calls, a keeper runs it, so that leases are renewed
//! and given back.

use std::future::Future;
use std::pin::pin;
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sanderling_client::ClientError;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::error::raised;

/// How often a waiting call looks for Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(200);

/// Time without a call after which the keeper steps in: short beside every lease, long beside the
/// pause between two calls of a loop, of which the first after the keeper costs a wake-up.
const KEEP_AFTER: Duration = Duration::from_millis(5);

static DRIVER: Mutex<Option<(u32, &'static Driver)>> = Mutex::new(None);

/// The runtime that a thread of its own runs.
static BACKGROUND: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

/// A runtime and who runs it.
struct Driver {
    runtime: Runtime,
    /// Calls under way.
    calling: AtomicUsize,
    /// Calls ended so far.
    ended: AtomicU64,
    /// Whether the keeper runs the runtime.
    is_kept: AtomicBool,
    /// Asks the keeper to leave it.
    leave: Notify,
}

/// A call under way.
struct Calling(&'static Driver);

impl Driver {
    fn start() -> std::io::Result<&'static Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // Lives as long as the process; at its exit the keeper simply ends.
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

    /// Runs the runtime whenever nobody calls.
    fn keep(&self) -> ! {
        let mut seen = u64::MAX;
        loop {
            thread::sleep(KEEP_AFTER);
            let ended = self.ended.load(Ordering::SeqCst);
            if std::mem::replace(&mut seen, ended) != ended {
                continue;
            }
            self.is_kept.store(true, Ordering::SeqCst);
            // A call that begins after this look asks the keeper to leave.
            if self.calling.load(Ordering::SeqCst) == 0 {
                self.runtime.block_on(self.leave.notified());
            }
            self.is_kept.store(false, Ordering::SeqCst);
        }
    }

    fn call(&'static self) -> Calling {
        self.calling.fetch_add(1, Ordering::SeqCst);
        if self.is_kept.load(Ordering::SeqCst) {
            self.leave.notify_one();
        }
        Calling(self)
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
        self.0.calling.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the process's driver. A forked child gets its own: threads do not survive a fork.
fn driver() -> PyResult<&'static Driver> {
    let mut slot = DRIVER.lock().expect("nothing panics while the slot is locked");
    match *slot {
        Some((pid, driver)) if pid == process::id() => Ok(driver),
        _ => {
            let driver = Driver::start()
                .map_err(|error| PyRuntimeError::new_err(format!("no threads: {error}")))?;
            *slot = Some((process::id(), driver));
            Ok(driver)
        }
    }
}

/// Returns the process's runtime.
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    driver().map(|driver| &driver.runtime)
}

/// Returns the runtime of calls that nobody waits for: one thread runs it all the time.
///
/// # Errors
/// `RuntimeError` when the process may not start a thread.
pub(crate) fn background() -> PyResult<Handle> {
    let mut slot = BACKGROUND.lock().expect("nothing panics while the slot is locked");
    match &*slot {
        Some((pid, handle)) if *pid == process::id() => Ok(handle.clone()),
        _ => {
            let handle = start_background()
                .map_err(|error| PyRuntimeError::new_err(format!("no threads: {error}")))?;
            // A forked child must not close what its parent's runtime holds.
            std::mem::forget(slot.replace((process::id(), handle.clone())));
            Ok(handle)
        }
    }
}

fn start_background() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("sanderling-aio".to_owned()).spawn(run)?;
    Ok(handle)
}

/// Waits for a call with Python's lock released.
///
/// # Errors
/// The call's own error as a Python exception, or `KeyboardInterrupt`, which gives the call up.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    call: impl Future<Output = Result<T, ClientError>> + Send,
) -> PyResult<T> {
    let driver = driver()?;
    // A call that is given up may leave its clean-up to a task.
    let _context = driver.runtime.enter();
    let mut call = pin!(call);
    loop {
        let turn = py.detach(|| {
            let _calling = driver.call();
            let turn = async { tokio::time::timeout(SIGNALS_EVERY, call.as_mut()).await };
            driver.runtime.block_on(turn)
        });
        match turn {
            Ok(result) => return result.map_err(|error| raised(py, &error)),
            Err(_) => py.check_signals()?,
        }
    }
}
