//! Errors as Python raises them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sanderling_client::ClientError;
use sanderling_native::ErrorFields;
use sanderling_protocol::Path;
use sanderling_protocol::refusal::Recovery;
use serde::Serialize;

/// Returns the Python exception of an error.
pub(crate) fn raised(py: Python<'_>, error: impl Into<ErrorFields>) -> PyErr {
    let error = error.into();
    let (_, recovery, after) = error.recovery();
    let ranges: Vec<_> = error.ranges.iter().map(|range| (range.offset, range.bytes)).collect();
    let lost = (!ranges.is_empty()).then_some((error.object, ranges));
    let after = after.map(|after| after.0 as f64 / 1000.0);
    let arguments = (error.name, error.text, recovery, after, error.path, lost);
    py.import("sanderling.errors")
        .and_then(|module| module.getattr("from_native")?.call1(arguments))
        .map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception of a call of an object that was closed before.
pub(crate) fn closed(py: Python<'_>, text: &str) -> PyErr {
    raised(py, ErrorFields::new("Closed", text, Recovery::Fix))
}

/// Returns a path, or the exception of the refusal of a bad one.
pub(crate) fn path(py: Python<'_>, text: &str) -> PyResult<Path> {
    text.parse().map_err(|refusal| raised(py, &ClientError::Refused(refusal)))
}

/// Returns a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}
