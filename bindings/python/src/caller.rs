//! How calls are made: by waiting for them, or by taking their results from a queue later.

use std::future::Future;
use std::process;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sanderling_client::ClientError;
use sanderling_native::in_span;
use tokio::runtime::Handle;

use crate::buffer::release_pending;
use crate::queue::CompletionQueue;
use crate::runtime::{runtime, wait};

/// How a client's calls are made. Its readers and writers make theirs the same way.
#[derive(Clone)]
pub(crate) struct CallRunner {
    /// The process that connected: one that it forks shares its sockets, and must not use them.
    process: u32,
    how: How,
}

#[derive(Clone)]
enum How {
    /// The calling thread waits, and the call's result is returned.
    Blocking,
    /// A call id is returned, under which the completion queue has the result later.
    Queued(Arc<CompletionQueue>),
}

impl CallRunner {
    /// Returns the runner of calls that their thread waits for.
    pub(crate) fn blocking() -> Self {
        Self { process: process::id(), how: How::Blocking }
    }

    /// Returns the runner of calls whose results a loop takes from a queue.
    pub(crate) fn queued(queue: Arc<CompletionQueue>) -> Self {
        Self { process: process::id(), how: How::Queued(queue) }
    }

    /// Makes a call, whose span has its name, and makes Python's result of what it returns.
    ///
    /// # Errors
    /// The call's own, where it is waited for; `RuntimeError` in a forked child, which connects
    /// again.
    pub(crate) fn call<'py, T: Send + 'static>(
        &self,
        py: Python<'py>,
        name: &'static str,
        call: impl Future<Output = Result<T, ClientError>> + Send + 'static,
        made: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !self.is_own() {
            let text = "the process that forked this one connected here: connect again";
            return Err(PyRuntimeError::new_err(text));
        }
        let call = in_span(name, call);
        match &self.how {
            How::Blocking => {
                let result = wait(py, call);
                release_pending(py);
                Ok(made(py, result?)?.into_bound(py))
            }
            How::Queued(queue) => queue.begin(call, made)?.into_bound_py_any(py),
        }
    }

    /// Returns whether this process connected.
    pub(crate) fn is_own(&self) -> bool {
        self.process == process::id()
    }

    /// Returns the runtime on which the calls run.
    ///
    /// # Errors
    /// `RuntimeError` when the process may not start a thread.
    pub(crate) fn handle(&self) -> PyResult<Handle> {
        match &self.how {
            How::Blocking => runtime().map(|runtime| runtime.handle().clone()),
            How::Queued(queue) => Ok(queue.runtime().clone()),
        }
    }
}
