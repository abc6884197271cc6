//! Renews the leases of jobs.

use pyo3::prelude::*;
use sanderling_client::{Client, JobHandle};
use sanderling_protocol::{JobId, Millis};

use crate::caller::CallRunner;

/// Renews a job's lease in the background until it is dropped or stopped.
#[pyclass(frozen, name = "LeaseRenewer")]
pub(crate) struct PyLeaseRenewer {
    handle: parking_lot::Mutex<Option<JobHandle>>,
    caller: CallRunner,
}

impl PyLeaseRenewer {
    pub(crate) fn start(
        client: &Client,
        caller: &CallRunner,
        job: JobId,
        lease: Millis,
    ) -> PyResult<Self> {
        let runtime = caller.handle()?;
        let _context = runtime.enter();
        let handle = client.keep_job(job, lease);
        Ok(Self { handle: parking_lot::Mutex::new(Some(handle)), caller: caller.clone() })
    }
}

#[pymethods]
impl PyLeaseRenewer {
    /// Stops renewing: the job ends when its lease does.
    fn stop(&self) {
        let handle = self.handle.lock().take();
        if !self.caller.is_own() {
            // The parent of this forked process goes on renewing.
            std::mem::forget(handle);
        }
    }

    /// Returns whether the job has ended although its lease was renewed.
    fn has_ended(&self) -> bool {
        self.handle.lock().as_ref().is_some_and(JobHandle::has_ended)
    }
}

impl Drop for PyLeaseRenewer {
    fn drop(&mut self) {
        self.stop();
    }
}
