//! The client: connecting, whole objects, many objects.
#![allow(unsafe_code, reason = "the JVM finds native methods by their exported names")]

use std::sync::Arc;

use bytes::Bytes;
use jni::objects::{
    JByteArray, JByteBuffer, JClass, JIntArray, JLongArray, JObject, JObjectArray, JString,
};
use jni::{Env, EnvUnowned};
use parking_lot::Mutex;
use sanderling_client::{Client, Reader};
use sanderling_protocol::refusal::ByteRange;

use crate::answers::{CompletedCall, begin, encode_reader, fetched, made, opened, take};
use crate::encoding::{Decoder, Encoder};
use crate::error::{NativeError, Throw, remember};
use crate::handles::{self, Handle, insert};
use crate::memory::{BufferRange, all, borrow, copied, integers, longs, release_pending};
use crate::runtime::wait;
use crate::{namespace, options};

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_initialize<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    failure: JClass<'local>,
) -> JString<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        remember(env.new_global_ref(&failure)?);
        Ok(JString::from_str(env, env!("CARGO_PKG_VERSION"))?)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_connect<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    encoder: JByteArray<'local>,
) -> i64 {
    env.with_env(|env| -> Result<_, NativeError> {
        let encoder = all(env, &encoder)?;
        let (address, config) = options::connection(&mut Decoder::new(&encoder))?;
        let client = wait(Client::connect(&address, config))?;
        Ok(insert(Handle::Client(client)))
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_cluster<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
) -> JString<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let cluster = handles::client(client)?.cluster();
        Ok(JString::from_str(env, format!("{:016x}", cluster.0))?)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_release<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: i64,
) {
    env.with_env(|_| -> Result<_, NativeError> {
        handles::release(handle);
        Ok(())
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_call<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    operation: i32,
    encoder: JByteArray<'local>,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let encoder = all(env, &encoder)?;
        let mut decoder = Decoder::new(&encoder);
        let array = wait(namespace::call(&client, operation, &mut decoder))?;
        Ok(array.array(env)?)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_put<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    encoder: JByteArray<'local>,
    bytes: JByteBuffer<'local>,
    at: i32,
    length: i32,
) -> JByteArray<'local> {
    env.with_env(|env| {
        let bytes = borrow(env, &bytes, BufferRange { at, length })?;
        let stat = put(env, client, &encoder, bytes);
        release_pending();
        stat
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_putArray<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    encoder: JByteArray<'local>,
    bytes: JByteArray<'local>,
    at: i32,
    length: i32,
) -> JByteArray<'local> {
    env.with_env(|env| {
        let bytes = copied(env, &bytes, BufferRange { at, length })?.into();
        put(env, client, &encoder, bytes)
    })
    .resolve::<Throw>()
}

fn put<'local>(
    env: &mut Env<'local>,
    client: i64,
    encoder: &JByteArray<'_>,
    bytes: Bytes,
) -> Result<JByteArray<'local>, NativeError> {
    let client = handles::client(client)?;
    let encoder = all(env, encoder)?;
    let mut decoder = Decoder::new(&encoder);
    let (path, options) = (decoder.path()?, options::put(&mut decoder)?);
    let stat = wait(client.put(&path, bytes, &options))?;
    Ok(Encoder::build(|encoder| encoder.stat(&stat)).array(env)?)
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_get<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    path: JByteArray<'local>,
) -> JObjectArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let path = Decoder::new(&all(env, &path)?).path()?;
        let bytes = wait(client.get(&path))?;
        fetched(env, vec![Ok(vec![bytes])])
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_open<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let path = Decoder::new(&all(env, &path)?).path()?;
        let mut encoder = Encoder::default();
        encode_reader(&mut encoder, wait(client.open(&path))?);
        Ok(encoder.array(env)?)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_openMany<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    paths: JByteArray<'local>,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let paths = Decoder::new(&all(env, &paths)?).paths()?;
        let encoder = opened(wait(client.open_many(&paths)));
        Ok(encoder.array(env)?)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_openManyAsync<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    paths: JByteArray<'local>,
    call_id: i64,
) {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let paths = Decoder::new(&all(env, &paths)?).paths()?;
        begin(call_id, async move { CompletedCall::Opened(client.open_many(&paths).await) });
        Ok(())
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_readMany<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    readers: JLongArray<'local>,
    counts: JIntArray<'local>,
    offsets: JLongArray<'local>,
    lengths: JLongArray<'local>,
) -> JObjectArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let wanted = wanted(env, &readers, &counts, &offsets, &lengths)?;
        let each = wait(client.read_many(&wanted));
        fetched(env, each)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_readManyAsync<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    readers: JLongArray<'local>,
    counts: JIntArray<'local>,
    offsets: JLongArray<'local>,
    lengths: JLongArray<'local>,
    call_id: i64,
) {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let wanted = wanted(env, &readers, &counts, &offsets, &lengths)?;
        begin(call_id, async move { CompletedCall::Fetched(client.read_many(&wanted).await) });
        Ok(())
    })
    .resolve::<Throw>()
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

/// Waits for answers of calls that nobody waits for: their call ids, then the answer to each.
#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_answers<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JObjectArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let answers = take();
        let all = JObjectArray::<JObject<'_>>::new(env, answers.len() + 1, JObject::null())?;
        let tickets: Vec<i64> = answers.iter().map(|(call_id, _)| *call_id).collect();
        let array = JLongArray::new(env, tickets.len())?;
        array.set_region(env, 0, &tickets)?;
        all.set_element(env, 0, &array)?;
        for (at, (_, answer)) in answers.into_iter().enumerate() {
            let answer = made(env, answer)?;
            all.set_element(env, at + 1, &answer)?;
            env.delete_local_ref(answer);
        }
        Ok(all)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_create<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    encoder: JByteArray<'local>,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let encoder = all(env, &encoder)?;
        let mut decoder = Decoder::new(&encoder);
        let (path, options) = (decoder.path()?, options::put(&mut decoder)?);
        let writer = wait(client.create(&path, &options))?;
        tell_writer(env, writer)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_append<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let path = Decoder::new(&all(env, &path)?).path()?;
        let writer = wait(client.append(&path))?;
        tell_writer(env, writer)
    })
    .resolve::<Throw>()
}

/// Keeps a writer and tells its handle and where it starts.
fn tell_writer<'local>(
    env: &mut Env<'local>,
    writer: sanderling_client::Writer,
) -> Result<JByteArray<'local>, NativeError> {
    let position = writer.position();
    let handle = insert(Handle::Writer(Arc::new(Mutex::new(Some(writer)))));
    Ok(Encoder::build(|encoder| encoder.number(handle).number(position as i64)).array(env)?)
}
