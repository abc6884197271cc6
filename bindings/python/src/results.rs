//! Results of calls, as Python's objects. They are made under Python's lock.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sanderling_client::ClientError;
use sanderling_native::{Metadata, Value};
use serde::Serialize;

use crate::borrowed_bytes::PyBuffer;
use crate::error::{json, raised};

type Converted = PyResult<Py<PyAny>>;

/// Returns metadata as a tuple, in the order of its schema.
pub(crate) fn metadata(py: Python<'_>, metadata: impl Metadata) -> Converted {
    let values = metadata.fields().into_iter().map(|(_, value)| field(py, value));
    Ok(PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
}

/// Returns the value of a field.
pub(crate) fn field<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Text(text) => text.into_bound_py_any(py),
        Value::Number(number) => number.into_bound_py_any(py),
        Value::Optional(number) => number.into_bound_py_any(py),
        Value::Flag(flag) => flag.into_bound_py_any(py),
        Value::Kind(kind) => kind.name().into_bound_py_any(py),
        Value::Instant(instant) => instant.0.into_bound_py_any(py),
        Value::Duration(duration) => duration.as_secs_f64().into_bound_py_any(py),
        Value::Texts(texts) => {
            let found = PyDict::new(py);
            for (name, text) in texts.iter() {
                found.set_item(name, text)?;
            }
            Ok(found.into_any())
        }
    }
}

/// Returns bytes without copying them.
pub(crate) fn buffer(py: Python<'_>, bytes: bytes::Bytes) -> Converted {
    PyBuffer(bytes).into_py_any(py)
}

/// Returns the bytes of many ranges, each without copying them.
pub(crate) fn buffers(py: Python<'_>, parts: Vec<bytes::Bytes>) -> Converted {
    parts.into_iter().map(PyBuffer).collect::<Vec<_>>().into_py_any(py)
}

/// Returns a value as JSON.
pub(crate) fn text(py: Python<'_>, value: impl Serialize) -> Converted {
    json(&value)?.into_py_any(py)
}

/// Returns a value that Python has a type for.
pub(crate) fn object<T: for<'py> IntoPyObject<'py>>(py: Python<'_>, value: T) -> Converted {
    value.into_py_any(py)
}

pub(crate) fn none(py: Python<'_>, (): ()) -> Converted {
    Ok(py.None())
}

/// Returns the result of each of many calls, errors as exceptions that are not raised.
pub(crate) fn each<T>(
    made: impl Fn(Python<'_>, T) -> Converted,
) -> impl FnOnce(Python<'_>, Vec<Result<T, ClientError>>) -> Converted {
    move |py, many| {
        let one = |each: Result<T, ClientError>| match each {
            Ok(value) => made(py, value),
            Err(error) => Ok(raised(py, &error).into_value(py).into_any()),
        };
        many.into_iter().map(one).collect::<PyResult<Vec<_>>>()?.into_py_any(py)
    }
}
