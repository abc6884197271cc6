//! The process's driver: the calling thread runs the client. See [`Driver`].

use std::future::Future;
use std::pin::pin;
use std::process;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sanderling_client::{ClientError, Driver};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::raised;

/// Pause between two looks of a waiting call for Ctrl-C: a person does not notice it, and each look
/// takes the interpreter's lock. Chosen, not measured.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The driver, and the process that made it.
static DRIVER: Mutex<Option<(u32, &'static Driver)>> = Mutex::new(None);

/// The runtime that a thread of its own runs.
static BACKGROUND: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

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
    driver().map(Driver::runtime)
}

/// Returns the runtime of asynchronous calls, which one thread runs all the time.
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
/// The call's own error as a Python exception, or `KeyboardInterrupt`, which cancels the call.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    call: impl Future<Output = Result<T, ClientError>> + Send,
) -> PyResult<T> {
    let driver = driver()?;
    // A call that is cancelled may leave its clean-up to a task.
    let _context = driver.runtime().enter();
    let mut call = pin!(call);
    loop {
        let turn = py.detach(|| {
            driver.wait(async { tokio::time::timeout(SIGNAL_POLL_INTERVAL, call.as_mut()).await })
        });
        match turn {
            Ok(result) => return result.map_err(|error| raised(py, &error)),
            Err(_) => py.check_signals()?,
        }
    }
}
