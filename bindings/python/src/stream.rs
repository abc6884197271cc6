//! Multifiles read as one stream.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use sanderling_client::MultiReader;

use crate::borrowed_bytes::PyBuffer;
use crate::caller::CallRunner;
use crate::error::closed;

/// Reads the parts of a multifile one after the other.
#[pyclass(frozen, name = "Stream")]
pub(crate) struct PyStream {
    /// Empty while a call has it, and after one that was cancelled.
    reader: Arc<Mutex<Option<MultiReader>>>,
    caller: CallRunner,
}

impl PyStream {
    pub(crate) fn new(reader: MultiReader, caller: CallRunner) -> Self {
        Self { reader: Arc::new(Mutex::new(Some(reader))), caller }
    }
}

#[pymethods]
impl PyStream {
    /// Returns the next bytes; `None` at the end of the last part.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let taken = self.reader.lock().take();
        let mut reader = taken.ok_or_else(|| {
            closed(py, "the stream was given up, or is in use by another thread or task")
        })?;
        let slot = Arc::clone(&self.reader);
        let next = async move {
            let next = reader.next().await;
            *slot.lock() = Some(reader);
            next.transpose()
        };
        self.caller.call(py, "next", next, |py, bytes| bytes.map(PyBuffer).into_py_any(py))
    }
}

impl Drop for PyStream {
    fn drop(&mut self) {
        let reader = self.reader.lock().take();
        if !self.caller.is_own() {
            std::mem::forget(reader);
        }
    }
}
