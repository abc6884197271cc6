//! Facts about one object, as Python's `Stat` takes them: no text that would have to be parsed.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sanderling_protocol::JobId;
use sanderling_protocol::message::ObjectStat;

/// Returns facts in the order of the fields of `Stat`; moments are in microseconds since 1970, the
/// time left in milliseconds.
pub(crate) fn stat_tuple<'py>(py: Python<'py>, stat: &ObjectStat) -> PyResult<Bound<'py, PyTuple>> {
    let job = stat.job.map(|JobId(job)| job);
    let attributes = PyDict::new(py);
    for (name, text) in stat.attributes.iter() {
        attributes.set_item(name, text)?;
    }
    let fields = [
        stat.path.as_str().into_bound_py_any(py)?,
        stat.object.0.into_bound_py_any(py)?,
        stat.kind.name().into_bound_py_any(py)?,
        stat.bytes.into_bound_py_any(py)?,
        stat.lost_bytes.into_bound_py_any(py)?,
        stat.is_sealed.into_bound_py_any(py)?,
        stat.is_listed.into_bound_py_any(py)?,
        stat.delete_after_read.into_bound_py_any(py)?,
        stat.class.to_string().into_bound_py_any(py)?,
        stat.created_at.0.into_bound_py_any(py)?,
        stat.modified_at.0.into_bound_py_any(py)?,
        stat.expires_in.map(|left| left.0).into_bound_py_any(py)?,
        stat.blocks.into_bound_py_any(py)?,
        stat.entries.into_bound_py_any(py)?,
        job.into_bound_py_any(py)?,
        attributes.into_bound_py_any(py)?,
    ];
    PyTuple::new(py, fields)
}
