//! The client: connecting, whole objects, many objects.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use jni::Env;
use jni::objects::{JByteArray, JByteBuffer, JClass, JIntArray, JLongArray, JObject, JObjectArray};
use parking_lot::Mutex;
use sanderling_client::{Client, ClientConfig, PutOptions, Reader, Writer};
use sanderling_native::{Explicit, end_export, export_spans, many_in_span};
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectStat;
use sanderling_protocol::refusal::ByteRange;

use crate::answers::{CompletedCall, begin, encode_reader, fetched, made, opened, take};
use crate::encoding::{Decoder, Encoder};
use crate::error::{NativeError, remember};
use crate::handles::{self, Handle, insert};
use crate::memory::{BufferRange, all, borrow, copied, integers, longs, release_pending};
use crate::namespace;
use crate::native::native;
use crate::runtime::{named, wait};

native! {
    /// Remembers the class that makes exceptions; returns the native half's version.
    fn initialize(env; failure: JClass<'local>) -> String {
        remember(env.new_global_ref(&failure)?);
        Ok(env!("CARGO_PKG_VERSION").to_owned())
    }

    /// Returns the cluster of a client: address, context, token, its file, authorities, name.
    fn resolve(env; explicit: Explicit) -> Encoder {
        let found = sanderling_native::resolve(explicit).map_err(NativeError::Address)?;
        let path = |path: Option<PathBuf>| path.map(|path| path.to_string_lossy().into_owned());
        let texts = [
            Some(found.address),
            found.origin.context().map(str::to_owned),
            found.token,
            path(found.token_file),
            path(found.tls_ca),
            found.tls_name,
        ];
        let mut encoder = Encoder::default();
        for text in texts {
            encoder.text(&text.unwrap_or_default());
        }
        Ok(encoder)
    }

    /// Records the spans of all clients from now on, and exports them to a collector.
    fn exportSpans(env; collector: String) -> () {
        export_spans(&collector, "sanderling-java").map_err(NativeError::Collector)
    }

    /// Sends the last spans; returns how many the collector did not take.
    fn endExport(env;) -> i64 {
        Ok(end_export().map_or(0, |(_, spans)| spans as i64))
    }

    fn connect(env; options: (String, ClientConfig)) -> i64 {
        let (address, config) = options;
        Ok(insert(Handle::Client(wait(Client::connect(&address, config))?)))
    }

    fn cluster(env, _owner; client: Client) -> String {
        Ok(format!("{:016x}", client.cluster().0))
    }

    fn release(env; handle: i64) -> () {
        handles::release(handle);
        Ok(())
    }

    fn call(env, _owner; client: Client, operation: i32, arguments: JByteArray<'local>) -> Encoder {
        let arguments = all(env, &arguments)?;
        let mut decoder = Decoder::new(&arguments);
        named(namespace::name(operation), namespace::call(&client, operation, &mut decoder))
    }

    fn put(
        env, _owner;
        client: Client,
        object: (Path, PutOptions),
        bytes: JByteBuffer<'local>,
        at: i32,
        length: i32,
    ) -> ObjectStat {
        let bytes = borrow(env, &bytes, BufferRange { at, length })?;
        let stat = put_bytes(&client, object, bytes);
        release_pending();
        stat
    }

    fn putArray(
        env, _owner;
        client: Client,
        object: (Path, PutOptions),
        bytes: JByteArray<'local>,
        at: i32,
        length: i32,
    ) -> ObjectStat {
        put_bytes(&client, object, copied(env, &bytes, BufferRange { at, length })?.into())
    }

    fn get(env, _owner; client: Client, path: Path) -> JObjectArray<'local> {
        fetched(env, vec![Ok(vec![named("get", client.get(&path))?])])
    }

    fn open(env, _owner; client: Client, path: Path) -> Encoder {
        let mut encoder = Encoder::default();
        encode_reader(&mut encoder, named("open", client.open(&path))?);
        Ok(encoder)
    }

    fn openMany(env, _owner; client: Client, paths: Vec<Path>) -> Encoder {
        Ok(opened(wait(many_in_span("open_many", client.open_many(&paths)))))
    }

    fn openManyAsync(env, _owner; client: Client, paths: Vec<Path>, call_id: i64) -> () {
        let opened = async move { CompletedCall::Opened(client.open_many(&paths).await) };
        begin(call_id, many_in_span("open_many", opened));
        Ok(())
    }

    fn readMany(
        env, _owner;
        client: Client,
        readers: JLongArray<'local>,
        counts: JIntArray<'local>,
        offsets: JLongArray<'local>,
        lengths: JLongArray<'local>,
    ) -> JObjectArray<'local> {
        let wanted = wanted(env, &readers, &counts, &offsets, &lengths)?;
        fetched(env, wait(many_in_span("read_many", client.read_many(&wanted))))
    }

    fn readManyAsync(
        env, _owner;
        client: Client,
        readers: JLongArray<'local>,
        counts: JIntArray<'local>,
        offsets: JLongArray<'local>,
        lengths: JLongArray<'local>,
        call_id: i64,
    ) -> () {
        let wanted = wanted(env, &readers, &counts, &offsets, &lengths)?;
        let fetched = async move { CompletedCall::Fetched(client.read_many(&wanted).await) };
        begin(call_id, many_in_span("read_many", fetched));
        Ok(())
    }

    /// Waits for results of asynchronous calls; returns their call ids, then each result.
    fn answers(env;) -> JObjectArray<'local> {
        let answers = take();
        let all = JObjectArray::<JObject<'_>>::new(env, answers.len() + 1, JObject::null())?;
        let call_ids: Vec<i64> = answers.iter().map(|(call_id, _)| *call_id).collect();
        let array = JLongArray::new(env, call_ids.len())?;
        array.set_region(env, 0, &call_ids)?;
        all.set_element(env, 0, &array)?;
        for (at, (_, answer)) in answers.into_iter().enumerate() {
            let answer = made(env, answer)?;
            all.set_element(env, at + 1, &answer)?;
            env.delete_local_ref(answer);
        }
        Ok(all)
    }

    fn create(env, _owner; client: Client, object: (Path, PutOptions)) -> Encoder {
        Ok(insert_writer(named("create", client.create(&object.0, &object.1))?))
    }

    fn append(env, _owner; client: Client, path: Path) -> Encoder {
        Ok(insert_writer(named("append", client.append(&path))?))
    }
}

