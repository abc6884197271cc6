//! Errors as Java throws them.

use std::any::Any;
use std::fmt::{self, Display, Formatter};

use jni::errors::{Error, ErrorPolicy};
use jni::objects::{JClass, JThrowable, JValue};
use jni::refs::Global;
use jni::{Env, jni_sig, jni_str};
use parking_lot::RwLock;
use sanderling_client::ClientError;
use sanderling_native::{ContextError, CredentialsError, ErrorFields, SpansError, with_next};
use sanderling_protocol::Refusal;
use sanderling_protocol::refusal::Recovery;

use crate::encoding::Encoder;

/// Java's class `Failure`, by whose loader the native half was loaded.
static FAILURE: RwLock<Option<Global<JClass<'static>>>> = RwLock::new(None);

/// Why a call of Java's ends without a result.
pub(crate) enum NativeError {
    /// The call's own error.
    Client(ClientError),
    /// Its handle was released before.
    Closed(&'static str),
    /// The credentials cannot be read.
    Credentials(CredentialsError),
    /// The address or the context is wrong.
    Address(ContextError),
    /// The collector of spans cannot be used.
    Collector(SpansError),
    /// The encoded values are not in the order that both sides use.
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

impl Display for NativeError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.fields().text)
    }
}

/// Remembers the class that makes exceptions.
pub(crate) fn remember(class: Global<JClass<'static>>) {
    *FAILURE.write() = Some(class);
}

impl NativeError {
    fn fields(&self) -> ErrorFields {
        match self {
            Self::Client(error) => error.into(),
            Self::Closed(what) => {
                let text = format!("{what} was closed before, or is in use by another thread");
                ErrorFields::new("Closed", text, Recovery::Fix)
            }
            Self::Credentials(error) => {
                ErrorFields::new("Credentials", error.to_string(), Recovery::Fix)
            }
            Self::Address(error) => ErrorFields::new("BadAddress", with_next(error), Recovery::Fix),
            Self::Collector(error) => {
                ErrorFields::new("BadRequest", error.to_string(), Recovery::Fix)
            }
            Self::Malformed => {
                let text = "the jar and its native library disagree: use those of one build";
                ErrorFields::new("NativeLibrary", text, Recovery::Report)
            }
            Self::Java(error) => {
                let text = format!("the JVM refused a call of the native client: {error}");
                ErrorFields::new("NativeLibrary", text, Recovery::Report)
            }
        }
    }

    /// Appends the error: name, text, recovery, when to try again, path, object, ranges.
    pub(crate) fn encode(&self, encoder: &mut Encoder) {
        encode(&self.fields(), encoder);
    }

    fn throw(&self, env: &mut Env<'_>) {
        if !env.exception_check() {
            throw(env, &self.fields());
        }
    }
}

fn encode(error: &ErrorFields, encoder: &mut Encoder) {
    let (recovery, _, after) = error.recovery();
    encoder.text(error.name).text(&error.text).small(recovery);
    encoder.optional(after.map(|after| after.0.min(i64::MAX as u64)));
    encoder.text(error.path.as_deref().unwrap_or_default());
    encoder.number(error.object as i64).count(error.ranges.len());
    for range in &error.ranges {
        encoder.number(range.offset as i64).number(range.bytes as i64);
    }
}

/// Throws the exception of an error.
fn throw(env: &mut Env<'_>, error: &ErrorFields) {
    // What fails here leaves an exception of Java's own.
    let _ = try_throw(env, error);
}

fn try_throw(env: &mut Env<'_>, error: &ErrorFields) -> Result<(), Error> {
    let mut encoder = Encoder::default();
    encode(error, &mut encoder);
    let error = encoder.array(env)?;
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
        &[JValue::Object(&error)],
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
        let text = format!("the native client failed, which is a bug: report it: {why}");
        throw(env, &ErrorFields::new("Panicked", text, Recovery::Report));
        Ok(T::default())
    }
}
