//! Jobs, whose leases are renewed on this side.
#![allow(unsafe_code, reason = "the JVM finds native methods by their exported names")]

use std::sync::Arc;

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JObject};
use parking_lot::Mutex;
use sanderling_client::{Client, ClientError, JobHandle};
use sanderling_protocol::message::{JobLimits, RegisterJob};

use crate::encoding::{Decoder, Encoder};
use crate::error::{NativeError, Throw};
use crate::handles::{self, Handle, insert};
use crate::memory::all;
use crate::runtime::wait;

/// A job; empty when it was ended here.
pub(crate) type SharedJob = Arc<Mutex<Option<JobHandle>>>;

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_beginJob<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    encoder: JByteArray<'local>,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, NativeError> {
        let client = handles::client(client)?;
        let encoder = all(env, &encoder)?;
        let (request, limits) = crate::options::job(&mut Decoder::new(&encoder))?;
        let (path, lease) = (request.path.clone(), request.lease);
        let job = wait(begin(&client, request, limits))?;
        let id = job.job();
        let handle = insert(Handle::Job(Arc::new(Mutex::new(Some(job)))));
        Ok(Encoder::build(|encoder| {
            encoder.number(handle).number(id.0 as i64).text(path.as_str()).number(lease.0 as i64)
        })
        .array(env)?)
    })
    .resolve::<Throw>()
}

async fn begin(
    client: &Client,
    request: RegisterJob,
    limits: JobLimits,
) -> Result<JobHandle, ClientError> {
    // A namenode of the release before knows jobs without limits alone.
    if limits == JobLimits::default() {
        return client.run_job(request).await;
    }
    let info = client.register_limited_job(request, limits).await?;
    Ok(client.keep_job(info.job, info.lease))
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_hasEnded<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    job: i64,
) -> bool {
    env.with_env(|_| -> Result<_, NativeError> {
        let job = handles::job(job);
        Ok(job.is_none_or(|job| job.lock().as_ref().is_none_or(JobHandle::has_ended)))
    })
    .resolve::<Throw>()
}

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_endJob<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    job: i64,
) {
    env.with_env(|_| -> Result<_, NativeError> {
        let entry = handles::job(job);
        handles::remove(job);
        match entry.and_then(|job| job.lock().take()) {
            Some(job) => Ok(wait(job.end())?),
            None => Err(NativeError::Closed("the job")),
        }
    })
    .resolve::<Throw>()
}
