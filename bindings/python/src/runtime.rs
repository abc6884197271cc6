//! The threads behind the calls, and how a call waits for them.

use std::future::Future;
use std::pin::pin;
use std::process;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sanderling_client::ClientError;
use tokio::runtime::{Builder, Runtime};

use crate::error::raised;

/// How often a waiting call looks for Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(200);

/// Enough to copy bytes beside the callers' own threads; more only take cores from the application.
const THREADS: usize = 2;

static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// Returns the process's runtime. A forked child gets its own: threads do not survive a fork.
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    let mut slot = RUNTIME.lock().expect("nothing panics while the slot is locked");
    match *slot {
        Some((pid, runtime)) if pid == process::id() => Ok(runtime),
        _ => {
            let made = Builder::new_multi_thread()
                .worker_threads(THREADS)
                .thread_name("sanderling")
                .enable_all()
                .build()
                .map_err(|error| PyRuntimeError::new_err(format!("no threads: {error}")))?;
            // Lives as long as the process; at its exit the threads simply end.
            let runtime: &'static Runtime = Box::leak(Box::new(made));
            *slot = Some((process::id(), runtime));
            Ok(runtime)
        }
    }
}

/// Waits for a call with Python's lock released.
///
/// # Errors
/// The call's own error as a Python exception, or `KeyboardInterrupt`, which gives the call up.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    call: impl Future<Output = Result<T, ClientError>> + Send,
) -> PyResult<T> {
    let runtime = runtime()?;
    let mut call = pin!(call);
    loop {
        let turn = py.detach(|| {
            runtime.block_on(async { tokio::time::timeout(SIGNALS_EVERY, call.as_mut()).await })
        });
        match turn {
            Ok(result) => return result.map_err(|error| raised(py, &error)),
            Err(_) => py.check_signals()?,
        }
    }
}
