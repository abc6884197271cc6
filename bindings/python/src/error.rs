//! Errors as Python raises them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sanderling_client::ClientError;
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Path, Refusal};
use serde::Serialize;

type Unavailable = (u64, Vec<(u64, u64)>);

/// Returns the Python exception of an error.
pub(crate) fn raised(py: Python<'_>, error: &ClientError) -> PyErr {
    let unavailable = match error {
        ClientError::DataUnavailable { object, ranges, .. } => {
            let ranges = ranges.iter().map(|range| (range.offset, range.bytes)).collect();
            Some((object.0, ranges))
        }
        _ => None,
    };
    made(py, error.name(), &error.to_string(), error.recovery(), error.path(), unavailable)
}

/// Returns the Python exception of a refusal made on this side.
pub(crate) fn refused(py: Python<'_>, refusal: &Refusal) -> PyErr {
    let (name, text) = (refusal.name(), refusal.to_string());
    made(py, name, &text, refusal.recovery(), refusal.path(), None)
}

/// Returns the exception that says that something was closed before.
pub(crate) fn closed(py: Python<'_>, text: &str) -> PyErr {
    made(py, "Closed", text, Recovery::Fix, None, None)
}

/// Returns a path or the exception that says what is wrong with it.
pub(crate) fn path(py: Python<'_>, text: &str) -> PyResult<Path> {
    text.parse().map_err(|refusal| refused(py, &refusal))
}

/// Returns facts as JSON.
pub(crate) fn json(facts: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(facts).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn made(
    py: Python<'_>,
    kind: &str,
    text: &str,
    recovery: Recovery,
    path: Option<&str>,
    unavailable: Option<Unavailable>,
) -> PyErr {
    let (recovery, after) = match recovery {
        Recovery::Refresh => ("refresh", None),
        Recovery::RetryAfter(after) => ("retry_after", Some(after.0 as f64 / 1000.0)),
        Recovery::Recompute => ("recompute", None),
        Recovery::Report => ("report", None),
        Recovery::Fix => ("fix", None),
    };
    let arguments = (kind, text, recovery, after, path, unavailable);
    py.import("sanderling.errors")
        .and_then(|module| module.getattr("from_native")?.call1(arguments))
        .map_or_else(|error| error, PyErr::from_value)
}
