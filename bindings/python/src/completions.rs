//! The completion queue, as an asyncio loop holds it.

use std::sync::Arc;

use pyo3::prelude::*;
use sanderling_client::Client;

use crate::buffer::release_pending;
use crate::caller::CallRunner;
use crate::client::{PyClient, config};
use crate::credentials::PyCredentials;
use crate::error::raised;
use crate::queue::CompletionQueue;

/// An answer as the loop takes it: its call id, whether it is an error, and the result.
type Taken = (u64, bool, Py<PyAny>);

/// A completion queue as the loop holds it.
#[pyclass(frozen, name = "CompletionQueue")]
pub(crate) struct PyCompletionQueue(Arc<CompletionQueue>);

#[pymethods]
impl PyCompletionQueue {
    #[new]
    fn new() -> PyResult<Self> {
        CompletionQueue::open().map(Self)
    }

    /// Returns the descriptor that is readable while answers are there.
    fn fileno(&self) -> i32 {
        self.0.descriptor()
    }

    /// Connects; the answer is a client whose methods return call ids.
    fn connect(
        &self,
        address: String,
        timeout_millis: Option<u64>,
        credentials: Option<&PyCredentials>,
    ) -> PyResult<u64> {
        let config = config(timeout_millis, credentials);
        let caller = CallRunner::queued(Arc::clone(&self.0));
        let connecting = async move { Client::connect(&address, config).await };
        self.0.begin(connecting, |py, client| {
            Ok(Py::new(py, PyClient::new(client, caller))?.into_any())
        })
    }

    /// Returns the answers that are there: call id, whether it failed, result or exception.
    fn take(&self, py: Python<'_>) -> Vec<Taken> {
        let taken = self.0.take().into_iter().map(|(call_id, answer)| {
            let made = match answer {
                Ok(made) => made(py),
                Err(error) => Err(raised(py, &error)),
            };
            match made {
                Ok(value) => (call_id, false, value),
                Err(error) => (call_id, true, error.into_value(py).into_any()),
            }
        });
        let taken = taken.collect();
        release_pending(py);
        taken
    }

    fn cancel(&self, py: Python<'_>, call_id: u64) {
        self.0.cancel(call_id);
        release_pending(py);
    }

    fn close(&self, py: Python<'_>) {
        self.0.close();
        release_pending(py);
    }
}

impl Drop for PyCompletionQueue {
    fn drop(&mut self) {
        self.0.close();
    }
}
