//! The client.
//!
//! Each method makes one call the way its [`CallRunner`] does: a client that was connected by a
//! completion queue returns call ids where the other returns results.

use std::collections::HashMap;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use sanderling_client::{Client, ClientConfig, ClientError, Reader};
use sanderling_protocol::message::{JobHints, JobLimits, ObjectKind, ObjectStat, RegisterJob};
use sanderling_protocol::node::NodeSelector;
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::token::MintToken;
use sanderling_protocol::{JobId, Millis, ObjectId, Path, Reply, Request};
use serde::Serialize;

use crate::borrowed_bytes::PyBuffer;
use crate::buffer::{ReadBuffer, WriteBuffer, release_pending};
use crate::caller::CallRunner;
use crate::credentials::PyCredentials;
use crate::error::{json, path, raised};
use crate::files::{PyReader, PyWriter, byte_ranges};
use crate::lease_renewer::PyLeaseRenewer;
use crate::options::PyOptions;
use crate::runtime::wait;
use crate::stat::stat_tuple;
use crate::stream::PyStream;

/// What a method returns: the call's result, or a call id for it.
type Returned<'py> = PyResult<Bound<'py, PyAny>>;

/// An open object and the ranges that are wanted of it: offsets and lengths.
type RangesOf<'py> = (PyRef<'py, PyReader>, Vec<(u64, u64)>);

/// A connection to a cluster.
#[pyclass(frozen, name = "Client")]
pub(crate) struct PyClient {
    client: Client,
    caller: CallRunner,
}

impl PyClient {
    pub(crate) const fn new(client: Client, caller: CallRunner) -> Self {
        Self { client, caller }
    }
}

/// Returns the configuration of a client whose calls take so many milliseconds at most.
pub(crate) fn config(
    timeout_millis: Option<u64>,
    credentials: Option<&PyCredentials>,
) -> ClientConfig {
    let mut config = ClientConfig::default();
    if let Some(millis) = timeout_millis {
        config.call_deadline = Duration::from_millis(millis);
    }
    if let Some(credentials) = credentials {
        config.credentials = credentials.0.clone();
    }
    config
}

#[pymethods]
impl PyClient {
    #[new]
    #[pyo3(signature = (address, timeout_millis = None, credentials = None))]
    fn connect(
        py: Python<'_>,
        address: &str,
        timeout_millis: Option<u64>,
        credentials: Option<&PyCredentials>,
    ) -> PyResult<Self> {
        let config = config(timeout_millis, credentials);
        let client = wait(py, Client::connect(address, config))?;
        Ok(Self::new(client, CallRunner::blocking()))
    }

