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

use crate::answers::{Answer, begin, fetched, made, opened, take, tell_reader};
use crate::error::{Throw, Trouble, remember};
use crate::facts::{Facts, Given};
use crate::memory::{Part, all, copied, integers, lent, let_go, longs};
use crate::runtime::wait;
use crate::shelf::{self, Held, keep};
use crate::{namespace, options};

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_initialize<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    failure: JClass<'local>,
) -> JString<'local> {
    env.with_env(|env| -> Result<_, Trouble> {
        remember(env.new_global_ref(&failure)?);
        Ok(JString::from_str(env, env!("CARGO_PKG_VERSION"))?)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_connect<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    facts: JByteArray<'local>,
) -> i64 {
    env.with_env(|env| -> Result<_, Trouble> {
        let facts = all(env, &facts)?;
        let (address, config) = options::connection(&mut Given::new(&facts))?;
        let client = wait(Client::connect(&address, config))?;
        Ok(keep(Held::Client(client)))
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
    env.with_env(|env| -> Result<_, Trouble> {
        let cluster = shelf::client(client)?.cluster();
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
    env.with_env(|_| -> Result<_, Trouble> {
        shelf::release(handle);
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
    facts: JByteArray<'local>,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
        let facts = all(env, &facts)?;
        let mut given = Given::new(&facts);
        let told = wait(namespace::call(&client, operation, &mut given))?;
        Ok(told.array(env)?)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_put<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    facts: JByteArray<'local>,
    bytes: JByteBuffer<'local>,
    at: i32,
    length: i32,
) -> JByteArray<'local> {
    env.with_env(|env| {
        let bytes = lent(env, &bytes, Part { at, length })?;
        let stat = put(env, client, &facts, bytes);
        let_go();
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
    facts: JByteArray<'local>,
    bytes: JByteArray<'local>,
    at: i32,
    length: i32,
) -> JByteArray<'local> {
    env.with_env(|env| {
        let bytes = copied(env, &bytes, Part { at, length })?.into();
        put(env, client, &facts, bytes)
    })
    .resolve::<Throw>()
}

fn put<'local>(
    env: &mut Env<'local>,
    client: i64,
    facts: &JByteArray<'_>,
    bytes: Bytes,
) -> Result<JByteArray<'local>, Trouble> {
    let client = shelf::client(client)?;
    let facts = all(env, facts)?;
    let mut given = Given::new(&facts);
    let (path, options) = (given.path()?, options::put(&mut given)?);
    let stat = wait(client.put(&path, bytes, &options))?;
    Ok(Facts::told(|facts| facts.stat(&stat)).array(env)?)
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_get<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    path: JByteArray<'local>,
) -> JObjectArray<'local> {
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
        let path = Given::new(&all(env, &path)?).path()?;
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
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
        let path = Given::new(&all(env, &path)?).path()?;
        let mut facts = Facts::default();
        tell_reader(&mut facts, wait(client.open(&path))?);
        Ok(facts.array(env)?)
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
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
        let paths = Given::new(&all(env, &paths)?).paths()?;
        let facts = opened(wait(client.open_many(&paths)));
        Ok(facts.array(env)?)
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
    ticket: i64,
) {
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
        let paths = Given::new(&all(env, &paths)?).paths()?;
        begin(ticket, async move { Answer::Opened(client.open_many(&paths).await) });
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
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
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
    ticket: i64,
) {
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
        let wanted = wanted(env, &readers, &counts, &offsets, &lengths)?;
        begin(ticket, async move { Answer::Fetched(client.read_many(&wanted).await) });
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
) -> Result<Vec<RangesOf>, Trouble> {
    let (readers, counts) = (longs(env, readers)?, integers(env, counts)?);
    let (offsets, lengths) = (longs(env, offsets)?, longs(env, lengths)?);
    if readers.len() != counts.len() || offsets.len() != lengths.len() {
        return Err(Trouble::Facts);
    }
    let unsigned = |number: i64| u64::try_from(number).map_err(|_| Trouble::Facts);
    let mut ranges = offsets.into_iter().zip(lengths).map(|(offset, bytes)| {
        Ok(ByteRange { offset: unsigned(offset)?, bytes: unsigned(bytes)? })
    });
    let mut wanted = Vec::with_capacity(readers.len());
    for (reader, count) in readers.into_iter().zip(counts) {
        let count = usize::try_from(count).map_err(|_| Trouble::Facts)?;
        let ranges: Result<Vec<_>, Trouble> = ranges.by_ref().take(count).collect();
        wanted.push((shelf::reader(reader)?, ranges?));
    }
    Ok(wanted)
}

/// Waits for answers of calls that nobody waits for: their tickets, then the answer to each.
#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_answers<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JObjectArray<'local> {
    env.with_env(|env| -> Result<_, Trouble> {
        let answers = take();
        let all = JObjectArray::<JObject<'_>>::new(env, answers.len() + 1, JObject::null())?;
        let tickets: Vec<i64> = answers.iter().map(|(ticket, _)| *ticket).collect();
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
    facts: JByteArray<'local>,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
        let facts = all(env, &facts)?;
        let mut given = Given::new(&facts);
        let (path, options) = (given.path()?, options::put(&mut given)?);
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
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
        let path = Given::new(&all(env, &path)?).path()?;
        let writer = wait(client.append(&path))?;
        tell_writer(env, writer)
    })
    .resolve::<Throw>()
}

/// Keeps a writer and tells its handle and where it starts.
fn tell_writer<'local>(
    env: &mut Env<'local>,
    writer: sanderling_client::Writer,
) -> Result<JByteArray<'local>, Trouble> {
    let position = writer.position();
    let handle = keep(Held::Writer(Arc::new(Mutex::new(Some(writer)))));
    Ok(Facts::told(|facts| facts.number(handle).number(position as i64)).array(env)?)
}
