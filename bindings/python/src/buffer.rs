//! Python's buffers as slices while its lock is released.
#![allow(unsafe_code, reason = "the buffer protocol hands out raw memory")]

use std::slice;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

/// A buffer held open for reading.
pub(crate) struct Source(PyBuffer<u8>);

impl Source {
    /// Opens any object with a contiguous buffer of bytes.
    ///
    /// # Errors
    /// `BufferError` when it has none.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(object)?;
        if buffer.is_c_contiguous() { Ok(Self(buffer)) } else { Err(not_contiguous()) }
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
}

/// A buffer held open for writing.
pub(crate) struct Target(PyBuffer<u8>);

impl Target {
    /// Opens any object with a contiguous, writable buffer of bytes.
    ///
    /// # Errors
    /// `BufferError` when it has none, `ValueError` when it is read-only.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(object)?;
        if buffer.readonly() {
            return Err(PyValueError::new_err("the buffer is read-only"));
        }
        if buffer.is_c_contiguous() { Ok(Self(buffer)) } else { Err(not_contiguous()) }
    }

    /// Returns its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: the export keeps the memory in place until `self` is dropped; it is contiguous
        // and writable. A program that uses it meanwhile races with itself, as with
        // `socket.recv_into`.
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

fn not_contiguous() -> PyErr {
    PyBufferError::new_err("the buffer is not contiguous")
}
