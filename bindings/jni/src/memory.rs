//! Memory that crosses the border: Java's arrays and direct buffers, and bytes of this side that
//! Java reads where they are.
#![allow(unsafe_code, reason = "direct buffers are raw memory on both sides")]

use std::slice;

use bytes::Bytes;
use jni::Env;
use jni::errors::{Error, JniError};
use jni::objects::{JByteArray, JByteBuffer, JIntArray, JLongArray, JObject};
use jni::refs::Global;
use sanderling_native::{Borrowed, ReleaseQueue};

use crate::error::NativeError;

static RELEASED: ReleaseQueue<DirectBuffer> = ReleaseQueue::new();

/// A part of a direct buffer of Java's.
struct DirectBuffer {
    start: *const u8,
    length: usize,
    _buffer: Global<JObject<'static>>,
}

// SAFETY: the memory does not move and is only read.
unsafe impl Send for DirectBuffer {}

impl AsRef<[u8]> for DirectBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the global reference keeps the memory in place until `self` is dropped. A program
        // that writes to it meanwhile races with itself, as with a channel's `write`.
        unsafe { slice::from_raw_parts(self.start, self.length) }
    }
}

/// Releases the borrowed buffers that are no longer in use.
pub(crate) fn release_pending() {
    drop(RELEASED.take());
}

/// A part of an array or buffer, as Java gives it.
#[derive(Clone, Copy)]
pub(crate) struct BufferRange {
    pub(crate) at: i32,
    pub(crate) length: i32,
}

impl BufferRange {
    /// Returns where it starts and how long it is, if it is inside so many bytes.
    fn within(self, size: usize) -> Result<(usize, usize), NativeError> {
        let at = usize::try_from(self.at).map_err(|_| NativeError::Malformed)?;
        let length = usize::try_from(self.length).map_err(|_| NativeError::Malformed)?;
        let is_inside = at.checked_add(length).is_some_and(|end| end <= size);
        if is_inside { Ok((at, length)) } else { Err(NativeError::Malformed) }
    }
}

/// Returns where a part of a direct buffer is.
fn direct(
    env: &Env<'_>,
    buffer: &JByteBuffer<'_>,
    part: BufferRange,
) -> Result<(*mut u8, usize), NativeError> {
    let (at, length) = part.within(env.get_direct_buffer_capacity(buffer)?)?;
    if length == 0 {
        return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
    }
    let start = env.get_direct_buffer_address(buffer)?;
    // SAFETY: the part is inside the buffer.
    Ok((unsafe { start.add(at) }, length))
}

/// Returns a part of a direct buffer to read; the call's argument keeps it in place.
pub(crate) fn source<'call>(
    env: &Env<'_>,
    buffer: &'call JByteBuffer<'_>,
    part: BufferRange,
) -> Result<&'call [u8], NativeError> {
    let (start, length) = direct(env, buffer, part)?;
    // SAFETY: as in `DirectBuffer::as_ref`; the argument's local reference lives as long as the
    // call.
    Ok(unsafe { slice::from_raw_parts(start, length) })
}

/// Returns a part of a direct buffer to write, which Java has found not to be read-only.
pub(crate) fn target<'call>(
    env: &Env<'_>,
    buffer: &'call mut JByteBuffer<'_>,
    part: BufferRange,
) -> Result<&'call mut [u8], NativeError> {
    let (start, length) = direct(env, buffer, part)?;
    // SAFETY: as in `source`. A program that uses the part meanwhile races with itself.
    Ok(unsafe { slice::from_raw_parts_mut(start, length) })
}

/// Borrows a part of a direct buffer until its last use has ended, which may be after the call.
pub(crate) fn borrow(
    env: &Env<'_>,
    buffer: &JByteBuffer<'_>,
    part: BufferRange,
) -> Result<Bytes, NativeError> {
    let (start, length) = direct(env, buffer, part)?;
    let _buffer = env.new_global_ref::<&JObject<'_>>(buffer.as_ref())?;
    Ok(Bytes::from_owner(Borrowed::new(DirectBuffer { start, length, _buffer }, &RELEASED)))
}

/// Returns bytes as the JVM names them, which has no unsigned ones.
const fn signed(bytes: &[u8]) -> &[i8] {
    // SAFETY: the two have one size and every pattern of bits is a value of both.
    unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

/// Copies a part of an array.
pub(crate) fn copied(
    env: &Env<'_>,
    array: &JByteArray<'_>,
    part: BufferRange,
) -> Result<Vec<u8>, NativeError> {
    let (_, length) = part.within(array.len(env)?)?;
    let mut copy = vec![0_u8; length];
    // SAFETY: as in `signed`.
    let place = unsafe { slice::from_raw_parts_mut(copy.as_mut_ptr().cast::<i8>(), length) };
    array.get_region(env, part.at, place)?;
    Ok(copy)
}

/// Copies a whole array.
pub(crate) fn all(env: &Env<'_>, array: &JByteArray<'_>) -> Result<Vec<u8>, NativeError> {
    Ok(env.convert_byte_array(array)?)
}

/// Copies bytes to a place in an array.
pub(crate) fn copy_to(
    env: &Env<'_>,
    array: &JByteArray<'_>,
    at: usize,
    bytes: &[u8],
) -> Result<(), NativeError> {
    let at = i32::try_from(at).map_err(|_| NativeError::Malformed)?;
    Ok(array.set_region(env, at, signed(bytes))?)
}

/// Copies a whole array of longs.
pub(crate) fn longs(env: &Env<'_>, array: &JLongArray<'_>) -> Result<Vec<i64>, NativeError> {
    let mut copy = vec![0; array.len(env)?];
    array.get_region(env, 0, &mut copy)?;
    Ok(copy)
}

/// Copies a whole array of integers.
pub(crate) fn integers(env: &Env<'_>, array: &JIntArray<'_>) -> Result<Vec<i32>, NativeError> {
    let mut copy = vec![0; array.len(env)?];
    array.get_region(env, 0, &mut copy)?;
    Ok(copy)
}

/// Returns a direct buffer over bytes that stay in place until their handle is released.
pub(crate) fn view<'local>(
    env: &mut Env<'local>,
    bytes: &Bytes,
) -> Result<JByteBuffer<'local>, NativeError> {
    if i32::try_from(bytes.len()).is_err() {
        return Err(Error::JniCall(JniError::InvalidArguments).into());
    }
    // SAFETY: the bytes are in the handle table under a handle that Java releases when no view of
    // them can be reached, or when its program has closed them. Java shows read-only views alone.
    let view = unsafe { env.new_direct_byte_buffer(bytes.as_ptr().cast_mut(), bytes.len()) };
    Ok(view?)
}
