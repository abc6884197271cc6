//! Python's buffers as slices while its lock is released.
#![allow(unsafe_code, reason = "the buffer protocol hands out raw memory")]

use std::slice;

use bytes::Bytes;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sanderling_native::{Borrowed, ReleaseQueue};

static RELEASED: ReleaseQueue<ReadBuffer> = ReleaseQueue::new();

/// A buffer held open for reading.
pub(crate) struct ReadBuffer(PyUntypedBuffer);

impl ReadBuffer {
    /// Opens any object with a contiguous buffer.
    ///
    /// # Errors
    /// `TypeError` when it has none, `ValueError` when it is not contiguous bytes.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        check(&buffer)?;
        Ok(Self(buffer))
    }

    /// Returns its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the export keeps the memory in place until `self` is dropped, and it is
        // contiguous. A program that writes to it meanwhile races with itself, as with `os.write`.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }

    /// Returns its bytes without copying them: the buffer stays open until the last use of them
    /// has ended and [`release_pending`] was called after that.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Borrowed::new(self, &RELEASED))
    }

    /// Closes it.
    pub(crate) fn release(self, py: Python<'_>) {
        self.0.release(py);
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// Releases the borrowed buffers that are no longer in use.
pub(crate) fn release_pending(py: Python<'_>) {
    RELEASED.take().into_iter().for_each(|buffer| buffer.release(py));
}

/// A buffer held open for writing. The next call after its drop releases it, too.
pub(crate) struct WriteBuffer(Borrowed<ReadBuffer>);

impl WriteBuffer {
    /// Opens any object with a contiguous, writable buffer.
    ///
    /// # Errors
    /// `TypeError` when it has none, `ValueError` when it is read-only or not contiguous bytes.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.readonly() {
            return Err(PyValueError::new_err("the buffer is read-only"));
        }
        check(&buffer)?;
        Ok(Self(Borrowed::new(ReadBuffer(buffer), &RELEASED)))
    }

    /// Returns its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let buffer = &self.0.0;
        if buffer.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: the export keeps the memory in place until `self` is dropped; it is contiguous
        // and writable. A program that uses it meanwhile races with itself, as with
        // `socket.recv_into`.
        unsafe { slice::from_raw_parts_mut(buffer.buf_ptr().cast(), buffer.len_bytes()) }
    }
}

/// Refuses memory that is not contiguous bytes.
fn check(buffer: &PyUntypedBuffer) -> PyResult<()> {
    if !buffer.is_c_contiguous() {
        let text = "the buffer is not contiguous: pass a copy, such as bytes(buffer)";
        return Err(PyValueError::new_err(text));
    }
    if buffer.format().to_bytes().contains(&b'O') {
        // Python's own addresses: written over, they would crash it.
        return Err(PyValueError::new_err("the buffer holds Python objects, not bytes"));
    }
    Ok(())
}
