//! Open objects: readers and writers.
#![allow(unsafe_code, reason = "the JVM finds native methods by their exported names")]

use jni::EnvUnowned;
use jni::objects::{JByteArray, JByteBuffer, JClass, JObject};
use sanderling_client::{ClientError, Writer};
use sanderling_protocol::Millis;

use crate::encoding::{Decoder, Encoder};
use crate::error::{NativeError, Throw};
use crate::handles::{self, Handle};
use crate::memory::{BufferRange, all, copied, copy_to, source, target};
use crate::runtime::{enter, wait};

/// Bytes that are read or written for an array at once: what is under way for it in native memory.
const PIECE_BYTES: usize = 4 << 20;

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_read<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    reader: i64,
    offset: i64,
    mut into: JByteBuffer<'local>,
    at: i32,
    length: i32,
) -> i32 {
    env.with_env(|env| -> Result<_, NativeError> {
        let reader = handles::reader(reader)?;
        let offset = u64::try_from(offset).map_err(|_| NativeError::Malformed)?;
        let into = target(env, &mut into, BufferRange { at, length })?;
        let read = wait(reader.read_into(offset, into))?;
        Ok(count(read, length))
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_readArray<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    reader: i64,
    offset: i64,
    into: JByteArray<'local>,
    at: i32,
    length: i32,
) -> i32 {
    env.with_env(|env| -> Result<_, NativeError> {
        let reader = handles::reader(reader)?;
        let offset = u64::try_from(offset).map_err(|_| NativeError::Malformed)?;
        let (at, wanted) = (at as usize, length.max(0) as u64);
        let left = reader.bytes().saturating_sub(offset).min(wanted);
        let mut read = 0;
        while read < left {
            let now = (left - read).min(PIECE_BYTES as u64);
            let bytes = wait(reader.read_range(offset + read, now))?;
            copy_to(env, &into, at + read as usize, &bytes)?;
            read += now;
        }
        Ok(count(read as usize, length))
    })
    .resolve::<Throw>()
}

/// Returns how many bytes were read as Java says it: -1 for none at the end.
const fn count(read: usize, wanted: i32) -> i32 {
    if read == 0 && wanted > 0 { -1 } else { read as i32 }
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_refresh<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    reader: i64,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let reader = handles::reader(reader)?;
        wait(reader.refresh())?;
        Ok(Encoder::build(|encoder| encoder.stat(&reader.stat())).array(env)?)
    })
    .resolve::<Throw>()
}

/// Takes the writer for a call. While it is taken, another thread finds it closed.
fn with<T>(
    writer: i64,
    call: impl FnOnce(&mut Writer) -> Result<T, NativeError>,
) -> Result<T, NativeError> {
    // A writer that was given back meanwhile is dropped here, which leaves its clean-up to a task.
    let _context = enter();
    let entry = handles::writer(writer)?;
    let mut taken = entry.lock().take().ok_or(NativeError::Closed("the writer"))?;
    let result = call(&mut taken);
    *entry.lock() = Some(taken);
    result
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_write<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    writer: i64,
    bytes: JByteBuffer<'local>,
    at: i32,
    length: i32,
) {
    env.with_env(|env| {
        let bytes = source(env, &bytes, BufferRange { at, length })?;
        with(writer, |writer| Ok(wait(writer.write(bytes))?))
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_writeArray<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    writer: i64,
    bytes: JByteArray<'local>,
    at: i32,
    length: i32,
) {
    env.with_env(|env| {
        with(writer, |writer| {
            let mut done = 0;
            while done < length {
                let now = (length - done).min(PIECE_BYTES as i32);
                let piece = copied(env, &bytes, BufferRange { at: at + done, length: now })?;
                wait(writer.write_bytes(piece.into()))?;
                done += now;
            }
            Ok(())
        })
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_flush<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    writer: i64,
) {
    env.with_env(|_| with(writer, |writer| Ok(wait(writer.flush())?))).resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_setAttribute<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    writer: i64,
    encoder: JByteArray<'local>,
) {
    env.with_env(|env| {
        let encoder = all(env, &encoder)?;
        let mut decoder = Decoder::new(&encoder);
        let (name, text) = (decoder.text()?, decoder.text()?);
        with(writer, |writer| {
            writer.set_attribute(name, text);
            Ok(())
        })
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_setRecompute<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    writer: i64,
    millis: i64,
) {
    env.with_env(|_| {
        let time = Millis(u64::try_from(millis).map_err(|_| NativeError::Malformed)?);
        with(writer, |writer| {
            writer.set_recompute(time);
            Ok(())
        })
    })
    .resolve::<Throw>()
}

/// Takes the writer away for good.
fn last(writer: i64) -> Option<Writer> {
    match handles::remove(writer) {
        Some(Handle::Writer(entry)) => entry.lock().take(),
        _ => None,
    }
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_commit<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    writer: i64,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let writer = last(writer).ok_or(NativeError::Closed("the writer"))?;
        let stat = wait(writer.close())?;
        Ok(Encoder::build(|encoder| encoder.stat(&stat)).array(env)?)
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_abort<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    writer: i64,
) {
    env.with_env(|_| -> Result<_, NativeError> {
        let aborted: Result<(), ClientError> = match last(writer) {
            Some(writer) => wait(writer.abort()),
            None => Ok(()),
        };
        Ok(aborted?)
    })
    .resolve::<Throw>()
}
