//! Open objects.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use sanderling_client::{Reader, Writer};
use sanderling_protocol::refusal::ByteRange;

use crate::buffer::{Source, Target};
use crate::facts::facts;
use crate::lent::PyLent;
use crate::runtime::{runtime, wait};

/// An object opened for reading.
#[pyclass(frozen, name = "Reader")]
pub(crate) struct PyReader(pub(crate) Reader);

#[pymethods]
impl PyReader {
    #[getter]
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        facts(py, &self.0.stat())
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_range<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &wait(py, self.0.read_range(offset, length))?))
    }

    fn view(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<PyLent> {
        wait(py, self.0.read_range(offset, length)).map(PyLent)
    }

    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut target = Target::of(buffer)?;
        wait(py, self.0.read_into(offset, target.bytes()))
    }

    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let ranges = byte_ranges(&ranges);
        let parts = wait(py, self.0.read_ranges(&ranges))?;
        Ok(parts.iter().map(|part| PyBytes::new(py, part)).collect())
    }
}

/// An object being written.
#[pyclass(frozen, name = "Writer")]
pub(crate) struct PyWriter {
    writer: Mutex<Option<Writer>>,
    #[pyo3(get)]
    position: u64,
}

impl PyWriter {
    pub(crate) fn new(writer: Writer) -> Self {
        let position = writer.position();
        Self { writer: Mutex::new(Some(writer)), position }
    }

    /// Takes the writer out, so that no lock is held while the call is under way.
    fn take(&self) -> PyResult<Writer> {
        let taken = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| {
            pyo3::exceptions::PyValueError::new_err(
                "the writer is closed, has failed, or is in use by another thread",
            )
        })
    }

    fn put_back(&self, writer: Writer) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }
}

#[pymethods]
impl PyWriter {
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let source = Source::of(data)?;
        let mut writer = self.take()?;
        let result = wait(py, writer.write(source.bytes()));
        self.put_back(writer);
        result
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let mut writer = self.take()?;
        let result = wait(py, writer.flush());
        self.put_back(writer);
        result
    }

    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let writer = self.take()?;
        facts(py, &wait(py, writer.close())?)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        match self.take() {
            Ok(writer) => wait(py, writer.abort()),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for PyWriter {
    fn drop(&mut self) {
        // A writer that is dropped unclosed may start its clean-up as a task.
        let _context = runtime().map(tokio::runtime::Runtime::enter);
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Returns the client's ranges of Python's pairs.
pub(crate) fn byte_ranges(pairs: &[(u64, u64)]) -> Vec<ByteRange> {
    pairs.iter().map(|&(offset, bytes)| ByteRange { offset, bytes }).collect()
}
