//! Results for many objects, and the completion queue from which a thread of Java's takes those of
//! asynchronous calls.

use bytes::Bytes;
use jni::Env;
use jni::objects::{JObject, JObjectArray};
use parking_lot::{Condvar, Mutex};
use sanderling_client::{ClientError, Reader};
use sanderling_protocol::Refusal;
use tokio::sync::Notify;

use crate::encoding::Encoder;
use crate::error::NativeError;
use crate::handles::{Handle, insert, release};
use crate::memory::view;
use crate::runtime::{handle, wait};

/// Bytes up to which a range is copied into Java's heap: a view of its own, and a handle to
/// release, cost more than the copy. A page, up to which a datanode copies as well
/// (`COPIED_BYTES_MAX`). Chosen, not measured.
const COPIED_BYTES: usize = 4 << 10;

/// The result for each of many.
type Results<T> = Vec<Result<T, ClientError>>;

/// Encodes which objects are open, and why the others are not.
pub(crate) fn opened(each: Results<Reader>) -> Encoder {
    let mut encoder = Encoder::default();
    encoder.count(each.len());
    for one in each {
        encoder.flag(one.is_ok());
        match one {
            Ok(reader) => encode_reader(&mut encoder, reader),
            Err(error) => NativeError::Client(error).encode(&mut encoder),
        }
    }
    encoder
}

/// Inserts a reader and encodes its handle and metadata.
pub(crate) fn encode_reader(encoder: &mut Encoder, reader: Reader) {
    let stat = reader.stat();
    encoder.number(insert(Handle::Reader(reader))).metadata(&stat);
}

/// Returns the parts of a result: the encoded one, with short ranges in it, then a view of each
/// long range.
pub(crate) fn fetched<'local>(
    env: &mut Env<'local>,
    each: Results<Vec<Bytes>>,
) -> Result<JObjectArray<'local>, NativeError> {
    let mut encoder = Encoder::default();
    let mut views = Vec::new();
    encoder.count(each.len());
    for one in each {
        let one = one.and_then(fits);
        encoder.flag(one.is_ok());
        match one {
            Ok(ranges) => {
                encoder.count(ranges.len());
                for range in ranges {
                    encode_range(&mut encoder, &mut views, range);
                }
            }
            Err(error) => NativeError::Client(error).encode(&mut encoder),
        }
    }
    let handles: Vec<i64> = views.iter().map(|(handle, _)| *handle).collect();
    parts(env, &encoder, views).inspect_err(|_| handles.into_iter().for_each(release))
}

/// Refuses ranges of which one is longer than a buffer of Java's can be.
fn fits(ranges: Vec<Bytes>) -> Result<Vec<Bytes>, ClientError> {
    let limit = i32::MAX as u64 - 8;
    match ranges.iter().map(|range| range.len() as u64).max() {
        Some(value) if value > limit => {
            let what = "a buffer in the JVM".to_owned();
            Err(ClientError::Refused(Refusal::TooLarge { what, value, limit }))
        }
        _ => Ok(ranges),
    }
}

fn encode_range(encoder: &mut Encoder, views: &mut Vec<(i64, Bytes)>, range: Bytes) {
    if range.len() <= COPIED_BYTES {
        encoder.number(0).count(range.len()).all(&range);
    } else {
        let handle = insert(Handle::Bytes(range.clone()));
        encoder.number(handle);
        views.push((handle, range));
    }
}

fn parts<'local>(
    env: &mut Env<'local>,
    encoder: &Encoder,
    views: Vec<(i64, Bytes)>,
) -> Result<JObjectArray<'local>, NativeError> {
    let parts = JObjectArray::<JObject<'_>>::new(env, views.len() + 1, JObject::null())?;
    let array = encoder.array(env)?;
    parts.set_element(env, 0, &array)?;
    for (at, (_, bytes)) in views.into_iter().enumerate() {
        let buffer = view(env, &bytes)?;
        parts.set_element(env, at + 1, &buffer)?;
        env.delete_local_ref(buffer);
    }
    Ok(parts)
}

/// The result of an asynchronous call.
pub(crate) enum CompletedCall {
    Opened(Results<Reader>),
    Fetched(Results<Vec<Bytes>>),
    /// The call ended without one.
    None,
}

/// Asynchronous calls in flight, and their results.
struct CompletionQueue {
    state: Mutex<QueueState>,
    /// Wakes Java's thread when the first call begins.
    begun: Condvar,
    /// Wakes it when the first answer is there.
    answered: Notify,
}

struct QueueState {
    under_way: usize,
    completed: Vec<(i64, CompletedCall)>,
}

static COMPLETIONS: CompletionQueue = CompletionQueue {
    state: Mutex::new(QueueState { under_way: 0, completed: Vec::new() }),
    begun: Condvar::new(),
    answered: Notify::const_new(),
};

/// A call that completes even if it is dropped before its end.
struct Answering(i64, CompletedCall);

impl Answering {
    fn is(mut self, answer: CompletedCall) {
        self.1 = answer;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let answer = std::mem::replace(&mut self.1, CompletedCall::None);
        let mut queue = COMPLETIONS.state.lock();
        queue.under_way -= 1;
        queue.completed.push((self.0, answer));
        drop(queue);
        COMPLETIONS.answered.notify_one();
    }
}

/// Begins a call whose result Java's thread takes under that call id.
pub(crate) fn begin(call_id: i64, call: impl Future<Output = CompletedCall> + Send + 'static) {
    COMPLETIONS.state.lock().under_way += 1;
    let answering = Answering(call_id, CompletedCall::None);
    handle().spawn(async move { answering.is(call.await) });
    COMPLETIONS.begun.notify_one();
}

/// Waits for results and returns them with their call ids. Meanwhile it runs the calls, if no other
/// thread does.
pub(crate) fn take() -> Vec<(i64, CompletedCall)> {
    loop {
        let mut queue = COMPLETIONS.state.lock();
        if !queue.completed.is_empty() {
            return std::mem::take(&mut queue.completed);
        }
        if queue.under_way == 0 {
            COMPLETIONS.begun.wait(&mut queue);
            continue;
        }
        drop(queue);
        wait(COMPLETIONS.answered.notified());
    }
}

/// Returns the parts of a result, or the encoded error of a call without one.
pub(crate) fn made<'local>(
    env: &mut Env<'local>,
    answer: CompletedCall,
) -> Result<JObject<'local>, NativeError> {
    match answer {
        CompletedCall::Opened(each) => {
            let encoder = opened(each);
            Ok(parts(env, &encoder, Vec::new())?.into())
        }
        CompletedCall::Fetched(each) => Ok(fetched(env, each)?.into()),
        CompletedCall::None => {
            let mut encoder = Encoder::default();
            NativeError::Closed("the call").encode(&mut encoder);
            Ok(encoder.array(env)?.into())
        }
    }
}
