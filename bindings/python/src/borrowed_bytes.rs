//! Bytes that Python reads where they are.
#![allow(unsafe_code, reason = "the buffer protocol hands out raw memory")]

use std::ffi::c_int;

use bytes::Bytes;
use pyo3::exceptions::{PyAttributeError, PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PySlice, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, ffi};

use crate::buffer::ReadBuffer;

/// Bytes shown of a long buffer by its `repr`: they fit into one line. Chosen, not measured.
const SHOWN_BYTES: usize = 32;

/// Read-only bytes of an object, not copied: those of a read on the same host lie in the datanode's
/// memory, which is free again when the last `Buffer` of them, and the last view of it, is gone.
#[pyclass(frozen, weakref, sequence, name = "Buffer", module = "sanderling")]
pub(crate) struct PyBuffer(pub(crate) Bytes);

#[pymethods]
impl PyBuffer {
    /// Returns the bytes of anything with a contiguous buffer, which is not copied.
    #[new]
    fn new(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        ReadBuffer::of(data).map(|source| Self(source.into_bytes()))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __bool__(&self) -> bool {
        !self.0.is_empty()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES)];
        let text = PyBytes::new(py, shown).repr()?.to_string();
        let more = if shown.len() < self.0.len() { "..." } else { "" };
        Ok(format!("<sanderling.Buffer of {} bytes: {text}{more}>", self.0.len()))
    }

    /// Returns the hash of equal `bytes`.
    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        // SAFETY: the memory outlives the view, which is gone at the end of this function, and is
        // only read through it.
        let view = unsafe {
            let (start, length) = (self.0.as_ptr(), self.0.len() as ffi::Py_ssize_t);
            let view =
                ffi::PyMemoryView_FromMemory(start.cast_mut().cast(), length, ffi::PyBUF_READ);
            Bound::from_owned_ptr_or_err(py, view)?
        };
        view.hash()
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        if let Ok(other) = other.cast::<Self>() {
            return op.matches(self.0.cmp(&other.get().0)).into_py_any(py);
        }
        match ReadBuffer::of(other) {
            Ok(source) => {
                let order = self.0.as_ref().cmp(source.bytes());
                source.release(py);
                op.matches(order).into_py_any(py)
            }
            Err(_) => Ok(py.NotImplemented()),
        }
    }

    /// Returns a byte, or a `Buffer` of the same bytes; only a slice with a step is a copy.
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = index.py();
        let length = self.0.len() as isize;
        if let Ok(slice) = index.cast::<PySlice>() {
            let at = slice.indices(length)?;
            let (start, count) = (at.start, at.slicelength);
            let bytes = if at.step == 1 || count == 0 {
                let start = if count == 0 { 0 } else { start as usize };
                self.0.slice(start..start + count)
            } else {
                (0..count as isize).map(|each| self.0[(start + each * at.step) as usize]).collect()
            };
            return Self(bytes).into_py_any(py);
        }
        let index: isize = index
            .extract()
            .map_err(|_| PyTypeError::new_err("the index of a Buffer is an integer or a slice"))?;
        let at = if index < 0 { index + length } else { index };
        let byte = usize::try_from(at).ok().and_then(|at| self.0.get(at));
        byte.ok_or_else(|| PyIndexError::new_err(format!("index {index} of {length} bytes")))?
            .into_py_any(py)
    }

    fn __add__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.__bytes__(other.py()).add(other)
    }

    fn __contains__(&self, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.__bytes__(item.py()).contains(item)
    }

    /// Returns the methods of `bytes`, of a copy: `decode`, `split`, `hex` and the others.
    fn __getattr__<'py>(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        let py = name.py();
        if name.to_cow()?.starts_with('_') || !py.get_type::<PyBytes>().hasattr(name)? {
            return Err(PyAttributeError::new_err(format!("a Buffer has no attribute {name}")));
        }
        self.__bytes__(py).getattr(name)
    }

    /// Returns a copy as `bytes`.
    fn tobytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.__bytes__(py)
    }

    /// Pickles as `bytes`; from protocol 5 on the bytes may travel beside the pickle, uncopied.
    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Self>,
        protocol: i32,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let state = if protocol >= 5 {
            py.import("pickle")?.getattr("PickleBuffer")?.call1((slf,))?
        } else {
            slf.get().__bytes__(py).into_any()
        };
        Ok((py.get_type::<PyBytes>().into_any(), PyTuple::new(py, [state])?))
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let py = slf.py();
        let bytes = &slf.get().0;
        // SAFETY: `view` is Python's, to be filled in; it takes a reference to this object, whose
        // bytes are frozen and live as long. A request to write is refused by the call.
        let filled = unsafe {
            let (start, length) = (bytes.as_ptr(), bytes.len() as ffi::Py_ssize_t);
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast_mut().cast(), length, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
    }
}
