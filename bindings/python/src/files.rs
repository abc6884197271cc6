//! Open objects. Their methods make calls the way their client does.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sanderling_client::{ClientError, Reader, Writer};
use sanderling_protocol::refusal::ByteRange;

use crate::arguments::Argument;
use crate::buffer::{ReadBuffer, WriteBuffer, release_pending};
use crate::caller::CallRunner;
use crate::error::closed;
use crate::results::{buffer, metadata, none, object};

/// Shorter writes are copied, so that the next one need not wait for their acknowledgements. A
/// longer one is sent from Python's memory, which may change as soon as the call returns: it waits
/// until all of that is acknowledged. As much as a writer has in flight at once (four blocks), so
/// that the wait is short beside the rest. Chosen, not measured.
const BORROWED_BYTES_MIN: usize = 4 << 20;

/// An object opened for reading.
#[pyclass(frozen, name = "Reader")]
pub(crate) struct PyReader {
    reader: Reader,
    caller: CallRunner,
}

impl PyReader {
    pub(crate) const fn new(reader: Reader, caller: CallRunner) -> Self {
        Self { reader, caller }
    }

    pub(crate) const fn reader(&self) -> &Reader {
        &self.reader
    }
}

#[pymethods]
impl PyReader {
    #[getter]
    fn stat(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        metadata(py, self.reader.stat())
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.reader.bytes()
    }

    fn read_range<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.reader.clone();
        let read = async move { reader.read_range(offset, length).await };
        self.caller
            .call(py, "read", read, |py, read| Ok(PyBytes::new(py, &read).into_any().unbind()))
    }

    fn view<'py>(&self, py: Python<'py>, offset: u64, length: u64) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.reader.clone();
        let read = async move { reader.read_range(offset, length).await };
        self.caller.call(py, "read", read, buffer)
    }

    fn read_into<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        mut buffer: WriteBuffer,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.reader.clone();
        let read = async move { reader.read_into(offset, buffer.bytes()).await };
        self.caller.call(py, "read", read, object)
    }

    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Argument<Vec<ByteRange>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.reader.clone();
        let read = async move { reader.read_ranges(&ranges).await };
        self.caller.call(py, "read_ranges", read, |py, parts| {
            let parts: Vec<_> = parts.iter().map(|part| PyBytes::new(py, part)).collect();
            parts.into_py_any(py)
        })
    }
}

/// An object being written.
#[pyclass(frozen, name = "Writer")]
pub(crate) struct PyWriter {
    /// Empty while a call has it, so that no lock is held meanwhile, and when it is closed.
    writer: Arc<Mutex<Option<Writer>>>,
    position: Arc<AtomicU64>,
    caller: CallRunner,
}

impl PyWriter {
    pub(crate) fn new(writer: Writer, caller: CallRunner) -> Self {
        let position = Arc::new(AtomicU64::new(writer.position()));
        Self { writer: Arc::new(Mutex::new(Some(writer))), position, caller }
    }

    fn take(&self, py: Python<'_>) -> PyResult<Writer> {
        let taken = self.writer.lock().take();
        taken.ok_or_else(|| {
            closed(py, "the writer is closed, was given up, or is in use by another thread or task")
        })
    }

    /// Makes a call that leaves the writer open. A call that is cancelled before its end drops the
    /// writer with it, so no half-written object stays.
    fn with<'py, Made>(
        &self,
        py: Python<'py>,
        name: &'static str,
        call: impl FnOnce(Writer) -> Made,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        Made: Future<Output = (Writer, Result<(), ClientError>)> + Send + 'static,
    {
        let call = call(self.take(py)?);
        let (slot, position) = (Arc::clone(&self.writer), Arc::clone(&self.position));
        let kept = async move {
            let (writer, result) = call.await;
            position.store(writer.position(), Ordering::Relaxed);
            *slot.lock() = Some(writer);
            result
        };
        self.caller.call(py, name, kept, none)
    }
}

#[pymethods]
impl PyWriter {
    #[getter]
    fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    fn write<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let source = ReadBuffer::of(data)?.into_bytes();
        let written = self.with(py, "write", |mut writer| async move {
            let result = match source.len() >= BORROWED_BYTES_MIN {
                true => writer.write_borrowed(source).await,
                false => writer.write(&source).await,
            };
            (writer, result)
        });
        release_pending(py);
        written
    }

    /// Sets a text that is kept beside the bytes from the close on.
    fn set_attribute(&self, py: Python<'_>, name: String, text: String) -> PyResult<()> {
        let mut writer = self.take(py)?;
        writer.set_attribute(name, text);
        *self.writer.lock() = Some(writer);
        Ok(())
    }

    fn flush<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.with(py, "flush", |mut writer| async move {
            let result = writer.flush().await;
            (writer, result)
        })
    }

    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let writer = self.take(py)?;
        self.caller.call(py, "close", async move { writer.close().await }, metadata)
    }

    fn abort<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let writer = self.writer.lock().take();
        let abort = async move {
            match writer {
                Some(writer) => writer.abort().await,
                None => Ok(()),
            }
        };
        self.caller.call(py, "abort", abort, none)
    }
}

impl Drop for PyWriter {
    fn drop(&mut self) {
        if !self.caller.is_own() {
            // It is still the parent's, which continues to write.
            std::mem::forget(self.writer.lock().take());
            return;
        }
        // A writer that is dropped unclosed starts its clean-up as a task.
        let handle = self.caller.handle();
        let _context = handle.as_ref().map(tokio::runtime::Handle::enter);
        drop(self.writer.lock().take());
    }
}
