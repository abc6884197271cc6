//! Open objects: readers and writers.

use jni::objects::{JByteArray, JByteBuffer};
use sanderling_client::{Reader, Writer};
use sanderling_protocol::Millis;
use sanderling_protocol::message::ObjectStat;

use crate::error::NativeError;
use crate::handles::{self, Handle};
use crate::memory::{BufferRange, copied, copy_to, source, target};
use crate::native::native;
use crate::runtime::{enter, named};

/// Bytes read or written for an array in one step: what is in flight for it in native memory. As
/// many as one frame to a datanode requests by default (`ClientConfig::read_frame_bytes_max`).
const PIECE_BYTES: usize = 4 << 20;

native! {
    fn read(
        env, _owner;
        reader: Reader,
        offset: i64,
        into: JByteBuffer<'local>,
        at: i32,
        length: i32,
    ) -> i32 {
        let mut into = into;
        let into = target(env, &mut into, BufferRange { at, length })?;
        Ok(count(named("read", reader.read_into(unsigned(offset)?, into))?, length))
    }

    fn readArray(
        env, _owner;
        reader: Reader,
        offset: i64,
        into: JByteArray<'local>,
        at: i32,
        length: i32,
    ) -> i32 {
        let offset = unsigned(offset)?;
        let (at, wanted) = (at as usize, length.max(0) as u64);
        let left = reader.bytes().saturating_sub(offset).min(wanted);
        let mut read = 0;
        while read < left {
            let now = (left - read).min(PIECE_BYTES as u64);
            let bytes = named("read", reader.read_range(offset + read, now))?;
            copy_to(env, &into, at + read as usize, &bytes)?;
            read += now;
        }
        Ok(count(read as usize, length))
    }

    fn refresh(env, _owner; reader: Reader) -> ObjectStat {
        named("refresh", reader.refresh())?;
        Ok(reader.stat())
    }

    fn write(
        env, _owner;
        writer: i64,
        bytes: JByteBuffer<'local>,
        at: i32,
        length: i32,
    ) -> () {
        let bytes = source(env, &bytes, BufferRange { at, length })?;
        with(writer, |writer| Ok(named("write", writer.write(bytes))?))
    }

    fn writeArray(
        env, _owner;
        writer: i64,
        bytes: JByteArray<'local>,
        at: i32,
        length: i32,
    ) -> () {
        with(writer, |writer| {
            let mut done = 0;
            while done < length {
                let now = (length - done).min(PIECE_BYTES as i32);
                let piece = copied(env, &bytes, BufferRange { at: at + done, length: now })?;
                named("write", writer.write_bytes(piece.into()))?;
                done += now;
            }
            Ok(())
        })
    }

    fn flush(env, _owner; writer: i64) -> () {
        with(writer, |writer| Ok(named("flush", writer.flush())?))
    }

    fn setAttribute(env, _owner; writer: i64, attribute: (String, String)) -> () {
        with(writer, |writer| {
            writer.set_attribute(attribute.0, attribute.1);
            Ok(())
        })
    }

    fn setRecompute(env, _owner; writer: i64, millis: i64) -> () {
        let time = Millis(unsigned(millis)?);
        with(writer, |writer| {
            writer.set_recompute(time);
            Ok(())
        })
    }

    fn commit(env, _owner; writer: i64) -> ObjectStat {
        let writer = last(writer).ok_or(NativeError::Closed("the writer"))?;
        Ok(named("close", writer.close())?)
    }

    fn abort(env, _owner; writer: i64) -> () {
        Ok(last(writer).map_or(Ok(()), |writer| named("abort", writer.abort()))?)
    }
}

fn unsigned(number: i64) -> Result<u64, NativeError> {
    u64::try_from(number).map_err(|_| NativeError::Malformed)
}

/// Returns the count of bytes that Java receives: -1 for none at the end.
const fn count(read: usize, wanted: i32) -> i32 {
    if read == 0 && wanted > 0 { -1 } else { read as i32 }
}

/// Takes the writer for a call. While it is taken, another thread finds it closed.
fn with<T>(
    writer: i64,
    call: impl FnOnce(&mut Writer) -> Result<T, NativeError>,
) -> Result<T, NativeError> {
    // A writer that was released meanwhile is dropped here, which leaves its clean-up to a task.
    let _context = enter();
    let entry = handles::writer(writer)?;
    let mut taken = entry.lock().take().ok_or(NativeError::Closed("the writer"))?;
    let result = call(&mut taken);
    *entry.lock() = Some(taken);
    result
}

/// Removes the writer from the handle table.
fn last(writer: i64) -> Option<Writer> {
    match handles::remove(writer) {
        Some(Handle::Writer(entry)) => entry.lock().take(),
        _ => None,
    }
}
