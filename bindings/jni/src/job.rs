//! Jobs, whose leases are renewed on this side.
#![allow(unsafe_code, reason = "the JVM finds native methods by their exported names")]

use std::sync::Arc;

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JObject};
use parking_lot::Mutex;
use sanderling_client::{Client, ClientError, JobHandle};
use sanderling_protocol::message::{JobLimits, RegisterJob};

use crate::error::{Throw, Trouble};
use crate::facts::{Facts, Given};
use crate::memory::all;
use crate::runtime::wait;
use crate::shelf::{self, Held, keep};

/// A job; empty when it was ended here.
pub(crate) type HeldJob = Arc<Mutex<Option<JobHandle>>>;

#[unsafe(no_mangle)]
extern "system" fn Java_io_sanderling_client_Native_beginJob<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    _owner: JObject<'local>,
    client: i64,
    facts: JByteArray<'local>,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, Trouble> {
        let client = shelf::client(client)?;
        let facts = all(env, &facts)?;
        let (request, limits) = crate::options::job(&mut Given::new(&facts))?;
        let (path, lease) = (request.path.clone(), request.lease);
        let job = wait(begin(&client, request, limits))?;
        let id = job.job();
        let handle = keep(Held::Job(Arc::new(Mutex::new(Some(job)))));
        Ok(Facts::told(|facts| {
            facts.number(handle).number(id.0 as i64).text(path.as_str()).number(lease.0 as i64)
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
    env.with_env(|_| -> Result<_, Trouble> {
        let job = shelf::job(job);
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
    env.with_env(|_| -> Result<_, Trouble> {
        let held = shelf::job(job);
        shelf::take(job);
        match held.and_then(|job| job.lock().take()) {
            Some(job) => Ok(wait(job.end())?),
            None => Err(Trouble::Closed("the job")),
        }
    })
    .resolve::<Throw>()
}