    fn put<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        data: &Bound<'py, PyAny>,
        options: &PyOptions,
    ) -> Returned<'py> {
        let name = path(py, name)?;
        let data = ReadBuffer::of(data)?.into_bytes();
        let (client, options) = (self.client.clone(), options.0.clone());
        let put = async move { client.put(&name, data, &options).await };
        self.caller.call(py, put, stat_made)
    }

    /// Returns for each object its facts, or the error as an object.
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        objects: Vec<(PyBackedStr, Bound<'py, PyAny>)>,
        options: &PyOptions,
    ) -> Returned<'py> {
        let source = |(name, data): &(PyBackedStr, Bound<'py, PyAny>)| {
            Ok((path(py, name)?, ReadBuffer::of(data)?.into_bytes()))
        };
        let sources: PyResult<Vec<_>> = objects.iter().map(source).collect();
        // Some may be open already when one is refused.
        let sources = sources.inspect_err(|_| release_pending(py))?;
        let (client, options) = (self.client.clone(), options.0.clone());
        let put = async move { Ok(client.create_many(sources, &options).await) };
        self.caller.call(py, put, |py, many| each(py, many, stat_made))
    }

    /// Returns each object's bytes, or the error as an object.
    fn get_many<'py>(&self, py: Python<'py>, names: Vec<PyBackedStr>) -> Returned<'py> {
        let names: PyResult<Vec<Path>> = names.iter().map(|name| path(py, name)).collect();
        let (client, names) = (self.client.clone(), names?);
        let get = async move { client.get_many(&names).await };
        self.caller.call(py, get, |py, many| each(py, many, buffer_made))
    }

    fn get<'py>(&self, py: Python<'py>, name: &str) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        self.caller.call(py, async move { client.get(&name).await }, buffer_made)
    }

    /// Reads into a writable buffer from an offset of the object on; returns how many bytes.
    fn get_into<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        offset: u64,
        buffer: &Bound<'py, PyAny>,
    ) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let mut target = WriteBuffer::of(buffer)?;
        let get = async move { client.get_into(&name, offset, target.bytes()).await };
        self.caller.call(py, get, |py, count| count.into_py_any(py))
    }

    /// Deletes an object that was read whole and has this id.
    fn delete_read<'py>(&self, py: Python<'py>, name: &str, object: u64) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let delete = async move {
            client.delete_read(&name, ObjectId(object)).await;
            Ok(())
        };
        self.caller.call(py, delete, none_made)
    }

    /// Opens a multifile, or a directory of files, as one stream.
    fn stream<'py>(&self, py: Python<'py>, name: &str) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let caller = self.caller.clone();
        self.caller.call(py, async move { client.open_multi(&name).await }, |py, stream| {
            PyStream::new(stream, caller).into_py_any(py)
        })
    }

    fn get_range<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        offset: u64,
        length: u64,
    ) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let get = async move { client.get_range(&name, offset, length).await };
        self.caller.call(py, get, buffer_made)
    }

    fn get_ranges<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        ranges: Vec<(u64, u64)>,
    ) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let get = async move { client.get_ranges(&name, &byte_ranges(&ranges)).await };
        self.caller.call(py, get, parts_made)
    }

    fn reader<'py>(&self, py: Python<'py>, name: &str) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let caller = self.caller.clone();
        self.caller.call(py, async move { client.open(&name).await }, |py, reader| {
            PyReader::new(reader, caller).into_py_any(py)
        })
    }

    /// Returns each object open, or the error as an object.
    fn readers<'py>(&self, py: Python<'py>, names: Vec<PyBackedStr>) -> Returned<'py> {
        let names: PyResult<Vec<Path>> = names.iter().map(|name| path(py, name)).collect();
        let (client, caller, names) = (self.client.clone(), self.caller.clone(), names?);
        let open = async move { Ok(client.open_many(&names).await) };
        self.caller.call(py, open, |py, many| {
            each(py, many, move |py, reader| PyReader::new(reader, caller.clone()).into_py_any(py))
        })
    }

    /// Returns the ranges of each open object, or the error as an object.
    fn read_many<'py>(&self, py: Python<'py>, wanted: Vec<RangesOf<'py>>) -> Returned<'py> {
        let wanted: Vec<(Reader, Vec<ByteRange>)> = wanted
            .iter()
            .map(|(reader, ranges)| (reader.reader().clone(), byte_ranges(ranges)))
            .collect();
        let client = self.client.clone();
        let read = async move { Ok(client.read_many(&wanted).await) };
        self.caller.call(py, read, |py, many| each(py, many, parts_made))
    }

    fn create<'py>(&self, py: Python<'py>, name: &str, options: &PyOptions) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let (caller, options) = (self.caller.clone(), options.0.clone());
        let create = async move { client.create(&name, &options).await };
        self.caller.call(py, create, |py, writer| PyWriter::new(writer, caller).into_py_any(py))
    }

    fn append<'py>(&self, py: Python<'py>, name: &str) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let caller = self.caller.clone();
        self.caller.call(py, async move { client.append(&name).await }, |py, writer| {
            PyWriter::new(writer, caller).into_py_any(py)
        })
    }

    fn stat<'py>(&self, py: Python<'py>, name: &str) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        self.caller.call(py, async move { client.stat(&name).await }, stat_made)
    }

    #[pyo3(signature = (name, with_attributes = false))]
    fn list<'py>(&self, py: Python<'py>, name: &str, with_attributes: bool) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let list = async move {
            match with_attributes {
                true => client.list_all_with_attributes(&name).await,
                false => client.list_all(&name).await,
            }
        };
        self.caller.call(py, list, json_made)
    }

    /// Sets attributes; `expected` is the object that must have the name, if any must.
    fn set_attributes<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        attributes: Vec<(String, String)>,
        expected: Option<u64>,
    ) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let (attributes, expected) = (attributes.into_iter().collect(), expected.map(ObjectId));
        let set = async move { client.set_attributes(&name, expected, attributes).await };
        self.caller.call(py, set, stat_made)
    }

    fn concat<'py>(
        &self,
        py: Python<'py>,
        parts: Vec<PyBackedStr>,
        target: &str,
        options: &PyOptions,
    ) -> Returned<'py> {
        let parts: PyResult<Vec<Path>> = parts.iter().map(|part| path(py, part)).collect();
        let (client, options) = (self.client.clone(), options.0.clone());
        let (parts, target) = (parts?, path(py, target)?);
        let concat = async move { client.concat(&parts, &target, &options).await };
        self.caller.call(py, concat, stat_made)
    }

    fn make_directory<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        kind: &str,
        parents: bool,
    ) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let kind = match kind {
            "directory" => ObjectKind::Directory,
            "multifile" => ObjectKind::Multifile,
            "table" => ObjectKind::Table,
            other => {
                let text = format!("kind {other:?} is none of directory, multifile, table");
                return Err(PyValueError::new_err(text));
            }
        };
        let make = async move { client.make_directory(&name, kind, parents, true).await };
        self.caller.call(py, make, stat_made)
    }

    fn rename<'py>(&self, py: Python<'py>, from: &str, to: &str, replace: bool) -> Returned<'py> {
        let (client, from, to) = (self.client.clone(), path(py, from)?, path(py, to)?);
        let rename = async move { client.rename(&from, &to, replace).await };
        self.caller.call(py, rename, none_made)
    }

    fn delete<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        recursive: bool,
        expected: Option<u64>,
    ) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let delete = async move {
            match expected {
                Some(object) => client.delete_object(&name, ObjectId(object), recursive).await,
                None => client.delete(&name, recursive).await,
            }
        };
        self.caller.call(py, delete, |py, deleted| deleted.into_py_any(py))
    }

    fn set_ttl<'py>(&self, py: Python<'py>, name: &str, ttl_millis: Option<u64>) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        let set = async move { client.set_ttl(&name, ttl_millis.map(Millis)).await };
        self.caller.call(py, set, none_made)
    }

    fn usage<'py>(&self, py: Python<'py>, name: &str) -> Returned<'py> {
        let (client, name) = (self.client.clone(), path(py, name)?);
        self.caller.call(py, async move { client.usage(&name).await }, json_made)
    }

    #[expect(clippy::too_many_arguments, reason = "they are the limits and hints of a job")]
    fn register_job<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        lease_millis: u64,
        quota_bytes: Option<u64>,
        names_max: Option<u64>,
        attribute_bytes_max: Option<u64>,
        expected_bytes: Option<u64>,
        throughput_bytes_per_second: Option<u64>,
        is_latency_sensitive: bool,
        delete_after_read: bool,
        keep_after_job: bool,
        recompute_millis_per_mib: Option<u64>,
        expected_reads: Option<u32>,
    ) -> Returned<'py> {
        let hints = JobHints {
            expected_bytes,
            throughput_bytes_per_second,
            is_latency_sensitive,
            delete_after_read,
            keep_after_job,
            recompute_millis_per_mib,
            expected_reads,
        };
        let request =
            RegisterJob { path: path(py, name)?, lease: Millis(lease_millis), quota_bytes, hints };
        let limits = JobLimits { names: names_max, attribute_bytes: attribute_bytes_max };
        let client = self.client.clone();
        let register = async move {
            // A namenode of the release before knows jobs without limits alone.
            if limits == JobLimits::default() {
                return client.register_job(request).await;
            }
            client.register_limited_job(request, limits).await
        };
        self.caller.call(py, register, json_made)
    }

    fn job_account<'py>(&self, py: Python<'py>, job: u64) -> Returned<'py> {
        let client = self.client.clone();
        self.caller.call(py, async move { client.job_account(JobId(job)).await }, json_made)
    }

    /// Renews a job's lease until what is returned is dropped.
    fn keep_job(&self, job: u64, lease_millis: u64) -> PyResult<PyLeaseRenewer> {
        PyLeaseRenewer::start(&self.client, &self.caller, JobId(job), Millis(lease_millis))
    }

    /// Returns the text of a token for a subtree, narrower than the client's own.
    fn token<'py>(
        &self,
        py: Python<'py>,
        subtree: &str,
        rights: Vec<String>,
        lifetime_millis: u64,
        subject: String,
    ) -> Returned<'py> {
        let (subtree, lifetime) = (path(py, subtree)?, Millis(lifetime_millis));
        let client = self.client.clone();
        let request = Request::MintToken(MintToken { subject, subtree, rights, lifetime });
        let mint = async move {
            match client.request(request).await? {
                Reply::Token(token) => Ok(token),
                _ => Err(ClientError::BadReply { what: "mint token".to_owned() }),
            }
        };
        self.caller.call(py, mint, |py, token| token.reveal().into_py_any(py))
    }

    fn renew_job<'py>(&self, py: Python<'py>, job: u64) -> Returned<'py> {
        let client = self.client.clone();
        self.caller.call(py, async move { client.renew_job(JobId(job)).await }, none_made)
    }

    fn end_job<'py>(&self, py: Python<'py>, job: u64) -> Returned<'py> {
        let client = self.client.clone();
        self.caller.call(py, async move { client.end_job(JobId(job)).await }, none_made)
    }

    fn jobs<'py>(&self, py: Python<'py>) -> Returned<'py> {
        let client = self.client.clone();
        self.caller.call(py, async move { client.jobs().await }, json_made)
    }

    fn nodes<'py>(&self, py: Python<'py>, all: bool) -> Returned<'py> {
        let client = self.client.clone();
        self.caller.call(py, async move { client.nodes(all).await }, json_made)
    }

    fn notice<'py>(
        &self,
        py: Python<'py>,
        node: String,
        deadline_millis: i64,
        reason: String,
    ) -> Returned<'py> {
        let (client, node) = (self.client.clone(), NodeSelector(node));
        let notice = async move { client.notice(&node, deadline_millis, &reason).await };
        self.caller.call(py, notice, json_made)
    }

    fn decommission<'py>(&self, py: Python<'py>, node: String, reason: String) -> Returned<'py> {
        let (client, node) = (self.client.clone(), NodeSelector(node));
        let decommission = async move { client.decommission(&node, &reason).await };
        self.caller.call(py, decommission, json_made)
    }

    fn cancel<'py>(&self, py: Python<'py>, node: String) -> Returned<'py> {
        let (client, node) = (self.client.clone(), NodeSelector(node));
        self.caller.call(py, async move { client.cancel(&node).await }, json_made)
    }

    fn events<'py>(
        &self,
        py: Python<'py>,
        after: u64,
        limit: u32,
        wait_millis: u64,
    ) -> Returned<'py> {
        let client = self.client.clone();
        let events = async move { client.events(after, limit, Millis(wait_millis)).await };
        self.caller.call(py, events, json_made)
    }

    fn report<'py>(&self, py: Python<'py>) -> Returned<'py> {
        let client = self.client.clone();
        self.caller.call(py, async move { client.report().await }, json_made)
    }

    fn fsck<'py>(&self, py: Python<'py>) -> Returned<'py> {
        let client = self.client.clone();
        self.caller.call(py, async move { client.fsck().await }, json_made)
    }

    /// Returns what was counted so far; asks nobody, so it is never a call id.
    fn metrics(&self) -> HashMap<&'static str, f64> {
        let metrics = self.client.metrics();
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

