//! Native methods: the names under which the JVM finds them, and what their arguments and results
//! are on each side.

use jni::Env;
use jni::objects::{
    JByteArray, JByteBuffer, JClass, JIntArray, JLongArray, JObject, JObjectArray, JString,
};
use sanderling_client::{Client, Reader};
use sanderling_protocol::message::ObjectStat;

use crate::encoding::{Decode, Decoder, Encoder};
use crate::error::NativeError;
use crate::handles;
use crate::memory::all;

/// Defines methods of Java's class `Native`.
///
/// Each begins with the environment and, where Java passes the owner of the handle, `_owner`;
/// the arguments follow, each of an [`Argument`] type. An error is thrown in Java, a panic too.
macro_rules! native {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($env:ident $(, $owner:ident)?; $($argument:ident: $type:ty),* $(,)?)
            -> $result:ty $body:block
    )*) => {$(
        $(#[$meta])*
        #[allow(unsafe_code, reason = "the JVM finds native methods by their exported names")]
        #[allow(non_snake_case, reason = "the names are Java's")]
        #[unsafe(export_name = concat!("Java_io_sanderling_client_Native_", stringify!($name)))]
        extern "system" fn $name<'local>(
            mut env: jni::EnvUnowned<'local>,
            _class: jni::objects::JClass<'local>,
            $($owner: jni::objects::JObject<'local>,)?
            $($argument: <$type as crate::native::Argument<'local>>::Java,)*
        ) -> <$result as crate::native::Returned<'local>>::Java {
            env.with_env(|$env| -> Result<_, crate::error::NativeError> {
                $(let $argument = <$type as crate::native::Argument>::of($env, $argument)?;)*
                let result: Result<$result, crate::error::NativeError> = $body;
                crate::native::Returned::into_java(result?, $env)
            })
            .resolve::<crate::error::Throw>()
        }
    )*};
}

pub(crate) use native;

/// What a native method takes.
pub(crate) trait Argument<'local>: Sized {
    /// What Java passes for it.
    type Java;

    /// # Errors
    /// [`NativeError::Closed`] for a handle that was released, [`NativeError::Malformed`] for bytes
    /// in another order.
    fn of(env: &mut Env<'local>, java: Self::Java) -> Result<Self, NativeError>;
}

/// What a native method returns.
pub(crate) trait Returned<'local> {
    /// What Java receives for it.
    type Java: Default;

    /// # Errors
    /// [`NativeError::Java`] when the JVM has no memory left.
    fn into_java(self, env: &mut Env<'local>) -> Result<Self::Java, NativeError>;
}

impl<'local, T: Decode> Argument<'local> for T {
    type Java = JByteArray<'local>;

    fn of(env: &mut Env<'local>, java: Self::Java) -> Result<Self, NativeError> {
        T::decode(&mut Decoder::new(&all(env, &java)?))
    }
}

impl<'local> Argument<'local> for Client {
    type Java = i64;

    fn of(_env: &mut Env<'local>, java: i64) -> Result<Self, NativeError> {
        handles::client(java)
    }
}

impl<'local> Argument<'local> for Reader {
    type Java = i64;

    fn of(_env: &mut Env<'local>, java: i64) -> Result<Self, NativeError> {
        handles::reader(java)
    }
}

macro_rules! arguments_as_they_are {
    ($($type:ty),*) => {$(
        impl<'local> Argument<'local> for $type {
            type Java = Self;

            fn of(_env: &mut Env<'local>, java: Self) -> Result<Self, NativeError> {
                Ok(java)
            }
        }
    )*};
}

arguments_as_they_are!(i32, i64, JClass<'local>, JByteBuffer<'local>, JByteArray<'local>);
arguments_as_they_are!(JIntArray<'local>, JLongArray<'local>);

macro_rules! results_as_they_are {
    ($($type:ty),*) => {$(
        impl<'local> Returned<'local> for $type {
            type Java = Self;

            fn into_java(self, _env: &mut Env<'local>) -> Result<Self, NativeError> {
                Ok(self)
            }
        }
    )*};
}

results_as_they_are!((), bool, i32, i64, JObjectArray<'local, JObject<'local>>);

impl<'local> Returned<'local> for Encoder {
    type Java = JByteArray<'local>;

    fn into_java(self, env: &mut Env<'local>) -> Result<Self::Java, NativeError> {
        Ok(self.array(env)?)
    }
}

impl<'local> Returned<'local> for ObjectStat {
    type Java = JByteArray<'local>;

    fn into_java(self, env: &mut Env<'local>) -> Result<Self::Java, NativeError> {
        Encoder::build(|encoder| encoder.metadata(&self)).into_java(env)
    }
}

impl<'local> Returned<'local> for String {
    type Java = JString<'local>;

    fn into_java(self, env: &mut Env<'local>) -> Result<Self::Java, NativeError> {
        Ok(JString::from_str(env, self)?)
    }
}