fn put_bytes(
    client: &Client,
    (path, options): (Path, PutOptions),
    bytes: Bytes,
) -> Result<ObjectStat, NativeError> {
    Ok(named("put", client.put(&path, bytes, &options))?)
}

type RangesOf = (Reader, Vec<ByteRange>);

/// Returns which ranges of which readers are wanted.
fn wanted(
    env: &Env<'_>,
    readers: &JLongArray<'_>,
    counts: &JIntArray<'_>,
    offsets: &JLongArray<'_>,
    lengths: &JLongArray<'_>,
) -> Result<Vec<RangesOf>, NativeError> {
    let (readers, counts) = (longs(env, readers)?, integers(env, counts)?);
    let (offsets, lengths) = (longs(env, offsets)?, longs(env, lengths)?);
    if readers.len() != counts.len() || offsets.len() != lengths.len() {
        return Err(NativeError::Malformed);
    }
    let unsigned = |number: i64| u64::try_from(number).map_err(|_| NativeError::Malformed);
    let mut ranges = offsets.into_iter().zip(lengths).map(|(offset, bytes)| {
        Ok(ByteRange { offset: unsigned(offset)?, bytes: unsigned(bytes)? })
    });
    let mut wanted = Vec::with_capacity(readers.len());
    for (reader, count) in readers.into_iter().zip(counts) {
        let count = usize::try_from(count).map_err(|_| NativeError::Malformed)?;
        let ranges: Result<Vec<_>, NativeError> = ranges.by_ref().take(count).collect();
        wanted.push((handles::reader(reader)?, ranges?));
    }
    Ok(wanted)
}

/// Inserts a writer and encodes its handle and position.
fn insert_writer(writer: Writer) -> Encoder {
    let position = writer.position();
    let handle = insert(Handle::Writer(Arc::new(Mutex::new(Some(writer)))));
    Encoder::build(|encoder| encoder.number(handle).number(position as i64))
}