fn stat_made(py: Python<'_>, stat: ObjectStat) -> PyResult<Py<PyAny>> {
    Ok(stat_tuple(py, &stat)?.into_any().unbind())
}

fn buffer_made(py: Python<'_>, bytes: bytes::Bytes) -> PyResult<Py<PyAny>> {
    PyBuffer(bytes).into_py_any(py)
}

fn parts_made(py: Python<'_>, parts: Vec<bytes::Bytes>) -> PyResult<Py<PyAny>> {
    parts.into_iter().map(PyBuffer).collect::<Vec<_>>().into_py_any(py)
}

fn json_made(py: Python<'_>, facts: impl Serialize) -> PyResult<Py<PyAny>> {
    json(&facts)?.into_py_any(py)
}

pub(crate) fn none_made(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

/// Returns what became of each of many, errors as exceptions that are not raised.
fn each<T>(
    py: Python<'_>,
    many: Vec<Result<T, ClientError>>,
    made: impl Fn(Python<'_>, T) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    let one = |each: Result<T, ClientError>| match each {
        Ok(value) => made(py, value),
        Err(error) => Ok(raised(py, &error).into_value(py).into_any()),
    };
    many.into_iter().map(one).collect::<PyResult<Vec<_>>>()?.into_py_any(py)
}
