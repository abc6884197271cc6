//! Jobs, whose leases are renewed on this side.

use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_client::{Client, ClientError, JobHandle};
use sanderling_native::register_job;
use sanderling_protocol::message::{JobLimits, RegisterJob};

use crate::encoding::Encoder;
use crate::error::NativeError;
use crate::handles::{self, Handle, insert};
use crate::native::native;
use crate::runtime::named;

/// A job; empty when it was ended here.
pub(crate) type SharedJob = Arc<Mutex<Option<JobHandle>>>;

native! {
    fn beginJob(env, _owner; client: Client, request: (RegisterJob, JobLimits)) -> Encoder {
        let (request, limits) = request;
        let (path, lease) = (request.path.clone(), request.lease);
        let job = named("register_job", async {
            let info = register_job(&client, request, limits).await?;
            Ok::<_, ClientError>(client.keep_job(info.job, info.lease))
        })?;
        let id = job.job();
        let handle = insert(Handle::Job(Arc::new(Mutex::new(Some(job)))));
        Ok(Encoder::build(|encoder| {
            encoder.number(handle).number(id.0 as i64).text(path.as_str()).number(lease.0 as i64)
        }))
    }

    fn hasEnded(env, _owner; job: i64) -> bool {
        let job = handles::job(job);
        Ok(job.map_or(true, |job| job.lock().as_ref().is_none_or(JobHandle::has_ended)))
    }

    fn endJob(env, _owner; job: i64) -> () {
        let entry = handles::job(job)?;
        handles::remove(job);
        let job = entry.lock().take().ok_or(NativeError::Closed("the job"))?;
        Ok(named("end_job", job.end())?)
    }
}
