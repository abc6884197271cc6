//! The client.
//!
//! Each method makes one call the way its [`CallRunner`] does: a client that was connected by a
//! completion queue returns call ids where the other returns results.

use std::collections::HashMap;
use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;
use sanderling_client::{Client, ClientConfig, PutOptions, Reader};
use sanderling_native::{Metadata, register_job};
use sanderling_protocol::limits::DURABLE_BACKLOG_BYTES;
use sanderling_protocol::message::{JobHints, JobLimits, MakeDurable, ObjectKind, RegisterJob};
use sanderling_protocol::node::NodeSelector;
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::token::MintToken;
use sanderling_protocol::{JobId, Millis, ObjectId, Path};

use crate::arguments::Argument;
use crate::buffer::WriteBuffer;
use crate::caller::CallRunner;
use crate::credentials::PyCredentials;
use crate::files::{PyReader, PyWriter};
use crate::lease_renewer::PyLeaseRenewer;
use crate::results::{buffer, buffers, each, field, metadata, none, object, text};
use crate::runtime::wait;
use crate::stream::PyStream;

/// A client and how its calls are made.
#[derive(Clone)]
struct Connection {
    client: Client,
    caller: CallRunner,
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A connection to a cluster.
#[pyclass(frozen, name = "Client")]
pub(crate) struct PyClient(Connection);

impl PyClient {
    pub(crate) const fn new(client: Client, caller: CallRunner) -> Self {
        Self(Connection { client, caller })
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

/// Defines the methods of the client: first those that are written out, then calls. A call is a
/// future of a [`Connection`] and of its arguments; a function of [`crate::results`] makes Python's
/// result of its value.
macro_rules! client_methods {
    (
        { $($written_out:tt)* }
        $(
            $(#[$meta:meta])*
            fn $name:ident($client:ident $(, $argument:ident: $type:ty)*)
                -> $result:expr, $call:block
        )*
    ) => {
        #[pymethods]
        impl PyClient {
            $($written_out)*
            $(
                $(#[$meta])*
                fn $name<'py>(
                    &self,
                    py: Python<'py>,
                    $($argument: $type,)*
                ) -> PyResult<Bound<'py, PyAny>> {
                    let $client = self.0.clone();
                    self.0.caller.call(py, stringify!($name), async move $call, $result)
                }
            )*
        }
    };
}

client_methods! {
    {
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

        /// Renews a job's lease until the result is dropped.
        fn keep_job(&self, job: u64, lease_millis: u64) -> PyResult<PyLeaseRenewer> {
            let Connection { client, caller } = &self.0;
            PyLeaseRenewer::start(client, caller, JobId(job), Millis(lease_millis))
        }

        /// Returns a client that shares everything with this one, but whose calls take so many
        /// milliseconds at most; sends no request, so it is never a call id.
        fn within(&self, timeout_millis: u64) -> Self {
            let Connection { client, caller } = &self.0;
            let client = client.with_deadline(Duration::from_millis(timeout_millis));
            Self::new(client, caller.clone())
        }

        /// Returns what was counted so far; sends no request, so it is never a call id.
        fn metrics(&self, py: Python<'_>) -> PyResult<HashMap<&'static str, f64>> {
            let metrics = self.0.metrics();
            let figure = |(name, value)| {
                let name = if name == "longest_stall" { "longest_stall_seconds" } else { name };
                Ok((name, field(py, value)?.extract()?))
            };
            metrics.fields().into_iter().map(figure).collect()
        }
    }

    fn put(
        client,
        name: Argument<Path>,
        data: Argument<Bytes>,
        options: Argument<PutOptions>
    ) -> metadata, {
        client.put(&name, data.0, &options).await
    }

    /// Returns for each object its metadata, or the error as an object.
    fn put_many(
        client,
        objects: Argument<Vec<(Path, Bytes)>>,
        options: Argument<PutOptions>
    ) -> each(metadata), {
        Ok(client.create_many(objects.0, &options).await)
    }

    fn get(client, name: Argument<Path>) -> buffer, { client.get(&name).await }

    /// Returns each object's bytes, or the error as an object.
    fn get_many(client, names: Argument<Vec<Path>>) -> each(buffer), {
        client.get_many(&names).await
    }

    /// Reads into a writable buffer from an offset of the object on; returns how many bytes.
    fn get_into(client, name: Argument<Path>, offset: u64, buffer: WriteBuffer) -> object, {
        let mut buffer = buffer;
        client.get_into(&name, offset, buffer.bytes()).await
    }

    fn get_range(client, name: Argument<Path>, offset: u64, length: u64) -> buffer, {
        client.get_range(&name, offset, length).await
    }

    fn get_ranges(client, name: Argument<Path>, ranges: Argument<Vec<ByteRange>>) -> buffers, {
        client.get_ranges(&name, &ranges).await
    }

    /// Deletes an object that was read whole and has this id.
    fn delete_read(client, name: Argument<Path>, object: u64) -> none, {
        client.delete_read(&name, ObjectId(object)).await;
        Ok(())
    }

    /// Opens a multifile, or a directory of files, as one stream.
    fn stream(client, name: Argument<Path>) -> object, {
        Ok(PyStream::new(client.open_multi(&name).await?, client.caller))
    }

    fn reader(client, name: Argument<Path>) -> object, {
        Ok(PyReader::new(client.open(&name).await?, client.caller))
    }

    /// Returns each object open, or the error as an object.
    fn readers(client, names: Argument<Vec<Path>>) -> each(object), {
        let opened = client.open_many(&names).await.into_iter();
        let reader = |reader| PyReader::new(reader, client.caller.clone());
        Ok(opened.map(|each| each.map(reader)).collect())
    }

    /// Returns the ranges of each open object, or the error as an object.
    fn read_many(client, wanted: Argument<Vec<(Reader, Vec<ByteRange>)>>) -> each(buffers), {
        Ok(client.read_many(&wanted).await)
    }

    fn create(client, name: Argument<Path>, options: Argument<PutOptions>) -> object, {
        Ok(PyWriter::new(client.create(&name, &options).await?, client.caller))
    }

    fn append(client, name: Argument<Path>) -> object, {
        Ok(PyWriter::new(client.append(&name).await?, client.caller))
    }

    fn stat(client, name: Argument<Path>) -> metadata, { client.stat(&name).await }

    fn list(client, name: Argument<Path>, with_attributes: bool) -> text, {
        match with_attributes {
            true => client.list_all_with_attributes(&name).await,
            false => client.list_all(&name).await,
        }
    }

    /// Sets attributes; `expected` is the object that must have the name, if any must.
    fn set_attributes(
        client,
        name: Argument<Path>,
        attributes: Vec<(String, String)>,
        expected: Option<u64>
    ) -> metadata, {
        let attributes = attributes.into_iter().collect();
        client.set_attributes(&name, expected.map(ObjectId), attributes).await
    }

    fn concat(
        client,
        parts: Argument<Vec<Path>>,
        target: Argument<Path>,
        options: Argument<PutOptions>
    ) -> metadata, {
        client.concat(&parts, &target, &options).await
    }

    fn make_directory(
        client,
        name: Argument<Path>,
        kind: Argument<ObjectKind>,
        parents: bool
    ) -> metadata, {
        client.make_directory(&name, kind.0, parents, true).await
    }

    fn make_durable(
        client,
        name: Argument<Path>,
        store: String,
        parents: bool,
        backlog_bytes_max: Option<u64>,
        adopt: bool
    ) -> metadata, {
        let path = name.0;
        let backlog_bytes_max = match backlog_bytes_max {
            Some(bytes) => bytes,
            None if parents => client.durable_backlog_max(&path).await?,
            None => DURABLE_BACKLOG_BYTES,
        };
        client.make_durable(MakeDurable { path, store, parents, backlog_bytes_max, adopt }).await
    }

    fn durability(client, name: Argument<Path>) -> text, { client.durability(&name).await }

    /// Returns how far the directory is if the time was over first.
    fn wait_durable(client, name: Argument<Path>, within_millis: u64) -> text, {
        client.wait_durable(&name, Duration::from_millis(within_millis)).await
    }

    fn rename(client, source: Argument<Path>, target: Argument<Path>, replace: bool) -> none, {
        client.rename(&source, &target, replace).await
    }

    fn delete(client, name: Argument<Path>, recursive: bool, expected: Option<u64>) -> object, {
        match expected {
            Some(object) => client.delete_object(&name, ObjectId(object), recursive).await,
            None => client.delete(&name, recursive).await,
        }
    }

    fn set_ttl(client, name: Argument<Path>, ttl_millis: Option<u64>) -> none, {
        client.set_ttl(&name, ttl_millis.map(Millis)).await
    }

    fn usage(client, name: Argument<Path>) -> metadata, { client.usage(&name).await }

    #[expect(clippy::too_many_arguments, reason = "they are the limits and hints of a job")]
    fn register_job(
        client,
        name: Argument<Path>,
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
        expected_reads: Option<u32>
    ) -> text, {
        let hints = JobHints {
            expected_bytes,
            throughput_bytes_per_second,
            is_latency_sensitive,
            delete_after_read,
            keep_after_job,
            recompute_millis_per_mib,
            expected_reads,
        };
        let request = RegisterJob { path: name.0, lease: Millis(lease_millis), quota_bytes, hints };
        let limits = JobLimits { names: names_max, attribute_bytes: attribute_bytes_max };
        register_job(&client, request, limits).await
    }

    fn job_account(client, job: u64) -> metadata, { client.job_account(JobId(job)).await }

    /// Returns the text of a token for a subtree, narrower than the client's own.
    fn token(
        client,
        subtree: Argument<Path>,
        rights: Vec<String>,
        lifetime_millis: u64,
        subject: String
    ) -> object, {
        let (subtree, lifetime) = (subtree.0, Millis(lifetime_millis));
        let token = client.mint_token(MintToken { subject, subtree, rights, lifetime }).await?;
        Ok(token.reveal().to_owned())
    }

    fn renew_job(client, job: u64) -> none, { client.renew_job(JobId(job)).await }

    fn end_job(client, job: u64) -> none, { client.end_job(JobId(job)).await }

    fn jobs(client) -> text, { client.jobs().await }

    fn nodes(client, all: bool) -> text, { client.nodes(all).await }

    fn notice(client, node: String, deadline_millis: i64, reason: String) -> text, {
        client.notice(&NodeSelector(node), deadline_millis, &reason).await
    }

    fn decommission(client, node: String, reason: String) -> text, {
        client.decommission(&NodeSelector(node), &reason).await
    }

    fn cancel(client, node: String) -> text, { client.cancel(&NodeSelector(node)).await }

    fn events(client, after: u64, limit: u32, wait_millis: u64) -> text, {
        client.events(after, limit, Millis(wait_millis)).await
    }

    fn report(client) -> text, { client.report().await }

    fn fsck(client) -> text, { client.fsck().await }
}
