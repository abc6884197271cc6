//! Answers about many: as Java takes them at once, and as its thread takes those that nobody waits
//! for.

use bytes::Bytes;
use jni::Env;
use jni::objects::{JObject, JObjectArray};
use parking_lot::{Condvar, Mutex};
use sanderling_client::{ClientError, Reader};
use sanderling_protocol::Refusal;
use tokio::sync::Notify;

use crate::error::Trouble;
use crate::facts::Facts;
use crate::memory::{copy_to, view};
use crate::runtime::{handle, wait};
use crate::shelf::{Held, keep, release};

/// Bytes up to which a range is copied into Java's heap: a view of its own, and a lease to give
/// back, cost more than the copy.
const COPIED_BYTES: usize = 4 << 10;

/// What became of each of many.
type Each<T> = Vec<Result<T, ClientError>>;

/// Tells which objects are open, and why the others are not.
pub(crate) fn opened(each: Each<Reader>) -> Facts {
    let mut facts = Facts::default();
    facts.count(each.len());
    for one in each {
        facts.flag(one.is_ok());
        match one {
            Ok(reader) => tell_reader(&mut facts, reader),
            Err(error) => Trouble::Client(error).tell(&mut facts),
        }
    }
    facts
}

/// Keeps a reader and tells its handle and facts.
pub(crate) fn tell_reader(facts: &mut Facts, reader: Reader) {
    let stat = reader.stat();
    facts.number(keep(Held::Reader(reader))).stat(&stat);
}

/// Returns the parts of an answer: facts, with few bytes among them, then a view of each range of
/// many bytes.
pub(crate) fn fetched<'local>(
    env: &mut Env<'local>,
    each: Each<Vec<Bytes>>,
) -> Result<JObjectArray<'local>, Trouble> {
    let mut facts = Facts::default();
    let mut views = Vec::new();
    facts.count(each.len());
    for one in each {
        let one = one.and_then(fits);
        facts.flag(one.is_ok());
        match one {
            Ok(ranges) => {
                facts.count(ranges.len());
                for range in ranges {
                    tell_range(&mut facts, &mut views, range);
                }
            }
            Err(error) => Trouble::Client(error).tell(&mut facts),
        }
    }
    let handles: Vec<i64> = views.iter().map(|(handle, _)| *handle).collect();
    parts(env, &facts, views).inspect_err(|_| handles.into_iter().for_each(release))
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

fn tell_range(facts: &mut Facts, views: &mut Vec<(i64, Bytes)>, range: Bytes) {
    if range.len() <= COPIED_BYTES {
        facts.number(0).count(range.len()).all(&range);
    } else {
        let handle = keep(Held::Bytes(range.clone()));
        facts.number(handle);
        views.push((handle, range));
    }
}

fn parts<'local>(
    env: &mut Env<'local>,
    facts: &Facts,
    views: Vec<(i64, Bytes)>,
) -> Result<JObjectArray<'local>, Trouble> {
    let parts = JObjectArray::<JObject<'_>>::new(env, views.len() + 1, JObject::null())?;
    let told = facts.array(env)?;
    parts.set_element(env, 0, &told)?;
    for (at, (_, bytes)) in views.into_iter().enumerate() {
        let buffer = view(env, &bytes)?;
        parts.set_element(env, at + 1, &buffer)?;
        env.delete_local_ref(buffer);
    }
    Ok(parts)
}

/// An answer that nobody waits for.
pub(crate) enum Answer {
    Opened(Each<Reader>),
    Fetched(Each<Vec<Bytes>>),
    /// The call ended without one.
    None,
}

/// Calls that nobody waits for, and their answers.
struct Mailbox {
    state: Mutex<Mail>,
    /// Wakes Java's thread when the first call begins.
    begun: Condvar,
    /// Wakes it when the first answer is there.
    answered: Notify,
}

struct Mail {
    under_way: usize,
    answers: Vec<(i64, Answer)>,
}

static MAILBOX: Mailbox = Mailbox {
    state: Mutex::new(Mail { under_way: 0, answers: Vec::new() }),
    begun: Condvar::new(),
    answered: Notify::const_new(),
};

/// A call that is answered whatever becomes of it.
struct Answering(i64, Answer);

impl Answering {
    fn is(mut self, answer: Answer) {
        self.1 = answer;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let answer = std::mem::replace(&mut self.1, Answer::None);
        let mut mail = MAILBOX.state.lock();
        mail.under_way -= 1;
        mail.answers.push((self.0, answer));
        drop(mail);
        MAILBOX.answered.notify_one();
    }
}

/// Begins a call whose answer Java's thread takes under that ticket.
pub(crate) fn begin(ticket: i64, call: impl Future<Output = Answer> + Send + 'static) {
    MAILBOX.state.lock().under_way += 1;
    let answering = Answering(ticket, Answer::None);
    handle().spawn(async move { answering.is(call.await) });
    MAILBOX.begun.notify_one();
}

/// Waits for answers and returns them with their tickets. Meanwhile it runs the calls, if nobody
/// else does.
pub(crate) fn take() -> Vec<(i64, Answer)> {
    loop {
        let mut mail = MAILBOX.state.lock();
        if !mail.answers.is_empty() {
            return std::mem::take(&mut mail.answers);
        }
        if mail.under_way == 0 {
            MAILBOX.begun.wait(&mut mail);
            continue;
        }
        drop(mail);
        wait(MAILBOX.answered.notified());
    }
}

/// Returns the parts of an answer, or the facts of why there is none.
pub(crate) fn made<'local>(
    env: &mut Env<'local>,
    answer: Answer,
) -> Result<JObject<'local>, Trouble> {
    match answer {
        Answer::Opened(each) => {
            let facts = opened(each);
            Ok(parts(env, &facts, Vec::new())?.into())
        }
        Answer::Fetched(each) => Ok(fetched(env, each)?.into()),
        Answer::None => {
            let mut facts = Facts::default();
            Trouble::Closed("the call").tell(&mut facts);
            let array = env.new_byte_array(facts.bytes().len())?;
            copy_to(env, &array, 0, facts.bytes())?;
            Ok(array.into())
        }
    }
}
