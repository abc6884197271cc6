//! Errors as Java throws them: their facts, once.

use std::any::Any;

use jni::errors::{Error, ErrorPolicy};
use jni::objects::{JClass, JThrowable, JValue};
use jni::refs::Global;
use jni::{Env, jni_sig, jni_str};
use parking_lot::RwLock;
use sanderling_client::ClientError;
use sanderling_protocol::Refusal;
use sanderling_protocol::refusal::{ByteRange, Recovery};

use crate::encoding::Encoder;

/// Java's class `Failure`, by whose loader the native half was loaded.
static FAILURE: RwLock<Option<Global<JClass<'static>>>> = RwLock::new(None);

/// Why a call of Java's ends without a result.
pub(crate) enum NativeError {
    /// The call's own error.
    Client(ClientError),
    /// Its handle was given back before.
    Closed(&'static str),
    /// What is to be shown to the cluster cannot be read.
    Credentials(String),
    /// The facts that came along are not in the order that both sides know.
    Malformed,
    /// Java threw something, or has no memory left.
    Java(Error),
}

impl From<ClientError> for NativeError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<Refusal> for NativeError {
    fn from(refusal: Refusal) -> Self {
        Self::Client(ClientError::Refused(refusal))
    }
}

impl From<Error> for NativeError {
    fn from(error: Error) -> Self {
        Self::Java(error)
    }
}

/// Remembers the class that makes exceptions.
pub(crate) fn remember(class: Global<JClass<'static>>) {
    *FAILURE.write() = Some(class);
}

impl NativeError {
    /// Appends the error's facts: name, text, recovery, when to try again, path, object, ranges.
    pub(crate) fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Client(error) => encode_client(error, encoder),
            Self::Closed(what) => {
                let text = format!("{what} was closed before, or is in use by another thread");
                encode_plain(encoder, "Closed", &text, Recovery::Fix);
            }
            Self::Credentials(why) => encode_plain(encoder, "Credentials", why, Recovery::Fix),
            Self::Malformed => {
                let text = "the jar and its native library disagree: use those of one build";
                encode_plain(encoder, "NativeLibrary", text, Recovery::Report);
            }
            Self::Java(error) => {
                let text = format!("the JVM refused a call of the native client: {error}");
                encode_plain(encoder, "NativeLibrary", &text, Recovery::Report);
            }
        }
    }

    fn throw(&self, env: &mut Env<'_>) {
        if env.exception_check() {
            return;
        }
        let mut encoder = Encoder::default();
        self.encode(&mut encoder);
        throw(env, &encoder);
    }
}

fn encode_plain(encoder: &mut Encoder, name: &str, text: &str, recovery: Recovery) {
    encode_head(encoder, name, text, recovery, "");
    encoder.number(0).count(0);
}

fn encode_head(encoder: &mut Encoder, name: &str, text: &str, recovery: Recovery, path: &str) {
    let (small, after) = match recovery {
        Recovery::Refresh => (0, -1),
        Recovery::RetryAfter(after) => (1, i64::try_from(after.0).unwrap_or(i64::MAX)),
        Recovery::Recompute => (2, -1),
        Recovery::Report => (3, -1),
        Recovery::Fix => (4, -1),
    };
    encoder.text(name).text(text).small(small).number(after).text(path);
}

fn encode_client(error: &ClientError, encoder: &mut Encoder) {
    let lost = |encoder: &mut Encoder, object: u64, ranges: &[ByteRange]| {
        encoder.number(object as i64).count(ranges.len());
        for range in ranges {
            encoder.number(range.offset as i64).number(range.bytes as i64);
        }
    };
    let path = error.path().unwrap_or_default();
    encode_head(encoder, error.name(), &error.to_string(), error.recovery(), path);
    match error {
        ClientError::DataUnavailable { object, ranges, .. }
        | ClientError::Refused(Refusal::DataUnavailable { object, ranges, .. }) => {
            lost(encoder, object.0, ranges);
        }
        _ => lost(encoder, 0, &[]),
    }
}

/// Throws the exception of an error's facts.
fn throw(env: &mut Env<'_>, encoder: &Encoder) {
    // What fails here leaves an exception of Java's own.
    let _ = try_throw(env, encoder);
}

fn try_throw(env: &mut Env<'_>, encoder: &Encoder) -> Result<(), Error> {
    let encoder = encoder.array(env)?;
    let class = FAILURE.read();
    let Some(class) = class.as_ref() else {
        return env.throw_new(
            jni_str!("java/lang/IllegalStateException"),
            jni_str!("the native half was not initialized"),
        );
    };
    let made = env.call_static_method(
        class,
        jni_str!("thrown"),
        jni_sig!("([B)Ljava/lang/Throwable;"),
        &[JValue::Object(&encoder)],
    )?;
    let made = env.cast_local::<JThrowable<'_>>(made.l()?)?;
    env.throw(made)
}

/// Throws what a native method ends with, and returns Java's zero.
pub(crate) struct Throw;

impl<T: Default> ErrorPolicy<T, NativeError> for Throw {
    type Captures<'frame: 'method, 'method> = ();

    fn on_error<'frame: 'method, 'method>(
        env: &mut Env<'frame>,
        (): &mut (),
        error: NativeError,
    ) -> Result<T, Error> {
        error.throw(env);
        Ok(T::default())
    }

    fn on_panic<'frame: 'method, 'method>(
        env: &mut Env<'frame>,
        (): &mut (),
        panic: Box<dyn Any + Send + 'static>,
    ) -> Result<T, Error> {
        let why = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (None, Some(text)) => text.clone(),
            (None, None) => "no reason given".to_owned(),
        };
        let mut encoder = Encoder::default();
        let text = format!("the native client failed, which is a bug: report it: {why}");
        encode_plain(&mut encoder, "Panicked", &text, Recovery::Report);
        throw(env, &encoder);
        Ok(T::default())
    }
}
