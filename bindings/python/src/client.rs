//! The client.

use std::collections::HashMap;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyTuple;
use sanderling_client::{Client, ClientConfig, ClientError, Reader};
use sanderling_protocol::message::{JobHints, ObjectKind, RegisterJob};
use sanderling_protocol::node::NodeSelector;
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{JobId, Millis, Path};

use crate::buffer::{Source, let_go};
use crate::error::{json, path, raised};
use crate::facts::facts;
use crate::files::{PyReader, PyWriter, byte_ranges};
use crate::lent::PyLent;
use crate::options::PyOptions;
use crate::runtime::wait;

/// A connection to a cluster.
#[pyclass(frozen, name = "Client")]
pub(crate) struct PyClient(Client);

#[pymethods]
impl PyClient {
    #[new]
    #[pyo3(signature = (address, timeout = None))]
    fn new(py: Python<'_>, address: &str, timeout: Option<f64>) -> PyResult<Self> {
        let mut config = ClientConfig::default();
        if let Some(seconds) = timeout {
            config.call_deadline = Duration::try_from_secs_f64(seconds)
                .map_err(|error| PyValueError::new_err(format!("timeout {seconds}: {error}")))?;
        }
        wait(py, Client::connect(address, config)).map(Self)
    }

    fn put<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        data: &Bound<'py, PyAny>,
        options: &PyOptions,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let name = path(py, name)?;
        let data = Source::of(data)?.into_bytes();
        let stat = wait(py, self.0.put(&name, data, &options.0));
        let_go(py);
        facts(py, &stat?)
    }

    /// Returns for each object its facts, or the error as an object.
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        objects: Vec<(PyBackedStr, Bound<'py, PyAny>)>,
        options: &PyOptions,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let source = |(name, data): &(PyBackedStr, Bound<'py, PyAny>)| {
            Ok((path(py, name)?, Source::of(data)?.into_bytes()))
        };
        let sources: PyResult<Vec<_>> = objects.iter().map(source).collect();
        let put = sources.and_then(|sources| {
            wait(py, async { Ok(self.0.create_many(sources, &options.0).await) })
        });
        let_go(py);
        each(py, put?, |stat| facts(py, &stat).map(Bound::into_any))
    }

    /// Returns each object's bytes, or the error as an object.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        names: Vec<PyBackedStr>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let names: PyResult<Vec<Path>> = names.iter().map(|name| path(py, name)).collect();
        let names = names?;
        let got = wait(py, self.0.get_many(&names))?;
        each(py, got, |bytes| Ok(Bound::new(py, PyLent(bytes))?.into_any()))
    }

    fn get(&self, py: Python<'_>, name: &str) -> PyResult<PyLent> {
        let name = path(py, name)?;
        wait(py, self.0.get(&name)).map(PyLent)
    }

    fn get_range(&self, py: Python<'_>, name: &str, offset: u64, length: u64) -> PyResult<PyLent> {
        let name = path(py, name)?;
        wait(py, self.0.get_range(&name, offset, length)).map(PyLent)
    }

    fn get_ranges(
        &self,
        py: Python<'_>,
        name: &str,
        ranges: Vec<(u64, u64)>,
    ) -> PyResult<Vec<PyLent>> {
        let (name, ranges) = (path(py, name)?, byte_ranges(&ranges));
        let parts = wait(py, self.0.get_ranges(&name, &ranges))?;
        Ok(parts.into_iter().map(PyLent).collect())
    }

    fn reader(&self, py: Python<'_>, name: &str) -> PyResult<PyReader> {
        let name = path(py, name)?;
        wait(py, self.0.open(&name)).map(PyReader)
    }

    /// Returns each object open, or the error as an object.
    fn readers<'py>(
        &self,
        py: Python<'py>,
        names: Vec<PyBackedStr>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let names: PyResult<Vec<Path>> = names.iter().map(|name| path(py, name)).collect();
        let names = names?;
        let opened = wait(py, async { Ok(self.0.open_many(&names).await) })?;
        each(py, opened, |reader| Ok(Bound::new(py, PyReader(reader))?.into_any()))
    }

    /// Returns the ranges of each open object, or the error as an object.
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        wanted: Vec<(PyRef<'py, PyReader>, Vec<(u64, u64)>)>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let wanted: Vec<(Reader, Vec<ByteRange>)> =
            wanted.iter().map(|(reader, ranges)| (reader.0.clone(), byte_ranges(ranges))).collect();
        let read = wait(py, async { Ok(self.0.read_many(&wanted).await) })?;
        each(py, read, |parts| {
            let parts: Vec<PyLent> = parts.into_iter().map(PyLent).collect();
            parts.into_bound_py_any(py)
        })
    }

    fn create(&self, py: Python<'_>, name: &str, options: &PyOptions) -> PyResult<PyWriter> {
        let name = path(py, name)?;
        wait(py, self.0.create(&name, &options.0)).map(PyWriter::new)
    }

    fn append(&self, py: Python<'_>, name: &str) -> PyResult<PyWriter> {
        let name = path(py, name)?;
        wait(py, self.0.append(&name)).map(PyWriter::new)
    }

    fn stat<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyTuple>> {
        let name = path(py, name)?;
        facts(py, &wait(py, self.0.stat(&name))?)
    }

    fn list(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        let name = path(py, name)?;
        json(&wait(py, self.0.list_all(&name))?)
    }

    fn make_directory<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        kind: &str,
        parents: bool,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let name = path(py, name)?;
        let kind = match kind {
            "directory" => ObjectKind::Directory,
            "multifile" => ObjectKind::Multifile,
            "table" => ObjectKind::Table,
            other => {
                let text = format!("kind {other:?} is none of directory, multifile, table");
                return Err(PyValueError::new_err(text));
            }
        };
        facts(py, &wait(py, self.0.make_directory(&name, kind, parents, true))?)
    }

    fn rename(&self, py: Python<'_>, from: &str, to: &str, replace: bool) -> PyResult<()> {
        let (from, to) = (path(py, from)?, path(py, to)?);
        wait(py, self.0.rename(&from, &to, replace))
    }

    fn delete(&self, py: Python<'_>, name: &str, recursive: bool) -> PyResult<(u64, u64)> {
        let name = path(py, name)?;
        wait(py, self.0.delete(&name, recursive))
    }

    fn set_ttl(&self, py: Python<'_>, name: &str, ttl_millis: Option<u64>) -> PyResult<()> {
        let name = path(py, name)?;
        wait(py, self.0.set_ttl(&name, ttl_millis.map(Millis)))
    }

    fn usage(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        let name = path(py, name)?;
        json(&wait(py, self.0.usage(&name))?)
    }

    fn register_job(
        &self,
        py: Python<'_>,
        name: &str,
        lease_millis: u64,
        quota_bytes: Option<u64>,
        recompute_millis_per_mib: Option<u64>,
        expected_reads: Option<u32>,
    ) -> PyResult<String> {
        let hints = JobHints { recompute_millis_per_mib, expected_reads, ..JobHints::default() };
        let request =
            RegisterJob { path: path(py, name)?, lease: Millis(lease_millis), quota_bytes, hints };
        json(&wait(py, self.0.register_job(request))?)
    }

    fn renew_job(&self, py: Python<'_>, job: u64) -> PyResult<()> {
        wait(py, self.0.renew_job(JobId(job)))
    }

    fn end_job(&self, py: Python<'_>, job: u64) -> PyResult<()> {
        wait(py, self.0.end_job(JobId(job)))
    }

    fn jobs(&self, py: Python<'_>) -> PyResult<String> {
        json(&wait(py, self.0.jobs())?)
    }

    fn nodes(&self, py: Python<'_>, all: bool) -> PyResult<String> {
        json(&wait(py, self.0.nodes(all))?)
    }

    fn notice(
        &self,
        py: Python<'_>,
        node: String,
        deadline_millis: i64,
        reason: &str,
    ) -> PyResult<String> {
        let node = NodeSelector(node);
        json(&wait(py, self.0.notice(&node, deadline_millis, reason))?)
    }

    fn decommission(&self, py: Python<'_>, node: String, reason: &str) -> PyResult<String> {
        let node = NodeSelector(node);
        json(&wait(py, self.0.decommission(&node, reason))?)
    }

    fn cancel(&self, py: Python<'_>, node: String) -> PyResult<String> {
        let node = NodeSelector(node);
        json(&wait(py, self.0.cancel(&node))?)
    }

    fn events(&self, py: Python<'_>, after: u64, limit: u32, wait_millis: u64) -> PyResult<String> {
        json(&wait(py, self.0.events(after, limit, Millis(wait_millis)))?)
    }

    fn report(&self, py: Python<'_>) -> PyResult<String> {
        json(&wait(py, self.0.report())?)
    }

    fn fsck(&self, py: Python<'_>) -> PyResult<String> {
        json(&wait(py, self.0.fsck())?)
    }

    fn metrics(&self) -> HashMap<&'static str, f64> {
        let metrics = self.0.metrics();
        HashMap::from([
            ("retries", metrics.retries as f64),
            ("moved", metrics.moved as f64),
            ("refreshed", metrics.refreshed as f64),
            ("failed", metrics.failed as f64),
            ("read_bytes", metrics.read_bytes as f64),
            ("written_bytes", metrics.written_bytes as f64),
            ("same_host_read_bytes", metrics.same_host_read_bytes as f64),
            ("same_host_written_bytes", metrics.same_host_written_bytes as f64),
            ("longest_stall_seconds", metrics.longest_stall.as_secs_f64()),
        ])
    }
}

/// Returns what became of each of many, errors as exceptions that are not raised.
fn each<'py, T>(
    py: Python<'py>,
    many: Vec<Result<T, ClientError>>,
    made: impl Fn(T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let one = |each: Result<T, ClientError>| match each {
        Ok(value) => made(value),
        Err(error) => Ok(raised(py, &error).into_value(py).into_bound(py).into_any()),
    };
    many.into_iter().map(one).collect()
}
