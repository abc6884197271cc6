//! How calls are made: by waiting for them, or by asking for their answers later.

use std::future::Future;
use std::process;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sanderling_client::ClientError;
use tokio::runtime::Handle;

use crate::buffer::let_go;
use crate::mailbox::Mailbox;
use crate::runtime::{runtime, wait};

/// How a client's calls are made. Its readers and writers make theirs the same way.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The process that connected: one that it forks shares its sockets, and must not use them.
    process: u32,
    how: How,
}

#[derive(Clone)]
enum How {
    /// The calling thread waits, and the call's result is returned.
    Waits,
    /// A ticket is returned, under which the mailbox has the result later.
    Mails(Arc<Mailbox>),
}

impl Caller {
    /// Returns the caller of threads that wait.
    pub(crate) fn waits() -> Self {
        Self { process: process::id(), how: How::Waits }
    }

    /// Returns the caller of a loop that has its answers later.
    pub(crate) fn mails(mailbox: Arc<Mailbox>) -> Self {
        Self { process: process::id(), how: How::Mails(mailbox) }
    }

    /// Makes a call, and makes Python's result of what it returns.
    ///
    /// # Errors
    /// The call's own, where it is waited for; `RuntimeError` in a forked child, which connects
    /// again.
    pub(crate) fn call<'py, T: Send + 'static>(
        &self,
        py: Python<'py>,
        call: impl Future<Output = Result<T, ClientError>> + Send + 'static,
        made: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !self.is_own() {
            let text = "the process that forked this one connected here: connect again";
            return Err(PyRuntimeError::new_err(text));
        }
        match &self.how {
            How::Waits => {
                let result = wait(py, call);
                let_go(py);
                Ok(made(py, result?)?.into_bound(py))
            }
            How::Mails(mailbox) => mailbox.begin(call, made)?.into_bound_py_any(py),
        }
    }

    /// Tells whether this process connected.
    pub(crate) fn is_own(&self) -> bool {
        self.process == process::id()
    }

    /// Returns the runtime on which the calls run.
    ///
    /// # Errors
    /// `RuntimeError` when the process may not start a thread.
    pub(crate) fn handle(&self) -> PyResult<Handle> {
        match &self.how {
            How::Waits => runtime().map(|runtime| runtime.handle().clone()),
            How::Mails(mailbox) => Ok(mailbox.runtime().clone()),
        }
    }
}
